# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# This module is private to the collection corral.node.
"""The CPU pools as JSON data and as an EnvironmentFile, for other programs."""

from __future__ import annotations

import typing as t

from .pools import POOLS, Pools, workload_cpus

if t.TYPE_CHECKING:
    from ..status import json_shapes
from ..values import cpuset
from ..values.cpuset import CpuSet


def to_dict(pools: Pools) -> json_shapes.Pools:
    """The pools as JSON data; sets of CPUs are in the kernel's form (``0-3,8``)."""
    return {
        "online": cpuset.format(pools.online),
        **sets_to_dict({name: getattr(pools, name) for name in POOLS}),
        "workloads": cpuset.format(workload_cpus(pools)),
        "strict": pools.strict,
        "numa": {str(node): sets_to_dict(by) for node, by in sorted(pools.per_numa.items())},
        "notes": list(pools.notes),
    }


def sets_to_dict(by: t.Mapping[str, CpuSet]) -> json_shapes.PoolSets:
    """The four pools as JSON data."""
    return {
        "reserved": cpuset.format(by["reserved"]),
        "shared": cpuset.format(by["shared"]),
        "isolated": cpuset.format(by["isolated"]),
        "exclusive": cpuset.format(by["exclusive"]),
    }


def to_env(pools: Pools) -> str:
    """The pools as an EnvironmentFile of systemd or a shell: ``CORRAL_SHARED_CPUS="2-7"``, also by NUMA node."""
    lines = [("ONLINE_CPUS", pools.online), *((f"{name.upper()}_CPUS", getattr(pools, name)) for name in POOLS)]
    lines.append(("WORKLOAD_CPUS", workload_cpus(pools)))
    for node, by in sorted(pools.per_numa.items()):
        lines += [(f"{name.upper()}_CPUS_NUMA{node}", by[name]) for name in POOLS]
    return "".join(f'CORRAL_{name}="{cpuset.format(cpus)}"\n' for name, cpus in lines)
