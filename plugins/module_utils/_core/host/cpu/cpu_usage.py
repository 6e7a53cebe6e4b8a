# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# This module is private to the collection corral.node.
"""How much CPU time the services of a slice have used (cgroup-v2.rst, cpu.stat; proc_pid_stat(5))."""

from __future__ import annotations

import os
import typing as t

from ...model.cpu.busy_services import Service
from .. import cgroup
from ..files import Host

DEPTH = 4  # levels of slices, and levels of control groups inside a service
PROCESSES = 64  # the most processes of a service that are read, the lowest PIDs first


def of_unit(host: Host, unit: str) -> list[Service]:
    """The services and scopes in a slice, or the given scope itself, with their CPU time."""
    uptime = seconds(host.read("/proc/uptime"))
    path = cgroup.path_of(unit)
    places = [path] if not unit.endswith(".slice") else leaves(host, path)
    services = (service(host, place, place[len(path) :].lstrip("/") or unit, uptime) for place in places)
    return [busy for busy in services if busy is not None]


def leaves(host: Host, path: str, depth: int = DEPTH) -> list[str]:
    """The control groups of services and scopes below the control group of a slice."""
    paths = []
    for name in host.names(path):
        if name.endswith((".service", ".scope")):
            paths.append(f"{path}/{name}")
        elif name.endswith(".slice") and depth:
            paths += leaves(host, f"{path}/{name}", depth - 1)
    return paths


def service(host: Host, path: str, name: str, uptime: t.Optional[float]) -> t.Optional[Service]:
    """The service in a control group: CPU time, age, and the command with most CPU time; None without a CPU time."""
    stat = dict(line.split()[:2] for line in (host.read(f"{path}/cpu.stat") or "").splitlines() if " " in line)
    used = stat.get("usage_usec", "")
    if not used.isdecimal():
        return None
    rows = [row for row in (process(host, pid) for pid in processes(host, path)) if row is not None]
    ticks = os.sysconf("SC_CLK_TCK")
    # A service is as old as its oldest process, or as the system if no process is shown.
    start = min((row[1] for row in rows), default=0) / ticks
    command = max(rows, key=lambda row: row[2])[0] if rows else ""
    return Service(name, int(used) / 1e6, None if uptime is None else max(uptime - start, 0.0), command)


def processes(host: Host, path: str, depth: int = DEPTH) -> list[str]:
    """The PIDs of at most PROCESSES processes in a control group and the groups below it."""
    pids = sorted((host.read(f"{path}/cgroup.procs") or "").split(), key=int)[:PROCESSES]
    for name in host.names(path) if depth else ():
        if len(pids) < PROCESSES and host.is_dir(f"{path}/{name}"):
            pids += processes(host, f"{path}/{name}", depth - 1)
    return pids[:PROCESSES]


def process(host: Host, pid: str) -> t.Optional[tuple[str, int, int]]:
    """The name of a process, its start (ticks after boot), and the ticks that it ran; None when the process is gone."""
    head, dummy, tail = (host.read(f"/proc/{pid}/stat") or "").rpartition(")")
    fields = tail.split()
    try:
        return head.partition("(")[2], int(fields[19]), int(fields[11]) + int(fields[12])
    except (IndexError, ValueError):
        return None


def seconds(text: t.Optional[str]) -> t.Optional[float]:
    """The first number of /proc/uptime (proc_uptime(5))."""
    try:
        return float((text or "").split()[0])
    except (IndexError, ValueError):
        return None
