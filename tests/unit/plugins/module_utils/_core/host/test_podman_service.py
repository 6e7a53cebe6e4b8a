# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The process that answers requests: a small program in Podman's place, on the same socket."""

from __future__ import annotations

import json
import os
import shutil
import sys
import tempfile
import time
import typing as t
from pathlib import Path

import pytest
from _core.host import podman_service
from _core.host.podman_service import Service, ServiceError

# It gets the socket as its standard input, and ends like Podman some time after the last connection is gone.
STUB = """
import os, select, socket, sys, time
listener = socket.socket(fileno=os.dup(0))
held = []
while True:
    ready = select.select([listener, *held], [], [], 5)[0]
    for one in ready:
        if one is listener:
            held.append(listener.accept()[0])
            continue
        asked = one.recv(65536).decode()
        held.remove(one)
        path = asked.split(" ")[1] if asked else ""
        if path == "/long":
            one.sendall(b"HTTP/1.0 200 OK\\r\\nContent-Type: x\\r\\n\\r\\n" + b"x" * 300000)
        if path == "/cut":
            one.sendall(b"HTTP/1.0 200 OK\\r\\nContent-Length: 9\\r\\n\\r\\nhalf")
        if path == "/digits":
            one.sendall(b"HTTP/1.0 " + b"2" * 5000 + b" OK\\r\\n\\r\\n")
        if path == "/late":
            time.sleep(60)
        if path == "/dies":
            sys.exit("Error: the database is locked")
        if path == "/no":
            one.sendall(b"HTTP/1.0 409 Conflict\\r\\nContent-Length: 2\\r\\n\\r\\n{}")
        one.close()
    if not held:
        sys.exit(0)
"""

# In Podman's place where it is started as Podman is: what it was given is its answer.
TOLD = """#!{python} -IS
import json, os, socket, sys
open_files = sorted(int(name) for name in os.listdir("/proc/self/fd") if os.path.exists(f"/proc/self/fd/{{name}}"))
told = {{
    "words": sys.argv[1:],
    "environment": {{name: os.environ.get(name) for name in ("LISTEN_FDS", "LISTEN_PID", "LC_ALL")}},
    "process": os.getpid(),
    "input": os.readlink("/proc/self/fd/0"),
    "files": open_files,
    "leader": os.getsid(0) == os.getpid(),
}}
listener = socket.socket(fileno=3)
for last in (False, True):  # the first connection is the one that stays open
    connection = listener.accept()[0]
    if last:
        connection.recv(65536)
        connection.sendall(b"HTTP/1.0 200 OK\\r\\n\\r\\n" + json.dumps(told).encode())
        connection.close()
"""


# What stands between the prefix and Podman, with nothing in PATH.
AS_PODMAN = "import sys; exec(sys.argv[-1])"


@pytest.fixture
def start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> t.Iterator[t.Callable[..., Service]]:
    """Starts a process in Podman's place; all of them end with the test."""
    place = tempfile.mkdtemp(prefix="corral-", dir="/tmp")  # a socket's path has at most 107 characters
    monkeypatch.setattr(podman_service, "FOLDER", place)
    (tmp_path / "stub.py").write_text(STUB)
    made: list[Service] = []

    def begin(*prefix: str) -> Service:
        made.append(Service(prefix or (sys.executable, str(tmp_path / "stub.py"))))
        return made[-1]

    yield begin
    for one in made:
        if one.process.returncode is None:
            one.close()
    shutil.rmtree(place)


def test_an_answer_comes_whole_with_its_status(start: t.Callable[..., Service]) -> None:
    service = start()
    assert os.listdir(podman_service.FOLDER) == [], "the socket has no name"
    assert service.request("GET", "/long", 20) == (200, "x" * 300000)
    assert service.request("DELETE", "/no", 20) == (409, "{}")


@pytest.mark.parametrize(
    ("path", "code", "said"),
    [
        ("/cut", 125, "is cut off"),
        ("/none", 125, "closed the connection"),
        ("/digits", 125, "closed the connection"),
        ("/late", 124, "^$"),
    ],
)
def test_what_is_no_whole_answer(
    path: str, code: int, said: str, start: t.Callable[..., Service], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(podman_service, "END_SECONDS", 0.3)
    with pytest.raises(ServiceError, match=said) as raised:
        start().request("GET", path, 0.5)
    assert raised.value.code == code


def test_one_that_ends_says_why(start: t.Callable[..., Service]) -> None:
    service = start()
    for dummy in range(2):
        with pytest.raises(ServiceError, match="Error: the database is locked"):
            service.request("GET", "/dies", 20)


def test_what_is_not_installed(start: t.Callable[..., Service]) -> None:
    with pytest.raises(ServiceError, match=r"^/nowhere/runuser$") as raised:
        start("/nowhere/runuser")
    assert raised.value.code == podman_service.NOT_INSTALLED
    with pytest.raises(ServiceError, match=r"^podman$") as raised:
        start("env", "-i", "PATH=/nowhere", sys.executable, "-c", AS_PODMAN).request("GET", "/", 20)
    assert raised.value.code == podman_service.NOT_INSTALLED
    with pytest.raises(ServiceError, match=r"^python3$") as raised:
        start("env", "-i", "PATH=/nowhere", "env").request("GET", "/", 20)
    assert raised.value.code == podman_service.NOT_INSTALLED


def test_podman_gets_the_socket_as_from_systemd(start: t.Callable[..., Service], tmp_path: Path) -> None:
    (tmp_path / "podman").write_text(TOLD.format(python=sys.executable))
    (tmp_path / "podman").chmod(0o755)
    (tmp_path / "python3").symlink_to(sys.executable)
    service = start("env", f"PATH={tmp_path}")
    status, body = service.request("GET", "/", 20)
    told = json.loads(body)
    pid = told.pop("process")
    assert (status, pid) == (200, service.process.pid)
    assert told == {
        "words": ["system", "service", f"--time={podman_service.IDLE_SECONDS}"],
        "environment": {"LISTEN_FDS": "1", "LISTEN_PID": str(pid), "LC_ALL": "C"},
        "input": os.devnull,
        "files": [0, 1, 2, 3],
        "leader": True,
    }


def test_it_ends_when_it_is_closed_and_when_its_last_connection_goes(start: t.Callable[..., Service]) -> None:
    service = start()
    service.request("GET", "/no", 20)
    service.close()
    assert service.process.returncode is not None
    service = start()
    service.request("GET", "/no", 20)
    assert service.process.poll() is None
    service.lease.close()  # What a killed pass leaves to the kernel.
    assert service.process.wait(20) == 0


def test_one_that_does_not_end_is_killed(start: t.Callable[..., Service], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(podman_service, "END_SECONDS", 0.3)
    service = start("/bin/sh", "-c", "trap '' TERM; while :; do sleep 0.1; done")
    time.sleep(0.3)
    service.close()
    assert service.process.returncode == -9
