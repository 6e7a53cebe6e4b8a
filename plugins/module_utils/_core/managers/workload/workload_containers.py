# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# This module is private to the collection corral.node.
"""The limits of a pod's containers: the CPUs, quota, memory and OOM scores in force, compared with the profile.

A part of the workloads manager. A container that is started with the CDI device of its grant gets its limits before its first instruction
(cli/container_hook.py); any other container gets its limits with the next tick.
"""

from __future__ import annotations

import typing as t

from ...host import cgroup
from ...host.containers import container_groups
from ...host.files import Host
from ...host.pids import oom_score
from ...model.pids import pid_sharing
from ...model.plan import make_step
from ...model.plan.plan import LIVE, UNCHANGEABLE, Change
from ...model.systemd import unit_limits
from ...model.values import cpuset
from ...model.values.cpuset import CpuSet
from ...model.workload import container_limits, grants
from ...model.workload.container_limits import ContainerLimits
from ...model.workload.grants import Grant
from ...model.workload.resource_requirements import ResourceRequirements
from ...model.workload.workload_units import NAME
from . import workload_placement


def changes(
    host: Host, granted: t.Sequence[tuple[ResourceRequirements, Grant]], capacity: t.Optional[int]
) -> list[Change]:
    """The changes of the running containers of pods with a grant; ``capacity`` is the machine's memory in bytes."""
    paths = {need.workload.name: cgroup.path_of(grant.slice) for need, grant in granted}
    rows = container_groups.containers(host, cgroup.ROOT, tuple(sorted(paths.values())))
    items: list[Change] = []
    for need, grant in granted:
        limits = container_limits.of_pod(need, grant, capacity)
        for place, container, group in rows:
            name = container_limits.declared_name(container, need.workload.pattern, limits)
            if place != paths[need.workload.name]:
                continue
            if name is not None:
                items += limit_changes(host, need.workload.name, container, group, limits[name])
            elif limits and container and not container.endswith(pid_sharing.INFRA):
                items.append(undeclared_change(need.workload.name, container, group))
            if workload_placement.scores_differ(need):  # otherwise the pod has one score
                score = limits[name].score if name is not None else workload_placement.score_of(need, capacity)
                items += score_changes(host, need.workload.name, container, group, score)
    return items


def released_changes(host: Host, lost: t.Iterable[str], online: CpuSet) -> list[Change]:
    """The changes of containers in the slice of a pod that lost its CPUs: these containers share all CPUs that the slice has now.

    ``lost``: pods without exclusive CPUs. A container's cpuset gets all online CPUs: the kernel limits the container to the slice's cpuset.
    """
    slices = {name: grants.slice_of(name, exclusive=True) for name in lost}
    paths = {cgroup.path_of(unit): name for name, unit in slices.items() if cgroup.populated(host, unit)}
    if not paths:
        return []
    file, wanted = unit_limits.FILES["AllowedCPUs"], cpuset.format(online)
    reason = "its pod has no CPUs of its own any more, and runs on those of its slice"
    items = []
    for place, container, group in container_groups.containers(host, cgroup.ROOT, tuple(sorted(paths))):
        path = f"{group}/{file}"
        cpus = cgroup.cpu_list(host.read(path))
        if cpus and not cpus >= online:
            step = make_step.value(path, wanted, LIVE, optional=True)
            subject = f"{paths[place]}:{container}"
            items.append(Change(NAME, subject, file, cpuset.format(cpus), wanted, reason, path, (step,)))
    return items


def undeclared_change(workload: str, container: str, group: str) -> Change:
    """The item for a container that runs in a pod and is not declared: it uses the pod's CPUs and memory."""
    reason = (
        f"no container of {workload} has this name, so it has the limits of the whole pod alone: declare it, give it a declared "
        "name, or start it in another pod"
    )
    return Change(
        NAME, f"{workload}:{container}", "declared", "no", "yes", reason, group, (), UNCHANGEABLE, "next start"
    )


def limit_changes(host: Host, workload: str, container: str, group: str, wanted: ContainerLimits) -> list[Change]:
    """The changes of the limits of one container."""
    items = []
    for file, value in wanted.files.items():
        path = f"{group}/{file}"
        text = host.read(path)
        actual = None if text is None else container_limits.shown(file, text)
        if actual == value or (actual is None and container_limits.is_no_limit(file, value)):
            continue
        subject = f"{workload}:{container}"
        if actual is None:
            reason = "the container's control group has no such file: its engine or runtime leaves the controller out"
            items.append(Change(NAME, subject, file, actual, value, reason, path, (), UNCHANGEABLE))
            continue
        # Optional, since a container may end at any moment.
        step = make_step.value(path, container_limits.written(file, value), LIVE, optional=True)
        shown = actual or "all of the pod's"  # cpuset.cpus is empty: cgroup-v2.rst
        items.append(Change(NAME, subject, file, shown, value, "the container's limit differs", path, (step,)))
    return items


def score_changes(host: Host, workload: str, container: str, group: str, score: t.Optional[int]) -> list[Change]:
    """The change of a container's processes whose OOM score differs from ``score``."""
    others = () if score is None else oom_score.scores(host, group, str(score))
    pids = oom_score.others(host, group, str(score)) if others else []
    if not pids:
        return []
    steps = tuple(make_step.value(f"/proc/{pid}/oom_score_adj", str(score), LIVE, optional=True) for pid in pids)
    location, reason = f"/proc/{pids[0]}/oom_score_adj", "processes of the container have another score"
    subject = f"{workload}:{container}"
    return [Change(NAME, subject, container_limits.SCORE, ", ".join(others), str(score), reason, location, steps)]
