# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Builds /sys and /proc trees of made-up machines, and says what discovery must find in them."""

from __future__ import annotations

import math
import typing as t
from pathlib import Path

from _core.model.topology.topology import NumaNode, PciDevice, Topology, ordered
from _core.model.values import cpuset

CPU = "sys/devices/system/cpu"
NODE = "sys/devices/system/node"

Set = frozenset[int]


class Machine(t.NamedTuple):
    """A machine. CPUs are numbered as x86 does: the first thread of every core, then the second ones.

    ``sockets`` x ``nodes`` (a socket) x ``cores`` (a node) x ``threads``; ``cpu_step`` and ``node_ids`` make ids
    sparse; ``bare_nodes`` are nodes without CPUs; ``memory_kib`` is each node's; ``pools`` is {node: {KiB: pages}};
    ``pci`` is {address: node}; ``net`` is {interface: address or None}, those in ``virtio`` hang below a virtio
    device. ``masks`` and ``lists`` say which files there are, ``online_file`` whether cpu/online and its like exist.
    """

    sockets: int = 1
    nodes: int = 1
    cores: int = 2
    threads: int = 2
    cpu_step: int = 1
    node_ids: tuple[int, ...] = ()
    bare_nodes: tuple[int, ...] = ()
    offline: Set = frozenset()
    isolated: Set | None = frozenset()
    memory_kib: int = 4 << 20
    page_sizes: tuple[int, ...] = (2048, 1048576)
    pools: dict[int, dict[int, int]] = {}  # noqa: RUF012
    pci: dict[str, int] = {}  # noqa: RUF012
    net: dict[str, str | None] = {}  # noqa: RUF012
    virtio: Set | tuple[str, ...] = ()
    socket_ids: bool = True
    numa: bool = True
    masks: bool = True
    lists: bool = True
    online_file: bool = True


def build(root: Path, machine: Machine) -> Topology:
    """Write the tree below ``root`` and return the topology that discovery must report."""
    tree = _Tree(root)
    threads = _threads(machine)
    present = frozenset(threads)
    online = present - machine.offline
    topology = _expected(machine, threads, online)
    for cpu in sorted(present):
        if cpu:  # The boot CPU cannot go offline and has no such file.
            tree.text(f"{CPU}/cpu{cpu}/online", int(cpu in online))
    if machine.online_file:
        tree.text(f"{CPU}/online", cpuset.format(online))
        tree.text(f"{CPU}/present", cpuset.format(present))
        tree.text(f"{CPU}/possible", f"0-{max(present) + 2}")
    if machine.isolated is not None:
        tree.text(f"{CPU}/isolated", cpuset.format(machine.isolated))
    for cpu in online:
        _write_cpu(tree, machine, topology, cpu, threads[cpu])
    if machine.numa:
        _write_nodes(tree, machine, topology)
    pages = topology.global_hugepages or {}
    for size, count in pages.items():
        for name, value in (("nr", count), ("free", count), ("resv", 0)):
            tree.text(f"sys/kernel/mm/hugepages/hugepages-{size}kB/{name}_hugepages", value)
    tree.text("proc/meminfo", f"MemTotal:       {topology.machine_memory_kib} kB\nMemFree:         1024 kB")
    _write_devices(tree, machine, topology)
    return topology


class _Tree:
    def __init__(self, root: Path) -> None:
        self.root = root

    def text(self, path: str, text: object) -> None:
        file = self.root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(f"{text}\n", encoding="utf-8")

    def cpus(self, machine: Machine, folder: str, names: tuple[str, str], cpus: Set) -> None:
        if machine.masks:
            self.text(f"{folder}/{names[0]}", mask(cpus, max(128, 32 * math.ceil(possible(machine) / 32))))
        if machine.lists:
            self.text(f"{folder}/{names[1]}", cpuset.format(cpus))

    def link(self, path: str, target: str) -> None:
        link = self.root / path
        link.parent.mkdir(parents=True, exist_ok=True)
        link.symlink_to(target)


def cpus_of(machine: Machine) -> Set:
    """The CPUs of the machine, offline ones included."""
    return frozenset(_threads(machine))


def possible(machine: Machine) -> int:
    """How many CPU ids the machine has."""
    return machine.sockets * machine.nodes * machine.cores * machine.threads * machine.cpu_step


def mask(cpus: t.Iterable[int], bits: int = 128) -> str:
    """A CPU mask as the kernel prints it: all masks of a machine are as wide as its possible CPUs."""
    value = sum(1 << cpu for cpu in cpus)
    digits = f"{value:0{bits // 4}x}"
    return ",".join(digits[at : at + 8] for at in range(0, len(digits), 8))


class _Place(t.NamedTuple):
    socket: int
    node: int
    core: int


def _node_ids(machine: Machine) -> tuple[int, ...]:
    return machine.node_ids or tuple(range(machine.sockets * machine.nodes))


def _threads(machine: Machine) -> dict[int, _Place]:
    ids = _node_ids(machine)
    total = machine.sockets * machine.nodes * machine.cores
    return {
        (thread * total + core) * machine.cpu_step: _Place(
            core // (machine.nodes * machine.cores), ids[core // machine.cores], core
        )
        for thread in range(machine.threads)
        for core in range(total)
    }


def _expected(machine: Machine, threads: dict[int, _Place], online: Set) -> Topology:
    def groups(level: int) -> dict[int, Set]:
        units: dict[int, set[int]] = {}
        for cpu in sorted(online):
            units.setdefault(threads[cpu][level], set()).add(cpu)
        return {unit: frozenset(cpus) for unit, cpus in units.items()}

    by_socket, by_node, by_core = (groups(level) for level in range(3))
    sockets = {str(socket): cpus for socket, cpus in by_socket.items()}
    if not machine.socket_ids:
        sockets = {f"?{index}": cpus for index, cpus in enumerate(ordered(by_socket.values()))}
    ids = sorted({*_node_ids(machine), *machine.bare_nodes}) if machine.numa else []
    pools = {node: {**dict.fromkeys(machine.page_sizes, 0), **machine.pools.get(node, {})} for node in ids}
    nodes = {node: NumaNode(node, by_node.get(node, frozenset()), machine.memory_kib, pools[node]) for node in ids}
    distances = tuple(tuple(10 if row == column else 20 for column in ids) for row in ids)
    pci = {
        address: PciDevice(address, node, "0x020000", "0x1af4", "0x1041", nodes[node].cpus if node in nodes else online)
        for address, node in sorted(machine.pci.items())
    }
    return Topology(
        online=online,
        offline_present=machine.offline,
        isolated=machine.isolated,
        sockets=sockets,
        socket_ids_known=machine.socket_ids,
        cores=ordered(by_core.values()),
        l3=ordered(by_socket.values()),
        dies=ordered(by_socket.values()),
        numa=nodes,
        distances=distances if machine.numa else None,
        distance_nodes=tuple(ids) if machine.numa else None,
        machine_memory_kib=machine.memory_kib * max(len(ids), 1),
        global_hugepages={size: sum(pool[size] for pool in pools.values()) for size in sorted(machine.page_sizes)},
        pci=pci,
        net=dict(sorted(machine.net.items())),
    )


def _write_cpu(tree: _Tree, machine: Machine, topology: Topology, cpu: int, place: _Place) -> None:
    folder = f"{CPU}/cpu{cpu}/topology"
    socket = next(cpus for cpus in topology.sockets.values() if cpu in cpus)
    tree.text(f"{folder}/physical_package_id", place.socket if machine.socket_ids else -1)
    tree.text(f"{folder}/core_id", place.core % machine.cores)
    tree.text(f"{folder}/die_id", 0)
    tree.text(f"{folder}/cluster_id", 65535)
    tree.cpus(machine, folder, ("core_cpus", "core_cpus_list"), topology.siblings_of([cpu]))
    tree.cpus(machine, folder, ("package_cpus", "package_cpus_list"), socket)
    tree.cpus(machine, folder, ("die_cpus", "die_cpus_list"), socket)
    tree.cpus(machine, folder, ("cluster_cpus", "cluster_cpus_list"), frozenset({cpu}))
    for index, (level, kind, cpus) in enumerate(
        [
            (1, "Data", topology.siblings_of([cpu])),
            (1, "Instruction", topology.siblings_of([cpu])),
            (3, "Unified", socket),
        ]
    ):
        cache = f"{CPU}/cpu{cpu}/cache/index{index}"
        tree.text(f"{cache}/level", level)
        tree.text(f"{cache}/type", kind)
        tree.cpus(machine, cache, ("shared_cpu_map", "shared_cpu_list"), cpus)


def _write_nodes(tree: _Tree, machine: Machine, topology: Topology) -> None:
    tree.text(f"{NODE}/online", cpuset.format(topology.numa))
    for row, node in zip(topology.distances or (), topology.numa.values()):
        folder = f"{NODE}/node{node.id}"
        # The kernel shows online CPUs only here.
        tree.cpus(machine, folder, ("cpumap", "cpulist"), node.cpus)
        tree.text(f"{folder}/distance", " ".join(map(str, row)))
        tree.text(f"{folder}/meminfo", f"Node {node.id} MemTotal:       {node.memory_kib} kB")
        for size, count in node.hugepages.items():
            for file in ("nr_hugepages", "free_hugepages"):
                tree.text(f"{folder}/hugepages/hugepages-{size}kB/{file}", count)


def _write_devices(tree: _Tree, machine: Machine, topology: Topology) -> None:
    for device in topology.pci.values():
        address = device.address
        folder = f"sys/devices/pci{address[:7]}/{address}"
        tree.text(f"{folder}/numa_node", device.numa_node)
        tree.text(f"{folder}/class", device.pci_class)
        tree.text(f"{folder}/vendor", device.vendor)
        tree.text(f"{folder}/device", device.device)
        tree.cpus(machine, folder, ("local_cpus", "local_cpulist"), device.local_cpus or frozenset())
        tree.link(f"sys/bus/pci/devices/{address}", f"../../../devices/pci{address[:7]}/{address}")
    for index, (name, place) in enumerate(sorted(machine.net.items())):
        home = "virtual" if place is None else f"pci{place[:7]}/{place}"
        home += f"/virtio{index}/net" if name in machine.virtio else "/net"
        tree.text(f"sys/devices/{home}/{name}/mtu", 1500)
        tree.link(f"sys/class/net/{name}", f"../../devices/{home}/{name}")
