# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# This module is private to the collection corral.node.
"""What people and programs are shown: plans, drift, pools, the CPU map, and the files published in /run/corral."""

from __future__ import annotations

import json
import typing as t

from .host import cgroup, hugepages, lock, state
from .host.files import Host
from .managers import cpu as cpu_manager
from .model import cpuset, partitions, pools
from .model.context import Context
from .model.plan import DRIFT, UNCHANGEABLE, UNKNOWN, Change, change_to_dict
from .model.pools import Pools
from .model.schema_types import page_text
from .model.topology import Topology
from .reconcile import ALL_MANAGERS, Outcome

CORES_PER_LINE = 16
LETTERS = {"reserved": "R", "shared": "S", "isolated": "I", "exclusive": "E", "offline": "."}
# What is taken from the status that was published before.
ITEM = {
    **dict.fromkeys(("manager", "subject", "property", "verdict", "reason"), str),
    **dict.fromkeys(("actual", "wanted"), (str, None)),
    "since": int,
}
PAUSED = {"since": int, "until": int, "by": str, "reason": str}
CHANGED = {"time": int, "changes": list}
BUILT_UPON = {
    "time": int,
    "items": [ITEM],
    "totals": {"changes": int, "errors": int},
    "paused": (PAUSED, None),
    "last_changed": (CHANGED, None),
    "last_in_sync": (int, None),
}
LARGEST = 2**40  # of its numbers; what is larger is no time
COLOURS = {"R": "44", "S": "42", "I": "45", "E": "41", ".": "100"}


# Changes


def line(change: Change) -> str:
    """One change or drift item on one line."""
    mark = {"unknown": "?", "unchangeable": "!"}.get(change.verdict, "~")
    actual = "absent" if change.actual is None else change.actual
    wanted = "absent" if change.wanted is None else change.wanted
    values = "" if change.verdict == UNKNOWN else f": {shorten(actual)} -> {shorten(wanted)}"
    extra = "" if change.when == "now" else f" [{change.when}]"
    extra += "" if change.disruption == "none" else f" [{change.disruption}]"
    place = f" [{change.place}]" if change.place and change.place not in change.subject else ""
    return f"{mark} {change.manager} {change.subject} {change.property}{values} ({change.reason}){extra}{place}"


def shorten(text: str, limit: int = 100) -> str:
    """A value that fits on a line."""
    return text if len(text) <= limit else text[: limit - 1] + "…"


def recap(changes: t.Sequence[Change], *, done: bool) -> str:
    """One line that counts a plan: what was or would be changed, and what could not be looked at."""
    differing = [change for change in changes if change.verdict != UNKNOWN]
    unknown = len(changes) - len(differing)
    if not changes:
        return "in sync: nothing differs"
    managers = sorted({change.manager for change in differing})
    verb = "changed" if done else "differ" if len(differing) != 1 else "differs"
    parts = [f"{len(differing)} {verb} ({', '.join(managers)})"] if differing else []
    stuck = sum(change.verdict == "unchangeable" for change in differing)
    parts += [f"{stuck} of them Corral cannot mend"] if stuck else []
    parts += [f"{unknown} unknown"] if unknown else []
    return "; ".join(parts)


def lines(changes: t.Sequence[Change], *, done: bool = False) -> list[str]:
    """A plan or drift report as a person reads it."""
    return [*(line(change) for change in changes), recap(changes, done=done)]


def outcome_data(outcome: Outcome) -> dict[str, t.Any]:
    """An outcome as JSON."""
    return {
        "changed": [change_to_dict(change) for change in outcome.applied],
        "drift": [change_to_dict(change) for change in outcome.remaining],
        "error": outcome.error or None,
        "undone": list(outcome.undone),
        "leftovers": list(outcome.leftovers),
    }


def outcome_lines(outcome: Outcome) -> list[str]:
    """An outcome as a person reads it."""
    shown = lines(outcome.applied, done=True) if outcome.applied or not outcome.remaining else []
    if outcome.remaining:
        shown += ["what still differs:", *lines(outcome.remaining)]
    if outcome.error:
        shown += [f"refused: {outcome.error}", f"undone: {len(outcome.undone)} steps, in reverse order"]
    return shown + [f"could not be brought back: {leftover}" for leftover in outcome.leftovers]


def diff(changes: t.Sequence[Change]) -> dict[str, str]:
    """Ansible's diff: the same lines before and after, one per property that differs."""

    def side(change: Change, value: t.Optional[str]) -> str:
        return f"{change.manager} {change.subject} {change.property}: {'absent' if value is None else value}\n"

    shown = [change for change in changes if change.verdict != UNKNOWN]
    return {
        "before_header": "the node as it is",
        "after_header": "the node as declared",
        "before": "".join(side(change, change.actual) for change in shown),
        "after": "".join(side(change, change.wanted) for change in shown),
    }


# Pools and topology


def pool_lines(computed: Pools) -> list[str]:
    """The pools as a table, whole machine first, then each NUMA node."""
    names = pools.shown(computed)
    table = [("", *names), ("all", *(cpuset.format(getattr(computed, name)) or "-" for name in names))]
    for node, part in sorted(computed.per_numa.items()):
        table.append((f"node {node}", *(cpuset.format(part[name]) or "-" for name in names)))
    return aligned(table) + list(computed.notes)


def aligned(table: t.Sequence[t.Sequence[str]]) -> list[str]:
    """Rows with their columns one under the other."""
    widths = [max(len(row[column]) for row in table) for column in range(len(table[0]))]
    return ["  ".join(cell.ljust(width) for cell, width in zip(row, widths)).rstrip() for row in table]


def cpu_map(topology: Topology, computed: Pools, *, colour: bool = False) -> list[str]:
    """The machine as a picture: a row per NUMA node, a block per core, a letter per thread."""

    def letter(cpu: int) -> str:
        for name in ("isolated", "exclusive", "reserved", "shared"):
            if cpu in getattr(computed, name):
                return LETTERS[name]
        return LETTERS["offline"]

    def block(core: frozenset[int]) -> str:
        text = "".join(letter(cpu) for cpu in sorted(core))
        if not colour:
            return text
        return "".join(f"\033[{COLOURS[char]};97m{char}\033[0m" for char in text)

    nodes = {node.id: node.cpus for node in topology.numa.values()} or {0: topology.online}
    rows = []
    for node, cpus in sorted(nodes.items()):
        cores = [core & cpus for core in topology.cores if core & cpus]
        for start in range(0, len(cores), CORES_PER_LINE):
            part = cores[start : start + CORES_PER_LINE]
            name = f"node {node}" if start == 0 else ""
            held = frozenset(cpu for core in part for cpu in core)
            rows.append(f"{name:<8} {' '.join(block(core) for core in part)}   CPUs {cpuset.format(held)}")
        if not cores:
            rows.append(f"node {node:<3} (no CPUs)")
    offline = f"   . offline {cpuset.format(topology.offline_present)}" if topology.offline_present else ""
    legend = "   ".join(
        f"{LETTERS[name]} {name} {cpuset.format(getattr(computed, name)) or '-'}" for name in pools.shown(computed)
    )
    return [*rows, legend + offline]


def topology_lines(topology: Topology) -> list[str]:
    """A machine on a few lines."""
    per_core = "/".join(str(count) for count in sorted({len(core) for core in topology.cores})) or "?"
    parts = f"sockets   {len(topology.sockets)}   cores {len(topology.cores)}   threads per core {per_core}"
    rows = [
        f"CPUs      {cpuset.format(topology.online)} online"
        + (f", {cpuset.format(topology.offline_present)} offline" if topology.offline_present else "")
        + (f", {cpuset.format(topology.isolated)} isolated by the kernel" if topology.isolated else ""),
        f"{parts}   L3 caches {len(topology.l3)}",
    ]
    for node in topology.numa.values():
        memory = "memory unknown" if node.memory_kib is None else f"{node.memory_kib // 1024} MiB"
        pages = ", ".join(f"{count} x {size} KiB" for size, count in sorted(node.hugepages.items()))
        rows.append(f"node {node.id:<4} CPUs {cpuset.format(node.cpus) or '-'}   {memory}   hugepages {pages or '-'}")
    if topology.distances and topology.distance_nodes:
        for node_id, row in zip(topology.distance_nodes, topology.distances):
            rows.append(f"distance  from node {node_id}: {' '.join(map(str, row))}")
    rows += [f"device    {address} node {pci.numa_node}" for address, pci in topology.pci.items() if pci.numa_node >= 0]
    rows += [f"network   {name} at {address}" for name, address in topology.net.items() if address]
    return rows + [f"note      {note}" for note in topology.notes]


# Published files


def last_status(host: Host) -> dict[str, t.Any]:
    """The status that was published last; empty where there is none, or where it is not as Corral writes it."""
    told = state.read_json(host, state.STATUS)
    return t.cast("dict[str, t.Any]", told) if built_as(told, BUILT_UPON) else {}


def built_as(value: t.Any, shape: t.Any) -> bool:
    """Whether JSON data has these keys with values of these shapes: types, [items], {keys}, (one, or another), None."""
    if isinstance(shape, dict):
        return isinstance(value, dict) and all(built_as(value.get(key), inner) for key, inner in shape.items())
    if isinstance(shape, list):
        return isinstance(value, list) and all(built_as(item, shape[0]) for item in value)
    if isinstance(shape, tuple):
        return any(built_as(value, one) for one in shape)
    if shape is int:
        return isinstance(value, int) and 0 <= value < LARGEST
    return value is None if shape is None else isinstance(value, shape)


def status(
    host: Host,
    context: t.Optional[Context],
    outcome: Outcome,
    previous: dict[str, t.Any],
    *,
    error: str = "",
    paused: t.Optional[dict[str, t.Any]] = None,
    logged: bool = True,
) -> dict[str, t.Any]:
    """What /run/corral/status.json holds. ``since`` of an item is kept for as long as the item stays.

    ``logged``: the journal gets a line for each new item (a tick); else the items that it has not are marked so.

    What has no context could not be looked at: there are no counts then, rather than counts of nothing.
    """
    before = previous.get("items", [])
    known = {(item["manager"], item["subject"], item["property"]): item for item in before}
    now = int(host.now())
    said = error or outcome.error
    items = [
        dict(
            change_to_dict(change),
            since=known.get(change.item(), {}).get("since") or now,
            maintenance=paused is not None,
            logged=logged or known.get(change.item(), {}).get("logged", False),
        )
        for change in outcome.remaining
    ]
    totals = previous.get("totals", {})
    last = {"time": now, "changes": [change_to_dict(change) for change in outcome.applied]}
    return {
        "name": context.profile.name if context else None,
        "mode": context.profile.mode if context else None,
        "time": now,
        "in_sync": not items and not said,
        "error": said or None,
        "paused": paused,
        "items": items,
        "counts": counts(outcome.remaining) if context else None,
        "totals": {
            "changes": totals.get("changes", 0) + len(outcome.applied),
            "errors": totals.get("errors", 0) + bool(said),
        },
        "last_changed": last if outcome.applied else previous.get("last_changed"),
        # null while it is: it is now.
        "last_in_sync": None
        if not (items or said)
        else previous.get("time" if previous.get("in_sync") else "last_in_sync"),
        "pools": pools.to_dict(context.pools) if context else None,
        "hugepages": hugepage_rows(host, context) if context else None,
        "exclusive": enforcement(host, context, outcome.remaining) if context else None,
        **workload_status(context),
    }


def enforcement(host: Host, context: Context, remaining: t.Sequence[Change]) -> t.Optional[str]:
    """Who keeps everybody else off isolated and exclusive CPUs; None where there are none.

    The kernel, else why not: what is left then is that the slices which the profile knows are kept off them.
    """
    cpu = context.profile.cpu
    if cpu is None or not (context.pools.isolated or context.pools.exclusive):
        return None
    if not cgroup.unified(host):
        return "not enforced by the kernel: cgroup v1 has no partitions"
    if cpu.partitions == "off":
        return "not enforced by the kernel: cpu.partitions is off"
    lacking = {one.subject: one.reason for one in remaining if one.property == partitions.PROPERTY}
    lacking.update(cpu_manager.refused_for_boot(host, context))
    return "enforced by the kernel" + "".join(f", but not {unit}: {reason}" for unit, reason in lacking.items())


def workload_status(context: t.Optional[Context]) -> dict[str, t.Any]:
    """Who has what, and how far the node is given out; null on a node without workloads."""
    if context is None or context.workloads is None:
        return {"workloads": None, "budget": None}
    from . import workload_report

    return {
        "workloads": [workload_report.brief(row) for row in workload_report.rows(context.workloads)],
        "budget": workload_report.budget(context),
    }


def counts(changes: t.Sequence[Change]) -> dict[str, dict[str, int]]:
    """How many items each manager has of each verdict; zeros are said, too."""
    found = {manager: dict.fromkeys((DRIFT, UNCHANGEABLE, UNKNOWN), 0) for manager in ALL_MANAGERS}
    for change in changes:
        found[change.manager][change.verdict] += 1
    return found


def hugepage_rows(host: Host, context: Context) -> list[dict[str, t.Any]]:
    """The declared pools of hugepages: size, NUMA node (null: the machine's), pages wanted and pages there."""
    return [
        {
            "size": page_text(row.size_kib),
            "node": row.node,
            "wanted": row.pages,
            "actual": hugepages.pool(host, row.size_kib, row.node),
        }
        for row in context.profile.memory.hugepages
    ]


def publish(host: Host, told: dict[str, t.Any], context: t.Optional[Context]) -> bool:
    """Write status.json, and the pools' files when they changed. Returns whether they did."""
    lock.own_folder(host, state.RUN, 0o755)
    host.write_file(state.STATUS, json.dumps(told, sort_keys=True) + "\n")
    return False if context is None else publish_pools(host, context)


def publish_pools(host: Host, context: Context) -> bool:
    """Write the pools' files when they changed. Returns whether they did."""
    lock.own_folder(host, state.RUN, 0o755)
    shown, changed = pools.to_dict(context.pools), False
    for path, text in (
        (state.PUBLISHED[1], json.dumps(shown, sort_keys=True) + "\n"),
        (state.PUBLISHED[2], pools.to_env(context.pools)),
    ):
        if host.read(path) != text:
            host.write_file(path, text)
            changed = True
    return changed
