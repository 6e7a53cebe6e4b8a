# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""One profile for unlike nodes: places, shares and optional parts, on made-up and recorded machines."""

from __future__ import annotations

import typing as t
from pathlib import Path

import pytest
import yaml
from _core.model.cpu import pools
from _core.model.profile import capacity_check, node_intent, profile
from _core.model.topology.topology import Topology
from _core.model.values import cpuset
from _core.model.values.errors import CorralError
from machines import machine
from recorded import Archive, machines, topology_of

EDGE = Path(__file__).resolve().parents[7] / "examples" / "edge.yml"
LAB = machine()  # two nodes of 1 GiB, 8 CPUs, SMT
ONE = machine(1)
NO_NUMA = ONE._replace(numa={}, machine_memory_kib=1 << 20)
UNTOLD = machine(memory_kib=None)
GPU = LAB._replace(numa={**LAB.numa, 2: LAB.numa[1], 3: LAB.numa[1]})  # two NUMA nodes of a GPU's memory, without CPUs
MIB = 1 << 20


def read(cpu: t.Any = None, **memory: object) -> profile.Profile:
    return profile.parse({"name": "x", **({"cpu": cpu} if cpu else {}), "memory": memory})


def pool(count: object = 8, **more: object) -> dict[str, object]:
    return {"size": "2Mi", **({"count": count} if count is not None else {}), **more}


def resolved(declared: profile.Profile, topology: Topology) -> node_intent.Resolved:
    assert profile.has_intents(declared)
    assert profile.parse(profile.to_data(declared)) == declared, "it is written as it was read"
    found = node_intent.resolve(declared, topology)
    assert not profile.has_intents(found.profile)
    assert node_intent.resolve(declared, topology) == found
    return found


def places(found: node_intent.Resolved) -> list[tuple[int, int | None, int]]:
    """The declared index, NUMA node and pages of each literal pool."""
    return [(index, row.node, row.pages) for index, row in zip(found.hugepages, found.profile.memory.hugepages)]


@pytest.mark.parametrize(
    ("topology", "declared", "wanted"),
    [
        (LAB, [pool(node="each")], [(0, 0, 8), (0, 1, 8)]),
        (LAB, [pool(node="first")], [(0, 0, 8)]),
        (LAB, [pool(node="last")], [(0, 1, 8)]),
        (ONE, [pool(node="last")], [(0, 0, 8)]),
        (ONE, [pool(node="each")], [(0, 0, 8)]),
        (NO_NUMA, [pool(node="each")], [(0, None, 8)]),
        (NO_NUMA, [pool(node="last")], [(0, None, 8)]),
        (LAB, [pool(node="each"), pool(3, node=1)], [(0, 0, 8), (1, 1, 3)]),
        (LAB, [pool(node="each"), pool(3, node="last")], [(0, 0, 8), (1, 1, 3)]),
        (GPU, [pool(node="each"), pool(3, node=2)], [(0, 0, 8), (0, 1, 8), (1, 2, 3)]),
        (GPU, [pool(node="last")], [(0, 1, 8)]),
        (LAB, [pool(None, share="25%")], [(0, None, 256)]),
        (LAB, [pool(None, share="25%", node="each")], [(0, 0, 128), (0, 1, 128)]),
        (LAB, [pool(None, share="12.5%", node=1)], [(0, 1, 64)]),
        (LAB, [pool(None, share="0.01%", node=1)], [(0, 1, 0)]),  # less than a page
    ],
)  # fmt: skip
def test_places_and_shares_become_literal(
    topology: Topology, declared: list[dict[str, object]], wanted: list[tuple[int, int | None, int]]
) -> None:
    found = resolved(read(hugepages=declared), topology)
    assert (places(found), found.notes, found.problems) == (wanted, (), ())
    assert capacity_check.check_node(found.profile, topology) == []


@pytest.mark.parametrize(
    ("topology", "memory", "line"),
    [
        (LAB, {"hugepages": [pool(node="last"), pool(node=1)]},
         "memory.hugepages[1].node: 1: is NUMA node 1 here, for which memory.hugepages[0] declares a pool of this size: write one of them"),
        (ONE, {"hugepages": [pool(node="first"), pool(node="last")]}, "memory.hugepages[1].node: last: is NUMA node 0 here"),
        (NO_NUMA, {"hugepages": [pool(node="first"), pool(node="last")]}, "memory.hugepages[1].node: last: is the whole machine here"),
        (UNTOLD, {"hugepages": [pool(None, share="5%", node=0)]},
         "memory.hugepages[0].share: 5%: the kernel does not report the memory of NUMA node 0: write count"),
        (LAB, {"hugepages": [pool(near="ens9")]}, "memory.hugepages[0].near: ens9: this node has no such interface"),
        (LAB, {"hugepages": [pool(node="each"), pool(600, size="2Mi", node=1)]},
         "memory.hugepages[1].count: 600: that is 1200Mi, NUMA node 1 has 1024Mi: declare at most 512 pages of 2Mi"),
        (LAB, {"hugepages": [pool(size="16Mi", node="each")]}, "memory.hugepages[0].size: 16Mi: NUMA node 0 has pages of 2Mi and 1Gi"),
        (LAB, {"reserved_per_numa": "2Gi"}, "memory.reserved_per_numa: 2Gi: NUMA node 0 has 1024Mi: reserve less"),
    ],
)  # fmt: skip
def test_what_a_node_cannot_have_is_refused_by_the_declared_path(
    topology: Topology, memory: dict[str, t.Any], line: str
) -> None:
    found = resolved(read(**memory), topology)
    problems = [*found.problems, *map(found.as_declared, capacity_check.check_node(found.profile, topology))]
    assert [one.line() for one in problems if one.line().startswith(line)], [one.line() for one in problems]


def test_memory_is_kept_on_each_numa_node() -> None:
    found = resolved(read(reserved={"1": "256Mi"}, reserved_per_numa="50%"), LAB)
    assert [(row.node, row.size // MIB) for row in found.profile.memory.reserved] == [(0, 512), (1, 256)]
    found = resolved(read(reserved_per_numa="64Mi"), GPU)
    assert [row.node for row in found.profile.memory.reserved] == [0, 1]
    found = resolved(read(reserved_per_numa="64Mi"), NO_NUMA)
    assert [(row.node, row.size // MIB) for row in found.profile.memory.reserved] == [(0, 64)]
    found = resolved(read(reserved_per_numa="50%"), UNTOLD)
    assert found.profile.memory.reserved == () and len(found.notes) == 2


def test_optional_parts_are_left_out_one_by_one_with_the_reason() -> None:
    optional = {"optional": True}
    memory = {
        "hugepages": [
            pool(size="16Mi", **optional),  # a size that the kernel lacks
            pool(node=7, **optional),
            pool(node="each"),
            pool(600, size="1Gi", node=0, **optional),  # too many
            pool(1, size="1Gi", node=1, **optional),  # beside 16 MiB of the others: too many as well
        ],
        "mounts": [
            {"path": "/mnt/a", "pagesize": "16Mi", **optional},
            {"path": "/mnt/b", "pagesize": "2Mi", "min_size": "1Gi", **optional},
            {"path": "/mnt/c", "pagesize": "2Mi", "size": "16Mi", **optional},
        ],
    }
    found = resolved(read(**memory), LAB)
    assert places(found) == [(2, 0, 8), (2, 1, 8)] and found.problems == ()
    assert (found.mounts, [mount.path for mount in found.profile.memory.mounts]) == ((2,), ["/mnt/c"])
    left = [note.split(" is optional and left out: ")[0] for note in found.notes]
    assert left == [*(f"memory.hugepages[{index}]" for index in (0, 1, 3, 4)), "memory.mounts[0]", "memory.mounts[1]"]
    assert capacity_check.check_node(found.profile, LAB) == []


def test_an_optional_pool_may_be_there_on_some_numa_nodes_only() -> None:
    numa = {**LAB.numa, 1: LAB.numa[1]._replace(memory_kib=8 << 10)}
    found = resolved(read(hugepages=[pool(node="each", optional=True)]), LAB._replace(numa=numa))
    assert places(found) == [(0, 0, 8)]
    assert found.notes[0].startswith("memory.hugepages[0] is optional and left out on some NUMA nodes: ")


def test_optional_parts_wait_until_the_rest_of_the_profile_fits() -> None:
    """What is refused is what the profile demands; no optional part is blamed for it, and none hides it."""
    found = resolved(read(hugepages=[pool(600, node=0), pool(node="last", optional=True)]), LAB)
    assert places(found) == [(0, 0, 600)] and found.notes == ()
    assert [one.path for one in map(found.as_declared, capacity_check.check_node(found.profile, LAB))] == [
        "memory.hugepages[0].count"
    ]


@pytest.mark.parametrize(
    ("topology", "isolated", "cpus"),
    [
        (LAB, {"cores": 1, "numa": "last"}, "6-7"),
        (LAB, {"cores": 1, "numa": "first"}, "2-3"),
        (LAB, {"cores": 1, "numa": "last", "optional": True}, "6-7"),
        (LAB, {"cores": 2, "numa": "last", "optional": True}, ""),
        (LAB, {"cores": 1, "near": "ens9", "optional": True}, ""),
        (LAB, {"cpus": "90", "optional": True}, ""),
        (LAB, {"cores": 2, "optional": True}, ""),  # nothing would be left to share
    ],
)  # fmt: skip
def test_isolated_cpus_are_where_the_word_says_or_left_out(
    topology: Topology, isolated: dict[str, object], cpus: str
) -> None:
    found = resolved(read({"reserved": {"cores_per_numa": 1}, "isolated": isolated}), topology)
    assert cpuset.format(pools.compute(found.profile, topology).isolated) == cpus
    assert [note.startswith("cpu.isolated is optional and left out: ") for note in found.notes] == [True] * (not cpus)


def test_isolated_cpus_that_are_not_optional_are_refused() -> None:
    found = resolved(read({"reserved": {"cores_per_numa": 1}, "isolated": {"cores": 2, "numa": "last"}}), LAB)
    with pytest.raises(CorralError, match=r"cpu\.isolated\.cores: 2: NUMA node 1 has 1 core left"):
        pools.compute(found.profile, LAB)


@pytest.mark.parametrize(
    ("memory", "line"),
    [
        ({"hugepages": [pool(8, share="5%")]}, "memory.hugepages[0]: declares count and share together"),
        ({"hugepages": [{"size": "2Mi"}]}, "memory.hugepages[0].count: is missing: write it as in count: 512, or share: 25%"),
        ({"hugepages": [pool(node=0, near="ens1")]}, "memory.hugepages[0]: declares node and near together"),
        ({"hugepages": [pool(node="each"), pool(node="each")]}, "memory.hugepages[1]: 2Mi: is declared for each NUMA node in memory.hugepages[0] already"),
        ({"hugepages": [pool(node="each"), pool()]}, "memory.hugepages[1]: 2Mi: is declared for single NUMA nodes before"),
        ({"hugepages": [pool(node="nearest")]}, 'memory.hugepages[0].node: nearest: is not a NUMA node: write a number such as "0", or each, first or last'),
        ({"hugepages": [pool(None, share=25)]}, "memory.hugepages[0].share: 25: is a number, not text"),
        ({"hugepages": [pool(None, share="0%")]}, "memory.hugepages[0].share: 0%: is not a share"),
        ({"hugepages": [pool(None, share="101%")]}, "memory.hugepages[0].share: 101%: is not a share"),
        ({"reserved": {"0": "5%"}}, "memory.reserved.0: 5%: a share in percent depends on the node"),
        ({"reserved_per_numa": "0"}, "memory.reserved_per_numa: 0: is not more than 0"),
    ],
)  # fmt: skip
def test_contradictions_are_refused_on_any_node(memory: dict[str, t.Any], line: str) -> None:
    with pytest.raises(CorralError) as refused:
        read(**memory)
    assert [one for one in str(refused.value).splitlines() if one.startswith(line)], str(refused.value)


@pytest.mark.parametrize("archive", machines())
def test_the_example_serves_every_machine_with_four_cpus(archive: Path) -> None:
    declared = profile.parse(yaml.safe_load(EDGE.read_text()))
    topology = topology_of(archive)
    assert Archive(archive).writes == []
    found = resolved(declared, topology)
    problems = [*found.problems, *capacity_check.check_node(found.profile, topology)]
    if len(topology.online) >= 4:
        assert problems == []
    if problems:
        assert [one.path for one in problems] == ["cpu.reserved.cores_per_numa"]
    else:
        computed = pools.compute(found.profile, topology)
        assert computed.reserved and computed.shared
        parts = bool(computed.isolated), bool(found.profile.memory.hugepages), bool(found.profile.memory.mounts)
        assert parts.count(False) <= len(found.notes), "what is left out is named"
