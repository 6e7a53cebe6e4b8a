# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A profile that was put on the node by other means, which a tick takes up and a command of the profile confirms."""

from __future__ import annotations

import json
import typing as t

import failing
import node
import pytest
import runs
from _core.constants import ERROR
from _core.host import state
from _core.host.command import Command
from _core.model.agent.agent_units import CONFIRM_TIMER
from _core.model.profile import profile
from _core.model.values.errors import CorralError
from _core.pipeline import confirming
from test_confirming import rolled_out, seen, timer, waits
from test_faults import CHANGED

__all__ = ["rolled_out"]

HEALTHY = "/usr/local/bin/node-is-healthy"
CONFIRM = {"command": [HEALTHY, "--all"], "timeout": "5m"}
PULLED = {**CHANGED, "confirm": CONFIRM}


def put(fake: node.Node, **sections: t.Any) -> None:
    """Put a profile into its file, as an image or ansible-pull does."""
    fake.put(state.DECLARED, json.dumps(profile.to_data(profile.parse(node.edge(**(sections or PULLED))))))


def answers(fake: node.Node, code: int, said: str = "") -> list[tuple[str, ...]]:
    """Have the command end with this code; returns the list of its calls from now on."""
    calls: list[tuple[str, ...]] = []

    def program(*argv: str) -> Command:
        calls.append(argv)
        return Command(code, said, "")

    fake.programs[HEALTHY] = program
    return calls


def pending(fake: node.Node) -> dict[str, t.Any]:
    """What waits for a confirmation, by its record."""
    return t.cast("dict[str, t.Any]", json.loads(fake.get(state.UNCONFIRMED))["data"])


def test_its_command_confirms_it(rolled: node.Node, capfd: pytest.CaptureFixture[str]) -> None:
    calls = answers(rolled, 3, "disk\nnot yet\n")
    put(rolled)
    assert runs.tick(rolled.host(), by_timer=False) == 2
    assert waits(rolled)
    assert not calls, "it runs outside of the tick"
    wanted = seen(rolled)
    runs.command(rolled.host(), "status")
    said = capfd.readouterr().out
    assert f"is unconfirmed until {HEALTHY} succeeds: at " in said
    assert timer(rolled) == 0
    assert calls == [(HEALTHY, "--all")]
    assert f"is not confirmed yet: {HEALTHY}: exit code 3: not yet" in capfd.readouterr().err
    assert waits(rolled)
    answers(rolled, 0)
    assert timer(rolled) == 0
    assert f"is confirmed: {HEALTHY} succeeded" in capfd.readouterr().err
    assert not waits(rolled)
    rolled.wait(301)
    runs.tick(rolled.host())
    assert node.different(wanted, seen(rolled)) == [f"active {CONFIRM_TIMER}: yes -> None"]


def test_without_its_command_the_node_goes_back(rolled: node.Node, capfd: pytest.CaptureFixture[str]) -> None:
    before, declared = seen(rolled), rolled.get(state.DECLARED)
    put(rolled)
    text = rolled.get(state.DECLARED)
    runs.tick(rolled.host(), by_timer=False)
    assert seen(rolled) != before
    capfd.readouterr()
    timer(rolled)
    assert f"{HEALTHY}: not installed" in capfd.readouterr().err
    timer(rolled)
    assert not capfd.readouterr().err, "the same again is not logged at once"
    rolled.wait(301)
    assert timer(rolled) == 0
    assert f"was not confirmed: {HEALTHY} did not succeed within 300 s: went back to" in capfd.readouterr().err
    assert node.different(before, seen(rolled)) == []
    assert rolled.get(state.DECLARED) == declared
    assert not waits(rolled)
    put(rolled)  # It is pulled again.
    assert rolled.get(state.DECLARED) == text
    answers(rolled, 0)
    runs.tick(rolled.host(), by_timer=False)
    (item,) = json.loads(rolled.get(state.STATUS))["items"]
    assert "did not succeed within 300 s" in item["reason"]
    assert not waits(rolled)


@pytest.mark.parametrize("sections", [{"name": "third"}, {"pids": {"pid_max": 123456}}], ids=str)
def test_another_profile_that_waits_for_nothing_confirms_the_one_before(
    rolled: node.Node, sections: dict[str, t.Any]
) -> None:
    answers(rolled, 1)
    put(rolled)
    runs.tick(rolled.host(), by_timer=False)
    put(rolled, **{**CHANGED, **sections})
    text = rolled.get(state.DECLARED)
    rolled.wait(10)
    runs.tick(rolled.host(), by_timer=False)
    assert not waits(rolled)
    after = seen(rolled)
    rolled.wait(301)
    timer(rolled)
    runs.tick(rolled.host())
    assert rolled.get(state.DECLARED) == text
    assert node.different(after, seen(rolled)) == []


def test_another_profile_that_makes_no_step_is_confirmed_in_the_place_of_the_one_before(rolled: node.Node) -> None:
    before = rolled.get(state.DECLARED)
    for code in (0, 1):
        fake = rolled.clone(rolled.root.with_name(f"with-{code}"))
        answers(fake, 1)
        put(fake)
        runs.tick(fake.host(), by_timer=False)
        put(fake, **PULLED, name="third")
        text = fake.get(state.DECLARED)
        fake.wait(100)
        runs.tick(fake.host(), by_timer=False)
        assert waits(fake)
        assert pending(fake)["name"] == "third"
        calls = answers(fake, code)
        timer(fake)
        assert calls
        fake.wait(201)
        timer(fake)
        assert not waits(fake)
        assert fake.get(state.DECLARED) == (before if code else text)


def test_the_profile_before_that_is_put_back_ends_the_wait(rolled: node.Node) -> None:
    before, text = seen(rolled), rolled.get(state.DECLARED)
    put(rolled)
    runs.tick(rolled.host(), by_timer=False)
    rolled.put(state.DECLARED, text)
    rolled.wait(10)
    runs.tick(rolled.host(), by_timer=False)
    assert not waits(rolled)
    assert [line for line in node.different(before, seen(rolled)) if "history" not in line] == []


def test_the_profile_before_that_is_put_back_is_confirmed_without_its_command(rolled: node.Node) -> None:
    before = {**node.edge(), "confirm": CONFIRM}
    runs.declare(rolled.host(), **before)
    put(rolled)
    runs.tick(rolled.host(), by_timer=False)
    assert waits(rolled)
    put(rolled, **before)
    rolled.wait(10)
    runs.tick(rolled.host(), by_timer=False)
    assert not waits(rolled)
    answers(rolled, 1)
    rolled.wait(301)
    timer(rolled)
    runs.tick(rolled.host())
    assert json.loads(rolled.get(state.STATUS))["in_sync"]
    assert not rolled.has(state.REJECTED)


@pytest.mark.parametrize("sections", [PULLED, CHANGED], ids=["command", "no command"])
def test_another_profile_that_fails_leaves_the_one_before_to_its_command(
    rolled: node.Node, sections: dict[str, t.Any]
) -> None:
    third = {**sections, "name": "third", "pids": {"pid_max": 123456}}
    put(rolled)
    runs.tick(rolled.host(), by_timer=False)
    kept = pending(rolled)
    put(rolled, **third)
    number = failing.number_of(
        rolled, lambda host: runs.tick(host, by_timer=False), "write_value /proc/sys/kernel/pid_max"
    )
    assert runs.tick(rolled.host("error", number), by_timer=False) == ERROR
    assert pending(rolled) == kept
    calls = answers(rolled, 0)
    timer(rolled)
    assert calls
    assert not waits(rolled)


def test_another_profile_that_makes_no_step_is_in_force_where_the_one_before_failed(rolled: node.Node) -> None:
    put(rolled)
    runs.tick(rolled.host(), by_timer=False)
    confirming.mark_failed(rolled.host())
    answers(rolled, 0)
    timer(rolled)
    assert waits(rolled), "what failed is not confirmed"
    put(rolled, **PULLED, name="third")
    runs.tick(rolled.host(), by_timer=False)
    timer(rolled)
    assert not waits(rolled)


def test_a_tick_after_the_time_leaves_the_way_back_to_its_timer(rolled: node.Node) -> None:
    before, declared = seen(rolled), rolled.get(state.DECLARED)
    put(rolled)
    runs.tick(rolled.host(), by_timer=False)
    rolled.wait(301)
    runs.tick(rolled.host())
    assert waits(rolled)
    timer(rolled)
    assert not waits(rolled)
    assert rolled.get(state.DECLARED) == declared
    assert node.different(before, seen(rolled)) == []


def test_the_command_is_not_asked_once_the_time_is_over(rolled: node.Node) -> None:
    declared = rolled.get(state.DECLARED)
    put(rolled)
    runs.tick(rolled.host(), by_timer=False)
    rolled.wait(301)
    calls = answers(rolled, 0)
    timer(rolled)
    assert not calls
    assert not waits(rolled)
    assert rolled.get(state.DECLARED) == declared


@pytest.mark.parametrize(("waited", "seconds"), [(10, 60.0), (280, 20.0)])
def test_the_command_has_a_minute_and_no_longer_than_is_left(rolled: node.Node, waited: int, seconds: float) -> None:
    asked: list[tuple[tuple[str, ...], float]] = []

    class Watched(node.NodeHost):
        def run(self, *argv: str, timeout: float = 60.0) -> Command:
            asked.append((argv, timeout))
            return super().run(*argv, timeout=timeout)

    answers(rolled, 1)
    put(rolled)
    runs.tick(rolled.host(), by_timer=False)
    rolled.wait(waited)
    runs.command(Watched(rolled), "confirm", "--tick")
    assert [timeout for argv, timeout in asked if argv[0] == HEALTHY] == [seconds]


def test_a_first_profile_goes_back_to_none(fake: node.Node) -> None:
    runs.install(fake.host())
    before = seen(fake)
    put(fake)
    runs.tick(fake.host(), by_timer=False)
    assert waits(fake)
    answers(fake, 1)
    fake.wait(301)
    timer(fake)
    assert not waits(fake)
    del before["etc/corral"]
    after = seen(fake)
    assert node.different(before, {path: one for path, one in after.items() if path in before}) == []
    after = seen(fake)
    assert runs.tick(fake.host(), by_timer=False) == ERROR
    assert "went back" in json.loads(fake.get(state.STATUS))["error"], "its file is not Corral's, and stays"
    assert node.different(after, seen(fake)) == []


def test_what_only_corrects_drift_waits_for_nothing(rolled: node.Node) -> None:
    runs.declare(rolled.host(), **PULLED)
    rolled.kernel_write(node.pool_file(1), "0\n")
    runs.tick(rolled.host())
    assert not waits(rolled)


def test_in_audit_mode_nothing_is_taken_up(rolled: node.Node) -> None:
    put(rolled, **PULLED, mode="audit")
    runs.tick(rolled.host(), by_timer=False)
    assert not waits(rolled)


def test_a_run_that_waits_for_its_own_confirmation_is_not_confirmed_by_the_command(rolled: node.Node) -> None:
    calls = answers(rolled, 0)
    put(rolled)
    assert runs.command(rolled.host(), "reconcile", "--confirm-timeout", "2m") == 0
    assert waits(rolled)
    timer(rolled)
    assert not calls
    assert waits(rolled)


@pytest.mark.parametrize("sections", [PULLED, CHANGED], ids=["command", "no command"])
def test_a_killed_run_with_a_confirmation_of_its_own_is_confirmed_by_nothing_else(
    rolled: node.Node, sections: dict[str, t.Any]
) -> None:
    words = ("reconcile", "--confirm-timeout", "2m")
    before = rolled.get(state.DECLARED)
    put(rolled, **sections)
    armed = failing.number_of(rolled, lambda host: runs.command(host, *words), CONFIRM_TIMER)
    with pytest.raises(node.Killed):
        runs.command(rolled.host("killed", armed + 2), *words)
    kept = pending(rolled)
    calls = answers(rolled, 0)
    rolled.wait(60)
    runs.tick(rolled.host(), by_timer=False)
    assert pending(rolled) == kept
    timer(rolled)
    assert not calls
    rolled.wait(61)
    timer(rolled)
    assert not waits(rolled)
    assert rolled.get(state.DECLARED) == before


def test_the_command_is_not_asked_before_the_profile_is_in_force(rolled: node.Node) -> None:
    put(rolled)
    armed = failing.number_of(rolled, lambda host: runs.tick(host, by_timer=False), CONFIRM_TIMER)
    with pytest.raises(node.Killed):
        runs.tick(rolled.host("killed", armed + 2), by_timer=False)
    calls = answers(rolled, 0)
    timer(rolled)
    assert waits(rolled)
    assert not calls
    rolled.wait(100)
    runs.tick(rolled.host(), by_timer=False)
    assert waits(rolled)
    left = json.loads(rolled.get(state.STATUS))["unconfirmed"]["until"] - rolled.time
    assert left <= 200, "the time goes on where the killed tick began it"
    timer(rolled)
    assert calls
    assert not waits(rolled)


@pytest.mark.parametrize("fault", ["killed", "torn", "error"])
def test_a_tick_that_ends_anywhere_is_made_again_or_goes_back(fault: str, rolled: node.Node) -> None:
    def act(host: node.NodeHost) -> int:
        return runs.tick(host, by_timer=False)

    before = seen(rolled)
    put(rolled)
    answers(rolled, 1)
    for fake, what in failing.each(rolled, act, fault, ("killed", "torn", "error")):
        act(fake.host())
        assert waits(fake), what
        fake.wait(301)
        timer(fake)
        assert not waits(fake)
        assert node.different(before, seen(fake)) == [], what


def test_the_status_of_a_failed_tick_says_why(rolled: node.Node) -> None:
    put(rolled, **{**PULLED, "cpu": {"reserved": {"cpus": "0-7"}}})
    assert runs.tick(rolled.host(), by_timer=False) == ERROR
    assert not waits(rolled)


@pytest.mark.parametrize(
    ("section", "said"),
    [
        ({"command": ["healthy"]}, r"confirm.command\[0\]: .*is not an absolute path"),
        ({"command": []}, "confirm.command: .*has no words"),
        ({"command": ["/bin/x", "a\nb"]}, r"confirm.command\[1\]: .*is not a word of a command"),
        ({"timeout": "2m"}, "confirm.command"),
        ({"command": [HEALTHY], "timeout": "2s"}, r"confirm.timeout: .*write 10s to 1d"),
        ({"command": [HEALTHY], "timeout": "2d"}, r"confirm.timeout: .*write 10s to 1d"),
    ],
)
def test_a_bad_section_is_refused(section: dict[str, t.Any], said: str) -> None:
    with pytest.raises(CorralError, match=said):
        profile.parse(node.edge(confirm=section))


def test_the_section_is_written_as_it_was_read() -> None:
    declared = profile.parse(node.edge(confirm=CONFIRM))
    assert profile.to_data(declared)["confirm"] == CONFIRM
    assert profile.parse(profile.to_data(declared)) == declared


def test_a_word_of_a_command_may_stand_twice() -> None:
    words = ["/usr/bin/ping", "-c", "1", "-w", "1", "192.0.2.1"]
    declared = profile.parse(node.edge(confirm={**CONFIRM, "command": words}))
    assert declared.confirm is not None
    assert list(declared.confirm.command) == words
