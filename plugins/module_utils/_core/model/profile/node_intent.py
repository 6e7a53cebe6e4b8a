# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# This module is private to the collection corral.node.
"""Makes a profile literal for one node: places and shares become numbers, and optional parts that the node cannot have are left out.

In this way one profile serves unlike nodes. The literal profile has isolated CPUs on a numbered NUMA node, and a pool of hugepages for each
NUMA node to which an entry of ``memory.hugepages`` applies. Managers see only the literal profile.
"""

from __future__ import annotations

import re
import typing as t

from ..cpu import pools
from ..topology import numa_names
from ..topology.topology import Topology
from ..values import sizes
from ..values.errors import CorralError, Problem
from ..values.records import NamedTuple
from ..values.sizes import Share
from . import capacity_check
from .profile import Profile
from .profile_memory import Hugepages, Memory, NodeMemory

_ITEM = re.compile(r"memory\.(hugepages|mounts)\[(\d+)\](.*)", re.DOTALL)
_RESERVED = re.compile(r"memory\.reserved\.(\d+)")


class Resolved(NamedTuple):
    """A profile resolved for one node: ``profile`` has only literal values. ``hugepages`` and ``mounts`` give, for each pool and mount in
    ``profile``, its index in ``declared``.

    ``problems`` are the declarations that this node cannot fulfil, by their paths in the declared profile; ``notes`` name the optional
    parts that are left out.
    """

    declared: Profile
    profile: Profile
    hugepages: tuple[int, ...]
    mounts: tuple[int, ...]
    notes: tuple[str, ...] = ()
    problems: tuple[Problem, ...] = ()

    def as_declared(self, problem: Problem) -> Problem:
        """A problem of the literal profile with its path in the declared profile."""
        item, reserved = _ITEM.fullmatch(problem.path), _RESERVED.fullmatch(problem.path)
        if reserved and int(reserved.group(1)) not in {row.node for row in self.declared.memory.reserved}:
            return problem._replace(path="memory.reserved_per_numa")
        if item is None:
            return problem
        name, index, rest = item.groups()
        return problem._replace(path=f"memory.{name}[{getattr(self, name)[int(index)]}]{rest}")


Before = t.Mapping[capacity_check.Pool, int]


def resolve(declared: Profile, topology: Topology, before: t.Optional[Before] = None) -> Resolved:
    """The literal profile of this machine (see capacity_check.check_node for ``before``)."""
    memory = declared.memory
    notes: list[str] = []
    problems: list[Problem] = []
    literal = _isolated(declared, topology, notes)
    reserved = _reserved(memory, topology, notes)
    literal = literal._replace(
        memory=memory._replace(reserved=reserved, reserved_per_numa=None, hugepages=(), mounts=())
    )
    kept, certain = _certain_pools(memory.hugepages, topology, problems)
    needed = [index for index, mount in enumerate(memory.mounts) if not mount.optional]
    literal = _with(literal, memory, kept, needed)
    if not problems and not capacity_check.memory_problems(literal, topology, before):
        kept = _optional_pools(literal, memory, kept, topology, certain, notes)
        literal = _with(literal, memory, kept, needed)
        needed = _optional_mounts(literal, memory, kept, needed, topology, before, notes)
        literal = _with(literal, memory, kept, needed)
    return Resolved(
        declared, literal, tuple(index for index, dummy in kept), tuple(needed), tuple(notes), tuple(problems)
    )


def _with(literal: Profile, memory: Memory, kept: list[tuple[int, Hugepages]], mounts: list[int]) -> Profile:
    """The profile with the pools ``kept`` and the mounts with the indexes ``mounts``, in the order of the declared profile."""
    return literal._replace(
        memory=literal.memory._replace(
            hugepages=tuple(row for dummy, row in kept),
            mounts=tuple(memory.mounts[index]._replace(optional=False) for index in mounts),
        )
    )


# CPUs


def _isolated(declared: Profile, topology: Topology, notes: list[str]) -> Profile:
    """The profile with its isolated cores on a numbered NUMA node; without isolated cores if these are optional and do not fit."""
    cpu = declared.cpu
    if cpu is None or cpu.isolated is None or not (cpu.isolated.place or cpu.isolated.optional):
        return declared
    isolated = cpu.isolated._replace(place=None, optional=False)
    nodes = numa_names.nodes_with_cpus(topology)
    if cpu.isolated.place and nodes:
        isolated = isolated._replace(numa=nodes[0 if cpu.isolated.place == "first" else -1])
    literal = declared._replace(cpu=cpu._replace(isolated=isolated))
    if not cpu.isolated.optional:
        return literal
    try:
        pools.compute(literal, topology)
    except CorralError as refused:
        # A problem with the path "cpu" counts as well: without isolated CPUs, enough CPUs may remain for the shared pool.
        why = [one.message for one in refused.problems if one.path == "cpu" or one.path.startswith("cpu.isolated")]
        if why:
            notes.append(f"cpu.isolated is optional and left out: {why[0]}")
            return declared._replace(cpu=cpu._replace(isolated=None))
    return literal


# Memory


def _reserved(memory: Memory, topology: Topology, notes: list[str]) -> tuple[NodeMemory, ...]:
    """The reserved memory of each NUMA node; a machine without NUMA counts as node 0."""
    each = memory.reserved_per_numa
    if each is None:
        return memory.reserved
    by_node = {row.node: row.size for row in memory.reserved}
    for node in _places(topology) or [0]:
        there = capacity_check.node_memory(node, topology)
        if node in by_node:
            continue
        if not isinstance(each, Share):
            by_node[node] = each
        elif there is not None:
            by_node[node] = max(1, each.of(there))
        else:  # Unknown memory also has no budget check: see capacity_check.notes().
            notes.append(
                f"memory.reserved_per_numa: the kernel does not report the memory of NUMA node {node}: nothing is kept"
            )
    return tuple(NodeMemory(node, size) for node, size in sorted(by_node.items()))


def _certain_pools(
    rows: t.Sequence[Hugepages], topology: Topology, problems: list[Problem]
) -> tuple[list[tuple[int, Hugepages]], dict[capacity_check.Pool, int]]:
    """The literal pools of the entries (``rows``) that are not optional, and for each page size and NUMA node the index of the entry."""
    taken: dict[capacity_check.Pool, int] = {}
    kept: list[tuple[int, Hugepages]] = []
    for index in _in_order(rows):
        if rows[index].optional:
            continue
        try:
            pools_here = _literal(rows[index], topology, taken)
        except _Unmet as unmet:
            problems.append(Problem(f"memory.hugepages[{index}].{unmet.key}", unmet.value, str(unmet)))
            continue
        for row in pools_here:
            taken[row.size_kib, row.node] = index
            kept.append((index, row))
    return sorted(kept, key=lambda one: one[0]), taken


def _optional_pools(
    literal: Profile,
    memory: Memory,
    kept: list[tuple[int, Hugepages]],
    topology: Topology,
    taken: dict[capacity_check.Pool, int],
    notes: list[str],
) -> list[tuple[int, Hugepages]]:
    """The pools in ``kept``, and the optional pools that fit on this node as well."""
    rows = memory.hugepages
    for index in _in_order(rows):
        if not rows[index].optional:
            continue
        why = ""
        try:
            pools_here = _literal(rows[index], topology, taken)
        except _Unmet as unmet:
            pools_here, why = [], str(unmet)
        for row in pools_here:
            more = sorted([*kept, (index, row)], key=lambda one: one[0])
            refused = capacity_check.pool_problems(_with(literal, memory, more, []), topology)
            if refused:
                why = refused[0].message
                continue
            kept, taken[row.size_kib, row.node] = more, index
        if why:
            notes.append(f"memory.hugepages[{index}] is optional and left out{_partly(index, kept)}: {why}")
    return kept


def _partly(index: int, kept: list[tuple[int, Hugepages]]) -> str:
    """Words for a note if some NUMA nodes have the pool; otherwise an empty string."""
    return " on some NUMA nodes" if any(other == index for other, dummy in kept) else ""


def _optional_mounts(
    literal: Profile,
    memory: Memory,
    kept: list[tuple[int, Hugepages]],
    needed: list[int],
    topology: Topology,
    before: t.Optional[Before],
    notes: list[str],
) -> list[int]:
    """The mounts in ``needed``, and the optional mounts that fit on this node as well (indexes in the declared profile)."""
    for index, mount in enumerate(memory.mounts):
        if not mount.optional:
            continue
        more = sorted([*needed, index])
        refused = capacity_check.memory_problems(_with(literal, memory, kept, more), topology, before)
        if refused:
            notes.append(f"memory.mounts[{index}] is optional and left out: {refused[0].message}")
        else:
            needed = more
    return needed


class _Unmet(Exception):
    """An entry of ``memory.hugepages`` that cannot be made literal on this node. ``key``: the entry's key that is the cause."""

    def __init__(self, key: str, value: object, message: str) -> None:
        super().__init__(message)
        self.key, self.value = key, value


def _in_order(rows: t.Sequence[Hugepages]) -> list[int]:
    """The indexes of the entries (``rows``) in the order of resolution; the place `each` comes last: it means the remaining NUMA nodes."""
    return sorted(range(len(rows)), key=lambda index: rows[index].place == "each")


def _literal(row: Hugepages, topology: Topology, taken: t.Mapping[capacity_check.Pool, int]) -> list[Hugepages]:
    """The pools that an entry of ``memory.hugepages`` results in on this node. Raises _Unmet."""
    literal = []
    for node in _nodes_of(row, topology):
        other = taken.get((row.size_kib, node))
        if other is not None and row.place == "each":
            continue
        if other is not None:
            where = "the whole machine" if node is None else f"NUMA node {node}"
            said = (
                f"is {where} here, for which memory.hugepages[{other}] declares a pool of this size: write one of them"
            )
            raise _Unmet("near" if row.near else "node", row.near or row.place or node, said)
        literal.append(Hugepages(row.size_kib, _pages(row, node, topology), node))
    return literal


def _nodes_of(row: Hugepages, topology: Topology) -> t.Sequence[t.Optional[int]]:
    """The NUMA nodes to which an entry of ``memory.hugepages`` applies; None stands for the whole machine. Raises _Unmet."""
    if row.near is not None:
        try:
            return [numa_names.node_near(row.near, topology, key="node")]
        except ValueError as unknown:
            raise _Unmet("near", row.near, str(unknown)) from None
    if row.place is None:
        return [row.node]
    if not topology.numa:
        return [None]
    nodes = _places(topology)
    if not nodes:
        raise _Unmet("node", row.place, "no NUMA node has both CPUs and memory: write the number of one with memory")
    return nodes if row.place == "each" else [nodes[0 if row.place == "first" else -1]]


def _pages(row: Hugepages, node: t.Optional[int], topology: Topology) -> int:
    """The number of pages of an entry of ``memory.hugepages``, on a NUMA node or (None) on the whole machine. Raises _Unmet."""
    if row.share is None:
        return row.pages
    memory = capacity_check.machine_memory(topology) if node is None else capacity_check.node_memory(node, topology)
    if memory is None:
        where = "this node" if node is None else f"NUMA node {node}"
        raise _Unmet(
            "share", sizes.share_text(row.share), f"the kernel does not report the memory of {where}: write count"
        )
    return row.share.of(memory) // (row.size_kib << 10)


def _places(topology: Topology) -> list[int]:
    """The NUMA nodes with CPUs and with memory (of known or unknown size). A node without CPUs, such as a GPU's memory, is left out."""
    with_cpus = numa_names.nodes_with_cpus(topology)
    return [node for node, numa in sorted(topology.numa.items()) if node in with_cpus and numa.memory_kib != 0]
