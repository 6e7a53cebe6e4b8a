# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# This module is private to the collection corral.node.
"""The tree of slices: which control group has which CPUs, on cgroup v1 and v2.

Reserved, shared and exclusive slices are at the top level; the kernel keeps all other control groups off the CPUs of an exclusive slice
(cpuset.cpus.partition). A workload on the shared pool is in corral.slice. No slice spans several grants.
"""

from __future__ import annotations

import typing as t

from ..plan.plan import UNKNOWN, Change, Part
from ..profile.profile import Cpu
from ..profile.schema_types import AGENT_SLICE, CORRAL_SLICE
from ..workload.grants import ISOLATED_SLICE, Grant, is_exclusive, workload_of
from .handover import Slice
from .pools import Pools, workload_cpus

MANAGER = "cpu"
SCOPE = "init.scope"
# The slices that Corral makes besides the slices of workloads, with their descriptions.
DESCRIPTIONS = {
    CORRAL_SLICE: "Corral: workloads on the shared pool",
    ISOLATED_SLICE: "Corral: workloads on the isolated pool",
}


def wanted_cpus(cpu: Cpu, pools: Pools, grants: t.Iterable[Grant] = ()) -> dict[str, frozenset[int]]:
    """The CPUs on which each unit is to run. In ``pools`` the granted CPUs are not in the shared pool."""
    shared = workload_cpus(pools)
    wanted = dict.fromkeys(cpu.reserved.slices, pools.reserved)
    wanted.update(dict.fromkeys((*cpu.shared_slices, CORRAL_SLICE), shared))
    if pools.isolated:
        wanted[ISOLATED_SLICE] = pools.isolated
    wanted.update((grant.slice, grant.cpus) for grant in grants if grant.cpus)
    return wanted


def with_agent(wanted: t.Mapping[str, frozenset[int]], pools: Pools, runs: bool = True) -> dict[str, frozenset[int]]:
    """``wanted``, and the reserved CPUs for the agent's slice if the slice ``runs``. The agent starts and stops this slice."""
    return {**wanted, **({AGENT_SLICE: pools.reserved} if runs else {})}


def described(unit: str) -> str:
    """The description of a slice that Corral makes; an empty string for any other unit."""
    if unit in DESCRIPTIONS:
        return DESCRIPTIONS[unit]
    workload = workload_of(unit)
    return f"Corral: workload {workload}" if workload else ""


def left_over(wanted: t.Container[str], there: t.Iterable[str]) -> list[str]:
    """The exclusive slices in ``there`` that are no longer wanted."""
    return [unit for unit in there if is_exclusive(unit) and unit not in wanted]


def handover_slices(
    wanted: t.Mapping[str, frozenset[int]],
    now: t.Mapping[str, t.Optional[frozenset[int]]],
    unmanaged: t.Iterable[Slice] = (),
    requested: t.Optional[t.Mapping[str, frozenset[int]]] = None,
) -> list[Slice]:
    """The slices as input of the hand-over. ``now``: the effective CPUs of each unit (None: the unit does not exist).

    ``requested``: the CPUs that each unit requests (None: on cgroup v1, where a unit has only requested CPUs). ``unmanaged``: units that
    the profile does not name. A slice whose workload no longer has exclusive CPUs gets the shared CPUs until it stops.
    """
    nothing: frozenset[int] = frozenset()
    slices = [Slice(unit, now[unit] or nothing, cpus, is_exclusive(unit)) for unit, cpus in wanted.items()]
    left = left_over(wanted, (unit for unit, cpus in now.items() if cpus))
    slices += [Slice(unit, now[unit] or nothing, wanted[CORRAL_SLICE]) for unit in left]
    slices += unmanaged
    if requested is None:
        return slices
    return [row._replace(unasked=row.now - requested.get(row.unit, nothing)) for row in slices]


def unreadable(reason: str, location: str) -> Part:
    """The part of a node whose CPUs cannot be read or set."""
    return Part((Change(MANAGER, "slices", "AllowedCPUs", None, None, reason, location, (), UNKNOWN),), frozenset())
