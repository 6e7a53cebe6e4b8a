# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# This module is private to the collection corral.node.
"""The slice of a tenant: its weight for CPU time, and its limits of memory and tasks, which follow from the tenant's quotas."""

from __future__ import annotations

import typing as t

from ..systemd import unit_limits
from ..systemd.unit_file import unit_text
from ..workload import qos
from ..workload.grants import Grant
from ..workload.resources import CPU, MEMORY, PIDS
from .tenant import Tenant
from .tenant_quota import hard_limit

LEAST = {"MemoryMax": unit_limits.PAGE, "TasksMax": 1}  # systemd does not accept zero
RESOURCES = {"MemoryMax": MEMORY, "TasksMax": PIDS}


def limits_in_force(tenant: Tenant, granted: t.Iterable[Grant]) -> dict[str, str]:
    """The present properties of a tenant's slice: the rest of the tenant's quotas for the workloads in this slice.

    Workloads with exclusive CPUs count in the quotas but are in other slices, so their limits are subtracted. A limit is never below the
    granted amount: a lower quota limits new workloads, not running workloads.
    """
    own = [one for one in granted if one.tenant == tenant.name]
    shared, elsewhere = [one for one in own if not one.cpus], [one for one in own if one.cpus]
    limits = {}
    for name, resource in RESOURCES.items():
        left = remaining(tenant, resource, shared, elsewhere)
        limits[name] = unit_limits.UNLIMITED if left is None else str(max(left, LEAST[name]))
    return {"CPUWeight": weight(cpu_share(tenant, granted)), **limits}


def cpu_share(tenant: Tenant, granted: t.Iterable[Grant]) -> int:
    """The thousandths of a CPU for the weight of a tenant's slice: the rest of the quota, else the sum of the requests in the slice.

    The kubelet uses the same sum for the cgroup of all pods.
    """
    own = [one for one in granted if one.tenant == tenant.name]
    shared, elsewhere = [one for one in own if not one.cpus], [one for one in own if one.cpus]
    left = remaining(tenant, CPU, shared, elsewhere)
    return sum(dict(one.requests).get(CPU, 0) for one in shared) if left is None else left


def remaining(
    tenant: Tenant, resource: str, shared: t.Sequence[Grant], elsewhere: t.Iterable[Grant]
) -> t.Optional[int]:
    """The rest of a quota for the workloads in the tenant's slice (``shared``); None without a limit."""
    hard = hard_limit(tenant, f"limits.{resource}")
    granted = [dict(one.limits).get(resource) for one in shared]
    if hard is None or None in granted:
        return None
    taken = sum(dict(one.limits).get(resource, 0) for one in elsewhere)
    return max(hard - taken, sum(amount or 0 for amount in granted))


def persistent_limits(tenant: Tenant) -> dict[str, str]:
    """The properties in the drop-in of a tenant's slice. They follow from the quotas alone, so an admission does not change the drop-in."""
    limits = {}
    cpu = hard_limit(tenant, f"limits.{CPU}")
    if cpu is not None:
        limits["CPUWeight"] = weight(cpu)
    for name, resource in RESOURCES.items():
        hard = hard_limit(tenant, f"limits.{resource}")
        if hard is not None:
            limits[name] = str(max(hard, LEAST[name]))
    return limits


def weight(milli: int) -> str:
    """The value of CPUWeight= for thousandths of a CPU."""
    return str(qos.cpu_weight(qos.cpu_shares(milli)))


def slice_text(tenant: Tenant) -> str:
    """The drop-in of a tenant's slice."""
    lines = [f"{name}={value}" for name, value in persistent_limits(tenant).items()]
    return unit_text(("Unit", [f"Description=Corral: tenant {tenant.name}"]), *([("Slice", lines)] if lines else []))
