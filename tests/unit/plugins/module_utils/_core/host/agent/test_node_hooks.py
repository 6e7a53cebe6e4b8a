# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The wait for a service that says that it is healthy, on a real server of this machine."""

from __future__ import annotations

import http.server
import threading
import typing as t
from pathlib import Path

import pytest
from _core.host.agent import node_hooks
from _core.host.command import Command
from _core.host.files import Host
from _core.host.kubelet import http_answer
from _core.model.plan import make_step

ANSWERS: list[int] = []


class Health(http.server.BaseHTTPRequestHandler):
    """Answers what ANSWERS says, its last entry again and again."""

    def do_GET(self) -> None:
        status = ANSWERS.pop(0) if len(ANSWERS) > 1 else ANSWERS[0]
        self.send_response(status if self.path == "/healthz" else 404)
        self.end_headers()
        self.wfile.write(b"not yet\n" if status != 200 else b"ok")

    def log_message(self, *dummy: t.Any) -> None:
        """Say nothing."""


@pytest.fixture
def port() -> t.Iterator[int]:
    server = http.server.HTTPServer(("127.0.0.1", 0), Health)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield server.server_port
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture
def host(monkeypatch: pytest.MonkeyPatch) -> Host:
    """This machine, where commands say that a log ends so."""
    monkeypatch.setattr(node_hooks, "BETWEEN_SECONDS", 0.01)
    return Host(run=lambda argv, timeout: Command(0, "first\n\n  the last   line\n", ""))


def wait(host: Host, port: int) -> str:
    return node_hooks.refused(host, make_step.health("kubelet.service", f"127.0.0.1:{port}", 0))


def test_it_waits_until_the_answer_is_right_and_stays_so(
    host: Host, port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(node_hooks, "STEADY_SECONDS", 0.05)
    ANSWERS[:] = [500, 200, 500, 500, 200]
    assert wait(host, port) == ""
    assert ANSWERS == [200], "one good answer among bad ones is not enough"


def test_when_time_is_up_the_answer_and_the_log_say_why(host: Host, port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(node_hooks, "HEALTH_SECONDS", 0.05)
    ANSWERS[:] = [500]
    said = wait(host, port)
    assert said.startswith("kubelet.service: not healthy for 0 s")
    assert f"http://127.0.0.1:{port}/healthz: status 500: not yet" in said
    assert said.endswith("its last log lines: first | the last line")


def test_a_service_that_ends_again_and_again_is_not_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(node_hooks, "BETWEEN_SECONDS", 0.0)
    procs = tmp_path / "sys/fs/cgroup/system.slice/kubelet.service/cgroup.procs"
    procs.parent.mkdir(parents=True)
    (tmp_path / "sys/fs/cgroup/cgroup.controllers").write_text("cpuset")

    class Restarting(Host):
        def ask(self, *dummy: t.Any) -> tuple[int, str]:
            last = int(procs.read_text().split()[0]) if procs.exists() else 70
            procs.write_text(f"{last + 10}\n{last + 11}\n")
            return 200, "ok"

    host = Restarting(str(tmp_path), run=lambda argv, timeout: Command(0, " ".join(argv), ""))
    said = wait(host, 10248)
    assert said.startswith(
        "kubelet.service: not healthy for 0 s, and it ended 3 times (http://127.0.0.1:10248/healthz: status 200: ok)"
    )
    assert said.endswith("_SYSTEMD_UNIT=kubelet.service")


def test_no_server_is_an_answer_as_well(port: int) -> None:
    status, why = http_answer.get("127.0.0.1", 1, "/healthz", 1.0)
    assert (status, "refused" in why) == (0, True)
    assert Host("/nowhere").ask("127.0.0.1", port, "/healthz") == (0, "a tree answers nothing")


def test_a_hook_that_fails_is_told_with_its_last_words(tmp_path: Path) -> None:
    host = Host(str(tmp_path), run=lambda argv, timeout: Command(3, "", f"{argv}\n  cannot evict\n"))
    host.permissions = lambda path: None  # type: ignore[method-assign]  # nothing there is another user's than root's
    said = node_hooks.refused(host, make_step.hook("/sbin/drainer", "drain", 0))
    assert said == "/sbin/drainer drain: exit code 3: ('/sbin/drainer', 'drain') cannot evict"
