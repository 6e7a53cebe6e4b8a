# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# This module is private to the collection corral.node.
"""Admission by tenants: limits of the workload first, then the quotas, on what is granted so far."""

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
    """A quota of a tenant and its usage."""

    tenant: str
    quota: str
    usage: Usage


def check(budget: NodeBudget, need: ResourceRequirements, before: t.Optional[Grant]) -> None:
    """Raise Refused where the tenant of a workload refuses it. What was granted ``before`` stays, whatever the tenant says now.

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
    """Whether a workload that has a grant asks its tenant for more than that: a limit that is gone is more as well, and so is what a
    quota with scopes did not count before, as of a workload that gets another priority.

    One that was granted in another tenant, or in none, comes with what it had, and asks for the rest as well.
    """
    if not need.tenant or (need.barred and grant.tenant != need.tenant):
        return False  # It keeps what it has while two tenants claim it: what more it requests is refused when it is admitted.
    more = grows(dict(grant.requests), need.requests) or grows(dict(grant.limits), need.limits) or lacks(grant, need)
    return more or (tenant is not None and is_counted_anew(grant, need, tenant))


def is_counted_anew(grant: Grant, need: ResourceRequirements, tenant: Tenant) -> bool:
    """Whether a quota counts a workload that it did not count when it was granted; one of another tenant brings what it had."""
    before, now = grant.member, need.member
    if before is None or now is None or before.tenant != now.tenant:
        return False
    return any(tenant_quota.counts(one, now) and not tenant_quota.counts(one, before) for one in tenant.quotas)


def grows(before: t.Mapping[str, int], now: Amounts) -> bool:
    """Whether an amount is more than before."""
    return any(amount > before.get(resource, 0) for resource, amount in now)


def lacks(before: Grant, need: ResourceRequirements) -> bool:
    """Whether a limit is gone."""
    return bool({name for name, dummy in before.limits} - {name for name, dummy in need.limits})


def check_named(tenant: Tenant, need: ResourceRequirements, member: Member) -> None:
    """Raise Refused where a workload does not name what a quota counts."""
    for resource, quota in tenant_quota.to_be_named(tenant, member):
        section, dummy, base = resource.partition(".")
        lacking = [
            one.name
            for one in tenant_limits.members_of(need.workload)
            if not dict(one.requests if section == tenant_limits.REQUESTS else one.limits).get(base)
        ]
        # The profile's own default of tasks is the workload's as a whole.
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
    """A grant as quotas count it.

    A run that asks for fewer devices by now has them all until it stops.
    """
    requests = dict(grant.requests)
    held = [resource for resource, dummy in {(one.resource, one.id) for one in grant.devices}]
    for resource in held:
        requests[resource] = max(requests.get(resource, 0), held.count(resource))
    return Charge(grant.workload, member, tuple(sorted(requests.items())), grant.limits)


def charges(grants: t.Iterable[Grant], tenant: str) -> list[Charge]:
    """The grants of a tenant, as quotas count them."""
    return [charge(one, one.member) for one in grants if one.member is not None and one.member.tenant == tenant]


def usages(tenants: t.Iterable[Tenant], grants: t.Sequence[Grant]) -> list[QuotaUsage]:
    """The usage of each quota of each tenant."""
    return [
        QuotaUsage(tenant.name, quota.name, one)
        for tenant in tenants
        for quota in tenant.quotas
        for one in tenant_quota.usage(quota, charges(grants, tenant.name))
    ]


def with_tenant(workload: Workload, tenant: Tenant, member: Member) -> tuple[Workload, Member]:
    """A workload with the defaults of its tenant."""
    defaults = tenant_limits.defaults_for(workload, tenant)
    return tenant_limits.with_defaults(workload, defaults), member._replace(defaults=defaults)
