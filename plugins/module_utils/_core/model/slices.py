# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# This module is private to the collection corral.node.
"""The tree of slices that gives each pool of CPUs a home, whatever the version of the control groups."""

from __future__ import annotations

import typing as t

from .grants import EXCLUSIVE, Grant, workload_of
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
# The slices that Corral makes, beside those of workloads.
DESCRIPTIONS = {
    TOP: "Corral: all pools but the reserved one",
    SHARED: "Corral: workloads on the shared pool",
    ISOLATED: "Corral: workloads on the isolated pool",
    EXCLUSIVE: "Corral: workloads with CPUs of their own",
}
# What systemd calls its control groups; others at the top are somebody else's.
UNITS = (".slice", ".scope", ".service", ".mount", ".swap", ".socket")

Frames = dict[str, tuple[frozenset[int], frozenset[int]]]


def wanted_cpus(cpu: Cpu, pools: Pools, grants: t.Iterable[Grant] = ()) -> dict[str, frozenset[int]]:
    """Which unit runs on which CPUs, parents before children. ``pools`` are those that the grants leave."""
    shared = workload_cpus(pools)
    own = {grant.slice: grant.cpus for grant in grants if grant.cpus}
    wanted = dict.fromkeys(cpu.reserved.slices, pools.reserved)
    wanted.update(dict.fromkeys(cpu.shared_slices, shared))
    wanted[TOP] = shared | pools.isolated | pools.exclusive
    wanted[SHARED] = shared
    if pools.isolated:
        wanted[ISOLATED] = pools.isolated
    if own:
        wanted[EXCLUSIVE] = frozenset().union(*own.values())
    return {**wanted, **own}


def described(unit: str) -> str:
    """What a slice that Corral makes is for; "" for all others."""
    if unit in DESCRIPTIONS:
        return DESCRIPTIONS[unit]
    workload = workload_of(unit)
    return f"Corral: workload {workload}" if workload else ""


def looked_at(wanted: t.Iterable[str], present: t.Iterable[str] = ()) -> list[str]:
    """The units of the tree; the isolated slice and those of workloads that are ``present`` also when they are no
    longer declared.
    """
    return list(dict.fromkeys((*wanted, ISOLATED, EXCLUSIVE, *present)))


def frames_of(unit: str) -> tuple[str, ...]:
    """The frames that a slice lies in, the outermost first."""
    if unit in (SHARED, ISOLATED):
        return (TOP,)
    return (TOP, EXCLUSIVE) if unit.startswith(EXCLUSIVE[: -len(".slice")]) and unit != EXCLUSIVE else ()


def homes_of(
    wanted: t.Mapping[str, frozenset[int]],
    now: t.Mapping[str, t.Optional[frozenset[int]]],
    made: t.Callable[[str], object],
) -> tuple[list[Home], Frames]:
    """The hand-over's view of the tree; ``now`` is None for a unit that is not there, ``made`` tells those Corral makes.

    A slice of its own that is no longer declared runs as shared until it stops, and nobody runs in an empty one.
    """
    nothing: frozenset[int] = frozenset()
    homes = [
        Home(unit, now[unit] or nothing, cpus, unit == ISOLATED or EXCLUSIVE in frames_of(unit), frames_of(unit))
        for unit, cpus in wanted.items()
        if unit not in (TOP, EXCLUSIVE) and (now[unit] is not None or made(unit))
    ]
    left = [unit for unit in now if unit not in wanted and unit not in (TOP, EXCLUSIVE)]
    homes += [Home(unit, now[unit] or nothing, wanted[SHARED], False, frames_of(unit)) for unit in left if now[unit]]
    frames = {TOP: (now[TOP] or nothing, wanted[TOP])}
    inside = wanted.get(EXCLUSIVE, nothing)
    if any(EXCLUSIVE in frames_of(unit) and now[unit] for unit in left):
        inside |= wanted[SHARED]
    if inside or now.get(EXCLUSIVE):
        frames[EXCLUSIVE] = (now.get(EXCLUSIVE) or nothing, inside or wanted[SHARED])
    return homes, frames


def stray_changes(
    strangers: t.Iterable[str], in_frames: t.Mapping[str, int], paths: t.Callable[[str], str]
) -> list[Change]:
    """Processes where nobody placed them: they run on CPUs that the profile does not give them.

    ``strangers`` are top-level units that the profile does not know, ``in_frames`` counts processes directly in a frame,
    ``paths`` tells where a unit's control group is.
    """
    changes = [
        Change(
            MANAGER, name, "placement", "runs on all CPUs", "a pool",
            stranger_reason(name),
            paths(name), (), UNCHANGEABLE,
        )
        for name in strangers
    ]  # fmt: skip
    for frame, count in in_frames.items():
        if count:
            inside = f"{SHARED} or {ISOLATED}" if frame == TOP else "their workload's own slice"
            changes.append(
                Change(
                    MANAGER, frame, "placement", f"{count} processes directly in it", "none",
                    f"start them in {inside} (Slice=)", f"{paths(frame)}/cgroup.procs", (), UNCHANGEABLE,
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
