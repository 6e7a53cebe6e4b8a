# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# This module is private to the collection corral.node.
"""The cpu manager on cgroup v1, where systemd has no cpuset and AllowedCPUs= has no effect.

Corral makes a directory for each slice in the cpuset hierarchy, and moves the slice's processes there. A process that systemd
starts begins in the directory of PID 1 (init.scope), on the reserved CPUs; the next tick moves the process. No file keeps the
directories over a reboot: corral-boot.service makes them again.
"""

from __future__ import annotations

import typing as t

from ...host import cgroup
from ...host.cpu import cgroup_v1_cpuset
from ...host.files import Host
from ...model.agent.agent_units import BOOT, WANTED_BY
from ...model.cpu import handover, slices, unmanaged_groups
from ...model.cpu.pools import Pools
from ...model.cpu.slices import SCOPE
from ...model.cpu.unmanaged_groups import Unmanaged
from ...model.plan import make_step
from ...model.plan.context import Context
from ...model.plan.plan import CPUS, Change, Part, Step
from ...model.profile.profile import Profile
from ...model.systemd.unit_property import ETC
from ...model.values import cpuset
from ...model.values.errors import Problem
from ...model.values.records import NamedTuple
from ...model.workload.grants import ISOLATED_SLICE

NAME = slices.MANAGER
BOOT_LINK = f"{ETC}/{WANTED_BY[BOOT]}.wants/{BOOT}"
NOT_KEPT = f"cgroup v1: {BOOT} alone brings the pools' CPUs back after a reboot: install the agent"


class Mirror(NamedTuple):
    """One unit as observed: the CPUs of the unit's directory, and how many of its processes are in directories with other CPUs."""

    cpus: cgroup.Cpus
    outside: dict[frozenset[int], int]

    def now(self) -> t.Optional[frozenset[int]]:
        """Every CPU that a process of the unit may run on; None if the unit has neither a directory nor a process."""
        if self.cpus.effective is None and not self.outside:
            return None
        return (self.cpus.effective or frozenset()).union(*self.outside)


class ObservedSlicesV1(NamedTuple):
    """The tree as observed; ``boots``: whether corral-boot.service is enabled."""

    units: dict[str, Mirror]
    unmanaged: tuple[Unmanaged, ...]
    boots: bool


def plan(host: Host, context: Context, wanted: t.Mapping[str, frozenset[int]]) -> Part:
    """The cpu manager's part of the plan."""
    if not cgroup_v1_cpuset.mounted(host):
        reason = "neither cgroup v2 nor the cpuset controller of v1 is mounted at its place"
        return slices.unreadable(reason, cgroup.CPUSETS)
    # PID 1 first: after this move the processes that PID 1 starts stay off the CPUs that other slices are about to get.
    wanted = {unit: wanted[unit] for unit in sorted(wanted, key=lambda unit: unit != SCOPE)}
    return decide(context.pools, wanted, observe(host, wanted, context.profile))


def observe(host: Host, wanted: t.Mapping[str, frozenset[int]], profile: Profile) -> ObservedSlicesV1:
    """The tree as observed: by kernel files, without a command."""
    units = {}
    for unit in (*wanted, *slices.left_over(wanted, [ISOLATED_SLICE])):
        outside: dict[frozenset[int], int] = {}
        for where, processes in cgroup_v1_cpuset.outside(host, unit).items():
            on = cgroup_v1_cpuset.cpus(host, where).effective
            if on:
                outside[on] = outside.get(on, 0) + len(processes)
        units[unit] = Mirror(cgroup_v1_cpuset.cpus(host, cgroup_v1_cpuset.directory_of(unit)), outside)
    unmanaged = tuple(
        Unmanaged(name, topmost(host), frozenset(), True, cgroup.processes_shown(host, f"{cgroup.units(host)}/{name}"))
        for name in cgroup.top_level(host)
        if name not in units and not unmanaged_groups.is_the_kubelets(name, profile) and cgroup.populated(host, name)
    )
    return ObservedSlicesV1(units, unmanaged, host.exists(BOOT_LINK))


def topmost(host: Host) -> frozenset[int]:
    """The CPUs of the hierarchy's root, which has the processes that were never moved."""
    return cgroup_v1_cpuset.cpus(host, cgroup.CPUSETS).effective or frozenset()


def decide(pools: Pools, wanted: t.Mapping[str, frozenset[int]], seen: ObservedSlicesV1) -> Part:
    """The changes that give each unit's directory the wanted CPUs, and move the unit's processes there."""
    moving = slices.handover_slices(wanted, {unit: mirror.now() for unit, mirror in seen.units.items()})
    steps: dict[str, list[Step]] = {}
    order = 0
    for unit, cpus in handover.order(moving, pools.reserved):
        order += 1
        steps.setdefault(unit, []).append(step_of(unit, cpus, order))
    changes = []
    for unit, cpus in wanted.items():
        change = change_of(unit, cpus, seen.units[unit])
        if change is not None:
            order += 1
            # A change without a move gets a step too: the unit's processes may have the right CPUs while its directory has other CPUs.
            changes.append(change._replace(steps=tuple(steps.pop(unit, [step_of(unit, cpus, order)]))))
    if changes:
        # The first item carries the steps of moves without an item.
        rest = [step for leftover in steps.values() for step in leftover]
        changes[0] = changes[0]._replace(steps=(*changes[0].steps, *rest))
    return Part(
        (*changes, *unmanaged_groups.changes_of(seen.unmanaged, {}, frozenset(), (), root=f"{cgroup.ROOT}/systemd")),
        owned_by(wanted),
        problems=problems(wanted),
        notes=() if seen.boots else (NOT_KEPT,),
    )


def owned_by(wanted: t.Iterable[str]) -> frozenset[str]:
    """The keys of the directories, and of properties and slices from a boot with v2. The drop-ins of v2 have no effect on v1."""
    return frozenset(
        key
        for unit in wanted
        for key in (f"cpuset:{cgroup_v1_cpuset.directory_of(unit)}", f"property:{unit}:AllowedCPUs", f"unit:{unit}")
    )


def step_of(unit: str, cpus: frozenset[int], order: int) -> Step:
    """The step that sets the CPUs of a unit's directory, and moves all processes of the unit into the directory."""
    return make_step.cpuset(cgroup_v1_cpuset.directory_of(unit), unit, cpuset.format(cpus), CPUS, order)


def change_of(unit: str, cpus: frozenset[int], mirror: Mirror) -> t.Optional[Change]:
    """The change of a unit whose directory has other CPUs than wanted, or else whose processes are in directories with other CPUs.

    A process in another directory with the same CPUs is in sync: most processes of system.slice are in the directory of PID 1.
    """
    directory, wanted = cgroup_v1_cpuset.directory_of(unit), cpuset.format(cpus)
    requested, effective = mirror.cpus
    if requested is None:
        reason = "the slice has no directory in the cpuset hierarchy"
        return Change(NAME, unit, "cpuset.cpus", None, wanted, reason, f"{directory}/cpuset.cpus")
    if requested != cpus or effective != cpus:
        reason = "its CPUs are not the pool's"
        if requested < cpus:
            reason += " (a CPU that goes offline leaves its directory for good)"
        shown = cpuset.format(requested) or "none"
        return Change(NAME, unit, "cpuset.cpus", shown, wanted, reason, f"{directory}/cpuset.cpus")
    strays = {on: count for on, count in mirror.outside.items() if on != cpus}
    if not strays:
        return None
    shown = "; ".join(
        f"{count} process{'es' if count > 1 else ''} on {cpuset.format(on)}" for on, count in strays.items()
    )
    reason = f"started since the last tick: what systemd starts begins on {SCOPE}'s CPUs"
    return Change(NAME, unit, "placement", shown, f"all on {wanted}", reason, f"{directory}/cgroup.procs")


def problems(wanted: t.Container[str]) -> tuple[Problem, ...]:
    """The problems of a profile that Corral cannot apply on v1."""
    if SCOPE in wanted:
        return ()
    message = f"on cgroup v1 all that systemd starts begins on PID 1's CPUs: add {SCOPE}"
    return (Problem("cpu.reserved.slices", None, message),)
