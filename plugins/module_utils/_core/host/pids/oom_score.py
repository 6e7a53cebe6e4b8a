# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# This module is private to the collection corral.node.
"""oom_score_adj of the processes of a control group (proc_pid_oom_score_adj(5))."""

from __future__ import annotations

import os

from .. import process
from ..files import ONE_READ, READ_FLAGS, Host

TYPE_CHECKING = False
if TYPE_CHECKING:
    import typing as t

DEPTH = 4  # levels of control groups inside a unit
POPULATED = b"populated 1"  # in cgroup.events
NO_FOLDERS = 2  # the links of a folder without inner folders; each inner folder adds a link
# Podman's monitor, which sets its own score to -1000.
MONITOR = "conmon"


def scores(host: Host, path: str, usual: str) -> tuple[str, ...]:
    """The scores other than ``usual`` of processes in a control group and its inner groups, each once.

    A recording keeps only this answer, since the processes change all the time.
    """
    other_scores = host.unrecorded(lambda: {score for dummy, score in rows(host, path, usual)})
    return host.tell(tuple(sorted(other_scores)), "oom_scores", path, usual)


def others(host: Host, path: str, usual: str) -> list[str]:
    """The PIDs in a control group and its inner groups with another score than ``usual``."""
    return host.unrecorded(lambda: [pid for pid, dummy in rows(host, path, usual)])


def rows(host: Host, path: str, usual: str, depth: int = DEPTH) -> list[tuple[str, str]]:
    """The PIDs with another score than ``usual``, each with its score; the monitors of containers are left out."""
    unusual = []
    for pid in (host.read(f"{path}/cgroup.procs") or "").split():
        score = (host.read(f"/proc/{pid}/oom_score_adj") or "").strip()
        if score not in ("", usual) and not is_monitor(host, pid):
            unusual.append((pid, score))
    for name in host.names(path) if depth and has_folders(host, path) else ():
        if concerns(name):
            unusual += rows(host, f"{path}/{name}", usual, depth - 1)
    return unusual


def is_monitor(host: Host, pid: str) -> bool:
    """Whether a process is the monitor of a container of root."""
    return process.name(host, pid) == MONITOR and process.of_system(host, pid)


def concerns(name: str) -> bool:
    """Whether rows() reads an inner control group with this name: the group of a unit or container, but not a group that a unit makes."""
    return name.endswith((".slice", ".service", ".scope")) or name.startswith(("container", "libpod-"))


def groups(host: Host, path: str, depth: int = DEPTH) -> t.Optional[list[tuple[str, int]]]:
    """The control groups that rows() reads, the outer ones first, each with its number of links (see has_folders).

    While all groups keep their number of links, no group was added. None if a number cannot show a new group: the file system does not
    count links, or rows() leaves some groups out.
    """
    links = host.links(path)
    if links is None:
        return None
    inner = host.folders(path)
    if links != len(inner) + NO_FOLDERS or (inner and not depth) or not all(map(concerns, inner)):
        return None
    known = [(path, links)]
    for name in inner:
        below = groups(host, f"{path}/{name}", depth - 1)
        if below is None:
            return None
        known += below
    return known


def usual(host: Host, folder: int, known: t.Iterable[tuple[str, int, bytes]], score: bytes) -> bool:
    """Whether ``known`` (see groups(); paths below the open ``folder``) still has all control groups, and all their processes have
    ``score``.

    A text of cgroup.events in ``known`` must still say whether the group has processes. usual() takes half as long as scores(), which lists
    the dozens of files of each group.
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
        return False  # A process or control group has ended meanwhile.
    return True


def has_folders(host: Host, path: str) -> bool:
    """Whether a control group may have inner control groups: a folder has two links, and one more link for each folder inside.

    Most control groups have no inner groups, and stat(2) costs a fraction of listing files. A file system that counts no links says 1.
    """
    return host.links(path) not in (None, NO_FOLDERS)
