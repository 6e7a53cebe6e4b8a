# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The pools of made-up machines, and properties of all of them."""

from __future__ import annotations

import typing as t

import pytest
from _core.model.cpu import pools, published_pools
from _core.model.profile import profile
from _core.model.topology.topology import NumaNode, Topology, ordered
from _core.model.values import cpuset
from _core.model.values.errors import CorralError
from hypothesis import given
from hypothesis import strategies as st
from machines import GIB_KIB, device, machine

LAB = machine()
NET = {"ens1f0": "0000:3b:00.0", "br0": None}
NIC = machine(net=NET, pci=device("0000:3b:00.0", 1))


def compute(topology: Topology, **cpu: object) -> pools.Pools:
    return pools.compute(profile.parse({"name": "x", "cpu": cpu}), topology)


def sets(found: pools.Pools) -> list[str]:
    return [cpuset.format(cpus) for cpus in (found.reserved, found.shared, found.isolated)]


def with_empty_node(node: int, topology: Topology = LAB) -> Topology:
    numa = {**topology.numa, node: NumaNode(node, frozenset(), GIB_KIB, {})}
    return topology._replace(
        numa=numa, distance_nodes=(0, 1, node), distances=((10, 20, 30), (20, 10, 15), (30, 15, 10))
    )


@pytest.mark.parametrize(
    ("topology", "cpu", "reserved", "shared", "isolated"),
    [
        (LAB, {"reserved": {"cpus": "0-1"}}, "0-1", "2-7", ""),
        (LAB, {"reserved": {"count": 2}}, "0-1", "2-7", ""),
        (LAB, {"reserved": {"count": 3}, "whole_cores": True}, "0-3", "4-7", ""),
        (LAB, {"reserved": {"cores_per_numa": 1}}, "0-1,4-5", "2-3,6-7", ""),
        # The first core of node 0 is isolated by the kernel: housekeeping takes the next.
        (LAB._replace(isolated=frozenset({0, 1})), {"reserved": {"cores_per_numa": 1}}, "2-5", "0-1,6-7", ""),
        (with_empty_node(2), {"reserved": {"cores_per_numa": 1}}, "0-1,4-5", "2-3,6-7", ""),
        (LAB, {"reserved": {"cores_per_numa": 1}, "isolated": {"cores": 1, "numa": 1}}, "0-1,4-5", "2-3", "6-7"),
        (LAB, {"reserved": {"cpus": "0-1"}, "isolated": {"cpus": "3,7"}}, "0-1", "2,4-6", "3,7"),
        # One node can hold both cores; one of three does not fit on any, so as few nodes as can be.
        (LAB, {"reserved": {"cpus": "0"}, "isolated": {"cores": 2}}, "0", "1-3", "4-7"),
        (machine(4, 2, 1), {"reserved": {"cpus": "0"}, "isolated": {"cores": 3}}, "0", "1,5-7", "2-4"),
        # What the kernel isolates already comes first, also when it is on a later node.
        (machine(4, 2, 1, isolated=frozenset({7})), {"reserved": {"cpus": "0"}, "isolated": {"cores": 1}}, "0", "1-6", "7"),
        # A reserved thread makes its core unfit for isolation.
        (LAB, {"reserved": {"cpus": "4"}, "isolated": {"cores": 1, "numa": 1}}, "4", "0-3,5", "6-7"),
        (NIC, {"reserved": {"cpus": "0"}, "isolated": {"cores": 1, "near": "ens1f0"}}, "0", "1-3,6-7", "4-5"),
        (NIC, {"reserved": {"cpus": "0"}, "isolated": {"cores": 1, "near": "3b:00.0"}}, "0", "1-3,6-7", "4-5"),
        # Firmware of a machine with one node tells -1.
        (machine(1, 4, 2, pci=device("0000:00:1f.0", -1)),
         {"reserved": {"cpus": "0-1"}, "isolated": {"cores": 1, "near": "0000:00:1f.0"}}, "0-1", "4-7", "2-3"),
        # An offline sibling: the rest of the core is the core.
        (machine(offline_present=frozenset({1})), {"reserved": {"cores_per_numa": 1}, "whole_cores": True}, "0,4-5", "2-3,6-7", ""),
        # No NUMA directory: all CPUs are node 0. No core files: each CPU is a core.
        (Topology(frozenset(range(4))), {"reserved": {"cores_per_numa": 1}, "isolated": {"cores": 1, "numa": 0}}, "0", "2-3", "1"),
    ],
)  # fmt: skip
def test_pools(topology: Topology, cpu: dict[str, object], reserved: str, shared: str, isolated: str) -> None:
    assert sets(compute(topology, **cpu)) == [reserved, shared, isolated]


SAFE = "reserve at most 7, so that one is left to share"


@pytest.mark.parametrize(
    ("topology", "cpu", "line"),
    [
        (LAB, {"reserved": {"cpus": "9-15"}},
         "cpu.reserved.cpus: 9-15: this node has CPUs 0-7; name CPUs among those, or use cores_per_numa"),
        (machine(offline_present=frozenset({1})), {"reserved": {"cpus": "0-1"}},
         "cpu.reserved.cpus: 0-1: this node has CPUs 0,2-7 (and 1, which is offline); name CPUs among those, or use cores_per_numa"),
        (LAB, {"reserved": {"cpus": "0-7"}},
         "cpu.reserved.cpus: 0-7: takes all CPUs of this node (0-7), none is left to share: reserve fewer, by cpus or count"),
        (LAB, {"reserved": {"count": 8}}, f"cpu.reserved.count: 8: this node has 8 CPUs: {SAFE}"),
        (LAB, {"reserved": {"count": 7}, "whole_cores": True},
         "cpu.reserved.count: 7: in whole cores that is all CPUs of this node: reserve at most 6"),
        (machine(1, 1, 2), {"reserved": {"count": 1}, "whole_cores": True},
         "cpu.reserved.count: 1: in whole cores that is all CPUs of this node: it has one core: set cpu.whole_cores to false"),
        (machine(1, 1, 1), {"reserved": {"count": 1}},
         "cpu.reserved.count: 1: this node has a single CPU: it cannot be divided; leave the cpu section out"),
        (LAB, {"reserved": {"cores_per_numa": 2}},
         "cpu.reserved.cores_per_numa: 2: takes all CPUs of this node (0-7), none is left to share: reserve fewer, by cpus or count"),
        (LAB, {"reserved": {"cpus": "0,2-3"}, "whole_cores": True},
         "cpu.reserved.cpus: 0,2-3: splits cores, 1 are siblings: write 0-3, or set cpu.whole_cores to false"),
        (LAB, {"reserved": {"cpus": "0"}, "isolated": {"cpus": "7-8"}},
         "cpu.isolated.cpus: 7-8: this node has CPUs 0-7; name CPUs among those, or use cores"),
        (LAB, {"reserved": {"cores_per_numa": 1}, "isolated": {"cpus": "4-6"}},
         "cpu.isolated.cpus: 4-6: CPUs 4-5 are reserved on this node: name others, or use cores"),
        (LAB, {"reserved": {"cores_per_numa": 1}, "isolated": {"cores": 2, "numa": 1}},
         ("cpu.isolated.cores: 2: NUMA node 1 has 1 core left after those with reserved CPUs: isolate at most 1, "
         "or take them from another NUMA node")),
        (LAB, {"reserved": {"cores_per_numa": 1}, "isolated": {"cores": 5}},
         "cpu.isolated.cores: 5: this node has 2 cores left after those with reserved CPUs: isolate at most 1, so that one is left to share"),
        (machine(1, 2, 2), {"reserved": {"cores_per_numa": 1}, "isolated": {"cores": 2}},
         "cpu.isolated.cores: 2: this node has 1 core left after those with reserved CPUs: leave cpu.isolated out, or reserve less"),
        (LAB, {"reserved": {"cores_per_numa": 1}, "isolated": {"cores": 2}},
         ("cpu: reserved (0-1,4-5) and isolated (2-3,6-7) take all CPUs of this node (0-7), none is left to share: "
         "reserve or isolate fewer")),
        (LAB, {"reserved": {"count": 1}, "isolated": {"cores": 1, "numa": 3}},
         "cpu.isolated.numa: 3: the NUMA nodes with CPUs are 0-1: name one of them"),
        (with_empty_node(2), {"reserved": {"count": 1}, "isolated": {"cores": 1, "numa": 2}},
         "cpu.isolated.numa: 2: NUMA node 2 has no CPUs; name another, such as numa: 1, the nearest that has"),
        (NIC, {"reserved": {"count": 1}, "isolated": {"cores": 1, "near": "ens1f1"}},
         "cpu.isolated.near: ens1f1: this node has no such interface: did you mean ens1f0?"),
        (NIC, {"reserved": {"count": 1}, "isolated": {"cores": 1, "near": "wlan0"}},
         "cpu.isolated.near: wlan0: this node has no such interface: it has ens1f0; name one of them"),
        (NIC, {"reserved": {"count": 1}, "isolated": {"cores": 1, "near": "br0"}},
         "cpu.isolated.near: br0: is not a PCI device's interface: name the one below it, or write numa: one of 0-1 instead of near"),
        (LAB, {"reserved": {"count": 1}, "isolated": {"cores": 1, "near": "eth0"}},
         "cpu.isolated.near: eth0: this node has no such interface: write numa: one of 0-1 instead of near"),
        (NIC, {"reserved": {"count": 1}, "isolated": {"cores": 1, "near": "0000:3b:00.1"}},
         "cpu.isolated.near: 0000:3b:00.1: this node has no PCI device 0000:3b:00.1: did you mean 0000:3b:00.0?"),
        (machine(net=NET, pci=device("0000:3b:00.0", -1)), {"reserved": {"count": 1}, "isolated": {"cores": 1, "near": "ens1f0"}},
         "cpu.isolated.near: ens1f0: the firmware reports no NUMA node for ens1f0 (0000:3b:00.0): write numa: one of 0-1 instead of near"),
        (with_empty_node(2)._replace(net=NET, pci=device("0000:3b:00.0", 2)),
         {"reserved": {"count": 1}, "isolated": {"cores": 1, "near": "ens1f0"}},
         ("cpu.isolated.near: ens1f0: ens1f0 (0000:3b:00.0) is on NUMA node 2: NUMA node 2 has no CPUs; name another, such as "
         "numa: 1, the nearest that has")),
    ],
)  # fmt: skip
def test_a_profile_that_this_node_cannot_have(topology: Topology, cpu: dict[str, object], line: str) -> None:
    with pytest.raises(CorralError) as refused:
        compute(topology, **cpu)
    assert str(refused.value) == line


@pytest.mark.parametrize("topology", [LAB, machine(1, 4, 2), machine(1, 4, 1)])
@pytest.mark.parametrize("reserved", [{"cores_per_numa": 1}, {"count": 1}])
def test_as_many_cores_as_a_refusal_names_can_be_isolated(topology: Topology, reserved: dict[str, object]) -> None:
    with pytest.raises(CorralError) as error:
        compute(topology, reserved=reserved, isolated={"cores": 99})
    most = int(str(error.value).partition("isolate at most ")[2].partition(",")[0])
    found = compute(topology, reserved=reserved, isolated={"cores": most})
    assert found.isolated and found.shared


def test_all_problems_of_the_pools_come_at_once() -> None:
    with pytest.raises(CorralError) as refused:
        compute(LAB, reserved={"cpus": "9"}, isolated={"cores": 1, "near": "eth0"})
    assert [problem.path for problem in refused.value.problems] == ["cpu.reserved.cpus", "cpu.isolated.near"]


@pytest.mark.parametrize(
    ("topology", "cpu", "note"),
    [
        (LAB, {"reserved": {"count": 3}, "whole_cores": True}, "cpu.reserved.count: 3 is 4 CPUs in whole cores"),
        (LAB, {"reserved": {"cpus": "0"}},
         "1 core in two pools at once, siblings disturb each other: 0-1 (cpu.whole_cores: true has this checked)"),
        (machine(isolated=frozenset({6, 7})), {"reserved": {"cpus": "0-1"}},
         "the kernel isolates CPUs 6-7 (isolcpus), which are shared: it does not balance load onto them; they belong in cpu.isolated"),
        (machine(offline_present=frozenset({3})), {"reserved": {"cpus": "0-1"}}, "offline CPUs are in no pool: 3"),
    ],
)  # fmt: skip
def test_notes(topology: Topology, cpu: dict[str, object], note: str) -> None:
    assert compute(topology, **cpu).notes == (note,)


def test_a_profile_without_cpus_shares_them_all() -> None:
    found = pools.compute(profile.parse({"name": "x"}), LAB)
    assert sets(found) == ["", "0-7", ""]
    assert found.notes


@st.composite
def machines(draw: st.DrawFn) -> Topology:
    """Machines with sparse CPU and node ids, uneven cores, offline and isolated CPUs, nodes without CPUs, or no NUMA."""
    ids = draw(st.lists(st.integers(0, 200), min_size=1, max_size=40, unique=True))
    groups: list[set[int]] = []
    while ids:
        size = draw(st.integers(1, 4))
        groups.append(set(ids[:size]))
        ids = ids[size:]
    everything = sorted(set().union(*groups))
    online = (
        frozenset(draw(st.lists(st.sampled_from(everything), min_size=1, unique=True)))
        if draw(st.booleans())
        else frozenset(everything)
    )
    cores = ordered(frozenset(group) & online for group in groups)
    names = draw(st.lists(st.integers(0, 20), max_size=5, unique=True))
    homes = [draw(st.sampled_from(names)) for dummy in cores] if names else []
    numa = {
        name: NumaNode(
            name, frozenset().union(*(core for core, home in zip(cores, homes) if home == name)), GIB_KIB, {2048: 0}
        )
        for name in names
    }
    isolated = draw(st.none() | st.just(frozenset(draw(st.lists(st.sampled_from(everything), unique=True)))))
    return Topology(
        online,
        offline_present=frozenset(everything) - online,
        isolated=isolated,
        cores=cores if draw(st.booleans()) else cores[1:],
        sockets={"0": online},
        numa=numa,
        net=dict.fromkeys(["eth0"], "0000:00:01.0"),
        pci=device("0000:00:01.0", draw(st.sampled_from([-1, 0, *names]))),
    )


lists = st.lists(st.integers(0, 40), min_size=1, max_size=6).map(cpuset.format)
numbers = st.integers(1, 12)
reserves = (
    st.fixed_dictionaries({"cpus": lists})
    | st.fixed_dictionaries({"count": numbers})
    | st.fixed_dictionaries({"cores_per_numa": numbers})
)
isolations = (
    st.fixed_dictionaries({"cpus": lists})
    | st.fixed_dictionaries({"cores": numbers})
    | st.fixed_dictionaries({"cores": numbers, "numa": st.integers(0, 20)})
    | st.fixed_dictionaries({"cores": numbers, "near": st.sampled_from(["eth0", "eth1", "0000:00:01.0"])})
)


def check(found: pools.Pools, cpu: dict[str, t.Any], topology: Topology) -> None:
    """What holds for all pools of all machines."""
    three = [found.reserved, found.shared, found.isolated]
    assert frozenset().union(*three) == topology.online
    assert sum(map(len, three)) == len(topology.online)
    assert found.reserved
    assert found.shared
    assert bool(found.isolated) == bool(cpu.get("isolated"))
    for name in pools.POOLS:
        parts = [by[name] for by in found.per_numa.values()]
        assert frozenset().union(*parts) == getattr(found, name)
        assert sum(map(len, parts)) == len(getattr(found, name))
    reserved, isolated = cpu["reserved"], cpu.get("isolated") or {}
    if cpu.get("whole_cores"):
        assert all(topology.siblings_of(pool) == pool for pool in three)
    if "cores" in isolated:
        assert topology.siblings_of(found.isolated) == found.isolated
        assert sum(1 for core in _all_cores(topology) if core <= found.isolated) == isolated["cores"]
    if "count" in reserved and not cpu.get("whole_cores"):
        assert len(found.reserved) == reserved["count"]
    if "cores_per_numa" in reserved:
        assert topology.siblings_of(found.reserved) == found.reserved
    assert published_pools.to_dict(found)["numa"].keys() == {str(node) for node in topology.node_cpus()}


def _all_cores(topology: Topology) -> list[frozenset[int]]:
    alone = topology.online.difference(*topology.cores)
    return [*topology.cores, *(frozenset({cpu}) for cpu in alone)]


@given(machines(), reserves, st.none() | isolations, st.booleans())
def test_pools_are_right_or_refused(
    topology: Topology, reserved: dict[str, t.Any], isolated: dict[str, t.Any] | None, whole: bool
) -> None:
    cpu = {"reserved": reserved, "isolated": isolated, "whole_cores": whole}
    try:
        read = profile.parse({"name": "x", "cpu": cpu})
    except CorralError as exc:
        assert {problem.path for problem in exc.problems} == {"cpu.isolated.cpus"}  # two literal sets that overlap
        return
    try:
        found = pools.compute(read, topology)
    except CorralError as exc:
        for problem in exc.problems:
            assert problem.path.startswith("cpu")
            assert ";" in problem.message or ":" in problem.message  # the way out stands behind one of them
        return
    check(found, cpu, topology)
    assert pools.compute(read, topology) == found


@pytest.mark.parametrize(
    ("reserve", "reserved", "shared", "isolated"),
    [
        ("0-1,6", "0-1", "2-5,7", "6"),
        ("0,6-7", "0", "1-5", "6-7"),
        ("4", "4", "0-3,5-7", ""),
        ("6", "6", "0-5,7", ""),
        ("4,7", "4", "0-3,5-6", "7"),
        # Of none of its CPUs, of all, or of CPUs that are not there nothing follows.
        ("", "0-1", "2-5", "6-7"),
        ("0-7", "0-1", "2-5", "6-7"),
        ("8-9", "0-1", "2-5", "6-7"),
        ("4,8", "4", "0-3,5-7", ""),
    ],
)
def test_pools_beside_a_kubelet_are_within_its_reserve(reserve: str, reserved: str, shared: str, isolated: str) -> None:
    found = compute(LAB, reserved={"cpus": "0-1"}, isolated={"cpus": "6-7"})
    bounded = pools.within(found, LAB, cpuset.parse(reserve))
    assert sets(bounded) == [reserved, shared, isolated]
    assert frozenset().union(*(by["reserved"] for by in bounded.per_numa.values())) == bounded.reserved
