# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# This module is private to the collection corral.node.
"""The separate validator: it looks at the finished steps alone and refuses the plan as a whole.

It shares no decision with the managers, so that a fault there cannot hide here.
"""

from __future__ import annotations

import re
import typing as t

from ..topology.topology import Topology
from ..values.errors import Problem
from .plan import Step

# Where Corral writes, and nowhere else, whatever a profile or a unit's name says.
PLACES = (
    r"/etc/systemd/system(\.conf\.d)?/([^/]+\.(d|wants)/)?[^/]+",
    r"/(etc|run)/systemd/system\.control/[^/]+\.d/50-(Allowed(CPUs|MemoryNodes)|TasksMax|CPU(Weight|Quota)|Memory(Swap)?Max)\.conf",
    r"/var/lib/corral/checkpoint\.json(\.previous|\.damaged)?",
    r"/var/lib/corral/admitted\.json(\.previous)?",
    r"/proc/[0-9]+/oom_score_adj",
    r"/sys/fs/cgroup/(corral\.slice/corral-|corral_)[^/]+\.slice/hugetlb\.[0-9]+[KMGT]B\.max",
    r"/etc/sysctl\.d/90-corral\.conf",
    r"/etc/corral/[^/]+",
    r"/usr/libexec/corral(/.*)?",
    r"/usr/local/bin/corral",
    r"/proc/sys/kernel/(pid_max|threads-max)",
    r"/sys/devices/system/node/node\d+/hugepages/hugepages-\d+kB/nr_hugepages",
    r"/sys/kernel/mm/hugepages/hugepages-\d+kB/nr_hugepages",
)
PLACE = re.compile("|".join(f"(?:{place})" for place in PLACES))
CPUSET = re.compile(r"/sys/fs/cgroup/cpuset/(?:init\.scope|[^/]+\.slice)")
# A plan never writes metrics, or what passes of garbage collection tell; it may remove them, metrics wherever a node has
# chosen to have them.
TOLD = re.compile(
    r"(/[A-Za-z0-9_+-][A-Za-z0-9._+-]*)+/corral(-gc)?\.prom|/run/corral/gc(-drift)?\.json|/var/lib/corral/gc\.json(\.previous)?"
)
CONTROL = re.compile(r"/sys/fs/cgroup(/corral\.slice)?/cgroup\.subtree_control")
PARTITION = re.compile(r"/sys/fs/cgroup/corral_[^/]+\.slice/cpuset\.cpus\.partition")
KINDS = ("member", "root", "isolated")
CONTROLLERS = ("+hugetlb", "-hugetlb")
UNIT = re.compile(r"[A-Za-z0-9:_.\\@-]{1,255}\.(slice|scope|service|timer|path|mount)")
POOL = re.compile(r".*/(?:node(\d+)|mm)/hugepages/hugepages-(\d+)kB/nr_hugepages")


def problems(steps: t.Sequence[Step], topology: t.Optional[Topology]) -> list[Problem]:
    """Every reason not to run these steps on this machine, but for overlaps of CPUs: replay.py and replay_v1.py have those."""
    found = [problem for step in steps for problem in place_problems(step)]
    return found + (pool_problems(steps, topology) if topology is not None else [])


def place_problems(step: Step) -> list[Problem]:
    """A step that writes outside Corral's own places, or names no unit."""
    if step.kind == "folder":
        # Only an empty folder can go, and a mount's may be anywhere.
        allowed = step.target.startswith("/") and ".." not in step.target.split("/")
    elif step.kind == "file" and step.value is None and TOLD.fullmatch(step.target):
        allowed = True
    elif step.kind in ("file", "link", "value", "pool", "compile"):
        allowed = PLACE.fullmatch(step.target) is not None and ".." not in step.target.split("/")
    elif step.kind == "partition":
        allowed = PARTITION.fullmatch(step.target) is not None and step.value in KINDS
    elif step.kind == "controller":
        allowed = CONTROL.fullmatch(step.target) is not None and step.value in CONTROLLERS
    elif step.kind == "cpuset":
        holds = step.where in ("", step.target.rpartition("/")[2])
        allowed = holds and CPUSET.fullmatch(step.target) is not None and ".." not in step.target
    elif step.target:
        allowed = UNIT.fullmatch(step.target) is not None and not step.target.startswith("-")
    else:
        allowed = step.value == "daemon-reload"
    if allowed:
        return []
    return [
        Problem(step.target, step.value, f"a plan must not write here ({step.kind}); report this as a fault of Corral")
    ]


def moves_cpus(step: Step) -> bool:
    """Whether a step changes which CPUs processes run on."""
    return step.kind in ("partition", "cpuset") or (step.value or "").startswith("AllowedCPUs=")


def pool_problems(steps: t.Sequence[Step], topology: Topology) -> list[Problem]:
    """Pools that together ask for more than their node's memory."""
    asked: dict[t.Optional[int], int] = {}
    for step in steps:
        match = POOL.fullmatch(step.target) if step.kind == "pool" else None
        if match:
            node = int(match.group(1)) if match.group(1) else None
            asked[node] = asked.get(node, 0) + int(step.value or 0) * int(match.group(2))
    found = []
    for node, kib in asked.items():
        if node is not None and node not in topology.numa:
            found.append(Problem("memory.hugepages", f"{kib} KiB", f"this machine has no NUMA node {node}"))
            continue
        memory = topology.machine_memory_kib if node is None else topology.numa[node].memory_kib
        if memory is not None and kib > memory:
            where = "this machine" if node is None else f"NUMA node {node}"
            found.append(Problem("memory.hugepages", f"{kib} KiB", f"{where} has {memory} KiB: declare fewer pages"))
    return found
