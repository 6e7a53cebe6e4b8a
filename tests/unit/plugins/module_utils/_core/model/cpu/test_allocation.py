# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import typing as t
from functools import cache

import pytest
from _core.model.cpu import allocation
from _core.model.cpu.allocation import (
    CpuInfo,
    CpuTopology,
    Pick,
    allocate,
    smt_problem,
    take,
    take_distributed,
    take_packed,
    take_units,
)
from _core.model.cpu.cpu_options import Options
from _core.model.topology.cpu_topology import CORE, NUMA, SOCKET, cpus_of, size
from _core.model.topology.topology import NumaNode, Topology
from _core.model.values import cpuset
from _core.model.values.cpuset import CpuSet
from hypothesis import assume, given
from hypothesis import strategies as st
from shared_data import cases, document

TABLES = ("take_by_topology.json", "take_by_topology_generated.json")

WHOLE_CORES = Options(full_pcpus_only=True)
NUMA_EVEN = Options(distribute_cpus_across_numa=True)
NUMA_EVEN_CORES = Options(distribute_cpus_across_numa=True, full_pcpus_only=True)
SPREAD = Options(distribute_cpus_across_cores=True)
UNCORE = Options(prefer_align_cpus_by_uncorecache=True)


@cache
def given_topology(table: str, name: str) -> CpuTopology:
    """A topology of the kubelet's tests, with the counts that are given there."""
    facts = document(table)["topologies"][name]
    cpus = {cpu: CpuInfo(core, socket, numa, uncore) for cpu, core, socket, numa, uncore in facts["cpus"]}
    counts = [facts[name] for name in ("NumCPUs", "NumCores", "NumSockets", "NumNUMANodes", "NumUncoreCache")]
    return CpuTopology(cpus, *counts, averages=True)


@cache
def real_topology(table: str, name: str) -> CpuTopology:
    return allocation.counted(given_topology(table, name).cpus)


def take_as(view: CpuTopology, case: dict[str, t.Any]) -> CpuSet:
    """The kubelet's function that a case is for."""
    free, spread = view.mask(cpuset.parse(case["available"])), case["sort"] == "spread"
    if case["algorithm"] == "distributed":
        return cpus_of(take_distributed(view, free, case["n"], case["cpu_group_size"], spread))
    return cpus_of(take_units(view, free, case["n"], spread, case["prefer_uncore"]))


def check(case: dict[str, t.Any], view: CpuTopology) -> None:
    """A case marked upstream_aliasing records a wrong answer of the kubelet's, which overwrites its best combination."""
    if case["expect_error"]:
        with pytest.raises(ValueError, match=r".+") as caught:
            take_as(view, case)
        assert str(caught.value) == case["expect_error"], case["id"]
    else:
        wanted = case.get("expect_without_aliasing", case["expect"])
        assert cpuset.format(take_as(view, case)) == wanted, case["id"]


def table_cases(table: str) -> list[dict[str, t.Any]]:
    found = document(table).get("cases")
    if not found:
        pytest.skip(f"no {table}; point CORRAL_KUBELET_CASES at the data")
    return t.cast("list[dict[str, t.Any]]", found)


@pytest.mark.parametrize("table", TABLES)
def test_kubelet_cases(table: str) -> None:
    for case in table_cases(table):
        check(case, given_topology(table, case["topology"]))


def counts(view: CpuTopology) -> tuple[int, ...]:
    return view.num_cpus, view.num_cores, view.num_sockets, view.num_numa_nodes, view.num_uncores


def even(view: CpuTopology) -> bool:
    return all(len({unit.size for unit in units.values()}) <= 1 for units in view.units)


@pytest.mark.parametrize("table", TABLES)
def test_real_counts_give_the_kubelets_answer_on_even_machines(table: str) -> None:
    for case in table_cases(table):
        view, real = given_topology(table, case["topology"]), real_topology(table, case["topology"])
        compared = slice(0, 5 if case["prefer_uncore"] else 4)
        if even(real) and counts(view)[compared] == counts(real)[compared]:
            check(case, real)


def test_a_combination_that_the_kubelet_overwrites() -> None:
    """oracle-1980: the kubelet 1.36 distributes over nodes 0-4 and 7, although the first six are as well balanced."""
    view = even_machine(sockets=2, nodes=8, cores=16)
    taken = take(view, frozenset(view.cpus), 162, NUMA_EVEN_CORES)
    assert per_node(view, taken) == [28, 28, 28, 26, 26, 26]


def listed(pick: Pick, level: int) -> list[int]:
    return [unit.id for unit in pick.whole(level)]


def in_single_cpus(pick: Pick) -> list[int]:
    """The order of take_cpus."""
    taken = []
    for _turn in range(size(pick.free)):
        following = Pick(pick.view, pick.free, len(taken) + 1)
        following.take_cpus(spread=False)
        taken += sorted(cpus_of(following.taken) - set(taken))
    return taken


ORDERS: dict[str, t.Callable[[Pick], list[int]]] = {
    "freeSockets": lambda pick: sorted(listed(pick, SOCKET)),
    "freeNUMANodes": lambda pick: listed(pick, NUMA),
    "freeCores": lambda pick: listed(pick, CORE),
    "freeCPUs": in_single_cpus,
}


@pytest.mark.parametrize("case", cases("cpu_accumulator_free.json"))
def test_kubelet_orders(case: dict[str, t.Any]) -> None:
    view = given_topology("cpu_accumulator_free.json", case["topology"])
    assert ORDERS[case["fn"]](Pick(view, view.mask(cpuset.parse(case["available"])), 0)) == case["expect"]


# Machines


def machine(cores: list[list[int]], **facts: t.Any) -> Topology:
    groups = tuple(frozenset(core) for core in cores)
    return Topology(online=frozenset().union(*groups), cores=groups, **facts)


def even_machine(sockets: int = 2, nodes: int = 2, cores: int = 4, threads: int = 2, caches: int = 1) -> CpuTopology:
    """``cores`` per node, ``caches`` per node; siblings are as far apart as x86 numbers them."""
    total = nodes * cores
    return allocation.counted(
        {
            thread * total + core: CpuInfo(core, core * sockets // total, core // cores, core * caches // cores)
            for thread in range(threads)
            for core in range(total)
        }
    )


def hybrid(nodes: int = 1) -> CpuTopology:
    """On each node two cores of two threads and three of one."""
    return allocation.counted(
        {
            node * 7 + cpu: CpuInfo(node * 7 + (cpu & ~1 if cpu < 4 else cpu), node, node, node)
            for node in range(nodes)
            for cpu in range(7)
        }
    )


def per_node(view: CpuTopology, cpus: CpuSet) -> list[int]:
    """How many of the CPUs each node gives that gives any."""
    nodes = [view.cpus[cpu].numa for cpu in cpus]
    return [nodes.count(node) for node in sorted(set(nodes))]


def is_whole(view: CpuTopology, cpus: CpuSet) -> bool:
    cores = {view.cpus[cpu].core for cpu in cpus}
    return cpus == {cpu for cpu, info in view.cpus.items() if info.core in cores}


def test_core_with_an_offline_sibling_is_whole() -> None:
    """The kubelet divides 7 CPUs by 4 cores and takes half cores for whole ones (kubernetes#124066)."""
    view = allocation.of(machine([[0, 4], [1], [2, 6], [3, 7]]))
    assert take_packed(view, frozenset(view.cpus), 3) == {0, 1, 4}
    assert take_packed(view, frozenset(view.cpus) - {0}, 2) == {1, 4}
    assert take_packed(view, frozenset(view.cpus) - {0, 1, 4}, 2) == {2, 6}


def test_hybrid_cores_are_whole_by_their_own_size() -> None:
    view = allocation.of(machine([[0, 1], [2, 3], [4], [5]]))
    assert take_packed(view, frozenset({0, 1, 2, 3}), 2) == {0, 1}
    assert take_packed(view, frozenset({1, 2, 3}), 2) == {2, 3}


def test_view_of_odd_ids() -> None:
    topology = machine(
        [[0, 1], [2, 3], [6]],
        sockets={"?0": frozenset({0, 1}), "?1": frozenset({2, 3, 6})},
        socket_ids_known=False,
        numa={
            0: NumaNode(0, frozenset({0, 1}), None, {}),
            8: NumaNode(8, frozenset({2, 3}), None, {}),
            250: NumaNode(250, frozenset(), None, {}),
        },
        l3=(frozenset({2, 3}),),
    )
    view = allocation.of(topology)
    assert view.cpus[3] == CpuInfo(core=2, socket=1, numa=8, uncore=2)
    assert view.cpus[6] == CpuInfo(core=6, socket=1, numa=0, uncore=6)
    assert view.cpus[1] == CpuInfo(core=0, socket=0, numa=0, uncore=0)
    assert counts(view) == (5, 3, 2, 2, 3)


def test_empty_machine() -> None:
    view = allocation.of(Topology(online=frozenset()))
    for options in (Options(), WHOLE_CORES, NUMA_EVEN, NUMA_EVEN_CORES, SPREAD, UNCORE):
        assert take(view, frozenset(), 0, options) == set()
        with pytest.raises(ValueError, match="requested=1, available=0"):
            take(view, frozenset({0}), 1, options)
    assert smt_problem(view, frozenset(), frozenset(), 0) is None


# Options


@pytest.mark.parametrize(
    ("options", "count", "expected"),
    [
        (Options(), 4, "0-1,16-17"),
        (SPREAD, 4, "0-3"),
        (UNCORE, 4, "0-1,16-17"),
        (UNCORE, 7, "0-3,16-18"),
        (UNCORE, 9, "0-3,4,16-19"),
        (NUMA_EVEN, 18, "0-4,8-12,16-19,24-27"),
        (NUMA_EVEN_CORES, 18, "0-4,8-11,16-20,24-27"),
    ],
)
def test_options_choose_the_algorithm(options: Options, count: int, expected: str) -> None:
    view = even_machine(nodes=2, cores=8, caches=2)
    assert cpuset.format(take(view, frozenset(view.cpus), count, options)) == cpuset.format(cpuset.parse(expected))


def test_caches_are_filled_before_others_are_split() -> None:
    view = even_machine(nodes=1, sockets=1, cores=8, caches=2)
    free = frozenset(view.cpus) - {0, 8}
    assert take(view, free, 8, Options()) == {1, 2, 3, 4, 9, 10, 11, 12}
    assert take(view, free, 8, UNCORE) == {4, 5, 6, 7, 12, 13, 14, 15}


def test_affinity_comes_first_and_the_rest_from_elsewhere() -> None:
    view = even_machine(sockets=2, nodes=4, cores=2)
    free = frozenset(view.cpus)
    assert allocate(view, free, 3, affinity=frozenset({2})) == {4, 5, 12}
    assert allocate(view, free, 6, affinity=frozenset({2})) == {4, 5, 12, 13, 6, 14}
    assert allocate(view, free, 2, affinity=frozenset()) == {0, 8}
    assert allocate(view, free, 2, affinity=frozenset({99})) == {0, 8}
    by_socket = Options(align_by_socket=True)
    assert allocate(view, free - {4, 12}, 6, by_socket, affinity=frozenset({2})) == {5, 6, 7, 13, 14, 15}
    assert allocate(view, free - {4, 12}, 6, affinity=frozenset({2})) == {5, 13, 6, 7, 14, 15}


def test_reusable_cpus_can_be_taken_again() -> None:
    view = even_machine(sockets=1, nodes=1, cores=2)
    assert allocate(view, frozenset({1}), 2, reusable=frozenset({0, 2})) == {0, 2}
    with pytest.raises(ValueError, match="requested=4, available=3"):
        allocate(view, frozenset({1}), 4, reusable=frozenset({0, 2}))


def test_whole_cores_where_the_kubelet_would_split_one() -> None:
    view = hybrid()
    everything = frozenset(view.cpus)
    assert take(view, everything, 1, WHOLE_CORES) == {4}
    assert take(view, everything - {4, 5, 6}, 2, WHOLE_CORES) == {0, 1}
    assert take(view, everything - {4, 5}, 3, WHOLE_CORES) == {0, 1, 6}
    assert take(view, everything - {0, 4, 5, 6}, 2, WHOLE_CORES) == {2, 3}
    with pytest.raises(ValueError, match="no whole cores add up to the requested 3 cpus: free whole cores have 2 CPUs"):
        take(view, frozenset({0, 1, 2, 3}), 3, WHOLE_CORES)
    with pytest.raises(ValueError, match="the requested 2 cpus: no core is free as a whole"):
        take(view, frozenset({0, 2}), 2, WHOLE_CORES)


def test_whole_cores_of_the_affinity_first() -> None:
    """Node 0 has two cores of one thread left, node 1 one of two: 3 CPUs can take one of node 0, not two."""
    view = hybrid(nodes=2)
    free = frozenset({4, 5, 7, 8})
    assert allocate(view, free, 3, WHOLE_CORES, affinity=frozenset({0})) == {4, 7, 8}
    assert allocate(view, free, 4, WHOLE_CORES, affinity=frozenset({0})) == free


def test_half_cores_do_not_count_when_whole_ones_are_distributed() -> None:
    """Both nodes have 11 free CPUs, three whole cores the first, four the second: the kubelet would take two halves."""
    view = even_machine(sockets=2, nodes=2, cores=8)
    free = frozenset(view.cpus) - {3, 4, 5, 6, 7} - {12, 13, 14, 15, 31}
    assert take(view, free, 8, NUMA_EVEN) == {0, 1, 2, 16, 17, 18, 19, 20}
    assert take(view, free, 8, NUMA_EVEN_CORES) == {8, 9, 10, 11, 24, 25, 26, 27}


@pytest.mark.parametrize(
    ("available", "reserved", "count", "problem"),
    [
        ("0-15", "", 16, None),
        ("0-15", "0", 14, None),
        ("0-15", "0", 0, None),
        ("0-15", "0", 3, "requested 3 cpus not multiple cpus per core = 2"),
        ("0-15", "0", 16, "not enough free physical CPUs: available physical CPUs = 14, requested CPUs = 16, CPUs per core = 2"),
        ("1-15", "", 16, "not enough free physical CPUs: available physical CPUs = 14, requested CPUs = 16, CPUs per core = 2"),
    ],
)  # fmt: skip
def test_smt_alignment(available: str, reserved: str, count: int, problem: str | None) -> None:
    said = smt_problem(even_machine(), cpuset.parse(available), cpuset.parse(reserved), count)
    assert said == (problem and f"SMT Alignment Error: {problem}")


@pytest.mark.parametrize(
    ("available", "count", "problem"),
    [
        ("0-6", 5, None),
        ("0-3", 3, "no whole cores add up to the requested 3 cpus: free whole cores have 2 CPUs"),
        ("0-4", 6, "not enough free physical CPUs: available physical CPUs = 5, requested CPUs = 6, CPUs per core = 1 or 2"),
    ],
)  # fmt: skip
def test_smt_alignment_of_uneven_cores(available: str, count: int, problem: str | None) -> None:
    said = smt_problem(hybrid(), cpuset.parse(available), cpuset.EMPTY, count)
    assert said == (problem and f"SMT Alignment Error: {problem}")


# Properties

ALGORITHMS = st.sampled_from([Options(), SPREAD, UNCORE, NUMA_EVEN, Options(align_by_socket=True)])
WHOLE_CORE_ALGORITHMS = st.sampled_from([WHOLE_CORES, NUMA_EVEN_CORES, UNCORE._replace(full_pcpus_only=True)])


@st.composite
def machines(draw: st.DrawFn) -> CpuTopology:
    """Cores of one to four threads in sockets, nodes and caches that cut across each other as they like."""
    cpus: dict[int, CpuInfo] = {}
    first = 0
    for _core in range(draw(st.integers(1, 12))):
        threads, step = draw(st.integers(1, 4)), draw(st.integers(1, 3))
        place = CpuInfo(first, *(draw(st.integers(0, 3)) for _level in range(3)))
        cpus.update({first + thread: place for thread in range(threads)})
        first += threads + step
    return allocation.counted(cpus)


@st.composite
def even_machines(draw: st.DrawFn) -> CpuTopology:
    sockets = draw(st.integers(1, 2))
    nodes, caches = sockets * draw(st.integers(1, 3)), draw(st.integers(1, 2))
    return even_machine(sockets, nodes, caches * draw(st.integers(1, 3)), draw(st.sampled_from([1, 2, 4])), caches)


def some(view: CpuTopology) -> st.SearchStrategy[CpuSet]:
    return st.frozensets(st.sampled_from(sorted(view.cpus)))


@given(machines(), ALGORITHMS, st.data())
def test_takes_what_is_there_and_exactly_so_many(view: CpuTopology, options: Options, data: st.DataObject) -> None:
    available = data.draw(some(view))
    affinity = data.draw(st.none() | st.frozensets(st.integers(0, 4)))
    count = data.draw(st.integers(-1, len(available)))
    taken = allocate(view, available, count, options, affinity=affinity)
    assert taken <= available
    assert len(taken) == max(count, 0)
    again = allocation.counted(dict(reversed(list(view.cpus.items()))))
    assert taken == allocate(again, available, count, options, affinity=affinity), "the same on every call"
    with pytest.raises(ValueError, match="not enough cpus"):
        allocate(view, available, len(available) + 1, options, affinity=affinity)


@given(machines(), st.data())
def test_splits_at_most_one_free_core(view: CpuTopology, data: st.DataObject) -> None:
    count = data.draw(st.integers(0, view.num_cpus))
    taken = take_packed(view, frozenset(view.cpus), count)
    touched = {view.cpus[cpu].core for cpu in taken}
    whole = {core for core in touched if taken >= {cpu for cpu, info in view.cpus.items() if info.core == core}}
    assert len(touched - whole) <= 1


@given(machines(), WHOLE_CORE_ALGORITHMS, st.data())
def test_full_pcpus_only_gives_whole_cores_or_says_why_not(
    view: CpuTopology, options: Options, data: st.DataObject
) -> None:
    available = data.draw(some(view))
    affinity = data.draw(st.none() | st.frozensets(st.integers(0, 3)))
    count = data.draw(st.integers(0, len(available)))
    problem = smt_problem(view, available, cpuset.EMPTY, count)
    if problem is not None:
        with pytest.raises(ValueError, match="SMT Alignment Error: no whole cores add up"):
            allocate(view, available, count, options, affinity=affinity)
        return
    taken = allocate(view, available, count, options, affinity=affinity)
    assert taken <= available
    assert len(taken) == count
    assert is_whole(view, taken)


@given(even_machines(), WHOLE_CORE_ALGORITHMS, st.data())
def test_full_pcpus_only_changes_nothing_where_whole_cores_are_free(
    view: CpuTopology, options: Options, data: st.DataObject
) -> None:
    """On even machines that only ever gave whole cores away the kubelet's own answer is whole."""
    cores = data.draw(st.frozensets(st.sampled_from(sorted(view.units[CORE]))))
    free = view.mask_of(CORE, cores)
    threads = view.core_sizes[0]
    count = threads * data.draw(st.integers(0, len(cores)))
    if options.distribute_cpus_across_numa:
        answer = take_distributed(view, free, count, threads, spread=False)
    else:
        answer = take_units(view, free, count, uncore=options.prefer_align_cpus_by_uncorecache)
    assert take(view, cpus_of(free), count, options) == cpus_of(answer)


@given(even_machines(), st.booleans(), st.data())
def test_distributed_evenly(view: CpuTopology, whole_cores: bool, data: st.DataObject) -> None:
    """On a free machine each node that gives any gives as many as the others, or one group more."""
    options, group = (NUMA_EVEN_CORES, view.core_sizes[0]) if whole_cores else (NUMA_EVEN, 1)
    count = group * data.draw(st.integers(1, view.num_cpus // group))
    given_by = per_node(view, take(view, frozenset(view.cpus), count, options))
    assert max(given_by) - min(given_by) <= group
    assert len(given_by) == -(-count // (view.num_cpus // view.num_numa_nodes)), "as few nodes as can be"


@given(even_machines(), ALGORITHMS | WHOLE_CORE_ALGORITHMS, st.lists(st.integers(1, 6), max_size=6))
def test_one_after_another_until_nothing_is_left(view: CpuTopology, options: Options, sizes: list[int]) -> None:
    left = frozenset(view.cpus)
    unit = view.core_sizes[0] if options.full_pcpus_only else 1
    for number in [*(number * unit for number in sizes), 0]:
        count = number if 0 < number <= len(left) else len(left)
        taken = take(view, left, count, options)
        assert taken <= left and len(taken) == count
        left -= taken
    assert not left


@given(even_machines(), ALGORITHMS, st.data())
def test_affinity_is_used_up_before_other_nodes(view: CpuTopology, options: Options, data: st.DataObject) -> None:
    assume(not options.align_by_socket)
    available = data.draw(some(view))
    nodes = data.draw(st.frozensets(st.sampled_from(sorted(view.units[NUMA]))))
    count = data.draw(st.integers(0, len(available)))
    near = {cpu for cpu in available if view.cpus[cpu].numa in nodes}
    taken = allocate(view, available, count, options, affinity=nodes)
    assert len(taken & near) == min(count, len(near))
