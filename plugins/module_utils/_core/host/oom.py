# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# This module is private to the collection corral.node.
"""How readily the kernel kills the processes of a control group (proc_pid_oom_score_adj(5))."""

from __future__ import annotations

from .files import Host

DEPTH = 4  # control groups of containers within a unit
# Podman's monitor protects itself: -1000.
MONITORS = ("conmon",)


def scores(host: Host, path: str) -> tuple[str, ...]:
    """The scores that processes in a control group and below it have, each once: who they are changes all the time."""
    return tuple(sorted({score for dummy, score in rows(host, path)}))


def others(host: Host, path: str, score: int) -> list[str]:
    """The processes that have another score."""
    return host.unrecorded(lambda: [pid for pid, found in rows(host, path) if found != str(score)])


def rows(host: Host, path: str, depth: int = DEPTH) -> list[tuple[str, str]]:
    """Each process and its score; monitors of containers are left out."""
    found = []
    for pid in (host.read(f"{path}/cgroup.procs") or "").split():
        score = (host.read(f"/proc/{pid}/oom_score_adj") or "").strip()
        if score and (host.read(f"/proc/{pid}/comm") or "").strip() not in MONITORS:
            found.append((pid, score))
    for name in host.names(path) if depth else ():
        if name.endswith((".slice", ".service", ".scope")) or name.startswith(("container", "libpod-")):
            found += rows(host, f"{path}/{name}", depth - 1)
    return found
