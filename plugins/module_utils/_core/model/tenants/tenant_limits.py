# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# This module is private to the collection corral.node.
"""The limits of a tenant's single workloads (Kubernetes' LimitRange): defaults for a workload, and why the limits refuse a workload."""

from __future__ import annotations

import typing as t

from ..profile.profile_workloads import APP, Container, Workload
from ..values.records import NamedTuple
from ..workload.resource_requirements import amounts_of
from ..workload.resources import CPU, PIDS, amount_text
from .tenant import CONTAINER, POD, Defaults, LimitRange, Tenant

REQUESTS, LIMITS = "requests", "limits"


class Violation(NamedTuple):
    """Why limits refuse a workload: the workload's key, the value of the key (None: not declared), and the message."""

    key: str
    value: t.Optional[str]
    message: str


def effective(limits: LimitRange) -> LimitRange:
    """The limits of containers with the resulting defaults (Kubernetes 1.36, SetDefaults_LimitRangeItem).

    A missing default limit is the maximum. A missing default request is the default limit, else the minimum. Tasks have limits, but no
    requests.
    """
    default = {**dict(limits.max), **dict(limits.default)}
    request = {**dict(limits.min), **default, **dict(limits.default_request)}
    request.pop(PIDS, None)
    return limits._replace(default=tuple(sorted(default.items())), default_request=tuple(sorted(request.items())))


def members_of(workload: Workload) -> tuple[Container, ...]:
    """The containers of a pod; for any other workload, the workload itself as a container without a name."""
    return workload.containers or (Container("", APP, workload.requests, workload.limits),)


def defaults_for(workload: Workload, tenant: Tenant) -> Defaults:
    """The tenant's defaults for requests and limits that a workload does not declare.

    If a workload declares only a limit, its request already equals this limit.
    """
    limits = effective(tenant.limit_range(CONTAINER))
    defaults = []
    for container in members_of(workload):
        for section, own, given in (
            (REQUESTS, container.requests, limits.default_request),
            (LIMITS, container.limits, limits.default),
        ):
            there = dict(own)
            defaults += [(container.name, section, name, amount) for name, amount in given if name not in there]
    return tuple(defaults)


def with_defaults(workload: Workload, defaults: Defaults) -> Workload:
    """The workload with these defaults for amounts that the workload does not declare."""
    if not defaults:
        return workload
    filled = tuple(
        container._replace(requests=merged(container, REQUESTS, defaults), limits=merged(container, LIMITS, defaults))
        for container in members_of(workload)
    )
    if workload.containers:
        return workload._replace(containers=filled)
    return workload._replace(requests=filled[0].requests, limits=filled[0].limits)


def merged(container: Container, section: str, defaults: Defaults) -> tuple[tuple[str, int], ...]:
    """A section (requests or limits) of a container, completed with the container's defaults."""
    given = {name: amount for who, where, name, amount in defaults if (who, where) == (container.name, section)}
    given.update(container.requests if section == REQUESTS else container.limits)
    return tuple(sorted(given.items()))


def violations(workload: Workload, tenant: Tenant) -> list[Violation]:
    """Why the tenant's limits refuse a workload with its defaults; an empty list if the limits admit the workload."""
    refusals: list[Violation] = []
    for index, container in enumerate(members_of(workload)):
        at = f"containers[{index}]." if workload.containers else ""
        what = f"container {container.name}" if workload.containers else "the workload"
        requests, limits = dict(container.requests), dict(container.limits)
        refusals += above_limit(at, f"tenant {tenant.name}: {what}", requests, limits)
        refusals += of_range(at, f"tenant {tenant.name}: {what}", tenant.limit_range(CONTAINER), requests, limits)
    sums = [
        amounts_of([(member.role, dict(getattr(member, section))) for member in members_of(workload)])
        for section in (REQUESTS, LIMITS)
    ]
    return [*refusals, *of_range("", f"tenant {tenant.name}: the workload as a whole", tenant.limit_range(POD), *sums)]


def above_limit(at: str, who: str, requests: t.Mapping[str, int], limits: t.Mapping[str, int]) -> t.Iterator[Violation]:
    """The violations by requests that are above their limit, such as a declared request above a default limit."""
    for resource, request in requests.items():
        limit = limits.get(resource)
        if limit is not None and request > limit:
            request_text, limit_text = amount_text(resource, request), amount_text(resource, limit)
            message = f"{who} requests {resource} {request_text}, and its limit is {limit_text}: write a limit of its own, or request less"
            yield Violation(f"{at}requests.{resource}", request_text, message)


def of_range(
    at: str, who: str, limits: LimitRange, requests: t.Mapping[str, int], own: t.Mapping[str, int]
) -> t.Iterator[Violation]:
    """The violations of a LimitRange (Kubernetes 1.36, limitranger: minConstraint, maxConstraint, limitRequestRatioConstraint)."""
    where = f"limits of type {limits.kind}"
    # above_limit() has checked for each container that no limit is below its request.
    for resource, least in limits.min:
        section, amount = (LIMITS, own.get(resource)) if resource == PIDS else (REQUESTS, requests.get(resource))
        if amount is None:
            message = f"{who} names no {section}.{resource}, and the least is {amount_text(resource, least)} ({where}): write it"
            yield Violation(f"{at}{section}.{resource}", None, message)
        elif amount < least:
            text = amount_text(resource, amount)
            message = f"{who} has {section}.{resource} {text}, the least is {amount_text(resource, least)} ({where}): write more"
            yield Violation(f"{at}{section}.{resource}", text, message)
    for resource, most in limits.max:
        limit = own.get(resource)
        if limit is None:
            message = (
                f"{who} names no limits.{resource}, and the most is {amount_text(resource, most)} ({where}): write it"
            )
            yield Violation(f"{at}limits.{resource}", None, message)
        elif limit > most:
            text = amount_text(resource, limit)
            message = (
                f"{who} has limits.{resource} {text}, the most is {amount_text(resource, most)} ({where}): write less"
            )
            yield Violation(f"{at}limits.{resource}", text, message)
    for resource, ratio in limits.max_limit_request_ratio:
        request, limit = requests.get(resource, 0), own.get(resource, 0)
        allowed = amount_text(CPU, ratio)
        if not limit:  # a declared limit also sets a missing request, so without a request there is no limit
            lacking = "requests" if not request else "limits"
            message = f"{who} names no {lacking}.{resource}, and a limit may be {allowed} times the request ({where}): write both"
            yield Violation(f"{at}{lacking}.{resource}", None, message)
        elif limit * 1000 > ratio * request:
            text, request_text = amount_text(resource, limit), amount_text(resource, request)
            message = (
                f"{who} has limits.{resource} {text} for requests.{resource} {request_text}, at most {allowed} times the "
                f"request ({where}): request more, or lower the limit"
            )
            yield Violation(f"{at}limits.{resource}", text, message)
