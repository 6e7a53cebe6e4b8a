# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# This module is private to the collection corral.node.
"""Checks between the keys of a profile: keys that exclude each other, and values that must fit into other values.

The schema checks each key alone; pools.py and capacity_check.py check the conditions that depend on the node.
"""

from __future__ import annotations

import typing as t

from ..cpu import cpu_options
from ..numa.topology_manager import SINGLE_NUMA_NODE
from ..values import cpuset
from . import profile_memory, schema, schema_cpu, schema_types
from .schema_reader import Reader, join

Check = t.Callable[[Reader, t.Mapping[str, t.Any], t.Mapping[str, t.Any]], None]


def check(reader: Reader, values: dict[str, t.Any], given: dict[str, t.Any], sections: t.Iterable[Check]) -> None:
    """Refuse keys that exclude each other; ``given`` is the data as it was written, without defaults.

    ``sections`` are the checks of sections that have files of their own.
    """
    _check_cpu(reader, values.get("cpu"), _mapping(given, "cpu"))
    profile_memory.check(reader, values.get("memory", {}), _mapping(given, "memory"))
    _check_pids(reader, values.get("pids", {}), values.get("cpu") or {})
    for section in sections:
        section(reader, values, given)
    _check_alignment(reader, values)


def _mapping(data: dict[str, t.Any], name: str) -> dict[str, t.Any]:
    value = data.get(name)
    return value if isinstance(value, dict) else {}


def _check_cpu(reader: Reader, cpu: dict[str, t.Any] | None, given: dict[str, t.Any]) -> None:
    if not cpu:
        return
    if isinstance(given.get("reserved"), dict):
        reader.one_of("cpu.reserved", given["reserved"], schema.EXACTLY_ONE["cpu.reserved"])
    isolated = given.get("isolated")
    if isinstance(isolated, dict):
        reader.one_of("cpu.isolated", isolated, schema.EXACTLY_ONE["cpu.isolated"])
        where = [name for name in ("numa", "near") if isolated.get(name) is not None]
        if len(where) == 2:
            reader.refuse("cpu.isolated", None, "declares numa and near together: write one of them")
        elif where and isolated.get("cpus") is not None:
            reader.refuse(
                f"cpu.isolated.{where[0]}",
                isolated[where[0]],
                "literal cpus have their place already: leave it out, or write cores",
            )
    _check_overlap(reader, cpu)
    for first, second in cpu_options.forbidden(options_of(cpu)):
        reader.refuse(
            f"cpu.options.{second}", True, f"cannot be combined with {first} (the kubelet's rule): leave one out"
        )
    shared = cpu.get("shared", {}).get("slices", [])
    for index, name in enumerate(shared):
        if name in cpu.get("reserved", {}).get("slices", []):
            reader.refuse(
                f"cpu.shared.slices[{index}]", name, "is in cpu.reserved.slices as well: leave it out of one of them"
            )


def _check_alignment(reader: Reader, values: dict[str, t.Any]) -> None:
    """Refuse contradictions between the sections ``cpu``, ``topology``, ``workloads`` and ``tenants``."""
    cpu, policy = values.get("cpu") or {}, values.get("topology", {}).get("policy")
    if policy == SINGLE_NUMA_NODE and options_of(cpu).align_by_socket:
        path = "cpu.options.align-by-socket"
        reader.refuse(path, True, "cannot be combined with topology.policy single-numa-node: leave one of them out")
    if any(row.get("requests") or row.get("limits") or row.get("containers") for row in values.get("workloads", ())):
        if not cpu and "cpu" not in {problem.path for problem in reader.problems}:
            message = "workloads with requests or limits need the pools of CPUs: declare cpu.reserved"
            reader.refuse("cpu", None, message)
    elif values.get("tenants") and not cpu and "cpu" not in {problem.path for problem in reader.problems}:
        reader.refuse("cpu", None, "the workloads of tenants need the pools of CPUs: declare cpu.reserved")


def options_of(cpu: dict[str, t.Any]) -> cpu_options.Options:
    """The CPU manager's options in a section; a missing option has its default."""
    given = cpu.get("options", {})
    return cpu_options.Options(**{field: given[name] for name, field in cpu_options.NAMES.items() if name in given})


def _check_overlap(reader: Reader, cpu: dict[str, t.Any]) -> None:
    """Refuse literal sets of CPUs that overlap: these sets overlap on every node."""
    reserved = cpu.get("reserved", {}).get("cpus") or frozenset()
    isolated = cpu.get("isolated", {}).get("cpus") or frozenset()
    if reserved & isolated:
        both = cpuset.format(reserved & isolated)
        reader.refuse(
            "cpu.isolated.cpus",
            cpuset.format(isolated),
            f"CPUs {both} are in cpu.reserved.cpus as well: name each CPU in one of them",
        )


def _check_pids(reader: Reader, pids: dict[str, t.Any], cpu: dict[str, t.Any]) -> None:
    """Refuse limits on init.scope and on slices outside the pools, and limits above pid_max or threads_max."""
    housekeeping = cpu.get("reserved", {}).get("slices") or schema_cpu.HOUSEKEEPING_SLICES
    shared = cpu.get("shared", {}).get("slices") or schema_cpu.SHARED_SLICES
    known = [*housekeeping, *shared, schema_types.CORRAL_SLICE]
    limits: dict[str, int] = pids.get("slices", {})
    for name, limit in limits.items():
        at = join("pids.slices", name)
        if name == "init.scope":
            reader.refuse(at, limit, "a limit on PID 1's own scope can stop the whole node: leave it out")
        elif name not in known:
            reader.refuse(
                at,
                limit,
                f"is not a slice of this profile's pools: name one of {', '.join(known)}, or add it to cpu.shared.slices",
            )
    bounds = [(pids[name], name) for name in ("pid_max", "threads_max") if name in pids]
    if not bounds:
        return
    capacity, by = min(bounds)
    kept = max(pids.get("reserved", 0), sum(limit for name, limit in limits.items() if name in housekeeping))
    granted = sum(limit for name, limit in limits.items() if name not in housekeeping)
    if kept >= capacity:
        what = "pids.reserved" if kept == pids.get("reserved", 0) else "pids.slices"
        reader.refuse(
            what, kept, f"leaves nothing of pids.{by} ({capacity}): keep less for housekeeping, or raise pids.{by}"
        )
    elif kept + granted > capacity:
        reader.refuse(
            "pids.slices", granted,
            f"with {kept} kept for housekeeping that is {kept + granted - capacity} more than pids.{by} ({capacity}): "
            f"lower the slices' limits to {capacity - kept} in all, or raise pids.{by}",
        )  # fmt: skip
    default = pids.get("default_tasks_max", 0)
    if default >= capacity:
        reader.refuse(
            "pids.default_tasks_max", default, f"one unit could take all of pids.{by}: write less than {capacity}"
        )
