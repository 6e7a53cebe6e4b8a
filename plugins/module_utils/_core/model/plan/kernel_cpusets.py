# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# This module is private to the collection corral.node.
"""Which CPUs the kernel lets each control group have (cgroup v2, Documentation/admin-guide/cgroup-v2.rst, "Cpuset").

It models trees of control groups only, without Corral's pools, grants or plans. The scenarios ``cpusets`` compare it
with kernels 6.1, 6.12 and, for ``WINS``, 7.2, operation by operation. The validator replays plans with it (replay.py), and
no planner may import it. Where a kernel behaves differently from its documentation, ``bounds`` has both outcomes.
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
    """The CPUs that a control group has at least and at most: the same where the kernel's decisions are known."""

    least: CpuSet = NONE
    most: CpuSet = NONE


class Cgroup(t.NamedTuple):
    """A control group: ``cpus`` as asked for (empty: nothing), ``partition`` as asked for.

    ``valid`` is whether that is in force, so that no other control group has its CPUs. None: it may be or not.
    ``kept`` is what it got from the control group around it when its own CPUs all went offline: see ``bounds``.
    """

    cpus: CpuSet = NONE
    partition: str = MEMBER
    valid: t.Optional[bool] = False
    kept: Bounds = Bounds()


class Machine(t.NamedTuple):
    """All control groups by their paths below the root (``a/b``), the CPUs that are online, and the kernel's behaviour.

    ``lost`` are CPUs that the kernel may keep from all control groups although no partition has them: see ``bounds``.
    ``elsewhere`` are those of partitions at the top that are not among ``cgroups``, for a part of a machine.
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
    """cpuset.cpus.effective of every control group, the root's included: what a process that enters gets.

    Of a partition that may be in force or not, both outcomes are within the bounds.

    Kernels lose CPUs: those of a partition that is not in force may be kept from all control groups, on 6.12 also once
    it asks for others or is no partition any more, until a partition takes and returns them. A control group that asks for
    no others then has all that the control group around it has, as if it had asked for nothing.

    When all CPUs of a control group go offline, it gets the CPUs that the control group around it has then. Kernel 6.1
    does not update them when a partition beside it takes or returns CPUs: the control group, and all in it, keep what
    they got until its cpuset.cpus is written or a CPU goes offline or online. So a partition that is valid may share
    CPUs with it, and none that takes such CPUs is sure. Its own cpuset.cpus.effective shows what it has. 6.12 updates it.

    When all CPUs of a partition go offline and its processes are in control groups in it without a cpuset, 7.2 leaves it a
    partition without a CPU, and lets them run on all CPUs that are online, other partitions' included.
    """
    taken, doubted = given_out(machine)
    found = {ROOT: bounds_of(machine, ROOT, Bounds(), taken[ROOT], doubted[ROOT])}
    for path in sorted(machine.cgroups, key=depth):
        found[path] = bounds_of(machine, path, found[parent(path)], taken[path], doubted[path])
    return found


def bounds_of(
    machine: Machine, path: str, around: Bounds, taken: t.AbstractSet[int], doubted: t.AbstractSet[int]
) -> Bounds:
    """The CPUs of one control group, by those of the one ``around`` it and what partitions in it took (see ``given_out``)."""
    one, whole = (machine.cgroups[path], whole_of(machine, parent(path))) if path else (None, machine.online)
    if one is None or one.valid:
        left = (whole if one is None else one.cpus & whole) - taken
        return Bounds(left - doubted - machine.lost, left)
    least, most = around
    if one.cpus & least:
        least, most = one.cpus & least, one.cpus & most
    elif one.cpus & most:
        least = NONE  # What it asks for, or all that the control group around it has.
    if one.kept.most:
        least, most = least & one.kept.least, most | one.kept.most & whole
    if one.partition != MEMBER:
        least = NONE  # 6.12 gives no CPUs to a partition whose CPUs are offline, even when it reports the partition as invalid.
    if one.valid is None:
        own = one.cpus & whole
        most |= machine.online if machine.way == WINS and not own else own
    return Bounds(least, most)


def given_out(machine: Machine) -> tuple[dict[str, CpuSet], dict[str, CpuSet]]:
    """What partitions directly in each control group took of its CPUs, and what those that are not sure may have taken."""
    taken: dict[str, set[int]] = {path: set() for path in (ROOT, *machine.cgroups)}
    doubted: dict[str, set[int]] = {path: set() for path in taken}
    for path, one in machine.cgroups.items():
        if one.partition != MEMBER:
            (taken if one.valid else doubted)[parent(path)].update(one.cpus)
    return frozen(taken), frozen(doubted)


def frozen(found: t.Mapping[str, set[int]]) -> dict[str, CpuSet]:
    return {path: frozenset(cpus) for path, cpus in found.items()}


def parent(path: str) -> str:
    """The control group around another; the root's own is the root."""
    return path.rpartition("/")[0]


def depth(path: str) -> int:
    """The number of its ancestors."""
    return path.count("/")


def below(machine: Machine, path: str) -> list[str]:
    """The control groups directly in another."""
    return [other for other in machine.cgroups if other and parent(other) == path]


# Operations: each returns the machine as the kernel leaves it


def make(machine: Machine, path: str) -> Machine:
    """A new control group, which asks for nothing."""
    return machine._replace(cgroups={**machine.cgroups, path: Cgroup()})


def remove(machine: Machine, path: str) -> Machine:
    """Remove a control group that has no children."""
    machine = with_lost(machine, path)
    return machine._replace(cgroups={name: one for name, one in machine.cgroups.items() if name != path})


def set_cpus(machine: Machine, path: str, cpus: CpuSet) -> Machine:
    """Write cpuset.cpus."""
    one = machine.cgroups[path]
    if one.cpus == cpus:
        return machine  # The kernel stops here, even where a partition could become valid again.
    renewed = {
        name: one._replace(kept=Bounds()) for name, one in machine.cgroups.items() if f"{name}/".startswith(f"{path}/")
    }
    changed = changed_in(machine, {**renewed, path: one._replace(cpus=cpus, kept=Bounds())})
    harmless = machine.way == WINS and one.partition == MEMBER
    doubted = {} if harmless else dict.fromkeys(rivals(changed, path))
    if one.valid and can_be(changed, path):
        changed = changed._replace(lost=changed.lost - (cpus - one.cpus))
    elif one.partition != MEMBER:
        doubted[path] = None
        changed = changed._replace(lost=changed.lost | one.cpus)
    return with_dependent_doubts(with_doubts(changed, doubted))


def set_partition(machine: Machine, path: str, partition: str) -> Machine:
    """Write cpuset.cpus.partition."""
    one = machine.cgroups[path]
    if partition == MEMBER:
        machine = with_lost(machine, path)
        return with_dependent_doubts(changed_in(machine, {path: one._replace(partition=partition, valid=False)}))
    # A change from one kind to the other keeps its state.
    valid = one.valid if one.partition != MEMBER else can_be(machine, path) or None
    changed = changed_in(machine, {path: one._replace(partition=partition, valid=valid)})
    if valid and one.partition == MEMBER:
        changed = changed._replace(lost=changed.lost - one.cpus)
    return with_dependent_doubts(with_doubts(changed, dict.fromkeys(rivals(machine, path))))


def set_online(machine: Machine, online: CpuSet) -> Machine:
    """Take CPUs offline or online. An invalid partition may become valid again, and one that loses a CPU may not return it."""
    partitions = [one.cpus for one in machine.cgroups.values() if one.partition != MEMBER]
    moved = (machine.online ^ online).intersection(NONE.union(*partitions))
    machine = machine._replace(lost=machine.lost | moved)
    invalid = {path: None for path, one in machine.cgroups.items() if one.partition != MEMBER and not one.valid}
    changed = with_dependent_doubts(with_doubts(machine._replace(online=online), invalid))
    renewed = changed_in(changed, {path: one._replace(kept=Bounds()) for path, one in changed.cgroups.items()})
    if machine.way == WINS:
        return renewed
    found = bounds(renewed)
    lost = {path: one for path, one in renewed.cgroups.items() if one.cpus and not one.cpus & online}
    return changed_in(renewed, {path: one._replace(kept=found[parent(path)]) for path, one in lost.items()})


def observed(machine: Machine, valid: t.Mapping[str, bool]) -> Machine:
    """The machine with the kernel's reports on its partitions. A report that a partition is invalid is reliable.

    A report that it is valid is not: 6.1 reports so of some that had no CPUs, or whose CPUs a sibling requested, when they became
    partitions, and other processes go on to run there. So a partition is believed where its CPUs came first.
    """
    return changed_in(
        machine,
        {
            path: one._replace(valid=(one.valid or None) if valid[path] else False)
            for path, one in machine.cgroups.items()
        },
    )


def can_be(machine: Machine, path: str) -> bool:
    """Whether a control group is sure to be a partition: under one, with CPUs there that no sibling asks for or keeps.

    The root keeps a CPU, for the kernel's threads ("Parent unable to distribute cpu downstream").
    """
    one, around = machine.cgroups[path], parent(path)
    if around and not machine.cgroups[around].valid:
        return False
    if any(machine.cgroups[name].kept.most & one.cpus for name in below(machine, around) if name != path):
        return False
    if not around and not machine.online - one.cpus - machine.elsewhere - at_top(machine, path):
        return False
    return bool(one.cpus) and one.cpus <= whole_of(machine, around) and not rivals(machine, path)


def at_top(machine: Machine, path: str) -> CpuSet:
    """The CPUs of the other partitions at the top."""
    others = (one for name, one in machine.cgroups.items() if "/" not in name and name != path)
    return NONE.union(*(one.cpus for one in others if one.partition != MEMBER))


def rivals(machine: Machine, path: str) -> list[str]:
    """The siblings that may keep a control group from being a partition, or lose being one by it."""
    one = machine.cgroups[path]
    others = [name for name in below(machine, parent(path)) if name != path and machine.cgroups[name].cpus & one.cpus]
    return [name for name in others if machine.way == INVALIDATES or machine.cgroups[name].partition != MEMBER]


def whole_of(machine: Machine, path: str) -> CpuSet:
    """The CPUs of a partition before it gave any to those in it."""
    return machine.online if not path else machine.cgroups[path].cpus & whole_of(machine, parent(path))


def with_dependent_doubts(machine: Machine) -> Machine:
    """Partitions that have no CPU left, or whose parent may be none any more, may be none either."""
    for path in sorted(machine.cgroups, key=depth):
        one, around = machine.cgroups[path], parent(path)
        lost = around and not machine.cgroups[around].valid
        if one.valid and (lost or not one.cpus & whole_of(machine, around)):
            machine = with_doubts(machine, {path: None})
    return machine


def with_lost(machine: Machine, path: str) -> Machine:
    """The machine before a partition goes: where that is not in force, its CPUs may be lost."""
    one = machine.cgroups[path]
    in_doubt = one.partition != MEMBER and not one.valid
    return machine._replace(lost=machine.lost | one.cpus) if in_doubt else machine


def with_doubts(machine: Machine, doubted: t.Mapping[str, None]) -> Machine:
    """The machine with partitions of which the kernel may decide either way; other control groups stay unchanged."""
    asked = {path: machine.cgroups[path] for path in doubted if machine.cgroups[path].partition != MEMBER}
    return changed_in(machine, {path: one._replace(valid=None) for path, one in asked.items()})


def changed_in(machine: Machine, cgroups: t.Mapping[str, Cgroup]) -> Machine:
    """The machine with other control groups for those of the same paths."""
    return machine._replace(cgroups={**machine.cgroups, **cgroups})
