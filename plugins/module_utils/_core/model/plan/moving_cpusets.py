# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# This module is private to the collection corral.node.
"""A machine that operations change one after another, by the kernel's rule (kernel_cpusets.py).

An operation is applied to the control groups that it can affect, and only changed control groups are evaluated again. So the time of a
replay depends on the steps of the plan, not on the number of control groups.
"""

from __future__ import annotations

import collections
import typing as t

from . import kernel_cpusets as oracle
from .kernel_cpusets import MEMBER, NONE, ROOT, Bounds, Cgroup, CpuSet, Machine, parent


class MovingMachine:
    """A machine whose ``bounds`` equal, after each operation, the result of ``kernel_cpusets.bounds`` for the changed machine.

    ``moved`` has the control groups that changed since the caller cleared ``moved``, each with its changed CPUs.
    """

    def __init__(self, machine: Machine) -> None:
        self.machine = machine._replace(cgroups=dict(machine.cgroups))
        self.cgroups = t.cast("dict[str, Cgroup]", self.machine.cgroups)
        self.moved: dict[str, CpuSet] = {}
        self.bounds = oracle.bounds(machine)
        taken, doubted = oracle.given_out(machine)
        self._taken = {path: set(cpus) for path, cpus in taken.items()}
        self._doubted = {path: set(cpus) for path, cpus in doubted.items()}
        # Perhaps no operation produces the observed state, so the first operation evaluates all control groups.
        self._known = False
        # The children of each parent, the children that request a CPU (by parent and CPU), and the children that depend on all CPUs of
        # their parent.
        self._inner: dict[str, set[str]] = collections.defaultdict(set)
        self._asking: dict[tuple[str, int], set[str]] = collections.defaultdict(set)
        self._following: dict[str, set[str]] = collections.defaultdict(set)
        for path, cgroup in self.cgroups.items():
            self._enter(path, cgroup)
            self._follow(path)

    # Operations

    def make(self, path: str) -> None:
        """Make a control group that requests no CPUs."""
        self._done(oracle.make(self.machine._replace(cgroups={}), path))

    def set_cpus(self, path: str, cpus: CpuSet) -> None:
        """Write cpuset.cpus."""
        part = self._concerned(path, cpus)
        self._update(part, oracle.set_cpus(part, path, cpus))

    def set_partition(self, path: str, partition: str) -> None:
        """Write cpuset.cpus.partition."""
        part = self._concerned(path)
        self._update(part, oracle.set_partition(part, path, partition))

    def _update(self, before: Machine, after: Machine) -> None:
        """Take over the changes of an operation. The operation itself ended with kernel_cpusets.with_dependent_doubts()."""
        if after is not before:
            self._known = True
            self._done(after)

    def _concerned(self, path: str, cpus: CpuSet = NONE) -> Machine:
        """A part of the machine on which an operation has the same effect as on the whole machine.

        This part has the control group, the siblings that request the same CPUs, the descendants of all these groups, and all ancestors.
        """
        if not self._known:
            return self.machine._replace(cgroups=dict(self.cgroups))
        around = parent(path)
        near = {path}.union(*(self._asking[around, cpu] for cpu in self.cgroups[path].cpus | cpus))
        names = [inner for name in near for inner in self._within(name)]
        while around:
            names.append(around)
            around = parent(around)
        cgroups = {name: self.cgroups[name] for name in names}
        return self.machine._replace(cgroups=cgroups, elsewhere=self._elsewhere(path, cpus))

    def _elsewhere(self, path: str, cpus: CpuSet) -> CpuSet:
        """The CPUs of top-level partitions except ``path``; an empty set if these CPUs and ``cpus`` cannot be all CPUs of the machine."""
        taken, doubted, own = self._taken[ROOT], self._doubted[ROOT], self.cgroups[path].cpus
        if len(self.machine.online) > len(taken) + len(doubted) + len(cpus | own):
            return NONE
        return NONE.union(taken, doubted) - own

    def _within(self, path: str) -> list[str]:
        """A control group and its descendants."""
        names = [path]
        for name in names:
            names += self._inner.get(name, ())
        return names

    # Results of the operations

    def _done(self, part: Machine) -> None:
        """Record the changes of an operation, and evaluate the affected control groups again."""
        changed = {path: one for path, one in part.cgroups.items() if self.cgroups.get(path) != one}
        lost = self.machine.lost ^ part.lost
        self.machine = self.machine._replace(lost=part.lost)
        doubtful: set[str] = set()
        for path, cgroup in changed.items():
            before = self.cgroups.get(path, Cgroup())
            self._leave(path, before)
            self.cgroups[path] = cgroup
            self._enter(path, cgroup)
            self._add_moved(path, before.cpus | cgroup.cpus)
            if before.partition != MEMBER or cgroup.partition != MEMBER:
                self._give_out(parent(path), before.cpus | cgroup.cpus)
                doubtful.add(parent(path))
            doubtful.update(self._within(path))
        if lost:
            doubtful.update((ROOT, *self._partitions_with(lost)))
        for path in sorted(doubtful, key=lambda name: (oracle.depth(name), name)):
            self._refresh(path)

    def _enter(self, path: str, cgroup: Cgroup) -> None:
        around = parent(path)
        self._inner[around].add(path)
        for cpu in cgroup.cpus | cgroup.kept.most:
            self._asking[around, cpu].add(path)

    def _leave(self, path: str, cgroup: Cgroup) -> None:
        for cpu in cgroup.cpus | cgroup.kept.most:
            self._asking[parent(path), cpu].discard(path)

    def _give_out(self, around: str, cpus: CpuSet) -> None:
        """Record which of the CPUs the child partitions of the control group ``around`` take, or may take."""
        taken, doubted = self._taken[around], self._doubted[around]
        taken -= cpus
        doubted -= cpus
        for cpu in cpus:
            for cgroup in (self.cgroups[path] for path in self._asking[around, cpu]):
                if cgroup.partition != MEMBER and cpu in cgroup.cpus:
                    (taken if cgroup.valid else doubted).add(cpu)

    def _partitions_with(self, cpus: CpuSet, around: str = ROOT) -> list[str]:
        """The valid partitions below ``around`` that have a CPU of ``cpus``."""
        near = {path for cpu in cpus for path in self._asking[around, cpu]}
        partitions = [path for path in near if self.cgroups[path].valid]
        return partitions + [inner for path in partitions for inner in self._partitions_with(cpus, path)]

    def _refresh(self, path: str) -> None:
        """Evaluate a control group again, and the children that depend on its changed CPUs."""
        before = self.bounds.get(path, Bounds())
        taken, doubted = self._taken.setdefault(path, set()), self._doubted.setdefault(path, set())
        now = oracle.bounds_of(self.machine, path, self.bounds[parent(path)], taken, doubted)
        self.bounds[path] = now
        self._follow(path)
        cpus = (before.least ^ now.least) | (before.most ^ now.most)
        if cpus:
            self._add_moved(path, cpus)
            for inner in self._following[path].union(*(self._asking[path, cpu] for cpu in cpus)):
                self._refresh(inner)

    def _follow(self, path: str) -> None:
        """Note whether a control group depends on all CPUs of its parent, not only on the CPUs that it requests."""
        cgroup, around = self.cgroups.get(path), parent(path)
        if cgroup is not None:
            follows = not cgroup.valid and not cgroup.cpus & self.bounds[around].least
            (self._following[around].add if follows else self._following[around].discard)(path)

    def _add_moved(self, path: str, cpus: CpuSet) -> None:
        self.moved[path] = self.moved.get(path, NONE) | cpus
