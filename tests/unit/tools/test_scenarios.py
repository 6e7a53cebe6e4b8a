# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""How scenarios are run: on every way out the node goes, what failed is kept, seconds add up."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
import typing as t
from pathlib import Path

import pytest
import scenarios
import steps

NAME = "drift"
HUNG = 600  # seconds; none of it is waited for on a machine that gets on at all


class Ground(t.NamedTuple):
    """A cache folder, and what was asked of the lab."""

    cache: Path
    asked: Path

    def lab(self) -> list[str]:
        return self.asked.read_text().splitlines() if self.asked.exists() else []


@pytest.fixture
def ground(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Ground:
    """A lab that writes down what is asked of it, and a molecule that does what the test says (see acts)."""
    lab, asked = tmp_path / "lab", tmp_path / "asked"
    lab.write_text(f'#!/bin/sh\necho "$*" >>{asked}\ncat >/dev/null\n[ "$1" != ssh ] || echo what the node said\n')
    lab.chmod(0o755)
    monkeypatch.setattr(scenarios, "CACHE", tmp_path)
    monkeypatch.setattr(scenarios, "LAB", lab)
    monkeypatch.setattr(scenarios, "stopping", threading.Event())
    monkeypatch.setenv("CORRAL_PATIENCE", "1")
    scenarios.patience.cache_clear()
    return Ground(tmp_path, asked)


def acts(ground: Ground, monkeypatch: pytest.MonkeyPatch, script: str) -> None:
    """What molecule does."""
    tool = ground.cache / "molecule"
    tool.write_text(f"#!/bin/sh\n{script}\n")
    tool.chmod(0o755)
    monkeypatch.setattr(scenarios, "tool", lambda name: str(ground.cache / name))


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def test_a_scenario_that_passes_leaves_its_log_alone(ground: Ground, monkeypatch: pytest.MonkeyPatch) -> None:
    acts(ground, monkeypatch, 'echo "$@"')
    assert scenarios.run(NAME)
    assert ground.lab() == ["down corral-drift", "down corral-drift"]
    assert "test --destroy=never --scenario-name drift" in scenarios.log_file(NAME).read_text()
    assert not list(ground.cache.glob("failed-*"))


def test_one_that_fails_keeps_what_its_node_said(ground: Ground, monkeypatch: pytest.MonkeyPatch) -> None:
    acts(ground, monkeypatch, "exit 2")
    assert not scenarios.run(NAME)
    assert ground.lab()[1:] == ["ssh corral-drift sh -s", "console corral-drift", "down corral-drift"]
    assert "what the node said" in (ground.cache / "failed-drift.txt").read_text()
    assert "failed-drift.txt" in scenarios.log_file(NAME).read_text()
    acts(ground, monkeypatch, "exit 0")
    assert scenarios.run(NAME, keep=True)
    assert not (ground.cache / "failed-drift.txt").exists(), "it is of an earlier run"
    assert ground.lab()[-1] == "down corral-drift", "only the one before it begins"
    assert len(ground.lab()) == 5


def test_one_whose_nodes_do_not_go_has_failed_and_the_guard_tries_again(
    ground: Ground, monkeypatch: pytest.MonkeyPatch
) -> None:
    acts(ground, monkeypatch, "exit 0")
    down = f"""#!/bin/sh\necho "$*" >>{ground.asked}\n[ "$(wc -l <{ground.asked})" != 2 ]\n"""
    scenarios.LAB.write_text(down)
    assert not scenarios.run(NAME)
    assert ground.lab() == ["down corral-drift"] * 3
    assert "ERROR: its nodes could not be ended" in scenarios.log_file(NAME).read_text()


def test_an_error_of_one_scenario_does_not_stop_the_others(ground: Ground, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*words: str, **more: t.Any) -> bool:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(scenarios, "lab", full)
    with pytest.raises(OSError, match="No space left"):
        scenarios.run(NAME)
    assert not scenarios.stopping.is_set()
    assert scenarios.left(NAME)[0] == f"log {scenarios.log_file(NAME)}", "a file that is not there is not named"


@pytest.mark.parametrize("said", ["Executed: Missing playbook (Remove from test_sequence to suppress)"])
def test_a_playbook_that_is_missing_is_a_failure(said: str, ground: Ground, monkeypatch: pytest.MonkeyPatch) -> None:
    acts(ground, monkeypatch, f"echo 'WARNING  [drift > verify] {said}'")
    assert not scenarios.run(NAME)
    assert "ERROR: a playbook of its test_sequence is missing" in scenarios.log_file(NAME).read_text()


def test_a_runner_that_is_killed_while_it_asks_a_node_leaves_no_node(ground: Ground) -> None:
    (ground.cache / "molecule").write_text("#!/bin/sh\nexit 2\n")
    (ground.cache / "molecule").chmod(0o755)
    slow = ground.cache / "lab"
    slow.write_text(f'#!/bin/sh\necho "$*" >>{ground.asked}\n[ "$1" != ssh ] || exec sleep 10\n')
    program = (
        "import pathlib, sys; sys.path.insert(0, sys.argv[1]); import scenarios\n"
        "cache = pathlib.Path(sys.argv[2]); scenarios.CACHE = cache; scenarios.LAB = cache / 'lab'\n"
        "scenarios.tool = lambda name: str(cache / name)\nscenarios.run('drift')\n"
    )
    words = [sys.executable, "-c", program, str(Path(scenarios.__file__).parent), str(ground.cache)]
    with subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        deadline = time.monotonic() + HUNG
        while len(ground.lab()) < 2 and time.monotonic() < deadline:
            time.sleep(0.05)
        process.kill()
    while len(ground.lab()) < 3 and time.monotonic() < deadline:
        time.sleep(0.1)
    assert ground.lab() == ["down corral-drift", "ssh corral-drift sh -s", "down corral-drift"]


def test_the_suite_repeats_at_its_end_where_a_scenario_failed(ground: Ground, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(steps, "complaints", [])
    long = "x" * 5000
    said = f"TASK [One]\nok: [n]\nTASK [Two]\nfatal: [n]: FAILED! => {long} AssertionError: seven\nPLAY RECAP\n"
    acts(ground, monkeypatch, f"cat <<'END'\n{said}END\nexit 2")
    assert steps.judged(steps.Step("molecule drift", lambda: scenarios.tallied(NAME))).failed
    name, head, *rest = steps.complaints
    assert name == "molecule drift failed:"
    assert "molecule-drift.log" in head and "failed-drift.txt" in head
    assert rest[0] == "    TASK [Two]"
    assert rest[1].startswith("    fatal: [n]") and rest[1].endswith("AssertionError: seven") and len(rest[1]) < 1100
    assert scenarios.excerpt("a\nb") == ["a", "b"], "nothing says where: the end of it"
    wanted = "TASK [Refused]\nfatal: [n]: FAILED! => no\n...ignoring\nTASK [Next]\nfatal: [n]: FAILED! => yes\n"
    assert scenarios.excerpt(wanted) == ["TASK [Next]", "fatal: [n]: FAILED! => yes"]
    limit = scenarios.excerpt("TASK [One]\nERROR: molecule test drift: over its limit of 3 s\n")
    assert limit == ["TASK [One]", "ERROR: molecule test drift: over its limit of 3 s"]


def test_one_that_hangs_ends_with_its_limit_and_all_that_it_started(
    ground: Ground, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scenarios, "SCENARIO_LIMIT", 1.5)
    monkeypatch.setattr(scenarios, "measured", lambda: 2.0)  # other work has come since the patience of 1 was measured
    acts(ground, monkeypatch, f"sleep 100 & echo $! >{ground.cache}/pid; trap '' TERM; wait; sleep 100")
    monkeypatch.setattr(scenarios, "TERM_SECONDS", 0.5)
    assert not scenarios.run(NAME)
    assert not alive(int((ground.cache / "pid").read_text()))
    assert "over its limit of 3 s" in scenarios.log_file(NAME).read_text()
    assert ground.lab()[-1] == "down corral-drift"


def test_one_whose_node_panics_ends_at_once_and_says_so(ground: Ground, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CORRAL_RUN", str(ground.cache))
    console = scenarios.lab_base.place() / "corral-drift" / "console.log"
    said = "[   9.1] Kernel panic - not syncing: Fatal exception in interrupt\r\n[   9.2] ---[ end"
    acts(ground, monkeypatch, f"mkdir -p {console.parent}; printf '%s' '{said}' >{console}; exec sleep {HUNG}")
    assert not scenarios.run(NAME)
    log = scenarios.log_file(NAME).read_text()
    assert "ERROR: molecule test drift: Kernel panic - not syncing: Fatal exception in interrupt\n" in log
    assert ground.lab()[-2:] == ["console corral-drift", "down corral-drift"], "it is kept what the console said"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGKILL])
def test_a_signal_leaves_no_process_and_no_node(number: int, ground: Ground) -> None:
    (ground.cache / "molecule").write_text(f"#!/bin/sh\necho $$ >{ground.cache}/pid\nsleep 100\n")
    (ground.cache / "molecule").chmod(0o755)
    program = (
        "import pathlib, signal, sys; sys.path.insert(0, sys.argv[1]); import scenarios\n"
        "signal.signal(signal.SIGINT, signal.default_int_handler)  # a suite in the background ignores it\n"
        "cache = pathlib.Path(sys.argv[2]); scenarios.CACHE = cache; scenarios.LAB = cache / 'lab'\n"
        "scenarios.tool = lambda name: str(cache / name)\n"
        "sys.argv = ['scenarios', 'drift', '--keep=yes']\nraise SystemExit(scenarios.main())\n"
    )
    words = [sys.executable, "-c", program, str(Path(scenarios.__file__).parent), str(ground.cache)]
    said = ground.cache / "said"
    with said.open("w") as file, subprocess.Popen(words, stdout=file, stderr=file) as process:
        deadline = time.monotonic() + HUNG
        while not (ground.cache / "pid").exists() and time.monotonic() < deadline:
            time.sleep(0.05)
        time.sleep(0.2)
        os.kill(process.pid, number)
        assert process.wait(HUNG) != 0
    deadline = time.monotonic() + HUNG  # After SIGKILL it is the guard that ends them.
    while len(ground.lab()) < 2 and time.monotonic() < deadline:
        time.sleep(0.1)
    assert not alive(int((ground.cache / "pid").read_text()))
    assert ground.lab() == ["down corral-drift", "down corral-drift"]
    assert "Traceback" not in said.read_text()
    assert (number == signal.SIGINT) == ("drift: interrupted; its nodes are gone; its log: " in said.read_text())


@pytest.mark.parametrize(
    ("words", "kept"),
    [([], False), (["--keep=1"], True), (["--keep=YES"], True), (["--keep="], False), (["--keep=maybe"], None)],
)
def test_a_node_is_kept_or_not_and_nothing_else(
    words: list[str], kept: bool | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[bool] = []
    monkeypatch.setattr(scenarios, "by_hand", lambda name, *, keep: asked.append(keep) or 0)
    monkeypatch.setattr(scenarios.signal, "signal", lambda number, handler: None)
    monkeypatch.setattr(sys, "argv", ["scenarios", NAME, *words])
    if kept is None:
        with pytest.raises(SystemExit, match="KEEP=maybe: write one of 1, yes, "):
            scenarios.main()
    else:
        assert scenarios.main() == 0 and asked == [kept]


def test_what_a_kept_node_is_reached_by(
    ground: Ground, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("CORRAL_RUN", "/a place")
    acts(ground, monkeypatch, "exit 0")
    assert scenarios.by_hand(NAME, keep=True) == 0
    assert "CORRAL_RUN='/a place' make lab-ssh NAME=corral-drift" in capsys.readouterr().out


def test_seconds_of_a_task_are_those_of_its_steps_and_what_is_left(ground: Ground) -> None:
    rows = [
        {"playbook": "converge", "task": "Live", "step": "one", "seconds": 3.0},
        {"playbook": "converge", "task": "Live", "step": "two", "seconds": 4.5},
        {"playbook": "converge", "task": "Live", "step": None, "seconds": 9.0},
        {"playbook": "create", "task": "Start", "step": None, "seconds": 2.0},
    ]
    scenarios.times_file(NAME).write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    found = scenarios.rows(NAME)
    assert {row.what: row.seconds for row in found} == {"one": 3.0, "two": 4.5, "Live": 1.5, "Start": 2.0}
    assert scenarios.sums(found) == {"converge": 9.0, "create": 2.0}
    table = scenarios.slowest([NAME])
    assert [line.split()[-1] for line in table[1:]] == ["two", "one", "Start", "Live"]
    assert scenarios.rows("gc") == []


def test_the_longest_begin_first_and_all_are_there() -> None:
    names = scenarios.names()
    assert names[: len(scenarios.LONGEST)] == list(scenarios.LONGEST)
    assert set(names) == {path.parent.name for path in scenarios.FOLDER.glob("*/molecule.yml")}


def test_some_are_the_long_tests_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CORRAL_LONG", raising=False)
    monkeypatch.delenv("CORRAL_KUBELET_BINARY", raising=False)
    usual = {step.name.split()[1] for step in scenarios.steps()}
    assert usual == {
        *(
            "brownfield",
            "cpusets",
            "devices-trixie",
            "drift",
            "endure",
            "fleet",
            "gc",
            "intruders",
            "kubelet-standin",
        ),
        *("parts", "rollout", "workloads"),
    }, "make test runs these"
    monkeypatch.setenv("CORRAL_LONG", "1")
    assert {step.name.split()[1] for step in scenarios.steps()} - usual == set(scenarios.LONG_ONLY)
    monkeypatch.setenv("CORRAL_KUBELET_BINARY", "/usr/bin/kubelet")
    assert {step.name.split()[1] for step in scenarios.steps()} - usual == {
        *(*scenarios.LONG_ONLY, "kubelet", "kubelet-fleet", "kubelet-legacy")
    }


def test_patience_is_measured_once_and_never_below_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CORRAL_PATIENCE", raising=False)
    monkeypatch.setattr(scenarios, "LOOP", "pass")
    monkeypatch.setattr(scenarios, "LOOP_SECONDS", 1e6)
    scenarios.patience.cache_clear()
    assert scenarios.patience() == 1.0
    monkeypatch.setattr(scenarios, "LOOP_SECONDS", 1e-6)
    assert scenarios.patience() == 1.0, "measured once"
    scenarios.patience.cache_clear()
    assert scenarios.patience() > 100
    monkeypatch.setenv("CORRAL_PATIENCE", "0.5")
    scenarios.patience.cache_clear()
    assert scenarios.patience() == 1.0
    scenarios.patience.cache_clear()


@pytest.mark.parametrize("text", ["abc", "nan", "inf", "-inf"])
def test_patience_that_is_no_number_is_refused(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CORRAL_PATIENCE", text)
    scenarios.patience.cache_clear()
    with pytest.raises(SystemExit, match=f"CORRAL_PATIENCE is '{text}': write a number such as 2.5"):
        scenarios.patience()
    scenarios.patience.cache_clear()
