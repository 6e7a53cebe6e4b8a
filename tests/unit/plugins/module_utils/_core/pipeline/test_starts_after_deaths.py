# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A death at every write, and everything that may start does right after it, before any tick: nobody shares exclusive CPUs."""

from __future__ import annotations

import contextlib
import typing as t

import node
import pytest
import runs
import services
import test_workloads
from _core.model.profile import profile
from _core.model.values.errors import CorralError
from _core.pipeline import applying
from example_counts import in_turn
from test_workloads import BATCH, DATAPLANE, FEED, OTHER, PROFILE, without

Make = t.Callable[..., node.Node]
ADMITTED = "guest.service"
UNITS = (DATAPLANE, FEED, BATCH, OTHER, ADMITTED)
# In machine.slice and user.slice, which start with what is in them, and in a slice that nobody knows.
SHARERS = ("machine.slice/late.service", "user.slice/late.service", "late.slice/late.service")


class Case(t.NamedTuple):
    """A node with these units running, and what is done on a host that dies in it."""

    running: tuple[str, ...]
    act: t.Callable[[node.NodeHost], t.Any]


def declared(data: dict[str, t.Any]) -> t.Callable[[node.NodeHost], t.Any]:
    return lambda host: applying.declare(host, profile.parse(data))


def tick(host: node.NodeHost) -> t.Any:
    host.node.set_online(6)
    return runs.tick(host)


ALL = (DATAPLANE, FEED, BATCH)
CASES = {
    "the first rollout": Case((), declared(PROFILE)),
    "a workload leaves": Case(ALL, declared(without("dataplane"))),
    "a template leaves": Case(ALL, declared(without("batch"))),
    "partitions end": Case(ALL, declared({**PROFILE, "cpu": {**PROFILE["cpu"], "partitions": "off"}})),
    "the reserve moves": Case(ALL, declared({**PROFILE, "cpu": {**PROFILE["cpu"], "reserved": {"cpus": "1,5"}}})),
    "a CPU goes offline": Case((DATAPLANE, FEED), tick),
    "an admission": Case(
        (DATAPLANE, FEED),
        lambda host: runs.command(host, "admit", "guest", "--unit", ADMITTED, "--limits", "cpu=2,memory=16Mi"),
    ),
    "a removal": Case(ALL, runs.remove),
}


def prepared(case: Case, make: Make) -> node.Node:
    """A node at rest, and a host for it."""
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


@pytest.mark.parametrize("name", CASES)
def test_what_starts_after_a_death_shares_no_exclusive_cpus(name: str, make: Make) -> None:
    case = CASES[name]
    before = prepared(case, make)
    undisturbed = before.clone(before.root.with_name("undisturbed"))
    host = undisturbed.host()
    case.act(host)
    assert len(host.acts) > 3
    wrong, started = [], 0
    for number in in_turn(len(host.acts), name, tuple(CASES)):
        fake = before.clone(before.root.with_name(f"death-{number}"))
        with contextlib.suppress(OSError, CorralError, node.Killed):
            case.act(fake.host("killed", number))
        # What lost its CPUs before the death runs with the others until a start, which finds the old profile, has granted it
        # the same ones again.
        shares = {f"of {path}" for path, group in fake.systemd.cgroups.items() if group.given_up}
        for unit in UNITS:
            if unit not in fake.runs:
                started += services.start(fake, unit) is not None
        for path in SHARERS:
            fake.intrude(path)
        fake.seen[:] = [line for line in fake.seen if not line.endswith(tuple(shares))]
        wrong += [f"{number} {host.acts[number - 1]}: {line}" for line in fake.seen]
        fake.seen.clear()
        with contextlib.suppress(CorralError):
            case.act(fake.host())
        wrong += [f"{number} in the end: {line}" for line in (*fake.seen, *fake.systemd.overlaps())]
    assert (wrong, started > 0) == ([], True)
