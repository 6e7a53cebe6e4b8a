# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Looking at what a step concerns tells the same as looking at the whole machine: random machines and plans, by seed."""

from __future__ import annotations

import random

import full_replay
from _core.model.plan import kernel_cpusets as oracle
from _core.model.plan import make_step, replay
from _core.model.plan.kernel_cpusets import (
    INVALIDATES,
    ISOLATED,
    MEMBER,
    NONE,
    PARTITION,
    WINS,
    Bounds,
    Cgroup,
    CpuSet,
    Machine,
)
from _core.model.plan.moving_cpusets import MovingMachine
from _core.model.plan.plan import CPUS, RELEASE, Step
from _core.model.systemd.unit_group import group_of
from _core.model.values import cpuset
from example_counts import examples

CASES = examples(3000)
EIGHT = frozenset(range(8))
OWN = ("corral_a.slice", "corral_b.slice", "corral_c.slice")
UNITS = (*OWN, "machine.slice", "corral.slice", "corral-w.slice", "corral-w-deep.slice", "x.service")
PATHS = [group_of(unit) for unit in UNITS]
PATHS += ["corral_a.slice/s", "corral_a.slice/s/t", "machine.slice/p", "machine.slice/p/q", "hand"]
KINDS = (MEMBER, PARTITION, PARTITION, ISOLATED)


def some_cpus(dice: random.Random) -> CpuSet:
    return frozenset(dice.sample(range(8), dice.randint(0, 4)))


def some_cgroup(dice: random.Random) -> Cgroup:
    """A control group in any state, possible or not."""
    kind = dice.choice(KINDS)
    valid = False if kind == MEMBER else dice.choice([True, True, None, False])
    least = some_cpus(dice)
    kept = Bounds(least, least | some_cpus(dice)) if dice.random() < 0.2 else Bounds()
    return Cgroup(some_cpus(dice), kind, valid, kept)


def some_machine(dice: random.Random) -> Machine:
    """A tree of control groups; CPUs may be offline or lost."""
    found: dict[str, Cgroup] = {}
    for path in dice.sample(PATHS, dice.randint(0, len(PATHS))):
        parts = path.split("/")
        for depth in range(1, len(parts) + 1):
            found.setdefault("/".join(parts[:depth]), some_cgroup(dice))
    offline, lost = (some_cpus(dice) if dice.random() < 0.4 else NONE for dummy in range(2))
    return Machine(found, EIGHT - offline, dice.choice([INVALIDATES, WINS]), lost)


def some_step(dice: random.Random) -> Step:
    kind = dice.choices(["property", "partition", "unit"], [5, 4, 1])[0]
    unit, phase = dice.choice(UNITS), dice.choice([CPUS, RELEASE])
    if kind == "property":
        return make_step.unit_property(unit, "AllowedCPUs", cpuset.format(some_cpus(dice)), phase)
    if kind == "unit":
        return Step(kind, unit, "start", phase)
    return Step(kind, f"/sys/fs/cgroup/{dice.choice(PATHS)}/cpuset.cpus.partition", dice.choice(KINDS), phase)


def some_plan(dice: random.Random) -> list[Step]:
    return [some_step(dice) for dummy in range(dice.randint(1, 10))]


def test_what_each_control_group_gets_after_each_step_is_what_it_gets_on_the_whole_machine() -> None:
    for seed in range(CASES):
        dice = random.Random(seed)
        whole = some_machine(dice)
        moving, before = MovingMachine(whole), oracle.bounds(whole)
        for step in some_plan(dice):
            replay.do(moving, step)
            last, whole = whole, full_replay.done(whole, step)
            bounds = oracle.bounds(whole)
            assert (moving.machine, moving.bounds) == (whole, bounds), (seed, step)
            changed = {path for path, one in whole.cgroups.items() if last.cgroups.get(path) != one}
            changed |= {path for path, has in bounds.items() if before.get(path) != has}
            assert moving.moved.keys() >= changed, (seed, step)
            before = bounds
            moving.moved.clear()


def test_a_plan_is_refused_for_the_same_reasons_as_by_a_look_at_the_whole_machine_after_each_step() -> None:
    refused = 0
    for seed in range(CASES):
        dice = random.Random(seed)
        machine, steps = some_machine(dice), some_plan(dice)
        populated = dice.sample(PATHS, dice.randint(0, 4))
        own, partitions = dice.sample(OWN, dice.randint(1, 3)), dice.random() < 0.6
        found = replay.problems(steps, machine, populated, own, partitions=partitions)
        assert found == full_replay.problems(steps, machine, populated, own, partitions=partitions), seed
        refused += bool(found)
    assert CASES // 4 < refused < CASES * 3 // 4, "both verdicts are compared"
