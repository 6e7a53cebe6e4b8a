# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Originals that another version of Corral recorded, and that this version may not restore: each is named, the rest goes on."""

from __future__ import annotations

import typing as t

import node
import pytest
import runs
from _core.host import state
from _core.host.state import Record
from _core.model.plan.plan import UNCHANGEABLE, Change
from _core.model.plan.undo import Original

PLACE = "/etc/modprobe.d/corral.conf"
STRAYS = {
    "a place that its manager has no more": Record("pids", PLACE, Original("file", PLACE)),
    "a kernel value": Record("pids", "panic", Original("value", "/proc/sys/kernel/panic", value="7")),
    "a path with dots": Record("pids", PLACE, Original("file", "/etc/sysctl.d/../passwd", value="x")),
    "a manager that is not here": Record("irq", PLACE, Original("file", PLACE)),
    "a kind of step that is not here": Record("cpu", "0", Original(t.cast("t.Any", "irq"), "/proc/irq/0/smp_affinity")),
    "of the agent": Record("agent", "old", Original("value", "/usr/libexec/corral/old", value="1")),
}


def recorded(fake: node.Node, stray: Record) -> None:
    """A node with the agent and a profile, and one record more."""
    assert not runs.install(fake.host(), runs.OLDER).error
    runs.converged(fake, with_agent=True)
    fake.put(PLACE, "options of another version\n")
    fake.put("/proc/sys/kernel/panic", "0\n")
    fake.put("/usr/libexec/corral/old", "0\n")
    state.save_records(fake.host(), [*state.records(fake.host())[0], stray])


def named(changes: t.Iterable[Change], stray: Record) -> list[Change]:
    told = [change for change in changes if change.location == stray.before.target]
    return [change for change in told if f"the manager {stray.manager} of another version" in change.reason]


@pytest.mark.parametrize("name", STRAYS)
def test_it_is_an_item_and_everything_else_goes_on(name: str, fake: node.Node) -> None:
    stray = STRAYS[name]
    recorded(fake, stray)
    fake.put("/proc/sys/kernel/pid_max", "40000\n")
    assert runs.tick(fake.host(), by_timer=False) in (0, 2)
    assert fake.get("/proc/sys/kernel/pid_max") != "40000\n", "the tick mends what it may"
    assert not runs.install(fake.host(), runs.NEWER).error
    assert not runs.declare(fake.host(), pids={"pid_max": 70000}).error
    removed = runs.remove(fake.host())
    assert (removed.error, removed.leftovers) == ("", ())
    assert not fake.has(state.DECLARED)
    items = named(removed.remaining, stray)
    assert [(item.verdict, item.steps) for item in items] == [(UNCHANGEABLE, ())]
    assert state.BEFORE in items[0].reason
    assert state.records(fake.host())[0] == [stray], "it is not forgotten"


@pytest.mark.parametrize("name", ["a place that its manager has no more", "a manager that is not here"])
def test_one_that_was_restored_by_hand_is_forgotten(name: str, fake: node.Node) -> None:
    recorded(fake, STRAYS[name])
    assert named(runs.plan(fake.host()), STRAYS[name])
    fake.drop(PLACE)
    assert not runs.remove(fake.host()).remaining
    assert not fake.has(state.BEFORE)
