# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# This module is private to the collection corral.node.
"""The items of workloads whose containers share a PID namespace, or have separate ones, contrary to the profile.

A part of the workloads manager. The items have no steps: a namespace lasts as long as its processes.
"""

from __future__ import annotations

import typing as t

from ...host import cgroup
from ...host.files import Host
from ...host.pids import pid_namespaces
from ...model.pids import pid_sharing
from ...model.pids.pid_sharing import ContainerProcess, Difference
from ...model.plan.plan import UNCHANGEABLE, UNKNOWN, Change
from ...model.tenants.tenant import FORBIDDEN, Tenant, named
from ...model.workload.resource_requirements import ResourceRequirements
from ...model.workload.workload_units import NAME

PROPERTY = "share_process_namespace"


def changes(
    host: Host, placed: t.Sequence[tuple[ResourceRequirements, str]], tenants: t.Sequence[Tenant]
) -> list[Change]:
    """The items of the workloads in ``placed``, which are pairs of a workload and its slice."""
    paths = {need.workload.name: cgroup.path_of(unit) for need, unit in placed}
    rows = pid_namespaces.containers(host, cgroup.ROOT, tuple(sorted(paths.values())))
    node = pid_namespaces.of_node(host) if rows else ""
    items = []
    for need, dummy in placed:
        shared = pid_sharing.wanted(need.workload, need.tenant, tenants)
        mine = [row for row in rows if row[0] == paths[need.workload.name]]
        if not mine or shared is None:
            continue
        there = [
            ContainerProcess(name, pid, space, unit, pid_namespaces.moment(host, ticks))
            for dummy, name, pid, space, unit, ticks in mine
        ]
        difference = pid_sharing.difference(shared, there, node)
        if difference is not None:
            items.append(item(need, shared, difference, tenants))
    return items


def item(need: ResourceRequirements, shared: bool, difference: Difference, tenants: t.Sequence[Tenant]) -> Change:
    """The item of one workload."""
    reason, location = difference.reason, f"/proc/{difference.pid}/ns/pid"
    target, subject = "shared" if shared else "separate", need.workload.name
    if not difference.known:
        return Change(NAME, subject, PROPERTY, None, target, reason, location, (), UNKNOWN)
    tenant = named(tenants, need.tenant)
    if tenant is not None and not tenant.share_process_namespace:
        reason += f"; tenant {tenant.name} {FORBIDDEN}"
    way = "a pod without --share pid, containers without --pid"
    if shared:
        way = "podman pod create --share +pid, in [Pod] of a Quadlet file PodmanArgs=--share=+pid"
    reason += f": start it again ({way})"
    actual = difference.actual
    return Change(
        NAME, subject, PROPERTY, actual, target, reason, location, (), UNCHANGEABLE, "next start", "service restart"
    )
