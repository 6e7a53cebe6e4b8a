# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What comes from a user's process, whatever that is: one answer of limited size in time, or none."""

from __future__ import annotations

import json
import resource
import sys
import time
import typing as t
from pathlib import Path

import pytest
from _core.host.command import Command
from _core.host.containers import podman_cli, podman_unit
from _core.host.containers.podman_unit import Account, ServiceError, Worker, answer_of
from _core.host.files import Host

END = b'{"status":200,"said":""}'
ALICE = Account({"User": "1007", "Slice": "user-1007.slice"}, {"HOME": "/srv/alice"})


def told(*lines: bytes) -> podman_unit.Answer:
    return answer_of(iter(lines))


def test_an_answer_is_rows_and_an_end() -> None:
    assert told(b'["a",1]', b"[]", END) == (200, "", [["a", 1], []])
    assert told(b'{"status":0,"said":"no"}').status == 0
    with pytest.raises(ServiceError, match="gone") as raised:
        told(b"[1]", b'{"code":124,"said":"gone"}')
    assert raised.value.code == 124


@pytest.mark.parametrize(
    "line",
    [
        b"",
        b"half of",
        b"5",
        b'"text"',
        b"null",
        b"{}",
        b'{"status":200}',
        b'{"status":true,"said":""}',
        b'{"status":1e3,"said":""}',
        b'{"status":99999,"said":""}',
        b'{"status":200,"said":["x"]}',
        b'{"code":-1,"said":"x"}',
        b'{"code":true,"said":"x"}',
        b"[NaN]",
        b"[Infinity]",
        b"[" + b"9" * 21 + b"]",
        b"[" + b"9" * 100_000 + b"]",
        b'["\xff"]',
        b"[" * 100_000,
        b'{"a":' * 50_000,
        b"[" + b"{}," * 1_000_000 + b"{}]",
        b"[" + b"0," * 1_000_000 + b"0]",
        b'["' + b"x" * (podman_unit.ANSWER + 1) + b'"]',
    ],
    ids=range(23),
)
def test_what_the_program_would_not_write_is_an_error_and_costs_little(line: bytes) -> None:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(ServiceError):
        told(line, END)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 64 << 10, "KiB"


def test_a_key_that_comes_twice_counts_once() -> None:
    assert told(b'[{"a":1,"a":2}]', b'{"status":500,"status":200,"said":""}') == (200, "", [[{"a": 2}]])


@pytest.mark.parametrize("row", [b"[]", b"{}", b'["a","b"]', b"[[[]]]"])
def test_rows_without_end_are_an_error(row: bytes) -> None:
    def endless() -> t.Iterator[bytes]:
        while True:
            yield row

    with pytest.raises(ServiceError):
        answer_of(endless())


class Machine:
    """A node on which a unit may be stopped."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, ...]] = []

    def run(self, argv: t.Sequence[str], dummy_timeout: float) -> Command:
        self.asked.append(tuple(argv))
        return Command(0, "", "")


@pytest.fixture
def machine() -> Machine:
    return Machine()


@pytest.fixture
def start(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> t.Iterator[t.Callable[[str], Worker]]:
    """Starts a program in the place of the user's; all of them end with the test."""
    monkeypatch.setattr(podman_unit, "START_SECONDS", 0.0)
    monkeypatch.setattr(podman_unit, "END_SECONDS", 0.5)
    made: list[Worker] = []

    def begin(program: str) -> Worker:
        made.append(Worker(Host("/", run=machine.run), ALICE, (sys.executable, "-I", "-S", "-c", program)))
        return made[-1]

    yield begin
    for one in made:
        if one.process.returncode is None:
            one.close()
        assert one.process.returncode is not None


HOSTILE_PROGRAMS = {
    "drips": "import sys, time\nwhile True: sys.stdout.write('x'); sys.stdout.flush(); time.sleep(0.01)",
    "a line without end": "import os\nwhile True: os.write(1, b'[' * 65536)",
    "rows without end": "import os\nwhile True: os.write(1, b'[]\\n' * 20000)",
    "63 MiB": "import os\nfor n in range(1008): os.write(1, b'[' + b'{},' * 21845)",
    "says without end": "import os\nwhile True: os.write(2, b'x' * 65536)",
    "hangs": "import time\ntime.sleep(60)",
    "ignores SIGTERM": "import signal, time\nsignal.signal(15, signal.SIG_IGN)\ntime.sleep(60)",
    "reads and says nothing": "import sys\nfor line in sys.stdin: pass",
    "kills itself": "import os\nos.kill(os.getpid(), 9)",
    "half a line": "import os\nos.write(1, b'[1,')",
    "closes": "import os, time\nos.close(1); os.close(0); time.sleep(60)",
    "forks": "import os, time\nos.write(1, b'[1]\\n')\nos.fork(); time.sleep(60)",
}


@pytest.mark.parametrize("name", HOSTILE_PROGRAMS)
def test_a_hostile_program_is_an_error_in_time(name: str, start: t.Callable[[str], Worker], machine: Machine) -> None:
    begun = time.monotonic()
    worker = start(HOSTILE_PROGRAMS[name])
    with pytest.raises(ServiceError):
        worker.ask({"path": "/images/json"}, 2.0)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    worker.close()
    assert time.monotonic() - begun < 10
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 64 << 10
    assert {words[:2] for words in machine.asked} <= {("systemctl", "stop")}


def test_a_line_without_end_is_not_waited_for(start: t.Callable[[str], Worker]) -> None:
    with pytest.raises(ServiceError, match="longer than 256 KiB"):
        start(HOSTILE_PROGRAMS["a line without end"]).ask({}, 60.0)


@pytest.mark.parametrize("more, fits", [(0, True), (1, False), (40_000, False)])
def test_a_whole_line_has_the_same_limit(more: int, fits: bool, start: t.Callable[[str], Worker]) -> None:
    row = f"""b'["' + b'x' * {podman_unit.LINE + more - 4} + b'"]\\n'"""
    worker = start(f"import sys; sys.stdin.readline(); sys.stdout.buffer.write({row} + {END!r} + b'\\n')")
    if fits:
        assert len(worker.ask({}, 20.0).rows[0][0]) == podman_unit.LINE - 4
    else:
        with pytest.raises(ServiceError, match="longer than 256 KiB"):
            worker.ask({}, 20.0)


def test_a_program_that_does_not_end_is_ended_with_its_unit(start: t.Callable[[str], Worker], machine: Machine) -> None:
    worker = start(HOSTILE_PROGRAMS["ignores SIGTERM"])
    worker.close()
    assert machine.asked == [("systemctl", "stop", "--no-block", worker.unit)]


def test_many_that_do_not_end_take_no_longer_than_one(
    start: t.Callable[[str], Worker], machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each has answered as it should, and so has time to end by itself."""
    monkeypatch.setattr(podman_unit, "END_SECONDS", 2.0)
    program = f"import sys, time; sys.stdin.readline(); print({END.decode()!r}, flush=True); time.sleep(60)"
    host = Host("/", run=machine.run)
    podmans = podman_cli.Podmans(host, 4)
    for user in ("alice", "bob", "carol", "dave"):
        podmans.asked[user] = podman = podman_cli.Podman(host)
        podman.worker = start(program)
        podman.worker.ask({}, 20.0)
    begun = time.monotonic()
    podmans.close()
    assert 2.0 < time.monotonic() - begun < 5.0
    assert len(machine.asked) == 4


def test_one_that_closes_its_output_and_stays_takes_no_more_than_its_time(
    start: t.Callable[[str], Worker], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(podman_unit, "END_SECONDS", 20.0)
    begun = time.monotonic()
    with pytest.raises(ServiceError):
        start(HOSTILE_PROGRAMS["closes"]).ask({}, 60.0, 1.0)
    assert time.monotonic() - begun < 5.0


def test_the_units_own_words_are_the_reason(start: t.Callable[[str], Worker]) -> None:
    with pytest.raises(ServiceError, match="Failed to start transient service unit"):
        start("import sys; sys.exit('Failed to start transient service unit: no')").ask({}, 2.0)
    with pytest.raises(ServiceError, match=r"^0$"):
        start("import os, sys; sys.stderr.write(os.environ['SYSTEMD_COLORS']); sys.exit(1)").ask({}, 2.0)


def test_a_unit_has_limits_and_is_the_users(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """What systemd-run is asked for; the real program answers in its place."""
    told_words = tmp_path / "words"
    program = (
        f"import json, subprocess, sys; open({str(told_words)!r}, 'w').write(json.dumps(sys.argv[1:])); "
        "at = sys.argv.index('--'); sys.exit(subprocess.call([sys.executable, *sys.argv[at + 2:]]))"
    )
    (tmp_path / "systemd-run").write_text(f"#!{sys.executable}\n{program}\n")
    (tmp_path / "systemd-run").chmod(0o755)
    real = podman_unit.transient_unit.command_line
    monkeypatch.setattr(
        podman_unit.transient_unit,
        "command_line",
        lambda *words, **named: (str(tmp_path / "systemd-run"), *real(*words, **named)[1:]),
    )
    monkeypatch.setattr(podman_unit.os, "sched_getscheduler", lambda dummy: podman_unit.os.SCHED_IDLE)
    worker = Worker(Host("/"), ALICE)
    (tmp_path / "list.json").write_text('[{"id": "a", "layer": 5, "other": 1}]')
    request = {"file": str(tmp_path / "list.json"), "pick": ("id", "layer", "parent"), "list": True}
    assert worker.ask(request, 20.0) == (200, "", [["a", 5, None]])
    assert worker.ask({"stat": [str(tmp_path / "none")]}, 20.0).rows == [[]]
    worker.close()
    assert worker.process.returncode == 0
    words = json.loads(told_words.read_text())
    wanted = {"User=1007", "Slice=user-1007.slice", "MemoryMax=1G", "TasksMax=1024", "RuntimeMaxSec=600"}
    wanted |= {"OOMPolicy=kill", "TimeoutStopSec=10"}  # With Delegate= systemd would let the rest run on.
    assert wanted <= {word.partition("=")[2] for word in words if word.startswith("--property=")}
    assert {"--pipe", "--wait", f"--unit={worker.unit}", "--setenv=HOME=/srv/alice"} <= set(words)
    # At the lowest priority when the caller has it, in words that systemd 247 knows.
    assert "--property=CPUWeight=1" in words


def test_a_unit_that_does_not_start_takes_no_more_than_what_is_left(tmp_path: Path) -> None:
    worker = Worker(Host(tmp_path), ALICE, [sys.executable, "-I", "-S", "-c", "import time; time.sleep(60)"])
    began = time.monotonic()
    try:
        with pytest.raises(ServiceError) as raised:
            worker.ask({"version": True}, 130.0, 0.5)
    finally:
        worker.process.kill()
        worker.close()
    assert raised.value.code == 124
    assert time.monotonic() - began < 10.0
