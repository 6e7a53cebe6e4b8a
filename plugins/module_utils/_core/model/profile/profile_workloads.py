# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# This module is private to the collection corral.node.
"""The section ``workloads`` of a profile: how workloads are matched, and their requests and limits.

Amounts are whole numbers: CPUs in thousandths, memory and hugepages in bytes, pids in tasks, devices as their number. A missing request
equals its limit, as in the kubelet; a missing limit of devices equals the request.
"""

from __future__ import annotations

import re
import typing as t

from ..values import sizes
from ..values.quantity import NANO, Quantity
from ..values.records import NamedTuple
from ..workload.match_kinds import MATCH_KINDS
from ..workload.resources import CPU, HUGEPAGES, MEMORY, PIDS, Amounts, amount_text, is_device, page_bytes
from . import schema, section_data
from . import schema_types as types
from .schema_quantities import LEAST_MEMORY, TOO_LITTLE
from .schema_reader import Reader, join
from .section_data import Shape

# How long a grant lasts: as long as the workload is declared, or as long as one run of the workload.
DECLARED, RUNNING = "declared", "running"
ANY = "any"
APP, INIT, SIDECAR = "app", "init", "sidecar"
MILLI = NANO // 1000
ISOLATED_POOL = "isolated"  # a part of the name of the isolated pool's slice
_PLAIN = re.compile(r"[^A-Za-z0-9:_.]")
_INSTANCE = re.compile(r"[^A-Za-z0-9:_.@\\]")


class Container(NamedTuple):
    """A container of a pod: its kind (app, init or sidecar), and its requests and limits."""

    name: str
    role: str
    requests: Amounts = ()
    limits: Amounts = ()


class Workload(NamedTuple):
    """A workload: its match (a key of MATCH_KINDS, and a pattern), how long its grant lasts (``hold``), and its requests and limits.

    A profile has ``match`` and ``pattern`` as declared; in the result of ``allocate_workloads.expanded`` they name one unit. ``template``:
    the template unit of which every instance is such a workload (empty: a single workload). ``priority``: a name by which quotas of tenants
    select workloads. ``share_process_namespace``: whether the containers share a PID namespace (None: both are allowed).
    """

    name: str
    match: str
    pattern: str
    hold: str = DECLARED
    requests: Amounts = ()
    limits: Amounts = ()
    containers: tuple[Container, ...] = ()
    template: str = ""
    priority: str = ""
    share_process_namespace: t.Optional[bool] = None

    @property
    def matched(self) -> tuple[str, str]:
        """The workload's match: the key and the pattern."""
        return self.match, self.pattern

    @property
    def is_unit(self) -> bool:
        """Whether the workload is a service of systemd."""
        return MATCH_KINDS[self.match].is_unit

    @property
    def unit(self) -> str:
        """The name or pattern of the workload's service; an empty string for a workload that is no service."""
        return self.pattern if self.is_unit else ""

    @property
    def owner(self) -> Workload:
        """The workload with its name and match only: the owner of the workload's containers."""
        return Workload(*self[:3])

    @property
    def has_resources(self) -> bool:
        """Whether the workload declares requests, limits or containers; without any, the declaration only gives the workload a name."""
        return bool(self.requests or self.limits or self.containers)

    @property
    def is_template(self) -> bool:
        """Whether the workload stands for all instances of its template, also for instances that never ran."""
        return bool(self.template) and self.pattern == self.template

    @property
    def is_glob(self) -> bool:
        """Whether the workload's pattern may match several units."""
        return "*" in self.pattern or "?" in self.pattern


def check(reader: Reader, values: t.Mapping[str, t.Any], given: t.Mapping[str, t.Any]) -> None:
    """Refuse contradictions. ``given`` is the profile as written."""
    rows = given.get("workloads")
    seen: dict[str, int] = {}
    patterns: dict[tuple[str, str], int] = {}
    for index, workload in enumerate(values.get("workloads", [])):
        at = join("workloads", index)
        name = workload.get("name")
        if name in seen:
            reader.refuse(join(at, "name"), name, f"is the name of workloads[{seen[name]}] already: give each its own")
        elif name is not None:
            seen[name] = index
        as_written = rows[index] if isinstance(rows, (list, tuple)) and index < len(rows) else None
        match = as_written.get("match") if isinstance(as_written, dict) else None
        if isinstance(match, dict):
            reader.one_of(join(at, "match"), match, tuple(MATCH_KINDS))
        _check_sharing(reader, at, workload)
        _check_claim(reader, at, workload, patterns, index)


def _check_sharing(reader: Reader, at: str, workload: t.Mapping[str, t.Any]) -> None:
    shared = workload.get("share_process_namespace", ANY)
    if shared != ANY and "unit" in (workload.get("match") or {}):
        path = join(at, "share_process_namespace")
        reader.refuse(path, shared, "belongs to a pod or to containers: match a pod, container or label")


def _check_claim(
    reader: Reader, at: str, workload: t.Mapping[str, t.Any], patterns: dict[tuple[str, str], int], index: int
) -> None:
    match = workload.get("match") or {}
    key = next((key for key in MATCH_KINDS if key in match), "")
    containers = workload.get("containers", [])
    if not (workload.get("requests") or workload.get("limits") or containers):
        return
    pattern = str(match.get(key, ""))
    if not pattern:
        return  # A match without a pattern is refused elsewhere.
    kind, path = MATCH_KINDS[key], join(join(at, "match"), key)
    if (key, pattern) in patterns:
        other = patterns[key, pattern]
        reader.refuse(path, pattern, f"is what workloads[{other}] matches: one of them can have it")
    patterns.setdefault((key, pattern), index)
    if kind.is_unit and not pattern.endswith(".service"):
        reader.refuse(path, pattern, "only services are given resources of their own: name a .service")
    if kind.is_unit and pattern.startswith("corral-"):
        reader.refuse(path, pattern, "is Corral's own, which no grant may wait for")
    if containers and not kind.has_containers:
        reader.refuse(join(at, "containers"), None, "belong to a pod: match a pod, or write requests and limits")
    elif containers and (workload.get("requests") or workload.get("limits")):
        reader.refuse(
            at, None, "declares containers and requests or limits of its own: write them at the containers alone"
        )
    _check_amounts(reader, at, workload)
    names = set()
    for number, container in enumerate(containers):
        inner = join(join(at, "containers"), number)
        if container.get("name") in names:
            reader.refuse(join(inner, "name"), container["name"], "is in this pod twice: give each its own name")
        names.add(container.get("name"))
        _check_amounts(reader, inner, container)


def _check_amounts(reader: Reader, at: str, values: t.Mapping[str, t.Any]) -> None:
    requests, limits = values.get("requests", {}), values.get("limits", {})
    for section, amounts in (("requests", requests), ("limits", limits)):
        for resource, amount in amounts.items():
            said = amount_problem(resource, amount)
            if said:
                reader.refuse(join(join(at, section), resource), amount.text, said)
    if PIDS in requests:
        reader.refuse(
            join(join(at, "requests"), PIDS), requests[PIDS].text, "tasks are limited only: write it in limits"
        )
    for resource, amount in requests.items():
        limit = limits.get(resource)
        path, other = join(join(at, "requests"), resource), join(join(at, "limits"), resource)
        if resource.startswith(HUGEPAGES) and (limit is None or limit.nano != amount.nano):
            shown = "none" if limit is None else reader.written(other)
            reader.refuse(
                path, amount.text, f"hugepages cannot be overcommitted, the limit is {shown}: write both equal"
            )
        elif is_device(resource) and limit is not None and limit.nano != amount.nano:
            reader.refuse(
                path,
                amount.text,
                f"devices cannot be overcommitted, the limit is {reader.written(other)}: write one of the two",
            )
        elif limit is not None and amount.nano > limit.nano:
            reader.refuse(
                path,
                amount.text,
                f"is more than its limit ({reader.written(other)}): write at most that, or raise the limit",
            )


def amount_problem(resource: str, amount: Quantity) -> str:
    """What is wrong with an amount of a resource, and what to write; an empty string for a valid amount."""
    if amount.nano <= 0:
        return "is not more than 0: leave it out"
    if resource == CPU:
        return "" if amount.nano % MILLI == 0 else "is finer than a thousandth of a CPU: write it as 1500m or 2"
    if is_device(resource):
        return "" if amount.is_whole() else "is not a whole number: devices are given as a whole, write it as 1"
    if not amount.is_whole():
        return "is not a whole number" + (" of bytes: write it as 512Mi" if resource != PIDS else ": write it as 512")
    if resource == MEMORY and amount.value() < LEAST_MEMORY:
        return TOO_LITTLE
    if resource.startswith(HUGEPAGES):
        page = page_bytes(resource)
        if amount.value() % page:
            return f"is not a whole number of pages: write a multiple of {sizes.size_text(page)}"
    return ""


def amount_of(resource: str, quantity: Quantity) -> int:
    """A quantity as a whole number of the resource's units."""
    return quantity.milli() if resource == CPU else quantity.value()


def _workload(matched: tuple[str, str], requests: Amounts = (), limits: Amounts = (), **fields: t.Any) -> Workload:
    requests, limits = _claim(requests, limits)
    return Workload(match=matched[0], pattern=matched[1], requests=requests, limits=limits, **fields)


def _container(name: str, role: str, requests: Amounts = (), limits: Amounts = ()) -> Container:
    return Container(name, role, *_claim(requests, limits))


def _claim(requests: Amounts, limits: Amounts) -> tuple[Amounts, Amounts]:
    """Requests and limits; a missing request equals its limit, a missing limit of devices equals the request."""
    requested = {**{name: limit for name, limit in limits if name != PIDS}, **dict(requests)}
    limited = {**dict(limits), **{name: amount for name, amount in requested.items() if is_device(name)}}
    return tuple(sorted(requested.items())), tuple(sorted(limited.items()))


AMOUNTS = Shape(
    lambda given: tuple(sorted((name, amount_of(name, quantity)) for name, quantity in given.items())),
    lambda amounts: {name: amount_text(name, amount) for name, amount in amounts},
)
SHAPES = {
    "workloads": _workload,
    "workloads[].match": Shape(lambda match: next(iter(match.items())), lambda matched: dict([matched])),
    "workloads[].share_process_namespace": Shape({"true": True, "false": False}.get, types.as_it_is),
    "workloads[].containers": _container,
    **{
        f"workloads[].{path}": AMOUNTS
        for path in ("requests", "limits", "containers[].requests", "containers[].limits")
    },
}


def build(rows: t.Iterable[t.Mapping[str, t.Any]]) -> tuple[Workload, ...]:
    """The workloads of ``rows``, the checked entries of the section."""
    found: tuple[Workload, ...] = section_data.build(rows, schema.TREE["workloads"], SHAPES)
    return found


def to_data(workloads: t.Iterable[Workload]) -> list[dict[str, t.Any]]:
    """The section as plain data, in the form that ``build`` reads."""
    rows: list[dict[str, t.Any]] = section_data.to_data(workloads, schema.TREE["workloads"], SHAPES)
    return rows


def slice_name(workload: str) -> str:
    """A workload's name as it appears in its slice's name. A dash would nest slices (systemd.slice(5), systemd-escape(1)).

    systemd has already escaped the part after the @ of an instance, as in %i, so this part stays; a dash there means a slash. The workload
    name "isolated" is escaped, since the isolated pool's slice has that name.
    """
    if workload == ISOLATED_POOL:
        return f"{_hex(workload[0])}{workload[1:]}"
    stem, at, instance = workload.partition("@")
    escaped = _PLAIN.sub(lambda match: _hex(match.group()), stem)
    if not at:
        return escaped
    kept = _INSTANCE.sub(lambda match: _hex(match.group()), instance.replace("-", _hex("/")))
    return f"{escaped}{_hex(at)}{kept}"


def workload_name(escaped: str) -> t.Optional[str]:
    """The name of the workload for which slice_name() returned ``escaped``; None for other text, such as text with a dash."""
    if "-" in escaped:
        return None
    stem, at, instance = escaped.partition(_hex("@"))
    parts = stem.split("\\x")
    try:
        name = parts[0] + "".join(chr(int(part[:2], 16)) + part[2:] for part in parts[1:])
    except ValueError:
        return None
    return f"{name}@{instance.replace(_hex('/'), '-')}" if at else name


def _hex(char: str) -> str:
    return f"\\x{ord(char):02x}"
