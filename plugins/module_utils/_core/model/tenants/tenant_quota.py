# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# This module is private to the collection corral.node.
"""Quotas of tenants (Kubernetes' ResourceQuota): which workloads one counts, their usage, and what is too much.

A resource of a quota is ``requests.X``, ``limits.X`` (X as workloads name it, a name with a slash included) or
``count/workloads``.
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

# What every workload has to name where a quota counts it. Kubernetes has this for CPU and memory; tasks are alike: a
# workload without a limit of its own could take all that the quota leaves to others.
NAMED = ("requests.cpu", "limits.cpu", "requests.memory", "limits.memory", "limits.pids")


class Charge(NamedTuple):
    """A workload as quotas count it."""

    workload: str
    member: Member
    requests: Amounts
    limits: Amounts


class Usage(NamedTuple):
    """How much of a resource of a quota is used; ``parts`` has the amount of each workload that uses some."""

    resource: str
    used: int
    hard: int
    parts: tuple[tuple[str, int], ...]


def counts(quota: Quota, member: Member) -> bool:
    """Whether a quota counts a workload: it meets all conditions."""
    return all(selects(one, member) for one in quota.selectors)


def selects(selector: ScopeSelector, member: Member) -> bool:
    """Whether a workload meets a condition. One without a priority meets NotIn, as in Kubernetes."""
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
    """What a workload uses, by the resources of quotas."""
    found = {f"requests.{resource}": amount for resource, amount in charge.requests}
    found.update((f"limits.{resource}", amount) for resource, amount in charge.limits)
    return {**found, COUNT: 1}


def usage(quota: Quota, charges: t.Iterable[Charge]) -> list[Usage]:
    """The usage of each resource of a quota."""
    counted = [(one.workload, amounts(one)) for one in charges if counts(quota, one.member)]
    found = []
    for resource, hard in quota.hard:
        parts = tuple((name, own[resource]) for name, own in counted if own.get(resource))
        found.append(Usage(resource, sum(amount for dummy, amount in parts), hard, parts))
    return found


class Excess(NamedTuple):
    """A quota that a workload would exceed: what the others use of it, and what the workload asks for."""

    quota: str
    resource: str
    used: int
    asked: int
    hard: int
    parts: tuple[tuple[str, int], ...]


def exceeded(tenant: Tenant, others: t.Sequence[Charge], asked: Charge, before: t.Optional[Charge]) -> list[Excess]:
    """The quotas that a workload would exceed. What it had ``before`` it keeps, whatever the quota is now."""
    wanted = amounts(asked)
    found = []
    for quota in tenant.quotas:
        if not counts(quota, asked.member):
            continue
        had = amounts(before) if before is not None and counts(quota, before.member) else {}
        for one in usage(quota, others):
            more = wanted.get(one.resource, 0)
            if more > had.get(one.resource, 0) and one.used + more > one.hard:
                found.append(Excess(quota.name, one.resource, one.used, more, one.hard, one.parts))
    return found


def to_be_named(tenant: Tenant, member: Member) -> list[tuple[str, str]]:
    """What a workload has to name, and the quota that counts it: ``("limits.memory", "compute")``."""
    found: dict[str, str] = {}
    for quota in tenant.quotas:
        if counts(quota, member):
            for resource, dummy in quota.hard:
                if resource in NAMED:
                    found.setdefault(resource, quota.name)
    return list(found.items())


def hard_limit(tenant: Tenant, resource: str) -> t.Optional[int]:
    """The least of a resource that the quotas give which count every workload; None where none of them limits it."""
    found = [
        dict(quota.hard)[resource] for quota in tenant.quotas if not quota.selectors and resource in dict(quota.hard)
    ]
    return min(found) if found else None


def amount_text(resource: str, amount: int) -> str:
    """An amount of a resource of a quota, as a profile writes it."""
    base = resource.partition(".")[2]
    return str(amount) if resource == COUNT else resources.amount_text(base, amount)


def holders_text(resource: str, parts: t.Iterable[tuple[str, int]]) -> str:
    """How much each workload has: ``a has 4, b has 2``."""
    return ", ".join(f"{name} has {amount_text(resource, amount)}" for name, amount in sorted(parts))
