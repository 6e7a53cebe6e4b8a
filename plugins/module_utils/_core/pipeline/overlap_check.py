# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# This module is private to the collection corral.node.
"""Whether a plan would let other processes run on exclusive CPUs: the validator replays the plan's steps on the machine as it is."""

from __future__ import annotations

import collections
import typing as t

from ..host import cgroup, state
from ..host.files import Host
from ..model.cpu.handover import Slice
from ..model.cpu.partitions import MEMBER
from ..model.plan import validate
from ..model.plan.plan import Plan, Step, steps_in_order
from ..model.systemd.unit_group import group_of, unit_of_partition
from ..model.values import cpuset
from ..model.values.errors import CorralError, Problem
from ..model.workload.grants import ISOLATED_SLICE, is_exclusive

if t.TYPE_CHECKING:
    from ..model.plan.undo import Original


def refuse_overlaps(host: Host, plan: Plan) -> None:
    """Raise CorralError for a plan that would let other processes run on exclusive CPUs."""
    problems = overlaps(host, plan, steps_in_order(plan.changes))
    if problems:
        raise CorralError(*problems)


def overlaps(
    host: Host, plan: Plan, steps: t.Sequence[Step], exclusive_before: t.Optional[t.Container[str]] = None
) -> list[Problem]:
    """The problems of the first step that would let other processes run on exclusive CPUs, by the kernel's rule.

    This function checks the plans of profiles and removals, and each step of an undo (applying.conflict_with). A slice that keeps its CPUs
    is exclusive during all steps. Any other exclusive slice is exclusive as long as it is a partition. In an undo only the slices
    ``exclusive_before`` keep CPUs.
    """
    if not any(map(validate.moves_cpus, steps)):
        return []
    if not cgroup.unified(host):  # A plan that moves no CPUs loads neither replay nor replay_v1.
        return host.unrecorded(lambda: overlaps_v1(host, plan, steps))
    from ..host import cgroup_tree
    from ..model.plan import replay

    tree = host.unrecorded(lambda: cgroup_tree.observe(host))
    exclusive = {path for path in tree.machine.cgroups if "/" not in path and is_exclusive(path)}
    keeps = keep_cpus(host, plan, exclusive)
    if exclusive_before is not None:
        keeps = {path for path in keeps if path in exclusive_before}
    cpu = plan.context.profile.cpu if plan.context else None
    kept_out = cpu is None or cpu.partitions != "off"
    at_start = host.unrecorded(lambda: cgroup_tree.at_start(host, steps))
    files = host.unrecorded(lambda: cgroup_tree.hiding(host, [path.rpartition("/")[2] for path in at_start]))
    return replay.problems(
        steps,
        tree.machine,
        tree.populated & keeps,
        exclusive | keeps,
        partitions=kept_out,
        at_start=at_start,
        hiding=files,
        ungranted=granted_nothing(plan, tree.populated & keeps),
    )


def cpus_still_requested(host: Host, plan: Plan, step: Step, refused: t.Iterable[Step]) -> str:
    """The units that still request CPUs which this step gives to an exclusive slice, and what to do; empty without such a unit.

    The ``refused`` steps should have moved these units. overlaps() does not count these units, since they had the CPUs before. A slice that
    was asked to be a partition already has the CPUs that it requests.
    """
    unit = unit_of_partition(step.target) if step.kind == "partition" else step.target
    if not validate.moves_cpus(step) or step.value == MEMBER or unit not in keep_cpus(host, plan, {unit}):
        return ""
    requested = cgroup.cpus(host, unit).requested or frozenset()
    cpus = (cgroup.cpu_list(step.value) or frozenset()) if step.kind == "property" else requested
    if cgroup.partition(host, unit) not in (None, MEMBER):
        cpus -= requested
    units = [one.target for one in refused if one.name == "AllowedCPUs"]
    requested_by = {one: (cgroup.cpus(host, one).requested or frozenset()) & cpus for one in units}
    return "; ".join(
        f"{other} requests CPUs {cpuset.format(theirs)} of {unit}: stop {other}, or add it to cpu.shared.slices"
        for other, theirs in requested_by.items()
        if theirs
    )


def exclusive_before(host: Host, done: t.Sequence[tuple[Original, Step]]) -> t.Optional[frozenset[str]]:
    """The exclusive slices that requested CPUs before the steps ``done``, if no other top-level control group requested any of these CPUs.

    The result is None if these steps move no CPUs, and on cgroup v1.
    """
    if not cgroup.unified(host) or not any(validate.moves_cpus(step) for dummy, step in done):
        return None
    from ..host import cgroup_tree

    tree = host.unrecorded(lambda: cgroup_tree.observe(host))
    requested = {path: one.cpus for path, one in tree.machine.cgroups.items() if "/" not in path}
    before_run: dict[str, frozenset[int]] = {}
    for before, step in done:
        if step.name == "AllowedCPUs":  # The first record of a unit has the value before the run.
            before_run.setdefault(group_of(step.target), cgroup.cpu_list(before.value) or frozenset())
    requested.update((path, cpus) for path, cpus in before_run.items() if "/" not in path)
    users = collections.Counter(cpu for cpus in requested.values() for cpu in cpus)
    own = (path for path, cpus in requested.items() if cpus and all(users[cpu] == 1 for cpu in cpus))
    return frozenset(filter(is_exclusive, own))


def overlaps_v1(host: Host, plan: Plan, steps: t.Sequence[Step]) -> list[Problem]:
    """The result of overlaps() on cgroup v1, for the units whose directories the plan writes or owns.

    Without a profile that declares pools, an exclusive directory is exclusive until the step that changes it.
    """
    from ..host.cpu import cgroup_v1_cpuset
    from ..model.plan import replay_v1

    written = {replay_v1.unit_of(step) for change in plan.changes for step in change.steps if step.kind == "cpuset"}
    written |= {replay_v1.unit_of(step) for step in steps if step.kind == "cpuset"}
    held = {key.rpartition("/")[2] for part in plan.parts for key in part.owned if key.startswith("cpuset:")}
    exclusive = {name for name in host.folders(cgroup.CPUSETS) if is_exclusive(name)}
    has_pools = plan.context is not None and plan.context.profile.cpu is not None
    own = keep_cpus(host, plan, exclusive) if has_pools else exclusive
    now = {unit: cgroup_v1_cpuset.reach(host, unit) for unit in sorted(written | held | exclusive)}
    units = [Slice(unit, cpus, cpus, unit in own) for unit, cpus in now.items()]
    above = cgroup_v1_cpuset.cpus(host, cgroup.CPUSETS).effective or frozenset()
    return replay_v1.problems(steps, units, () if has_pools else exclusive, above)


def granted_nothing(plan: Plan, units: t.AbstractSet[str]) -> frozenset[str]:
    """The slices of ``units`` that no grant in the checkpoint has; if the plan has no workloads, only the slice of the isolated pool."""
    workloads = plan.context.workloads if plan.context else None
    granted = (
        {grant.slice for grant in workloads.checkpoint.grants if grant.cpus} if workloads else units - {ISOLATED_SLICE}
    )
    return frozenset(units - granted)


def keep_cpus(host: Host, plan: Plan, exclusive: t.Iterable[str]) -> set[str]:
    """The slices that have exclusive CPUs once the plan is executed; ``exclusive`` are the exclusive slices that exist.

    A removal ends all grants with the checkpoint, or continues a removal that has already ended all grants.
    """
    context = plan.context
    if context is not None:
        isolated = {ISOLATED_SLICE} if context.pools.isolated else set()
        return isolated | {grant.slice for grant in context.grants if grant.cpus}
    ends = any(step.target == state.CHECKPOINT for change in plan.changes for step in change.steps)
    ends = ends or not state.written_before(host, state.CHECKPOINT)
    removed = {change.subject for change in plan.changes if change.property == "state"}
    return set() if ends else set(exclusive) - removed
