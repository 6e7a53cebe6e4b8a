# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# This module is private to the collection corral.node.
"""oom_score_adj of the processes of a control group (proc_pid_oom_score_adj(5))."""

from __future__ import annotations

import os

from . import process
from .files import ONE_READ, READ_FLAGS, Host

TYPE_CHECKING = False
if TYPE_CHECKING:
    import typing as t

DEPTH = 4  # control groups of containers within a unit
POPULATED = b"populated 1"  # in cgroup.events
NO_FOLDERS = 2  # links of a folder without folders in it; with each one more there is another link
# Podman's monitor protects itself: -1000.
MONITOR = "conmon"


def scores(host: Host, path: str, usual: str) -> tuple[str, ...]:
    """The other scores that processes in a control group and below it have, each once.

    One question to the host: which processes there are changes all the time.
    """
    found = host.unrecorded(lambda: {score for dummy, score in rows(host, path, usual)})
    return host.tell(tuple(sorted(found)), "oom_scores", path, usual)


def others(host: Host, path: str, usual: str) -> list[str]:
    """The processes that have another score."""
    return host.unrecorded(lambda: [pid for pid, dummy in rows(host, path, usual)])


def rows(host: Host, path: str, usual: str, depth: int = DEPTH) -> list[tuple[str, str]]:
    """Each process with another score than the usual one, and its score; monitors of containers are left out."""
    found = []
    for pid in (host.read(f"{path}/cgroup.procs") or "").split():
        score = (host.read(f"/proc/{pid}/oom_score_adj") or "").strip()
        if score not in ("", usual) and not is_monitor(host, pid):
            found.append((pid, score))
    for name in host.names(path) if depth and has_folders(host, path) else ():
        if concerns(name):
            found += rows(host, f"{path}/{name}", usual, depth - 1)
    return found


def is_monitor(host: Host, pid: str) -> bool:
    """Whether a process is the monitor of one of root's containers."""
    return process.name(host, pid) == MONITOR and process.of_system(host, pid)


def concerns(name: str) -> bool:
    """Whether a control group in a unit's is looked at: units and containers, not what a unit makes for itself."""
    return name.endswith((".slice", ".service", ".scope")) or name.startswith(("container", "libpod-"))


def groups(host: Host, path: str, depth: int = DEPTH) -> t.Optional[list[tuple[str, int]]]:
    """The control groups that rows() looks at, the outer ones first, and how many links each has (see has_folders).

    As long as all of them are there with as many links there is no other one. None where that says too little: the file
    system does not count, or there are control groups that rows() does not look at.
    """
    links = host.links(path)
    if links is None:
        return None
    inner = host.folders(path)
    if links != len(inner) + NO_FOLDERS or (inner and not depth) or not all(map(concerns, inner)):
        return None
    found = [(path, links)]
    for name in inner:
        below = groups(host, f"{path}/{name}", depth - 1)
        if below is None:
            return None
        found += below
    return found


def usual(host: Host, folder: int, known: t.Iterable[tuple[str, int, bytes]], score: bytes) -> bool:
    """Whether these control groups (see groups; their paths start in the open folder) are all that there are, each process in
    them has this score, and there are processes where their cgroup.events, if known, had said so.

    What scores() would find costs twice as much to look for: the dozens of files of each control group are not listed.
    """
    root, stat, opened, read, close, flags = host.root, os.stat, os.open, os.read, os.close, READ_FLAGS
    shown = score + b"\n"
    try:
        for path, links, events in known:
            if stat(path, dir_fd=folder).st_nlink != links:
                return False
            file = opened(path + "/cgroup.procs", flags, dir_fd=folder)
            try:
                processes = read(file, ONE_READ)
            finally:
                close(file)
            if len(processes) == ONE_READ or (events and (POPULATED in events) != bool(processes)):
                return False
            for pid in processes.split():
                file = opened(f"{root}/proc/{pid.decode()}/oom_score_adj", flags)
                try:
                    if read(file, ONE_READ) != shown:
                        return False
                finally:
                    close(file)
    except (OSError, ValueError):
        return False  # A process has ended meanwhile, or a control group.
    return True


def has_folders(host: Host, path: str) -> bool:
    """Whether there may be control groups below one: a folder has two links, and one more for each folder in it.

    Most have none, and asking costs a fraction of listing dozens of files. A file system that does not count says 1.
    """
    return host.links(path) not in (None, NO_FOLDERS)
