# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""One profile on every recorded and described machine: pools, or a reason that a person understands."""

from __future__ import annotations

import typing as t
from pathlib import Path

import described
import pytest
import yaml
from _core.model.cpu import pools
from _core.model.profile import capacity_check, profile
from _core.model.values.errors import CorralError
from recorded import machines, topology_of
from shared_data import REPOSITORY, TOPOLOGIES
from test_pools import check, sets

EXAMPLES = sorted(set((REPOSITORY / "examples").glob("*.yml")) - {REPOSITORY / "examples" / "prometheus-rules.yml"})

INTENTS: dict[str, dict[str, t.Any]] = {
    "one": {"reserved": {"count": 1}},
    "cores": {"reserved": {"cores_per_numa": 1}},
    "cores-isolated": {"reserved": {"cores_per_numa": 1}, "isolated": {"cores": 1}, "whole_cores": True},
    "count-isolated": {"reserved": {"count": 3}, "isolated": {"cores": 2}, "whole_cores": True},
    "node": {"reserved": {"count": 1}, "isolated": {"cores": 1, "numa": 1}},
    "literal": {"reserved": {"cpus": "0-1"}, "isolated": {"cpus": "2-3"}},
    "huge": {"reserved": {"count": 64}, "isolated": {"cores": 64}},
    "near": {"reserved": {"count": 1}, "isolated": {"cores": 1, "near": "ens1f0"}},
}


@pytest.mark.parametrize("archive", machines())
@pytest.mark.parametrize("intent", INTENTS)
def test_an_intent_compiles_or_is_refused(archive: Path, intent: str) -> None:
    cpu, topology = INTENTS[intent], topology_of(archive)
    try:
        found = pools.compute(profile.parse({"name": "x", "cpu": cpu}), topology)
    except CorralError as exc:
        for problem in exc.problems:
            assert problem.path.startswith("cpu")
            assert problem.value is not None or problem.path == "cpu"
            assert any(mark in problem.message for mark in (": ", "; "))
        return
    check(found, cpu, topology)


@pytest.mark.parametrize("archive", machines())
def test_a_modest_intent_compiles_wherever_it_can(archive: Path) -> None:
    topology = topology_of(archive)
    check(pools.compute(profile.parse({"name": "x", "cpu": INTENTS["one"]}), topology), INTENTS["one"], topology)
    nodes = [cpus for cpus in topology.node_cpus().values() if cpus]
    if len(topology.online) > sum(max(len(core) for core in topology.cores) for dummy in nodes):
        check(
            pools.compute(profile.parse({"name": "x", "cpu": INTENTS["cores"]}), topology), INTENTS["cores"], topology
        )


@pytest.mark.parametrize("archive", machines())
@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.stem)
def test_an_example_fits_or_is_refused(archive: Path, example: Path) -> None:
    read = profile.parse(yaml.safe_load(example.read_text(encoding="utf-8")))
    for problem in capacity_check.check_node(read, topology_of(archive)):
        assert problem.path
        assert any(mark in problem.message for mark in (": ", "; "))
    capacity_check.notes(read, topology_of(archive))


EACH: dict[str, t.Any] = {"cores_per_numa": 1}
DESCRIBED: list[tuple[str, dict[str, t.Any], list[str] | str]] = [
    # As the scenarios rollout and endure read it from the kernel of the lab's nodes.
    ("lab-two-nodes", {"reserved": EACH, "isolated": {"cores": 1, "numa": 1}, "whole_cores": True},
     ["0-1,4-5", "2-3", "6-7"]),
    ("lab-four-nodes", {"reserved": EACH, "isolated": {"cores": 1, "near": "0000:41:00.0"}, "whole_cores": True},
     ["0-1,4-5,8-9,12-13", "2-3,10-11,14-15", "6-7"]),
    # What is offline is in no pool; a core that has lost a thread is a core.
    ("sparse-guest", {"reserved": EACH}, ["0-1,8,20-21", "2-3,10-11", ""]),
    ("sparse-guest", {"reserved": {"cpus": "0,9"}},
     ("cpu.reserved.cpus: 0,9: this node has CPUs 0-3,8,10-11,20-21 (and 9, which is offline); "
      "name CPUs among those, or use cores_per_numa")),
    ("sparse-guest", {"reserved": {"count": 1}, "isolated": {"cores": 1, "numa": 1}},
     "cpu.isolated.numa: 1: the NUMA nodes with CPUs are 0,2,5: name one of them"),
    ("memory-nodes", {"reserved": EACH, "isolated": {"cores": 1, "near": "0030:01:00.0"}},
     ["0-1,12-13", "4-5,8-9,20-21", "16-17"]),
    ("memory-nodes", {"reserved": EACH, "isolated": {"cores": 1, "numa": 252}},
     "cpu.isolated.numa: 252: NUMA node 252 has no CPUs; name another, such as numa: 0, the nearest that has"),
    ("many-nodes", {"reserved": EACH, "isolated": {"cores": 2, "near": "0000:c1:00.0"}},
     ["0,8,16,24,32,40,48,56,64,72,80,88,96,104,112,120",
      "1-7,9-15,17-23,25-31,33-39,43-47,49-55,57-63,65-71,73-79,81-87,89-95,97-103,107-111,113-119,121-127", "41-42,105-106"]),
    ("hybrid", {"reserved": EACH, "isolated": {"cores": 2}}, ["0-1", "5-11", "2-4"]),
    ("big-little", {"reserved": {"count": 1}, "isolated": {"cores": 1}}, ["0", "2-5", "1"]),
    ("arm-clusters", {"reserved": EACH, "isolated": {"cores": 2, "numa": 3}}, ["0,8,16,24", "1-7,9-15,17-23,27-31", "25-26"]),
    ("mainframe", {"reserved": {"cores_per_numa": 2}, "isolated": {"cores": 1, "numa": 0}}, ["0-3", "6-13", "4-5"]),
]  # fmt: skip


@pytest.mark.parametrize(
    ("name", "cpu", "expected"), DESCRIBED, ids=[f"{name}-{number}" for number, (name, *_rest) in enumerate(DESCRIBED)]
)
def test_described_machines(name: str, cpu: dict[str, t.Any], expected: list[str] | str) -> None:
    compiles_to(described.FOLDER / f"{name}.yml", cpu, expected)


def compiles_to(archive: Path, cpu: dict[str, t.Any], expected: list[str] | str) -> None:
    """These pools, reserved, shared and isolated; or a refusal in these words."""
    read = profile.parse({"name": "x", "cpu": cpu})
    if isinstance(expected, list):
        assert sets(pools.compute(read, topology_of(archive))) == expected
        return
    with pytest.raises(CorralError) as refused:
        pools.compute(read, topology_of(archive))
    assert str(refused.value) == expected


KNOWN: list[tuple[str, dict[str, t.Any], list[str] | str]] = [
    # The kernel isolates 4-7,60-63; two of its six NUMA nodes have no CPUs.
    ("nri-server", {"reserved": {"cores_per_numa": 1}, "isolated": {"cores": 1, "numa": 1}, "whole_cores": True},
     ["0-3,56-59", "4,6-55,60,62-111", "5,61"]),
    ("nri-server", {"reserved": {"count": 1}, "isolated": {"cores": 1, "numa": 4}},
     "cpu.isolated.numa: 4: NUMA node 4 has no CPUs; name another, such as numa: 0, the nearest that has"),
    # Sparse CPU ids, CPU 4 offline, eight nodes; one of its nodes has a single core left.
    ("hwloc-16amd64-8n2c-cpusets", {"reserved": {"cores_per_numa": 1}}, ["0,2,5-6,8,10,12,14", "1,3,7,9,11,13,15", ""]),
    ("hwloc-16amd64-8n2c-cpusets", {"reserved": {"cpus": "3-5"}},
     ("cpu.reserved.cpus: 3-5: this node has CPUs 0-3,5-15 (and 4, which is offline); name CPUs among those, or use cores_per_numa")),
    # Hybrid: the two CPUs of a core are a core, and so is one slow CPU.
    ("hwloc-20em64t-hybrid-1p6c2t+2ca4co1t", {"reserved": {"cores_per_numa": 1}, "isolated": {"cores": 2}}, ["0-1", "6-19", "2-5"]),
    # No NUMA directory.
    ("hwloc-20s390-2g6s4c", {"reserved": {"cores_per_numa": 2}, "isolated": {"cores": 1, "numa": 0}}, ["0-1", "3-19", "2"]),
    ("hwloc-2arm-2c", {"reserved": {"count": 2}},
     "cpu.reserved.count: 2: this node has 2 CPUs: reserve at most 1, so that one is left to share"),
    # Node ids are sparse: 0, 2, 3.
    ("ul-x86_64-64cpu", {"reserved": {"count": 1}, "isolated": {"cores": 1, "numa": 1}},
     "cpu.isolated.numa: 1: the NUMA nodes with CPUs are 0,2-3: name one of them"),
    ("ul-ppc64-POWER7", {"reserved": {"count": 1}, "whole_cores": True}, ["0-3", "4-15", ""]),
]  # fmt: skip


@pytest.mark.parametrize(
    ("name", "cpu", "expected"), KNOWN, ids=[f"{name}-{number}" for number, (name, *_rest) in enumerate(KNOWN)]
)
def test_known_machines(name: str, cpu: dict[str, t.Any], expected: list[str] | str) -> None:
    archive = TOPOLOGIES / f"{name}.tar.gz"
    if not archive.is_file():
        pytest.skip(f"no {archive}; point CORRAL_TOPOLOGIES at the recorded machines")
    compiles_to(archive, cpu, expected)


@pytest.mark.parametrize("archive", machines())
def test_devices_lead_to_their_node(archive: Path) -> None:
    topology = topology_of(archive)
    nodes = [node for node, cpus in topology.node_cpus().items() if cpus]
    for address, device in topology.pci.items():
        cpu = {"reserved": {"cpus": str(min(topology.online))}, "isolated": {"cores": 1, "near": address}}
        try:
            found = pools.compute(profile.parse({"name": "x", "cpu": cpu}), topology)
        except CorralError as exc:
            assert device.numa_node not in nodes, exc
            assert "write numa: one of" in str(exc) or "such as numa" in str(exc)
            continue
        node = device.numa_node if device.numa_node >= 0 else nodes[0]
        assert found.isolated <= topology.node_cpus()[node]
