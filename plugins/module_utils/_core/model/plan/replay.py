# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# This module is private to the collection corral.node.
"""The validator's replay: what the kernel lets every control group of the machine have after each step of a plan.

It takes the finished steps and the kernel's rule (kernel_cpusets.py), and nothing of how the plan came about.
"""

from __future__ import annotations

import typing as t

from ..systemd.unit_group import group_of
from ..values import cpuset
from ..values.errors import Problem
from . import kernel_cpusets as oracle
from .kernel_cpusets import MEMBER, NONE, ROOT, Bounds, CpuSet, Machine
from .plan import RELEASE, Step

MOST = 8  # problems of one plan that are named


def problems(
    steps: t.Sequence[Step],
    machine: Machine,
    populated: t.Collection[str],
    own: t.Collection[str],
    *,
    partitions: bool = True,
) -> list[Problem]:
    """Each instant at which others would get CPUs of a control group of ``own`` (paths) by these steps.

    A control group has its CPUs for itself from the moment that it is a partition, or at once where it holds processes
    (``populated``); what others have of them before the first step is not these steps' doing. Others may begin to run at any
    moment, in any control group and in one that is yet to be made: that gets what the root has left. Without ``partitions``
    only those that ask for CPUs are kept off others'.

    Others that may have such CPUs before may go on to, but not ask for them by a step, unless they are sure to have them.
    """
    found: list[Problem] = []
    told: set[tuple[str, str]] = set()
    before = shared(machine, own, populated)
    asked = {path: one.cpus for path, one in machine.cgroups.items()}
    loose = {path for path in own if path in machine.cgroups and machine.cgroups[path].valid is not True}
    loose |= set() if partitions else set(own)
    for step in steps:
        after = done(machine, step)
        if after is machine:
            continue
        machine = after
        new = {}
        mended = {path for path in loose if partitions and path in machine.cgroups and machine.cgroups[path].valid}
        loose -= mended
        before = {key: cpus for key, cpus in before.items() if key[0] not in mended}
        for (path, other), (dummy, cpus) in shared(machine, own, populated).items():
            asks = machine.cgroups[other].cpus if other in machine.cgroups else NONE
            if path in loose and not machine.cgroups[path].valid:
                # Not in force before: a control group without a cpuset has those CPUs already.
                cpus &= asks
            least, most = before.get((path, other), Bounds())
            new[path, other] = cpus - (most - (asks - asked.get(other, NONE)) | least)
        new = {key: cpus for key, cpus in new.items() if cpus}
        # Who asks for the same CPUs is why the others get them.
        askers = {key: cpus & machine.cgroups[key[1]].cpus for key, cpus in new.items() if key[1] in machine.cgroups}
        askers = {key: cpus for key, cpus in askers.items() if cpus} or new
        found += [problem(*key, cpus, step, of_corral=key[1] in own) for key, cpus in askers.items() if key not in told]
        told.update(askers)
        if len(found) >= MOST:
            return found[:MOST]
        before = {key: cpus for key, cpus in before.items() if key[0] in machine.cgroups}
    return found


def problem(path: str, other: str, cpus: CpuSet, step: Step, *, of_corral: bool) -> Problem:
    """What is wrong with a step, and the way out where the plan is not to blame."""
    who = "a process in a control group without a cpuset" if other == ROOT else other
    text = f"{who} would have CPUs of {path} at {step.target} {step.value or ''}"
    if other == ROOT or of_corral or other == group_of(step.target):
        text += ": report this as a fault of Corral"
    else:
        text += f": declare {other} in cpu.shared.slices or cpu.reserved.slices, or remove its AllowedCPUs="
    return Problem("cpu", f"CPUs {cpuset.format(cpus)}", text)


def shared(machine: Machine, own: t.Collection[str], populated: t.Collection[str]) -> dict[tuple[str, str], Bounds]:
    """Which CPUs of each control group of ``own`` that is in use another one has as well, or would have; it may have none."""
    bounds = oracle.bounds(machine)
    owners: dict[int, list[str]] = {}
    for path in own:
        one = machine.cgroups.get(path)
        if one is not None and (path in populated or one.partition != MEMBER):
            for cpu in bounds[path].most & one.cpus:
                owners.setdefault(cpu, []).append(path)
    taken = frozenset(owners)
    found: dict[tuple[str, str], Bounds] = {}
    for other, (least, most) in bounds.items():
        for cpu in most & taken:
            for path in owners[cpu]:
                if not f"{other}/".startswith(f"{path}/"):
                    sure, possible = found.get((path, other), Bounds())
                    found[path, other] = Bounds(sure | least & {cpu}, possible | {cpu})
    return found


def done(machine: Machine, step: Step) -> Machine:
    """The machine after a step; the same one where it moves no CPUs."""
    if step.kind == "partition":
        path = step.target[len("/sys/fs/cgroup/") :].rpartition("/")[0]
        if path not in machine.cgroups:
            return machine
        if step.value != MEMBER and machine.cgroups[path].partition != MEMBER and not machine.cgroups[path].valid:
            machine = oracle.set_partition(machine, path, MEMBER)
        return oracle.set_partition(machine, path, step.value or MEMBER)
    if step.kind == "unit" and step.target.endswith(".slice") and step.value == "start":
        return made(machine, group_of(step.target))
    name, equals, value = (step.value or "").partition("=")
    if step.kind != "property" or name != "AllowedCPUs" or not equals:
        return machine
    path = group_of(step.target)
    if step.phase == RELEASE and path not in machine.cgroups:
        return machine  # What was set is taken back where it still is.
    # Unsetting it leaves what the kernel has.
    return oracle.set_cpus(made(machine, path), path, cpuset.parse(value)) if value else machine


def made(machine: Machine, path: str) -> Machine:
    """The machine with a control group, and those around it."""
    parts = path.split("/")
    for depth in range(1, len(parts) + 1):
        inner = "/".join(parts[:depth])
        if inner not in machine.cgroups:
            machine = oracle.make(machine, inner)
    return machine
