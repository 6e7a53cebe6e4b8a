# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A refused write at any point of a change, and of the way back: the node ends with what was confirmed."""

from __future__ import annotations

import json
import typing as t

import failing
import node
import pytest
import runs
from _core.host import state
from _core.model.agent.agent_units import CONFIRM_TIMER
from _core.model.profile import profile
from _core.model.values.errors import CorralError
from _core.pipeline import confirming
from _core.pipeline.confirming import Terms
from test_faults import CHANGED, OWN

Make = t.Callable[..., node.Node]
Nodes = t.Callable[[], node.Node]
SECONDS = 120


@pytest.fixture(name="nodes")
def all_alike(make: Make) -> Nodes:
    """Nodes that are all alike, with the agent and a profile in force."""
    return copies_of(runs.converged(make(), with_agent=True))


@pytest.fixture(name="empty_nodes")
def all_without_a_profile(make: Make) -> Nodes:
    """Nodes that are all alike, with the agent alone."""
    prepared = make()
    runs.install(prepared.host())
    return copies_of(prepared)


def copies_of(prepared: node.Node) -> Nodes:
    count = iter(range(10**6))
    return lambda: prepared.clone(prepared.root.with_name(f"{prepared.root.name}-{next(count)}"))


def change(host: node.NodeHost, **sections: t.Any) -> None:
    confirming.declare(host, profile.parse(node.edge(**(sections or CHANGED))), None, Terms(SECONDS))


def expire(fake: node.Node, host: node.NodeHost | None = None) -> None:
    """The time is over, and the timer, if it runs, starts corral-confirm.service."""
    fake.wait(SECONDS + 1)
    if fake.has(state.UNCONFIRMED) or CONFIRM_TIMER in fake.systemd.active:
        runs.command(host or fake.host(), "confirm", "--tick")


def seen(fake: node.Node) -> dict[str, str]:
    return fake.fingerprint(*node.STATE, node.RUNTIME_CONTROL)


def test_a_change_whose_record_cannot_be_written_goes_back(nodes: Nodes) -> None:
    sample = nodes()
    before, host = seen(sample), sample.host()
    change(host)
    raised, wrong = 0, []
    own = [number for number, act in enumerate(host.acts, 1) if act.split()[1].startswith(OWN)]
    for number in own:
        fake = nodes()
        try:
            change(fake.host("error", number))
        except OSError:  # Corral's own state, after the node was changed
            raised += 1
            expire(fake)
            wrong += [f"{host.acts[number - 1]}: {line}" for line in node.different(before, seen(fake))]
        except CorralError:
            assert not fake.has(state.UNCONFIRMED), host.acts[number - 1]
    assert raised
    assert not wrong


def test_a_timer_that_does_not_start_leaves_what_was_unconfirmed(nodes: Nodes) -> None:
    fake = nodes()
    confirmed = fake.get(state.DECLARED)
    change(fake.host())
    kept = fake.get(state.UNCONFIRMED)
    sections = {**CHANGED, "pids": {"pid_max": 80000}}
    start = failing.number_of(fake, lambda host: change(host, **sections), CONFIRM_TIMER)
    fake.wait(10)
    with pytest.raises(CorralError, match="cannot be started"):
        change(fake.host("error", start), **sections)
    assert json.loads(fake.get(state.UNCONFIRMED)) == json.loads(kept)
    expire(fake)
    assert fake.get(state.DECLARED) == confirmed


FAULTS = ("error", "torn")


@pytest.mark.parametrize("fault", FAULTS)
def test_a_way_back_to_no_profile_is_tried_again_until_nothing_is_left(fault: str, empty_nodes: Nodes) -> None:
    def act(host: node.NodeHost) -> None:
        expire(host.node, host)

    changed = empty_nodes()
    before = seen(changed)
    change(changed.host(), **node.edge())
    assert node.different(before, seen(failing.tried(changed, act).node)) == []
    for fake, what in failing.each(changed, act, fault, FAULTS):
        expire(fake)
        assert not fake.has(state.UNCONFIRMED), what
        assert node.different(before, seen(fake)) == [], what
