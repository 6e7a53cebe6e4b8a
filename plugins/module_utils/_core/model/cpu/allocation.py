# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# This module is private to the collection corral.node.
"""The choice of CPUs, as the kubelet's static CPU policy makes it (takeByTopology and allocateCPUs, 1.36).

A Pick has the free CPUs and the number of CPUs that are still needed; it takes CPUs in several steps, the largest units first. Every list
is ordered by (free CPUs in the unit, id): units in use are filled before unused units.

The kubelet considers a core or socket wholly free if its free CPUs equal an average (CPUs / cores, CPUs / sockets). This rule is wrong on
machines with offline siblings or hybrid cores (kubernetes#124066). Here a unit is wholly free if all of its online CPUs are free; averages
are used only if the counts of the kubelet's tables are given. For the same reason full-pcpus-only promises whole cores here, and only a
number of CPUs in the kubelet.
"""

from __future__ import annotations

import typing as t

from ..topology.cpu_topology import (
    CORE,
    NUMA,
    SOCKET,
    UNCORE,
    CpuInfo,
    CpuTopology,
    Unit,
    counted,
    cpus_of,
    lowest,
    of,
    size,
)
from ..values import cpuset
from ..values.cpuset import CpuSet
from .cpu_options import DEFAULT, Options

__all__ = ["CpuInfo", "CpuTopology", "allocate", "counted", "of", "smt_problem", "take", "take_packed"]


def take(view: CpuTopology, available: CpuSet, count: int, options: Options = DEFAULT) -> CpuSet:
    """``count`` CPUs out of ``available``, chosen according to the options.

    Raises ValueError, with the kubelet's text, if CPUs are too few, or if no whole cores add up to ``count`` with full-pcpus-only.
    """
    return allocate(view, available, count, options)


def take_packed(view: CpuTopology, available: CpuSet, count: int) -> CpuSet:
    """The result of take() without options: whole nodes and sockets, then whole cores, then single CPUs."""
    return take(view, available, count)


def allocate(
    view: CpuTopology,
    available: CpuSet,
    count: int,
    options: Options = DEFAULT,
    *,
    reusable: CpuSet = cpuset.EMPTY,
    affinity: frozenset[int] | None = None,
) -> CpuSet:
    """``count`` CPUs out of ``available`` and ``reusable``, first from the NUMA nodes of ``affinity``.

    With align-by-socket the sockets of these nodes come first. ``reusable``: the CPUs of ended containers of the same pod. Raises
    ValueError like take().
    """
    free = view.mask(available | reusable)
    near = 0 if affinity is None else free & _near(view, affinity, options)
    taken = _allocate(view, free, near, count, options)
    if options.full_pcpus_only and not _whole(view, taken):
        taken = _allocate_cores(view, free, near, count, options)
    return cpus_of(taken)


def smt_problem(view: CpuTopology, available: CpuSet, reserved: CpuSet, count: int) -> str | None:
    """Why full-pcpus-only cannot give ``count`` CPUs, if possible in the kubelet's words; None if it can give ``count`` CPUs.

    A core is usable if all of its CPUs are ``available`` and no CPU is ``reserved``.
    """
    usable = _free_cores(view, view.mask(available - reserved))
    sizes = view.core_sizes or (1,)
    if len(sizes) == 1 and count % sizes[0]:
        return f"SMT Alignment Error: requested {count} cpus not multiple cpus per core = {sizes[0]}"
    total = sum(core.size for core in usable)
    if count > total:
        return (
            f"SMT Alignment Error: not enough free physical CPUs: available physical CPUs = {total}, "
            f"requested CPUs = {count}, CPUs per core = {_or(sizes)}"
        )
    return None if count <= 0 or _sums(usable)[0] >> count & 1 else _no_cores(count, usable)


# The kubelet's allocateCPUs and takeByTopology, on bits.


def _near(view: CpuTopology, nodes: frozenset[int], options: Options) -> int:
    mask = view.mask_of(NUMA, nodes)
    if not options.align_by_socket:
        return mask
    return sum(unit.mask for unit in view.units[SOCKET].values() if unit.mask & mask)


def _allocate(view: CpuTopology, free: int, near: int, count: int, options: Options) -> int:
    aligned = min(max(count, 0), size(near))
    taken = _take(view, near, aligned, options)
    return taken | _take(view, free & ~taken, count - aligned, options)


def _take(view: CpuTopology, free: int, count: int, options: Options) -> int:
    spread = options.distribute_cpus_across_cores
    if options.distribute_cpus_across_numa:
        return take_distributed(view, free, count, _group(view) if options.full_pcpus_only else 1, spread)
    return take_units(view, free, count, spread, options.prefer_align_cpus_by_uncorecache)


def _group(view: CpuTopology) -> int:
    """The number of CPUs of a core. If cores differ, the number of the largest core: with this number nearly all groups are whole cores."""
    return view.num_cpus // view.num_cores if view.averages else max(view.core_sizes, default=1)


def take_distributed(view: CpuTopology, free: int, count: int, group: int, spread: bool) -> int:
    """``count`` CPUs, divided evenly among the fewest NUMA nodes in groups of ``group`` CPUs; else as by take_units()."""
    if count < 1 or count % group:
        return take_units(view, free, count, spread)
    pick = Pick(view, free, count)
    nodes = list(pick.ordered(NUMA))
    counts = [free_there for dummy, free_there in nodes]
    from . import allocation_numa  # only one option needs this module, and each import makes a start longer

    portions = allocation_numa.portions(counts, count, group, _fewest_nodes(view, count, group))
    if portions is None:
        return take_units(view, free, count, spread)
    for index, cpus in portions:
        pick.take(take_units(view, pick.free & nodes[index][0].mask, cpus, spread))
    return pick.taken


def _fewest_nodes(view: CpuTopology, count: int, group: int) -> int:
    """The least number of nodes that have ``count`` CPUs together, in groups of ``group`` CPUs, if all CPUs are free."""
    nodes = view.units[NUMA].values()
    if view.averages:
        return _ceil(count // group, _ceil(_ceil(len(view.cpus), group), len(nodes)))
    total = 0
    for number, cpus in enumerate(sorted((node.size for node in nodes), reverse=True), 1):
        total += _ceil(cpus, group)
        if total * group >= count:
            return number
    return len(nodes)


def _ceil(number: int, unit: int) -> int:
    return -(-number // unit)


def take_units(view: CpuTopology, free: int, count: int, spread: bool = False, uncore: bool = False) -> int:
    """``count`` CPUs: first whole nodes and sockets, then caches (with ``uncore``), whole cores (without ``spread``), single CPUs."""
    pick = Pick(view, free, count)
    pick.take_whole(view.outer)
    pick.take_whole(view.inner)
    if uncore:
        pick.take_uncores()
    if not spread:
        pick.take_whole(CORE)
    pick.take_cpus(spread)
    return pick.taken


class Pick:
    """An allocation in progress: the ``free`` CPUs, the CPUs ``taken`` so far and how many more are ``needed``."""

    def __init__(self, view: CpuTopology, free: int, count: int) -> None:
        self.view = view
        self.free = free
        self.taken = 0
        self.needed = max(count, 0)
        if self.needed > size(free):
            raise ValueError(
                f"not enough cpus available to satisfy request: requested={self.needed}, available={size(free)}"
            )

    def take(self, cpus: int) -> None:
        """Move CPUs from free to taken."""
        self.taken |= cpus
        self.free &= ~cpus
        self.needed -= size(cpus)

    def ordered(self, level: int) -> t.Iterator[tuple[Unit, int]]:
        """The units that have free CPUs now, each with its number of free CPUs; units in use come first.

        Inner units are sorted by their outer unit first, cores by their inner unit, caches by their node.
        """
        free, above = self.free, self.view.above(level)
        if above is None:
            yield from _ordered(self.view.units[level].values(), free, free)
            return
        parts, listed = self.view.parts(level, above), set()
        for parent, dummy in self.ordered(above):
            for unit, count in _ordered(parts[parent.id], free, free & parent.mask):
                if unit.id not in listed:
                    listed.add(unit.id)
                    yield unit, count

    def whole(self, level: int) -> t.Iterator[Unit]:
        """The wholly free units of a level, in the order of ordered()."""
        for unit, count in self.ordered(level):
            if count == self.size(unit, level):
                yield unit

    def size(self, unit: Unit, level: int) -> int:
        """The number of free CPUs at which a unit counts as wholly free."""
        view = self.view
        if view.averages and level in (CORE, SOCKET):
            return view.num_cpus // (view.num_cores if level == CORE else view.num_sockets)
        return unit.size

    def take_whole(self, level: int) -> None:
        """Take each wholly free unit that is not larger than the number of needed CPUs. The list of wholly free units is made once."""
        if self.needed < self.view.smallest[level]:
            return
        for unit in self.whole(level):
            if unit.size <= self.needed:
                self.take(unit.mask)
            if self.needed < self.view.smallest[level]:
                return

    def take_uncores(self) -> None:
        """Take whole caches, then all remaining CPUs from a single cache if the cache has cores with exactly this number of free CPUs."""
        view = self.view
        caches = [unit for unit, dummy in self.ordered(UNCORE)]
        if not view.averages or self.needed >= view.num_cpus // max(view.num_uncores, 1):
            self.take_whole(UNCORE)
        for cache in caches:
            if self.needed < 1:
                return
            self.take_partial_uncore(cache)

    def take_partial_uncore(self, cache: Unit) -> None:
        """Take the free CPUs of a cache's first cores, if these are exactly as many CPUs as are still needed."""
        taken = room = 0
        for core in self.view.parts(CORE, UNCORE)[cache.id]:
            if room >= self.needed:
                break
            if core.mask & cache.mask & self.free:
                taken |= core.mask & self.free
                room += self.size(core, CORE)
        if self.needed % 2 and self.view.num_cpus >= 2 * self.view.num_cores and size(taken) > self.needed:
            taken ^= 1 << taken.bit_length() - 1
        if size(taken) == self.needed:
            self.take(taken)

    def take_cpus(self, spread: bool) -> None:
        """Take single CPUs: core by core, partly used cores first; with ``spread`` socket by socket, in each socket by number."""
        if self.needed < 1:
            return
        free = self.free
        for unit, dummy in self.ordered(SOCKET if spread else CORE):
            self.take(lowest(unit.mask & free, self.needed))
            if self.needed < 1:
                return
        raise ValueError("failed to allocate cpus")


def _ordered(units: t.Iterable[Unit], free: int, within: int) -> list[tuple[Unit, int]]:
    """The units with a CPU in ``within``, each with its number of free CPUs, sorted by this number. ``units`` are in ascending order."""
    return sorted(((unit, size(unit.mask & free)) for unit in units if unit.mask & within), key=lambda row: row[1])


# Whole cores.


def _whole(view: CpuTopology, cpus: int) -> bool:
    return all(core.mask & cpus in (0, core.mask) for core in view.units[CORE].values())


def _free_cores(view: CpuTopology, free: int) -> list[Unit]:
    """The wholly free cores, in packed order."""
    return list(Pick(view, free, 0).whole(CORE))


def _allocate_cores(view: CpuTopology, free: int, near: int, count: int, options: Options) -> int:
    """The kubelet's choice among the wholly free cores, or other whole cores with ``count`` CPUs if it splits a core. Raises ValueError."""
    cores = _free_cores(view, free)
    usable = sum(core.mask for core in cores)
    if count <= size(usable):
        taken = _allocate(view, usable, usable & near, count, options)
        if _whole(view, taken):
            return taken
    inside = [core for core in cores if core.mask & near == core.mask]
    outside = [core for core in cores if core.mask & near != core.mask]
    sums, others = _sums(inside), _sums(outside)
    for aligned in range(count, -1, -1):
        if sums[0] >> aligned & 1 and others[0] >> count - aligned & 1:
            return _add_up(inside, sums, aligned) | _add_up(outside, others, count - aligned)
    raise ValueError(_no_cores(count, cores))


def _sums(cores: t.Sequence[Unit]) -> list[int]:
    """For each index of the list, the possible numbers of CPUs of the cores from this index on, as bits."""
    sums = [1]
    for core in reversed(cores):
        sums.append(sums[-1] | sums[-1] << core.size)
    return sums[::-1]


def _add_up(cores: t.Sequence[Unit], sums: t.Sequence[int], count: int) -> int:
    """The first cores in order that together have exactly ``count`` CPUs."""
    taken = 0
    for core, rest in zip(cores, sums[1:]):
        if core.size <= count and rest >> count - core.size & 1:
            taken |= core.mask
            count -= core.size
    return taken


def _no_cores(count: int, cores: t.Iterable[Unit]) -> str:
    sizes = sorted({core.size for core in cores})
    free = f"free whole cores have {_or(sizes)} CPUs" if sizes else "no core is free as a whole"
    return f"SMT Alignment Error: no whole cores add up to the requested {count} cpus: {free}"


def _or(sizes: t.Iterable[int]) -> str:
    return " or ".join(map(str, sizes))
