# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# This module is private to the collection corral.node.
"""The profile that describes a node as it is: what would be drift is left out, and said why."""

from __future__ import annotations

import typing as t

from ..host import cgroup, hugepage_files, mounts, state, sysctl, systemd
from ..host.discovery import sysfs
from ..host.files import Host
from ..managers import cpu
from ..model.plan.plan import Change
from ..model.profile import node_as_profile, profile
from ..model.profile.node_as_profile import Facts, Limit, ProfileFragment, Slice
from ..model.profile.schema_types import CORRAL_SLICE, is_own
from ..model.systemd import unit_property
from ..model.topology.topology import Topology
from ..model.values import cpuset, yaml_text
from ..model.values.errors import CorralError
from ..model.values.records import NamedTuple
from ..model.workload import grants
from ..model.workload.task_budget import PID_MAX, THREADS_MAX
from ..pipeline import declared_profile, planning
from ..reports import change_text

LINES = 6  # of what the plan would do for one part
DISTRIBUTION = "/usr/lib/sysctl.d"
CHECKED = (
    "The node as it is, by corral profile --from-node. When it was written nothing on the node differed from it:",
    "corral drift --profile FILE looks again. What follows a # without a blank is a part that can be adopted.",
)


class Described(NamedTuple):
    """``data`` is the profile, ``text`` the same as YAML with what was left out as comments, ``notes`` say why."""

    data: dict[str, t.Any]
    text: str
    notes: tuple[str, ...]


def describe(host: Host, name: t.Optional[str] = None) -> Described:
    """The profile of the node as it is. Raises CorralError for a name that is none."""
    topology = sysfs.discover(host, with_devices=False)
    head = {"name": name or node_as_profile.label(host.read("/proc/sys/kernel/hostname") or ""), "mode": mode_of(host)}
    found = node_as_profile.atoms(read(host, topology))
    kept: list[ProfileFragment] = []
    left_out: dict[int, tuple[str, ...]] = {}
    left = planned(host, topology, head)
    for index, atom in enumerate(found):
        try:
            changes = planned(host, topology, node_as_profile.profile_data(head, [*kept, atom]))
        except CorralError as error:
            left_out[index] = (
                f"Left out: {atom.name}, which a profile cannot declare here:",
                *bullets(error_lines(error)),
            )
            continue
        if len(changes) > len(left):
            known = {change.item() for change in left}
            new = [change for change in changes if change.item() not in known]
            more = [
                change_text.in_words(change) for change in sorted(new, key=lambda change: change.property == "content")
            ]
            left_out[index] = (f"Left out: {atom.name}. Uncomment to adopt; Corral would then change:", *bullets(more))
            continue
        kept.append(atom)
        left = changes
    notes = [*remarks(host, [change_text.in_words(change) for change in left])]
    top = ("The node as it is, by corral profile --from-node.",) if left else CHECKED
    text = "".join(f"# {line}\n" for line in (*top, *notes))
    text += yaml_text.text(node_as_profile.profile_shown(head, found, left_out))
    said = [f"{why[0]} {'; '.join(line[2:] for line in why[1:])}" for why in left_out.values()]
    return Described(node_as_profile.profile_data(head, kept), text, (*said, *notes))


def planned(host: Host, topology: Topology, data: dict[str, t.Any]) -> tuple[Change, ...]:
    """What a profile would change here. Raises CorralError when it is no profile or does not fit."""
    context = planning.compile_profile(host, profile.parse(data), topology=topology)
    return planning.plan_profile(host, context).changes


def mode_of(host: Host) -> str:
    """The mode of the declared profile; a first one only reports."""
    try:
        declared = declared_profile.read_declared(host)
    except CorralError:
        declared = None
    return declared.mode if declared else "audit"


def error_lines(error: CorralError) -> list[str]:
    """A refusal, a line for each problem."""
    return [problem.line() for problem in error.problems]


def bullets(lines: t.Sequence[str]) -> list[str]:
    """Lines as a list, cut where a person would stop to read."""
    shown = [f"- {line}" for line in lines[:LINES]]
    return [*shown, f"- and {len(lines) - LINES} more"] if len(lines) > LINES else shown


def remarks(host: Host, left: t.Sequence[str]) -> t.Iterator[str]:
    """What a person should know of the result as a whole."""
    if left:
        yield "not in sync even so: " + "; ".join(left)
    if not mounts.readable(host):
        yield f"{mounts.TABLE} cannot be read, so mounts are missing: run as root"
    if not cgroup.unified(host):
        yield "cgroup v2 is not mounted on /sys/fs/cgroup: the CPUs of slices were not looked at"
    rows = [f"{unit} {cpuset.format(cpus)}" for unit, cpus in inner_confined(host)]
    if rows:
        yield f"units with CPUs of their own within their slice, which a profile does not declare: {', '.join(rows)}"


def inner_confined(host: Host) -> t.Iterator[tuple[str, frozenset[int]]]:
    """The units directly in a top-level slice that have a cpuset of their own; Corral's slices are no news."""
    for name in cgroup.top_level(host):
        for unit in host.names(f"{cgroup.ROOT}/{name}") if name.endswith(".slice") else ():
            cpus = cgroup.cpu_list(host.read(f"{cgroup.ROOT}/{name}/{unit}/cpuset.cpus"))
            if cpus and not is_own(unit):
                yield unit, cpus


# Reading


def read(host: Host, topology: Topology) -> Facts:
    """The node's state, as far as a profile can declare it."""
    keys = (PID_MAX, THREADS_MAX)
    elsewhere = [folder for folder in sysctl.FOLDERS if folder != DISTRIBUTION]
    given = sysctl.lasting_entries(host, keys, (DISTRIBUTION,))
    said = sysctl.entries(host, keys, sysctl.files_in_order(host, elsewhere))
    possible = cgroup.cpu_list(host.read("/sys/devices/system/cpu/possible")) or topology.online
    usual = {
        PID_MAX: node_as_profile.usual_pid_max(len(possible), whole(given.get(PID_MAX))),
        THREADS_MAX: node_as_profile.usual_threads_max(topology.machine_memory_kib, whole(given.get(THREADS_MAX))),
    }
    limits = {key: Limit(sysctl.live(host, key), whole(said.get(key)), usual[key]) for key in keys}
    defaults = systemd.system_settings(host, "DefaultTasksMax")
    return Facts(
        topology.online,
        tuple(slice_of(host, unit) for unit in units(host)),
        tuple(read_pools(host, topology)),
        tuple((mount.path, mount.options) for mount in read_mounts(host)),
        limits[PID_MAX],
        limits[THREADS_MAX],
        int(defaults[-1].value) if defaults and defaults[-1].value.isdecimal() else None,
    )


def whole(entry: t.Optional[sysctl.Entry]) -> t.Optional[int]:
    """The number that a sysctl.d file gives; None without one."""
    return int(entry.value) if entry is not None and entry.value.isdecimal() else None


def units(host: Host) -> list[str]:
    """The top-level slices and scopes that run or have files, and Corral's own."""
    found = dict.fromkeys(cgroup.top_level(host))
    for base in systemd.LOAD_PATH:
        for name in host.names(base):
            unit = name[: -len(".d")] if name.endswith(".d") else name
            if unit == "init.scope" or (unit.endswith(".slice") and "-" not in unit and unit != ".slice"):
                found[unit] = None
    found.update(dict.fromkeys((CORRAL_SLICE, grants.ISOLATED)))
    return list(found)


def slice_of(host: Host, unit: str) -> Slice:
    """A slice as it runs, or as its files will have it when it starts."""
    if cgroup.exists(host, unit):
        limit = cgroup.pids_max(host, unit) or ""
        confined = cgroup.cpus(host, unit).requested or None
    else:
        tasks = unit_property.lasting(systemd.unit_settings(host, unit, "TasksMax"))
        limit = tasks[-1].value if tasks else ""
        confined = cpu.merged(unit_property.lasting(systemd.unit_settings(host, unit, "AllowedCPUs"))) or None
    return Slice(unit, confined, int(limit) if limit.isdecimal() else None, cgroup.populated(host, unit))


def read_pools(host: Host, topology: Topology) -> t.Iterator[tuple[int, t.Optional[int], int]]:
    """The pools that are not empty, of each NUMA node where nodes have pools.

    What Corral has set is kept as it was declared: for the machine as a whole, or empty.
    """
    records = state.records(host)[0]
    set_by_us = {record.before.target for record in records if record.before.kind == "pool"}
    whole_sizes = topology.global_hugepages or {}
    for size, count in sorted(whole_sizes.items()):
        per_node: list[tuple[t.Optional[int], int]]
        per_node = [(node.id, node.hugepages[size]) for node in topology.numa.values() if size in node.hugepages]
        if not per_node or f"{hugepage_files.folder(size, None)}/nr_hugepages" in set_by_us:
            per_node = [(None, count)]
        for node, pages in per_node:
            if pages or f"{hugepage_files.folder(size, node)}/nr_hugepages" in set_by_us:
                yield size, node, pages


def read_mounts(host: Host) -> list[mounts.Mount]:
    """The hugetlbfs mounts that can be seen: the topmost of each path."""
    found = {mount.path: mount for mount in mounts.table(host.lines(mounts.TABLE, " - hugetlbfs "))}
    return [mount for mount in found.values() if mounts.at(host, mount.path) == mount]
