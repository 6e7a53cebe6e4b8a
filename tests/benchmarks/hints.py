# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""How long it takes to decide which NUMA nodes a workload gets, against looking once at what each node has.

A Guaranteed workload asks for CPUs, memory and huge pages. Up to 8 nodes every set of nodes is judged and the hints are
merged, as in the kubelet; beyond, where the kubelet refuses to start, it is a search.
"""

from __future__ import annotations

import argparse
import functools
import random
import typing as t

import bench
from _core.model.numa import affinity, node_sets, topology_manager
from _core.model.numa.affinity import decide
from _core.model.numa.node_sets import Demand
from _core.model.numa.topology_manager import Distances, Policy

SIZES = (2, 4, 8, 16, 32, 64)
SOCKET = 8  # nodes; those of another socket are farther away
RESTRICTED = Policy("restricted", max_nodes=64)
CLOSEST = RESTRICTED._replace(prefer_closest=True)
HEAD = (
    "nodes are",
    "NUMA nodes",
    "verdict",
    "permutations",
    "floor ms",
    "merge ms",
    "all ms",
    "all/floor",
    "closest ms",
)

# (of a node, asked for per node that the workload is to span)
EACH = {"cpu": (32, 24), "memory": (64 << 30, 40 << 30), "hugepages-2Mi": (8 << 30, 6 << 30)}


def demand(resource: str, amount: int, capacity: int, free: t.Sequence[int]) -> Demand:
    """One resource of all nodes; memory and huge pages are one manager's."""
    together = "" if resource == "cpu" else "memory"
    return Demand(resource, amount, dict.fromkeys(range(len(free)), capacity), dict(enumerate(free)), together=together)


def empty(nodes: int) -> list[Demand]:
    """Nothing runs yet; the workload takes a quarter of the machine."""
    span = max(1, nodes // 4)
    return [demand(name, asked * span, has, [has] * nodes) for name, (has, asked) in EACH.items()]


def half_full(nodes: int) -> list[Demand]:
    """Each node is used to another degree; the workload would fit on one that is not."""
    rng = random.Random(nodes)
    used = [rng.random() for dummy in range(nodes)]
    return [demand(name, asked, has, [int(has * (1 - part)) for part in used]) for name, (has, asked) in EACH.items()]


def unlike(nodes: int) -> list[Demand]:
    """What has CPUs may have no memory: more than half of all is asked for, and hardly any half of the nodes has it."""
    rng = random.Random(nodes)
    demands = []
    for name, (has, dummy) in EACH.items():
        free = [rng.randint(0, has) for dummy in range(nodes)]
        demands.append(demand(name, max(1, sum(free) * 9 // 16), has, free))
    return demands


def full(nodes: int) -> list[Demand]:
    """More than all nodes have left together."""
    return [demand(name, has // 4 * nodes, has, [has // 8] * nodes) for name, (has, dummy) in EACH.items()]


CASES = {"empty": empty, "half full": half_full, "unlike": unlike, "full": full}


def distances(nodes: int) -> Distances:
    return {
        a: {b: 10 if a == b else 12 if a // SOCKET == b // SOCKET else 32 for b in range(nodes)} for a in range(nodes)
    }


def look(demands: t.Sequence[Demand]) -> int:
    """The floor: the total of each resource."""
    return sum(sum(one.free[node] for node in one.capacity) >= one.amount for one in demands)


def permutations(demands: t.Sequence[Demand]) -> int:
    """How many hints the kubelet would merge: the product of the sets of nodes that are enough, by resource."""
    product = 1
    for provider in node_sets.providers_of(RESTRICTED, demands):
        product *= max(1, len(affinity.hints_of(provider))) ** len(provider.demands)
    return product


def row(case: str, nodes: int, turns: int) -> tuple[object, ...]:
    """The figures of one case."""
    demands = CASES[case](nodes)
    far = distances(nodes)
    works: dict[str, t.Callable[[], object]] = {
        "floor": functools.partial(look, demands),
        "all": functools.partial(decide, RESTRICTED, demands, range(nodes)),
        "closest": functools.partial(decide, CLOSEST, demands, range(nodes), far),
    }
    count = "-"
    if nodes <= affinity.EXACT_NODES:
        count = f"{permutations(demands):,}"
        providers = node_sets.providers_of(RESTRICTED, demands)
        hints = [affinity.hints_of(provider) for provider in providers for dummy in provider.demands]
        works["merge"] = functools.partial(topology_manager.merge, RESTRICTED.name, hints, range(nodes))
    times = bench.by_turns(works, turns)
    found = decide(RESTRICTED, demands, range(nodes))
    verdict = f"on {len(found.nodes or ())}" if found.admitted else "refused"

    def ms(work: str) -> str:
        return f"{bench.median(times[work]) * 1000:.3f}" if work in times else "-"

    ratio = bench.ratio(times["all"], times["floor"])
    return case, nodes, verdict, count, ms("floor"), ms("merge"), ms("all"), ratio, ms("closest")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--turns", type=int, default=21, help="how often everything is run (default: 21)")
    turns = parser.parse_args().turns
    bench.header("make bench-hints")
    rows = []
    for case in CASES:
        for nodes in SIZES:
            bench.progress(f"{case}, {nodes} nodes")
            rows.append(row(case, nodes, turns))
    bench.say(bench.table(HEAD, rows))
    bench.footer()


if __name__ == "__main__":
    main()
