# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Whether a kubelet would start with a state: each cause of a refusal, in its words."""

from __future__ import annotations

import typing as t

import pytest
from _core.model.kubelet import start_checks
from _core.model.kubelet.start_checks import CpuSettings
from _core.model.kubelet.state_files import CpuState, MemoryState, StateRefused

ONLINE = frozenset(range(8))
STATE = CpuState("static", frozenset({0, 1, 2, 3, 6, 7}), {"pod": {"main": frozenset({4, 5})}}, {})
SETTINGS = CpuSettings("static", ONLINE, frozenset({0, 1}))
GIB = 1 << 30


@pytest.mark.parametrize(
    ("state", "settings"),
    [
        (STATE, SETTINGS),
        (STATE, SETTINGS._replace(policy="none", online=frozenset({0}))),
        (STATE._replace(default=frozenset(), containers={}), SETTINGS._replace(online=frozenset({0}))),
        (STATE._replace(default=frozenset({2, 3, 6, 7})), SETTINGS._replace(strict=True)),
        (STATE._replace(default=frozenset({0, 1, 2, 3}), pods={"whole": frozenset({6, 7})}), SETTINGS),
    ],
)
def test_a_kubelet_starts(state: CpuState, settings: CpuSettings) -> None:
    start_checks.check_cpus(state, settings)


@pytest.mark.parametrize(
    ("state", "settings", "said"),
    [
        (STATE._replace(default=frozenset()), SETTINGS, "default cpuset cannot be empty"),
        (
            STATE,
            SETTINGS._replace(reserved=frozenset({0, 4})),
            'not all reserved cpus: "0,4" are present in defaultCpuSet: "0-3,6-7"',
        ),
        (
            STATE,
            SETTINGS._replace(strict=True),
            'some of strictly reserved cpus: "0-1" are present in defaultCpuSet: "0-3,6-7"',
        ),
        (
            STATE._replace(containers={"pod": {"main": frozenset({3, 4})}}),
            SETTINGS,
            'pod: pod, container: main cpuset: "3-4" overlaps with default cpuset "0-3,6-7"',
        ),
        (
            STATE,
            SETTINGS._replace(online=ONLINE - {7}),
            'current set of available CPUs "0-6" doesn\'t match with CPUs in state "0-7"',
        ),
        (
            STATE._replace(default=frozenset({2, 3, 6})),
            SETTINGS._replace(strict=True),
            'current set of available CPUs "2-7" doesn\'t match with CPUs in state "2-6"',
        ),
    ],
)
def test_a_kubelet_that_would_not_start_says_why(state: CpuState, settings: CpuSettings, said: str) -> None:
    with pytest.raises(StateRefused) as refused:
        start_checks.check_cpus(state, settings)
    assert str(refused.value) == said


TOTALS = {0: {"memory": 4 * GIB, "hugepages-1Gi": GIB}, 1: {"memory": 4 * GIB, "hugepages-1Gi": 0}}
RESERVED = {0: {"memory": GIB}}


def assigned(nodes: list[int], size: int) -> MemoryState:
    """The state of a kubelet that gave one container memory of these nodes."""
    machine = start_checks.machine(TOTALS, RESERVED)
    block = {"NUMAAffinity": nodes, "Type": "memory", "Size": size}
    start_checks.assign(machine, block, "")
    return MemoryState("Static", machine, {"pod": {"main": [block]}}, {})


def test_memory_that_is_as_it_was_is_accepted() -> None:
    state = assigned([0], GIB)
    assert state.nodes[0]["MemoryMap"]["memory"] == {
        "TotalMemSize": 4 * GIB, "SystemReserved": GIB, "Allocatable": 2 * GIB, "Reserved": GIB, "Free": GIB
    }  # fmt: skip
    start_checks.check_memory(state, "Static", TOTALS, RESERVED)
    start_checks.check_memory(assigned([0, 1], 5 * GIB), "Static", TOTALS, RESERVED)
    start_checks.check_memory(state, "None", {}, {})
    start_checks.check_memory(state._replace(nodes={}), "Static", {}, {})


@pytest.mark.parametrize(
    ("count", "cells", "is_accepted"), [(2, [0], True), (1, [0], False), (3, [0], False), (2, [0, 1], False)]
)
def test_assignments_are_counted_by_container_and_kind(count: int, cells: list[int], is_accepted: bool) -> None:
    """A state as a kubelet writes it, with one container that has memory and a page of 1 GiB of node 0."""
    memory = {"TotalMemSize": 4 * GIB, "SystemReserved": GIB, "Allocatable": 2 * GIB, "Reserved": GIB, "Free": GIB}
    page = {"TotalMemSize": GIB, "SystemReserved": 0, "Allocatable": GIB, "Reserved": GIB, "Free": 0}
    node = {"NumberOfAssignments": count, "MemoryMap": {"memory": memory, "hugepages-1Gi": page}, "Cells": cells}
    blocks = [{"NUMAAffinity": [0], "Type": kind, "Size": GIB} for kind in ("memory", "hugepages-1Gi")]
    state = MemoryState("Static", {0: node}, {"pod": {"main": blocks}}, {})
    if is_accepted:
        start_checks.check_memory(state, "Static", {0: TOTALS[0]}, RESERVED)
        return
    with pytest.raises(StateRefused, match="the expected machine state is different"):
        start_checks.check_memory(state, "Static", {0: TOTALS[0]}, RESERVED)


def test_of_a_group_only_the_sums_count() -> None:
    state = assigned([0, 1], 5 * GIB)
    one, other = (state.nodes[node]["MemoryMap"]["memory"] for node in (0, 1))
    for table, by in ((one, GIB), (other, -GIB)):
        table["Free"] += by
        table["Reserved"] -= by
    start_checks.check_memory(state, "Static", TOTALS, RESERVED)


@pytest.mark.parametrize(
    ("totals", "reserved"),
    [
        ({**TOTALS, 1: {"memory": 4 * GIB - 4096, "hugepages-1Gi": 0}}, RESERVED),  # kubernetes#109996
        (TOTALS, {0: {"memory": GIB + 1}}),
        ({0: TOTALS[0]}, RESERVED),
        ({**TOTALS, 2: TOTALS[1]}, RESERVED),
        ({0: TOTALS[0], 1: {"memory": 4 * GIB}}, RESERVED),
    ],
)
def test_another_machine_is_refused(totals: t.Any, reserved: t.Any) -> None:
    with pytest.raises(
        StateRefused, match=r"^\[memorymanager\] the expected machine state is different from the real one$"
    ):
        start_checks.check_memory(assigned([0], GIB), "Static", totals, reserved)


def test_an_assignment_of_a_node_that_is_gone_is_named() -> None:
    with pytest.raises(StateRefused, match=r"pod: pod, container: main.* uses the NUMA that does not exist"):
        start_checks.check_memory(assigned([1], GIB), "Static", {0: TOTALS[0]}, RESERVED)
