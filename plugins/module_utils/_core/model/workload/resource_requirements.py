# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# This module is private to the collection corral.node.
"""What a declared workload needs: its QoS class, its number of exclusive CPUs, and its requests and limits as a whole."""

from __future__ import annotations

import typing as t

from ..profile.profile_workloads import APP, INIT, SIDECAR, Container, Workload
from ..tenants.tenant import Member
from ..values.records import NamedTuple
from . import qos
from .resources import CPU, HUGEPAGES, MEMORY, PIDS, Amounts, is_device

STATIC = "static"


class ResourceRequirements(NamedTuple):
    """What a workload needs. ``cpus``: the number of exclusive CPUs (0: the workload runs on the shared pool). ``containers``: each
    container of a pod with its number of exclusive CPUs, in the order in which the containers start. ``requests`` and ``limits``: the
    amounts of the whole workload, for a pod at its peak. ``note``: why a workload that asks for one CPU or more runs on the shared pool.
    ``member``: the workload's data for the tenant's quotas. ``barred``: why no tenant admits the workload.
    """

    workload: Workload
    qos: str
    cpus: int
    containers: tuple[tuple[Container, int], ...]
    requests: Amounts
    limits: Amounts
    note: str = ""
    member: t.Optional[Member] = None
    barred: str = ""

    @property
    def tenant(self) -> str:
        """The name of the workload's tenant; an empty string without a tenant."""
        return self.member.tenant if self.member else ""

    @property
    def devices(self) -> tuple[tuple[str, str, Amounts], ...]:
        """The devices that each container requests, in the order of start: the container's name, its role, and the number of devices by
        resource.

        A workload without containers counts as a container without a name.
        """
        if not any(is_device(resource) for resource, dummy in self.requests):
            return ()
        members = self.workload.containers or (Container("", APP, self.workload.requests, ()),)
        rows = (
            (member.name, member.role, tuple(row for row in member.requests if is_device(row[0]))) for member in members
        )
        return tuple(row for row in rows if row[2])

    @property
    def device_resources(self) -> list[str]:
        """The requested resources that are devices, without duplicates."""
        return sorted({row[0] for *dummy, amounts in self.devices for row in amounts})


def of(
    workload: Workload, cpu_policy: str, default_pids: t.Optional[int], member: t.Optional[Member] = None
) -> ResourceRequirements:
    """What a workload needs under a CPU manager policy. ``default_pids`` is the limit of tasks for a workload that declares no limit."""
    members = workload.containers or (Container("", APP, workload.requests, workload.limits),)
    requests = amounts_of([(one.role, dict(one.requests)) for one in members])
    limits = limits_of(members)
    if default_pids is not None:
        limits.setdefault(PIDS, default_pids)
    qos_class = qos.qos_class([(dict(one.requests), dict(one.limits)) for one in members])
    member = member and member._replace(qos=qos_class, priority=workload.priority)
    need = ResourceRequirements(
        workload, qos_class, 0, (), tuple(sorted(requests.items())), tuple(sorted(limits.items())), member=member
    )
    if cpu_policy != STATIC:
        return need
    if qos_class != qos.GUARANTEED:
        return need._replace(note=without_memory(workload))
    own = [dict(one.requests).get(CPU, 0) for one in members]
    if any(milli % 1000 for milli in own):
        note = "not a whole number of CPUs: it runs on the shared pool, as in the kubelet"
        if workload.containers:
            note = "a container of it asks for a part of a CPU: the whole pod runs on the shared pool"
        # A workload that asks for less than one CPU does not expect an exclusive CPU, so there is no note.
        return need._replace(note=note if max(own) >= 1000 else "")
    containers = tuple((one, milli // 1000) for one, milli in zip(members, own))
    return need._replace(cpus=requests[CPU] // 1000, containers=containers)


def without_memory(workload: Workload) -> str:
    """The note for a workload that would have exclusive CPUs with a limit of memory; an empty string for any other workload."""
    amounts, asked = dict(workload.limits), dict(workload.requests)
    cpus = amounts.get(CPU, 0)
    if workload.containers or MEMORY in amounts or not cpus or cpus % 1000 or asked.get(CPU, cpus) != cpus:
        return ""
    return f"asks for {cpus // 1000} whole CPUs and limits no memory: it is Burstable and runs on the shared pool; add limits.memory"


def amounts_of(members: t.Sequence[tuple[str, t.Mapping[str, int]]]) -> dict[str, int]:
    """The amounts by resource that the containers of a pod need at the pod's peak.

    Apps and sidecars run together; an init container runs with the sidecars that started before it (kubelet 1.36, resource helpers'
    PodRequests).
    """
    peaks: dict[str, int] = {}
    for resource in sorted({resource for dummy, amounts in members for resource in amounts}):
        sidecars = peak = apps = 0
        for role, amounts in members:
            amount = amounts.get(resource, 0)
            if role == INIT:
                peak = max(peak, sidecars + amount)
            elif role == SIDECAR:
                sidecars += amount
            else:
                apps += amount
        peaks[resource] = max(peak, apps + sidecars)
    return peaks


def limits_of(members: t.Sequence[Container]) -> dict[str, int]:
    """The limits of the whole workload for resources that every container limits: a container without a limit may use everything.

    Hugepages and devices are always limited: a container has only what it requests (kubelet 1.36, HugePageLimits of a pod's cgroup).
    """
    limited = [set(dict(one.limits)) for one in members]
    common = set.intersection(*limited)
    limits = amounts_of([(one.role, dict(one.limits)) for one in members])
    return {
        name: amount
        for name, amount in limits.items()
        if name in common or name.startswith(HUGEPAGES) or is_device(name)
    }
