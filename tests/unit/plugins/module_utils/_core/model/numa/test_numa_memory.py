# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Memory by NUMA node: what is free, who gets what, and what a reboot leaves of it."""

from __future__ import annotations

import collections
import itertools
import typing as t

import pytest
from _core.model.numa import node_sets, numa_memory
from _core.model.numa.affinity import decide
from _core.model.numa.numa_memory import Block, allocatable, allocate, demands, drift, free
from _core.model.numa.topology_manager import Policy
from example_counts import examples
from hypothesis import given, settings
from hypothesis import strategies as st

GIB = 1 << 30
MIB = 1 << 20
HUGE = "hugepages-2Mi"

Nodes = frozenset[int]
Tables = dict[int, dict[str, int]]


def left_of(reusable: t.Iterable[Block], taken: t.Iterable[Block]) -> list[Block]:
    """What is left of reusable blocks after a workload has ``taken`` its own: together they hold nothing twice."""
    owed = collections.Counter()
    for one in taken:
        owed[one.nodes, one.resource] += one.size
    left = []
    for one in reusable:
        reused = min(one.size, owed[one.nodes, one.resource])
        owed[one.nodes, one.resource] -= reused
        left += [one._replace(size=one.size - reused)] if reused < one.size else []
    return left


def used_both_ways(holders: t.Mapping[str, t.Iterable[Block]]) -> set[int]:
    """The nodes that are used in two sets of nodes (kubernetes#113130)."""
    sets = {one.nodes for blocks in holders.values() for one in blocks}
    return {node for one, other in itertools.combinations(sets, 2) for node in one & other}


def block(nodes: t.Iterable[int], size: int, resource: str = "memory") -> Block:
    return Block(frozenset(nodes), resource, size)


def total(tables: t.Mapping[int, t.Mapping[str, int]], resource: str, nodes: t.Iterable[int] | None = None) -> int:
    return sum(tables[node].get(resource, 0) for node in (tables if nodes is None else nodes))


# Tables.


def test_what_can_be_allocated() -> None:
    reserved = {0: {"memory": GIB, HUGE: 2 * MIB}, 1: {"memory": 99 * GIB}}
    found = allocatable({0: 16 * GIB, 1: 8 * GIB, 2: 0}, {0: {2048: 512, 1048576: 2}, 1: {2048: 1}}, reserved)
    assert found == {
        0: {"memory": 12 * GIB, HUGE: GIB - 2 * MIB, "hugepages-1Gi": 2 * GIB},
        1: {"memory": 0, HUGE: 2 * MIB},
        2: {"memory": 0},
    }


@pytest.mark.parametrize(("size", "name"), [(64, "64Ki"), (2048, "2Mi"), (32768, "32Mi"), (1048576, "1Gi")])
def test_page_sizes_as_the_kubelet_names_them(size: int, name: str) -> None:
    assert numa_memory.hugepages(size) == f"hugepages-{name}"


def test_a_group_is_used_node_by_node() -> None:
    tables = {0: {"memory": 4}, 1: {"memory": 4}, 2: {"memory": 4, HUGE: 8}}
    blocks = [block([0, 1], 3), block([1, 0], 3), block([2], 5, HUGE)]
    assert free(tables, blocks) == {0: {"memory": 0}, 1: {"memory": 2}, 2: {"memory": 4, HUGE: 3}}
    assert free(tables, []) == tables


# Any sequence of workloads that come and go.


@st.composite
def machines(draw: st.DrawFn) -> Tables:
    nodes = draw(st.sets(st.integers(0, 5), min_size=1, max_size=5))
    return {node: {"memory": draw(st.integers(0, 8)), HUGE: draw(st.integers(0, 4))} for node in nodes}


wishes = st.fixed_dictionaries({"memory": st.integers(1, 20)}, optional={HUGE: st.integers(0, 9)})


def usable(tables: Tables, blocks: t.Sequence[Block], wanted: t.Mapping[str, int], pinned: Nodes) -> list[Nodes]:
    """Every set of nodes that has enough and breaks no rule, by the rule's own words."""
    found = []
    left = free(tables, blocks)
    for size in range(1, len(tables) + 1):
        for some in itertools.combinations(sorted(tables), size):
            nodes = frozenset(some)
            others = {one.nodes for one in blocks if one.nodes & nodes}
            enough = all(total(left, resource, nodes) >= amount for resource, amount in wanted.items())
            if pinned <= nodes and enough and others <= {nodes}:
                found.append(nodes)
    return found


def lowest(sets: t.Iterable[Nodes]) -> Nodes | None:
    return min(sets, key=lambda nodes: (len(nodes), sum(1 << node for node in nodes)), default=None)


@settings(max_examples=examples(200))
@given(tables=machines(), data=st.data())
def test_no_node_is_ever_used_both_ways_and_what_is_released_is_free(tables: Tables, data: st.DataObject) -> None:
    holders: dict[str, tuple[Block, ...]] = {}
    for number in range(data.draw(st.integers(1, 12))):
        if data.draw(st.booleans()) and holders:
            del holders[data.draw(st.sampled_from(sorted(holders)))]
        held = list(itertools.chain(*holders.values()))
        wanted = data.draw(wishes)
        nodes = data.draw(st.none() | st.frozensets(st.sampled_from(sorted(tables)), max_size=3))
        expected = lowest(usable(tables, held, wanted, nodes or frozenset()))
        if expected is None:
            with pytest.raises(ValueError, match=r"memory|hugepages"):
                allocate(tables, held, wanted, nodes, holders=lambda: holders)
        else:
            got = allocate(tables, held, wanted, nodes)
            assert {one.resource: one.size for one in got} == {
                name: amount for name, amount in wanted.items() if amount
            }
            assert {one.nodes for one in got} == {expected}
            holders[str(number)] = got
        held = list(itertools.chain(*holders.values()))
        assert not used_both_ways(holders)
        for nodes, name in itertools.product({one.nodes for one in held}, ("memory", HUGE)):
            taken = sum(one.size for one in held if (one.nodes, one.resource) == (nodes, name))
            assert total(tables, name, nodes) - total(free(tables, held), name, nodes) == taken
    assert free(tables, ()) == tables


@given(tables=machines(), data=st.data())
def test_what_is_decided_can_be_allocated(tables: Tables, data: st.DataObject) -> None:
    """The memory manager's part of an affinity is never refused later."""
    held: list[Block] = []
    for dummy in range(data.draw(st.integers(1, 6))):
        wanted = {name: amount for name, amount in data.draw(wishes).items() if amount}
        asked = demands(tables, held, wanted)
        found = decide(Policy("restricted"), asked, tables)
        if found.admitted and wanted:
            got = allocate(tables, held, wanted, found.nodes)
            assert {one.nodes for one in got} == {found.nodes}
            held += got


# Init containers.


@given(tables=machines(), first=wishes, second=wishes)
def test_what_init_containers_leave_is_used_again(
    tables: Tables, first: dict[str, int], second: dict[str, int]
) -> None:
    every = {name: total(tables, name) for name in ("memory", HUGE)}
    if any(amount > every[name] for name, amount in first.items()) or not any(first.values()):
        return
    init = allocate(tables, (), first, None)
    try:
        main = allocate(tables, init, second, init[0].nodes, reusable=init)
    except ValueError:
        # Without reuse it would not have been enough either.
        with pytest.raises(ValueError, match=r"memory|hugepages"):
            allocate(tables, init, second, init[0].nodes)
        return
    held = [*left_of(init, main), *main]
    for name in ("memory", HUGE):
        asked = max(first.get(name, 0), second.get(name, 0))
        assert total(tables, name) - total(free(tables, held), name) == asked
        assert sum(one.size for one in held if one.resource == name) == asked


def test_init_containers_memory_is_free_for_nobody_else() -> None:
    tables = {0: {"memory": 4}, 1: {"memory": 4}}
    init = (block([0], 3),)
    assert allocate(tables, init, {"memory": 4}, None) == (block([1], 4),)
    assert allocate(tables, init, {"memory": 4}, None, reusable=init) == (block([0], 4),)


# The kubelet's ways.


def test_an_affinity_that_is_too_small_is_widened_and_one_that_breaks_the_rule_is_made_the_group() -> None:
    tables = {node: {"memory": 8} for node in range(4)}
    assert allocate(tables, (), {"memory": 9}, frozenset([2])) == (block([0, 2], 9),)
    group = (block([1, 2], 9),)
    assert allocate(tables, group, {"memory": 2}, frozenset([2])) == (block([1, 2], 2),)
    assert allocate(tables, group, {"memory": 2}, None) == (block([0], 2),)
    assert allocate(tables, group, {"memory": 9}, None) == (block([0, 3], 9),)


def test_resources_come_from_the_same_nodes() -> None:
    tables = {0: {"memory": 8, HUGE: 0}, 1: {"memory": 2, HUGE: 4}}
    assert allocate(tables, (), {"memory": 4, HUGE: 2}, None) == (block([0, 1], 2, HUGE), block([0, 1], 4))
    assert allocate(tables, (), {"memory": 2, HUGE: 2}, None) == (block([1], 2, HUGE), block([1], 2))


def test_many_nodes() -> None:
    tables = {node: {"memory": 8 * GIB, HUGE: GIB} for node in range(64)}
    held = [block([node], GIB) for node in range(0, 64, 2)]
    assert allocate(tables, held, {"memory": 20 * GIB, HUGE: GIB}, None) == (
        block([1, 3, 5], GIB, HUGE),
        block([1, 3, 5], 20 * GIB),
    )
    assert allocate(tables, held, {"memory": 8 * GIB}, None) == (block([1], 8 * GIB),)


def test_who_wants_nothing_gets_nothing() -> None:
    assert allocate({0: {"memory": 1}}, (), {"memory": 0}, frozenset([7])) == ()


# What is said.


def test_a_refusal_says_how_much_is_missing_where_and_who_has_it() -> None:
    tables = {0: {"memory": 4 * GIB}, 1: {"memory": 2 * GIB}}
    holders = {"web": [block([0], 3 * GIB)], "db": [block([1], GIB, HUGE)]}
    with pytest.raises(ValueError, match=r"memory") as refused:
        allocate(tables, holders["web"], {"memory": 6 * GIB}, None, holders=lambda: holders)
    assert str(refused.value) == (
        "memory: 6Gi asked, 3Gi free in all (node 0: 1Gi, node 1: 2Gi): 3Gi missing; held: web 3Gi on node 0"
    )
    with pytest.raises(ValueError, match=r"share") as refused:
        allocate(tables, holders["web"], {"memory": 5 * GIB // 2}, None, holders=lambda: holders)
    assert str(refused.value) == (
        "2.5Gi of memory would have to share nodes that others use alone or as a group;"
        " held: web 3Gi on node 0, db 1Gi on node 1"
    )
    with pytest.raises(ValueError, match=r"^there is no node 3$"):
        allocate(tables, (), {"memory": 1}, frozenset([0, 3]))
    with pytest.raises(
        ValueError, match=r"^hugepages-1Gi: 1Gi asked, 0 free in all \(node 0: 0, node 1: 0\): 1Gi missing$"
    ):
        allocate(tables, (), {"hugepages-1Gi": GIB}, None)


# After a reboot.

BEFORE = {0: {"memory": 8 * GIB, HUGE: GIB}, 1: {"memory": 8 * GIB, HUGE: GIB}}


def test_some_mib_less_after_a_reboot_is_a_note_and_no_more() -> None:
    """kubernetes#131253."""
    now = {0: {"memory": 8 * GIB - 40 * MIB, HUGE: GIB}, 1: {"memory": 8 * GIB + MIB // 2, HUGE: GIB}}
    holders = {"web": [block([0], 5 * GIB)], "db": [block([0], 3 * GIB), block([0], GIB, HUGE)]}
    assert drift(BEFORE, now, holders) == (
        ("node 0: memory was 8Gi, is 7.96Gi (-40Mi)", "node 1: memory was 8Gi, is 8Gi (+512Ki)"),
        {},
    )
    assert drift(BEFORE, BEFORE, holders) == ((), {})


def test_what_is_short_by_more_is_the_last_holders_loss() -> None:
    now = {0: {"memory": 8 * GIB - 65 * MIB, HUGE: GIB}, 1: BEFORE[1]}
    holders = {"web": [block([0], 5 * GIB)], "db": [block([0], 3 * GIB)], "small": [block([0], 2 * GIB)]}
    found = drift(BEFORE, now, holders)
    assert found.broken == {"db": "memory: 65Mi of its 3Gi on node 0 are missing"}
    assert not drift(BEFORE, now, holders, 65 * MIB).broken.get("db")


def test_tolerance_is_granted_once_and_not_to_huge_pages() -> None:
    now = {0: {"memory": 8 * GIB - 60 * MIB, HUGE: GIB - 2 * MIB}, 1: BEFORE[1]}
    holders = {"web": [block([0], 8 * GIB)], "db": [block([0], 5 * MIB)], "vm": [block([0], GIB, HUGE)]}
    assert drift(BEFORE, now, holders).broken == {
        "db": "memory: 5Mi of its 5Mi on node 0 are missing",
        "vm": "hugepages-2Mi: 2Mi of its 1Gi on node 0 are missing",
    }


def test_a_node_that_is_gone_is_the_loss_of_who_was_there() -> None:
    holders = {"web": [block([0, 1], 2), block([1], 1, HUGE)], "db": [block([0], 1)]}
    found = drift(BEFORE, {0: BEFORE[0], 2: BEFORE[1]}, holders)
    assert found.notes == ("node 1 is gone", "node 2 is new")
    assert found.broken == {"web": "node 1 is gone"}


@given(tables=machines(), data=st.data())
def test_what_was_allocated_is_there_as_long_as_nothing_changed(tables: Tables, data: st.DataObject) -> None:
    holders: dict[str, tuple[Block, ...]] = {}
    for number in range(6):
        held = list(itertools.chain(*holders.values()))
        wanted = data.draw(wishes)
        if usable(tables, held, wanted, frozenset()):
            holders[str(number)] = allocate(tables, held, wanted, None)
    order = data.draw(st.permutations(sorted(holders)))
    assert drift(tables, tables, {owner: holders[owner] for owner in order}, 0) == ((), {})
    less = {node: {name: max(0, size - 1) for name, size in table.items()} for node, table in tables.items()}
    lost = drift(tables, less, holders, 0).broken
    kept = [one for owner, blocks in holders.items() if owner not in lost for one in blocks]
    for nodes, name in {(one.nodes, one.resource) for one in kept}:
        assert sum(one.size for one in kept if (one.nodes, one.resource) == (nodes, name)) <= total(less, name, nodes)


def test_a_decision_and_an_allocation_know_the_same_rule() -> None:
    tables = {node: {"memory": 8} for node in range(3)}
    asked = demands(tables, [block([0, 1], 9), block([2], 1)], {"memory": 3, HUGE: 0})
    assert [(one.resource, one.amount, one.single, one.groups, one.together) for one in asked] == [
        ("memory", 3, frozenset([2]), (frozenset([0, 1]),), "memory")
    ]
    assert asked[0].capacity == {0: 8, 1: 8, 2: 8}
    assert asked[0].free == {0: 0, 1: 7, 2: 7}
    assert node_sets.narrowest(asked, tables) == frozenset({2})
