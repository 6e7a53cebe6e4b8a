# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# This module is private to the collection corral.node.
"""The CPUs that the kernel lets each control group have (cgroup v2, Documentation/admin-guide/cgroup-v2.rst, "Cpuset").

The model has trees of control groups only, without Corral's pools, grants or plans. The scenarios ``cpusets`` compare the model with
kernels 6.1, 6.12 and, for ``WINS``, 7.2, operation by operation. The validator replays plans with the model (replay.py); no planner may
import this module. If a kernel behaves differently from its documentation, ``bounds`` has both outcomes.
"""

from __future__ import annotations

import typing as t

CpuSet = frozenset[int]
NONE: CpuSet = frozenset()
ROOT = ""
MEMBER, PARTITION, ISOLATED = "member", "root", "isolated"
# What a kernel does when a control group requests CPUs of a sibling that is a partition: the partition becomes invalid,
# or the partition stays valid and the other control group gets the remaining CPUs.
INVALIDATES, WINS = "invalidates", "wins"
FIRST_THAT_WINS = 7


class Bounds(t.NamedTuple):
    """The CPUs that a control group has at least and at most. The two sets are equal if the kernel's decisions are known."""

    least: CpuSet = NONE
    most: CpuSet = NONE


class Cgroup(t.NamedTuple):
    """A control group with the requested ``cpus`` (empty: none) and the requested kind of ``partition``.

    ``valid``: whether the partition is in force, so that no other control group has its CPUs; None: unknown. ``kept``: the parent's CPUs
    that the control group got when all its own CPUs went offline, see ``bounds``.
    """

    cpus: CpuSet = NONE
    partition: str = MEMBER
    valid: t.Optional[bool] = False
    kept: Bounds = Bounds()


class Machine(t.NamedTuple):
    """All control groups by their paths below the root (``a/b``), the CPUs that are online, and the kernel's behaviour.

    ``lost``: CPUs that the kernel may keep from all control groups although no partition has these CPUs, see ``bounds``. ``elsewhere``: in
    a part of a machine, the CPUs of top-level partitions that ``cgroups`` does not contain.
    """

    cgroups: t.Mapping[str, Cgroup]
    online: CpuSet
    way: str = INVALIDATES
    lost: CpuSet = NONE
    elsewhere: CpuSet = NONE


def way_of(release: str) -> str:
    """The behaviour of a kernel release (``6.1.0-44-cloud-amd64``, as in /proc/sys/kernel/osrelease)."""
    major = release.partition(".")[0]
    return WINS if major.isdecimal() and int(major) >= FIRST_THAT_WINS else INVALIDATES


def bounds(machine: Machine) -> dict[str, Bounds]:
    """The bounds of cpuset.cpus.effective of every control group, the root included: the CPUs of a process in the control group.

    For a partition whose state is unknown, the bounds include both outcomes.

    Kernels lose CPUs: the kernel may keep the CPUs of a partition that is not in force from all control groups. On 6.12 these CPUs may stay
    lost after the partition requests other CPUs or ends, until a partition takes and returns the lost CPUs. A control group that requests
    only lost CPUs has all CPUs of its parent.

    When all CPUs of a control group go offline, the control group gets the present CPUs of its parent. 6.12 updates these CPUs when a
    sibling partition takes or returns CPUs. 6.1 does not: the control group and its descendants keep these CPUs until its cpuset.cpus is
    written or a CPU goes offline or online. So a valid partition may share CPUs with the control group, and a partition that takes such
    CPUs is uncertain. The kernel's cpuset.cpus.effective of the control group is right.

    When all CPUs of a partition go offline and its processes are in child control groups without a cpuset, 7.2 keeps the partition without
    a CPU, and lets the processes run on all online CPUs, also on CPUs of other partitions.
    """
    taken, doubted = given_out(machine)
    known = {ROOT: bounds_of(machine, ROOT, Bounds(), taken[ROOT], doubted[ROOT])}
    for path in sorted(machine.cgroups, key=depth):
        known[path] = bounds_of(machine, path, known[parent(path)], taken[path], doubted[path])
    return known


def bounds_of(
    machine: Machine, path: str, around: Bounds, taken: t.AbstractSet[int], doubted: t.AbstractSet[int]
) -> Bounds:
    """The CPUs of a control group, from its parent's CPUs (``around``) and the CPUs that its child partitions took (see given_out())."""
    cgroup, whole = (machine.cgroups[path], whole_of(machine, parent(path))) if path else (None, machine.online)
    if cgroup is None or cgroup.valid:
        left = (whole if cgroup is None else cgroup.cpus & whole) - taken
        return Bounds(left - doubted - machine.lost, left)
    least, most = around
    if cgroup.cpus & least:
        least, most = cgroup.cpus & least, cgroup.cpus & most
    elif cgroup.cpus & most:
        least = NONE  # The control group has the requested CPUs, or all CPUs of its parent.
    if cgroup.kept.most:
        least, most = least & cgroup.kept.least, most | cgroup.kept.most & whole
    if cgroup.partition != MEMBER:
        least = NONE  # 6.12 gives no CPUs to a partition whose CPUs are offline, even if the kernel reports the partition as invalid.
    if cgroup.valid is None:
        own = cgroup.cpus & whole
        most |= machine.online if machine.way == WINS and not own else own
    return Bounds(least, most)


def given_out(machine: Machine) -> tuple[dict[str, CpuSet], dict[str, CpuSet]]:
    """By control group, the CPUs that its child partitions took, and the CPUs that uncertain child partitions may have taken."""
    taken: dict[str, set[int]] = {path: set() for path in (ROOT, *machine.cgroups)}
    doubted: dict[str, set[int]] = {path: set() for path in taken}
    for path, cgroup in machine.cgroups.items():
        if cgroup.partition != MEMBER:
            (taken if cgroup.valid else doubted)[parent(path)].update(cgroup.cpus)
    return frozen(taken), frozen(doubted)


def frozen(sets: t.Mapping[str, set[int]]) -> dict[str, CpuSet]:
    return {path: frozenset(cpus) for path, cpus in sets.items()}


def parent(path: str) -> str:
    """The parent of a control group; the root's parent is the root."""
    return path.rpartition("/")[0]


def depth(path: str) -> int:
    """The number of ancestors of a control group."""
    return path.count("/")


def below(machine: Machine, path: str) -> list[str]:
    """The children of a control group."""
    return [other for other in machine.cgroups if other and parent(other) == path]


# Operations: each returns the machine as the kernel leaves it


def make(machine: Machine, path: str) -> Machine:
    """Make a control group that requests no CPUs."""
    return machine._replace(cgroups={**machine.cgroups, path: Cgroup()})


def remove(machine: Machine, path: str) -> Machine:
    """Remove a control group that has no children."""
    machine = with_lost(machine, path)
    return machine._replace(cgroups={name: one for name, one in machine.cgroups.items() if name != path})


def set_cpus(machine: Machine, path: str, cpus: CpuSet) -> Machine:
    """Write cpuset.cpus."""
    before = machine.cgroups[path]
    if before.cpus == cpus:
        return machine  # The kernel ignores an unchanged value, even if a partition could become valid again.
    renewed = {
        name: cgroup._replace(kept=Bounds())
        for name, cgroup in machine.cgroups.items()
        if f"{name}/".startswith(f"{path}/")
    }
    changed = changed_in(machine, {**renewed, path: before._replace(cpus=cpus, kept=Bounds())})
    harmless = machine.way == WINS and before.partition == MEMBER
    doubted = {} if harmless else dict.fromkeys(rivals(changed, path))
    if before.valid and can_be(changed, path):
        changed = changed._replace(lost=changed.lost - (cpus - before.cpus))
    elif before.partition != MEMBER:
        doubted[path] = None
        changed = changed._replace(lost=changed.lost | before.cpus)
    return with_dependent_doubts(with_doubts(changed, doubted))


def set_partition(machine: Machine, path: str, partition: str) -> Machine:
    """Write cpuset.cpus.partition."""
    before = machine.cgroups[path]
    if partition == MEMBER:
        machine = with_lost(machine, path)
        return with_dependent_doubts(changed_in(machine, {path: before._replace(partition=partition, valid=False)}))
    # A change from one kind of partition to the other keeps the partition's state.
    valid = before.valid if before.partition != MEMBER else can_be(machine, path) or None
    changed = changed_in(machine, {path: before._replace(partition=partition, valid=valid)})
    if valid and before.partition == MEMBER:
        changed = changed._replace(lost=changed.lost - before.cpus)
    return with_dependent_doubts(with_doubts(changed, dict.fromkeys(rivals(machine, path))))


def set_online(machine: Machine, online: CpuSet) -> Machine:
    """Take CPUs offline or online. An invalid partition may become valid again, and the kernel may lose CPUs of partitions."""
    partitions = [one.cpus for one in machine.cgroups.values() if one.partition != MEMBER]
    moved = (machine.online ^ online).intersection(NONE.union(*partitions))
    machine = machine._replace(lost=machine.lost | moved)
    invalid = {path: None for path, one in machine.cgroups.items() if one.partition != MEMBER and not one.valid}
    changed = with_dependent_doubts(with_doubts(machine._replace(online=online), invalid))
    renewed = changed_in(changed, {path: one._replace(kept=Bounds()) for path, one in changed.cgroups.items()})
    if machine.way == WINS:
        return renewed
    known = bounds(renewed)
    lost = {path: one for path, one in renewed.cgroups.items() if one.cpus and not one.cpus & online}
    return changed_in(renewed, {path: one._replace(kept=known[parent(path)]) for path, one in lost.items()})


def observed(machine: Machine, valid: t.Mapping[str, bool]) -> Machine:
    """The machine with the kernel's reports on its partitions. The report "invalid" is reliable.

    The report "valid" is not reliable: 6.1 also reports "valid" if the control group had no CPUs when it became a partition, or if a
    sibling requested the CPUs at that moment. Other processes still run on these CPUs. So a partition counts as valid only if both the
    kernel and the model report "valid".
    """
    return changed_in(
        machine,
        {
            path: cgroup._replace(valid=(cgroup.valid or None) if valid[path] else False)
            for path, cgroup in machine.cgroups.items()
        },
    )


def can_be(machine: Machine, path: str) -> bool:
    """Whether a control group certainly becomes a partition: it is in the root or a valid partition, and no sibling wants its CPUs.

    The root keeps a CPU for the kernel's threads ("Parent unable to distribute cpu downstream").
    """
    cgroup, around = machine.cgroups[path], parent(path)
    if around and not machine.cgroups[around].valid:
        return False
    if any(machine.cgroups[name].kept.most & cgroup.cpus for name in below(machine, around) if name != path):
        return False
    if not around and not machine.online - cgroup.cpus - machine.elsewhere - at_top(machine, path):
        return False
    return bool(cgroup.cpus) and cgroup.cpus <= whole_of(machine, around) and not rivals(machine, path)


def at_top(machine: Machine, path: str) -> CpuSet:
    """The CPUs of all top-level partitions except ``path``."""
    others = (one for name, one in machine.cgroups.items() if "/" not in name and name != path)
    return NONE.union(*(one.cpus for one in others if one.partition != MEMBER))


def rivals(machine: Machine, path: str) -> list[str]:
    """The siblings that may keep a control group from being a partition, or whose partitions the control group may end."""
    cgroup = machine.cgroups[path]
    others = [
        name for name in below(machine, parent(path)) if name != path and machine.cgroups[name].cpus & cgroup.cpus
    ]
    return [name for name in others if machine.way == INVALIDATES or machine.cgroups[name].partition != MEMBER]


def whole_of(machine: Machine, path: str) -> CpuSet:
    """The CPUs of a partition, the CPUs of partitions inside included."""
    return machine.online if not path else machine.cgroups[path].cpus & whole_of(machine, parent(path))


def with_dependent_doubts(machine: Machine) -> Machine:
    """The machine, in which a partition is uncertain if no CPU is left for it or if its parent may be no partition."""
    for path in sorted(machine.cgroups, key=depth):
        cgroup, around = machine.cgroups[path], parent(path)
        lost = around and not machine.cgroups[around].valid
        if cgroup.valid and (lost or not cgroup.cpus & whole_of(machine, around)):
            machine = with_doubts(machine, {path: None})
    return machine


def with_lost(machine: Machine, path: str) -> Machine:
    """The machine just before a partition ends: if the partition is not in force, its CPUs may be lost."""
    cgroup = machine.cgroups[path]
    in_doubt = cgroup.partition != MEMBER and not cgroup.valid
    return machine._replace(lost=machine.lost | cgroup.cpus) if in_doubt else machine


def with_doubts(machine: Machine, doubted: t.Mapping[str, None]) -> Machine:
    """The machine, in which the partitions among ``doubted`` are uncertain; other control groups stay unchanged."""
    asked = {path: machine.cgroups[path] for path in doubted if machine.cgroups[path].partition != MEMBER}
    return changed_in(machine, {path: one._replace(valid=None) for path, one in asked.items()})


def changed_in(machine: Machine, cgroups: t.Mapping[str, Cgroup]) -> Machine:
    """The machine with ``cgroups``, which replace the control groups at the same paths."""
    return machine._replace(cgroups={**machine.cgroups, **cgroups})
