# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# This module is private to the collection corral.node.
"""Tenants: groups of workloads with limits for each workload, and quotas for all workloads together.

As in Kubernetes a ``LimitRange`` limits single workloads, and a ``Quota`` (ResourceQuota) their sum.
"""

from __future__ import annotations

import re
import typing as t

from ..values.records import NamedTuple
from ..workload.match_kinds import MATCH_KINDS
from ..workload.resources import Amounts

CONTAINER, POD = "container", "pod"
BEST_EFFORT, NOT_BEST_EFFORT = "BestEffort", "NotBestEffort"
TERMINATING, NOT_TERMINATING = "Terminating", "NotTerminating"
PRIORITY_CLASS = "PriorityClass"
SCOPES = (BEST_EFFORT, NOT_BEST_EFFORT, TERMINATING, NOT_TERMINATING, PRIORITY_CLASS)
IN, NOT_IN, EXISTS, DOES_NOT_EXIST = "In", "NotIn", "Exists", "DoesNotExist"
OPERATORS = (IN, NOT_IN, EXISTS, DOES_NOT_EXIST)

# The keys of a tenant's members with patterns for a setting of a workload's unit. Each other key is for a kind of match.
BY_SETTING = {"slices": "Slice", "users": "User"}

# Why a tenant forbids its containers to share a PID namespace: pid_namespaces(7), ptrace(2).
FORBIDDEN = (
    "forbids it: processes of one container could see and signal those of the others, with CAP_SYS_PTRACE also read their "
    "memory, and in the host's PID namespace those of the whole node"
)

# The defaults that a workload has from its tenant: container ("": no containers), section, resource, amount.
Defaults = tuple[tuple[str, str, str, int], ...]


class Members(NamedTuple):
    """The patterns of a tenant's workloads; a workload that one pattern matches belongs to the tenant."""

    units: tuple[str, ...] = ()
    containers: tuple[str, ...] = ()
    pods: tuple[str, ...] = ()
    labels: tuple[str, ...] = ()
    slices: tuple[str, ...] = ()
    users: tuple[str, ...] = ()


class LimitRange(NamedTuple):
    """The limits of each container, or of each workload as a whole (``kind`` pod). The ratio is in thousandths."""

    kind: str
    min: Amounts = ()
    max: Amounts = ()
    default: Amounts = ()
    default_request: Amounts = ()
    max_limit_request_ratio: Amounts = ()


class ScopeSelector(NamedTuple):
    """A condition on the workloads that a quota counts."""

    scope: str
    operator: str = EXISTS
    values: tuple[str, ...] = ()


class Quota(NamedTuple):
    """Limits (``hard``) on the sum of the workloads that meet all ``selectors``, by resource: ``requests.cpu``, ``count/workloads``."""

    name: str
    hard: Amounts
    selectors: tuple[ScopeSelector, ...] = ()


class Tenant(NamedTuple):
    """A group of workloads; if ``share_process_namespace`` is False, their containers must not share a PID namespace."""

    name: str
    members: Members
    limits: tuple[LimitRange, ...] = ()
    quotas: tuple[Quota, ...] = ()
    share_process_namespace: bool = True

    def limit_range(self, kind: str) -> LimitRange:
        """The limits of containers, or of workloads as a whole."""
        return next((limits for limits in self.limits if limits.kind == kind), LimitRange(kind))


class Member(NamedTuple):
    """What a tenant's quota knows of a workload besides its requests and limits; ``terminating``: its run time is limited."""

    tenant: str
    qos: str = BEST_EFFORT
    priority: str = ""
    terminating: bool = False
    defaults: Defaults = ()


def named(tenants: t.Iterable[Tenant], name: str) -> t.Optional[Tenant]:
    """The tenant with this name; None if there is no such tenant."""
    return next((one for one in tenants if one.name == name), None)


def declared_tenant(tenants: t.Iterable[Tenant], match: str, pattern: str) -> t.Optional[str]:
    """The tenant to which a workload belongs by its match; None if it has no tenant."""
    kind = MATCH_KINDS[match]
    key = kind.members
    if kind.is_unit and not pattern.endswith(".service"):
        return None
    names = (one.name for one in tenants if any(covers(key, own, pattern) for own in getattr(one.members, key)))
    return next(names, None)


def tenants_of_unit(tenants: t.Iterable[Tenant], slice_name: str, user: str) -> list[str]:
    """The tenants to which a unit with this Slice= and User= belongs; "" stands for a missing setting."""
    return [
        tenant.name
        for tenant in tenants
        if any(within(slice_name, own) for own in tenant.members.slices) or (user and user in tenant.members.users)
    ]


def within(slice_name: str, outer: str) -> bool:
    """Whether a slice is ``outer`` or within it: dashes nest slices (systemd.slice(5))."""
    return slice_name == outer or slice_name.startswith(f"{outer[: -len('.slice')]}-")


def covers(key: str, own: str, pattern: str) -> bool:
    """Whether a tenant's pattern ``own`` matches everything that ``pattern`` matches."""
    if key == "labels":
        return pattern == own or pattern.startswith(f"{own}=")
    if not is_glob(own):  # quick for most patterns: a node may have hundreds, each compared with all others
        return own == pattern
    # ? in ``own`` matches one character, but not the * of ``pattern``, which stands for any number of characters.
    parts = {"*": ".*", "?": "[^*]"}
    return re.fullmatch("".join(parts.get(char) or re.escape(char) for char in own), pattern) is not None


def meets(key: str, first: str, second: str) -> bool:
    """Whether two patterns may match the same thing."""
    if key == "slices":
        return within(first, second) or within(second, first)
    if key == "users":
        return first == second
    if key == "labels":
        return covers(key, first, second) or covers(key, second, first)
    return globs_meet(first, second)


def match_meets(match: str, first: str, second: str) -> bool:
    """Whether two workloads of one kind of match may match the same thing."""
    return meets(MATCH_KINDS[match].members, first, second)


def globs_meet(first: str, second: str) -> bool:
    """Whether there is a text that two patterns with ``*`` and ``?`` both match."""
    if not (is_glob(first) and is_glob(second)):
        return covers("", first, second) or covers("", second, first)
    # The positions in the second pattern that a matching text can have reached, after each character of the first pattern.
    places = reached({0}, second)
    for char in first:
        if char == "*":
            places = set(range(min(places), len(second) + 1)) if places else places
        else:
            stay = {at for at in places if at < len(second) and second[at] == "*"}
            step = {
                at + 1
                for at in places
                if at < len(second) and second[at] != "*" and (second[at] in (char, "?") or char == "?")
            }
            places = reached(stay | step, second)
    return len(second) in places


def reached(places: set[int], pattern: str) -> set[int]:
    """These positions in a pattern, and the positions behind each ``*`` that follows: a ``*`` may match nothing."""
    follow = set(places)
    for at in sorted(places):
        while at < len(pattern) and pattern[at] == "*":
            at += 1
            follow.add(at)
    return follow


def is_glob(pattern: str) -> bool:
    """Whether a pattern may match several texts."""
    return "*" in pattern or "?" in pattern
