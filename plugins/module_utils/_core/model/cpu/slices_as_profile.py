# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# This module is private to the collection corral.node.
"""The profile's section ``cpu`` that declares the present CPUs of slices."""

from __future__ import annotations

import typing as t

from ..profile import schema_cpu
from ..profile.schema_types import AGENT_SLICE, CORRAL_SLICE
from ..values import cpuset
from ..values.cpuset import CpuSet
from ..values.records import NamedTuple
from ..workload.grants import ISOLATED_SLICE, is_exclusive


class SeenSlice(NamedTuple):
    """A top-level slice or scope, or a slice of Corral's. ``cpus``: the limit of its CPUs, now or at its start (None: no limit)."""

    unit: str
    cpus: t.Optional[frozenset[int]]
    populated: bool


def cpu_section(online: frozenset[int], rows: t.Sequence[SeenSlice]) -> t.Optional[dict[str, t.Any]]:
    """The section ``cpu`` for slices that are confined already; None if no housekeeping slice is confined.

    On a node that Corral manages, the pools follow from Corral's own slices; elsewhere the CPUs that no slice may use count as isolated.
    """
    ours = {row.unit: row.cpus for row in rows if row.unit in (CORRAL_SLICE, ISOLATED_SLICE)}
    others = [row for row in rows if row.unit not in (*ours, AGENT_SLICE) and not is_exclusive(row.unit)]
    confined = {row.unit: row.cpus for row in others if row.cpus is not None and row.cpus < online}
    reserved = next((confined[unit] for unit in schema_cpu.HOUSEKEEPING_SLICES if unit in confined), None)
    if reserved is None:
        return None
    workloads = ours.get(CORRAL_SLICE)
    on_reserved = [unit for unit, cpus in confined.items() if cpus == reserved]
    housekeeping = in_order(on_reserved, managed=workloads is not None)
    others = [row for row in others if row.unit not in housekeeping]
    if workloads is not None:
        isolated = ours.get(ISOLATED_SLICE) or cpuset.EMPTY
        # If workloads may use the reserved CPUs too, the reserved CPUs may be all CPUs of the node.
        shared = [row.unit for row in others if row.cpus == workloads]
    else:
        in_use = [row.unit for row in others if row.populated or row.unit in confined]
        workloads = cpuset.EMPTY.union(*(confined.get(unit, online) for unit in in_use))
        isolated = online - reserved - workloads if workloads else cpuset.EMPTY
        shared = list(dict.fromkeys([*schema_cpu.SHARED_SLICES, *in_use]))
    return section_of(reserved, housekeeping, isolated, workloads, shared)


def in_order(on_reserved: list[str], *, managed: bool) -> list[str]:
    """The housekeeping slices, the usual slices first; includes all usual slices if Corral does not manage the node."""
    usual = [unit for unit in schema_cpu.HOUSEKEEPING_SLICES if not managed or unit in on_reserved]
    return list(dict.fromkeys([*usual, *on_reserved]))


def section_of(
    reserved: CpuSet, housekeeping: list[str], isolated: CpuSet, workloads: CpuSet, shared: list[str]
) -> dict[str, t.Any]:
    """The section ``cpu`` with the CPUs of each pool, and with the slices ``housekeeping`` and ``shared``."""
    section: dict[str, t.Any] = {"reserved": {"cpus": cpuset.format(reserved), "slices": housekeeping}}
    if isolated:
        section["isolated"] = {"cpus": cpuset.format(isolated)}
    section["shared"] = {"slices": shared}
    if reserved <= workloads:
        section["options"] = {"strict-cpu-reservation": False}
    return section
