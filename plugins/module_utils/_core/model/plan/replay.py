# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# This module is private to the collection corral.node.
"""The validator's replay: the CPUs that the kernel lets every control group have after each step of a plan.

The replay uses the finished steps and the kernel's rule (kernel_cpusets.py), and no decision of the planner. After each step the replay
checks only the control groups that the step changed (moving_cpusets.py), with the same result as a check of the whole machine.
"""

from __future__ import annotations

import collections
import types
import typing as t

from ..systemd.unit_group import group_of
from ..values import cpuset
from ..values.errors import Problem
from .kernel_cpusets import MEMBER, NONE, ROOT, Bounds, CpuSet, Machine
from .moving_cpusets import MovingMachine
from .plan import RELEASE, Step, unit_of_cpus_file

NOTHING: t.Mapping[str, CpuSet] = types.MappingProxyType({})
MOST = 8  # the most problems of a step that are reported
Pair = tuple[str, str]  # the control group that owns CPUs, and a control group that got some of these CPUs


def problems(
    steps: t.Sequence[Step],
    machine: Machine,
    populated: t.Collection[str],
    own: t.Collection[str],
    *,
    partitions: bool = True,
    at_start: t.Mapping[str, CpuSet] = NOTHING,
    hiding: t.Collection[str] = (),
    ungranted: t.Collection[str] = (),
) -> list[Problem]:
    """The problems (at most MOST) of the first step after which another control group would get CPUs of a control group in ``own`` (paths).

    A control group in ``own`` owns its CPUs from the moment when it becomes a partition, or at once if it has processes (``populated``).
    CPUs that other control groups have before the first step are no fault of the steps. Other processes may begin to run at any moment, in
    any control group and in a new control group, which gets the rest of the root's CPUs. Without ``partitions`` only requests of CPUs are
    checked.

    ``at_start``: by path, the CPUs in the files of slices that do not run; the start of such a slice counts as a request. ``hiding``: paths
    of systemd's own files that hide a live value; until such a file is removed, its slice starts with the file's CPUs. ``ungranted``: the
    slices of ``populated`` without granted CPUs before the first step; such a slice owns shared CPUs only after it becomes a partition.

    Another control group that may have CPUs of ``own`` before the first step may keep these CPUs. A step must not request the CPUs for
    this control group, unless the control group certainly had the CPUs.
    """
    moving = MovingMachine(machine)
    watch = Watch(moving, populated, own, partitions=partitions, ungranted=ungranted)
    asleep = dict(at_start)
    hidden = {group_of(unit_of_cpus_file(file)): file for file in hiding}
    for step in steps:
        path = group_of(step.target)
        if step.kind == "file" and step.value is None:
            hidden = {one: file for one, file in hidden.items() if file != step.target}
        if step.kind == "property" and step.name == "AllowedCPUs" and path not in hidden:
            asleep.pop(path, None)
        do(moving, step)
        if step.kind == "unit" and step.value == "start" and path in asleep:
            watch.begin(path, asleep.pop(path))
        shared = watch.observe()
        # If control groups request the CPUs, they are the reason why others get them, and only they are named.
        askers = {pair: cpus & asked_by(moving, pair[1]) for pair, cpus in shared.items()}
        askers = {pair: cpus for pair, cpus in askers.items() if cpus} or shared
        if askers:  # Later problems may follow from this problem.
            return [problem(*pair, askers[pair], step, of_corral=pair[1] in own) for pair in sorted(askers)[:MOST]]
    return []


def problem(path: str, other: str, cpus: CpuSet, step: Step, *, of_corral: bool) -> Problem:
    """The problem of a step, and what to do if the plan is not the cause."""
    who = "a process in a control group without a cpuset" if other == ROOT else other
    text = f"{who} would have CPUs of {path} at {step.target} {step.text or ''}"
    if other == ROOT or of_corral or other == group_of(step.target):
        text += ": report this as a fault of Corral"
    else:
        text += f": declare {other} in cpu.shared.slices or cpu.reserved.slices, or remove its AllowedCPUs= (cpuset.cpus.exclusive)"
    return Problem("cpu", f"CPUs {cpuset.format(cpus)}", text)


def asked_by(machine: MovingMachine, path: str) -> CpuSet:
    """The CPUs that a control group requests."""
    return machine.cgroups[path].cpus if path else NONE


class Watch:
    """The CPUs of the control groups ``own`` that other control groups got since the first step.

    After a step, observe() checks the pairs of an owner and another control group for the CPUs that the step moved.
    """

    def __init__(
        self,
        machine: MovingMachine,
        populated: t.Collection[str],
        own: t.Collection[str],
        *,
        partitions: bool,
        ungranted: t.Collection[str] = (),
    ) -> None:
        self.machine, self.populated, self.own, self.partitions = machine, populated, own, partitions
        self.first = dict(machine.bounds)
        self.asked = {path: one.cpus for path, one in machine.cgroups.items()}
        self.loose = {path for path in own if path in machine.cgroups and not machine.cgroups[path].valid}
        self.loose |= set() if partitions else set(own)
        self.mended: set[str] = set()
        waiting = [path for path in ungranted if path in machine.cgroups] if partitions else []
        self.common = {path: self.requested_by_others(path) & self.asked[path] for path in waiting}
        self.shared: dict[Pair, CpuSet] = {}
        # By CPU, its owners (control groups with the CPU as an exclusive CPU), and all control groups that have or may have the CPU.
        self.owners: dict[int, set[str]] = collections.defaultdict(set)
        self.others: dict[int, set[str]] = collections.defaultdict(set)
        self.owned: dict[str, CpuSet] = {}
        self.has: dict[str, CpuSet] = {}
        for path in machine.bounds:
            self.note(path)
        self.owned_first = {path: cpus | self.common.get(path, NONE) for path, cpus in self.owned.items()}

    def begin(self, path: str, cpus: CpuSet) -> None:
        """Start a slice whose files assign ``cpus``. The slice counts as a control group that had no CPUs before."""
        for written in (NONE, cpus):  # The slice may exist and request these CPUs already.
            self.machine.set_cpus(path, written)
        self.machine.moved[path] = self.machine.moved.get(path, NONE) | cpus
        self.first.pop(path, None)
        self.asked.pop(path, None)

    def note(self, path: str) -> None:
        """Record the present CPUs of a control group."""
        has = self.machine.bounds[path].most
        enter(self.others, path, self.has.get(path, NONE), has)
        self.has[path] = has
        if path in self.own:
            cgroup = self.machine.cgroups[path]
            owned = has & cgroup.cpus if path in self.populated or cgroup.partition != MEMBER else NONE
            if path in self.common:
                self.common[path] &= cgroup.cpus if cgroup.partition == MEMBER else NONE
                owned -= self.common[path]
            enter(self.owners, path, self.owned.get(path, NONE), owned)
            self.owned[path] = owned

    def requested_by_others(self, path: str) -> CpuSet:
        """The CPUs that other control groups request and have before the first step."""
        others = (other for other in self.asked if not f"{other}/".startswith(f"{path}/"))
        return NONE.union(*(self.asked[other] & self.first[other].least for other in others))

    def observe(self) -> dict[Pair, CpuSet]:
        """By pair of an owner and another control group, the owner's CPUs that the other control group got since the first step."""
        moved, self.machine.moved = self.machine.moved, {}
        for path in moved:
            self.note(path)
            if path in self.loose and self.partitions and self.machine.cgroups[path].valid:
                self.loose.discard(path)
                self.mended.add(path)
        pairs = set(self.shared) if moved else set()
        for path, cpus in moved.items():
            for cpu in cpus:
                pairs.update((owner, path) for owner in self.owners.get(cpu, ()))
                if path in self.own:
                    pairs.update((path, other) for other in self.others.get(cpu, ()))
        for pair in pairs:
            cpus = self.let_in(*pair)
            if cpus:
                self.shared[pair] = cpus
            else:
                self.shared.pop(pair, None)
        return self.shared

    def let_in(self, path: str, other: str) -> CpuSet:
        """The CPUs of ``path`` that the replayed steps gave to the control group ``other``."""
        cpus = self.owned[path] & self.has[other]
        if not cpus or f"{other}/".startswith(f"{path}/"):
            return NONE
        asks = asked_by(self.machine, other)
        if path in self.loose and not self.machine.cgroups[path].valid:
            # The partition was not in force before: a control group without a cpuset has the CPUs already.
            cpus &= asks
        if path in self.mended:
            return cpus
        least, most = self.first.get(other, Bounds())
        before = self.owned_first.get(path, NONE)
        return cpus - (most & before - (asks - self.asked.get(other, NONE)) | least & before)


def enter(by_cpu: dict[int, set[str]], path: str, before: CpuSet, now: CpuSet) -> None:
    """List a control group in ``by_cpu`` under its CPUs ``now``, and no longer under the CPUs that are only in ``before``."""
    for cpu in before - now:
        by_cpu[cpu].discard(path)
    for cpu in now - before:
        by_cpu[cpu].add(path)


def do(machine: MovingMachine, step: Step) -> None:
    """Apply a step to the machine if the step moves CPUs."""
    if step.kind == "partition":
        path = step.target[len("/sys/fs/cgroup/") :].rpartition("/")[0]
        cgroup = machine.cgroups.get(path)
        if cgroup is None:
            return
        if step.value != MEMBER and cgroup.partition != MEMBER and not cgroup.valid:
            machine.set_partition(path, MEMBER)
        machine.set_partition(path, step.value or MEMBER)
        return
    if step.kind == "unit" and step.target.endswith(".slice") and step.value == "start":
        make(machine, group_of(step.target))
        return
    unit = unit_of_cpus_file(step.target) if step.kind == "file" else ""
    if unit:
        path = group_of(unit)
        if path in machine.cgroups and assigned(step.value or ""):  # systemd may read its files at any moment.
            machine.set_cpus(path, assigned(step.value or ""))
        return
    # An empty value leaves the kernel's value.
    if step.kind != "property" or step.name != "AllowedCPUs" or not step.value:
        return
    path = group_of(step.target)
    if step.phase == RELEASE and path not in machine.cgroups:
        return  # A restored value is set only where the control group still exists.
    make(machine, path)
    machine.set_cpus(path, cpuset.parse(step.value))


def assigned(text: str) -> CpuSet:
    """The CPUs that systemd's own file assigns; an invalid value assigns no CPUs (systemd.resource-control(5))."""
    cpus = NONE
    lines = (line.partition("=")[::2] for line in text.splitlines())
    for value in (value for name, value in lines if name.strip() == "AllowedCPUs"):
        try:
            cpus = cpus | cpuset.parse(",".join(value.split())) if value.strip() else NONE
        except ValueError:
            continue
    return cpus


def make(machine: MovingMachine, path: str) -> None:
    """Make a control group and its ancestors, unless they exist."""
    parts = path.split("/")
    for depth in range(1, len(parts) + 1):
        inner = "/".join(parts[:depth])
        if inner not in machine.cgroups:
            machine.make(inner)
