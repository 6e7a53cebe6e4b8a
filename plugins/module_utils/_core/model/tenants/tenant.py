# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# This module is private to the collection corral.node.
"""Tenants: groups of workloads with limits for each workload, and quotas for all workloads of a tenant together.

As in Kubernetes a ``LimitRange`` limits each workload, and a ``Quota`` (ResourceQuota) the sum of the workloads.
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

# The keys of a tenant's members that match a setting of a workload's unit, each with the setting. All other keys are for a kind of match.
BY_SETTING = {"slices": "Slice", "users": "User"}

# The second half of a refusal: why containers of a tenant must not share a PID namespace. See pid_namespaces(7), ptrace(2).
FORBIDDEN = (
    "forbids it: processes of one container could see and signal those of the others, with CAP_SYS_PTRACE also read their "
    "memory, and in the host's PID namespace those of the whole node"
)

# The defaults that a workload gets from its tenant: container (empty for a workload without containers), section, resource, amount.
Defaults = tuple[tuple[str, str, str, int], ...]


class Members(NamedTuple):
    """The patterns of a tenant's workloads. A workload belongs to the tenant if at least one pattern matches the workload."""

    units: tuple[str, ...] = ()
    containers: tuple[str, ...] = ()
    pods: tuple[str, ...] = ()
    labels: tuple[str, ...] = ()
    slices: tuple[str, ...] = ()
    users: tuple[str, ...] = ()


class LimitRange(NamedTuple):
    """The limits of each container (``kind`` container), or of each workload as a whole (``kind`` pod). The ratio is in thousandths."""

    kind: str
    min: Amounts = ()
    max: Amounts = ()
    default: Amounts = ()
    default_request: Amounts = ()
    max_limit_request_ratio: Amounts = ()


class ScopeSelector(NamedTuple):
    """A condition that a workload must meet to count in a quota."""

    scope: str
    operator: str = EXISTS
    values: tuple[str, ...] = ()


class Quota(NamedTuple):
    """Limits (``hard``) by resource (``requests.cpu``, ``count/workloads``) on the sum of the workloads that meet all ``selectors``."""

    name: str
    hard: Amounts
    selectors: tuple[ScopeSelector, ...] = ()


class Tenant(NamedTuple):
    """A group of workloads. ``share_process_namespace`` False: the containers of a workload must not share a PID namespace."""

    name: str
    members: Members
    limits: tuple[LimitRange, ...] = ()
    quotas: tuple[Quota, ...] = ()
    share_process_namespace: bool = True

    def limit_range(self, kind: str) -> LimitRange:
        """The tenant's limits of the kind ``kind`` (container or pod); an empty LimitRange if the tenant declares no such limits."""
        return next((limits for limits in self.limits if limits.kind == kind), LimitRange(kind))


class Member(NamedTuple):
    """A workload's data for its tenant's quotas, besides requests and limits. ``terminating``: the workload's run time is limited."""

    tenant: str
    qos: str = BEST_EFFORT
    priority: str = ""
    terminating: bool = False
    defaults: Defaults = ()


def named(tenants: t.Iterable[Tenant], name: str) -> t.Optional[Tenant]:
    """The tenant with this name; None if there is no such tenant."""
    return next((one for one in tenants if one.name == name), None)


def declared_tenant(tenants: t.Iterable[Tenant], match: str, pattern: str) -> t.Optional[str]:
    """The name of the tenant to which a workload belongs by its match; None for a workload without a tenant."""
    kind = MATCH_KINDS[match]
    key = kind.members
    if kind.is_unit and not pattern.endswith(".service"):
        return None
    names = (one.name for one in tenants if any(covers(key, own, pattern) for own in getattr(one.members, key)))
    return next(names, None)


def tenants_of_unit(tenants: t.Iterable[Tenant], slice_name: str, user: str) -> list[str]:
    """The names of the tenants to which a unit with this Slice= and User= belongs; an empty string means a missing setting."""
    return [
        tenant.name
        for tenant in tenants
        if any(within(slice_name, own) for own in tenant.members.slices) or (user and user in tenant.members.users)
    ]


def within(slice_name: str, outer: str) -> bool:
    """Whether a slice is the slice ``outer``, or is nested in ``outer``: dashes nest slices (systemd.slice(5))."""
    return slice_name == outer or slice_name.startswith(f"{outer[: -len('.slice')]}-")


def covers(key: str, own: str, pattern: str) -> bool:
    """Whether a tenant's pattern ``own`` matches every name that ``pattern`` matches; ``key`` is the kind of both patterns."""
    if key == "labels":
        return pattern == own or pattern.startswith(f"{own}=")
    if not is_glob(own):  # quick for most patterns: a node may have hundreds of patterns, each compared with all others
        return own == pattern
    # A ? in ``own`` matches one character, but not a * in ``pattern``, which stands for any number of characters.
    parts = {"*": ".*", "?": "[^*]"}
    return re.fullmatch("".join(parts.get(char) or re.escape(char) for char in own), pattern) is not None


def meets(key: str, first: str, second: str) -> bool:
    """Whether two patterns may match the same name; ``key`` is the kind of both patterns."""
    if key == "slices":
        return within(first, second) or within(second, first)
    if key == "users":
        return first == second
    if key == "labels":
        return covers(key, first, second) or covers(key, second, first)
    return globs_meet(first, second)


def match_meets(match: str, first: str, second: str) -> bool:
    """Whether two workloads whose match has the key ``match`` may match the same name."""
    return meets(MATCH_KINDS[match].members, first, second)


def globs_meet(first: str, second: str) -> bool:
    """Whether there is a text that two patterns with ``*`` and ``?`` both match."""
    if not (is_glob(first) and is_glob(second)):
        return covers("", first, second) or covers("", second, first)
    # After each character of the first pattern: the positions in the second pattern that a text for both patterns can have reached.
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
    """The positions ``places``, and the positions behind each ``*`` at these positions: a ``*`` may match no character."""
    follow = set(places)
    for at in sorted(places):
        while at < len(pattern) and pattern[at] == "*":
            at += 1
            follow.add(at)
    return follow


def is_glob(pattern: str) -> bool:
    """Whether a pattern may match several texts."""
    return "*" in pattern or "?" in pattern
