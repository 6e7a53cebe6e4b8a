# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# This module is private to the collection corral.node.
"""Discovers a machine's Topology from /sys and /proc of any kernel since 2.6.16, live or recorded.

Sources: Documentation/ABI/stable/sysfs-devices-node, Documentation/admin-guide/mm/hugetlbpage.rst; for CPUs see cpus.py. A value that
cannot be parsed is left out and named in the topology's notes.
"""

from __future__ import annotations

import typing as t

from ...model.topology.topology import NumaNode, Topology
from ...model.values import cpuset
from ...model.values.cpuset import CpuSet
from .. import kernel_text
from ..devices import devices
from .cpus import CPU, Cpus
from .sysfs_reader import Reader

if t.TYPE_CHECKING:
    from ..files import Host

NODE = "/sys/devices/system/node"
HUGEPAGES = "/sys/kernel/mm/hugepages"
NODE_CPUS = ("cpumap", "cpulist")


def discover(host: Host, *, with_devices: bool = True) -> Topology:
    """The topology of ``host``; ``with_devices``: also PCI and network. Only reads; never raises for invalid content."""
    reader = Reader(host)
    cpus = Cpus(reader)
    sockets, socket_ids_known = cpus.sockets()
    nodes = _nodes(reader, cpus.online)
    distances = _distances(reader, nodes)
    topology = Topology(
        online=cpus.online,
        offline_present=cpus.offline,
        isolated=cpus.isolated(),
        sockets=sockets,
        socket_ids_known=socket_ids_known,
        cores=cpus.cores(),
        l3=cpus.l3(),
        dies=cpus.dies(),
        clusters=cpus.clusters(),
        books=cpus.books(),
        drawers=cpus.drawers(),
        numa=nodes,
        distances=distances,
        distance_nodes=None if distances is None else tuple(nodes),
        machine_memory_kib=reader.value("/proc/meminfo", kernel_text.mem_total, "a meminfo", "MemTotal"),
        global_hugepages=_hugepages(reader, HUGEPAGES) if host.is_dir(HUGEPAGES) else None,
        pci=devices.pci(reader) if with_devices else {},
        net=devices.net(reader) if with_devices else {},
        kinds=cpus.kinds(),
    )
    return topology._replace(notes=tuple(reader.notes()))


def signature(host: Host) -> tuple[str | None, ...]:
    """The texts of six files: at least one text differs after CPUs, nodes or memory were added, removed or changed."""
    paths = ("/proc/sys/kernel/random/boot_id", f"{CPU}/online", f"{CPU}/present", f"{CPU}/isolated", f"{NODE}/online")
    return (*(host.read(path) for path in paths), host.lines("/proc/meminfo", "MemTotal"))


def watched(host: Host) -> Topology:
    """The topology of ``host``. A recording keeps only the answers of signature(), not the thousands of other reads."""
    signature(host)
    return host.unrecorded(lambda: discover(host))


def _nodes(reader: Reader, online: CpuSet) -> dict[int, NumaNode]:
    nodes: dict[int, NumaNode] = {}
    taken = cpuset.EMPTY
    for node, name in kernel_text.numbered(reader.host.names(NODE), "node").items():
        folder = f"{NODE}/{name}"
        cpus = reader.cpus(folder, NODE_CPUS)
        if cpus is None:
            cpus = frozenset(kernel_text.numbered(reader.host.names(folder), "cpu"))
        cpus &= online
        if not cpus.isdisjoint(taken):
            reader.note(f"{folder}: CPUs {cpuset.format(cpus & taken)} are in a lower node as well; counted there")
        memory = reader.value(f"{folder}/meminfo", kernel_text.mem_total, "a node's meminfo", "MemTotal")
        nodes[node] = NumaNode(node, cpus - taken, memory, _hugepages(reader, f"{folder}/hugepages"))
        taken |= cpus
    return nodes


def _distances(reader: Reader, nodes: t.Iterable[int]) -> tuple[tuple[int, ...], ...] | None:
    """The matrix of node distances (10: local), a row for each node; None for a missing matrix, or one that is not square."""
    read = [reader.value(f"{NODE}/node{node}/distance", kernel_text.counts, "a row of distances") for node in nodes]
    rows = [row for row in read if row]
    if not rows:
        return None
    if len(rows) != len(read) or any(len(row) != len(rows) for row in rows):
        reader.note(f"{NODE}: the distances of {len(read)} nodes are not a square; left out")
        return None
    return tuple(rows)


def _hugepages(reader: Reader, folder: str) -> dict[int, int]:
    """The pages of each pool (nr_hugepages) by page size in KiB."""
    pools: dict[int, int] = {}
    for size, name in kernel_text.numbered(reader.host.names(folder), "hugepages-", "kB").items():
        count = reader.value(f"{folder}/{name}/nr_hugepages", kernel_text.count, "a number of pages")
        if count is not None:
            pools[size] = count
    return pools
