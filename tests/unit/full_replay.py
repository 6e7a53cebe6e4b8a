# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The replay of a plan that looks at the whole machine after each step: slow, short, and what replay.py must say as well.

It compares how the two evaluate a plan. What a step means is read here as it is there: a step that both misread passes.
"""

from __future__ import annotations

import typing as t

from _core.model.plan import kernel_cpusets as oracle
from _core.model.plan import replay
from _core.model.plan.kernel_cpusets import MEMBER, NONE, Bounds, CpuSet, Machine
from _core.model.plan.plan import RELEASE, Step
from _core.model.systemd.unit_group import group_of
from _core.model.values import cpuset
from _core.model.values.errors import Problem

Pair = tuple[str, str]


def problems(
    steps: t.Sequence[Step],
    machine: Machine,
    populated: t.Collection[str],
    own: t.Collection[str],
    *,
    partitions: bool = True,
) -> list[Problem]:
    """What ``replay.problems`` says."""
    before = shared(machine, own, populated)
    asked = {path: one.cpus for path, one in machine.cgroups.items()}
    loose = {path for path in own if path in machine.cgroups and machine.cgroups[path].valid is not True}
    loose |= set() if partitions else set(own)
    for step in steps:
        machine = done(machine, step)
        mended = {path for path in loose if partitions and path in machine.cgroups and machine.cgroups[path].valid}
        loose -= mended
        before = {pair: cpus for pair, cpus in before.items() if pair[0] not in mended}
        new: dict[Pair, CpuSet] = {}
        for (path, other), (dummy, cpus) in shared(machine, own, populated).items():
            asks = machine.cgroups[other].cpus if other else NONE
            if path in loose and not machine.cgroups[path].valid:
                cpus &= asks
            least, most = before.get((path, other), Bounds())
            new[path, other] = cpus - ((most - (asks - asked.get(other, NONE))) | least)
        new = {pair: cpus for pair, cpus in new.items() if cpus}
        askers = {pair: cpus & machine.cgroups[pair[1]].cpus for pair, cpus in new.items() if pair[1]}
        askers = {pair: cpus for pair, cpus in askers.items() if cpus} or new
        if askers:
            pairs = sorted(askers)[: replay.MOST]
            return [replay.problem(*pair, askers[pair], step, of_corral=pair[1] in own) for pair in pairs]
    return []


def shared(machine: Machine, own: t.Collection[str], populated: t.Collection[str]) -> dict[Pair, Bounds]:
    """Which CPUs of each control group of ``own`` that is in use another one has as well, or may have."""
    bounds = oracle.bounds(machine)
    found = {}
    for path in own:
        one = machine.cgroups.get(path)
        if one is None or (path not in populated and one.partition == MEMBER):
            continue
        owned = bounds[path].most & one.cpus
        for other, (least, most) in bounds.items():
            if most & owned and not f"{other}/".startswith(f"{path}/"):
                found[path, other] = Bounds(least & owned, most & owned)
    return found


def done(machine: Machine, step: Step) -> Machine:
    """The machine after a step."""
    if step.kind == "partition":
        path = step.target[len("/sys/fs/cgroup/") :].rpartition("/")[0]
        if path not in machine.cgroups:
            return machine
        if step.value != MEMBER and machine.cgroups[path].partition != MEMBER and not machine.cgroups[path].valid:
            machine = oracle.set_partition(machine, path, MEMBER)
        return oracle.set_partition(machine, path, step.value or MEMBER)
    if step.kind == "unit" and step.target.endswith(".slice") and step.value == "start":
        return made(machine, group_of(step.target))
    path = group_of(step.target)
    if step.kind != "property" or step.name != "AllowedCPUs" or not step.value:
        return machine
    if step.phase == RELEASE and path not in machine.cgroups:
        return machine
    return oracle.set_cpus(made(machine, path), path, cpuset.parse(step.value))


def made(machine: Machine, path: str) -> Machine:
    """The machine with a control group, and those around it."""
    parts = path.split("/")
    for name in ("/".join(parts[:depth]) for depth in range(1, len(parts) + 1)):
        machine = machine if name in machine.cgroups else oracle.make(machine, name)
    return machine
