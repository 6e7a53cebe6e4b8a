# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# This module is private to the collection corral.node.
"""How the machine's tasks are divided: the limits of the top-level slices together leave the reserve free.

Capacity is min(kernel.pid_max, kernel.threads-max); allocatable is capacity less the reserve, as in the kubelet (1.36, nodestatus and
container manager). A slice with exclusive CPUs is a top-level slice, and so counts separately.
"""

from __future__ import annotations

import typing as t

from ..profile.profile import Cpu, Pids
from ..profile.schema_types import CORRAL_SLICE
from ..values.records import NamedTuple
from ..workload.resources import PIDS

if t.TYPE_CHECKING:  # A node without workloads does not load this module.
    from ..plan.context import Context

PID_MAX = "kernel.pid_max"
THREADS_MAX = "kernel.threads-max"
LIMITS = (PID_MAX, THREADS_MAX)


class Own(NamedTuple):
    """The tasks of a workload that may have exclusive CPUs: the limit of each slice (None: undeclared), and the number of slices."""

    limit: t.Optional[int]
    slices: int


def capacity(pids: Pids, live: t.Mapping[str, t.Optional[int]]) -> t.Optional[int]:
    """The tasks that the machine may have when the profile is applied; None if unknown. ``live`` has the kernel's present limits."""
    limits = [pids.pid_max or live[PID_MAX], pids.threads_max or live[THREADS_MAX]]
    known = [limit for limit in limits if limit is not None]
    return min(known) if known else None


def coming(
    pids: Pids, live: t.Mapping[str, t.Optional[int]], before: t.Mapping[str, str]
) -> dict[str, t.Optional[int]]:
    """The limits ``live`` with the originals of undeclared limits, which the plan restores. ``before`` has the originals by key."""
    undeclared = {PID_MAX: pids.pid_max is None, THREADS_MAX: pids.threads_max is None}
    back = {key: int(text) for key, text in before.items() if undeclared.get(key) and text.isdecimal()}
    return {**live, **back}


def slices_of_profile(cpu: t.Optional[Cpu]) -> tuple[str, ...]:
    """The top-level slices in which workloads share CPUs."""
    return (CORRAL_SLICE, *(cpu.shared_slices if cpu else ()))


def exclusive_limits(context: Context) -> tuple[Own, ...]:
    """The limits of the workloads that may have exclusive CPUs.

    Workloads that do not run count as well, so that a start changes no other slice's limit. A template counts as the number of instances
    for which the node has CPUs.
    """
    if context.workloads is None:
        return ()
    assignable = len(context.pools.allocatable)
    needs = [need for need in context.workloads.needs if need.cpus]
    templates = {need.workload.template for need in needs if need.workload.is_template}
    limits = []
    for need in needs:
        if need.workload.is_template or need.workload.template not in templates:
            count = max(assignable // need.cpus, 1) if need.workload.is_template else 1
            limits.append(Own(dict(need.limits).get(PIDS), count))
    known = {need.workload.name for need in needs}
    # The grants of undeclared workloads count as well, since the runs of these workloads keep their exclusive CPUs.
    runs = (grant for grant in context.grants if grant.cpus and grant.workload not in known)
    return (*limits, *(Own(dict(grant.limits).get(PIDS), 1) for grant in runs))


def asked(pids: Pids, own: t.Iterable[Own]) -> int:
    """The sum of the slices' declared limits. With a declared reserve, the limits of workloads with exclusive CPUs count as well."""
    slices = sum(row.tasks_max for row in pids.slices)
    return slices + (sum((one.limit or 0) * one.slices for one in own) if pids.reserved is not None else 0)


def sharers(pids: Pids, cpu: t.Optional[Cpu], own: t.Iterable[Own]) -> list[str]:
    """The slices without a declared limit: the names of shared slices, and an empty string for each exclusive slice."""
    declared = {row.slice for row in pids.slices}
    shared = [unit for unit in slices_of_profile(cpu) if unit not in declared]
    return shared + [""] * sum(one.slices for one in own if one.limit is None)


def share(pids: Pids, cpu: t.Optional[Cpu], allocatable: t.Optional[int], own: t.Sequence[Own]) -> t.Optional[int]:
    """TasksMax of each slice without a declared limit: an equal share of the ``allocatable`` tasks that the declared limits leave.

    None if no reserve is declared, if the capacity is unknown (``allocatable`` is None), or if every slice has a limit.
    """
    count = len(sharers(pids, cpu, own))
    if pids.reserved is None or allocatable is None or not count:
        return None
    return max((allocatable - asked(pids, own)) // count, 1)
