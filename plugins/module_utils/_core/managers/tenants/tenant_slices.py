# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# This module is private to the collection corral.node.
"""The slices of tenants around their workloads on the shared pool, and the exceeded quotas.

A part of the workloads manager.
"""

from __future__ import annotations

import typing as t

from ...host import cgroup, state
from ...host.files import Host
from ...model.cpu.slices import described
from ...model.plan import make_step
from ...model.plan.plan import CLAIM, CPUS, FILES, LIVE, UNCHANGEABLE, Change
from ...model.systemd import unit_limits
from ...model.systemd.unit_file import file_change
from ...model.systemd.unit_property import dropin
from ...model.tenants import tenant_admission, tenant_quota, tenant_slice
from ...model.tenants.tenant import Tenant
from ...model.workload.grants import Grant, slice_of_tenant
from ...model.workload.workload_units import NAME
from ..workload import workload_limits

# After the last move of CPUs: by then the parent slice has its CPUs.
LAST = 1 << 29


def slice_changes(host: Host, tenant: Tenant, granted: t.Sequence[Grant]) -> list[Change]:
    """The changes of a tenant's slice: its drop-in, its start, and its limits in force."""
    unit = slice_of_tenant(tenant.name)
    exists, path = cgroup.exists(host, unit), dropin(unit, NAME)
    guests = running_before(host, unit)
    if guests:
        return [guests]
    text, reason = tenant_slice.slice_text(tenant), f"limits of tenant {tenant.name}"
    phase = FILES if exists else CLAIM  # A slice that does not run yet must find the drop-in at its start.
    change = file_change(NAME, path, host.read(path), text, reason=reason, phase=phase)
    changes = [change] if change else []
    if not exists:
        step, location = make_step.unit(unit, "start", CPUS, LAST), cgroup.path_of(unit)
        changes.append(
            Change(NAME, unit, "state", "inactive", "active", "the tenant's slice does not run yet", location, (step,))
        )
    persistent = tenant_slice.persistent_limits(tenant)
    for name, value in tenant_slice.limits_in_force(tenant, granted).items():
        location = f"{cgroup.path_of(unit)}/{unit_limits.FILES[name]}"
        target = unit_limits.kernel(name, value)
        seen = host.read(location) if exists else None
        usual = unit_limits.kernel(name, persistent.get(name, ""))
        # A slice that is about to start has the values of its drop-in.
        actual = None if seen is None else unit_limits.meaning(name, seen)
        if target == (usual if actual is None else actual):
            continue
        step = make_step.unit_property(unit, name, value, LIVE)
        changes.append(Change(NAME, unit, name, actual, target, "the limit in force differs", location, (step,)))
    return changes


def running_before(host: Host, unit: str) -> t.Optional[Change]:
    """The item for running units in a tenant's slice that was a workload's slice before: the slice keeps the workload's limits."""
    if not (host.read(dropin(unit, NAME)) or "").partition("\n[Slice]")[0].count(f"={described(unit)} ("):
        return None
    path = cgroup.path_of(unit)
    names = [name for name in host.folders(path) if not name.endswith(".slice")]
    names = [name for name in names if cgroup.populated_at(host, f"{path}/{name}")]
    if not names:
        return None
    reason = f"it had this slice before the tenant of that name: stop {', '.join(names)}, then the slice gets the tenant's limits"
    return Change(NAME, unit, "limits", "of what runs in it", "of the tenant", reason, path, (), UNCHANGEABLE)


def override_changes(host: Host, tenant: Tenant, granted: t.Sequence[Grant]) -> list[Change]:
    """The changes that remove persistent settings of the limits of a tenant's slice."""
    names = tenant_slice.limits_in_force(tenant, granted)
    return workload_limits.override_changes(host, slice_of_tenant(tenant.name), names)


def owned_of(tenant: Tenant) -> set[str]:
    """The keys of a tenant's slice."""
    unit = slice_of_tenant(tenant.name)
    properties = {f"property:{unit}:{name}" for name in ("CPUWeight", *tenant_slice.RESOURCES)}
    return {f"file:{dropin(unit, NAME)}", f"unit:{unit}", *properties}


def excess_changes(tenants: t.Iterable[Tenant], granted: t.Sequence[Grant]) -> list[Change]:
    """The items of quotas below their usage: a quota was lowered, or workloads with grants were assigned to the tenant."""
    changes = []
    for row in tenant_admission.usages(tenants, granted):
        resource, used, hard, parts = row.usage
        if used <= hard:
            continue
        shown = [tenant_quota.amount_text(resource, amount) for amount in (used, hard)]
        reason = (
            f"{tenant_quota.holders_text(resource, parts)}: what is granted stays, and nothing more is admitted; release a "
            "workload, or raise the quota"
        )
        location = state.CHECKPOINT
        changes.append(
            Change(
                NAME, row.tenant, f"quota {row.quota} {resource}", shown[0], f"at most {shown[1]}", reason, location, (), UNCHANGEABLE
            )
        )  # fmt: skip
    return changes
