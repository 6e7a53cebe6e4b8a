# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# This module is private to the collection corral.node.
"""Memory and huge pages by NUMA node: the kubelet's static memory manager (1.36).

Assignments are blocks; the free memory is computed from the blocks. A node is used either alone or in exactly one group of nodes.

Corral differs from the kubelet in two points. If the rule forbids the nodes that the topology manager chose, Corral takes the whole group
of these nodes; the kubelet fails. Assignments survive a reboot, although MemTotal changes by some MiB; the kubelet does not start after
such a change (kubernetes#131253).
"""

from __future__ import annotations

import typing as t

from ..values import cpuset
from ..values.listing import listed
from ..values.records import NamedTuple
from ..workload.resources import MEMORY, hugepages, shown
from .node_sets import Demand, narrowest

MANAGER = "memory"  # Demand.together of the memory manager's demands

MIB = 1 << 20
TOLERANCE = 64 * MIB

Nodes = frozenset[int]

# Allocatable bytes by node and resource.
Tables = t.Mapping[int, t.Mapping[str, int]]


class Block(NamedTuple):
    """Bytes of one resource on one node, or on a group of nodes together."""

    nodes: Nodes
    resource: str
    size: int


Holders = t.Mapping[str, t.Sequence[Block]]
FindHolders = t.Callable[[], Holders]


class Drift(NamedTuple):
    """The effects of a reboot: ``notes`` for display, and ``broken``: by owner, why the owner's memory is gone."""

    notes: tuple[str, ...]
    broken: dict[str, str]


def allocatable(
    totals: t.Mapping[int, int],
    pages: t.Mapping[int, t.Mapping[int, int]],
    reserved: t.Mapping[int, t.Mapping[str, int]],
) -> dict[int, dict[str, int]]:
    """The allocatable bytes of memory (MemTotal without huge pages) and of huge pages, by node, without the ``reserved`` bytes.

    ``totals``: MemTotal of each node in bytes. ``pages``: by node, the number of huge pages by their size in KiB.
    """
    tables: dict[int, dict[str, int]] = {}
    for node, total in totals.items():
        sizes = {hugepages(size): count * size * 1024 for size, count in pages.get(node, {}).items()}
        kept = reserved.get(node, {})
        table = {MEMORY: total - sum(sizes.values()), **sizes}
        tables[node] = {resource: max(0, size - kept.get(resource, 0)) for resource, size in table.items()}
    return tables


def free(tables: Tables, blocks: t.Iterable[Block]) -> dict[int, dict[str, int]]:
    """The memory that the blocks leave. A block takes all memory of its first node before memory of the next node."""
    left = {node: dict(table) for node, table in tables.items()}
    for block in blocks:
        _take(left, block)
    return left


def is_crowded(tables: Tables, blocks: t.Sequence[Block], others: t.Sequence[Block]) -> bool:
    """Whether the blocks ``others`` do not fit beside ``blocks``: memory is missing, or a node would be in two different sets of nodes."""
    left = free(tables, blocks)
    for block in others:
        if any(block.nodes & held.nodes and block.nodes != held.nodes for held in blocks):
            return True
        if block.size > sum(left.get(node, {}).get(block.resource, 0) for node in block.nodes):
            return True
        _take(left, block)
    return False


def demands(
    tables: Tables, blocks: t.Sequence[Block], wanted: t.Mapping[str, int], reusable: t.Collection[Block] = ()
) -> tuple[Demand, ...]:
    """The demands of a workload for memory, which decide the workload's affinity.

    ``blocks`` are all assigned blocks. ``reusable`` are the blocks of the workload's finished init containers: the memory of these blocks
    is free for the workload, but the blocks still count for the rule on groups of nodes.
    """
    left = free(tables, _without(blocks, reusable))
    used = {block.nodes for block in blocks}
    single = frozenset(node for nodes in used if len(nodes) == 1 for node in nodes)
    groups = tuple(sorted((nodes for nodes in used if len(nodes) > 1), key=sorted))
    return tuple(
        Demand(
            resource,
            amount,
            {node: table.get(resource, 0) for node, table in tables.items()},
            {node: table.get(resource, 0) for node, table in left.items()},
            single=single,
            groups=groups,
            together=MANAGER,
        )
        for resource, amount in sorted(wanted.items())
        if amount > 0
    )


def allocate(
    tables: Tables,
    blocks: t.Sequence[Block],
    wanted: t.Mapping[str, int],
    nodes: Nodes | None,
    *,
    reusable: t.Collection[Block] = (),
    holders: FindHolders | None = None,
) -> tuple[Block, ...]:
    """Blocks for a workload on the fewest sufficient nodes, among them the ``nodes`` of the workload's affinity.

    The blocks have the whole ``wanted`` amounts, ``reusable`` blocks included. Raises ValueError, which names the missing amounts by node
    and the workloads (``holders``) that have the memory.
    """
    asked = [demand._replace(pinned=nodes or frozenset()) for demand in demands(tables, blocks, wanted, reusable)]
    if not asked:
        return ()
    chosen = narrowest(asked, tables)
    if chosen is None:
        raise ValueError("; ".join(_missing(asked, tables, holders() if holders else {})))
    return tuple(Block(chosen, demand.resource, demand.amount) for demand in asked)


def drift(before: Tables, now: Tables, holders: Holders, tolerance: int = TOLERANCE) -> Drift:
    """The changes of memory since the assignments were made. If memory is short, the first of ``holders`` keep their blocks.

    Memory may be short by up to ``tolerance`` bytes on each set of nodes. No huge page may be missing: the kernel kills a process that
    maps a missing page.
    """
    left = {node: dict(table) for node, table in now.items()}
    debts: dict[tuple[Nodes, str], int] = {}
    broken: dict[str, str] = {}
    for owner, blocks in holders.items():
        problems = [_problem(left, block, debts, tolerance) for block in blocks]
        if any(problems):
            broken[owner] = "; ".join(filter(None, dict.fromkeys(problems)))
    return Drift(tuple(_changes(before, now)), broken)


def _problem(
    left: t.Mapping[int, dict[str, int]], block: Block, debts: dict[tuple[Nodes, str], int], tolerance: int
) -> str:
    """Why a block's memory is gone. If ``left`` has the memory, the block is subtracted, and the result is an empty string."""
    gone = block.nodes.difference(left)
    if gone:
        return f"{_named(gone)} {'is' if len(gone) == 1 else 'are'} gone"
    short = max(0, block.size - sum(left[node].get(block.resource, 0) for node in block.nodes))
    debt = debts.get((block.nodes, block.resource), 0) + short
    if debt > (tolerance if block.resource == MEMORY else 0):
        size, missing = (shown(block.resource, amount) for amount in (block.size, short))
        return f"{block.resource}: {missing} of its {size} on {_named(block.nodes)} are missing"
    debts[block.nodes, block.resource] = debt
    _take(left, block)
    return ""


def _changes(before: Tables, now: Tables) -> t.Iterator[str]:
    for node in sorted({*before, *now}):
        if node not in now or node not in before:
            yield f"node {node} is {'new' if node in now else 'gone'}"
            continue
        for resource in sorted({*before[node], *now[node]}):
            was, has = (table[node].get(resource, 0) for table in (before, now))
            if was != has:
                sign = "+" if has > was else "-"
                was_text, has_text, by = (shown(resource, amount) for amount in (was, has, abs(has - was)))
                yield f"node {node}: {resource} was {was_text}, is {has_text} ({sign}{by})"


def _take(left: t.Mapping[int, dict[str, int]], block: Block) -> None:
    size = block.size
    for node in sorted(block.nodes):
        table = left.get(node, {})
        taken = min(size, table.get(block.resource, 0))
        if taken:
            table[block.resource] -= taken
            size -= taken


def _without(blocks: t.Iterable[Block], others: t.Iterable[Block]) -> list[Block]:
    """``blocks`` without ``others``: for each block of ``others``, an equal block is left out."""
    left = list(blocks)
    for block in others:
        left.remove(block)
    return left


# Texts.


def _missing(asked: t.Sequence[Demand], tables: Tables, holders: Holders) -> t.Iterator[str]:
    from .affinity_reasons import shortage  # only a refusal needs this module

    pinned = asked[0].pinned
    gone = pinned.difference(tables)
    if gone:
        yield f"there is no {_named(gone)}"
        return
    short = [demand for demand in asked if shortage(demand, len(tables))]
    for demand in short:
        yield shortage(demand, len(tables)) + _held(demand.resource, holders)
    if not short:
        amounts = " and ".join(f"{shown(demand.resource, demand.amount)} of {demand.resource}" for demand in asked)
        on = f" on {_named(pinned)}" if pinned else ""
        yield f"{amounts}{on} would have to share nodes that others use alone or as a group{_held('', holders)}"


def _held(resource: str, holders: Holders) -> str:
    """The workloads with blocks of a resource (empty: any resource) and the blocks' nodes, as text."""
    held = [
        f"{owner} {shown(block.resource, block.size)} on {_named(block.nodes)}"
        for owner, blocks in holders.items()
        for block in blocks
        if block.resource == resource or not resource
    ]
    return f"; held: {listed(held)}" if held else ""


def _named(nodes: t.Collection[int]) -> str:
    return f"node{'' if len(nodes) == 1 else 's'} {cpuset.format(nodes)}"
