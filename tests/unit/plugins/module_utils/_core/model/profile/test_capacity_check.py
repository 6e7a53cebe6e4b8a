# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What keeps a profile from a machine: memory, hugepages and their mounts."""

from __future__ import annotations

import typing as t

import pytest
from _core.model.profile import capacity_check, profile
from _core.model.topology.topology import NumaNode, Topology
from machines import machine

LAB = machine()  # two nodes of 1 GiB
NO_NUMA = machine(1)._replace(numa={}, machine_memory_kib=1 << 20)
UNTOLD = machine(memory_kib=None)
SMALL = {"size": "2Mi", "count": 32}


def read(**memory: object) -> profile.Profile:
    return profile.parse({"name": "x", "memory": memory})


def pools(*declared: dict[str, object], **reserved: str) -> dict[str, t.Any]:
    return {"hugepages": list(declared), "reserved": {node[1:]: size for node, size in reserved.items()}}


def mounts(*declared: dict[str, object], hugepages: t.Sequence[dict[str, object]] = ()) -> dict[str, t.Any]:
    return {
        "mounts": [{"path": f"/mnt/{number}", **mount} for number, mount in enumerate(declared)],
        "hugepages": list(hugepages),
    }


def holding(topology: Topology, node: int, hugepages: dict[int, int]) -> Topology:
    return topology._replace(numa={**topology.numa, node: topology.numa[node]._replace(hugepages=hugepages)})


@pytest.mark.parametrize(
    ("topology", "memory"),
    [
        (LAB, pools({**SMALL, "node": 0}, {**SMALL, "node": 1}, n0="256Mi", n1="256Mi")),
        (LAB, pools({"size": "2Mi", "count": 512, "node": 0})),  # a whole node
        (LAB, pools({"size": "2Mi", "count": 1024})),  # the whole machine
        (LAB, pools({"size": "1Gi", "count": 0, "node": 1}, n1="512Mi")),
        (NO_NUMA, pools(SMALL, n0="512Mi")),
        (UNTOLD, pools({"size": "2Mi", "count": 1 << 30, "node": 0}, n0="512Gi")),  # cannot be checked: a note
        (LAB, mounts({"pagesize": "2Mi", "size": "8Gi"})),
        (LAB, mounts({"pagesize": "2Mi", "min_size": "64Mi"}, hugepages=[SMALL])),
        (LAB, mounts({"pagesize": "2Mi", "min_size": "64Mi"}, hugepages=[{**SMALL, "node": 1}])),
        (holding(LAB, 1, {2048: 32}), mounts({"pagesize": "2Mi", "min_size": "64Mi"})),
    ],
)  # fmt: skip
def test_it_fits(topology: Topology, memory: dict[str, t.Any]) -> None:
    assert capacity_check.check_node(read(**memory), topology) == []


@pytest.mark.parametrize(
    ("topology", "memory", "line"),
    [
        (LAB, pools(n2="1Gi"), "memory.reserved.2: 1Gi: the NUMA nodes with memory are 0-1: name one of them"),
        (LAB, pools(n1="1Gi"), "memory.reserved.1: 1Gi: NUMA node 1 has 1024Mi: reserve less"),
        (NO_NUMA, pools(n1="1Gi"), "memory.reserved.1: 1Gi: this node shows no NUMA nodes: leave the node out"),
        (machine(memory_kib=0), pools(n1="1Gi"), "memory.reserved.1: 1Gi: NUMA node 1 has no memory: leave it out"),
        (LAB, pools({**SMALL, "size": "512Mi"}),
         "memory.hugepages[0].size: 512Mi: this node has pages of 2Mi and 1Gi: write one of these"),
        (LAB, pools({**SMALL, "size": "512Mi", "node": 1}),
         "memory.hugepages[0].size: 512Mi: NUMA node 1 has pages of 2Mi and 1Gi: write one of these"),
        (Topology(frozenset({0})), pools(SMALL),
         "memory.hugepages[0].size: 2Mi: this node shows no hugepages (no folder /sys/…/hugepages): leave them out"),
        (LAB, pools({**SMALL, "node": 7}), "memory.hugepages[0].node: 7: the NUMA nodes with memory are 0-1: name one of them"),
        (NO_NUMA, pools({**SMALL, "node": 0}), "memory.hugepages[0].node: 0: this node shows no NUMA nodes: leave the node out"),
        (holding(LAB, 1, {}), pools({**SMALL, "node": 1}),
         "memory.hugepages[0].node: 1: NUMA node 1 shows no pools of its own: leave node out"),
        (machine(memory_kib=0), pools({**SMALL, "node": 1}), "memory.hugepages[0].node: 1: NUMA node 1 has no memory: name another"),
        (LAB, pools({"size": "2Mi", "count": 513, "node": 0}),
         "memory.hugepages[0].count: 513: that is 1026Mi, NUMA node 0 has 1024Mi: declare at most 512 pages of 2Mi"),
        (LAB, pools({"size": "2Mi", "count": 5000, "node": 1}, n1="256Mi"),
         "memory.hugepages[0].count: 5000: that is 10000Mi, NUMA node 1 has 1024Mi, 256Mi of it reserved: declare at most 384 pages of 2Mi"),
        (LAB, pools({"size": "2Mi", "count": 257, "node": 0}, {"size": "1Gi", "count": 1, "node": 0}),
         "memory.hugepages: 1538Mi: in all; NUMA node 0 has 1024Mi: declare at most 1024Mi together"),
        (LAB, pools({"size": "2Mi", "count": 1000}, n0="256Mi"),
         "memory.hugepages[0].count: 1000: that is 2000Mi, this node has 2048Mi, 256Mi of it reserved: declare at most 896 pages of 2Mi"),
        (LAB, mounts({"pagesize": "16Gi"}), "memory.mounts[0].pagesize: 16Gi: this node has pages of 2Mi and 1Gi: write one of these"),
        (LAB, mounts({"pagesize": "2Mi", "min_size": "66Mi"}, hugepages=[SMALL]),
         "memory.mounts[0].min_size: 66Mi: the pool of 2Mi pages has 64Mi for it: ask for less, or declare more pages in memory.hugepages"),
        (LAB, mounts({"pagesize": "2Mi", "min_size": "48Mi"}, {"pagesize": "2Mi", "min_size": "48Mi"}, hugepages=[SMALL]),
         "memory.mounts[1].min_size: 48Mi: the pool of 2Mi pages has 16Mi for it: ask for less, or declare more pages in memory.hugepages"),
        (LAB, mounts({"pagesize": "1Gi", "min_size": "1Gi"}),
         "memory.mounts[0].min_size: 1Gi: the pool of 1Gi pages has 0 for it: ask for less, or declare more pages in memory.hugepages"),
    ],
)  # fmt: skip
def test_it_does_not_fit(topology: Topology, memory: dict[str, t.Any], line: str) -> None:
    assert [problem.line() for problem in capacity_check.check_node(read(**memory), topology)] == [line]


def test_cpus_and_memory_are_refused_together() -> None:
    both = profile.parse(
        {
            "name": "x",
            "cpu": {"reserved": {"cpus": "99"}},
            "memory": {"reserved": {"5": "1Gi"}, "hugepages": [{**SMALL, "node": 5}]},
        }
    )
    assert [problem.path for problem in capacity_check.check_node(both, LAB)] == [
        "cpu.reserved.cpus",
        "memory.reserved.5",
        "memory.hugepages[0].node",
    ]


@pytest.mark.parametrize(
    ("topology", "memory", "note"),
    [
        (UNTOLD, pools({**SMALL, "node": 1}), "the kernel does not report the memory of NUMA node 1: its hugepage budget is not checked"),
        (UNTOLD, pools(SMALL), "the kernel does not report the machine's memory: the hugepage budget is not checked"),
        (holding(LAB, 0, {2048: 0, 524288: 1}), pools({"size": "2Mi", "count": 400, "node": 0}),
         "NUMA node 0 holds hugepages that the profile does not declare (1 of 512Mi): with them its budget is exceeded"),
        (LAB, mounts({"pagesize": "2Mi", "size": "128Mi"}, hugepages=[SMALL]), "/mnt/0 may hold 128Mi, the pool of 2Mi pages has 64Mi"),
        (LAB, pools({"size": "2Mi", "count": 490, "node": 1}),
         "hugepages take 980Mi of 1024Mi on NUMA node 1, and leave 44Mi to all else: declare fewer, or memory.reserved_per_numa"),
        (LAB, pools({"size": "2Mi", "count": 1000}),
         "hugepages take 2000Mi of 2048Mi on this node, and leave 48Mi to all else: declare fewer, or memory.reserved_per_numa"),
    ],
)  # fmt: skip
def test_notes(topology: Topology, memory: dict[str, t.Any], note: str) -> None:
    assert capacity_check.notes(read(**memory), topology) == (note,)


def test_hugepages_may_take_what_the_profile_lets_them_and_the_memory_of_nodes_without_cpus() -> None:
    gpu = LAB._replace(numa={**LAB.numa, 2: NumaNode(2, frozenset(), 1 << 20, {2048: 0})}, machine_memory_kib=3 << 20)
    for memory in (pools({**SMALL, "node": 1, "count": 490}, n1="1Mi"), pools({**SMALL, "node": 2, "count": 512})):
        assert capacity_check.notes(read(**memory), gpu) == ()


def test_a_node_of_memory_only_has_hugepages_too() -> None:
    topology = LAB._replace(numa={**LAB.numa, 2: NumaNode(2, frozenset(), 1 << 20, {2048: 0})})
    assert capacity_check.check_node(read(**pools({**SMALL, "node": 2}, n2="512Mi")), topology) == []
