# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# This module is private to the collection corral.node.
"""NUMA nodes and devices by the names that a profile uses."""

from __future__ import annotations

import typing as t

from ..values import cpuset, suggest
from .topology import Topology

# The most names that a message lists.
NAMED = 8


def node_near(name: str, topology: Topology, *, key: str = "numa") -> int:
    """The NUMA node of a network interface, or of a PCI device by its full address; the node must have CPUs.

    If only one NUMA node has CPUs, the firmware rarely reports the node of a device (-1): then the result is this node
    (Documentation/ABI/testing/sysfs-bus-pci). Raises ValueError with a message that says what to do; ``key`` is the profile's key that
    takes a node's number.
    """
    address = name if ":" in name else _address(name, topology, key)
    device = topology.pci.get(address)
    what = address if address == name else f"{name} ({address})"
    if device is None:
        meant = suggest.nearest(address, topology.pci)
        hint = f"did you mean {meant}?" if meant else f"lspci -D lists them; {_numa_instead(topology, key)}"
        raise ValueError(f"this node has no PCI device {address}: {hint}")
    with_cpus = nodes_with_cpus(topology)
    if device.numa_node < 0:
        if len(with_cpus) == 1:
            return with_cpus[0]
        raise ValueError(f"the firmware reports no NUMA node for {what}: {_numa_instead(topology, key)}")
    if device.numa_node not in with_cpus:
        raise ValueError(f"{what} is on NUMA node {device.numa_node}: {no_such_node(device.numa_node, topology)}")
    return device.numa_node


def no_such_node(node: int, topology: Topology) -> str:
    """A text: why no CPUs can be taken from a node, and which nodes have CPUs."""
    if not nodes_with_cpus(topology):
        return "no NUMA node shows its CPUs: leave the node out"
    if node not in topology.numa:
        return numa_nodes(nodes_with_cpus(topology), "with CPUs")
    nearest = _nearest_with_cpus(node, topology)
    return f"NUMA node {node} has no CPUs; name another, such as numa: {nearest}, the nearest that has"


def numa_nodes(nodes: t.Collection[int], what: str) -> str:
    """A text with the NUMA nodes to choose from: ``the NUMA nodes with CPUs are 0-3: name one of them``."""
    if len(nodes) == 1:
        return f"the only NUMA node {what} is {cpuset.format(nodes)}: name that one"
    return f"the NUMA nodes {what} are {cpuset.format(nodes)}: name one of them"


def _address(interface: str, topology: Topology, key: str) -> str:
    if interface not in topology.net:
        meant = suggest.nearest(interface, topology.net)
        names = [name for name, address in sorted(topology.net.items()) if address is not None]
        known = f"it has {_list(names)}; name one of them" if names else _numa_instead(topology, key)
        raise ValueError(f"this node has no such interface: {f'did you mean {meant}?' if meant else known}")
    address = topology.net[interface]
    if address is None:
        raise ValueError(f"is not a PCI device's interface: name the one below it, or {_numa_instead(topology, key)}")
    return address


def _numa_instead(topology: Topology, key: str) -> str:
    nodes = nodes_with_cpus(topology)
    which = f"one of {cpuset.format(nodes)}" if len(nodes) > 1 else cpuset.format(nodes)
    return f"write {key}: {which} instead of near"


def nodes_with_cpus(topology: Topology) -> list[int]:
    """The NUMA nodes with online CPUs, in ascending order."""
    return [node for node, cpus in sorted(topology.node_cpus().items()) if cpus]


def _nearest_with_cpus(node: int, topology: Topology) -> int:
    with_cpus = nodes_with_cpus(topology)
    if topology.distances is None or topology.distance_nodes is None or node not in topology.distance_nodes:
        return with_cpus[0]
    row = dict(zip(topology.distance_nodes, topology.distances[topology.distance_nodes.index(node)]))
    return min(with_cpus, key=lambda other: (row.get(other, 255), other))


def _list(names: t.Sequence[object]) -> str:
    return ", ".join(str(name) for name in names[:NAMED]) + (", …" if len(names) > NAMED else "")
