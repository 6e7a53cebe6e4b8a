# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# This module is private to the collection corral.node.
"""Which CPUs to take: the kubelet's packed order (takeByTopologyNUMAPacked of the CPU manager, 1.36).

A pick holds what is free and what is still needed; steps take from it one after another, largest units first. Every
list is ordered by (free CPUs in the unit, id), so units already in use are filled before fresh ones are touched.

The kubelet takes a core or socket for wholly free when its free CPUs equal an average (CPUs / cores, CPUs / sockets),
which is wrong on machines with offline siblings or hybrid cores (kubernetes#124066). Here a unit is wholly free when
all of its own online CPUs are; with the counts of the kubelet's tables given, the averages are used as there.
"""

from __future__ import annotations

import typing as t

from .cpuset import CpuSet

if t.TYPE_CHECKING:
    from .topology import Topology


class CpuInfo(t.NamedTuple):
    """Where a CPU is. A core's id is its lowest CPU, as the kubelet has it; ids are unique on the machine."""

    core: int
    socket: int
    numa: int


class CpuTopology(t.NamedTuple):
    """The online CPUs and how many units there are.

    ``averages``: judge units by the counts, as the kubelet does; on uneven machines a pick may then take a sibling that
    was not available, as the kubelet's does. For comparisons only: of() and counted() never set it.
    """

    cpus: dict[int, CpuInfo]
    num_cpus: int
    num_cores: int
    num_sockets: int
    num_numa_nodes: int
    averages: bool = False


def of(topology: Topology) -> CpuTopology:
    """The view of a discovered machine. Unknown socket ids are numbered; without NUMA all is node 0."""
    core_of = {cpu: min(core) for core in topology.cores for cpu in core}
    socket_of = {cpu: int(socket.lstrip("?")) for socket, members in topology.sockets.items() for cpu in members}
    numa_of = {cpu: node for node, members in topology.node_cpus().items() for cpu in members}
    return counted(
        {cpu: CpuInfo(core_of.get(cpu, cpu), socket_of.get(cpu, 0), numa_of[cpu]) for cpu in sorted(topology.online)}
    )


def counted(cpus: dict[int, CpuInfo]) -> CpuTopology:
    """A CpuTopology with the real counts of ``cpus``; nodes without CPUs do not count, as in the kubelet."""
    cores, sockets, nodes = (set(ids) for ids in zip(*cpus.values())) if cpus else (set(), set(), set())
    return CpuTopology(cpus, len(cpus), len(cores), len(sockets), len(nodes))


def take_packed(topo: CpuTopology, available: CpuSet, count: int) -> CpuSet:
    """``count`` CPUs out of ``available``: whole nodes and sockets, then whole cores, then single CPUs.

    Raises ValueError with the kubelet's text when there are not enough.
    """
    pick = Pick(topo, available, count)
    for step in (take_first_level, take_second_level, take_cores, take_cpus):
        if pick.needed < 1:
            break
        step(pick)
    if pick.needed > 0:
        raise ValueError("failed to allocate cpus")
    return frozenset(pick.taken)


# A unit level: which of a CPU's ids names the unit.
CORE, SOCKET, NUMA = 0, 1, 2


class Pick:
    """An allocation on its way: ``free`` CPUs, ``taken`` ones and how many are still ``needed``."""

    def __init__(self, topo: CpuTopology, available: t.Iterable[int], count: int) -> None:
        self.topo = topo
        self.free = {cpu for cpu in available if cpu in topo.cpus}
        self.taken: set[int] = set()
        self.needed = max(count, 0)
        # A socket with several nodes is the outer unit, else the node is (KEP-2902).
        nodes_outside = topo.num_sockets >= topo.num_numa_nodes
        self.outer, self.inner = (NUMA, SOCKET) if nodes_outside else (SOCKET, NUMA)
        self._members: dict[int, dict[int, CpuSet]] = {}
        if self.needed > len(self.free):
            raise ValueError(
                f"not enough cpus available to satisfy request: requested={self.needed}, available={len(self.free)}"
            )

    def take(self, cpus: t.Collection[int]) -> None:
        """Move CPUs from free to taken."""
        self.taken.update(cpus)
        self.free.difference_update(cpus)
        self.needed -= len(cpus)

    def members(self, level: int) -> dict[int, CpuSet]:
        """All online CPUs of each unit, free or not."""
        if level not in self._members:
            self._members[level] = _grouped(self.topo.cpus, self.topo.cpus, level)
        return self._members[level]

    def free_in(self, level: int) -> dict[int, CpuSet]:
        """The free CPUs of each unit that has some."""
        return _grouped(self.free, self.topo.cpus, level)

    def whole(self, level: int, unit: int, free: t.Sized) -> bool:
        """Whether ``free`` CPUs are all of a unit."""
        if self.topo.averages and level == SOCKET:
            return len(free) == self.topo.num_cpus // self.topo.num_sockets
        if self.topo.averages and level == CORE:
            return len(free) == self.topo.num_cpus // self.topo.num_cores
        return len(free) == len(self.members(level)[unit])


def _grouped(cpus: t.Iterable[int], infos: t.Mapping[int, CpuInfo], level: int) -> dict[int, CpuSet]:
    units: dict[int, list[int]] = {}
    for cpu in cpus:
        units.setdefault(infos[cpu][level], []).append(cpu)
    return {unit: frozenset(members) for unit, members in units.items()}


# Orders: units with free CPUs, those in use first.


def order(pick: Pick, level: int) -> list[int]:
    """The units of a level: outer ones plainly, inner ones by their outer unit, cores by their inner unit."""
    free = pick.free_in(level)
    if level == pick.outer:
        return _sorted(free, free)
    above = pick.outer if level == pick.inner else pick.inner
    parents = pick.free_in(above)
    listed: dict[int, None] = {}
    for parent in order(pick, above):
        units = {pick.topo.cpus[cpu][level] for cpu in parents[parent]}
        listed.update(dict.fromkeys(_sorted(units, free)))
    return list(listed)


def _sorted(units: t.Iterable[int], free: t.Mapping[int, CpuSet]) -> list[int]:
    return sorted(units, key=lambda unit: (len(free[unit]), unit))


def whole_units(pick: Pick, level: int) -> list[int]:
    """The wholly free units of a level in order."""
    free = pick.free_in(level)
    return [unit for unit in order(pick, level) if pick.whole(level, unit, free[unit])]


def free_cpus(pick: Pick) -> list[int]:
    """Single CPUs by core in order, so that partly used cores come first."""
    free = pick.free_in(CORE)
    return [cpu for core in order(pick, CORE) for cpu in sorted(free[core])]


# Steps.


def take_whole(pick: Pick, level: int) -> None:
    """Each wholly free unit that is not more than needed; the list is made once."""
    for unit in whole_units(pick, level):
        members = pick.members(level)[unit]
        if len(members) <= pick.needed:
            pick.take(members)


def take_first_level(pick: Pick) -> None:
    """Whole nodes, or whole sockets where these hold several nodes."""
    take_whole(pick, pick.outer)


def take_second_level(pick: Pick) -> None:
    """Whole sockets, or whole nodes inside sockets."""
    take_whole(pick, pick.inner)


def take_cores(pick: Pick) -> None:
    """Whole cores."""
    take_whole(pick, CORE)


def take_cpus(pick: Pick) -> None:
    """Single CPUs."""
    pick.take(free_cpus(pick)[: pick.needed])
