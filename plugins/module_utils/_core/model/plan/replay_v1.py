# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# This module is private to the collection corral.node.
"""The validator's replay on cgroup v1, where only Corral's directories have separate CPUs (on v2: replay.py)."""

from __future__ import annotations

import typing as t

from ..cpu.handover import Slice
from ..values import cpuset
from ..values.errors import Problem
from .plan import Step


def problems(
    steps: t.Sequence[Step], units: t.Sequence[Slice], ending: t.Collection[str], above: frozenset[int]
) -> list[Problem]:
    """The first CPU that an exclusive slice and another slice would share while the steps hand CPUs over.

    ``units``: the slices with their present CPUs. The units of ``ending``, and units whose directory is removed, are exclusive until the
    step on their directory. Processes without a directory have the CPUs ``above``.
    """
    moves = [(unit_of(step), cpus_after(step, above)) for step in steps if step.kind == "cpuset"]
    gone = {unit_of(step) for step in steps if step.kind == "cpuset" and step.value is None}
    overlap = new_overlap(units, moves, gone.union(ending))
    if overlap is None:
        return []
    unit, other, cpu = overlap
    return [Problem("cpu", f"CPU {cpu}", f"{unit} and {other} would share it while CPUs are handed over")]


def unit_of(step: Step) -> str:
    """The unit whose directory a step writes."""
    return step.target.rpartition("/")[2]


def cpus_after(step: Step, above: frozenset[int]) -> frozenset[int]:
    """The CPUs of a unit after the step on its directory: the CPUs ``above`` if the step removes the directory."""
    return above if step.value is None else cpuset.parse(step.value)


def overlaps(now: t.Mapping[str, frozenset[int]], exclusive: t.Container[str]) -> set[tuple[str, str, int]]:
    """Each CPU that an exclusive slice shares, as (exclusive slice, other slice, CPU)."""
    holders: dict[int, list[str]] = {}
    for unit, cpus in now.items():
        for cpu in cpus:
            holders.setdefault(cpu, []).append(unit)
    return {
        (unit, other, cpu)
        for cpu, units in holders.items()
        if len(units) > 1
        for unit in units
        if unit in exclusive
        for other in units
        if other != unit
    }


def new_overlap(
    slices: t.Sequence[Slice], moves: t.Iterable[tuple[str, frozenset[int]]], ending: t.Container[str] = ()
) -> t.Optional[tuple[str, str, int]]:
    """The first new overlap (exclusive slice, other slice, CPU) that the writes ``moves`` make; None without a new overlap.

    A slice of ``ending`` is exclusive until the write of its CPUs. This function shares no code with ``handover.order``, and so finds the
    faults of ``handover.order``.
    """
    exclusive = {one.unit: one.exclusive for one in slices}
    now = {one.unit: one.now for one in slices}
    before = overlaps(now, {unit for unit in exclusive if exclusive[unit]})
    holders: dict[tuple[int, bool], set[str]] = {}
    for unit, cpus in now.items():
        for cpu in cpus:
            holders.setdefault((cpu, exclusive[unit]), set()).add(unit)
    for unit, cpus in moves:
        if unit not in now:
            continue
        for cpu in now[unit] - cpus:
            holders[cpu, exclusive[unit]].discard(unit)
        if exclusive[unit] and unit in ending:
            for cpu in now[unit] & cpus:
                holders[cpu, True].discard(unit)
            exclusive[unit], now[unit] = False, frozenset()
        fresh: set[tuple[str, str, int]] = set()
        for cpu in cpus - now[unit]:
            fresh.update((other, unit, cpu) for other in holders.get((cpu, True), ()))
            if exclusive[unit]:
                fresh.update((unit, other, cpu) for which in (True, False) for other in holders.get((cpu, which), ()))
            holders.setdefault((cpu, exclusive[unit]), set()).add(unit)
        now[unit] = cpus
        if fresh - before:
            return min(fresh - before)
    return None
