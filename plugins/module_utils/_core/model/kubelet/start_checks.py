# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# This module is private to the collection corral.node.
"""Whether a kubelet would start with a state after reading it: the checks of the static policies, in the kubelet's words.

Kubelet 1.36, policy_static.go of the CPU manager and of the memory manager. The policy none has no such checks.
"""

from __future__ import annotations

import copy
import typing as t

from ..values import cpuset
from ..values.records import NamedTuple
from .state_files import CpuState, MemoryState, StateRefused

STATIC_CPU, STATIC_MEMORY = "static", "Static"
MEMORY = "memory"


class CpuSettings(NamedTuple):
    """The settings of the CPU manager: its policy, the online CPUs, the reserved CPUs, and whether strict-cpu-reservation is on."""

    policy: str
    online: frozenset[int]
    reserved: frozenset[int]
    strict: bool = False


def check_cpus(state: CpuState, settings: CpuSettings) -> None:
    """Raise StateRefused if the static policy would not start with this state. The kubelet replaces an empty state by a new state."""
    if settings.policy != STATIC_CPU:
        return
    usable = settings.online - settings.reserved if settings.strict else settings.online
    if not state.default:
        if state.containers:
            raise StateRefused("default cpuset cannot be empty")
        return
    default, reserved = cpuset.format(state.default), settings.reserved
    if settings.strict and reserved & state.default:
        both = cpuset.format(reserved & state.default)
        raise StateRefused(f'some of strictly reserved cpus: "{both}" are present in defaultCpuSet: "{default}"')
    if not settings.strict and not reserved <= state.default:
        raise StateRefused(
            f'not all reserved cpus: "{cpuset.format(reserved)}" are present in defaultCpuSet: "{default}"'
        )
    known = set(state.default)
    for pod, containers in state.containers.items():
        for name, cpus in containers.items():
            if cpus & state.default:
                shown = cpuset.format(cpus)
                raise StateRefused(
                    f'pod: {pod}, container: {name} cpuset: "{shown}" overlaps with default cpuset "{default}"'
                )
            known |= cpus
    for cpus in state.pods.values():
        known |= cpus
    if known != usable:
        raise StateRefused(
            f'current set of available CPUs "{cpuset.format(usable)}" doesn\'t match with CPUs in state "{cpuset.format(known)}"'
        )


Amounts = t.Mapping[int, t.Mapping[str, int]]  # bytes by NUMA node and kind: memory, hugepages-2Mi …


def check_memory(state: MemoryState, policy: str, totals: Amounts, reserved: Amounts) -> None:
    """Raise StateRefused if the static policy would not start with ``state`` on a machine with ``totals`` and ``reserved`` amounts.

    The kubelet replaces a state without nodes by a new state.
    """
    if policy != STATIC_MEMORY or not state.nodes:
        return
    expected = machine(totals, reserved)
    for pod, containers in state.containers.items():
        whole = state.pods.get(pod)
        todo = {"": whole["MemoryBlocks"] or ()} if whole and whole["MemoryBlocks"] else containers
        for name, blocks in todo.items():
            for block in blocks or ():
                assign(expected, block, f"[memorymanager] (pod: {pod}, container: {name})")
    if any(differs(node, state.nodes, expected) for node in expected.keys() | state.nodes.keys()):
        raise StateRefused("[memorymanager] the expected machine state is different from the real one")


def machine(totals: Amounts, reserved: Amounts) -> dict[int, dict[str, t.Any]]:
    """The memory tables of each NUMA node without assignments. Hugepages do not count as assignable memory."""
    made: dict[int, dict[str, t.Any]] = {}
    for node, kinds in totals.items():
        pages = sum(size for kind, size in kinds.items() if kind != MEMORY)
        tables = {}
        for kind, total in kinds.items():
            kept = reserved.get(node, {}).get(kind, 0)
            left = total - kept - (pages if kind == MEMORY else 0)
            tables[kind] = {
                "TotalMemSize": total, "SystemReserved": kept, "Allocatable": left, "Reserved": 0, "Free": left
            }  # fmt: skip
        made[node] = {"NumberOfAssignments": 0, "MemoryMap": tables, "Cells": [node]}
    return made


def assign(nodes: dict[int, dict[str, t.Any]], block: t.Mapping[str, t.Any], who: str) -> None:
    """Subtract an assigned block from the free memory of its nodes, node by node. Raises StateRefused for a missing node or kind."""
    left = block["Size"]
    for node in block["NUMAAffinity"] or ():
        if node not in nodes:
            raise StateRefused(f"{who} the memory assignment uses the NUMA that does not exist")
        nodes[node]["NumberOfAssignments"] += 1
        nodes[node]["Cells"] = copy.copy(block["NUMAAffinity"])
        table = nodes[node]["MemoryMap"].get(block["Type"])
        if table is None:
            raise StateRefused(f"{who} the memory assignment uses memory resource that does not exist")
        taken = min(left, max(table["Free"], 0))
        table["Reserved"] += taken
        table["Free"] -= taken
        left -= taken


def differs(
    node: int, ours: t.Mapping[int, t.Mapping[str, t.Any]], others: t.Mapping[int, t.Mapping[str, t.Any]]
) -> bool:
    """Whether two states of a machine differ in ``node``. Free and reserved amounts are compared as sums over the node's group."""
    one, other = ours.get(node), others.get(node)
    if one is None or other is None:
        return True
    group = one["Cells"] or ()
    if one["NumberOfAssignments"] != other["NumberOfAssignments"] or sorted(group) != sorted(other["Cells"] or ()):
        return True
    mine, theirs = one["MemoryMap"] or {}, other["MemoryMap"] or {}
    if mine.keys() != theirs.keys():
        return True
    return any(
        any(mine[kind][key] != theirs[kind][key] for key in ("TotalMemSize", "SystemReserved", "Allocatable"))
        or any(of_group(ours, group, kind, key) != of_group(others, group, kind, key) for key in ("Free", "Reserved"))
        for kind in mine
    )


def of_group(
    nodes: t.Mapping[int, t.Mapping[str, t.Any]], group: t.Iterable[int], kind: str, key: str
) -> t.Optional[int]:
    """The sum of the amount ``key`` over a group's nodes; None if a node lacks this kind of memory."""
    tables = [(nodes.get(node) or {}).get("MemoryMap", {}).get(kind) for node in group]
    return None if None in tables else sum(table[key] for table in tables if table)
