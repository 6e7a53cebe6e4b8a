# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# This module is private to the collection corral.node.
"""Keeps the CPU affinity of threads that chose fewer CPUs than their unit has, when the unit's CPUs change.

Since 6.2 Linux keeps a thread's mask (sched_setaffinity(2)) when the thread's cpuset changes; before 6.2, every change gives the thread all
CPUs of the cpuset. Corral sets a lost mask again, as far as the new CPUs include the mask. A plan may take CPUs away for a while: so a mask
that a step of the plan recorded stays the thread's mask for all later steps.
"""

from __future__ import annotations

import os

from .. import cgroup
from ..files import Host

Masks = dict[int, tuple[str, frozenset[int]]]
DEPTH = 6


def own(host: Host, path: str) -> Masks:
    """The threads, by id, with fewer CPUs than their control group (``path`` and inner groups), each with its group and CPUs."""
    masks: Masks = {}
    for group in groups(host, path) if host.live else ():
        allowed = effective(host, group)
        for thread in unrecorded(host, f"{group}/cgroup.threads").split():
            mask = mask_of(int(thread))
            if mask and allowed and mask < allowed:
                masks[int(thread)] = (group, mask)
    return masks


def record(host: Host, path: str, masks: Masks) -> None:
    """Add to ``masks`` the masks that threads in a control group chose; a mask that an earlier step recorded stays."""
    for thread, row in own(host, path).items():
        masks.setdefault(thread, row)


def give_back(host: Host, path: str, masks: Masks) -> None:
    """Restore the recorded masks of threads in a control group to which the kernel has given all CPUs of their group."""
    for thread, (group, mask) in masks.items():
        if not f"{group}/".startswith(f"{path}/"):
            continue
        allowed = effective(host, group)
        wanted = mask & allowed
        if wanted and wanted != allowed and mask_of(thread) == allowed:
            try:
                os.sched_setaffinity(thread, wanted)
            except OSError:
                pass  # The thread has ended, or its control group has lost the CPUs of ``wanted`` meanwhile.


def groups(host: Host, path: str, depth: int = DEPTH) -> list[str]:
    """A control group and all control groups below it."""
    paths = [path]
    for name in host.unrecorded(lambda: host.folders(path)) if depth else ():
        paths += groups(host, f"{path}/{name}", depth - 1)
    return paths


def effective(host: Host, path: str) -> frozenset[int]:
    """The CPUs in force for a control group, or for its nearest ancestor with CPUs."""
    while path.startswith(cgroup.ROOT):
        cpus = cgroup.cpu_list(unrecorded(host, f"{path}/cpuset.cpus.effective"))
        if cpus:
            return cpus
        path = path.rpartition("/")[0]
    return frozenset()


def unrecorded(host: Host, path: str) -> str:
    """A kernel file's text. The read is not recorded: a change of threads must not make the next tick run in full."""
    return host.unrecorded(lambda: host.read(path)) or ""


def mask_of(thread: int) -> frozenset[int]:
    """The CPUs that a thread may use; an empty set if the thread has ended."""
    try:
        return frozenset(os.sched_getaffinity(thread))
    except OSError:
        return frozenset()
