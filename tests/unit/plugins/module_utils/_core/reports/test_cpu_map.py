# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The map of the CPUs as they are, beside what is declared."""

from __future__ import annotations

import machines
from _core.model.cpu import pools
from _core.model.cpu.cpu_assignment import Assignment
from _core.model.profile import profile
from _core.model.topology.topology import NumaNode, Topology
from _core.model.workload.grants import Grant
from _core.reports import cpu_map

DECLARED = {
    **{cpu: Assignment("reserved") for cpu in (0, 1)},
    **{cpu: Assignment("shared") for cpu in (2, 3, 4)},
    5: Assignment("exclusive", "lane"),
    6: Assignment("isolated"),
}


def test_where_all_is_as_declared_there_is_no_second_map() -> None:
    topology = machines.machine(2, 2, 2, offline_present=frozenset({7}))
    assert cpu_map.map_in_force(topology, DECLARED, DECLARED) == []
    assert cpu_map.map_in_force(topology, {**DECLARED, 7: Assignment("shared")}, DECLARED) == [], "it is offline"


def test_a_small_letter_is_another_pool_or_another_workload() -> None:
    topology = machines.machine(2, 2, 2, offline_present=frozenset({7}))
    now = {**DECLARED, 1: Assignment("shared"), 5: Assignment("exclusive", "other")}
    del now[4]
    assert cpu_map.map_in_force(topology, now, DECLARED) == [
        "node 0   Rs SS   CPUs 0-3   socket 0",
        "node 1   ?e I   CPUs 4-6   socket 1",
        "S shared 1-3   R reserved 0   E exclusive 5 (other 5)   I isolated 6   ? in no pool 4   small letters: not as declared, 1,4-5",
    ]


def test_a_cpu_that_is_offline_is_in_no_pool_whatever_had_it() -> None:
    topology = machines.machine(2, 2, 2, offline_present=frozenset({7}))
    now = {**DECLARED, 1: Assignment("shared"), 7: Assignment("exclusive", "lane")}
    assert cpu_map.map_in_force(topology, now, DECLARED)[-1] == (
        "S shared 1-4   R reserved 0   E exclusive 5 (lane 5)   I isolated 6   small letters: not as declared, 1"
    )
    gone = machines.machine(2, 2, 2, offline_present=frozenset({5, 7}))
    assert "exclusive" not in cpu_map.map_in_force(gone, now, DECLARED)[-1]


def test_the_map_of_a_profile_names_the_owners_of_exclusive_cpus_alone() -> None:
    topology = machines.machine(2, 2, 2, offline_present=frozenset({7}))
    declared = profile.parse({"name": "x", "cpu": {"policy": "static", "reserved": {"count": 2}}})
    computed = pools.compute(declared, topology)._replace(exclusive=frozenset({5}))
    computed = computed._replace(shared=computed.shared - {5})
    grants = [Grant("lane", "declared", cpus=frozenset({5})), Grant("batch", "declared")]
    assert cpu_map.cpu_map(topology, computed, grants)[-1].split("   ")[-2:] == [
        "E exclusive 5 (lane 5)",
        ". offline 7",
    ]
    assert "E exclusive 5 (lane 5 unused)" in cpu_map.cpu_map(topology, computed, grants, unused={"lane", "batch"})[-1]
    assert cpu_map.cpu_map(topology, computed)[-1].split("   ")[-2:] == ["E exclusive 5", ". offline 7"]
    there = machines.machine(2, 2, 2)
    assert "offline" not in cpu_map.cpu_map(there, pools.compute(declared, there))[-1]


def letters(topology: Topology) -> list[str]:
    """The rows with the last digit of each CPU."""
    return cpu_map.picture(topology, lambda cpu: str(cpu % 10))


def halves(*sets: range) -> tuple[frozenset[int], ...]:
    return tuple(map(frozenset, sets))


def test_a_bar_is_between_caches_and_the_sockets_of_several_are_named() -> None:
    caches = halves(range(4), range(4, 8), range(8, 12), range(12, 16))
    assert letters(machines.machine(2, 4, 2, l3=caches)) == [
        "node 0   01 23 | 45 67   CPUs 0-7   socket 0",
        "node 1   89 01 | 23 45   CPUs 8-15   socket 1",
    ]
    one = machines.machine(1, 4, 2, l3=halves(range(8)))
    assert letters(one) == ["node 0   01 23 45 67   CPUs 0-7"], (
        "its only cache and its only socket are not worth a word"
    )


def test_cores_of_one_cache_stand_together_whatever_their_numbers_are() -> None:
    even = (frozenset({0, 1, 4, 5}), frozenset({2, 3, 6, 7}))
    assert letters(machines.machine(1, 4, 2, l3=even)) == ["node 0   01 45 | 23 67   CPUs 0-7"]
    sockets = {"0": even[0], "1": even[1]}
    assert letters(machines.machine(1, 4, 2, sockets=sockets)) == ["node 0   01 45 | 23 67   CPUs 0-7   socket 0, 1"], (
        "a node over two sockets"
    )


def test_a_line_fits_a_terminal_however_many_threads_a_core_has() -> None:
    assert [row.split("CPUs ")[1] for row in letters(machines.machine(1, 10, 8))] == ["0-31", "32-63", "64-79"]
    assert [row.split("CPUs ")[1] for row in letters(machines.machine(1, 20, 1))] == ["0-15", "16-19"]
    assert max(map(len, letters(machines.machine(2, 12, 8)))) <= 80


def test_a_line_fits_a_terminal_where_each_core_has_a_cache_and_where_cpus_are_no_ranges() -> None:
    caches = tuple(frozenset({2 * core, 2 * core + 1}) for core in range(32))
    assert letters(machines.machine(2, 16, 2, l3=caches)) == [
        "node 0   01 | 23 | 45 | 67 | 89 | 01 | 23 | 45   CPUs 0-15   socket 0",
        "         67 | 89 | 01 | 23 | 45 | 67 | 89 | 01   CPUs 16-31   socket 0",
        "node 1   23 | 45 | 67 | 89 | 01 | 23 | 45 | 67   CPUs 32-47   socket 1",
        "         89 | 01 | 23 | 45 | 67 | 89 | 01 | 23   CPUs 48-63   socket 1",
    ]
    numa = {node: NumaNode(node, frozenset(range(node, 128, 2)), None, {}) for node in (0, 1)}
    rows = letters(machines.machine(1, 128, 1, numa=numa))
    assert rows[:2] == [
        "node 0   0 2 4 6 8 0 2 4   CPUs 0,2,4,6,8,10,12,14",
        "         6 8 0 2 4 6 8 0   CPUs 16,18,20,22,24,26,28,30",
    ]
    assert max(map(len, rows)) <= 80


def test_a_socket_without_an_id_of_the_kernels_is_not_named() -> None:
    sockets = {"?0": frozenset(range(4)), "?1": frozenset(range(4, 8))}
    assert letters(machines.machine(1, 4, 2, sockets=sockets)) == ["node 0   01 23 | 45 67   CPUs 0-7"]


def test_a_node_of_many_cores_has_several_rows_and_one_without_cpus_says_so() -> None:
    whole = frozenset(range(20))
    numa = {0: NumaNode(0, whole, None, {}), 1: NumaNode(1, frozenset(), None, {})}
    sockets = {"3": frozenset(range(16)), "4": frozenset(range(16, 20))}
    assert letters(machines.machine(1, 20, 1, numa=numa, sockets=sockets)) == [
        "node 0   0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5   CPUs 0-15   socket 3",
        "         6 7 8 9   CPUs 16-19   socket 4",
        "node 1   (no CPUs)",
    ]


def test_a_kernel_without_numa_nodes_has_one_row_and_a_core_over_two_nodes_is_drawn_in_both() -> None:
    assert letters(machines.machine(1, 2, 2, numa={})) == ["node 0   01 23   CPUs 0-3"]
    numa = {0: NumaNode(0, frozenset({0, 1, 2}), None, {}), 1: NumaNode(1, frozenset({3}), None, {})}
    assert letters(machines.machine(1, 2, 2, numa=numa)) == ["node 0   01 2   CPUs 0-2", "node 1   3   CPUs 3"]


def test_sockets_come_before_caches() -> None:
    sockets = {"0": frozenset({0, 1, 6, 7}), "1": frozenset({2, 3, 4, 5})}
    caches = halves(range(2), range(2, 4), range(4, 6), range(6, 8))
    assert letters(machines.machine(1, 4, 2, sockets=sockets, l3=caches)) == [
        "node 0   01 | 67 | 23 | 45   CPUs 0-7   socket 0, 1"
    ]


def test_a_small_letter_has_the_colour_of_its_pool() -> None:
    (row,) = cpu_map.picture(machines.machine(1, 1, 2), lambda cpu: "Rr"[cpu], colour=True)
    assert row == "node 0   \033[44;97mR\033[0m\033[44;97mr\033[0m   CPUs 0-1"


def test_many_owners_are_not_all_named() -> None:
    owners = {f"w{number}": frozenset({number}) for number in range(10)}
    assert cpu_map.of_owners(owners).endswith(", w7 7, and 2 more)")
    del owners["w8"], owners["w9"]
    assert cpu_map.of_owners(owners).endswith(", w7 7)")
    assert cpu_map.of_owners({"b": frozenset({4, 5}), "a": frozenset({6})}) == " (b 4-5, a 6)"
    assert cpu_map.of_owners({}) == ""
