# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# This module is private to the collection corral.node.
"""The view of a machine for the allocation: the core, cache, NUMA node and socket of each online CPU.

Internally a set of CPUs is an integer with a bit for each CPU id: ``&`` gives a unit's free CPUs, the count of bits their number.
"""

from __future__ import annotations

import functools
import typing as t

from ..values.cpuset import CpuSet
from ..values.records import NamedTuple

if t.TYPE_CHECKING:
    from .topology import Topology


class CpuInfo(NamedTuple):
    """The place of a CPU. The id of a core is the core's lowest CPU, as in the kubelet; ids are unique on the machine.

    ``uncore`` is the group of CPUs that share a last-level cache.
    """

    core: int
    socket: int
    numa: int
    uncore: int = 0


# The levels of units. A level is the index of a unit's id in CpuInfo.
CORE, SOCKET, NUMA, UNCORE = range(4)


class Unit(NamedTuple):
    """A core, socket, NUMA node or cache: its id, its online CPUs as bits, and the number of these CPUs."""

    id: int
    mask: int
    size: int


class CpuTopology:
    """The online CPUs, their units (cores, sockets, NUMA nodes, caches), and the number of units.

    ``averages``: use the average size of all units for each unit, as the kubelet does. On uneven machines an allocation may then take a
    sibling that is not available. Only comparisons with the kubelet set ``averages``: of() and counted() do not.
    """

    def __init__(
        self,
        cpus: dict[int, CpuInfo],
        num_cpus: int,
        num_cores: int,
        num_sockets: int,
        num_numa_nodes: int,
        num_uncores: int = 0,
        averages: bool = False,
    ) -> None:
        self.cpus = cpus
        self.num_cpus = num_cpus
        self.num_cores = num_cores
        self.num_sockets = num_sockets
        self.num_numa_nodes = num_numa_nodes
        self.num_uncores = num_uncores
        self.averages = averages
        # A socket with several NUMA nodes is the outer unit; otherwise the NUMA node is the outer unit (KEP-2902).
        self.outer, self.inner = (NUMA, SOCKET) if num_sockets >= num_numa_nodes else (SOCKET, NUMA)
        self._bits = {cpu: 1 << cpu for cpu in cpus}
        self._parts: dict[tuple[int, int], dict[int, tuple[Unit, ...]]] = {}

    @functools.cached_property
    def units(self) -> tuple[dict[int, Unit], ...]:
        """The units of each level by id, in ascending order."""
        return tuple(self._units(level) for level in (CORE, SOCKET, NUMA, UNCORE))

    def parts(self, level: int, above: int) -> dict[int, tuple[Unit, ...]]:
        """By the id of each unit on the level ``above``: the units on ``level`` that share a CPU with this unit."""
        parts = self._parts.get((level, above))
        if parts is None:
            pairs = sorted({(info[above], info[level]) for info in self.cpus.values()})
            lists: dict[int, list[Unit]] = {}
            for outer, inner in pairs:
                lists.setdefault(outer, []).append(self.units[level][inner])
            parts = self._parts[level, above] = {unit: tuple(members) for unit, members in lists.items()}
        return parts

    @functools.cached_property
    def core_sizes(self) -> tuple[int, ...]:
        """The different sizes of cores in ascending order; a single size on an even machine."""
        return tuple(sorted({core.size for core in self.units[CORE].values()}))

    @functools.cached_property
    def smallest(self) -> tuple[int, ...]:
        """The size of the smallest unit of each level."""
        return tuple(min((unit.size for unit in units.values()), default=0) for units in self.units)

    def above(self, level: int) -> int | None:
        """The next outer level, by which units are sorted first; None for the outermost level."""
        if level == self.outer:
            return None
        return {self.inner: self.outer, CORE: self.inner, UNCORE: NUMA}[level]

    def mask(self, cpus: t.Iterable[int]) -> int:
        """The CPUs as bits, without CPUs that the machine does not have."""
        bits = self._bits
        return sum([bits[cpu] for cpu in frozenset(cpus) if cpu in bits])  # distinct bits: the sum is the union

    def mask_of(self, level: int, units: t.Iterable[int]) -> int:
        """The CPUs of the units with these ids, as bits; unknown ids are ignored."""
        known = self.units[level]
        return functools.reduce(lambda mask, unit: mask | known[unit].mask, set(units) & known.keys(), 0)

    def _units(self, level: int) -> dict[int, Unit]:
        masks: dict[int, int] = {}
        for cpu, info in self.cpus.items():
            masks[info[level]] = masks.get(info[level], 0) | self._bits[cpu]
        return {unit: Unit(unit, mask, size(mask)) for unit, mask in sorted(masks.items())}


def of(topology: Topology) -> CpuTopology:
    """The view of a machine's topology. Unknown socket ids get numbers; without NUMA all CPUs are on node 0."""
    core_of = {cpu: min(core) for core in topology.cores for cpu in core}
    socket_of = {cpu: int(socket.lstrip("?")) for socket, members in topology.sockets.items() for cpu in members}
    numa_of = {cpu: node for node, members in topology.node_cpus().items() for cpu in members}
    uncore_of = {cpu: min(group) for group in topology.l3 for cpu in group}
    # CPUs without a last-level cache are grouped by their socket, as in the kubelet.
    rest: dict[int, int] = {}
    for cpu in sorted(topology.online - uncore_of.keys()):
        uncore_of[cpu] = rest.setdefault(socket_of.get(cpu, 0), cpu)
    return counted(
        {
            cpu: CpuInfo(core_of.get(cpu, cpu), socket_of.get(cpu, 0), numa_of[cpu], uncore_of[cpu])
            for cpu in sorted(topology.online)
        }
    )


def counted(cpus: dict[int, CpuInfo]) -> CpuTopology:
    """The CpuTopology for ``cpus``, with the numbers of units counted; NUMA nodes without CPUs do not count, as in the kubelet."""
    cores, sockets, nodes, uncores = (len(set(ids)) for ids in zip(*cpus.values())) if cpus else (0, 0, 0, 0)
    return CpuTopology(cpus, len(cpus), cores, sockets, nodes, uncores)


# Sets of CPUs as bits.


def _count(mask: int) -> int:
    return bin(mask).count("1")


# int.bit_count came with Python 3.10.
size: t.Callable[[int], int] = getattr(int, "bit_count", _count)


def lowest(mask: int, count: int) -> int:
    """The ``count`` lowest CPUs of a set, or all CPUs of a smaller set."""
    rest = mask
    for dummy in range(count):
        rest &= rest - 1
    return mask ^ rest


def cpus_of(mask: int) -> CpuSet:
    """The CPUs in a set of bits."""
    return frozenset(cpu for cpu, bit in enumerate(bin(mask)[:1:-1]) if bit == "1")
