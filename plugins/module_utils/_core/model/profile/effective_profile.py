# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# This module is private to the collection corral.node.
"""The effective profile: what a profile results in on this node (CPU lists, pages, limits), as data to be stored, shown and compared."""

from __future__ import annotations

import json
import typing as t

from ..cpu import slices
from ..cpu.pools import POOLS, Pools
from ..values import cpuset
from ..values.sizes import page_text
from . import profile
from .profile import Profile
from .profile_memory import Memory


def compile_to_data(declared: Profile, pools: Pools) -> dict[str, t.Any]:
    """The effective profile as data: CPU lists of the pools, their NUMA nodes and slices; hugepages by size and node; mounts; limits; gc.

    A section that the profile does not have is left out.
    """
    data: dict[str, t.Any] = {"name": declared.name, "mode": declared.mode}
    if declared.cpu is not None:
        data["cpu"] = {
            **{name: cpuset.format(getattr(pools, name)) for name in POOLS},
            "numa": {
                str(node): {name: cpuset.format(cpus) for name, cpus in by.items() if cpus}
                for node, by in sorted(pools.per_numa.items())
            },
            "slices": {unit: cpuset.format(cpus) for unit, cpus in slices.wanted_cpus(declared.cpu, pools).items()},
        }
    plain = profile.to_data(declared)
    memory = _memory(declared.memory, plain.get("memory", {}))
    if memory:
        data["memory"] = memory
    data.update({section: plain[section] for section in ("pids", "gc") if section in plain})
    return data


def _memory(memory: Memory, plain: t.Mapping[str, t.Any]) -> dict[str, t.Any]:
    data: dict[str, t.Any] = {"reserved": plain["reserved"]} if memory.reserved else {}
    for pool in memory.hugepages:
        where = "machine" if pool.node is None else f"node {pool.node}"
        data.setdefault("hugepages", {}).setdefault(page_text(pool.size_kib), {})[where] = pool.pages
    if memory.mounts:
        data["mounts"] = {
            mount["path"]: {name: value for name, value in mount.items() if name != "path"} for mount in plain["mounts"]
        }
    return data


def text_of(declared: Profile, pools: Pools) -> str:
    """The effective profile as text: for its file, and for a diff."""
    return json.dumps(compile_to_data(declared, pools), indent=2, sort_keys=True) + "\n"
