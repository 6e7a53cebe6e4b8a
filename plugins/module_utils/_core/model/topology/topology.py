# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# This module is private to the collection corral.node.
"""The topology of a machine: CPUs and how CPUs share cores, caches, sockets and memory; hugepages; devices.

Ids are the kernel's ids: sparse, sometimes unknown. Nodes may have no CPU or no memory. Groups contain online CPUs only, in the order of
their lowest CPU. host/topology/sysfs.py reads a topology from a machine.
"""

from __future__ import annotations

import typing as t

from ..values import cpuset
from ..values.cpuset import CpuSet
from ..values.records import NamedTuple

Groups = tuple[CpuSet, ...]

# Shared defaults. No code writes to a topology.
_NO_SOCKETS: dict[str, CpuSet] = {}
_NO_NODES: dict[int, NumaNode] = {}
_NO_DEVICES: dict[str, PciDevice] = {}
_NO_INTERFACES: dict[str, str | None] = {}


class NumaNode(NamedTuple):
    """A NUMA node: its online CPUs, MemTotal in KiB (None: not reported), and the number of hugepages by page size in KiB."""

    id: int
    cpus: CpuSet
    memory_kib: int | None
    hugepages: dict[int, int]


class PciDevice(NamedTuple):
    """A PCI device. ``numa_node``: -1 without a node. ``node_known``: False if the kernel has no file numa_node for the device.

    ``pci_class``, ``vendor`` and ``device`` are the kernel's texts (``0x020000``); None if the file cannot be read.
    """

    address: str
    numa_node: int
    pci_class: str | None = None
    vendor: str | None = None
    device: str | None = None
    local_cpus: CpuSet | None = None
    node_known: bool = True


class Topology(NamedTuple):
    """A machine. A value that the kernel does not report is None; a value that the machine does not have is empty.

    ``sockets`` maps physical_package_id to CPUs. If the ids are unknown, the keys are ``?0``, ``?1``… in the order of the lowest CPU, and
    ``socket_ids_known`` is False. ``distances`` has its rows and columns in the order of ``distance_nodes``. ``net`` maps interfaces to PCI
    addresses (None: not on PCI). ``kinds``: the kinds of CPUs of a hybrid machine, empty for all other machines. ``notes`` name invalid
    data, and say how Corral read the data.
    """

    online: CpuSet
    offline_present: CpuSet = cpuset.EMPTY
    isolated: CpuSet | None = None
    sockets: dict[str, CpuSet] = _NO_SOCKETS
    socket_ids_known: bool = True
    cores: Groups = ()
    l3: Groups = ()
    dies: Groups | None = None
    clusters: Groups | None = None
    books: Groups | None = None
    drawers: Groups | None = None
    numa: dict[int, NumaNode] = _NO_NODES
    distances: tuple[tuple[int, ...], ...] | None = None
    distance_nodes: tuple[int, ...] | None = None
    machine_memory_kib: int | None = None
    global_hugepages: dict[int, int] | None = None
    pci: dict[str, PciDevice] = _NO_DEVICES
    net: dict[str, str | None] = _NO_INTERFACES
    kinds: tuple[tuple[str, CpuSet], ...] = ()
    notes: tuple[str, ...] = ()

    def siblings_of(self, cpus: t.Iterable[int]) -> CpuSet:
        """``cpus``, and all online CPUs of every core that contains a CPU of ``cpus``."""
        wanted = frozenset(cpus)
        return wanted.union(*(core for core in self.cores if not wanted.isdisjoint(core)))

    def node_cpus(self) -> dict[int, CpuSet]:
        """The online CPUs of each NUMA node; every online CPU is on exactly one node.

        A machine without NUMA has the node 0. A CPU without a node counts as a CPU of the lowest node with CPUs.
        """
        nodes = {node.id: node.cpus for node in self.numa.values()}
        orphans = self.online.difference(*nodes.values())
        if orphans:
            with_cpus = [node for node in sorted(nodes) if nodes[node]]
            node = with_cpus[0] if with_cpus else min(nodes, default=0)
            nodes[node] = nodes.get(node, cpuset.EMPTY) | orphans
        return nodes


def ordered(groups: t.Iterable[CpuSet]) -> Groups:
    """The groups without duplicates and empty groups, sorted by their CPUs."""
    return tuple(sorted({group for group in groups if group}, key=sorted))


# The JSON of the command ``corral topology --json``.

_GROUPS = ("dies", "clusters", "books", "drawers")


def to_dict(topology: Topology) -> dict[str, t.Any]:
    """The topology as JSON data: CPU sets are ascending lists; ids and page sizes (KiB) are text keys."""
    data: dict[str, t.Any] = {
        "online": sorted(topology.online),
        "offline_present": sorted(topology.offline_present),
        "isolated": _optional_list(topology.isolated),
        "sockets": {socket: sorted(cpus) for socket, cpus in topology.sockets.items()},
        "socket_ids_known": topology.socket_ids_known,
        "cores": _lists(topology.cores),
        "l3": _lists(topology.l3),
        "numa": {str(node.id): _node_to_dict(node) for node in topology.numa.values()},
        "distances": None if topology.distances is None else [list(row) for row in topology.distances],
        "distance_nodes": None if topology.distance_nodes is None else list(topology.distance_nodes),
        "machine_memory_kib": topology.machine_memory_kib,
        "global_hugepages": None if topology.global_hugepages is None else _text_keys(topology.global_hugepages),
        "pci_numa_node": {pci.address: pci.numa_node for pci in topology.pci.values() if pci.node_known},
        "pci": {pci.address: _pci_to_dict(pci) for pci in topology.pci.values()},
        "net": dict(topology.net),
        "kinds": [{"name": name, "cpus": sorted(cpus)} for name, cpus in topology.kinds],
        "notes": list(topology.notes),
    }
    for name in _GROUPS:
        groups = getattr(topology, name)
        data[name] = None if groups is None else _lists(groups)
    return data


def _node_to_dict(node: NumaNode) -> dict[str, t.Any]:
    return {"cpus": sorted(node.cpus), "memory_kib": node.memory_kib, "hugepages": _text_keys(node.hugepages)}


def _pci_to_dict(device: PciDevice) -> dict[str, t.Any]:
    return {
        "numa_node": device.numa_node,
        "node_known": device.node_known,
        "class": device.pci_class,
        "vendor": device.vendor,
        "device": device.device,
        "local_cpus": _optional_list(device.local_cpus),
    }


def _lists(groups: Groups) -> list[list[int]]:
    return [sorted(group) for group in groups]


def _optional_list(cpus: CpuSet | None) -> list[int] | None:
    return None if cpus is None else sorted(cpus)


def _text_keys(pages: t.Mapping[int, int]) -> dict[str, int]:
    return {str(size): pages[size] for size in sorted(pages)}
