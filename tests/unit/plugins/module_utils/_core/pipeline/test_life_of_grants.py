# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A grant for a run lives as long as that run, whatever the unit that holds it says; and nothing starts without one."""

from __future__ import annotations

import typing as t

import node
import pytest
import runs
import services
from _core.host import workload_files
from _core.model.profile import profile
from _core.pipeline import planning
from test_workloads import BATCH, OTHER, PROFILE, install, profile_with, roll_out

Make = t.Callable[..., node.Node]
NAME = "batch:batch@a"
HOLDER = r"corral-grant@batch:batch\x40a.service"
GRANTED = r"/run/corral/granted-batch:batch\x40a"


def make_rolled(fake: node.Node) -> None:
    install(fake)
    roll_out(fake, PROFILE)


@pytest.fixture
def rolled(made_once: node.MadeOnce) -> node.Node:
    return made_once(make_rolled)


def names(fake: node.Node) -> set[str]:
    return {grant.workload for grant in workload_files.grants_in_force(fake.host()) if grant.hold == "running"}


def tick(fake: node.Node) -> None:
    """A tick, and the jobs that it asks systemd for."""
    runs.tick(fake.host())
    services.settle(fake)


def test_a_start_that_is_cancelled_after_its_grant_was_made_gives_it_back(rolled: node.Node) -> None:
    """systemd does not look at the unit that holds a grant when a start never became a run."""
    assert services.wait(rolled, BATCH)
    assert names(rolled) == {NAME}
    for dummy in range(3):
        tick(rolled)
    assert names(rolled) == {NAME}, "it waits, and keeps what it has"
    services.cancel(rolled, BATCH)
    tick(rolled)
    assert (names(rolled), rolled.holders, rolled.has(GRANTED)) == (set(), {}, False)
    runs.tick(rolled.host())
    assert runs.tick(rolled.host()) == 0
    assert services.start(rolled, BATCH)


def test_a_start_that_waits_holds_back_the_quiet_tick(rolled: node.Node) -> None:
    """A cancelled start changes no file."""
    assert services.wait(rolled, BATCH)
    for dummy in range(4):
        rolled.wait(10)
        tick(rolled)
    services.cancel(rolled, BATCH)
    tick(rolled)
    assert names(rolled) == set()


def test_a_start_does_not_wait_for_what_a_cancelled_one_has(rolled: node.Node, monkeypatch: pytest.MonkeyPatch) -> None:
    assert services.wait(rolled, BATCH)
    services.cancel(rolled, BATCH)
    slept: list[float] = []

    def sleep(seconds: float) -> None:
        slept.append(seconds)
        services.settle(rolled)

    monkeypatch.setattr("time.sleep", sleep)
    assert services.start(rolled, OTHER), rolled.said
    assert (names(rolled), len(slept)) == ({"batch:batch@b"}, 1)


@pytest.mark.parametrize("asked", [True, False])
def test_a_start_after_a_release_has_a_grant_of_its_own(rolled: node.Node, asked: bool) -> None:
    """Whether systemd has stopped the unit that held the grant before or not."""
    assert services.wait(rolled, BATCH)
    services.cancel(rolled, BATCH)
    assert runs.command(rolled.host(), "release", NAME) == 0
    assert names(rolled) == set()
    if asked:
        services.settle(rolled)
        assert not rolled.holders
    run = services.start(rolled, BATCH)
    assert run and names(rolled) == {NAME}
    assert len(run.cpus) == 2 and not run.cpus & {0, 4}
    services.stop(rolled, BATCH)
    assert (names(rolled), rolled.holders) == (set(), {})


def test_a_release_while_a_start_waits_lets_nothing_start_without_a_grant(rolled: node.Node) -> None:
    assert services.wait(rolled, BATCH)
    assert runs.command(rolled.host(), "release", NAME) == 0
    services.settle(rolled)
    assert services.go_on(rolled, BATCH) is None
    tick(rolled)
    assert rolled.holders == {}, "nothing needs it, whether it has a grant or not"
    assert services.start(rolled, BATCH)


def test_the_late_end_of_an_earlier_run_leaves_a_start_that_waits_its_grant(rolled: node.Node) -> None:
    assert services.start(rolled, BATCH)
    late = rolled.holders[HOLDER]
    services.stop(rolled, BATCH)
    assert services.wait(rolled, BATCH)
    link = rolled.root / services.INVOCATIONS / f"invocation:{HOLDER}"
    link.unlink()
    link.symlink_to(late)
    assert services.corral(rolled, rolled.host(), "release", "--stop", HOLDER)
    link.unlink()
    link.symlink_to(rolled.holders[HOLDER])
    assert (names(rolled), rolled.has(GRANTED)) == ({NAME}, True)
    assert services.go_on(rolled, BATCH)


def test_a_holder_that_stops_leaves_no_file_of_a_grant_that_is_not_there(rolled: node.Node) -> None:
    rolled.put(GRANTED, "")
    services.invocation(rolled, HOLDER)
    services.let_go(rolled, HOLDER, rolled.host())
    assert not rolled.has(GRANTED)


def test_what_grants_where_there_is_none_grants_nothing_beside_no_holder(rolled: node.Node) -> None:
    """A start is cancelled while its grant is made: systemd stops the holder, and goes on with what came after that."""
    assert services.again(rolled, r"corral-regrant@batch:batch\x40a.service", rolled.host())
    assert (names(rolled), rolled.has(GRANTED)) == (set(), False)


@pytest.mark.parametrize("how", ["restart", "Restart="])
def test_a_restart_after_a_release_has_a_grant_again(rolled: node.Node, how: str) -> None:
    assert services.start(rolled, BATCH)
    assert runs.command(rolled.host(), "release", NAME) == 0
    assert names(rolled) == set()
    run = services.restart(rolled, BATCH) if how == "restart" else services.crash(rolled, BATCH, always=True)
    assert run and names(rolled) == {NAME}
    assert len(run.cpus) == 2 and not run.cpus & {0, 4}
    services.stop(rolled, BATCH)
    assert names(rolled) == set()


def test_a_restart_that_lost_its_cpus_to_the_profile_is_refused_and_not_run_on_shared_ones(rolled: node.Node) -> None:
    assert services.start(rolled, BATCH)
    cpu = {**PROFILE["cpu"], "reserved": {"cpus": "0,1,4,5"}}
    roll_out(rolled, profile_with(cpu=cpu))
    tick(rolled)
    assert names(rolled) == set() and BATCH in rolled.runs, "it shares until it is restarted"
    assert services.restart(rolled, BATCH) is None, rolled.said
    roll_out(rolled, PROFILE)
    assert services.start(rolled, BATCH)
    assert names(rolled) == {NAME}


def test_a_restart_runs_no_program(rolled: node.Node) -> None:
    assert services.start(rolled, BATCH)
    before = rolled.started
    assert services.restart(rolled, BATCH)
    assert (rolled.started - before, names(rolled)) == (1, {NAME}), "its own process alone"


def test_a_removal_leaves_no_unit_that_holds_a_grant(rolled: node.Node) -> None:
    assert services.start(rolled, BATCH)
    assert rolled.has(GRANTED)
    runs.remove(rolled.host())
    assert (rolled.holders, rolled.has(GRANTED)) == ({}, False)
    assert BATCH in rolled.runs


# Where it runs


def move(fake: node.Node, unit: str, place: str) -> None:
    """A process is moved to another control group by hand; systemd still knows it."""
    run = fake.runs[unit]
    with fake.by_hand():
        fake.systemd.cgroups[run.place].tasks = []
        fake.put(f"/proc/{run.pid}/cgroup", f"0::/{place}\n")
        fake.systemd.told[unit] = {"MainPID": str(run.pid)}
        fake.systemd.sync()


@pytest.mark.parametrize(("place", "shown"), [("", "the root"), ("stray/a\x1bb", "stray/a\\x1bb")])
def test_a_process_that_was_moved_out_of_its_slice_by_hand_is_named(rolled: node.Node, place: str, shown: str) -> None:
    """It runs on others' CPUs, its own are empty, and to systemd it is active."""
    run = services.running(rolled, BATCH)
    tick(rolled)
    move(rolled, BATCH, place)
    for dummy in range(2):
        assert runs.tick(rolled.host()) == 2
        (item,) = runs.plan(rolled.host())
        assert (item.subject, item.property, item.verdict) == (BATCH, "slice", "unchangeable")
        assert item.actual == f"{shown} (PID {run.pid} batch@a)"
        assert f"systemctl restart {BATCH}" in item.reason
    assert names(rolled) == {NAME}, "its unit runs"
    services.restart(rolled, BATCH)
    del rolled.systemd.told[BATCH]
    runs.tick(rolled.host())
    assert runs.plan(rolled.host()) == ()


@pytest.mark.parametrize("lines", ["RemainAfterExit=yes\n", ""])
def test_a_unit_that_is_active_without_a_process_was_not_moved(make: Make, lines: str) -> None:
    """As a oneshot that stays active, or a unit before its next try (RestartSec=)."""
    fake = make()
    install(fake)
    fake.put(f"/etc/systemd/system/{BATCH}.d/stays.conf", f"[Service]\n{lines}")
    roll_out(fake, PROFILE)
    run = services.running(fake, BATCH)
    with fake.by_hand():
        fake.systemd.cgroups[run.place].tasks = []
        fake.systemd.sync()
    host = fake.host()
    assert runs.plan(host) == ()
    assert any("MainPID" in word for argv in host.commands for word in argv) is not bool(lines)


def test_where_a_process_runs_is_unknown_where_systemd_does_not_say(
    rolled: node.Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert services.start(rolled, BATCH)
    move(rolled, BATCH, "")
    monkeypatch.setattr(rolled.systemd, "show_unit", lambda dummy: "")
    answer = rolled.run
    monkeypatch.setattr(rolled, "run", lambda *argv: answer(*argv)._replace(code=argv[1] == "show"))
    (item,) = runs.plan(rolled.host())
    assert (item.subject, item.verdict) == (BATCH, "unknown")


def test_a_later_drop_in_that_places_a_unit_elsewhere_is_named(rolled: node.Node) -> None:
    """No restart moves the unit while it is there."""
    late = f"/etc/systemd/system/{BATCH}.d/50-place.conf"
    assert services.start(rolled, BATCH)
    rolled.put(late, "[Service]\nSlice=other.slice\n")
    rolled.systemd.daemon_reload()
    (item,) = runs.plan(rolled.host())
    assert (item.subject, item.actual, item.location) == (BATCH, "other.slice", late)
    services.restart(rolled, BATCH)
    (item,) = [one for one in runs.plan(rolled.host()) if one.manager == "workloads"]
    assert (item.subject, item.property, item.actual) == (BATCH, "slice", "other.slice")
    assert item.reason.startswith(f"{late} sorts after ") and "take Slice= out of it" in item.reason
    assert item.reason.endswith(f"then systemctl restart {BATCH}")
    rolled.drop(late)
    rolled.systemd.daemon_reload()
    services.restart(rolled, BATCH)
    tick(rolled)
    assert runs.plan(rolled.host()) == ()


@pytest.mark.parametrize("instance", ["a@b", "x" * 221, "x" * 222, "x" * 236])
def test_an_instance_that_can_have_no_slice_or_holder_does_not_start(instance: str, rolled: node.Node) -> None:
    """systemd ignores dependencies and assertions with names that are too long: it ran without a grant."""
    unit = f"batch@{instance}.service"
    assert services.start(rolled, unit) is None
    assert (names(rolled), unit in rolled.runs) == (set(), False)
    rolled.put(f"/etc/systemd/system/multi-user.target.wants/{unit}", "")
    context = planning.compile_profile(rolled.host(), profile.parse(PROFILE))
    assert any(unit in note and "it is granted nothing" in note for note in context.workloads.notes)
    runs.tick(rolled.host())
    assert runs.tick(rolled.host()) == 0
