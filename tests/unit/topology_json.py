# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The JSON of ``corral topology`` read back: what a program can learn from it."""

from __future__ import annotations

import typing as t

from _core.model.topology.topology import Groups, NumaNode, PciDevice, Topology
from _core.model.values.cpuset import CpuSet

GROUPS = ("dies", "clusters", "books", "drawers")


def from_dict(data: t.Mapping[str, t.Any]) -> Topology:
    """The topology that to_dict wrote. Raises KeyError, TypeError or ValueError on anything else."""
    pci = {
        str(address): PciDevice(
            str(address),
            int(device["numa_node"]),
            device["class"],
            device["vendor"],
            device["device"],
            optional_set(device["local_cpus"]),
            bool(device["node_known"]),
        )
        for address, device in data["pci"].items()
    }
    numa = {
        int(node): NumaNode(int(node), frozenset(facts["cpus"]), facts["memory_kib"], number_keys(facts["hugepages"]))
        for node, facts in data["numa"].items()
    }
    distances, global_hugepages = data["distances"], data["global_hugepages"]
    optional = {name: None if data[name] is None else sets(data[name]) for name in GROUPS}
    return Topology(
        online=frozenset(data["online"]),
        offline_present=frozenset(data["offline_present"]),
        isolated=optional_set(data["isolated"]),
        sockets={str(socket): frozenset(cpus) for socket, cpus in data["sockets"].items()},
        socket_ids_known=bool(data["socket_ids_known"]),
        cores=sets(data["cores"]),
        l3=sets(data["l3"]),
        numa=numa,
        distances=None if distances is None else tuple(tuple(row) for row in distances),
        distance_nodes=None if data["distance_nodes"] is None else tuple(data["distance_nodes"]),
        machine_memory_kib=data["machine_memory_kib"],
        global_hugepages=None if global_hugepages is None else number_keys(global_hugepages),
        pci=pci,
        net=dict(data["net"]),
        kinds=tuple((str(kind["name"]), frozenset(kind["cpus"])) for kind in data["kinds"]),
        notes=tuple(data["notes"]),
        **optional,
    )


def sets(groups: t.Iterable[t.Iterable[int]]) -> Groups:
    return tuple(frozenset(group) for group in groups)


def optional_set(cpus: t.Iterable[int] | None) -> CpuSet | None:
    return None if cpus is None else frozenset(cpus)


def number_keys(pages: t.Mapping[str, int]) -> dict[int, int]:
    return {int(size): int(count) for size, count in pages.items()}
