# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# This module is private to the collection corral.node.
"""The PID namespaces of running containers (proc_pid_ns(5)), below the slices of workloads."""

from __future__ import annotations

import os
import time

from .. import kernel_text
from ..containers import conmon

TYPE_CHECKING = False
if TYPE_CHECKING:
    import typing as t

    from ..files import Host

# Slice, container, PID, namespace, unit of the monitor, and the start in ticks since the boot ("": unknown).
Row = tuple[str, str, int, str, str, str]
NODE = "/proc/1/ns/pid"
START = 19  # the index of starttime among the fields of /proc/PID/stat after the name, proc_pid_stat(5)


def containers(host: Host, root: str, slices: tuple[str, ...]) -> list[Row]:
    """The running containers below slices (paths of control groups); a snapshot keeps this result as one answer."""
    return host.tell(host.unrecorded(lambda: running(host, slices)), "pid_namespaces", root, slices)


def running(host: Host, slices: t.Iterable[str]) -> list[Row]:
    """The result of containers(), sorted."""
    groups = [(place, ident, group) for place in slices for ident, group in conmon.groups_below(host, place).items()]
    if not groups:
        return []
    monitors = {monitor.ident: monitor for monitor in conmon.monitors(host)}
    names = {ident: monitor.name for ident, monitor in monitors.items()}
    if any(ident not in names for dummy, ident, group in groups):
        names = {**conmon.stored_names(host), **names}
    rows = []
    for place, ident, group in groups:
        monitor = monitors.get(ident)
        pid = first_process(host, group, monitor.pidfile if monitor else "")
        if pid is None:
            continue  # The container has ended meanwhile.
        space = host.link(f"/proc/{pid}/ns/pid") or ""
        name = names.get(ident) or ident[:12]
        rows.append((place, name, pid, space, monitor.group.rpartition("/")[2] if monitor else "", start(host, pid)))
    return sorted(rows)


def first_process(host: Host, group: str, pidfile: str) -> t.Optional[int]:
    """A container's first process: the PID in its monitor's file, else the lowest PID; None without a process."""
    pids = processes(host, group)
    text = (host.if_readable(host.read, pidfile) or "").strip() if pidfile.startswith("/") else ""
    recorded = kernel_text.count(text)
    if recorded in pids:
        return recorded
    return min(pids) if pids else None


def processes(host: Host, group: str) -> set[int]:
    """The PIDs in a control group and its inner groups."""
    pids = {
        pid for pid in map(kernel_text.count, (host.read(f"{group}/cgroup.procs") or "").split()) if pid is not None
    }
    return pids.union(*(processes(host, f"{group}/{name}") for name in host.folders(group)))


def start(host: Host, pid: int) -> str:
    """The start of a process in ticks since the boot; an empty string if the start cannot be read."""
    words = (host.read(f"/proc/{pid}/stat") or "").rpartition(")")[2].split()
    return words[START] if len(words) > START else ""


def moment(host: Host, ticks: str) -> str:
    """Ticks since the boot as a readable time; an empty string if the time is unknown."""
    lines = host.unrecorded(lambda: host.read("/proc/stat") or "").splitlines()
    boot = next((line.split()[1] for line in lines if line.startswith("btime ")), "")
    if not (boot.isdecimal() and ticks.isdecimal()):
        return ""
    return time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(int(boot) + int(ticks) // os.sysconf("SC_CLK_TCK")))


def of_node(host: Host) -> str:
    """The node's own PID namespace; an empty string if it cannot be read."""
    return host.link(NODE) or ""
