# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Scenarios that are run again and again beside busy loops."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
import scenarios
import steady
from tally import Tally


@pytest.fixture
def ran(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, int]]:
    """The runs: the name of each, and how many busy loops there were meanwhile. The third run of gc fails."""
    seen: list[tuple[str, int]] = []

    def tallied(name: str) -> Tally:
        seen.append((name, len(loops(os.getpid()))))
        return Tally(failed=1) if seen.count(seen[-1]) == 3 and name == "gc" else Tally(passed=1)

    monkeypatch.setattr(scenarios, "tallied", tallied)
    monkeypatch.setattr(scenarios, "patience", lambda: 1.0)
    monkeypatch.setattr(scenarios, "CACHE", tmp_path)
    monkeypatch.setattr(steady.signal, "signal", lambda number, handler: None)  # the handlers are the test run's own
    return seen


def loops(parent: int) -> list[int]:
    """The busy loops that a process started."""
    found = subprocess.run(
        ["ps", "-o", "pid=,args=", "--ppid", str(parent)], capture_output=True, text=True, check=False
    )
    return [int(line.split()[0]) for line in found.stdout.splitlines() if "getppid" in line]


def test_each_runs_so_often_beside_the_loops(ran: list[tuple[str, int]], capsys: pytest.CaptureFixture[str]) -> None:
    assert steady.main(["drift", "parts", "--runs", "4", "--loops", "1", "--at-once", "1"]) == 0
    assert ran == [("drift", 1)] * 4 + [("parts", 1)] * 4
    assert loops(os.getpid()) == []
    assert capsys.readouterr().out.splitlines()[-1] == "8 passed, 0 failed"


def test_what_failed_is_not_run_again(ran: list[tuple[str, int]], capsys: pytest.CaptureFixture[str]) -> None:
    assert steady.main(["gc", "drift", "--runs", "5", "--loops", "0", "--at-once", "1"]) == 1
    assert [name for name, dummy in ran] == ["gc"] * 3 + ["drift"] * 5
    assert capsys.readouterr().out.splitlines()[-1] == "7 passed, 1 failed"


def test_a_loop_ends_with_who_started_it() -> None:
    program = "import os, subprocess, sys; subprocess.Popen([sys.executable, '-c', sys.argv[1], str(os.getpid())]); os.read(0, 1)"
    with subprocess.Popen([sys.executable, "-c", program, steady.BUSY], stdin=subprocess.PIPE) as process:
        while not (pids := loops(process.pid)):
            time.sleep(0.01)
        process.kill()  # perhaps before the loop is there
    deadline = time.monotonic() + 600
    while Path(f"/proc/{pids[0]}").exists() and time.monotonic() < deadline:
        time.sleep(0.01)
    assert not Path(f"/proc/{pids[0]}").exists()


def test_a_loop_that_begins_after_the_end_of_who_started_it_ends_at_once() -> None:
    done = subprocess.run([sys.executable, "-c", steady.BUSY, "1"], timeout=600, check=False)
    assert done.returncode == 0


def test_a_name_that_is_no_scenario_is_refused(ran: list[tuple[str, int]], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        steady.main(["nothing"])
    assert ran == [] and "invalid choice: 'nothing'" in capsys.readouterr().err
