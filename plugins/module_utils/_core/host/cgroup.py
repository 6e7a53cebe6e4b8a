# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# This module is private to the collection corral.node.
"""Reads control groups of cgroup v1 and v2 (kernel: Documentation/admin-guide/cgroup-v2.rst and cgroup-v1/).

systemd has one tree of units. In v2 this tree is in one hierarchy. v1 has one hierarchy for each controller, and the hierarchy
name=systemd, which only groups processes; in hybrid mode systemd keeps name=systemd beside v2.
"""

from __future__ import annotations

import typing as t

from ..model.systemd.unit_group import group_of
from ..model.values import cpuset
from ..model.values.records import NamedTuple
from . import process
from .files import Host

ROOT = "/sys/fs/cgroup"
CPUSETS = f"{ROOT}/cpuset"
# The files of every control group of v1. Any other name in a control group is a file of a controller, or an inner control group.
FILES_V1 = frozenset({"cgroup.clone_children", "cgroup.procs", "notify_on_release", "tasks"})


class Cpus(NamedTuple):
    """The CPUs of a control group. ``requested``: cpuset.cpus (None: no such file; empty: never set). ``effective``: the CPUs in force."""

    requested: t.Optional[frozenset[int]]
    effective: t.Optional[frozenset[int]]


def unified(host: Host) -> bool:
    """Whether cgroup v2 is mounted on /sys/fs/cgroup."""
    return host.exists(f"{ROOT}/cgroup.controllers")


def units(host: Host) -> str:
    """The root of the hierarchy in which each unit of systemd has a control group."""
    return ROOT if unified(host) else f"{ROOT}/systemd"


def path_of(unit: str, root: str = ROOT) -> str:
    """The path of the control group of a unit (a top-level scope, or any slice) in the hierarchy at ``root``."""
    return f"{root}/{group_of(unit)}"


def exists(host: Host, unit: str) -> bool:
    """Whether the unit has a control group now."""
    return host.is_dir(path_of(unit, units(host)))


def cpus(host: Host, unit: str) -> Cpus:
    """The CPUs of a unit (v2); a unit without a cpuset has the effective CPUs of its nearest ancestor with a cpuset."""
    return cpus_at(host, path_of(unit))


def cpus_at(host: Host, path: str) -> Cpus:
    """The CPUs of a control group (v2)."""
    requested = cpu_list(host.read(f"{path}/cpuset.cpus"))
    effective = cpu_list(host.read(f"{path}/cpuset.cpus.effective"))
    while not effective and path.count("/") > ROOT.count("/"):
        path = path.rpartition("/")[0]
        effective = cpu_list(host.read(f"{path}/cpuset.cpus.effective"))
    return Cpus(requested, effective or cpu_list(host.read("/sys/devices/system/cpu/online")))


def exclusive(host: Host, path: str) -> frozenset[int]:
    """The exclusive CPUs of a control group (kernel 6.7 and later): no sibling with one of these CPUs can be a partition."""
    return cpu_list(host.read(f"{path}/cpuset.cpus.exclusive")) or frozenset()


def rest(host: Host) -> frozenset[int]:
    """The CPUs that partitions leave to all other control groups (v2)."""
    effective = cpu_list(host.read(f"{ROOT}/cpuset.cpus.effective"))
    return effective or cpu_list(host.read("/sys/devices/system/cpu/online")) or frozenset()


def partition_file(unit: str) -> str:
    """The kernel's file that makes a unit's control group a partition (v2)."""
    return f"{path_of(unit)}/cpuset.cpus.partition"


def partition(host: Host, unit: str) -> t.Optional[str]:
    """A unit's cpuset.cpus.partition, such as "member", "root" or "root invalid (why)"; None without this file."""
    text = host.read(partition_file(unit))
    return None if text is None else text.strip()


def cpu_list(text: t.Optional[str]) -> t.Optional[frozenset[int]]:
    """The CPUs of a kernel CPU list; None if ``text`` is None or no list."""
    if text is None:
        return None
    try:
        return cpuset.parse(text.strip())
    except ValueError:
        return None


def populated(host: Host, unit: str) -> bool:
    """Whether a process is in the unit's control group or below it."""
    return populated_at(host, path_of(unit, units(host)))


def populated_at(host: Host, path: str) -> bool:
    """Whether a process is in a control group of systemd's hierarchy or below it."""
    if unified(host):
        return "populated 1" in (host.read(f"{path}/cgroup.events") or "")
    return bool(members(host, path))


def service_runs(host: Host, service: str) -> bool:
    """Whether a service of the system has processes."""
    return populated_at(host, service_group(host, service))


# Slices whose names begin with these words belong to pods, users and Corral's workloads, and contain no system service.
MANY = ("kubepods", "user.", "corral")


def service_group(host: Host, service: str) -> str:
    """The path of a service's control group: in the slice in which the service runs (Slice=), or in system.slice if no group exists."""
    root = units(host)
    usual = f"{root}/system.slice/{service}"
    if host.is_dir(usual):
        return usual
    others = (f"{path}/{service}" for path in slices(host, root))
    return next((path for path in others if host.is_dir(path)), usual)


def slices(host: Host, directory: str) -> list[str]:
    """The paths of the slices below a control group, the nearest first. Slices inside a slice of MANY are left out."""
    names = host.names_like(directory, (("", ".slice"),))
    inner_ones = [path for name in names if not name.startswith(MANY) for path in slices(host, f"{directory}/{name}")]
    return [*(f"{directory}/{name}" for name in names), *inner_ones]


def processes_shown(host: Host, path: str, most: int = 4) -> tuple[str, ...]:
    """At most ``most`` processes in a control group and its inner groups, each with PID and name: ``4711 nginx``."""
    shown = []
    for directory in (path, *inner(host, path)):
        for pid in host.processes(f"{directory}/cgroup.procs"):
            shown.append(f"{pid} {process.name(host, pid) or '?'}")
            if len(shown) == most:
                return tuple(shown)
    return tuple(shown)


def inner(host: Host, directory: str, depth: int = 16) -> list[str]:
    """The control groups below a control group, the nearest first."""
    children = [f"{directory}/{name}" for name in host.folders(directory)]
    return children + [path for child in children for path in (inner(host, child, depth - 1) if depth else ())]


def top_level(host: Host) -> list[str]:
    """The names of the control groups directly below the root, of systemd's units and of other programs."""
    return host.folders(units(host))


def foreign_partitions(host: Host, known: t.Container[str]) -> frozenset[int]:
    """The CPUs of valid top-level partitions (v2) that are not in ``known``: the kernel takes these CPUs from all other control groups.

    CPUs that the partition of a known unit also requests are left out.
    """
    own: frozenset[int] = frozenset()
    others: frozenset[int] = frozenset()
    for name in top_level(host):
        text = host.read(f"{ROOT}/{name}/cpuset.cpus.partition")
        if text is None or text.strip() not in ("root", "isolated"):
            continue
        requested = cpu_list(host.read(f"{ROOT}/{name}/cpuset.cpus")) or frozenset()
        if name in known:
            own |= requested
        else:
            others |= exclusive(host, f"{ROOT}/{name}") or requested
    return others - own


def slices_in(host: Host, outer: str) -> list[str]:
    """The names of the slices directly inside the slice ``outer``; the top-level slices if ``outer`` is empty."""
    if outer and not exists(host, outer):
        return []
    return [name for name in host.names(path_of(outer) if outer else ROOT) if name.endswith(".slice")]


def units_in(host: Host, outer: str) -> list[str]:
    """The services and scopes with processes in a slice and its inner slices."""
    inner_units = [unit for inner_slice in slices_in(host, outer) for unit in units_in(host, inner_slice)]
    names = [name for name in host.folders(path_of(outer)) if name.endswith((".service", ".scope"))]
    return sorted([*inner_units, *(name for name in names if populated_at(host, f"{path_of(outer)}/{name}"))])


def offers(host: Host, controller: str) -> bool:
    """Whether the kernel offers a controller in v2."""
    return controller in (host.read(f"{ROOT}/cgroup.controllers") or "").split()


def delegated(host: Host, path: str) -> list[str]:
    """The controllers that a control group gives to the groups below it."""
    return (host.read(f"{path}/cgroup.subtree_control") or "").split()


def ancestors(path: str) -> list[str]:
    """The control groups above a control group, the root first."""
    parts = path[len(ROOT) :].strip("/").split("/")
    return [ROOT + "".join(f"/{part}" for part in parts[:depth]) for depth in range(len(parts))]


def pids_file(host: Host, unit: str) -> str:
    """The path of the kernel file with the limit of a unit's tasks."""
    return f"{path_of(unit, ROOT if unified(host) else f'{ROOT}/pids')}/pids.max"


def pids_max(host: Host, unit: str) -> t.Optional[str]:
    """A unit's pids.max: a number or "max"; None without this file."""
    text = host.read(pids_file(host, unit))
    return None if text is None else text.strip()


def pids_current(host: Host, unit: str) -> t.Optional[int]:
    """The number of tasks in a unit and in all units inside it; None without pids.current."""
    text = (host.read(f"{pids_file(host, unit).rpartition('/')[0]}/pids.current") or "").strip()
    return int(text) if text.isdigit() else None


# The hierarchies of cgroup v1


def below(host: Host, directory: str) -> list[str]:
    """The control groups directly below a control group of v1."""
    paths = [f"{directory}/{name}" for name in host.names(directory) if name not in FILES_V1]
    return [path for path in paths if host.is_dir(path)]


def members(host: Host, directory: str, *, itself: bool = False) -> dict[str, str]:
    """The PIDs in a control group of v1 and in its inner groups, each with its group's path. ``itself``: also the calling process."""
    file = f"{directory}/cgroup.procs"
    groups = dict.fromkeys((host.read(file) or "").split() if itself else host.processes(file), directory)
    for inner in below(host, directory):
        groups.update(members(host, inner, itself=itself))
    return groups
