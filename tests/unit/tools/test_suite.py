# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""How the suite ends when it is told to."""

from __future__ import annotations

import signal
import subprocess
import sys
import typing as t
from pathlib import Path

import pytest
import scenarios
import suite
from steps import Step
from tally import Tally

# A step that ends its node when it is to stop, which takes a while.
PROGRAM = """
import pathlib, signal, sys, time
import scenarios, suite
from steps import Step
from tally import Tally

def step():
    print("it runs", flush=True)
    scenarios.stopping.wait()
    print("it ends", flush=True)
    time.sleep(1)
    pathlib.Path(sys.argv[1]).write_text("its node is gone")
    return Tally(failed=1)

signal.signal(signal.SIGINT, signal.default_int_handler)  # what runs in the background ignores it
suite.PARTS["check"] = lambda: [Step("a node", step)]
scenarios.patience = lambda: 1.0
raise SystemExit(suite.main(["check"]))
"""


@pytest.mark.parametrize("first", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT])
@pytest.mark.parametrize("second", [signal.SIGTERM, signal.SIGINT])
def test_another_signal_on_the_way_out_leaves_no_node(tmp_path: Path, first: int, second: int) -> None:
    path = str(Path(suite.__file__).parent)
    with subprocess.Popen(
        [sys.executable, "-c", PROGRAM, str(tmp_path / "gone")],
        env={"PYTHONPATH": path}, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, start_new_session=True,
    ) as process:  # fmt: skip
        assert process.stdout is not None
        for number, said in ((first, "it runs"), (second, "it ends")):
            assert any(said in line for line in process.stdout)
            process.send_signal(number)
        assert process.wait() != 0
    assert (tmp_path / "gone").read_text() == "its node is gone"


def test_all_that_is_asked_for_runs_and_one_failure_is_the_verdict(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    ran: list[str] = []

    def part(*names: str, failed: int = 0) -> t.Callable[[], list[Step]]:
        def step(name: str) -> Step:
            return Step(name, lambda: (ran.append(name), Tally(passed=1, failed=failed))[1])

        return lambda: [step(name) for name in names]

    parts = {"check": part("lint", "units"), "sanity": part("sanity"), "molecule": part("gc", "drift")}
    monkeypatch.setattr(suite, "PARTS", parts)
    monkeypatch.setattr(scenarios, "patience", lambda: 1.0)
    monkeypatch.setattr(scenarios, "CACHE", tmp_path)
    monkeypatch.setattr(suite.signal, "signal", lambda number, handler: None)
    assert suite.main(["check", "sanity", "molecule"]) == 0
    assert sorted(ran) == ["drift", "gc", "lint", "sanity", "units"]
    assert capsys.readouterr().out.splitlines()[-1] == "5 passed, 0 failed"
    parts["molecule"] = part("gc", "drift", failed=1)
    assert suite.main(["check", "sanity", "molecule"]) == 1
    assert capsys.readouterr().out.splitlines()[-1] == "5 passed, 2 failed"
    monkeypatch.setattr(suite, "PARTS", {"check": part(), "molecule": part()})
    assert suite.main(["check", "molecule"]) == 1, "nothing that passed is no success"
