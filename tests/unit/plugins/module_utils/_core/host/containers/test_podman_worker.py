# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The program that asks Podman: a small program in Podman's place, on the same socket."""

from __future__ import annotations

import json
import os
import shutil
import sys
import tempfile
import typing as t
from pathlib import Path

import pytest
from _core.host.containers import podman_worker
from _core.host.containers.podman_worker import Failed, Podman, answers

# It gets the socket as descriptor 3, and ends like Podman some time after the last connection is gone.
STUB = """
import os, select, socket, sys, time
listener = socket.socket(fileno=3)
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
            os.write(2, b"x" * 300000)
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


@pytest.fixture
def start(tmp_path: Path) -> t.Iterator[t.Callable[..., Podman]]:
    """Starts a process in Podman's place; all of them end with the test."""
    place = tempfile.mkdtemp(prefix="corral-", dir="/tmp")  # a socket's path has at most 107 characters
    (tmp_path / "stub.py").write_text(STUB)
    made: list[Podman] = []

    def begin(*words: str) -> Podman:
        made.append(Podman(place, words or (sys.executable, str(tmp_path / "stub.py"))))
        return made[-1]

    yield begin
    for one in made:
        one.close()
        if one.process is not None and one.process.returncode is None:
            one.process.kill()
            one.process.wait()
    shutil.rmtree(place)


def test_an_answer_comes_whole_with_its_status(start: t.Callable[..., Podman]) -> None:
    podman = start()
    assert podman.request("GET", "/long", 20) == (200, "x" * 300000)
    assert os.listdir(podman.folder) == [], "the socket has no name"
    assert podman.request("DELETE", "/no", 20) == (409, "{}")


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
    path: str, code: int, said: str, start: t.Callable[..., Podman], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(podman_worker, "END_SECONDS", 0.3)
    with pytest.raises(Failed, match=said) as raised:
        start().request("GET", path, 0.5)
    assert raised.value.code == code


def test_one_that_ends_says_why_and_no_more_is_kept_than_the_end(start: t.Callable[..., Podman]) -> None:
    podman = start()
    for dummy in range(2):
        with pytest.raises(Failed, match="Error: the database is locked"):
            podman.request("GET", "/dies", 20)
    assert len(podman.tail) <= podman_worker.TAIL


def test_what_is_not_installed(start: t.Callable[..., Podman]) -> None:
    with pytest.raises(Failed, match=r"^/nowhere/podman$") as raised:
        start("/nowhere/podman").request("GET", "/", 20)
    assert raised.value.code == podman_worker.NOT_INSTALLED


def test_podman_gets_the_socket_as_from_systemd(start: t.Callable[..., Podman], tmp_path: Path) -> None:
    (tmp_path / "podman").write_text(TOLD.format(python=sys.executable))
    (tmp_path / "podman").chmod(0o755)
    podman = start(str(tmp_path / "podman"), "system", "service")
    status, body = podman.request("GET", "/", 20)
    told = json.loads(body)
    pid = told.pop("process")
    assert podman.process is not None
    assert (status, pid) == (200, podman.process.pid)
    told["environment"].pop("LC_ALL")
    assert told == {
        "words": ["system", "service"],
        "environment": {"LISTEN_FDS": "1", "LISTEN_PID": str(pid)},
        "input": os.devnull,
        "files": [0, 1, 2, 3],
        "leader": True,
    }


def test_it_ends_when_it_is_closed_and_when_its_last_connection_goes(start: t.Callable[..., Podman]) -> None:
    podman = start()
    podman.request("GET", "/no", 20)
    podman.close()
    assert podman.process is not None
    assert podman.process.returncode is not None
    podman = start()
    podman.request("GET", "/no", 20)
    assert podman.process is not None
    assert podman.process.poll() is None
    podman.lease.close()  # What a killed pass leaves to the kernel.
    assert podman.process.wait(20) == 0


def told(body: str, **request: t.Any) -> list[t.Any]:
    """The lines that answer a request to an API that answers so."""
    asked = {"method": "GET", "path": "/x", "timeout": 1, "pick": ["a"], **request}
    return [json.loads(line) for line in answers(asked, lambda *dummy: (200, body))]


GOOD = {"status": 200, "said": ""}


@pytest.mark.parametrize(
    ("body", "lines"),
    [
        ('[{"a": 1, "b": 2}, {}]', [[1], [None], GOOD]),
        ("null", [GOOD]),
        ("", [GOOD]),
        ("half of", [{"status": 0, "said": "its answer is not JSON"}]),
        ("[" * 100_000, [{"status": 0, "said": "its answer is not JSON"}]),
        ("{}", [{"status": 0, "said": "its answer is not as expected: no list of objects"}]),
        ("[1]", [{"status": 0, "said": "its answer is not as expected: no list of objects"}]),
    ],
)
def test_rows_of_a_list(body: str, lines: list[object]) -> None:
    assert told(body, list=True) == lines


def test_rows_of_one_object_and_of_what_is_none() -> None:
    assert told('{"a": 5}') == [[5], GOOD]
    assert told('"Created"') == [GOOD]


def test_events_are_the_last_ones_of_an_image_and_what_is_none_is_left_out() -> None:
    rows = [
        {"Actor": {"Attributes": {"image": name}}, "time": when}
        for name, when in (("a", 5), ("a", 9), ("a", 7), ("b", 1))
    ]
    others: list[object] = [5, None, [], {}, {"Actor": None}, {"Actor": {"Attributes": {"image": 5}}, "time": 1}]
    body = "\n".join([*map(json.dumps, [*rows, *others]), "half of", ""])
    assert told(body, events=True) == [["a", 9], ["b", 1], GOOD]


def test_what_is_no_file_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    for name in ("fifo", "none", "."):
        (end,) = told("", file=str(tmp_path / name))
        assert end["status"] == 0
    assert told("", stat=[str(tmp_path / "fifo")])[0][1] == 0
    (device,), dummy = told("", device=str(tmp_path))
    assert os.makedev(*map(int, device.split(":"))) == tmp_path.stat().st_dev


def test_a_folders_name_is_no_line_of_the_table_of_mounts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A user of FUSE may mount on a folder whose name goes on, for Python, as the line of another mount."""
    shown = {
        "fdinfo": "pos:\t0\nmnt_id:\t7\n",
        "mountinfo": "5 1 0:50 / /a\r7 rw - fuse.x x rw\n7 1 8:1 / / rw - ext4 x rw\n",
    }
    for name, text in shown.items():
        (tmp_path / name).write_bytes(text.encode())

    def opened(path: str, **words: t.Any) -> t.Any:
        return open(tmp_path / path.split("/")[3], **words)

    monkeypatch.setattr(podman_worker, "open", opened, raising=False)
    assert podman_worker.device_of(str(tmp_path)) == "8:1"


def test_a_failure_is_named_by_its_code() -> None:
    def fail(*dummy: object) -> t.NoReturn:
        raise Failed(124, "late")

    request = {"method": "GET", "path": "/x", "timeout": 1, "pick": []}
    assert [json.loads(line) for line in answers(request, fail)] == [{"code": 124, "said": "late"}]
    refused = answers(request, lambda *dummy: (409, '{"message": "in use"}'))
    assert [json.loads(line) for line in refused] == [{"status": 409, "said": "in use"}]
