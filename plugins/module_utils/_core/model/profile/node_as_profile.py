# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# This module is private to the collection corral.node.
"""What a node is now, as the parts of a profile that would declare just that."""

from __future__ import annotations

import re
import typing as t

from ..values import cpuset
from ..values.mount_options import bytes_of, number
from ..values.records import NamedTuple
from ..values.yaml_text import Off
from ..workload.grants import ISOLATED, is_exclusive
from . import schema
from .schema_types import CORRAL_SLICE, mode_text, page_text, size_text

# kernel/pid.c: at least 32768, and 1024 for each CPU that there may be (PIDS_PER_CPU_DEFAULT).
PID_MAX_LOW, PIDS_PER_CPU = 32768, 1024
# kernel/fork.c: threads' stacks take an eighth of the memory at most. Stacks are 16 KiB, or a page of 64 KiB.
STACKS_KIB = (16, 64)
MEMORY_SHARE = 8


class Slice(NamedTuple):
    """A top-level slice or scope, or one of Corral's own.

    ``cpus`` is what it is confined to now or when it starts (None: nothing confines it), ``tasks`` its TasksMax (None:
    no limit), ``populated`` whether it holds processes.
    """

    unit: str
    cpus: t.Optional[frozenset[int]]
    tasks: t.Optional[int]
    populated: bool


class Limit(NamedTuple):
    """A kernel limit: its value now, the one that a file gives at boot, and the defaults."""

    live: t.Optional[int]
    declared: t.Optional[int]
    usual: tuple[tuple[int, int], ...]  # spans

    @property
    def chosen(self) -> t.Optional[int]:
        """The value, when it was set; None when it is the kernel's or the distribution's own."""
        live = self.live
        if live is not None and self.declared is None and any(low <= live <= high for low, high in self.usual):
            return None
        return live


class Facts(NamedTuple):
    """What was read. ``pools`` are (KiB, NUMA node or None, pages), ``mounts`` (path, options of a hugetlbfs)."""

    online: frozenset[int]
    slices: tuple[Slice, ...]
    pools: tuple[tuple[int, t.Optional[int], int], ...]
    mounts: tuple[tuple[str, t.Mapping[str, str]], ...]
    pid_max: Limit
    threads_max: Limit
    default_tasks_max: t.Optional[int]


class ProfileFragment(NamedTuple):
    """One part of a profile: where it stands (an item of the list there when ``item``), its value, and its name."""

    path: tuple[str, ...]
    value: t.Any
    name: str
    item: bool = False


def usual_pid_max(possible_cpus: int, given: t.Optional[int]) -> tuple[tuple[int, int], ...]:
    """What kernel.pid_max is where it was not set; ``given`` is what the distribution's own files say."""
    kernel = min(max(PID_MAX_LOW, PIDS_PER_CPU * possible_cpus), schema.PID_MAX_HIGH)
    return ((kernel, kernel), *(() if given is None else ((given, given),)))


def usual_threads_max(memory_kib: t.Optional[int], given: t.Optional[int]) -> tuple[tuple[int, int], ...]:
    """What kernel.threads-max is where it was not set. The kernel counted the memory that was free early at boot."""
    spans = []
    for stack in STACKS_KIB if memory_kib else ():
        guess = (memory_kib or 0) // (stack * MEMORY_SHARE)
        spans.append((guess - guess // 4, guess + guess // 4))
    return (*spans, *(() if given is None else ((given, given),)))


def label(hostname: str) -> str:
    """A host's name as a profile's name (a DNS label)."""
    text = re.sub(r"[^a-z0-9-]+", "-", hostname.strip().partition(".")[0].lower())[:63].strip("-")
    return text or "node"


def atoms(facts: Facts) -> list[ProfileFragment]:
    """The parts of the profile that declares what is there."""
    found = [ProfileFragment(("cpu",), section, "the CPU pools") for section in (cpu_section(facts),) if section]
    for size, node, count in facts.pools:
        value = {"size": page_text(size), "count": count, **({} if node is None else {"node": node})}
        where = "" if node is None else f" of NUMA node {node}"
        found.append(
            ProfileFragment(("memory", "hugepages"), value, f"hugepages of {page_text(size)}{where}", item=True)
        )
    found += [
        ProfileFragment(("memory", "mounts"), mount_section(*row), f"the mount {row[0]}", item=True)
        for row in facts.mounts
    ]
    for name, limit in (
        ("pid_max", facts.pid_max.chosen),
        ("threads_max", facts.threads_max.chosen),
        ("default_tasks_max", facts.default_tasks_max),
    ):
        if limit is not None:
            found.append(ProfileFragment(("pids", name), limit, f"pids.{name}"))
    for row in facts.slices:
        # A scope has systemd's default where none was set; a slice has none.
        if row.tasks is not None and row.unit.endswith(".slice") and not is_exclusive(row.unit):
            found.append(ProfileFragment(("pids", "slices", row.unit), row.tasks, f"TasksMax of {row.unit}"))
    return found


def mount_section(path: str, options: t.Mapping[str, str]) -> dict[str, t.Any]:
    """A hugetlbfs mount as the profile declares it; the kernel leaves defaults out."""
    page = bytes_of(options.get("pagesize")) or 0
    data: dict[str, t.Any] = {"path": path, "pagesize": size_text(page)}
    for name in ("size", "min_size"):
        size = bytes_of(options.get(name))
        if size:
            data[name] = size_text(size)
    mode = number(options.get("mode", "755"), 8)
    data["mode"] = mode_text(0o755 if mode is None else mode)
    for name in ("uid", "gid"):
        owner = number(options.get(name, "0"))
        if owner:
            data[name] = owner
    return data


def cpu_section(facts: Facts) -> t.Optional[dict[str, t.Any]]:
    """The section ``cpu`` for slices that are confined already; None where none of housekeeping's is.

    On a node that Corral has in hand its own slices say what the pools are; elsewhere the CPUs that no slice may use
    are taken for isolated.
    """
    ours = {row.unit: row.cpus for row in facts.slices if row.unit in (CORRAL_SLICE, ISOLATED)}
    others = [row for row in facts.slices if row.unit not in ours and not is_exclusive(row.unit)]
    confined = {row.unit: row.cpus for row in others if row.cpus is not None and row.cpus < facts.online}
    home = next((confined[unit] for unit in schema.HOUSEKEEPING_SLICES if unit in confined), None)
    if home is None:
        return None
    managed = ours.get(CORRAL_SLICE) is not None
    housekeeping = [unit for unit in schema.HOUSEKEEPING_SLICES if not managed or confined.get(unit) == home]
    housekeeping += [unit for unit, cpus in confined.items() if cpus == home and unit not in housekeeping]
    nothing: frozenset[int] = frozenset()
    if managed:
        workloads, isolated = ours[CORRAL_SLICE] or nothing, ours.get(ISOLATED) or nothing
        # Where workloads may use the reserved CPUs as well, that can be all there are.
        shared = [row.unit for row in others if row.cpus == workloads and row.unit not in housekeeping]
    else:
        there = [row for row in others if row.unit not in housekeeping and (row.populated or row.unit in confined)]
        workloads = nothing.union(*(confined.get(row.unit, facts.online) or nothing for row in there))
        isolated = facts.online - home - workloads if workloads else nothing
        shared = list(dict.fromkeys([*schema.SHARED_SLICES, *(row.unit for row in there)]))
    section: dict[str, t.Any] = {"reserved": {"cpus": cpuset.format(home), "slices": housekeeping}}
    if isolated:
        section["isolated"] = {"cpus": cpuset.format(isolated)}
    section["shared"] = {"slices": shared}
    if home <= workloads:
        section["options"] = {"strict-cpu-reservation": False}
    return section


def profile_data(head: t.Mapping[str, t.Any], parts: t.Iterable[ProfileFragment]) -> dict[str, t.Any]:
    """The profile of these parts, as plain data."""
    return assembled(head, ((atom, atom.value) for atom in parts))


def profile_shown(
    head: t.Mapping[str, t.Any], parts: t.Sequence[ProfileFragment], left_out: t.Mapping[int, tuple[str, ...]]
) -> dict[str, t.Any]:
    """The profile of all parts, those left out (by index) as comments with the reasons why."""
    shown = (
        (atom, Off(atom.value, left_out[index]) if index in left_out else atom.value)
        for index, atom in enumerate(parts)
    )
    return {key: hoisted(value) for key, value in assembled(head, shown).items()}


def assembled(head: t.Mapping[str, t.Any], parts: t.Iterable[tuple[ProfileFragment, t.Any]]) -> dict[str, t.Any]:
    """Parts put where they stand."""
    data = dict(head)
    for atom, value in parts:
        place = data
        for key in atom.path[:-1]:
            place = place.setdefault(key, {})
        if atom.item:
            place.setdefault(atom.path[-1], []).append(value)
        else:
            place[atom.path[-1]] = value
    return data


def hoisted(value: t.Any) -> t.Any:
    """A section of which all is left out is left out as a whole."""
    if isinstance(value, dict):
        value = {key: hoisted(item) for key, item in value.items()}
        items = list(value.values())
        plain: t.Any = {key: item.value for key, item in value.items() if isinstance(item, Off)}
    elif isinstance(value, list):
        items, plain = value, [item.value for item in value if isinstance(item, Off)]
    else:
        return value
    if not items or not all(isinstance(item, Off) for item in items):
        return value
    return Off(plain, tuple(line for item in items for line in item.why))
