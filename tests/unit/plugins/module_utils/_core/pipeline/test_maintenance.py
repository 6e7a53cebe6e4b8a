# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A paused node is looked at and left as it is; the pause is seen everywhere, and ends by itself."""

from __future__ import annotations

import json
import os
import typing as t
from pathlib import Path
from unittest import mock

import node
import pytest
import runs
from _core.host import state
from _core.host.agent import pause_file
from _core.host.files import Host
from _core.model.agent import agent_units
from _core.model.values.errors import CorralError

PID_MAX = "/proc/sys/kernel/pid_max"
STATUS = "/run/corral/status.json"
SUDO = {"SUDO_USER": "alice", "SUDO_UID": "1000"}


def status(fake: node.Node) -> dict[str, t.Any]:
    return t.cast("dict[str, t.Any]", json.loads(fake.get(STATUS)))


def make_rolled(fake: node.Node) -> None:
    runs.converged(fake, with_agent=True)
    runs.tick(fake.host())


@pytest.fixture
def rolled(made_once: node.MadeOnce) -> node.Node:
    return made_once(make_rolled)


@pytest.fixture
def paused(rolled: node.Node, capsys: pytest.CaptureFixture[str]) -> node.Node:
    """An hour's pause on a node that somebody then works on."""
    with mock.patch.dict(os.environ, SUDO):
        assert runs.command(rolled.host(), "pause", "--for", "1h", "--reason", "a disk") == 0
    rolled.kernel_write(PID_MAX, "40000")
    capsys.readouterr()
    return rolled


def is_paused(fake: node.Node) -> bool:
    runs.tick(fake.host())
    return status(fake)["paused"] is not None


def test_while_paused_a_tick_looks_and_changes_nothing(paused: node.Node, capsys: pytest.CaptureFixture[str]) -> None:
    own = ("run/corral", state.SINCE.lstrip("/"))
    fake, before = paused, paused.fingerprint(*own)
    host = fake.host()
    assert runs.tick(host) == 2
    assert (host.writes, host.commands, fake.fingerprint(*own)) == ([STATUS, state.SINCE], [], before)
    told = status(fake)
    begin = int(fake.time)
    text = "paused until 2023-11-14 23:13:20 UTC by alice: a disk"
    asked = {"since": begin, "until": begin + 3600, "by": "alice", "uid": 1000, "reason": "a disk"}
    assert told["paused"] == {**asked, "text": text}
    assert [(item["subject"], item["maintenance"]) for item in told["items"]] == [("kernel.pid_max", True)]
    assert (told["mode"], told["in_sync"]) == ("enforce", False)
    runs.tick(fake.host())
    lines = capsys.readouterr().err.splitlines()
    assert lines[0] == f"<5>{text}"
    assert lines[1].startswith("<4>drift under maintenance ~ pids kernel.pid_max value: 40000 -> 65536")
    assert len(lines) == 2, "each is said once"


def test_it_ends_by_itself_and_the_tick_mends(paused: node.Node, capsys: pytest.CaptureFixture[str]) -> None:
    fake = paused
    fake.wait(3599)
    assert is_paused(fake)
    fake.wait(1)
    capsys.readouterr()
    assert not is_paused(fake)
    assert fake.get(PID_MAX) == "65536\n"
    assert not fake.has(state.PAUSE)
    lines = capsys.readouterr().err.splitlines()
    assert [line for line in lines if "pause" in line] == ["<5>the pause by alice has ended: a disk"]
    assert runs.tick(fake.host()) == 0
    assert capsys.readouterr().err == ""
    assert (status(fake)["in_sync"], status(fake)["items"]) == (True, [])


def test_it_ends_on_a_node_where_nothing_else_changes(rolled: node.Node) -> None:
    runs.command(rolled.host(), "pause", "--for", "15m")
    for dummy in range(89):
        rolled.wait(10)
        assert is_paused(rolled)
    rolled.wait(10)
    assert not is_paused(rolled)


@pytest.mark.parametrize("jump", [-(10**9), -86400, 86400, 10**9])
def test_a_clock_that_is_set_neither_ends_nor_stretches_it(paused: node.Node, jump: int) -> None:
    fake = paused
    runs.tick(fake.host())
    fake.time += jump
    fake.wait(1800)
    assert is_paused(fake)
    assert status(fake)["paused"]["until"] == int(fake.time) + 1800
    fake.wait(1800)
    assert not is_paused(fake)


def test_over_a_reboot_the_wall_clock_counts(paused: node.Node) -> None:
    fake = paused
    fake.boot_anew(600)
    assert is_paused(fake)
    fake.wait(2999)
    assert is_paused(fake)
    fake.wait(1)
    assert not is_paused(fake)


def test_over_a_reboot_with_a_clock_set_back_it_is_as_long_as_asked_for(paused: node.Node) -> None:
    fake = paused
    fake.boot_anew(20)
    fake.time -= 10**8
    assert is_paused(fake)
    fake.wait(3579)
    assert is_paused(fake)
    fake.wait(1)
    assert not is_paused(fake)
    fake.time -= 10**8
    assert not is_paused(fake), "no clock revives it"


def test_a_pause_that_ended_while_the_machine_was_off_is_told(
    paused: node.Node, capsys: pytest.CaptureFixture[str]
) -> None:
    paused.boot_anew(7200)
    assert not is_paused(paused)
    assert "<5>the pause by alice has ended: a disk" in capsys.readouterr().err


def test_a_boot_brings_the_last_profile_back_all_the_same(paused: node.Node) -> None:
    fake = paused
    fake.kernel_write(node.pool_file(0), "0")
    fake.boot_anew()
    runs.tick(fake.host(), at_boot=True)
    assert (fake.pool(0), fake.get(PID_MAX)) == (32, "65536\n")
    assert status(fake)["paused"]["by"] == "alice"
    fake.kernel_write(PID_MAX, "40000")
    assert is_paused(fake)
    assert fake.get(PID_MAX) == "40000\n"


class Starts(list[str]):
    """What systemd starts: ticks, but for the first ``joined`` starts, which join one that has looked already."""

    def __init__(self, fake: node.Node, joined: int) -> None:
        super().__init__()
        self.fake, self.joined = fake, joined

    def append(self, unit: str) -> None:
        super().append(unit)
        if len(self) > self.joined:
            runs.tick(self.fake.host(), by_timer=False)


def test_resume_ends_it_at_once(paused: node.Node) -> None:
    fake = paused
    fake.systemd.ran = Starts(fake, 0)
    assert "ended: paused until" in runs.printed(fake.host(), "resume")
    assert fake.systemd.ran == [agent_units.SERVICE], "the agent is asked to look at once"
    assert not status(fake)["paused"]
    assert fake.get(PID_MAX) == "65536\n"
    assert json.loads(runs.printed(fake.host(), "resume", "--json")) == {"schema": 1, "ended": None}


@pytest.mark.parametrize("verb", ["pause", "resume"])
def test_the_status_is_current_also_where_a_tick_was_at_work_when_it_began(verb: str, rolled: node.Node) -> None:
    fake = rolled
    pause = ("pause", "--for", "1h", "--reason", "a disk")
    if verb == "resume":
        assert runs.command(fake.host(), *pause) == 0
        runs.tick(fake.host())
    fake.systemd.ran = Starts(fake, 1)
    assert runs.command(fake.host(), *(pause if verb == "pause" else (verb,))) == 0
    assert fake.systemd.ran == [agent_units.SERVICE] * 2, "the first start joined what had looked before"
    assert (status(fake)["paused"] is not None) == (verb == "pause")


def test_pausing_again_replaces(paused: node.Node, capsys: pytest.CaptureFixture[str]) -> None:
    fake = paused
    runs.tick(fake.host())
    fake.wait(1800)
    with mock.patch.dict(os.environ, {"SUDO_USER": "", "SUDO_UID": ""}):
        assert runs.command(fake.host(), "pause", "--for", "90s", "--json") == 0
    told = json.loads(capsys.readouterr().out)["paused"]
    assert told.pop("text").endswith(": no reason given")
    assert told == {
        "since": int(fake.time),
        "until": int(fake.time) + 90,
        "by": "root" if os.geteuid() == 0 else str(os.geteuid()),
        "uid": os.geteuid(),
        "reason": "",
    }
    assert is_paused(fake)
    assert "no reason given" in capsys.readouterr().err
    fake.wait(90)
    assert not is_paused(fake)


def test_its_file_is_closed_to_others(paused: node.Node) -> None:
    host = paused.host()
    assert [host.mode(path) for path in (state.PAUSE, state.STATE)] == [0o600, 0o700]
    assert not paused.has(f"{state.PAUSE}.previous")


# Who would change a paused node


@pytest.mark.parametrize("words", [("reconcile",), ("rollback",)])
def test_a_change_is_refused_with_the_way_out_and_forced(paused: node.Node, words: tuple[str, ...]) -> None:
    fake = paused
    state.write_checked(fake.host(), state.HISTORY, [state.read_json(fake.host(), state.APPLIED)])
    before, host = fake.fingerprint("run/corral"), fake.host()
    with pytest.raises(CorralError) as refused:
        runs.command(host, *words)
    assert "paused until 2023-11-14 23:13:20 UTC by alice: a disk" in str(refused.value)
    assert "corral resume" in str(refused.value)
    assert "--force" in str(refused.value)
    assert (host.writes, fake.fingerprint("run/corral")) == ([], before)
    assert runs.command(fake.host(), *words, "--force") == 0
    assert fake.get(PID_MAX) == "65536\n"
    assert is_paused(fake), "what was forced ends no pause"


def test_the_module_is_told_so_too(paused: node.Node) -> None:
    with pytest.raises(CorralError, match="set during_pause"):
        pause_file.refuse_changes(paused.host(), "set during_pause to apply")
    paused.wait(3600)
    pause_file.refuse_changes(paused.host(), "set during_pause to apply")


def test_drift_and_status_say_so(paused: node.Node) -> None:
    runs.tick(paused.host())
    for words in (["drift"], ["status"]):
        assert (
            "paused until 2023-11-14 23:13:20 UTC by alice: a disk"
            in runs.printed(paused.host(), *words, code=2).splitlines()
        )
    assert "drift (under maintenance) since" in runs.printed(paused.host(), "status", code=None)


@pytest.mark.parametrize(
    "words", [["pause"], ["pause", "--for"], ["pause", "1h"], ["pause", "--for", "1h", "nonsense"], ["resume", "now"]]
)
def test_wrong_usage_is_told(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    from _core import main

    assert main.main(words) == 1
    assert "usage: corral" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("duration", "reason", "key"), [("31d", "", "--for"), ("soon", "", "--for"), ("1h", "a\nb", "--reason")]
)
def test_a_bad_pause_writes_nothing(rolled: node.Node, duration: str, reason: str, key: str) -> None:
    host = rolled.host()
    with pytest.raises(CorralError, match=key):
        runs.command(host, "pause", f"--for={duration}", f"--reason={reason}")
    assert (host.writes, host.commands) == ([], [])


# Files that are no pause


@pytest.mark.parametrize("text", ["", "{", "null", '{"version": 2}', "torn"])
def test_a_file_that_is_no_pause_pauses_nothing_and_is_said_once(
    paused: node.Node, text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    fake = paused
    fake.put(state.PAUSE, fake.get(state.PAUSE)[:-9] if text == "torn" else text)
    for dummy in range(3):
        assert not is_paused(fake)
    assert fake.get(PID_MAX) == "65536\n"
    lines = [line for line in capsys.readouterr().err.splitlines() if state.PAUSE in line]
    assert len(lines) == 1
    assert lines[0].startswith("<4>")
    assert "not paused: pause it again" in lines[0]
    assert "not paused: pause it again" in status(fake)["pause_error"]
    assert "not paused: pause it again" in runs.printed(fake.host(), "status", code=None)
    runs.command(fake.host(), "resume")
    assert not is_paused(fake)
    assert status(fake)["pause_error"] is None


def test_an_ended_pause_whose_file_cannot_go_is_said_and_stays_ended(
    paused: node.Node, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def refuse(dummy: Host, path: str) -> None:
        raise OSError(30, "Read-only file system", path)

    fake = paused
    fake.wait(3600)
    monkeypatch.setattr(node.NodeHost, "remove", refuse)
    for dummy in range(2):
        assert not is_paused(fake)
    assert capsys.readouterr().err.count("cannot be removed (Read-only file system)") == 1
    assert fake.get(PID_MAX) == "65536\n"


ITEM = {"manager": "x", "subject": "x", "property": "x", "verdict": "x", "reason": "x", "since": 5}


@pytest.mark.parametrize("text", ["{", "[]", "null", '{"time": 5}'])
def test_somebodys_status_stops_no_tick(paused: node.Node, text: str) -> None:
    paused.put(STATUS, text)
    with pytest.raises(CorralError, match="no readable status"):
        runs.command(paused.host(), "status")
    assert is_paused(paused)
    assert status(paused)["totals"] == {"changes": 0, "errors": 0}


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("time", "x"), ("time", None), ("time", -1), ("time", 2**50), ("items", {}), ("items", [5]), ("items", [ITEM, {}]),
        ("items", [{**ITEM, "manager": ["x"]}]), ("items", [{**ITEM, "since": "x"}]), ("totals", 5), ("totals", {}),
        ("totals", {"changes": "x", "errors": 0}), ("paused", {}), ("paused", 5), ("last_changed", 5),
        ("last_changed", {"time": None, "changes": []}), ("last_changed", {"time": 5, "changes": 5}), ("last_in_sync", "x"),
    ],
)  # fmt: skip
def test_a_status_with_a_wrong_value_stops_no_tick(rolled: node.Node, key: str, value: t.Any) -> None:
    for code in (2, 0):
        rolled.put(STATUS, json.dumps({**status(rolled), key: value}))
        with pytest.raises(CorralError, match="no readable status"):
            runs.command(rolled.host(), "status")
        if code:
            rolled.kernel_write(PID_MAX, "40000")
        assert runs.tick(rolled.host()) == code
        assert status(rolled)["totals"] == {"changes": 1 if code else 0, "errors": 0}


def test_a_removal_takes_the_pause_with_it(fake: node.Node) -> None:
    before = fake.fingerprint()
    runs.converged(fake, with_agent=True)
    runs.command(fake.host(), "pause", "--for", "2d")
    runs.tick(fake.host())
    assert runs.remove(fake.host()).leftovers == ()
    assert node.different(before, fake.fingerprint()) == []


def test_without_an_agent_a_pause_holds_all_the_same(converged: node.Node) -> None:
    host = converged.host()
    runs.command(host, "pause", "--for", "1h")
    assert host.commands == []
    with pytest.raises(CorralError, match="paused until"):
        runs.command(converged.host(), "reconcile")


def test_a_run_that_was_forced_and_undone_ends_no_pause(fake: node.Node) -> None:
    runs.command(fake.host(), "pause", "--for", "1h")
    before, at = fake.fingerprint("var/lib/corral", "run/corral"), 6
    outcome = runs.declare(fake.host("error", at))
    assert (bool(outcome.error), outcome.leftovers) == (True, ())
    assert node.different(before, fake.fingerprint("var/lib/corral", "run/corral")) == []
    assert pause_file.in_force(fake.host()) is not None
    runs.remove(fake.host())
    assert not fake.has(state.STATE)


# The live clock


def test_the_clock_of_the_boot_is_the_kernels(tmp_path: Path) -> None:
    host = Host(str(tmp_path))
    before = host.uptime()
    with open("/proc/uptime", encoding="ascii") as file:
        told = float(file.read().split()[0])
    assert before - 0.01 <= told <= host.uptime()
