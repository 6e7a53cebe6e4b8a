# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# This module is private to the collection corral.node.
"""Admission by tenants: checks the limits of a single workload, then the quotas together with all existing grants."""

from __future__ import annotations

import typing as t

from ..profile.profile_workloads import Workload
from ..profile.schema_quantities import COUNT
from ..values.records import NamedTuple
from ..workload.grants import Grant
from ..workload.node_budget import NodeBudget, Refused
from ..workload.resource_requirements import ResourceRequirements
from ..workload.resources import Amounts
from . import tenant_limits, tenant_quota
from .tenant import FORBIDDEN, Member, Tenant, named
from .tenant_quota import Charge, Usage


class QuotaUsage(NamedTuple):
    """The usage of a resource in a quota of a tenant."""

    tenant: str
    quota: str
    usage: Usage


def check(budget: NodeBudget, need: ResourceRequirements, before: t.Optional[Grant]) -> None:
    """Raises Refused if a workload's tenant refuses the workload. Amounts granted ``before`` stay, whatever the tenant declares now.

    ``budget`` has the grants of all other workloads.
    """
    if need.barred:
        raise Refused("match", need.workload.pattern, need.barred)
    tenant = named(budget.inputs.profile.tenants, need.tenant) if need.member else None
    if tenant is None or need.member is None:
        return
    if before is None and need.workload.share_process_namespace and not tenant.share_process_namespace:
        raise Refused("share_process_namespace", "true", f"tenant {tenant.name} {FORBIDDEN}: leave it out")
    if before is not None and not is_raised(before, need, tenant):
        return
    for violation in tenant_limits.violations(need.workload, tenant):
        raise Refused(violation.key, violation.value, violation.message)
    check_named(tenant, need, need.member)
    had = next(iter(charges([before], tenant.name)), None) if before is not None else None
    others = charges(budget.grants.values(), tenant.name)
    asked = Charge(need.workload.name, need.member, need.requests, need.limits)
    for excess in tenant_quota.exceeded(tenant, others, asked, had):
        resource, parts = excess.resource, excess.parts
        used, more, hard = (
            tenant_quota.amount_text(resource, amount) for amount in (excess.used, excess.asked, excess.hard)
        )
        holders = f" ({tenant_quota.holders_text(resource, parts)})" if parts else ""
        raise Refused(
            "name" if resource == COUNT else resource,
            need.workload.name.partition(":")[0] if resource == COUNT else more,
            f"tenant {tenant.name}, quota {excess.quota}: {resource} used {used}, asked {more}, hard {hard}{holders}: "
            "ask for less, raise the quota, or release a workload of the tenant",
        )


def is_raised(grant: Grant, need: ResourceRequirements, tenant: t.Optional[Tenant]) -> bool:
    """Whether a workload asks its tenant for more than the workload was granted.

    A removed limit counts as more, and so does another quota that counts the workload now, for example after a change of the workload's
    priority. A workload that had another tenant, or no tenant, keeps what was granted.
    """
    if not need.tenant or (need.barred and grant.tenant != need.tenant):
        return False  # A workload that two tenants claim keeps its grant; check() refuses more.
    more = grows(dict(grant.requests), need.requests) or grows(dict(grant.limits), need.limits) or lacks(grant, need)
    return more or (tenant is not None and is_counted_anew(grant, need, tenant))


def is_counted_anew(grant: Grant, need: ResourceRequirements, tenant: Tenant) -> bool:
    """Whether a quota counts a workload now and did not count the workload when the grant was made; False after a change of the tenant."""
    before, now = grant.member, need.member
    if before is None or now is None or before.tenant != now.tenant:
        return False
    return any(tenant_quota.counts(quota, now) and not tenant_quota.counts(quota, before) for quota in tenant.quotas)


def grows(before: t.Mapping[str, int], now: Amounts) -> bool:
    """Whether any amount is larger than before."""
    return any(amount > before.get(resource, 0) for resource, amount in now)


def lacks(before: Grant, need: ResourceRequirements) -> bool:
    """Whether a limit of the grant is no longer declared."""
    return bool({name for name, dummy in before.limits} - {name for name, dummy in need.limits})


def check_named(tenant: Tenant, need: ResourceRequirements, member: Member) -> None:
    """Raises Refused if a quota counts a resource that the workload must declare and does not declare."""
    for resource, quota in tenant_quota.to_be_named(tenant, member):
        section, dummy, base = resource.partition(".")
        lacking = [
            member_container.name
            for member_container in tenant_limits.members_of(need.workload)
            if not dict(
                member_container.requests if section == tenant_limits.REQUESTS else member_container.limits
            ).get(base)
        ]
        # The profile's default limit of tasks applies to the workload as a whole, not to its containers.
        if not lacking or (base == "pids" and dict(need.limits).get(base)):
            continue
        who = f"container {lacking[0]}" if lacking[0] else "the workload"
        raise Refused(
            resource,
            None,
            f"tenant {tenant.name}, quota {quota}: it counts {resource}, and {who} names none: write it, or a default in the "
            "limits of the tenant",
        )


def charge(grant: Grant, member: Member) -> Charge:
    """The amounts of a grant that quotas count. A running workload has all its devices until its stop, even if fewer are declared."""
    requests = dict(grant.requests)
    held = [resource for resource, dummy in {(device.resource, device.id) for device in grant.devices}]
    for resource in held:
        requests[resource] = max(requests.get(resource, 0), held.count(resource))
    return Charge(grant.workload, member, tuple(sorted(requests.items())), grant.limits)


def charges(grants: t.Iterable[Grant], tenant: str) -> list[Charge]:
    """For each grant of a tenant, the amounts that quotas count."""
    return [charge(grant, grant.member) for grant in grants if grant.member and grant.member.tenant == tenant]


def usages(tenants: t.Iterable[Tenant], grants: t.Sequence[Grant]) -> list[QuotaUsage]:
    """The usage of each quota of each tenant."""
    return [
        QuotaUsage(tenant.name, quota.name, usage)
        for tenant in tenants
        for quota in tenant.quotas
        for usage in tenant_quota.usage(quota, charges(grants, tenant.name))
    ]


def with_tenant(workload: Workload, tenant: Tenant, member: Member) -> tuple[Workload, Member]:
    """The workload with the default requests and limits of its tenant, and its ``member`` with a record of these defaults."""
    defaults = tenant_limits.defaults_for(workload, tenant)
    return tenant_limits.with_defaults(workload, defaults), member._replace(defaults=defaults)
