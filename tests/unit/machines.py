# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Made-up machines for the tests of pools and of what fits a node."""

from __future__ import annotations

import typing as t

from _core.model.topology.topology import NumaNode, PciDevice, Topology, ordered

GIB_KIB = 1 << 20


def machine(
    nodes: int = 2, cores: int = 2, threads: int = 2, *, memory_kib: int | None = GIB_KIB, **facts: t.Any
) -> Topology:
    """``nodes`` sockets with a NUMA node each; CPUs numbered as on a PC of one socket: siblings are neighbours.

    The default is the lab's machine: 8 CPUs, node 0 has 0-3, siblings 0-1, 2-3, …; 1 GiB on each node.
    """
    groups = [frozenset(range(first, first + threads)) for first in range(0, nodes * cores * threads, threads)]
    online = frozenset().union(*groups) - facts.get("offline_present", frozenset())
    groups = [group & online for group in groups]
    numa = {
        node: NumaNode(
            node, frozenset().union(*groups[node * cores : (node + 1) * cores]), memory_kib, {2048: 0, 1 << 20: 0}
        )
        for node in range(nodes)
    }
    known = {
        "online": online,
        "isolated": frozenset(),
        "sockets": {str(node): numa[node].cpus for node in numa},
        "cores": ordered(groups),
        "numa": numa,
        "distances": tuple(tuple(10 if a == b else 10 + 10 * abs(a - b) for b in numa) for a in numa),
        "distance_nodes": tuple(numa),
        "machine_memory_kib": None if memory_kib is None else memory_kib * nodes,
        "global_hugepages": {2048: 0, 1 << 20: 0},
        **facts,
    }
    return Topology(**known)


def device(address: str, node: int) -> dict[str, PciDevice]:
    return {address: PciDevice(address, node)}
