# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# This module is private to the collection corral.node.
"""The pool and the workload that each CPU of a node is assigned to now, as the kernel shows it."""

from __future__ import annotations

import typing as t

from ..host import cgroup
from ..host.files import Host
from ..model.cpu import cpu_assignment
from ..model.cpu.cpu_assignment import Assignment, in_force
from ..model.plan.context import Context
from ..model.profile.schema_types import CORRAL_SLICE
from ..model.workload.grants import ISOLATED_SLICE
from ..reports import cpu_map


def observe(host: Host, context: Context) -> t.Optional[dict[int, Assignment]]:
    """The assignment of each CPU by the effective CPUs of the profile's slices; None without pools, and with cgroup v1."""
    cpu = context.profile.cpu
    if cpu is None or not cgroup.unified(host):
        return None
    slices = {
        **dict.fromkeys((*cpu.shared_slices, CORRAL_SLICE), Assignment("shared")),
        **dict.fromkeys(cpu.reserved.slices, Assignment("reserved")),
        ISOLATED_SLICE: Assignment("isolated"),
        **{grant.slice: Assignment("exclusive", grant.workload) for grant in context.grants if grant.cpus},
    }
    there = {unit: cgroup.cpus(host, unit).effective for unit in slices if cgroup.exists(host, unit)}
    return in_force(slices, {unit: cpus for unit, cpus in there.items() if cpus is not None})


def unused(host: Host, context: Context) -> frozenset[str]:
    """The workloads without a process on their CPUs: they are stopped, or wait for a restart."""
    return frozenset(one.workload for one in context.grants if one.cpus and not cgroup.populated(host, one.slice))


def map_in_force(host: Host, context: Context) -> t.Optional[list[str]]:
    """The map of the present CPU assignments; None if all are as the profile declares, or the kernel does not show them."""
    now = observe(host, context)
    if now is None:
        return None
    return cpu_map.map_in_force(context.topology, now, cpu_assignment.declared(context.pools, context.grants)) or None
