# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The drawing of a machine: well-formed, each thread once and inside its boxes, colours and frames as the assignments say."""

from __future__ import annotations

import re
import typing as t
from pathlib import Path

# The drawing is made by the code under test.
from xml.etree import ElementTree

import described
import machines
import pytest
from _core.host.files import Host
from _core.host.topology import sysfs
from _core.model.cpu import cpu_assignment
from _core.model.cpu.cpu_assignment import Assignment
from _core.model.topology.topology import Topology
from _core.reports import machine_svg

SVG = "{http://www.w3.org/2000/svg}"


class Thread(t.NamedTuple):
    """A drawn thread: its title, its classes, and the corners of its square."""

    title: str
    classes: set[str]
    corners: tuple[int, int, int, int]


def corners(rect: ElementTree.Element) -> tuple[int, int, int, int]:
    x, y, width, height = (int(rect.attrib[name]) for name in ("x", "y", "width", "height"))
    return x, y, x + width, y + height


def drawn(
    topology: Topology, assignments: dict[int, Assignment], declared: dict[int, Assignment] | None = None
) -> tuple[ElementTree.Element, dict[int, Thread]]:
    """The drawing, and its threads by CPU."""
    root = ElementTree.fromstring(machine_svg.drawing(topology, assignments, declared))
    found: dict[int, Thread] = {}
    for group in root.iter(f"{SVG}g"):
        title, rect = group.find(f"{SVG}title"), group.find(f"{SVG}rect")
        assert title is not None and rect is not None and title.text
        cpu = int(title.text.partition(":")[0].removeprefix("CPU "))
        assert cpu not in found, "it is drawn once"
        found[cpu] = Thread(title.text, set(rect.attrib["class"].split()), corners(rect))
    return root, found


def overlap(one: tuple[int, int, int, int], other: tuple[int, int, int, int]) -> bool:
    return one[0] < other[2] and other[0] < one[2] and one[1] < other[3] and other[1] < one[3]


def within(inner: tuple[int, int, int, int], outer: tuple[int, int, int, int]) -> bool:
    return outer[0] <= inner[0] and outer[1] <= inner[1] and inner[2] <= outer[2] and inner[3] <= outer[3]


@pytest.mark.parametrize("path", sorted(described.FOLDER.glob("*.yml")), ids=lambda path: path.stem)
def test_each_thread_is_drawn_once_and_none_covers_another(path: Path, tmp_path: Path) -> None:
    for name, text in described.files(path).items():
        file = tmp_path / name.lstrip("/")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    topology = sysfs.discover(Host(str(tmp_path)))
    root, threads = drawn(topology, {})
    assert set(threads) == topology.online
    squares = [one.corners for one in threads.values()]
    assert not any(overlap(one, other) for number, one in enumerate(squares) for other in squares[:number])
    width, height = (int(root.attrib[name]) for name in ("width", "height"))
    boxes = [corners(rect) for rect in root.iter(f"{SVG}rect")]
    assert all(within(box, (0, 0, width, height)) for box in boxes)
    for number, one in enumerate(boxes):
        assert all(within(one, other) or within(other, one) or not overlap(one, other) for other in boxes[:number]), (
            "boxes are inside of each other or apart"
        )


def test_a_core_has_its_threads_and_a_node_its_cores() -> None:
    topology = machines.machine(2, 2, 2)
    root, threads = drawn(topology, {})
    cores = [corners(rect) for rect in root.iter(f"{SVG}rect") if rect.attrib["class"] == "core"]
    held = [{cpu for cpu, one in threads.items() if within(one.corners, core)} for core in cores]
    assert held == [{0, 1}, {2, 3}, {4, 5}, {6, 7}]
    texts = [text.text for text in root.iter(f"{SVG}text")]
    assert [text for text in texts if text and re.match("socket 0|NUMA", text)] == [
        "socket 0",
        "NUMA node 0, 1024 MiB",
        "NUMA node 1, 1024 MiB",
    ]


def test_places_have_their_colour_and_letter_and_a_difference_has_a_frame() -> None:
    topology = machines.machine(2, 2, 2, offline_present=frozenset({7}))
    declared = {
        0: Assignment("reserved"),
        1: Assignment("reserved"),
        2: Assignment("shared"),
        3: Assignment("exclusive", "lane"),
    }
    now = {**declared, 2: Assignment("exclusive", "other"), 4: Assignment("isolated")}
    del now[1]
    root, threads = drawn(topology, now, declared)
    assert {cpu for cpu, one in threads.items() if "differs" in one.classes} == {1, 2, 4}
    assert threads[0].title == "CPU 0: reserved"
    assert threads[1].title == "CPU 1: in no pool, declared reserved"
    assert threads[2].title == "CPU 2: exclusive, workload other, declared shared"
    assert threads[3] == threads[3]._replace(title="CPU 3: exclusive, workload lane", classes={"thread", "exclusive"})
    texts = [text.text for text in root.iter(f"{SVG}text")]
    assert texts[-5:] == [
        "I isolated 4   E exclusive 2-3   R reserved 0",
        "lane: 3",
        "other: 2",
        "offline: 7",
        "not as declared (framed): 1-2,4",
    ]


def test_a_name_is_text() -> None:
    topology = machines.machine(1, 1, 1)
    name = "<script>&\"'"
    dummy, threads = drawn(topology, {0: Assignment("exclusive", name)})
    assert threads[0].title == f"CPU 0: exclusive, workload {name}"


def test_nodes_that_hold_sockets_and_memory_alone_are_drawn() -> None:
    topology = machines.machine(2, 2, 1)
    whole = topology.numa[0]._replace(cpus=topology.online)
    alone = topology.numa[1]._replace(id=5, cpus=frozenset(), hugepages={2048: 16, 64: 3})
    root, threads = drawn(topology._replace(numa={0: whole, 5: alone}), {})
    assert set(threads) == topology.online
    texts = [text.text for text in root.iter(f"{SVG}text") if text.text and text.text.startswith("NUMA")]
    assert texts == ["NUMA node 0, 1024 MiB", "NUMA node 0, 1024 MiB", "NUMA node 5, 1024 MiB, 3 x 64 KiB, 16 x 2 MiB"]


def test_the_places_in_force_are_those_of_the_strictest_slice() -> None:
    slices = {
        "system.slice": Assignment("reserved"),
        "corral.slice": Assignment("shared"),
        "corral_isolated.slice": Assignment("isolated"),
        "corral_a.slice": Assignment("exclusive", "a"),
    }
    effective = {
        "system.slice": frozenset({0, 1}),
        "corral.slice": frozenset({0, 1, 2, 3}),
        "corral_isolated.slice": frozenset({3}),
        "corral_a.slice": frozenset({1, 3, 4}),
    }
    found = cpu_assignment.in_force(slices, effective)
    assert found == {
        0: Assignment("reserved"),
        1: Assignment("exclusive", "a"),
        2: Assignment("shared"),
        3: Assignment("isolated"),
        4: Assignment("exclusive", "a"),
    }
