# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# This module is private to the collection corral.node.
"""The tree of slices that gives each pool of CPUs a home, whatever the version of the control groups."""

from __future__ import annotations

import typing as t

from .handover import Home
from .plan import UNCHANGEABLE, UNKNOWN, Change, Part
from .pools import Pools, workload_cpus
from .profile import Cpu
from .schema_types import CORRAL_SLICE

MANAGER = "cpu"
TOP = CORRAL_SLICE
SHARED = "corral-shared.slice"
ISOLATED = "corral-isolated.slice"
SCOPE = "init.scope"
# What systemd calls its control groups; others at the top are somebody else's.
UNITS = (".slice", ".scope", ".service", ".mount", ".swap", ".socket")

Frames = dict[str, tuple[frozenset[int], frozenset[int]]]


def wanted_cpus(cpu: Cpu, pools: Pools) -> dict[str, frozenset[int]]:
    """Which unit runs on which CPUs, parents before children."""
    shared = workload_cpus(pools)
    wanted = dict.fromkeys(cpu.reserved.slices, pools.reserved)
    wanted.update(dict.fromkeys(cpu.shared_slices, shared))
    wanted[TOP] = shared | pools.isolated
    wanted[SHARED] = shared
    if pools.isolated:
        wanted[ISOLATED] = pools.isolated
    return wanted


def looked_at(wanted: t.Iterable[str]) -> list[str]:
    """The units of the tree; the isolated slice also when it is no longer declared."""
    return list(dict.fromkeys((*wanted, ISOLATED)))


def homes_of(
    wanted: t.Mapping[str, frozenset[int]], now: t.Mapping[str, t.Optional[frozenset[int]]], made: t.Container[str]
) -> tuple[list[Home], Frames]:
    """The hand-over's view of the tree; ``now`` is None for a unit that is not there, ``made`` are those Corral makes.

    An isolated slice that is no longer declared runs as shared until it stops.
    """
    nothing: frozenset[int] = frozenset()
    homes = [
        Home(unit, now[unit] or nothing, cpus, unit == ISOLATED, TOP if unit in (SHARED, ISOLATED) else None)
        for unit, cpus in wanted.items()
        if unit != TOP and (now[unit] is not None or unit in made)
    ]
    isolated = now[ISOLATED]
    if ISOLATED not in wanted and isolated is not None:
        homes.append(Home(ISOLATED, isolated, wanted[SHARED], False, TOP))
    return homes, {TOP: (now[TOP] or nothing, wanted[TOP])}


def stray_changes(strangers: t.Iterable[str], in_top: int, root: str) -> list[Change]:
    """Processes where nobody placed them: they run on CPUs that the profile does not give them.

    ``strangers`` are top-level units that the profile does not know, ``in_top`` counts processes directly in
    corral.slice, ``root`` is where the units' control groups are.
    """
    changes = [
        Change(
            MANAGER, name, "placement", "runs on all CPUs", "a pool",
            stranger_reason(name),
            f"{root}/{name}", (), UNCHANGEABLE,
        )
        for name in strangers
    ]  # fmt: skip
    if in_top:
        changes.append(
            Change(
                MANAGER, TOP, "placement", f"{in_top} processes directly in it", "none",
                f"start them in {SHARED} or {ISOLATED} (Slice=)", f"{root}/{TOP}/cgroup.procs", (), UNCHANGEABLE,
            )
        )  # fmt: skip
    return changes


def stranger_reason(name: str) -> str:
    """Why processes at the top are out of place, and the way out."""
    if name.endswith(UNITS):
        return "the profile does not know this top-level unit: add it to cpu.reserved.slices or cpu.shared.slices"
    return "not a unit of systemd's (cset, lxc?): stop who made it, or have it start in a slice of the profile"


def unknown(reason: str, place: str) -> Part:
    """What is said where nothing can be looked at."""
    return Part((Change(MANAGER, "slices", "AllowedCPUs", None, None, reason, place, (), UNKNOWN),), frozenset())
