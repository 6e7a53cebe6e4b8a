# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A fault at every write and every command that workloads cause: no CPU is ever shared, no grant is lost or leaked."""

from __future__ import annotations

import typing as t

import failing
import node
import pytest
import runs
import services
import test_workloads
from _core.host.plan import apply_step
from _core.model.profile import profile
from _core.pipeline import applying
from fake_cpusets import FORKY
from test_workloads import BATCH, BOTH, DATAPLANE, FEED, PROFILE

if t.TYPE_CHECKING:
    from _core.host.cpu.thread_masks import Masks
    from _core.model.plan.plan import Step

Make = t.Callable[..., node.Node]
Act = t.Callable[[node.Node, node.NodeHost], t.Any]
Seen = dict[str, str]


class Case(t.NamedTuple):
    """``prepare`` a node, do ``act`` on a host with a fault in it; ``again`` is what a person or systemd does then."""

    prepare: t.Callable[[node.Node], t.Any]
    act: Act
    again: Act
    held: dict[str, str]


def fresh(fake: node.Node) -> None:
    test_workloads.install(fake)
    assert not runs.install(fake.host()).error


def declare(dummy: node.Node, host: node.NodeHost) -> None:
    applying.declare(host, profile.parse(PROFILE))


def rolled(fake: node.Node) -> None:
    fresh(fake)
    declare(fake, fake.host())
    for unit in (DATAPLANE, FEED):
        services.start(fake, unit)
    runs.tick(fake.host())
    fake.wait(10)


def running(fake: node.Node) -> None:
    rolled(fake)
    services.start(fake, BATCH)
    runs.tick(fake.host())
    fake.wait(10)


def offline(fake: node.Node) -> None:
    rolled(fake)
    fake.set_online(6)


def start(fake: node.Node, host: node.NodeHost) -> None:
    services.start(fake, BATCH, host)


def stop(fake: node.Node, host: node.NodeHost) -> None:
    if BATCH in fake.runs:
        services.stop(fake, BATCH, host)


def tick(dummy: node.Node, host: node.NodeHost) -> None:
    runs.tick(host)


HELD = {"dataplane": "2,6", "feed": ""}
CASES = {
    "rollout": Case(fresh, declare, declare, HELD),
    "admission": Case(rolled, start, start, {**HELD, BOTH: "1,5"}),
    "release": Case(running, stop, stop, HELD),
    "a CPU goes offline": Case(offline, tick, tick, {**HELD, "dataplane": "3,7"}),
}


def seen(fake: node.Node) -> Seen:
    """A fingerprint without what no grant is: Corral's state, systemd's notes of values in force, runs and processes."""
    found = fake.fingerprint(*node.STATE, node.RUNTIME_CONTROL, services.INVOCATIONS)
    # The slice of who is to be admitted may be there while it waits, with nobody in it.
    waiting = () if BATCH in fake.runs else ("corral_batch",)
    return {
        path: state
        for path, state in found.items()
        if not path.endswith("cgroup.procs") and not any(name in path for name in waiting)
    }


def settled(fake: node.Node) -> None:
    """Ticks until there is nothing to do."""
    for dummy in range(4):
        fake.wait(10)
        if runs.tick(fake.host()) == 0:
            return
    pytest.fail(f"still not in sync: {test_workloads.status(fake)}")


# A rollout's writes that were torn or that died right after are alike to the next run, see test_faults.py.
FAILS = {**dict.fromkeys(CASES, ("error", "torn", "killed")), "rollout": ("error", "torn")}


@pytest.mark.parametrize(("name", "fail"), [(name, fail) for name, fails in FAILS.items() for fail in fails])
def test_whatever_happens_at_any_write_the_next_ticks_make_it_good(name: str, fail: str, make: Make) -> None:
    case, prepared = CASES[name], make()
    case.prepare(prepared)
    host = failing.tried(prepared, lambda host: case.act(host.node, host))
    undisturbed = host.node
    settled(undisturbed)
    wanted, wrong = seen(undisturbed), list[str]()
    assert test_workloads.held(undisturbed) == case.held
    assert len(host.acts) > 3
    for fake, what in failing.each(prepared, lambda host: case.act(host.node, host), fail, FAILS[name]):
        if name != "rollout":
            settled(fake)
            if BATCH not in fake.runs and BOTH in test_workloads.held(fake):
                wrong.append(f"{what}: a grant leaked")
        case.again(fake, fake.host())
        settled(fake)
        if test_workloads.held(fake) != case.held:
            wrong.append(f"{what}: {test_workloads.held(fake)}")
        wrong += [f"{what}: {line}" for line in node.different(wanted, seen(fake))]
        wrong += [f"{what}: {line}" for line in fake.overlaps]
        wrong += [
            f"{what}: {unit} runs on {sorted(fake.systemd.effective(run.place))}"
            for unit, run in fake.runs.items()
            if fake.systemd.effective(run.place) != undisturbed.systemd.effective(undisturbed.runs[unit].place)
        ]
    assert wrong == []


@pytest.mark.parametrize("partitions", ["auto", "off"])
def test_a_release_that_systemd_lets_nobody_take_back_gives_no_cpu_to_the_next_start(
    partitions: str, make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It gave the first CPUs to others, and then answered nothing any more."""
    monkeypatch.setitem(PROFILE["cpu"], "partitions", partitions)
    fake = make(release=FORKY)
    running(fake)
    before = test_workloads.held(fake)
    calls = 0

    def answers_once(host: node.NodeHost, step: Step, masks: Masks) -> None:
        nonlocal calls
        calls += 1
        if calls > 1:
            raise apply_step.StepFailed(f"{step.target}: no answer")
        set_property(host, step, masks)

    set_property = apply_step.set_property
    with monkeypatch.context() as patched:
        patched.setattr(apply_step, "set_property", answers_once)
        services.stop(fake, BATCH)
    assert before.keys() - test_workloads.held(fake).keys() == {"batch:batch@a"}
    assert services.start(fake, BATCH) is not None
    assert runs.tick(fake.host()) == 0
