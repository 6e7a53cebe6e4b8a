# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Whether a node is Ready, asked of a real server that wants the kubelet's certificate and proves who it is."""

from __future__ import annotations

import base64
import http.server
import json
import shutil
import ssl
import subprocess
import threading
import time
import typing as t
from pathlib import Path

import pytest
import yaml
from _core.host.agent import node_hooks
from _core.host.command import Command
from _core.host.files import Host
from _core.host.kubelet import kubelet_node, kubelet_ready
from _core.host.kubelet.kubelet_node import Process
from _core.host.kubelet.kubelet_ready import Readiness
from _core.model.plan import make_step

pytestmark = pytest.mark.skipif(
    not shutil.which("openssl"), reason="openssl, which makes the server's certificate, is not installed"
)


class Server:
    """An API server with one node, ``name``, and its kubeconfig in a folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.answers: list[tuple[int, str]] = [(200, node())]
        self.asked: list[str] = []
        server = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                server.asked.append(self.path)
                code, text = server.answers.pop(0) if len(server.answers) > 1 else server.answers[0]
                self.send_response(code)
                self.end_headers()
                self.wfile.write(text.encode())

            def log_message(self, *dummy: t.Any) -> None:
                """Say nothing."""

        made = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=own"]
        made += ["-addext", "subjectAltName=IP:127.0.0.1", "-keyout", folder / "own.key", "-out", folder / "own.crt"]
        subprocess.run(made, check=True, capture_output=True)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(folder / "own.crt", folder / "own.key")
        context.load_verify_locations(folder / "own.crt")
        context.verify_mode = ssl.CERT_REQUIRED
        self.server = http.server.HTTPServer(("127.0.0.1", 0), Handler)
        self.server.socket = context.wrap_socket(self.server.socket, server_side=True)
        self.thread = threading.Thread(target=self.server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
        self.thread.start()

    def kubeconfig(self, path: str = "", user: dict[str, str] | None = None, **cluster: str) -> str:
        """The path of a kubeconfig, as kubeadm writes it for a kubelet whose certificate is renewed."""
        server = f"https://127.0.0.1:{self.server.server_port}{path}"
        data = base64.b64encode((self.folder / "own.crt").read_bytes()).decode()
        file = self.folder / "kubelet.conf"
        whole = {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "b",
            "contexts": [{"name": "a"}, {"name": "b", "context": {"cluster": "c", "user": "u"}}],
            "clusters": [{"name": "c", "cluster": {"server": server, "certificate-authority-data": data, **cluster}}],
            "users": [{"name": "u", "user": user or {"client-certificate": "own.crt", "client-key": "own.key"}}],
        }
        file.write_text(yaml.safe_dump(whole))
        return str(file)


def node(status: str = "True", reported: float | None = None) -> str:
    """A node object, as far as anything is read of it."""
    when = time.strftime(kubelet_ready.TIME, time.gmtime(time.time() if reported is None else reported))
    ready = {"type": "Ready", "status": status, "reason": "KubeletNotReady", "message": "no  network", "lastHeartbeatTime": when}  # fmt: skip
    return json.dumps({"status": {"conditions": [{"type": "MemoryPressure", "status": "False"}, ready]}})


@pytest.fixture(name="server")
def running(tmp_path: Path) -> t.Iterator[Server]:
    found = Server(tmp_path)
    yield found
    found.server.shutdown()
    found.thread.join()
    found.server.server_close()


def asked(kubeconfig: str, name: str = "node-1.example") -> Readiness:
    return kubelet_ready.readiness(Host(), kubeconfig, name)


def test_the_server_of_the_kubeconfig_is_asked_with_the_kubelets_certificate(server: Server) -> None:
    found = asked(server.kubeconfig())
    assert (found.ready, found.said, abs(found.reported - time.time()) < 30) == (True, "", True)
    server.answers = [(200, node("False"))]
    assert asked(server.kubeconfig(path="/k8s/clusters/c-1/"))[:2] == (
        False,
        "Ready is False, KubeletNotReady: no network",
    )
    assert server.asked == ["/api/v1/nodes/node-1.example", "/k8s/clusters/c-1/api/v1/nodes/node-1.example"]


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        ((403, "secret"), ": status 403"),
        ((404, "secret"), ": status 404"),
        ((200, "secret"), "the API server's answer has no condition Ready"),
        ((200, "[]"), "the API server's answer has no condition Ready"),
        ((200, '{"status": {"conditions": ["secret"]}}'), "the API server's answer has no condition Ready"),
        ((200, node().replace("Ready", "Other")), "the API server's answer has no condition Ready"),
        ((200, node().replace("Z", "secret")), "the API server's answer has no condition Ready"),
    ],
)
def test_what_is_no_answer_is_not_known(server: Server, answer: tuple[int, str], said: str) -> None:
    server.answers = [answer]
    found = asked(server.kubeconfig())
    assert found.ready is None
    assert found.said.endswith(said) and "secret" not in found.said


OTHER = base64.b64encode(b"-----BEGIN CERTIFICATE-----\nsecret\n-----END CERTIFICATE-----\n").decode()


@pytest.mark.parametrize(
    ("user", "cluster", "said"),
    [
        ({"token": "secret"}, {}, "its user has no client-certificate and client-key, which name files"),
        ({"client-certificate": "own.crt"}, {}, "its user has no client-certificate and client-key, which name files"),
        ({"client-certificate": "gone.crt", "client-key": "own.key"}, {}, "No such file or directory"),
        (None, {"insecure-skip-tls-verify": "true"}, "insecure-skip-tls-verify is not supported"),
        (None, {"proxy-url": "http://secret"}, "proxy-url is not supported"),
        (None, {"server": "http://127.0.0.1"}, "its server is not supported"),
        (None, {"server": "https://[secret"}, "names no server and user in its current context"),
        (None, {"server": "https://127.0.0.1:1"}, "Connection refused"),
        (None, {"certificate-authority-data": "secret"}, "certificate-authority-data is not base64"),
        (None, {"certificate-authority-data": OTHER}, ""),
        (None, {"certificate-authority-data": ""}, "certificate verify failed"),
        (None, {"certificate-authority-data": "", "certificate-authority": "gone.crt"}, "No such file or directory"),
    ],
)
def test_a_server_that_cannot_be_asked_is_told_without_secrets(
    server: Server, user: dict[str, str] | None, cluster: dict[str, str], said: str
) -> None:
    found = asked(server.kubeconfig(user=user, **cluster))
    assert found.ready is None
    assert said in found.said and "secret" not in found.said
    assert server.asked == []


def test_an_authority_may_be_a_file_beside_the_kubeconfig(server: Server) -> None:
    assert asked(server.kubeconfig(**{"certificate-authority-data": "", "certificate-authority": "own.crt"})).ready


def test_comments_among_the_authorities_are_no_obstacle(server: Server) -> None:
    """As in a bundle of those that a distribution trusts: the run ended with a traceback."""
    text = "# Főtanúsítvány\n" + (server.folder / "own.crt").read_text()
    found = asked(server.kubeconfig(**{"certificate-authority-data": base64.b64encode(text.encode()).decode()}))
    assert (found.ready, found.said) == (True, "")


NO_USER = "current-context: a\ncontexts: [{name: a, context: {cluster: a, user: a}}]\n"
NO_USER += 'clusters: [{name: a, cluster: {server: "https://127.0.0.1"}}]\nusers: [{name: a, user: secret}]\n'


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", " is empty"),
        ("a: [secret", " is not YAML, or PyYAML is not installed"),
        ("- secret", " names no server and user in its current context"),
        ("current-context: b", " names no server and user in its current context"),
        (NO_USER, " names no server and user in its current context"),
        (None, ": No such file or directory"),
    ],
)
def test_a_kubeconfig_that_names_nothing_is_told(tmp_path: Path, text: str | None, said: str) -> None:
    file = tmp_path / "kubelet.conf"
    file.write_text(text) if text is not None else None
    assert asked(str(file)) == Readiness(None, f"{file}{said}")


@pytest.mark.parametrize(
    ("flags", "name"), [({}, "worker-1.example"), ({"hostname-override": " Other "}, "other")], ids=["hostname", "flag"]
)
def test_a_node_has_the_name_that_its_kubelet_registers(tmp_path: Path, flags: dict[str, str], name: str) -> None:
    file = tmp_path / "proc/sys/kernel/hostname"
    file.parent.mkdir(parents=True)
    file.write_text("Worker-1.example\n")
    assert kubelet_ready.node_name(Host(str(tmp_path)), flags) == name


@pytest.fixture
def host(monkeypatch: pytest.MonkeyPatch) -> Host:
    """This machine with a kubelet that has begun just now, where commands say that a log ends so."""
    began = time.time()
    monkeypatch.setattr(node_hooks, "BETWEEN_REQUESTS", 0.01)
    monkeypatch.setattr(kubelet_node, "of_unit", lambda host: Process(70, began, ()))
    return Host(run=lambda argv, timeout: Command(0, "the last line\n", ""))


def wait(host: Host, server: Server) -> str:
    return node_hooks.refused(host, make_step.ready("kubelet.service", server.kubeconfig(), "node-1", 0))


def test_it_waits_for_a_report_of_the_kubelet_that_runs_now(host: Host, server: Server) -> None:
    before = time.time() - 20
    server.answers = [(200, node(reported=before)), (503, ""), (200, node("False")), (200, node())]
    assert wait(host, server) == ""
    assert len(server.asked) == 4


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        ((200, node("Unknown")), "Ready is Unknown, KubeletNotReady: no network"),
        ((200, node(reported=1e9)), "its kubelet has not reported since it started"),
        ((503, ""), "status 503"),
    ],
)
def test_when_time_is_up_the_answer_and_the_log_say_why(
    host: Host, server: Server, answer: tuple[int, str], said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(node_hooks, "READY_SECONDS", 0.05)
    server.answers = [answer]
    found = wait(host, server)
    assert found.startswith("node node-1 is not Ready for 0 s (") and said in found
    assert found.endswith("the last log lines of kubelet.service: the last line")
