# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# This module is private to the collection corral.node.
"""The cpuset hierarchy of cgroup v1 (cpuset(7)), in which Corral makes a directory for each slice.

systemd writes no cpuset there. The kernel refuses a parent without all CPUs of its child (EBUSY), a child with CPUs that its parent
lacks (EACCES), and processes in a directory without memory nodes (ENOSPC). A CPU that goes offline leaves every directory for good.
"""

from __future__ import annotations

import errno
import typing as t

from ...model.values import cpuset
from .. import cgroup
from ..cgroup import CPUSETS, Cpus
from ..files import Host

# The most rounds in which processes are moved: a process may fork before it is moved.
ROUNDS = 20
PF_EXITING = 0x4  # include/linux/sched.h
# What the kernel's error numbers mean in this hierarchy.
REFUSALS = {
    errno.EACCES: "the directory above does not have these CPUs",
    errno.EBUSY: "a directory below keeps other CPUs",
    errno.EINVAL: "a CPU is offline, or a directory beside it is exclusive (cpuset.cpu_exclusive)",
    errno.ENOSPC: "processes would be left without CPUs or memory nodes",
}


def mounted(host: Host) -> bool:
    """Whether the hierarchy is mounted at its usual path."""
    return host.exists(f"{CPUSETS}/cpuset.cpus")


def directory_of(unit: str) -> str:
    """The directory of a unit in the cpuset hierarchy."""
    return cgroup.path_of(unit, CPUSETS)


def cpus(host: Host, directory: str) -> Cpus:
    """The CPUs of a directory; both fields are None if the directory is missing."""
    return Cpus(
        cgroup.cpu_list(host.read(f"{directory}/cpuset.cpus")),
        cgroup.cpu_list(host.read(f"{directory}/cpuset.effective_cpus")),
    )


def outside(host: Host, unit: str, *, itself: bool = False) -> dict[str, tuple[str, ...]]:
    """The processes of a unit outside the unit's directory and the directories below, by the present directory of each process.

    Without ``itself`` the calling process is left out, since this process ends before the next step.
    """
    mine = directory_of(unit)
    inside = cgroup.members(host, mine, itself=itself)
    strays: dict[str, tuple[str, ...]] = {}
    for process in cgroup.members(host, cgroup.path_of(unit, cgroup.units(host)), itself=itself):
        where = None if process in inside else location(host, process)
        if where is not None and not f"{where}/".startswith(f"{mine}/"):
            strays[where] = (*strays.get(where, ()), process)
    return strays


def reach(host: Host, unit: str) -> frozenset[int]:
    """The CPUs of a unit's directory, and the CPUs on which processes of the unit outside the directory may run."""
    places = (directory_of(unit), *outside(host, unit))
    return frozenset().union(*(cpus(host, place).effective or () for place in places))


def location(host: Host, process: str) -> t.Optional[str]:
    """The directory that a process is in; None when the process is gone or ending."""
    for line in (host.read(f"/proc/{process}/cgroup") or "").splitlines():
        dummy, controllers, path = [*line.split(":", 2), "", ""][:3]
        if "cpuset" in controllers.split(","):
            return None if path == "/" and is_ending(host, process) else f"{CPUSETS}{path}".rstrip("/")
    return None


def is_ending(host: Host, process: str) -> bool:
    """Whether a process is ending. The kernel shows each ending process in the root directory (proc_cgroup_show())."""
    fields = (host.read(f"/proc/{process}/stat") or "").rpartition(")")[2].split()
    try:
        return bool(int(fields[6]) & PF_EXITING)
    except (IndexError, ValueError):
        return False


# Writing


def set_cpus(host: Host, directory: str, wanted: frozenset[int], unit: str) -> None:
    """Make a directory if it is missing, write its CPUs, and move the processes of ``unit`` into the directory.

    Without a unit (when a step is undone) only the directory is written. Raises OSError when the kernel refuses.
    """
    host.make_dir(directory)
    parent = directory.rpartition("/")[0]
    if not (host.read(f"{directory}/cpuset.mems") or "").strip():
        mems = (host.read(f"{parent}/cpuset.effective_mems") or "").strip()
        host.write_value(f"{directory}/cpuset.mems", mems)
    give(host, directory, wanted, follow=bool(unit))
    if unit:
        gather(host, directory, unit)


def give(host: Host, directory: str, wanted: frozenset[int], *, follow: bool) -> None:
    """Write a directory's CPUs. ``follow``: change the directories below too; an inner directory with all CPUs gets all CPUs again.

    While the inner directories change, the directory keeps its previous CPUs too: no other directory has got these CPUs yet.
    """
    requested = cpus(host, directory).requested or frozenset()
    for inner in cgroup.below(host, directory) if follow else ():
        own = cpus(host, inner).requested
        if not own:
            continue
        target = wanted if own == requested else own & wanted or wanted
        if target != own:
            write_cpus(host, directory, requested | wanted)
            give(host, inner, target, follow=True)
    write_cpus(host, directory, wanted)


def write_cpus(host: Host, directory: str, wanted: frozenset[int]) -> None:
    """Write a directory's cpuset.cpus, unless it has these CPUs."""
    if cpus(host, directory).requested != wanted:
        host.write_value(f"{directory}/cpuset.cpus", cpuset.format(wanted))


def gather(host: Host, directory: str, unit: str) -> None:
    """Move the processes of a unit into its directory, and then the processes that were forked meanwhile."""
    for dummy in range(ROUNDS):
        strays = [process for processes in outside(host, unit, itself=True).values() for process in processes]
        for process in strays:
            move(host, process, directory)
        if not strays:
            return


def move(host: Host, process: str, directory: str) -> None:
    """Move one process with all its threads; no error if the process has ended."""
    try:
        host.write_value(f"{directory}/cgroup.procs", process)
    except OSError as error:
        if error.errno != errno.ESRCH:
            raise


def dissolve(host: Host, directory: str) -> None:
    """Remove a directory and move its processes to the parent. A directory around a container's directory stays, with all CPUs."""
    if not host.is_dir(directory):
        return
    parent = directory.rpartition("/")[0]
    above = cpus(host, parent).effective
    if above and cgroup.below(host, directory):
        give(host, directory, above, follow=True)
    for dummy in range(ROUNDS):
        processes = (host.read(f"{directory}/cgroup.procs") or "").split()
        for process in processes:
            move(host, process, parent)
        if not processes:
            break
    try:
        host.remove_dir(directory)
    except OSError as error:
        if error.errno != errno.EBUSY:
            raise
