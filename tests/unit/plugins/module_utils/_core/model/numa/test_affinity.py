# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which NUMA nodes a workload gets: as by the kubelet's own enumeration, and on machines where nobody enumerates."""

from __future__ import annotations

import itertools
import typing as t

import pytest
from _core.model.numa import affinity, node_sets, topology_manager
from _core.model.numa.affinity import Affinity, decide
from _core.model.numa.node_sets import Demand, narrowest
from _core.model.numa.topology_manager import Distances, Hint, Policy, distances_of, mask_of, merge
from _core.model.workload import resources
from example_counts import examples
from hypothesis import given, settings
from hypothesis import strategies as st

Nodes = frozenset[int]

GIB = 1 << 30
PLACING = ("best-effort", "restricted", "single-numa-node")


def sets_of(nodes: t.Collection[int]) -> list[Nodes]:
    return [frozenset(some) for size in range(len(nodes) + 1) for some in itertools.combinations(sorted(nodes), size)]


# The kubelet's text, literally: a manager judges every mask, the topology manager merges. Written for this test alone.


def kubelet_hints(demands: list[Demand], preferred_by: str) -> list[Hint]:
    nodes = {node for demand in demands for node in demand.capacity}
    least, usable = len(nodes), []
    for some in sets_of(nodes)[1:]:
        judged = [demand.capacity if preferred_by == "capacity" else demand.free for demand in demands]
        if all(sum(amount.get(n, 0) for n in some) >= d.amount for amount, d in zip(judged, demands)):
            least = min(least, len(some))
        if any(demand.pinned - some for demand in demands):
            continue
        if len(some) == 1 and any(some & group for demand in demands for group in demand.groups):
            continue
        if len(some) > 1 and any(some & demand.single for demand in demands):
            continue
        if len(some) > 1 and any(some & group and some != group for demand in demands for group in demand.groups):
            continue
        if all(sum(demand.free.get(node, 0) for node in some) >= demand.amount for demand in demands):
            usable.append(some)
    return [Hint(mask_of(some), len(some) == least or socket_aligned(demands[0], some, least)) for some in usable]


def socket_aligned(demand: Demand, nodes: Nodes, least: int) -> bool:
    if demand.socket_of is None:
        return False
    per_socket = len(demand.capacity) // len(set(demand.socket_of.values()))
    return len({demand.socket_of[node] for node in nodes}) == -(-least // per_socket)


def kubelet(policy: Policy, demands: list[Demand], nodes: t.Sequence[int], distances: Distances) -> Hint:
    hints = []
    wanted = [demand for demand in demands if demand.amount]
    for demand in wanted:
        others = [one for one in wanted if one.together == demand.together != ""]
        hints.append(kubelet_hints(others or [demand], policy.preferred_by))
    return merge(policy.name, hints, nodes, distances, prefer_closest=policy.prefer_closest)


# Machines and workloads. Memory and hugepages are one manager's, with its groups; CPUs may be tied to sockets.


class Case(t.NamedTuple):
    nodes: tuple[int, ...]
    demands: list[Demand]
    distances: Distances


@st.composite
def amounts(draw: st.DrawFn, nodes: t.Collection[int], most: int = 4) -> tuple[dict[int, int], dict[int, int]]:
    """What each node has, and what of it is free."""
    capacity = {node: draw(st.integers(0, most)) for node in nodes}
    return capacity, {node: draw(st.integers(0, has)) if draw(st.booleans()) else has for node, has in capacity.items()}


@st.composite
def rules(draw: st.DrawFn, nodes: t.Collection[int]) -> tuple[Nodes, tuple[Nodes, ...]]:
    """Nodes that are used alone, and groups; no node is both."""
    kind = {node: draw(st.integers(0, 3)) for node in nodes}
    groups = [frozenset(node for node in nodes if kind[node] == group) for group in (2, 3)]
    return frozenset(node for node in nodes if kind[node] == 1), tuple(group for group in groups if len(group) > 1)


@st.composite
def machines(draw: st.DrawFn, most: int = 5) -> Case:
    nodes = tuple(sorted(draw(st.sets(st.integers(0, most + 1), min_size=1, max_size=most))))
    with_cpus = nodes if draw(st.booleans()) else tuple(draw(st.sets(st.sampled_from(nodes), min_size=1)))
    rows = [[10 if a == b else draw(st.integers(11, 14)) for b in nodes] for a in nodes]
    demands = []
    if draw(st.booleans()):
        capacity, free = draw(amounts(with_cpus))
        pinned = draw(st.sets(st.sampled_from(nodes), max_size=2)) if draw(st.booleans()) else ()
        sockets = None
        if draw(st.booleans()) and len(with_cpus) % 2 == 0:
            sockets = {node: number * 2 // len(with_cpus) for number, node in enumerate(sorted(with_cpus))}
        asked = draw(st.integers(0, 12))
        demands.append(Demand("cpu", asked, capacity, free, frozenset(pinned), socket_of=sockets))
    single, groups = draw(rules(nodes))
    for resource in draw(st.lists(st.sampled_from(("memory", "hugepages-2Mi")), unique=True)):
        capacity, free = draw(amounts(nodes))
        asked = draw(st.integers(0, 12))
        demands.append(Demand(resource, asked, capacity, free, single=single, groups=groups, together="memory"))
    if draw(st.booleans()):
        demands.append(Demand("device", draw(st.integers(1, 6)), *draw(amounts(nodes, 3))))
    return Case(nodes, draw(st.permutations(demands)), distances_of(nodes, rows))


policies = st.builds(
    Policy,
    st.sampled_from(PLACING),
    prefer_closest=st.booleans(),
    preferred_by=st.sampled_from((topology_manager.CAPACITY, topology_manager.FREE)),
)


@settings(max_examples=examples(400))
@given(policy=policies, case=machines())
def test_up_to_eight_nodes_it_is_what_the_kubelet_gives(policy: Policy, case: Case) -> None:
    expected = kubelet(policy, case.demands, case.nodes, case.distances)
    found = decide(policy, case.demands, case.nodes, case.distances)
    assert (None if found.nodes is None else mask_of(found.nodes), found.preferred) == expected
    assert found.admitted is topology_manager.admits(policy.name, expected)
    assert bool(found.reasons) is not found.preferred


def searched(policy: Policy, case: Case) -> Hint:
    distances = case.distances if policy.prefer_closest else None
    return affinity.searched(policy, node_sets.providers_of(policy, case.demands), case.nodes, distances)


@settings(max_examples=examples(400))
@given(policy=policies, case=machines(6))
def test_the_search_comes_to_the_kubelets_verdict(policy: Policy, case: Case) -> None:
    expected = kubelet(policy, case.demands, case.nodes, case.distances)
    found = searched(policy, case)
    assert found.preferred is expected.preferred
    if found.preferred and not policy.prefer_closest:
        assert found == expected
    elif found.preferred and found.nodes is not None and expected.nodes is not None:
        assert topology_manager.count(found.nodes) == topology_manager.count(expected.nodes)


def satisfying(case: Case) -> list[Nodes]:
    """Every set of nodes that satisfies all demands."""
    asking = [demand for demand in case.demands if demand.amount]
    return [some for some in sets_of(case.nodes)[1:] if node_sets.satisfies(asking, some)]


@settings(max_examples=examples(400))
@given(case=machines(6))
def test_the_search_finds_the_narrowest_and_lowest_nodes_that_are_enough(case: Case) -> None:
    asking = [demand for demand in case.demands if demand.amount]
    expected = min(satisfying(case), key=lambda some: (len(some), mask_of(some)), default=None)
    assert narrowest(asking, case.nodes) == expected
    policy = Policy("best-effort")
    found = searched(policy, case)
    if asking and not found.preferred:
        assert found == Hint(mask_of(case.nodes if expected is None else expected), False)


@settings(max_examples=examples(300))
@given(
    free=st.lists(st.tuples(*[st.integers(0, 6)] * 3), min_size=8, max_size=8),
    asked=st.tuples(*[st.integers(8, 20)] * 3),
)
def test_the_search_finds_the_narrowest_nodes_for_many_resources(
    free: list[tuple[int, int, int]], asked: tuple[int, int, int]
) -> None:
    nodes = range(8)
    columns = [dict(enumerate(column)) for column in zip(*free)]
    demands = [Demand(str(one), amount, column, column) for one, (amount, column) in enumerate(zip(asked, columns))]
    possible = satisfying(Case(tuple(nodes), demands, {}))
    expected = min(possible, key=lambda some: (len(some), mask_of(some)), default=None)
    assert narrowest(demands, nodes) == expected


@given(case=machines(6), data=st.data())
def test_uneven_sockets_are_never_said_to_be_aligned_when_they_are_not(case: Case, data: st.DataObject) -> None:
    demands = [
        one._replace(socket_of={node: data.draw(st.integers(0, 1)) for node in one.capacity} | {max(one.capacity): 1})
        if one.socket_of
        else one
        for one in case.demands
    ]
    if searched(Policy("restricted"), case._replace(demands=demands)).preferred:
        assert kubelet(Policy("restricted"), demands, case.nodes, case.distances).preferred


@settings(max_examples=examples(400))
@given(case=machines(6), steps=st.integers(0, 3))
def test_a_search_that_gives_up_still_finds_nodes_that_are_enough(case: Case, steps: int) -> None:
    """No narrower ones, maybe; and none are said to be preferred that are not."""
    asking = [demand for demand in case.demands if demand.amount]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(node_sets, "STEPS", steps)
        found = narrowest(asking, case.nodes)
        verdict = searched(Policy("restricted"), case)
    possible = satisfying(case)
    assert (found is None) is (not possible)
    assert found is None or found in possible
    if verdict.preferred and asking:
        assert verdict.nodes is not None
        assert topology_manager.nodes_of(verdict.nodes) in possible
        expected = kubelet(Policy("restricted"), case.demands, case.nodes, case.distances)
        assert expected.preferred
        # Only with sockets sets of several sizes are preferred.
        assert verdict == expected or any(demand.socket_of for demand in asking)


def test_a_search_that_gives_up_knows_the_groups_and_asks_for_no_more_than_it_takes() -> None:
    nodes = range(5)
    has = {0: 0, 1: 4, 2: 4, 3: 4, 4: 4}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(node_sets, "STEPS", 0)
        (provider,) = node_sets.providers_of(Policy("restricted"), [Demand("cpu", 4, has, has)])
        assert provider.size == 1
        grouped = Demand("memory", 10, has, has, groups=(frozenset([2, 3, 4]),))
        assert narrowest([grouped], nodes) == frozenset({2, 3, 4})
        more = {**dict.fromkeys((0, 1, 5, 6), 3), **dict.fromkeys((2, 3, 4), 4)}
        either = Demand("memory", 12, more, more, groups=(frozenset([2, 3, 4]),))
        assert narrowest([either], range(7)) == frozenset({2, 3, 4})


def test_own_nodes_that_others_use_are_no_part_of_a_new_group() -> None:
    cpu = Demand("cpu", 5, dict.fromkeys(range(3), 8), {0: 1, 2: 4}, pinned=frozenset([0]))
    has = dict.fromkeys(range(3), GIB)
    for rule in ({"groups": (frozenset([0, 1]),)}, {"single": frozenset([0])}):
        memory = Demand("memory", GIB, has, has, together="memory", **t.cast("t.Any", rule))
        assert narrowest([cpu], range(3)) == frozenset({0, 2})
        assert narrowest([cpu, memory], range(3)) is None


def test_uneven_sockets() -> None:
    """What spans too few sockets is not preferred; wider nodes than the kubelet's may be found, never wrong ones."""
    nodes = range(10)
    sockets = {node: node // 9 for node in nodes}
    demand = Demand("cpu", 24, dict.fromkeys(nodes, 4), {**dict.fromkeys(range(8), 3), 9: 4}, socket_of=sockets)
    (provider,) = node_sets.providers_of(RESTRICTED, [demand])
    assert (provider.size, provider.sockets) == (6, 2)
    found = decide(RESTRICTED, [demand], nodes)
    assert found.preferred
    assert found.nodes is not None
    assert {sockets[node] for node in found.nodes} == {0, 1}


# Many nodes.

MANY = range(64)
SOCKETS = {node: node // 8 for node in MANY}
FAR = {a: {b: 10 if a == b else 12 if a // 8 == b // 8 else 32 for b in MANY} for a in MANY}


def even(resource: str, amount: int, each: int, free: t.Mapping[int, int] | None = None, together: str = "") -> Demand:
    capacity = dict.fromkeys(MANY, each)
    return Demand(resource, amount, capacity, {**capacity, **(free or {})}, together=together)


@given(free=st.lists(st.integers(0, 16), min_size=64, max_size=64), asked=st.integers(1, 1100))
def test_of_one_resource_on_many_nodes_the_fewest(free: list[int], asked: int) -> None:
    demand = even("cpu", asked, 16, dict(enumerate(free)))
    found = decide(Policy("best-effort"), [demand], MANY)
    assert found.nodes is not None
    totals = list(itertools.accumulate(sorted(free, reverse=True)))
    if totals[-1] < asked:
        assert found == Affinity(frozenset(MANY), False, True, found.reasons)
        assert f"{asked - totals[-1]} missing" in found.reasons[0]
        return
    assert sum(free[node] for node in found.nodes) >= asked
    assert len(found.nodes) == next(size for size, total in enumerate(totals, 1) if total >= asked)
    assert found.preferred is (len(found.nodes) == -(-asked // 16))
    assert decide(Policy("restricted"), [demand], MANY).admitted is found.preferred


@pytest.mark.parametrize("policy", PLACING)
def test_what_fits_on_one_of_many_nodes(policy: str) -> None:
    full = dict.fromkeys(range(40), 0)
    demands = [even("cpu", 8, 16, full), even("memory", 4 * GIB, 8 * GIB, {40: GIB}, together="memory")]
    found = decide(Policy(policy, max_nodes=64), demands, MANY)
    assert found == Affinity(frozenset([41]), True, True)


def test_single_numa_node_takes_no_two_of_many() -> None:
    found = decide(Policy("single-numa-node"), [even("cpu", 20, 16), even("memory", 9 * GIB, 8 * GIB)], MANY)
    assert found == Affinity(None, False, False, found.reasons)
    assert found.reasons == ("cpu needs 2 NUMA nodes and memory needs 2 NUMA nodes; single-numa-node allows 1",)


def test_the_nearest_of_many_nodes() -> None:
    demand = even("cpu", 64, 16, {3: 0})
    assert decide(Policy("restricted"), [demand], MANY, FAR).nodes == frozenset({0, 1, 2, 4})
    apart = even("cpu", 64, 16, dict.fromkeys((0, 1, 2, 3, 4, 8, 9, 10, 11, 12), 0))
    assert decide(Policy("restricted"), [apart], MANY, FAR).nodes == frozenset({5, 6, 7, 13})
    assert decide(Policy("restricted", prefer_closest=True), [apart], MANY, FAR).nodes == frozenset({16, 17, 18, 19})


def test_many_nodes_aligned_by_socket() -> None:
    full = dict.fromkeys((0, 1, 2, 3, 4, 5, 6, 8, 9), 2)
    demand = even("cpu", 40, 16, full)._replace(socket_of=SOCKETS)
    assert decide(Policy("restricted"), [demand], MANY).nodes == frozenset({7, 10, 11})
    packed = even("cpu", 40, 16, dict.fromkeys(MANY, 6))._replace(socket_of=SOCKETS)
    found = decide(Policy("restricted"), [packed], MANY)
    assert found == Affinity(frozenset(range(7)), True, True)
    assert not decide(Policy("restricted"), [packed._replace(socket_of=None)], MANY).admitted


def test_a_hard_case_on_many_nodes_ends() -> None:
    """Unlike nodes where what has CPUs has no memory: the search gives up, not the agent."""
    cpus = {node: 1 + node * 37 % 97 for node in MANY}
    memory = {node: 1 + (node * 53 + 11) % 89 for node in MANY}
    pages = {node: 1 + (node * 29 + 7) % 83 for node in MANY}
    demands = [
        Demand(name, sum(free.values()) // 2 - 40, dict.fromkeys(MANY, 100), free)
        for name, free in (("cpu", cpus), ("memory", memory), ("hugepages-2Mi", pages))
    ]
    found = decide(Policy("best-effort"), demands, MANY)
    assert found.nodes is not None
    assert node_sets.satisfies(demands, found.nodes)
    assert not found.preferred
    assert len(found.nodes) < 40


# What is said.


def reasons(policy: Policy, *demands: Demand, nodes: t.Iterable[int] = range(2)) -> tuple[str, ...]:
    found = decide(policy, demands, nodes)
    assert not found.preferred
    return found.reasons


RESTRICTED = Policy("restricted")
CPUS = {0: 8, 1: 8}
BYTES = {0: 8 * GIB, 1: 8 * GIB}


def test_a_half_full_machine_is_refused_by_capacity_and_not_by_what_is_free() -> None:
    """kubernetes#84597."""
    demand = Demand("cpu", 6, CPUS, {0: 4, 1: 2})
    found = decide(RESTRICTED, [demand], range(2))
    text = "cpu: 6 asked, no NUMA node has more than 4 free (node 0: 4, node 1: 2)"
    assert found == Affinity(frozenset([0, 1]), False, False, (text,))
    by_free = RESTRICTED._replace(preferred_by=topology_manager.FREE)
    assert decide(by_free, [demand], range(2)) == Affinity(frozenset([0, 1]), True, True)
    assert decide(by_free._replace(name="single-numa-node"), [demand], range(2)).reasons == (
        "cpu needs 2 NUMA nodes; single-numa-node allows 1",
    )


def test_reasons_name_what_is_short_and_by_how_much() -> None:
    assert reasons(RESTRICTED, Demand("cpu", 9, CPUS, {0: 4, 1: 2}), Demand("memory", 3 * GIB, BYTES, {0: GIB})) == (
        "cpu: 9 asked, 6 free in all (node 0: 4, node 1: 2): 3 missing",
        "memory: 3Gi asked, 1Gi free in all (node 0: 1Gi, node 1: 0): 2Gi missing",
    )
    free = {0: 5 * GIB // 2, 1: 300 << 20, 2: 2 * GIB}
    assert reasons(
        RESTRICTED, Demand("memory", 16 * GIB, {**BYTES, 2: 8 * GIB}, {**BYTES, **free}), nodes=range(3)
    ) == ("memory: 16Gi asked, 4.79Gi free in all (node 0: 2.5Gi, node 1: 300Mi, node 2: 2Gi): 11.21Gi missing",)


def test_reasons_name_who_needs_more_nodes() -> None:
    assert reasons(RESTRICTED, Demand("cpu", 2, CPUS, CPUS), Demand("memory", 9 * GIB, BYTES, BYTES)) == (
        "memory needs 2 NUMA nodes and cpu 1",
    )


def test_reasons_name_where_each_would_fit() -> None:
    cpu, memory = Demand("cpu", 6, CPUS, {0: 8, 1: 2}), Demand("memory", 4 * GIB, BYTES, {0: GIB, 1: 8 * GIB})
    assert reasons(RESTRICTED, cpu, memory) == (
        "1 NUMA node would do for each of cpu (node 0), memory (node 1), but none for all",
    )


def test_reasons_name_groups_and_own_nodes() -> None:
    nodes = range(4)
    has = dict.fromkeys(nodes, 8 * GIB)
    rule = {"groups": (frozenset([0, 1]),), "single": frozenset([3]), "together": "memory"}
    grouped = Demand("memory", 2 * GIB, has, {**has, 2: GIB, 3: GIB}, **t.cast("t.Any", rule))
    assert reasons(RESTRICTED, grouped, nodes=nodes) == (
        "memory: 1 NUMA node would do, but nodes 0-1 are one group, node 3 is used alone",
    )
    pinned = Demand("cpu", 4, CPUS, {0: 1, 1: 8}, pinned=frozenset([0]))
    assert reasons(RESTRICTED, pinned) == ("cpu: 1 NUMA node would do, but node 0 must be among them",)


def test_reasons_of_many_nodes_are_short() -> None:
    (text,) = reasons(RESTRICTED, even("cpu", 12, 16, {node: node % 9 for node in MANY}), nodes=MANY)
    assert text.startswith("cpu: 12 asked, no NUMA node has more than 8 free (node 7: 7, node 8: 8, ")
    assert text.endswith("56 more with at most 7)")
    assert len(text) < 200


def test_the_policy_none_has_no_preference() -> None:
    demand = Demand("cpu", 99, CPUS, {0: 0, 1: 0})
    assert decide(Policy("none"), [demand], range(2)) == Affinity(None, False, True, ())


@pytest.mark.parametrize(
    ("resource", "amount", "text"),
    [
        ("cpu", 1 << 30, "1073741824"),
        ("memory", 1536 << 20, "1.5Gi"),
        ("memory", 2 << 20, "2Mi"),
        ("hugepages-2Mi", 10 * GIB, "10Gi"),
        ("memory", 1000, "1000"),
        ("memory", 3 << 9, "1.5Ki"),
    ],
)
def test_amounts_for_a_person(resource: str, amount: int, text: str) -> None:
    assert resources.shown(resource, amount) == text
