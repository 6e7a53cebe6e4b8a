# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# This module is private to the collection corral.node.
"""The tree of slices: which control group has which CPUs, on cgroup v1 and v2.

Reserved and shared slices are at the top level, beside the exclusive slices, from whose CPUs the kernel keeps all others away
(cpuset.cpus.partition); a workload on the shared pool is in corral.slice. No slice spans several grants.
"""

from __future__ import annotations

import re
import types
import typing as t

from ..plan.plan import DRIFT, UNCHANGEABLE, UNKNOWN, Change, Part
from ..profile.profile import Cpu
from ..profile.schema_types import AGENT_SLICE, CORRAL_SLICE
from ..systemd.unit_group import group_of
from ..values import cpuset
from ..values.records import NamedTuple
from ..workload.grants import ISOLATED, Grant, is_exclusive, workload_of
from .handover import Slice
from .pools import Pools, workload_cpus

MANAGER = "cpu"
SCOPE = "init.scope"
# The slices that Corral makes, beside those of workloads.
DESCRIPTIONS = {
    CORRAL_SLICE: "Corral: workloads on the shared pool",
    ISOLATED: "Corral: workloads on the isolated pool",
}
# The suffixes of systemd's control groups; others at the top level are not systemd's.
UNITS = (".slice", ".scope", ".service", ".mount", ".swap", ".socket")
# The units that have AllowedCPUs=.
UNIT_NAME = re.compile(r"[A-Za-z0-9:_.\\@][A-Za-z0-9:_.\\@-]*\.(slice|scope|service)")


def wanted_cpus(cpu: Cpu, pools: Pools, grants: t.Iterable[Grant] = ()) -> dict[str, frozenset[int]]:
    """Which unit runs on which CPUs. ``pools`` are the pools without the granted CPUs."""
    shared = workload_cpus(pools)
    wanted = dict.fromkeys(cpu.reserved.slices, pools.reserved)
    wanted.update(dict.fromkeys((*cpu.shared_slices, CORRAL_SLICE), shared))
    if pools.isolated:
        wanted[ISOLATED] = pools.isolated
    wanted.update((grant.slice, grant.cpus) for grant in grants if grant.cpus)
    return wanted


def with_agent(wanted: t.Mapping[str, frozenset[int]], pools: Pools, runs: bool = True) -> dict[str, frozenset[int]]:
    """The same and the agent's slice, which is on the reserved CPUs while it ``runs``: the agent starts and stops it."""
    return {**wanted, **({AGENT_SLICE: pools.reserved} if runs else {})}


def described(unit: str) -> str:
    """What a slice that Corral makes is for; "" for all others."""
    if unit in DESCRIPTIONS:
        return DESCRIPTIONS[unit]
    workload = workload_of(unit)
    return f"Corral: workload {workload}" if workload else ""


def left_over(wanted: t.Container[str], there: t.Iterable[str]) -> list[str]:
    """Exclusive slices that exist and are no longer wanted."""
    return [unit for unit in there if is_exclusive(unit) and unit not in wanted]


def handover_slices(
    wanted: t.Mapping[str, frozenset[int]],
    now: t.Mapping[str, t.Optional[frozenset[int]]],
    confined: t.Mapping[str, frozenset[int]] = types.MappingProxyType({}),
    requested: t.Optional[t.Mapping[str, frozenset[int]]] = None,
) -> list[Slice]:
    """The hand-over's view of the tree; ``now`` is None for a unit that is not there.

    ``requested`` are the CPUs that each unit asks for; None where that is all that it has (cgroup v1).

    A slice whose workload no longer has exclusive CPUs gets the shared ones until it stops, as ``confined`` units do.
    """
    nothing: frozenset[int] = frozenset()
    found = [Slice(unit, now[unit] or nothing, cpus, is_exclusive(unit)) for unit, cpus in wanted.items()]
    left = left_over(wanted, (unit for unit, cpus in now.items() if cpus))
    found += [Slice(unit, now[unit] or nothing, wanted[CORRAL_SLICE]) for unit in left]
    found += [Slice(unit, cpus, wanted[CORRAL_SLICE]) for unit, cpus in confined.items()]
    if requested is None:
        return found
    return [one._replace(unasked=one.now - requested.get(one.unit, nothing)) for one in found]


class Unmanaged(NamedTuple):
    """A top-level control group that the profile does not name, or that requests exclusive CPUs.

    ``cpus`` are those that its processes get, or would get, ``requested`` those that it requests; ``processes`` are some of those that
    it holds (``populated``), each with its PID and name; ``file`` is the file that sets its CPUs again at the next daemon-reload, if any;
    ``is_partition``: the kernel takes its CPUs from all siblings, Corral's among them.
    """

    name: str
    cpus: frozenset[int]
    requested: frozenset[int]
    populated: bool
    processes: tuple[str, ...]
    file: str = ""
    is_partition: bool = False


def may_start_on(one: Unmanaged, cpus: frozenset[int]) -> bool:
    """Whether something may start in an empty control group, and would have some of these CPUs.

    Those of mounts, swap and sockets are left out: each node has some, and what starts there is their helper, for a moment.
    """
    return bool(one.cpus & cpus) and not one.name.endswith((".mount", ".swap", ".socket"))


def can_be_confined(one: Unmanaged) -> bool:
    """Whether it is a unit that has AllowedCPUs=, and keeps the value; a partition takes the CPUs from all others.

    A slice with a dash in its name that is at the top level was not made by systemd, which has another place for it.
    """
    is_unit = UNIT_NAME.fullmatch(one.name) is not None and group_of(one.name) == one.name
    return is_unit and not one.file and not one.is_partition


def unmanaged_changes(
    unmanaged: t.Iterable[Unmanaged],
    own: t.Mapping[str, frozenset[int]],
    shared: frozenset[int],
    confined: t.Container[str],
    refused: t.Container[str] = (),
    root: str = "/sys/fs/cgroup",
) -> list[Change]:
    """Items of control groups that the profile does not place: their CPUs, and which of them are other slices' ``own``.

    Those that are ``confined`` get the shared CPUs in the hand-over, which has the steps; those ``refused`` cannot get them.
    """
    changes = []
    for one in unmanaged:
        met = [f"{unit}'s {text}" for unit, text in overlaps(one.cpus | one.requested, own)]
        actual = shown_running(one.cpus, one.processes)
        actual = actual if one.populated else f"is empty, would run on {cpuset.format(one.cpus)}"
        reason = f"on {', '.join(met)}; " if met else ""
        if one.is_partition:
            reason += f"a partition of its own, so no pool has CPUs {cpuset.format(one.cpus)}; "
        confines = one.name in confined
        verdict, wanted = (DRIFT, f"CPUs {cpuset.format(shared)}") if confines else (UNCHANGEABLE, "a pool")
        reason += "cpu.unmanaged: confine" if confines else unmanaged_reason(one, refused=one.name in refused)
        changes.append(
            Change(MANAGER, one.name, "placement", actual, wanted, reason, f"{root}/{one.name}", (), verdict)
        )
    return changes


def shown_running(cpus: frozenset[int], processes: t.Sequence[str]) -> str:
    """Where processes run, and which."""
    return f"runs on {cpuset.format(cpus)}" + (f" (PID {', '.join(processes)})" if processes else "")


def overlaps(cpus: frozenset[int], own: t.Mapping[str, frozenset[int]]) -> list[tuple[str, str]]:
    """The slices that own some of these CPUs, each with those CPUs."""
    return [(unit, cpuset.format(theirs & cpus)) for unit, theirs in own.items() if theirs & cpus]


def unmanaged_reason(one: Unmanaged, *, refused: bool = False) -> str:
    """Why processes at the top level are out of place, and what to do."""
    name = one.name
    if one.is_partition:
        return "write member to its cpuset.cpus.partition, or remove CPUSetPartition= from its unit"
    of_systemd = name.endswith(UNITS) and group_of(name) == name
    if refused and of_systemd and UNIT_NAME.fullmatch(name):
        if one.file:
            return (
                f"{one.file} sets other CPUs, so cpu.unmanaged: confine cannot: remove it, then systemctl daemon-reload"
            )
        return "systemd did not give it the shared CPUs (systemctl status; it may have stopped and left processes): stop these"
    if of_systemd and name.endswith((".service", ".scope")):
        return f"it is in no slice of the profile: Slice={CORRAL_SLICE} or system.slice in a drop-in, then restart it"
    if of_systemd:
        return "the profile does not know this top-level unit: add it to cpu.reserved.slices or cpu.shared.slices"
    return "not made by systemd (cset, lxc?): stop it, or start it in a slice of the profile"


def unknown(reason: str, location: str) -> Part:
    """The message where unmanaged control groups cannot be read."""
    return Part((Change(MANAGER, "slices", "AllowedCPUs", None, None, reason, location, (), UNKNOWN),), frozenset())
