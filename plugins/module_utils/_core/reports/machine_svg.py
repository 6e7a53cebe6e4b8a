# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# This module is private to the collection corral.node.
"""The machine as a drawing (SVG 1.1): sockets, NUMA nodes, caches, cores and threads, each thread in the colour of its pool.

The drawing loads no other file. Pools have letters beside their colours, and each thread has a title for a screen reader.
"""

from __future__ import annotations

import html
import typing as t

from ..model.cpu.cpu_assignment import KINDS, Assignment
from ..model.topology.topology import Topology
from ..model.values import cpuset
from ..model.values.records import NamedTuple
from .cpu_map import LETTERS

THREAD, GAP, HEAD = 30, 6, 18  # pixels: the side of a thread, the gap between boxes, the height of a box's title
PER_ROW = 8  # cores in a row of a cache's box
MOST_WIDE = 1100
# White text on each colour of a thread has a contrast of at least 4.5 (WCAG 2.2, 1.4.3).
STYLE = """\
.machine { font: 11px ui-monospace, monospace; }
.machine .box { fill: none; stroke: #8888; } .machine .core { fill: #8882; stroke: none; }
.machine .title { fill: currentColor; } .machine .thread { fill: #5f6570; } .machine .letter { fill: #fff; text-anchor: middle; }
.machine .reserved { fill: #2f6fb5; } .machine .shared { fill: #27803f; } .machine .isolated { fill: #8a3fa0; }
.machine .exclusive { fill: #b3402e; } .machine .differs { stroke: #e8a000; stroke-width: 3; }
"""


class Box(NamedTuple):
    """A part of the drawing: its size in pixels, and a function that draws the part at a position (x, y)."""

    width: int
    height: int
    draw: t.Callable[[int, int], list[str]]


def drawing(
    topology: Topology,
    assignments: t.Mapping[int, Assignment],
    declared: t.Optional[t.Mapping[int, Assignment]] = None,
    *,
    title: str = "CPUs of the machine",
) -> str:
    """The SVG text. A thread whose assignment differs from the declared assignment has a frame, and both assignments in its title.

    Without assignments the drawing shows only the machine.
    """
    wanted = assignments if declared is None else declared

    def thread(cpu: int) -> Box:
        assignment = assignments.get(cpu)
        said = f"CPU {cpu}: {named(assignment)}" if assignments else f"CPU {cpu}"
        differs = assignment != wanted.get(cpu)
        if differs:
            said += f", declared {named(wanted.get(cpu))}"
        classes = " ".join(["thread", *([assignment.pool] if assignment else []), *(["differs"] if differs else [])])
        letter = LETTERS[assignment.pool] if assignment else ""

        def draw(x: int, y: int) -> list[str]:
            middle = x + THREAD // 2
            return [
                f"<g><title>{html.escape(said)}</title>",
                f'<rect class="{classes}" x="{x + 1}" y="{y + 1}" width="{THREAD - 2}" height="{THREAD - 2}" rx="3"/>',
                f'<text class="letter" x="{middle}" y="{y + 13}">{letter}</text>',
                f'<text class="letter" x="{middle}" y="{y + 25}">{cpu}</text></g>',
            ]

        return Box(THREAD, THREAD, draw)

    whole = machine(topology, thread)
    legend = legend_lines(topology, assignments, wanted)
    height = whole.height + HEAD * len(legend) + 2 * GAP
    width = max([whole.width, *(8 * len(line) for line in legend)]) + 2 * GAP
    rows = [
        f'<svg xmlns="http://www.w3.org/2000/svg" class="machine" role="img" viewBox="0 0 {width} {height}" width="{width}" height="{height}">',
        f"<title>{html.escape(title)}</title>",
        f"<style>{STYLE}</style>",
        *whole.draw(GAP, GAP),
        *(
            f'<text class="title" x="{GAP}" y="{whole.height + GAP + HEAD * number}">{html.escape(line)}</text>'
            for number, line in enumerate(legend, 1)
        ),
        "</svg>",
    ]
    return "\n".join(rows) + "\n"


def named(assignment: t.Optional[Assignment]) -> str:
    """The text of an assignment."""
    if assignment is None:
        return "in no pool"
    return f"{assignment.pool}, workload {assignment.owner}" if assignment.owner else assignment.pool


def legend_lines(
    topology: Topology, assignments: t.Mapping[int, Assignment], wanted: t.Mapping[int, Assignment]
) -> list[str]:
    """The lines of the legend: letters and their pools, the workloads with exclusive CPUs, and the CPUs that differ."""
    by_pool = {
        kind: frozenset(cpu for cpu, assignment in assignments.items() if assignment.pool == kind) & topology.online
        for kind in KINDS
    }
    found = ["   ".join(f"{LETTERS[kind]} {kind} {cpuset.format(cpus)}" for kind, cpus in by_pool.items() if cpus)]
    owners = sorted({assignment.owner for assignment in assignments.values() if assignment.owner})
    for owner in owners:
        own = frozenset(cpu for cpu, assignment in assignments.items() if assignment.owner == owner)
        found.append(f"{owner}: {cpuset.format(own)}")
    if topology.offline_present:
        found.append(f"offline: {cpuset.format(topology.offline_present)}")
    differs = frozenset(cpu for cpu in topology.online if assignments.get(cpu) != wanted.get(cpu))
    if differs:
        found.append(f"not as declared (framed): {cpuset.format(differs)}")
    return [line for line in found if line]


def machine(topology: Topology, thread: t.Callable[[int], Box]) -> Box:
    """The box of a machine, with boxes for its sockets, NUMA nodes, L3 caches, cores and threads. An unknown L3 cache has no box."""

    def core(cpus: frozenset[int]) -> Box:
        return framed("", beside([thread(cpu) for cpu in sorted(cpus)], 0), "core", 0)

    def cores_in(cpus: frozenset[int]) -> Box:
        known = [one & cpus for one in topology.cores if one & cpus]
        rest = cpus.difference(*known)
        return beside([core(one) for one in (*known, *(frozenset({cpu}) for cpu in sorted(rest)))], GAP, PER_ROW)

    def caches_in(cpus: frozenset[int]) -> Box:
        parts = [one & cpus for one in topology.l3 if one & cpus]
        rest = cpus.difference(*parts)
        boxes = [framed(f"L3, {cpuset.format(one)}", cores_in(one)) for one in parts]
        return beside([*boxes, *([cores_in(rest)] if rest or not parts else [])], GAP, 0)

    def nodes_in(cpus: frozenset[int]) -> Box:
        boxes = []
        for node, own in sorted(topology.node_cpus().items()):
            if own & cpus:
                boxes.append(framed(node_title(topology, node), caches_in(own & cpus)))
        return beside(boxes, GAP, 0)

    boxes = [framed(f"socket {name}", nodes_in(cpus & topology.online)) for name, cpus in sockets(topology)]
    empty = [node.id for node in topology.numa.values() if not node.cpus]
    return beside(
        [*boxes, *(framed(node_title(topology, node), Box(THREAD, 0, lambda x, y: [])) for node in empty)], GAP, 0
    )


def sockets(topology: Topology) -> list[tuple[str, frozenset[int]]]:
    """The sockets with online CPUs. Online CPUs whose socket is not known are in a socket named "unknown"."""
    found = [(name, cpus) for name, cpus in topology.sockets.items() if cpus & topology.online]
    rest = topology.online.difference(*(cpus for dummy, cpus in found))
    return [*found, *([("unknown", rest)] if rest else [])]


def node_title(topology: Topology, number: int) -> str:
    """The title of a NUMA node, with its memory and hugepages."""
    node = topology.numa.get(number)
    if node is None:
        return f"NUMA node {number}"
    memory = "" if node.memory_kib is None else f", {node.memory_kib // 1024} MiB"
    pages = "".join(
        f", {count} x {size // 1024 or size} {'MiB' if size >= 1024 else 'KiB'}"
        for size, count in sorted(node.hugepages.items())
        if count
    )
    return f"NUMA node {number}{memory}{pages}"


def framed(title: str, inner: Box, kind: str = "box", pad: int = GAP) -> Box:
    """A box with a frame, and a title above its content."""
    head = HEAD if title else 0
    width = max(inner.width, 7 * len(title)) + 2 * pad
    height = inner.height + head + 2 * pad

    def draw(x: int, y: int) -> list[str]:
        frame = f'<rect class="{kind}" x="{x}" y="{y}" width="{width}" height="{height}" rx="4"/>'
        said = [f'<text class="title" x="{x + pad}" y="{y + HEAD - 4}">{html.escape(title)}</text>'] if title else []
        return [frame, *said, *inner.draw(x + pad, y + head + pad)]

    return Box(width, height, draw)


def beside(boxes: t.Sequence[Box], gap: int, per_row: t.Optional[int] = None) -> Box:
    """A box that has ``boxes`` in rows. ``per_row`` is the number of boxes in a row (0: as many as fit, None: all)."""
    placed: list[tuple[int, int, Box]] = []
    x = y = high = width = count = 0
    for box in boxes:
        full = per_row is not None and (count == per_row if per_row else x + box.width > MOST_WIDE)
        if count and full:
            x, y, high, count = 0, y + high + gap, 0, 0
        placed.append((x, y, box))
        width, high = max(width, x + box.width), max(high, box.height)
        x, count = x + box.width + gap, count + 1
    height = y + high

    def draw(left: int, top: int) -> list[str]:
        return [line for dx, dy, box in placed for line in box.draw(left + dx, top + dy)]

    return Box(width, height, draw)
