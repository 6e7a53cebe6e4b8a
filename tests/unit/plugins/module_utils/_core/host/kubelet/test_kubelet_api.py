# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A kubelet's own word on its configuration, from a server with a certificate of its own."""

from __future__ import annotations

import http.server
import json
import shutil
import ssl
import subprocess
import threading
import typing as t
from pathlib import Path

import pytest
from _core.host.files import Host
from _core.host.kubelet import kubelet_api
from _core.model.kubelet.kubelet_config import Config

pytestmark = pytest.mark.skipif(
    not shutil.which("openssl"), reason="openssl, which makes the server's certificate, is not installed"
)

CONFIGZ = {"kubeletconfig": {"maxPods": 70, "cpuManagerPolicy": "static"}}


class Kubelet:
    """A server that answers as one, or as somebody else."""

    def __init__(self, folder: Path, asks_for_certificate: bool = False) -> None:
        self.answer: tuple[int, str] = (200, json.dumps(CONFIGZ))
        kubelet = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                code, text = kubelet.answer
                self.send_response(code if self.path == "/configz" else 404)
                self.end_headers()
                self.wfile.write(text.encode())

            def log_message(self, *dummy: t.Any) -> None:
                """Say nothing."""

        self.certificate, self.key = folder / "own.crt", folder / "own.key"
        made = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=node"]
        subprocess.run([*made, "-keyout", self.key, "-out", self.certificate], check=True, capture_output=True)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(self.certificate, self.key)
        if asks_for_certificate:
            context.load_verify_locations(self.certificate)
            context.verify_mode = ssl.CERT_REQUIRED
        self.server = http.server.HTTPServer(("127.0.0.1", 0), Handler)
        self.server.socket = context.wrap_socket(self.server.socket, server_side=True)
        self.thread = threading.Thread(target=self.server.serve_forever, daemon=True)
        self.thread.start()

    def config(self, **more: t.Any) -> Config:
        return Config({"address": "0.0.0.0", "port": self.server.server_port, **more}, {})

    def end(self) -> None:
        self.server.shutdown()
        self.thread.join()
        self.server.server_close()


@pytest.fixture(name="kubelet")
def running(tmp_path: Path) -> t.Iterator[Kubelet]:
    found = Kubelet(tmp_path)
    yield found
    found.end()


def test_a_kubelet_that_asks_for_no_certificate_tells(kubelet: Kubelet) -> None:
    assert kubelet_api.running_configuration(Host(), kubelet.config()) == CONFIGZ["kubeletconfig"]


@pytest.mark.parametrize(
    "answer",
    [(401, "Unauthorized"), (200, "<html>"), (200, "[]"), (200, '{"kubeletconfig": 3}'), (200, '{"other": {}}')],
    ids=["refused", "no JSON", "a list", "a number", "another key"],
)
def test_what_is_no_configuration_is_not_known(kubelet: Kubelet, answer: tuple[int, str]) -> None:
    kubelet.answer = answer
    assert kubelet_api.running_configuration(Host(), kubelet.config()) is None


@pytest.mark.parametrize(
    "more", [{"port": 1}, {"port": "x"}, {"address": 3}], ids=["nobody", "no number", "no address"]
)
def test_nobody_there_is_not_known(kubelet: Kubelet, more: dict[str, t.Any]) -> None:
    assert kubelet_api.running_configuration(Host(), kubelet.config(**more)) is None


def test_kubeadms_certificate_is_shown_to_a_kubelet_that_asks_for_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kubelet = Kubelet(tmp_path, asks_for_certificate=True)
    try:
        assert kubelet_api.running_configuration(Host(), kubelet.config()) is None
        monkeypatch.setattr(kubelet_api, "CLIENT", str(tmp_path / "own"))
        assert kubelet_api.running_configuration(Host(), kubelet.config()) == CONFIGZ["kubeletconfig"]
        kubelet.certificate.write_text("torn")
        assert kubelet_api.running_configuration(Host(), kubelet.config()) is None
    finally:
        kubelet.end()


def test_a_copy_of_a_node_is_not_asked(tmp_path: Path, kubelet: Kubelet) -> None:
    assert kubelet_api.running_configuration(Host(str(tmp_path)), kubelet.config()) is None
