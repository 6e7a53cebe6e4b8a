# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The validator: a step is in a place of its manager's or refused, and pools fit the memory."""

from __future__ import annotations

import typing as t

import pytest
from _core.model.plan import validate
from _core.model.plan.places import Place, covering, dropins
from _core.model.plan.plan import Change, Step
from _core.model.values.errors import Problem
from _core.model.values.printable_text import printable
from machines import GIB_KIB, machine
from text_step import step

NODE = "/sys/devices/system/node/node{}/hugepages/hugepages-{}kB/nr_hugepages"
EVERYWHERE = "/sys/kernel/mm/hugepages/hugepages-{}kB/nr_hugepages"
WRITES = {
    "toy": (
        Place("file", r"/etc/toy/.*"),
        Place("file", r"/run/toy", None, volatile=True),
        Place("value", r"/proc/sys/toy", "[0-9]+"),
        Place("property", r"[^/]+\.slice", "Toys=.*"),
        Place("unit", r".+", "start|stop"),
        Place("pool", r".+/nr_hugepages"),
        Place("cpuset", r".+"),
    ),
    "silent": (),
}


def problems(*steps: Step, manager: str = "toy", **options: t.Any) -> list[Problem]:
    """What is said of a change with these steps."""
    change = Change(manager, "toy", "value", "a", "b", "a test", "toy", steps)
    return validate.problems([change], options.get("topology", machine()), WRITES)


ALLOWED = [
    step("file", "/etc/toy/a"),
    step("file", "/etc/toy/a", None),
    step("file", "/run/toy", None),
    step("link", "/etc/toy/a", "/dev/null"),
    step("value", "/proc/sys/toy", "12"),
    step("property", "a.slice", "Toys=1"),
    step("file", "/run/systemd/system.control/a.slice.d/50-Toys.conf", None),
    step("file", "/etc/systemd/system.control/a.slice.d/50-Toys.conf", None),
    step("unit", "a.timer", "start"),
    step("folder", "/anywhere", None),  # Only an empty one can go.
    step("cpuset", "/cpuset/a.slice", "0", "a.slice"),
]
REFUSED = [
    step("file", "/etc/toy"),
    step("file", "/etc/toy/../passwd"),
    step("file", "/run/toy"),
    step("link", "/run/toy"),
    step("value", "/proc/sys/toy", "12;"),
    step("value", "/proc/sys/toy", "12\n"),
    step("value", "/proc/sys/toy\n", "12"),
    step("value", "/proc/sys/toy", None),
    step("property", "a.slice", "Other=1"),
    step("file", "/run/systemd/system.control/a.slice.d/50-Other.conf", None),
    step("unit", "a.timer", "restart"),
    step("unit", "sshd.socket", "stop"),
    step("unit", "--now.slice", "start"),
    step("unit", "a b.slice", "start"),
    step("unit", "", "daemon-reload"),  # It belongs to the plan as a whole.
    step("folder", "anywhere", None),
    step("folder", "/mnt/../etc", None),
    step("cpuset", "/cpuset/a.slice", "0", "b.slice"),
    step("anything", "/etc/toy/a"),
]


@pytest.mark.parametrize("one", ALLOWED, ids=lambda one: f"{one.kind} {one.target}")
def test_a_step_within_its_managers_places(one: Step) -> None:
    assert problems(one) == []


@pytest.mark.parametrize("one", REFUSED, ids=lambda one: f"{one.kind} {one.target!r} {one.value}")
def test_a_step_outside_its_managers_places(one: Step) -> None:
    (problem,) = problems(*ALLOWED, one)
    assert (problem.path, problem.value) == (printable(one.target), one.text and printable(one.text))
    assert f"the manager toy must not write here ({one.kind})" in problem.message


@pytest.mark.parametrize("manager", ["silent", "unknown"])
def test_a_manager_that_names_no_place_writes_nothing(manager: str) -> None:
    assert len(problems(*ALLOWED, manager=manager)) == len(ALLOWED) - 1  # An empty folder may go.


def test_a_drop_in_is_its_managers_alone() -> None:
    file = step("file", "/etc/systemd/system/a.slice.d/10-corral-toy.conf")
    assert covering([dropins("toy")], file) is not None
    assert covering([dropins("to")], file) is None


def pools(*asked: tuple[str, int]) -> list[str]:
    """What is said of pools of so many pages on the lab's machine: 1 GiB on each of two nodes."""
    return [problem.line() for problem in problems(*(step("pool", path, str(count)) for path, count in asked))]


def test_pools_of_all_sizes_together_fit_their_nodes_memory() -> None:
    half = GIB_KIB // 2048 // 2
    whole = [(NODE.format(0, 2048), 2 * half), (NODE.format(1, 2048), 2 * half)]
    assert pools(*whole, (EVERYWHERE.format(2048), 4 * half)) == []
    (line,) = pools(*whole, (NODE.format(0, 1048576), 1))
    assert "NUMA node 0 has 1048576 KiB" in line
    (line,) = pools((EVERYWHERE.format(2048), 4 * half + 1))
    assert "this machine has 2097152 KiB" in line


def test_a_pool_of_a_node_that_is_not_there() -> None:
    (line,) = pools((NODE.format(7, 2048), 1))
    assert "this machine has no NUMA node 7" in line


def test_a_machine_that_does_not_tell_its_memory_refuses_no_pool() -> None:
    asked = [step("pool", NODE.format(0, 2048), "999999999")]
    assert problems(*asked, topology=machine(memory_kib=None)) == []
    assert problems(*asked, topology=None) == []
