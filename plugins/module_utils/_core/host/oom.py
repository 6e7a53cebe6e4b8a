# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# This module is private to the collection corral.node.
"""How readily the kernel kills the processes of a control group (proc_pid_oom_score_adj(5))."""

from __future__ import annotations

import os

from .files import Host

DEPTH = 4  # control groups of containers within a unit
# Podman's monitor protects itself: -1000.
MONITORS = ("conmon",)


def scores(host: Host, path: str, usual: str) -> tuple[str, ...]:
    """The other scores that processes in a control group and below it have, each once."""
    return tuple(sorted({score for dummy, score in rows(host, path, usual)}))


def others(host: Host, path: str, usual: str) -> list[str]:
    """The processes that have another score."""
    return host.unrecorded(lambda: [pid for pid, dummy in rows(host, path, usual)])


def rows(host: Host, path: str, usual: str, depth: int = DEPTH) -> list[tuple[str, str]]:
    """Each process with another score than the usual one, and its score; monitors of containers are left out."""
    found = []
    for pid in (host.read(f"{path}/cgroup.procs") or "").split():
        score = (host.read(f"/proc/{pid}/oom_score_adj") or "").strip()
        if score not in ("", usual) and (host.read(f"/proc/{pid}/comm") or "").strip() not in MONITORS:
            found.append((pid, score))
    for name in host.names(path) if depth and has_folders(host, path) else ():
        if name.endswith((".slice", ".service", ".scope")) or name.startswith(("container", "libpod-")):
            found += rows(host, f"{path}/{name}", usual, depth - 1)
    return found


def has_folders(host: Host, path: str) -> bool:
    """Whether there may be control groups below one: a folder has two links, and one more for each folder in it.

    Most have none, and asking costs a fraction of listing dozens of files. A file system that does not count says 1.
    """
    try:
        return os.stat(host.at(path)).st_nlink != 2
    except OSError:
        return False
