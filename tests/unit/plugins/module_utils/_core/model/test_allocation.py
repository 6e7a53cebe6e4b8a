# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import typing as t
from functools import cache

import pytest
from _core.model import allocation, cpuset
from _core.model.allocation import CpuInfo, CpuTopology, Pick, take_packed
from _core.model.topology import NumaNode, Topology
from hypothesis import given
from hypothesis import strategies as st
from shared_data import cases, document

TABLES = ("take_by_topology.json", "take_by_topology_generated.json")


@cache
def given_topology(table: str, name: str) -> CpuTopology:
    """A topology of the kubelet's tests, with the counts that are given there."""
    facts = document(table)["topologies"][name]
    cpus = {cpu: CpuInfo(core, socket, numa) for cpu, core, socket, numa, *_uncore in facts["cpus"]}
    return CpuTopology(
        cpus, facts["NumCPUs"], facts["NumCores"], facts["NumSockets"], facts["NumNUMANodes"], averages=True
    )


def is_packed(case: dict[str, t.Any]) -> bool:
    return case["algorithm"] == "packed" and case["sort"] == "packed" and not case["prefer_uncore"]


def packed_cases(table: str) -> list[dict[str, t.Any]]:
    return [case for case in document(table).get("cases", []) if is_packed(case)]


def check(case: dict[str, t.Any], topology: CpuTopology) -> None:
    available = cpuset.parse(case["available"])
    if case["expect_error"]:
        with pytest.raises(ValueError, match=r".+") as caught:
            take_packed(topology, available, case["n"])
        assert str(caught.value) == case["expect_error"], case["id"]
    else:
        assert cpuset.format(take_packed(topology, available, case["n"])) == case["expect"], case["id"]


@pytest.mark.parametrize("table", TABLES)
def test_kubelet_cases(table: str) -> None:
    selected = packed_cases(table)
    if not selected:
        pytest.skip(f"no {table}; point CORRAL_KUBELET_CASES at the data")
    for case in selected:
        check(case, given_topology(table, case["topology"]))


@pytest.mark.parametrize("table", TABLES)
def test_real_counts_give_the_kubelets_answer_on_even_machines(table: str) -> None:
    selected = packed_cases(table)
    if not selected:
        pytest.skip(f"no {table}; point CORRAL_KUBELET_CASES at the data")
    for case in selected:
        topology = given_topology(table, case["topology"])
        real = allocation.counted(topology.cpus)
        sizes = {len(core) for core in Pick(real, [], 0).members(allocation.CORE).values()}
        if real[1:5] == topology[1:5] and len(sizes) == 1:
            check(case, real)


ORDERS: dict[str, t.Callable[[Pick], list[int]]] = {
    "freeSockets": lambda pick: sorted(allocation.whole_units(pick, allocation.SOCKET)),
    "freeNUMANodes": lambda pick: allocation.whole_units(pick, allocation.NUMA),
    "freeCores": lambda pick: allocation.whole_units(pick, allocation.CORE),
    "freeCPUs": allocation.free_cpus,
}


@pytest.mark.parametrize("case", cases("cpu_accumulator_free.json"))
def test_kubelet_orders(case: dict[str, t.Any]) -> None:
    topology = given_topology("cpu_accumulator_free.json", case["topology"])
    assert ORDERS[case["fn"]](Pick(topology, cpuset.parse(case["available"]), 0)) == case["expect"]


# Real machines


def machine(cores: list[list[int]], **facts: t.Any) -> Topology:
    groups = tuple(frozenset(core) for core in cores)
    return Topology(online=frozenset().union(*groups), cores=groups, **facts)


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
    )
    view = allocation.of(topology)
    assert view.cpus[3] == CpuInfo(core=2, socket=1, numa=8)
    assert view.cpus[6] == CpuInfo(core=6, socket=1, numa=0)
    assert view[1:5] == (5, 3, 2, 2)


def test_empty_machine() -> None:
    view = allocation.of(Topology(online=frozenset()))
    assert take_packed(view, frozenset(), 0) == set()
    with pytest.raises(ValueError, match="requested=1, available=0"):
        take_packed(view, frozenset({0}), 1)


@st.composite
def machines(draw: st.DrawFn) -> CpuTopology:
    """Cores of one to four threads in sockets and nodes that cut across each other as they like."""
    cpus: dict[int, CpuInfo] = {}
    first = 0
    for _core in range(draw(st.integers(1, 12))):
        threads, step = draw(st.integers(1, 4)), draw(st.integers(1, 3))
        place = CpuInfo(first, draw(st.integers(0, 3)), draw(st.integers(0, 3)))
        cpus.update({first + thread: place for thread in range(threads)})
        first += threads + step
    return allocation.counted(cpus)


@given(machines(), st.data())
def test_takes_what_is_there_and_exactly_so_many(view: CpuTopology, data: st.DataObject) -> None:
    available = data.draw(st.frozensets(st.sampled_from(sorted(view.cpus))))
    count = data.draw(st.integers(-1, len(available)))
    taken = take_packed(view, available, count)
    assert taken <= available
    assert len(taken) == max(count, 0)
    assert taken == take_packed(view, available, count)
    with pytest.raises(ValueError, match="not enough cpus"):
        take_packed(view, available, len(available) + 1)


@given(machines(), st.data())
def test_splits_at_most_one_free_core(view: CpuTopology, data: st.DataObject) -> None:
    count = data.draw(st.integers(0, view.num_cpus))
    taken = take_packed(view, frozenset(view.cpus), count)
    cores = Pick(view, [], 0).members(allocation.CORE).values()
    assert sum(0 < len(core & taken) < len(core) for core in cores) <= 1
