# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""How long it takes to choose CPUs, in ms, against parsing and formatting the list of the free ones, and no more.

On 256 CPUs beside the kubelet's own times, as they were measured once on another machine; and on 1,024 CPUs with up to
64 NUMA nodes, where the kubelet would look at every combination of nodes.
"""

from __future__ import annotations

import argparse
import functools
import random
import typing as t

import bench
from _core.model.cpu import allocation
from _core.model.cpu.cpu_options import Options
from _core.model.values import cpuset
from _core.model.values.cpuset import CpuSet

COUNTS = (1, 2, 4, 8, 16, 32, 64)
MODES = {
    "packed": Options(),
    "spread": Options(distribute_cpus_across_cores=True),
    "packed+uncore": Options(prefer_align_cpus_by_uncorecache=True),
    "distributed": Options(distribute_cpus_across_numa=True),
}

# Go, Kubernetes 1.36.2, 2 shared cores: takeByTopology in ms for COUNTS on the same CPUs, by (nodes, free CPUs, mode).
KUBELET = {
    (2, "all", "packed"): (8.78, 4.50, 4.50, 5.79, 5.67, 7.48, 7.37),
    (2, "all", "spread"): (0.44, 0.50, 0.65, 0.86, 1.59, 2.77, 6.08),
    (2, "all", "packed+uncore"): (0.83, 0.82, 0.80, 0.82, 1.48, 1.52, 1.63),
    (2, "all", "distributed"): (3.29, 2.23, 2.15, 2.30, 2.35, 2.68, 3.11),
    (2, "two thirds", "packed"): (6.84, 3.76, 4.37, 6.35, 4.11, 4.77, 7.23),
    (2, "two thirds", "spread"): (0.26, 0.33, 0.38, 0.64, 0.96, 1.65, 2.87),
    (2, "two thirds", "packed+uncore"): (0.76, 1.02, 3.38, 3.54, 9.39, 11.97, 15.83),
    (2, "two thirds", "distributed"): (2.94, 2.01, 1.97, 1.73, 1.59, 2.41, 3.83),
    (8, "all", "packed"): (10.08, 3.63, 3.84, 4.34, 4.94, 0.56, 0.82),
    (8, "all", "spread"): (0.68, 0.73, 0.95, 2.07, 3.07, 0.99, 0.62),
    (8, "all", "packed+uncore"): (0.92, 0.90, 0.88, 0.90, 1.39, 0.90, 1.08),
    (8, "all", "distributed"): (2.21, 1.89, 1.53, 1.30, 1.32, 1.59, 2.90),
    (8, "two thirds", "packed"): (4.53, 2.36, 2.32, 2.63, 4.05, 6.20, 4.48),
    (8, "two thirds", "spread"): (0.40, 0.50, 0.47, 0.65, 0.94, 2.09, 3.42),
    (8, "two thirds", "packed+uncore"): (0.52, 0.51, 2.86, 3.01, 8.12, 8.87, 9.53),
    (8, "two thirds", "distributed"): (0.77, 0.74, 0.80, 0.88, 1.14, 2.42, 4.68),
}

# (CPUs, NUMA nodes, sockets) of the larger machines, and how many CPUs are taken.
LARGE = ((1024, 2, 2), (1024, 16, 4), (1024, 64, 8))
LARGE_COUNTS = (1, 16, 65, 300)

Row = list[t.Any]


def view_of(cpus: int, nodes: int, sockets: int) -> allocation.CpuTopology:
    """Two threads a core, as x86 numbers them, and a cache for 8 cores."""
    cores = cpus // 2
    return allocation.counted(
        {
            cpu: allocation.CpuInfo(core, core * sockets // cores, core * nodes // cores, core // 8)
            for cpu in range(cpus)
            for core in [cpu % cores]
        }
    )


def free_sets(view: allocation.CpuTopology) -> dict[str, CpuSet]:
    """All CPUs, two of three, and as they are on nodes that are used very unevenly."""
    chance = random.Random(1)
    share = {node: chance.random() for node in range(view.num_numa_nodes)}
    return {
        "all": frozenset(view.cpus),
        "two thirds": frozenset(cpu for cpu in view.cpus if cpu % 3),
        "uneven": frozenset(cpu for cpu, info in view.cpus.items() if chance.random() < share[info.numa]),
    }


def floor(text: str) -> str:
    """What reading and writing the state costs: the list of free CPUs parsed and formatted."""
    return cpuset.format(cpuset.parse(text))


def measure(
    view: allocation.CpuTopology, free: CpuSet, counts: t.Sequence[int], turns: int
) -> dict[str, bench.Seconds]:
    """The times of each mode and count, and of the floor."""
    works: dict[str, t.Callable[[], object]] = {"floor": functools.partial(floor, cpuset.format(free))}
    for mode, options in MODES.items():
        for count in counts:
            works[f"{mode} {count}"] = functools.partial(allocation.take, view, free, count, options)
    return bench.by_turns(works, turns)


def rows(size: tuple[int, int, int], names: t.Iterable[str], counts: t.Sequence[int], turns: int) -> t.Iterator[Row]:
    """A row for each free set and mode."""
    view = view_of(*size)
    sets = free_sets(view)
    for name in names:
        bench.progress(f"{size[0]} CPUs, {size[1]} nodes, {name}")
        times = measure(view, sets[name], counts, turns)
        for mode in MODES:
            seconds = [times[f"{mode} {count}"] for count in counts]
            highest = bench.ratio(max(seconds, key=bench.median), times["floor"])
            figures = [bench.median(one) * 1000 for one in seconds]
            floor_ms = bench.median(times["floor"]) * 1000
            shown = [f"{floor_ms:.3f}", *(f"{figure:.3f}" for figure in figures), highest]
            there = KUBELET.get((size[1], name, mode)) if size[0] == 256 else None
            if there:
                factors = [other / figure for other, figure in zip(there, figures)]
                shown += [f"{min(there):.2f}–{max(there):.2f}", f"{min(factors):.0f}–{max(factors):.0f}×"]
            yield [mode, size[1], name, *shown]


def head(counts: t.Sequence[int]) -> list[str]:
    return ["mode", "nodes", "free", "floor", *(f"n = {count}" for count in counts), "at most"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--turns", type=int, default=25, help="how often everything is run (default: 25)")
    turns = parser.parse_args().turns
    bench.header("make bench-allocate")
    both = [row for nodes in (2, 8) for row in rows((256, nodes, 2), ("all", "two thirds"), COUNTS, turns)]
    bench.say(bench.table([*head(COUNTS), "kubelet, elsewhere", "kubelet/here"], both))
    bench.say("1,024 CPUs:\n")
    large = [row for size in LARGE for row in rows(size, ("all", "two thirds", "uneven"), LARGE_COUNTS, turns)]
    bench.say(bench.table(head(LARGE_COUNTS), large))
    bench.footer()


if __name__ == "__main__":
    main()
