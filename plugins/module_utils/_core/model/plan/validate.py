# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# This module is private to the collection corral.node.
"""The separate validator, which checks only the finished steps and refuses the plan as a whole.

The validator shares no decision with the managers, and so finds their faults. Its input says where each manager may write.
"""

from __future__ import annotations

import re
import typing as t

from ..topology.topology import Topology
from ..values.errors import Problem
from .places import Place, covering
from .plan import Change, Step, unit_of_cpus_file

BY_UNIT = ("property", "unit", "mount", "health")
UNIT = re.compile(r"[A-Za-z0-9:_.\\@-]{1,255}\.(slice|scope|service|timer|path|mount)")
CONTROL = re.compile(r"[\x00-\x1f\x7f]")  # No path or unit of Corral has a newline or another control character.
POOL = re.compile(r".*/(?:node(\d+)|mm)/hugepages/hugepages-(\d+)kB/nr_hugepages")


def problems(
    changes: t.Iterable[Change], topology: t.Optional[Topology], writes: t.Mapping[str, t.Sequence[Place]]
) -> list[Problem]:
    """Every reason not to make these changes on this machine, except overlaps of CPUs (replay.py and replay_v1.py).

    ``writes``: by manager, the places that the manager may write.
    """
    steps = [(change.manager, step) for change in changes for step in change.steps]
    misplaced = [problem for name, step in steps for problem in place_problems(name, step, writes.get(name, ()))]
    return misplaced + (pool_problems([step for dummy, step in steps], topology) if topology is not None else [])


def place_problems(manager: str, step: Step, places: t.Sequence[Place]) -> list[Problem]:
    """The problem of a step outside of its manager's places, or of a step that no manager may plan; an empty list without a problem."""
    if is_sound(step) and (step.kind == "folder" or covering(places, step) is not None):
        return []
    message = f"the manager {manager} must not write here ({step.kind}); report this as a fault of Corral"
    return [Problem(step.target, step.text, message)]


def is_sound(step: Step) -> bool:
    """Whether a manager may plan such a step at all: the path has no "..", and a unit's name cannot be mistaken for an option."""
    if CONTROL.search(step.target):
        return False
    if step.kind in BY_UNIT:
        return UNIT.fullmatch(step.target) is not None and not step.target.startswith("-")
    holds = step.kind != "cpuset" or step.name in ("", step.target.rpartition("/")[2])
    # A folder may be anywhere, for example a mount's folder: only an empty folder can be removed.
    return holds and step.target.startswith("/") and ".." not in step.target.split("/")


def moves_cpus(step: Step) -> bool:
    """Whether a step changes the CPUs of processes. Systemd's own file for AllowedCPUs= changes CPUs when systemd reads the file."""
    return step.kind in ("partition", "cpuset") or step.name == "AllowedCPUs" or bool(unit_of_cpus_file(step.target))


def pool_problems(steps: t.Sequence[Step], topology: Topology) -> list[Problem]:
    """The problems of hugepage pools that together request more than their NUMA node's memory."""
    asked: dict[t.Optional[int], int] = {}
    for step in steps:
        match = POOL.fullmatch(step.target) if step.kind == "pool" else None
        if match:
            node = int(match.group(1)) if match.group(1) else None
            asked[node] = asked.get(node, 0) + int(step.value or 0) * int(match.group(2))
    over = []
    for node, kib in asked.items():
        if node is not None and node not in topology.numa:
            over.append(Problem("memory.hugepages", f"{kib} KiB", f"this machine has no NUMA node {node}"))
            continue
        memory = topology.machine_memory_kib if node is None else topology.numa[node].memory_kib
        if memory is not None and kib > memory:
            where = "this machine" if node is None else f"NUMA node {node}"
            over.append(Problem("memory.hugepages", f"{kib} KiB", f"{where} has {memory} KiB: declare fewer pages"))
    return over
