# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A death at every write, and everything that may start does right after it, before any tick: nobody shares exclusive CPUs."""

from __future__ import annotations

import contextlib
import typing as t

import failing
import node
import pytest
import runs
import services
import test_workloads
from _core.host import state
from _core.model.profile import profile
from _core.model.values.errors import CorralError
from _core.pipeline import applying, planning
from _core.pipeline.applying import Outcome
from test_workloads import BATCH, DATAPLANE, FEED, OTHER, PROFILE, without

Make = t.Callable[..., node.Node]
ADMITTED = "guest.service"
UNITS = (DATAPLANE, FEED, BATCH, OTHER, ADMITTED)
# In machine.slice and user.slice, which start with what is in them, and in a slice that nobody knows.
SHARERS = ("machine.slice/late.service", "user.slice/late.service", "late.slice/late.service")


class Case(t.NamedTuple):
    """A node with these units running, and what is done on a host that dies in it. One more workload has room to start."""

    running: tuple[str, ...]
    act: t.Callable[[node.NodeHost], t.Any]


def declared(data: dict[str, t.Any]) -> t.Callable[[node.NodeHost], t.Any]:
    return lambda host: applying.declare(host, profile.parse(data))


def tick(host: node.NodeHost) -> t.Any:
    host.node.set_online(6)
    return runs.tick(host)


def admit(host: node.NodeHost) -> t.Any:
    return runs.command(host, "admit", "guest", "--unit", ADMITTED, "--limits", "cpu=2,memory=16Mi")


USUAL = (DATAPLANE, FEED)
CASES = {
    "the first rollout": Case((), declared(PROFILE)),
    "a workload leaves": Case(USUAL, declared(without("dataplane"))),
    "a template leaves": Case((FEED, BATCH), declared(without("batch"))),
    "partitions end": Case(USUAL, declared({**PROFILE, "cpu": {**PROFILE["cpu"], "partitions": "off"}})),
    "the reserve moves": Case(USUAL, declared({**PROFILE, "cpu": {**PROFILE["cpu"], "reserved": {"cpus": "1,5"}}})),
    "a CPU goes offline": Case((FEED,), tick),
    "an admission": Case(USUAL, admit),
    "a removal": Case(USUAL, runs.remove),
}


def prepared(case: Case, make: Make) -> node.Node:
    """A node at rest."""
    fake = make()
    test_workloads.install(fake)
    services.add(fake, ADMITTED)
    assert not runs.install(fake.host()).error
    if case.running:
        test_workloads.roll_out(fake)
        for unit in case.running:
            assert services.start(fake, unit)
        test_workloads.ticks_until_quiet(fake)
        fake.wait(10)
    return fake


def forgive(fake: node.Node) -> None:
    """Forget, from now on, what is shared with slices that were given up before, until each is a partition again.

    Such a slice runs with the others, and a start that finds the old profile grants it the same CPUs again.
    """
    given_up = {path for path, group in fake.systemd.cgroups.items() if group.given_up}
    watch = fake.systemd.watch

    def forgiving() -> None:
        known = len(fake.seen)
        watch()
        given_up.difference_update([path for path in given_up if fake.systemd.cgroups.get(path, GONE).valid])
        fake.seen[known:] = [line for line in fake.seen[known:] if line.partition(" of ")[2] not in given_up]

    fake.systemd.watch = forgiving


GONE = node.Cgroup()


@pytest.mark.parametrize("name", CASES)
def test_what_starts_after_a_death_shares_no_exclusive_cpus(name: str, make: Make) -> None:
    case = CASES[name]
    before = prepared(case, make)
    assert len(failing.tried(before, case.act).acts) > 3
    wrong, own = [], 0
    for fake, what in failing.each(before, case.act, "killed"):
        forgive(fake)
        for unit in UNITS:
            run = None if unit in fake.runs else services.start(fake, unit)
            own += run is not None and run.place.startswith("corral_")
        for path in SHARERS:
            fake.intrude(path)
        try:
            again = case.act(fake.host())
        except CorralError as refusal:  # What has started meanwhile has the CPUs that it asks for.
            again = 0 if name == "an admission" else refusal
        failed = again.error if isinstance(again, Outcome) else again not in (0, 2)
        wrong += [f"{what}: {line}" for line in (*fake.seen, *fake.systemd.overlaps())]
        wrong += [f"{what}: the next run fails: {again}"] if failed else []
        fake.seen.clear()
    assert wrong == []
    assert own > 0, "nothing started on CPUs of its own"


RELOAD = "run systemctl daemon-reload"


def test_systemd_reads_the_files_of_a_run_that_died_before_it_did(make: Make) -> None:
    fake = prepared(CASES["the first rollout"], make)
    roll_out, whole = CASES["the first rollout"].act, fake.clone(fake.root.with_name("whole")).host()
    roll_out(whole)
    with contextlib.suppress(node.Killed):
        roll_out(fake.host("killed", whole.acts.index(RELOAD)))  # All files are written.
    host = fake.host()
    context = planning.compile_profile(host, profile.parse(PROFILE))
    foretold = applying.planned(host, planning.plan_profile(host, context, declare=True)).remaining
    assert ("profile", "systemd", "configuration") in [change.item() for change in foretold]
    assert host.acts == []
    for expected in (1, 0):
        host = fake.host()
        roll_out(host)
        assert host.acts.count(RELOAD) == expected


def test_systemd_reads_the_only_file_of_a_tick_that_died_at_any_write(make: Make) -> None:
    """The tick after it finds the file as it is to be."""
    before = prepared(CASES["an admission"], make)
    before.drop("/etc/systemd/system/slices.target.d/10-corral-cpu.conf")
    assert failing.number_of(before, runs.tick, RELOAD)
    for fake, what in failing.each(before, runs.tick, "killed"):
        test_workloads.ticks_until_quiet(fake)
        assert fake.systemd.reloads > before.systemd.reloads, what


def test_a_start_does_not_have_systemd_read_what_a_dead_run_left(make: Make) -> None:
    fake = prepared(CASES["an admission"], make)
    fake.put(state.RELOAD_DUE, "")
    host = fake.host()
    assert services.start(fake, BATCH, host)
    assert (RELOAD in host.acts, fake.has(state.RELOAD_DUE)) == (False, True)
    fake.wait(10)
    assert runs.tick(fake.host()) == 2
    assert not fake.has(state.RELOAD_DUE)
