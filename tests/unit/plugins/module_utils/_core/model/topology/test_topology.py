# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import json

from _core.model.topology.topology import NumaNode, PciDevice, Topology, ordered, to_dict
from topology_json import from_dict


def cpus(*ids: int) -> frozenset[int]:
    return frozenset(ids)


SMT = Topology(
    online=cpus(0, 1, 2, 4, 5),
    offline_present=cpus(3),
    isolated=cpus(5),
    sockets={"0": cpus(0, 1, 2), "7": cpus(4, 5)},
    cores=(cpus(0, 1), cpus(2), cpus(4, 5)),
    l3=(cpus(0, 1, 2), cpus(4, 5)),
    dies=(cpus(0, 1, 2), cpus(4, 5)),
    numa={
        0: NumaNode(0, cpus(0, 1), 1024, {2048: 3}),
        2: NumaNode(2, cpus(4, 5), 2048, {}),
        3: NumaNode(3, cpus(), None, {1048576: 0}),
    },
    distances=((10, 20, 30), (20, 10, 30), (30, 30, 10)),
    distance_nodes=(0, 2, 3),
    machine_memory_kib=3072,
    global_hugepages={2048: 3},
    pci={"0000:01:00.0": PciDevice("0000:01:00.0", 2, "0x020000", "0x8086", None, cpus(4, 5))},
    net={"lo": None, "eth0": "0000:01:00.0"},
    kinds=(("core", cpus(0, 1)), ("atom", cpus(2, 4, 5))),
    notes=("odd",),
)


def test_json_round_trip() -> None:
    assert from_dict(json.loads(json.dumps(to_dict(SMT)))) == SMT
    assert from_dict(to_dict(Topology(online=cpus()))) == Topology(online=cpus())


def test_json_has_text_keys_and_lists() -> None:
    data = to_dict(SMT)
    assert data["numa"]["0"] == {"cpus": [0, 1], "memory_kib": 1024, "hugepages": {"2048": 3}}
    assert data["pci_numa_node"] == {"0000:01:00.0": 2}
    assert data["clusters"] is None


def test_siblings_close_over_online_threads() -> None:
    assert SMT.siblings_of([0, 2]) == {0, 1, 2}
    assert SMT.siblings_of([]) == set()
    assert SMT.siblings_of([99]) == {99}


def test_every_online_cpu_has_one_node() -> None:
    assert SMT.node_cpus() == {0: {0, 1, 2}, 2: {4, 5}, 3: set()}


def test_machine_without_numa_is_the_pseudo_node_0() -> None:
    bare = Topology(online=cpus(1, 2))
    assert bare.node_cpus() == {0: {1, 2}}


def test_groups_are_ordered_by_lowest_cpu() -> None:
    assert ordered([cpus(4), cpus(), cpus(1, 9), cpus(4), cpus(0)]) == (cpus(0), cpus(1, 9), cpus(4))
