# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# This module is private to the collection corral.node.
"""The machine and its pools of CPUs as text: tables, and a map with a letter for each thread."""

from __future__ import annotations

import itertools
import typing as t

from ..model.cpu import pools
from ..model.cpu.cpu_assignment import KINDS, Assignment
from ..model.cpu.pools import Pools
from ..model.topology.topology import Topology
from ..model.values import cpuset
from . import text_table

if t.TYPE_CHECKING:
    from ..model.workload.grants import Grant

CORES_PER_LINE = 16
THREADS_PER_LINE = 32
COLUMNS = 80
MOST_OWNERS = 8
OTHER_CACHE = " | "
LETTERS = {"reserved": "R", "shared": "S", "isolated": "I", "exclusive": "E", "offline": "."}
COLOURS = {"R": "44", "S": "42", "I": "45", "E": "41", ".": "100"}


def pool_lines(computed: Pools) -> list[str]:
    """The pools as a table, whole machine first, then each NUMA node."""
    names = pools.shown(computed)
    table = [("", *names), ("all", *(cpuset.format(getattr(computed, name)) or "-" for name in names))]
    for node, part in sorted(computed.per_numa.items()):
        table.append((f"node {node}", *(cpuset.format(part[name]) or "-" for name in names)))
    return text_table.aligned(table) + list(computed.notes)


def cpu_map(
    topology: Topology,
    computed: Pools,
    grants: t.Iterable[Grant] = (),
    *,
    colour: bool = False,
    unused: t.Container[str] = (),
) -> list[str]:
    """The machine as a picture: a row per NUMA node, a block per core, a letter per thread; then the pools, and the workloads with CPUs.

    The workloads in ``unused`` have no process on their CPUs.
    """

    def letter(cpu: int) -> str:
        for name in KINDS:
            if cpu in getattr(computed, name):
                return LETTERS[name]
        return LETTERS["offline"]

    offline = f"   . offline {cpuset.format(topology.offline_present)}" if topology.offline_present else ""
    owners = {grant.workload: grant.cpus for grant in grants if grant.cpus}
    legend = "   ".join(
        f"{LETTERS[name]} {name} {cpuset.format(getattr(computed, name)) or '-'}"
        + (of_owners(owners, unused) if name == "exclusive" else "")
        for name in pools.shown(computed)
    )
    return [*picture(topology, letter, colour=colour), legend + offline]


def map_in_force(
    topology: Topology, now: t.Mapping[int, Assignment], declared: t.Mapping[int, Assignment]
) -> list[str]:
    """The map with the present assignments of the CPUs; empty if all assignments are as declared.

    A small letter means that the profile assigns the CPU to another pool or workload. A CPU in no pool has a question mark.
    """
    differs = frozenset(cpu for cpu in topology.online if now.get(cpu) != declared.get(cpu))
    if not differs:
        return []

    def letter(cpu: int) -> str:
        if cpu not in topology.online:
            return LETTERS["offline"]
        shown = LETTERS[now[cpu].pool] if cpu in now else "?"
        return shown.lower() if cpu in differs else shown

    kinds = [(kind, frozenset(cpu for cpu, one in now.items() if one.pool == kind) & topology.online) for kind in KINDS]
    owners: dict[str, frozenset[int]] = {}
    for cpu, one in now.items():
        if one.owner and cpu in topology.online:
            owners[one.owner] = owners.get(one.owner, frozenset()) | {cpu}
    legend = "   ".join(
        f"{LETTERS[kind]} {kind} {cpuset.format(cpus)}" + (of_owners(owners) if kind == "exclusive" else "")
        for kind, cpus in reversed(kinds)
        if cpus
    )
    unassigned = topology.online - now.keys()
    in_none = f"? in no pool {cpuset.format(unassigned)}" if unassigned else ""
    said = f"small letters: not as declared, {cpuset.format(differs)}"
    return [*picture(topology, letter), "   ".join(filter(None, [legend, in_none, said]))]


def of_owners(owners: t.Mapping[str, frozenset[int]], unused: t.Container[str] = ()) -> str:
    """The workloads with their CPUs, in brackets; an empty string without workloads."""
    listed = [
        f"{name} {cpuset.format(cpus)}{' unused' if name in unused else ''}"
        for name, cpus in sorted(owners.items(), key=lambda one: min(one[1]))
    ]
    more = [f"and {len(listed) - MOST_OWNERS} more"] if len(listed) > MOST_OWNERS else []
    return f" ({', '.join(listed[:MOST_OWNERS] + more)})" if listed else ""


def picture(topology: Topology, letter: t.Callable[[int], str], *, colour: bool = False) -> list[str]:
    """The rows of a map, with the letter of each CPU. A | separates cores that share no L3 cache."""
    most = max((len(core) for core in topology.cores), default=1)
    per_line = min(CORES_PER_LINE, max(1, THREADS_PER_LINE // most))
    # Bars between caches, and CPU numbers that form no range, make a row wider. If a row is too wide, all rows get fewer cores.
    while per_line > 1 and max(map(len, rows_of(topology, letter, per_line)), default=0) > COLUMNS:
        per_line //= 2

    def coloured(cpu: int) -> str:
        char = letter(cpu)
        return f"\033[{COLOURS.get(char.upper(), '100')};97m{char}\033[0m"

    return rows_of(topology, coloured if colour else letter, per_line)


def rows_of(topology: Topology, letter: t.Callable[[int], str], per_line: int) -> list[str]:
    """The rows of a map, with at most ``per_line`` cores in a row."""

    nodes = {node.id: node.cpus for node in topology.numa.values()} or {0: topology.online}
    names = list(topology.sockets)
    sockets = {cpu: number for number, cpus in enumerate(topology.sockets.values()) for cpu in cpus}
    caches = {cpu: number for number, cpus in enumerate(topology.l3) for cpu in cpus}

    def place(core: frozenset[int]) -> tuple[int, int, int]:
        first = min(core)
        return sockets.get(first, -1), caches.get(first, -1), first

    rows = []
    for node, cpus in sorted(nodes.items()):
        cores = sorted((core & cpus for core in topology.cores if core & cpus), key=place)
        for start in range(0, len(cores), per_line):
            part = cores[start : start + per_line]
            name = f"node {node}" if start == 0 else ""
            groups = [
                ["".join(map(letter, sorted(core))) for core in group]
                for dummy, group in itertools.groupby(part, lambda core: place(core)[:2])
            ]
            drawn = OTHER_CACHE.join(" ".join(group) for group in groups)
            row = f"{name:<8} {drawn}   CPUs {cpuset.format(frozenset().union(*part))}"
            within = sorted({sockets[cpu] for core in part for cpu in core if cpu in sockets})
            known = [names[one] for one in within if not names[one].startswith("?")]  # "?0": unknown id
            where = f"   socket {', '.join(known)}" if len(names) > 1 and known else ""
            rows.append(row + where)
        if not cores:
            rows.append(f"node {node:<3} (no CPUs)")
    return rows


def topology_lines(topology: Topology) -> list[str]:
    """A machine as a few lines of text."""
    per_core = "/".join(str(count) for count in sorted({len(core) for core in topology.cores})) or "?"
    parts = f"sockets   {len(topology.sockets)}   cores {len(topology.cores)}   threads per core {per_core}"
    rows = [
        f"CPUs      {cpuset.format(topology.online)} online"
        + (f", {cpuset.format(topology.offline_present)} offline" if topology.offline_present else "")
        + (f", {cpuset.format(topology.isolated)} isolated by the kernel" if topology.isolated else ""),
        f"{parts}   L3 caches {len(topology.l3)}",
    ]
    for node in topology.numa.values():
        memory = "memory unknown" if node.memory_kib is None else f"{node.memory_kib // 1024} MiB"
        pages = ", ".join(f"{count} x {size} KiB" for size, count in sorted(node.hugepages.items()))
        rows.append(f"node {node.id:<4} CPUs {cpuset.format(node.cpus) or '-'}   {memory}   hugepages {pages or '-'}")
    if topology.distances and topology.distance_nodes:
        for node_id, row in zip(topology.distance_nodes, topology.distances):
            rows.append(f"distance  from node {node_id}: {' '.join(map(str, row))}")
    rows += [f"device    {address} node {pci.numa_node}" for address, pci in topology.pci.items() if pci.numa_node >= 0]
    rows += [f"network   {name} at {address}" for name, address in topology.net.items() if address]
    return rows + [f"note      {note}" for note in topology.notes]
