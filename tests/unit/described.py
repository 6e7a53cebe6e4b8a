# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Machines that described_machines/ has as small texts: their kernel files, and what discovery must find in those.

A text names the CPUs of each core, cache, socket and node, offline ones included; ``files`` writes what a kernel shows of
them, ``facts`` says the same in the form of the recorded machines' expectations.
"""

from __future__ import annotations

import typing as t
from pathlib import Path

import yaml
from fake_cpusets import Cpus, read_list, shown_list
from trees import mask

FOLDER = Path(__file__).resolve().parent / "described_machines"
CPU = "/sys/devices/system/cpu"
NODE = "/sys/devices/system/node"
GROUPS = ("cores", "dies", "clusters", "books", "drawers", "l3")
# The kernel's files of each group that a CPU is in.
FILES = {
    "cores": ("core_cpus", "core_cpus_list"),
    "dies": ("die_cpus", "die_cpus_list"),
    "clusters": ("cluster_cpus", "cluster_cpus_list"),
    "books": ("book_siblings", "book_siblings_list"),
    "drawers": ("drawer_siblings", "drawer_siblings_list"),
}
IDS = {"dies": "die_id", "clusters": "cluster_id", "books": "book_id", "drawers": "drawer_id"}


class Described:
    """A text, read. The members of all groups are online CPUs."""

    def __init__(self, path: Path) -> None:
        data = yaml.safe_load(path.read_text(encoding="utf-8"))
        self.present = Cpus().union(*map(read_list, data["cores"].split()))
        self.offline = read_list(str(data.get("offline", "")))
        self.online = self.present - self.offline
        self.isolated = read_list(str(data.get("isolated", "")))
        self.groups = {name: self.members(str(data[name]).split()) for name in GROUPS if name in data}
        self.sockets = dict(zip(data["sockets"], self.members(data["sockets"].values())))
        self.kinds = dict(zip(data.get("kinds", {}), self.members(data.get("kinds", {}).values())))
        self.capacities = dict(zip(data.get("capacities", {}), self.members(data.get("capacities", {}).values())))
        self.nodes: dict[int, dict[str, t.Any]] = data.get("nodes", {})
        self.node_cpus = {node: read_list(str(one.get("cpus", ""))) & self.online for node, one in self.nodes.items()}
        self.distances: list[list[int]] | None = data.get("distances")
        self.page_sizes: list[int] = data.get("page_sizes", [2048, 1048576])
        self.devices: dict[str, int] = data.get("devices", {})
        memory = data.get("memory_mib") or sum(one["memory_mib"] for one in self.nodes.values())
        self.memory_kib = memory << 10

    def members(self, texts: t.Iterable[str]) -> list[Cpus]:
        """The online CPUs of each group that has some."""
        return [cpus for cpus in (read_list(str(text)) & self.online for text in texts) if cpus]


def files(path: Path) -> dict[str, str]:
    """What the kernel shows of a described machine."""
    one = Described(path)
    found = {
        f"{CPU}/online": shown_list(one.online),
        f"{CPU}/present": shown_list(one.present),
        f"{CPU}/isolated": shown_list(one.isolated),
        "/proc/meminfo": f"MemTotal:       {one.memory_kib} kB",
        **{f"/sys/devices/cpu_{kind}/cpus": shown_list(cpus) for kind, cpus in one.kinds.items()},
        **{f"{CPU}/cpu{cpu}/online": str(int(cpu in one.online)) for cpu in one.present if cpu},
    }
    bits = 32 * (max(one.present) // 32 + 1)

    def show(folder: str, names: tuple[str, str], cpus: Cpus) -> None:
        found.update({f"{folder}/{names[0]}": mask(cpus, bits), f"{folder}/{names[1]}": shown_list(cpus)})

    for name, groups in one.groups.items():
        for number, cpus in enumerate(groups):
            for cpu in cpus:
                if name == "l3":
                    cache = f"{CPU}/cpu{cpu}/cache/index3"
                    found.update({f"{cache}/level": "3", f"{cache}/type": "Unified"})
                    show(cache, ("shared_cpu_map", "shared_cpu_list"), cpus)
                else:
                    show(f"{CPU}/cpu{cpu}/topology", FILES[name], cpus)
                    found.update({f"{CPU}/cpu{cpu}/topology/{IDS[name]}": str(number)} if name in IDS else {})
    for socket, cpus in one.sockets.items():
        for cpu in cpus:
            show(f"{CPU}/cpu{cpu}/topology", ("package_cpus", "package_cpus_list"), cpus)
            found[f"{CPU}/cpu{cpu}/topology/physical_package_id"] = str(socket)
    for capacity, cpus in one.capacities.items():
        found.update({f"{CPU}/cpu{cpu}/cpu_capacity": str(capacity) for cpu in cpus})
    for number, node in enumerate(one.nodes):
        folder = f"{NODE}/node{node}"
        show(folder, ("cpumap", "cpulist"), one.node_cpus[node])
        found[f"{folder}/distance"] = " ".join(map(str, (one.distances or [])[number]))
        found[f"{folder}/meminfo"] = f"Node {node} MemTotal:       {one.nodes[node]['memory_mib'] << 10} kB"
        found.update({f"{folder}/hugepages/hugepages-{size}kB/nr_hugepages": "0" for size in one.page_sizes})
    found.update({f"/sys/kernel/mm/hugepages/hugepages-{size}kB/nr_hugepages": "0" for size in one.page_sizes})
    for address, node in one.devices.items():
        found[f"/sys/devices/pci{address[:7]}/{address}/numa_node"] = str(node)
    return {place: f"{text}\n" for place, text in found.items()}


def facts(path: Path) -> dict[str, t.Any]:
    """What discovery must find."""
    one = Described(path)
    known = all(socket >= 0 for socket in one.sockets)
    pages = {str(size): 0 for size in one.page_sizes}
    lists = {name: [sorted(cpus) for cpus in groups] for name, groups in one.groups.items()}
    kinds = one.kinds or {f"capacity-{capacity}": cpus for capacity, cpus in one.capacities.items()}
    return {
        **{name: None for name in GROUPS if name != "l3"},
        "l3": [],
        **lists,
        "online": sorted(one.online),
        "offline_present": sorted(one.offline),
        "isolated": sorted(one.isolated),
        "sockets": {
            str(socket) if known else f"?{number}": sorted(cpus)
            for number, (socket, cpus) in enumerate(one.sockets.items())
        },
        "socket_ids_known": known,
        "kinds": [{"name": name, "cpus": sorted(cpus)} for name, cpus in kinds.items()],
        "numa": {
            str(node): {"cpus": sorted(one.node_cpus[node]), "memory_kib": row["memory_mib"] << 10, "hugepages": pages}
            for node, row in one.nodes.items()
        },
        "distances": one.distances,
        "distance_nodes": list(one.nodes) or None,
        "machine_memory_kib": one.memory_kib,
        "global_hugepages": pages,
        "pci_numa_node": dict(sorted(one.devices.items())),
        "notes": [],
    }
