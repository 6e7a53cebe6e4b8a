# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# This module is private to the collection corral.node.
"""The section ``tenants`` of a profile: a tenant's members, the limits of each workload, and the quotas of all its workloads together."""

from __future__ import annotations

import typing as t

from ..tenants import tenant
from ..tenants.tenant import CONTAINER, FORBIDDEN, LimitRange, Members, Quota, ScopeSelector, Tenant
from ..values.errors import refusal
from ..values.quantity import NANO, Quantity
from ..workload.match_kinds import BY_MEMBERS, MATCH_KINDS
from ..workload.resources import CPU, HUGEPAGES, PIDS, Amounts, amount_text
from . import profile_workloads
from .profile_workloads import ANY, MILLI, Workload, amount_of, amount_problem
from .schema_quantities import COUNT, split_quota_resource
from .schema_reader import Reader, join
from .section_data import Shape

KINDS = (*BY_MEMBERS, *tenant.BY_SETTING)
AMOUNTS = ("min", "max", "default", "default_request")
RATIO = "max_limit_request_ratio"
# The first amount of each pair must not be larger than the second amount.
ORDER = (
    ("min", "default_request"), ("min", "default"), ("min", "max"),
    ("default_request", "default"), ("default_request", "max"), ("default", "max"),
)  # fmt: skip
OPPOSITES = (
    {tenant.BEST_EFFORT, tenant.NOT_BEST_EFFORT},
    {tenant.TERMINATING, tenant.NOT_TERMINATING},
)


def check(reader: Reader, values: t.Mapping[str, t.Any], dummy_given: t.Mapping[str, t.Any]) -> None:
    """Refuse contradictions."""
    rows = values.get("tenants", [])
    workloads = values.get("workloads", [])
    names = {one.get("name"): index for index, one in enumerate(workloads)}
    seen: dict[str, int] = {}
    for index, row in enumerate(rows):
        at = join("tenants", index)
        name = row.get("name")
        if name in seen:
            reader.refuse(join(at, "name"), name, f"is the name of tenants[{seen[name]}] already: give each its own")
        elif name in names:
            message = (
                f"is the name of workloads[{names[name]}] as well, and both would have one slice: rename one of them"
            )
            reader.refuse(join(at, "name"), name, message)
        if name is not None:
            seen.setdefault(name, index)
        if _is_empty(reader, at, row, "members") and not any(row["members"].get(key) for key in KINDS):
            reader.refuse(join(at, "members"), None, f"names no workload: write one or more of {', '.join(KINDS)}")
        for number, pattern in enumerate(row.get("members", {}).get("units", [])):
            if not pattern.endswith(".service"):
                path = join(join(join(at, "members"), "units"), number)
                reader.refuse(path, pattern, "is not a service, and only services are given resources: name a .service")
        _check_limits(reader, join(at, "limits"), row.get("limits", []))
        _check_quotas(reader, join(at, "quota"), row.get("quota", []))
    _check_apart(reader, rows)
    _check_workloads(reader, rows, workloads)


def _is_empty(reader: Reader, at: str, row: t.Mapping[str, t.Any], key: str) -> bool:
    """Whether a section was declared and no problem was found in the section."""
    return key in row and not _has_problem(reader, join(at, key))


def _has_problem(reader: Reader, path: str) -> bool:
    """Whether a problem was found in a section."""
    return any(problem.path.startswith(path) for problem in reader.problems)


def _check_apart(reader: Reader, rows: t.Sequence[t.Mapping[str, t.Any]]) -> None:
    """Refuse members that would give a workload two tenants."""
    for key in KINDS:
        before: list[tuple[str, int]] = []
        for index, row in enumerate(rows):
            patterns = row.get("members", {}).get(key, [])
            for number, pattern in enumerate(patterns):
                other = next(((text, where) for text, where in before if tenant.meets(key, pattern, text)), None)
                if other is not None:
                    path = f"tenants[{index}].members.{key}[{number}]"
                    message = f"may match what {other[0]} of tenants[{other[1]}] matches: a workload has one tenant, narrow one"
                    reader.refuse(path, pattern, message)
            before += [(pattern, index) for pattern in patterns]


def _check_workloads(
    reader: Reader, rows: t.Sequence[t.Mapping[str, t.Any]], workloads: t.Sequence[t.Mapping[str, t.Any]]
) -> None:
    """Refuse a workload that a tenant covers only in part: all units of a workload must have the same tenant."""
    for index, workload in enumerate(workloads):
        for key, kind in BY_MEMBERS.items():
            pattern = (workload.get("match") or {}).get(kind.key)
            if pattern is None:
                continue
            patterns = [own for row in rows for own in row.get("members", {}).get(key, [])]
            own_row = next((row for row in rows if _covers(row, key, pattern)), None)
            _check_sharing(reader, index, workload, own_row)
            if own_row is not None:
                continue
            partly = next((own for own in patterns if tenant.meets(key, own, pattern)), None)
            if partly is not None:
                path = join(join(join("workloads", index), "match"), kind.key)
                message = f"is in part what a tenant's {partly} matches: narrow it, or widen that one"
                reader.refuse(path, pattern, message)


def _covers(row: t.Mapping[str, t.Any], key: str, pattern: str) -> bool:
    return any(tenant.covers(key, own, pattern) for own in row.get("members", {}).get(key, []))


def _check_sharing(
    reader: Reader, index: int, workload: t.Mapping[str, t.Any], row: t.Optional[t.Mapping[str, t.Any]]
) -> None:
    """Refuse share_process_namespace if it has no effect, or if the workload's tenant (``row``) forbids sharing.

    Corral looks for a workload's containers in the workload's slice. A workload without resources has a slice only in a tenant.
    """
    shared = workload.get("share_process_namespace", ANY)
    path = f"workloads[{index}].share_process_namespace"
    if row is None:
        if shared != ANY and not any(workload.get(key) for key in ("requests", "limits", "containers")):
            reader.refuse(
                path, shared, "is looked for in the slice of the workload: write requests, limits or containers"
            )
    elif shared == "true" and not row.get("share_process_namespace", True):
        reader.refuse(path, shared, f"tenant {row.get('name')} {FORBIDDEN}: leave it out")


def _check_limits(reader: Reader, path: str, rows: t.Sequence[t.Mapping[str, t.Any]]) -> None:
    kinds: dict[str, int] = {}
    for index, row in enumerate(rows):
        at = join(path, index)
        kind = row.get("type")
        if kind in kinds:
            reader.refuse(join(at, "type"), kind, f"is in {path}[{kinds[kind]}] already: write both as one")
        elif kind is not None:
            kinds[kind] = index
        whole = kind is not None and kind != CONTAINER
        for key in ("default", "default_request"):
            if whole and row.get(key):
                message = "only containers have defaults (Kubernetes' rule): write it in the limits of type container"
                reader.refuse(join(at, key), None, message)
        for key in ("default_request", RATIO):
            if PIDS in row.get(key, {}):
                message = "tasks are limited only: write min, max or default"
                reader.refuse(join(join(at, key), PIDS), row[key][PIDS].text, message)
        refused = {problem.path for problem in reader.problems}
        for key in AMOUNTS:
            for resource, amount in row.get(key, {}).items():
                where, said = join(join(at, key), resource), amount_problem(resource, amount)
                if said and where not in refused:
                    reader.refuse(where, amount.text, said)
        if not any(row.get(key) for key in (*AMOUNTS, RATIO)) and not _has_problem(reader, at):
            reader.refuse(at, None, f"limits nothing: write one or more of {', '.join((*AMOUNTS, RATIO))}")
        _check_order(reader, at, row)
        _check_ratios(reader, at, row)


def _check_order(reader: Reader, at: str, row: t.Mapping[str, t.Any]) -> None:
    for lower, upper in ORDER:
        for resource, amount in row.get(lower, {}).items():
            most = row.get(upper, {}).get(resource)
            if most is not None and amount.nano > most.nano:
                message = f"is more than {upper} ({reader.written(join(join(at, upper), resource))}): the order is min, default_request, default, max"
                reader.refuse(join(join(at, lower), resource), amount.text, message)
    for resource, amount in row.get("default_request", {}).items():
        limit = row.get("default", {}).get(resource)
        if resource.startswith(HUGEPAGES) and limit is not None and limit.nano > amount.nano:
            shown = reader.written(join(join(at, "default"), resource))
            message = f"hugepages cannot be overcommitted, the default limit is {shown}: write both equal"
            reader.refuse(join(join(at, "default_request"), resource), amount.text, message)


def _check_ratios(reader: Reader, at: str, row: t.Mapping[str, t.Any]) -> None:
    for resource, ratio in row.get(RATIO, {}).items():
        where = join(join(at, RATIO), resource)
        low, high = row.get("min", {}).get(resource), row.get("max", {}).get(resource)
        if ratio.nano < NANO:
            reader.refuse(where, ratio.text, "is less than 1, and no limit is below its request: write 1 or more")
        elif ratio.nano % MILLI:
            reader.refuse(where, ratio.text, "is finer than a thousandth: write it as in 1.5")
        elif low is not None and high is not None and low.nano > 0 and ratio.nano * low.nano > high.nano * NANO:
            most, least = (reader.written(join(join(at, key), resource)) for key in ("max", "min"))
            message = f"is more than max / min ({most} / {least}), so it never counts: write less, or leave it out"
            reader.refuse(where, ratio.text, message)


def _check_quotas(reader: Reader, path: str, rows: t.Sequence[t.Mapping[str, t.Any]]) -> None:
    names: dict[str, int] = {}
    for index, row in enumerate(rows):
        at = join(path, index)
        name = row.get("name")
        if name in names:
            reader.refuse(join(at, "name"), name, f"is the name of {path}[{names[name]}] already: give each its own")
        elif name is not None:
            names[name] = index
        hard = row.get("hard", {})
        if _is_empty(reader, at, row, "hard") and not hard:
            reader.refuse(
                join(at, "hard"), None, "limits nothing: name a resource, as in {requests.cpu: 4, count/workloads: 10}"
            )
        for resource, amount in hard.items():
            said = _hard_problem(resource, amount)
            if said:
                reader.refuse(join(join(at, "hard"), resource), amount.text, said)
        selectors = _check_selectors(reader, at, row)
        scopes = {scope for scope, dummy in selectors}
        for pair in OPPOSITES:
            if pair <= scopes:
                message = f"{' and '.join(sorted(pair))} exclude each other, no workload has both: leave one out"
                reader.refuse(join(at, "scopes"), None, message)
        others = [resource for resource in hard if resource != COUNT]
        if tenant.BEST_EFFORT in scopes and others:
            message = f"a workload of class BestEffort has no requests or limits to count: write {COUNT} alone"
            reader.refuse(join(join(at, "hard"), others[0]), hard[others[0]].text, message)


def _hard_problem(resource: str, amount: Quantity) -> str:
    section, base = split_quota_resource(resource)
    if section == "requests" and base == PIDS:
        return "tasks are limited only: write limits.pids"
    if amount.nano < 0:
        return "is negative: write 0 or more"
    if amount.nano == 0:
        return ""
    if resource == COUNT or "/" in base:
        return "" if amount.is_whole() else "is not a whole number: write it as 10"
    return amount_problem(base, amount)


def _check_selectors(reader: Reader, at: str, row: t.Mapping[str, t.Any]) -> list[tuple[str, str]]:
    found = [(scope, tenant.EXISTS) for scope in row.get("scopes", [])]
    for index, one in enumerate(row.get("scope_selector", [])):
        where = join(join(at, "scope_selector"), index)
        scope, operator, listed = one.get("scope"), one.get("operator"), one.get("values", [])
        if scope is None or operator is None:
            continue
        found.append((scope, operator))
        if scope != tenant.PRIORITY_CLASS and operator != tenant.EXISTS:
            reader.refuse(
                join(where, "operator"), operator, f"{scope} has no values: write Exists, or name it in scopes"
            )
        elif operator in (tenant.IN, tenant.NOT_IN) and not listed:
            reader.refuse(
                join(where, "values"), None, f"{operator} compares with values: write it as in values: [high]"
            )
        elif operator in (tenant.EXISTS, tenant.DOES_NOT_EXIST) and listed:
            reader.refuse(join(where, "values"), None, f"{operator} compares with nothing: leave values out")
    return found


def _quota(name: str, hard: Amounts, scopes: tuple[str, ...] = (), selectors: tuple[ScopeSelector, ...] = ()) -> Quota:
    return Quota(name, hard, (*map(ScopeSelector, scopes), *selectors))


def _hard_data(hard: Amounts) -> dict[str, str]:
    from ..tenants.tenant_quota import amount_text as quota_text  # A node without tenants does not load this module.

    return {name: quota_text(name, amount) for name, amount in hard}


SHAPES = {
    "tenants": Tenant,
    "tenants[].members": Members,
    "tenants[].limits": LimitRange,
    **{f"tenants[].limits[].{key}": profile_workloads.AMOUNTS for key in AMOUNTS},
    f"tenants[].limits[].{RATIO}": Shape(
        lambda ratios: tuple(sorted((name, ratio.milli()) for name, ratio in ratios.items())),
        lambda ratios: {name: amount_text(CPU, ratio) for name, ratio in ratios},
    ),
    "tenants[].quota": _quota,
    "tenants[].quota[].hard": Shape(
        lambda hard: tuple(
            sorted((name, amount_of(split_quota_resource(name)[1], amount)) for name, amount in hard.items())
        ),
        _hard_data,
    ),
    "tenants[].quota[].scope_selector": ScopeSelector,
}


def refuse_workload(tenants: t.Iterable[Tenant], workload: Workload) -> None:
    """Raise CorralError if a workload outside the profile has a tenant's name, or belongs to a tenant only in part."""
    name = profile_workloads.slice_name(workload.name)
    if name in {profile_workloads.slice_name(one.name) for one in tenants}:
        message = "is the name of a tenant, and both would have one slice: write another"
        raise refusal(message, path="name", value=workload.name)
    if is_member(tenants, workload):
        return
    key = MATCH_KINDS[workload.match].members
    patterns = (own for one in tenants for own in getattr(one.members, key))
    partly = next((own for own in patterns if tenant.meets(key, own, workload.pattern)), None)
    if partly is not None:
        message = f"is in part what a tenant's {partly} matches: narrow it"
        raise refusal(message, path=f"match.{workload.match}", value=workload.pattern)


def is_member(tenants: t.Iterable[Tenant], workload: Workload) -> bool:
    """Whether a workload belongs to a tenant by its match."""
    return tenant.declared_tenant(tenants, workload.match, workload.pattern) is not None
