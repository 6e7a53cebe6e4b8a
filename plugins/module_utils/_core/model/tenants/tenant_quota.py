# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# This module is private to the collection corral.node.
"""Quotas of tenants (Kubernetes' ResourceQuota): which workloads a quota counts, their usage, and which requests exceed a quota.

A resource of a quota is ``requests.X``, ``limits.X`` (X is a workload's resource, also a name with a slash) or ``count/workloads``.
"""

from __future__ import annotations

import typing as t

from ..profile.schema_quantities import COUNT
from ..values.records import NamedTuple
from ..workload import resources
from ..workload.resources import Amounts
from .tenant import (
    BEST_EFFORT,
    DOES_NOT_EXIST,
    EXISTS,
    IN,
    NOT_BEST_EFFORT,
    PRIORITY_CLASS,
    TERMINATING,
    Member,
    Quota,
    ScopeSelector,
    Tenant,
)

# The resources that a workload must declare if a quota counts the resource. In Kubernetes these are CPU and memory. Corral adds tasks: a
# workload without a limit could take all tasks that the quota leaves to other workloads.
NAMED = ("requests.cpu", "limits.cpu", "requests.memory", "limits.memory", "limits.pids")


class Charge(NamedTuple):
    """The amounts of a workload that quotas count."""

    workload: str
    member: Member
    requests: Amounts
    limits: Amounts


class Usage(NamedTuple):
    """How much of a resource of a quota is used; ``parts`` has the amount of each workload that uses the resource."""

    resource: str
    used: int
    hard: int
    parts: tuple[tuple[str, int], ...]


def counts(quota: Quota, member: Member) -> bool:
    """Whether a quota counts a workload: the workload meets all conditions (``selectors``) of the quota."""
    return all(selects(selector, member) for selector in quota.selectors)


def selects(selector: ScopeSelector, member: Member) -> bool:
    """Whether a workload meets a condition of a quota. As in Kubernetes, a workload without a priority meets NotIn."""
    if selector.scope == PRIORITY_CLASS:
        if selector.operator == EXISTS:
            return bool(member.priority)
        if selector.operator == DOES_NOT_EXIST:
            return not member.priority
        return (member.priority in selector.values) == (selector.operator == IN)
    if selector.scope in (BEST_EFFORT, NOT_BEST_EFFORT):
        return (member.qos == BEST_EFFORT) == (selector.scope == BEST_EFFORT)
    return member.terminating == (selector.scope == TERMINATING)


def amounts(charge: Charge) -> dict[str, int]:
    """The amounts that a workload uses, by the names that quotas use for resources."""
    used = {f"requests.{resource}": amount for resource, amount in charge.requests}
    used.update((f"limits.{resource}", amount) for resource, amount in charge.limits)
    return {**used, COUNT: 1}


def usage(quota: Quota, charges: t.Iterable[Charge]) -> list[Usage]:
    """The usage of each resource of a quota."""
    counted = [(one.workload, amounts(one)) for one in charges if counts(quota, one.member)]
    rows = []
    for resource, hard in quota.hard:
        parts = tuple((name, own[resource]) for name, own in counted if own.get(resource))
        rows.append(Usage(resource, sum(amount for dummy, amount in parts), hard, parts))
    return rows


class Excess(NamedTuple):
    """A quota that a workload would exceed: the amount that other workloads use, and the amount that the workload asks for."""

    quota: str
    resource: str
    used: int
    asked: int
    hard: int
    parts: tuple[tuple[str, int], ...]


def exceeded(tenant: Tenant, others: t.Sequence[Charge], asked: Charge, before: t.Optional[Charge]) -> list[Excess]:
    """The quotas that a workload would exceed. The workload keeps the amounts that it had ``before``, whatever the quota is now."""
    wanted = amounts(asked)
    excesses = []
    for quota in tenant.quotas:
        if not counts(quota, asked.member):
            continue
        had = amounts(before) if before is not None and counts(quota, before.member) else {}
        for row in usage(quota, others):
            more = wanted.get(row.resource, 0)
            if more > had.get(row.resource, 0) and row.used + more > row.hard:
                excesses.append(Excess(quota.name, row.resource, row.used, more, row.hard, row.parts))
    return excesses


def to_be_named(tenant: Tenant, member: Member) -> list[tuple[str, str]]:
    """The resources that a workload must declare, each with a quota that counts the resource: ``("limits.memory", "compute")``."""
    quota_of: dict[str, str] = {}
    for quota in tenant.quotas:
        if counts(quota, member):
            for resource, dummy in quota.hard:
                if resource in NAMED:
                    quota_of.setdefault(resource, quota.name)
    return list(quota_of.items())


def hard_limit(tenant: Tenant, resource: str) -> t.Optional[int]:
    """The lowest limit of a resource in the quotas that count every workload; None if no such quota limits the resource."""
    limits = [
        dict(quota.hard)[resource] for quota in tenant.quotas if not quota.selectors and resource in dict(quota.hard)
    ]
    return min(limits) if limits else None


def amount_text(resource: str, amount: int) -> str:
    """An amount of a quota's resource, as a profile writes the amount."""
    base = resource.partition(".")[2]
    return str(amount) if resource == COUNT else resources.amount_text(base, amount)


def holders_text(resource: str, parts: t.Iterable[tuple[str, int]]) -> str:
    """How much each workload has: ``a has 4, b has 2``."""
    return ", ".join(f"{name} has {amount_text(resource, amount)}" for name, amount in sorted(parts))
