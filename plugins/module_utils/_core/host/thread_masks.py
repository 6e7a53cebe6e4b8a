# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# This module is private to the collection corral.node.
"""Threads with a CPU affinity within their unit's CPUs: they must keep it when the unit's CPUs change.

Linux keeps a thread's own mask (sched_setaffinity(2)) through a change of its cpuset from 6.2 on; before, every change
gives it the whole set. What a kernel lost is set again, as far as it lies within the new CPUs. A hand-over may take a
unit's CPUs away for a while, so the masks that threads chose are kept from before a plan's first step until after its last.
"""

from __future__ import annotations

import os

from . import cgroup
from .files import Host

Masks = dict[int, tuple[str, frozenset[int]]]
DEPTH = 6


def own(host: Host, path: str) -> Masks:
    """Each thread in a control group and below it that runs on less than the group may, with the group and its CPUs."""
    found: Masks = {}
    for group in groups(host, path) if host.live else ():
        allowed = effective(host, group)
        for thread in unrecorded(host, f"{group}/cgroup.threads").split():
            mask = mask_of(int(thread))
            if mask and allowed and mask < allowed:
                found[int(thread)] = (group, mask)
    return found


def record(host: Host, path: str, masks: Masks) -> None:
    """Add the masks that threads in a control group chose; the mask from before the earliest step is kept."""
    for thread, row in own(host, path).items():
        masks.setdefault(thread, row)


def give_back(host: Host, path: str, masks: Masks) -> None:
    """Set the affinities again that the kernel reset in a control group: the thread now has all of its CPUs, and chose fewer."""
    for thread, (group, mask) in masks.items():
        if not f"{group}/".startswith(f"{path}/"):
            continue
        allowed = effective(host, group)
        wanted = mask & allowed
        if wanted and wanted != allowed and mask_of(thread) == allowed:
            try:
                os.sched_setaffinity(thread, wanted)
            except OSError:
                pass  # It has ended, or its group has lost these CPUs meanwhile.


def groups(host: Host, path: str, depth: int = DEPTH) -> list[str]:
    """A control group and those below it."""
    found = [path]
    for name in host.unrecorded(lambda: host.folders(path)) if depth else ():
        found += groups(host, f"{path}/{name}", depth - 1)
    return found


def effective(host: Host, path: str) -> frozenset[int]:
    """The CPUs in force for a control group: its own, or those of the nearest one around it that has some."""
    while path.startswith(cgroup.ROOT):
        cpus = cgroup.cpu_list(unrecorded(host, f"{path}/cpuset.cpus.effective"))
        if cpus:
            return cpus
        path = path.rpartition("/")[0]
    return frozenset()


def unrecorded(host: Host, path: str) -> str:
    """A kernel file's text; it is not recorded, so a change of threads does not make the next tick look in full."""
    return host.unrecorded(lambda: host.read(path)) or ""


def mask_of(thread: int) -> frozenset[int]:
    """The CPUs that a thread may run on; none when it has ended."""
    try:
        return frozenset(os.sched_getaffinity(thread))
    except OSError:
        return frozenset()
