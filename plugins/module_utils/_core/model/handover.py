# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# This module is private to the collection corral.node.
"""The order in which slices hand over CPUs: one slice releases a CPU before another one gets it.

A guarded slice (isolated, exclusive) shares its CPUs with no other slice at any instant; unguarded ones may share
theirs with each other. An overlap that exists at the beginning may stay until the slices leave it; no write adds one.
"""

from __future__ import annotations

import typing as t

from .handover_planner import Planner, Slice, Stuck

__all__ = ["Slice", "Stuck", "new_overlap", "order", "overlaps"]


def order(slices: t.Sequence[Slice], spare: frozenset[int]) -> list[tuple[str, frozenset[int]]]:
    """The writes (unit, CPUs) that give every slice what it is to have.

    First go the slices that have CPUs to release: as soon as all of its wanted CPUs are available a slice moves, in one
    write. When all of them wait for each other, one begins with the part that is available, or waits elsewhere:
    an unguarded slice on ``spare`` (the reserved pool), a guarded one on a free CPU. Slices that only get more CPUs, and
    new ones, go last: until then their CPUs are free for others to wait on. Raises Stuck when there is no such order.
    """
    planner = Planner(slices, spare)
    while planner.releasing:
        planner.move_all()
        if planner.releasing and not planner.begin_with_part():
            planner.break_cycle()
    planner.grow()
    return planner.moves


def overlaps(now: t.Mapping[str, frozenset[int]], guarded: t.Container[str]) -> set[tuple[str, str, int]]:
    """Each (guarded slice, other slice, CPU) that two slices share."""
    holders: dict[int, list[str]] = {}
    for unit, cpus in now.items():
        for cpu in cpus:
            holders.setdefault(cpu, []).append(unit)
    return {
        (unit, other, cpu)
        for cpu, units in holders.items()
        if len(units) > 1
        for unit in units
        if unit in guarded
        for other in units
        if other != unit
    }


def new_overlap(
    slices: t.Sequence[Slice], moves: t.Iterable[tuple[str, frozenset[int]]]
) -> t.Optional[tuple[str, str, int]]:
    """The first overlap (guarded slice, other slice, CPU) that the writes bring; None if there is none.

    The validator of cgroup v1 (on v2: replay.py): it shares nothing with ``order``, so that a fault there shows here.
    """
    guarded = {one.unit: one.guarded for one in slices}
    now = {one.unit: one.now for one in slices}
    before = overlaps(now, {unit for unit in guarded if guarded[unit]})
    holders: dict[tuple[int, bool], set[str]] = {}
    for unit, cpus in now.items():
        for cpu in cpus:
            holders.setdefault((cpu, guarded[unit]), set()).add(unit)
    for unit, cpus in moves:
        if unit not in now:
            continue
        for cpu in now[unit] - cpus:
            holders[cpu, guarded[unit]].discard(unit)
        fresh: set[tuple[str, str, int]] = set()
        for cpu in cpus - now[unit]:
            fresh.update((other, unit, cpu) for other in holders.get((cpu, True), ()))
            if guarded[unit]:
                fresh.update((unit, other, cpu) for which in (True, False) for other in holders.get((cpu, which), ()))
            holders.setdefault((cpu, guarded[unit]), set()).add(unit)
        now[unit] = cpus
        if fresh - before:
            return min(fresh - before)
    return None
