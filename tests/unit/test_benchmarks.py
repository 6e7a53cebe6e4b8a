# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Each benchmark runs once, in its smallest form; for those on a virtual node something else answers in that node's place."""

from __future__ import annotations

import collections
import contextlib
import importlib
import re
import sys
import types
import typing as t
from pathlib import Path

import pytest
import recorded
import trees
import yaml
from _core.model.cpu import pools
from _core.model.profile import node_intent, profile
from _core.model.values import cpuset
from documented import REPOSITORY
from machines import machine

BENCHMARKS = REPOSITORY / "tests" / "benchmarks"
FEW = recorded.machines()[:4]
SMALL = trees.Machine(sockets=2, cores=4, threads=2, memory_kib=8 << 20)
COST = types.SimpleNamespace(seconds=1.0, cpu=1.0, memory=1, said="n1 : ok=2 changed=0 unreachable=0 failed=0")
# The options of each, and its sizes.
SMALLEST: dict[str, tuple[str, dict[str, t.Any]]] = {
    "allocate": ("--turns 1", {"COUNTS": (1,), "LARGE": ((16, 2, 2),), "LARGE_COUNTS": (1,)}),
    "collect": ("--turns 1 --deciding-only", {}),
    "compile": (
        "--turns 1",
        {"OWN": Path("/none"), "RECORDED": Path("/none"), "MORE_CPUS": ((8, 2, 2), (16, 2, 2)), "MORE_NODES": ((8, 1, 1),)},
    ),
    "devices": ("--turns 1", {"DEVICES": 16, "COUNTS": (1,), "GRANTED": 2, "TENANTS": 1}),
    "fleet": ("--turns 1", {"SIZES": (10,), "recorded.machines": lambda: FEW}),
    "handover_planning": ("--turns 1", {"SIZES": (4,)}),
    "hints": ("--turns 1", {"SIZES": (2,)}),
    "kubelet_pods": ("--turns 1", {"SIZES": (1,), "CPUS": 16, "compiled": lambda dummy: str(REPOSITORY / "plugins/module_utils")}),
    "many_units": ("", {"NUMBERS": (1, 2), "tick_node.LARGE": SMALL}),
    # test_rollout_fake_nodes.py plays rollouts on these nodes.
    "rollout_fleet": ("--hosts 1", {"cost": lambda *dummy: COST, "fake_fleet.FakeFleet.not_rolled_out": lambda dummy: []}),
    "tick": (f"--turns 1 --fake --workloads 6 --python {sys.executable}", {"tick_node.LARGE": SMALL}),
}  # fmt: skip
ON_A_NODE = {"handover": "--turns 1", "rollout": "--first 1 --turns 1", "tenants": "--turns 1"}


def answers(benchmark: types.ModuleType, script: Path) -> t.Mapping[str, t.Any]:
    """What a script on the node measured: of everything the same."""
    if script.name == "handover_node.py":
        runs, floors = [{"calls": 2, "window": 1.0, "whole": 2.0}], {"systemctl": [1.0], "bus": [1.0]}
        return {"runs": runs, "floors": floors, "samples": 1, "overlaps": 0}
    rows = [*vars(benchmark).get("STARTED", ()), *vars(benchmark).get("STOPPED", ())]
    return collections.defaultdict(lambda: [1.0], {name: [1.0] for name, dummy in rows})


@pytest.fixture
def load(monkeypatch: pytest.MonkeyPatch) -> t.Callable[[str, str], types.ModuleType]:
    """Loads a benchmark, which takes these options."""
    if not BENCHMARKS.is_dir():
        pytest.skip("the benchmarks are not in the built collection")

    def module(name: str, options: str) -> types.ModuleType:
        for folder in (REPOSITORY / "tools", BENCHMARKS):
            monkeypatch.syspath_prepend(str(folder))
        monkeypatch.setattr(sys, "argv", [name, *options.split()])
        return importlib.import_module(name)

    return module


def test_each_benchmark_is_here() -> None:
    makefile = (REPOSITORY / "Makefile").read_text(encoding="utf-8")
    assert {*SMALLEST, *ON_A_NODE} == set(re.findall(r"tests/benchmarks/(\w+)\.py(?: |\n)", makefile))


@pytest.mark.parametrize("name", SMALLEST)
def test_a_benchmark_prints_its_table(
    name: str,
    load: t.Callable[[str, str], types.ModuleType],
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    options, sizes = SMALLEST[name]
    benchmark = load(name, options)
    for constant, value in sizes.items():
        monkeypatch.setattr(constant if "." in constant else f"{name}.{constant}", value)
    assert not benchmark.main()
    out, progress = capfd.readouterr()
    assert re.search(r"^\| ---.*\n\| ", out, re.MULTILINE), out
    assert [line for line in progress.splitlines() if not line.startswith("==> ")] == []


@pytest.mark.parametrize("name", ON_A_NODE)
def test_a_benchmark_on_a_node_prints_its_table(
    name: str,
    load: t.Callable[[str, str], types.ModuleType],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    benchmark = load(name, ON_A_NODE[name])
    lab_node = sys.modules["lab_node"]
    played: list[str] = []

    def play(*words: t.Any) -> t.Any:
        played.append(words[2])
        assert (BENCHMARKS / "playbooks" / f"{words[2]}.yml").is_file()
        return lab_node.Play(1.0, 2, 0, "SSH: EXEC")

    stand_ins: dict[str, t.Any] = {
        "node": contextlib.nullcontext,
        "play": play,
        "tools": Path,
        "script": lambda path, dummy: (0, answers(benchmark, path)),
    }
    for place in (benchmark, lab_node):
        for function in stand_ins.keys() & vars(place).keys():
            monkeypatch.setattr(place, function, stand_ins[function])
    assert benchmark.main() == 0
    assert re.search(r"^\| ---.*\n\| ", capsys.readouterr().out, re.MULTILINE)
    assert played


def test_the_stock_playbook_sets_what_corral_makes_of_the_profile() -> None:
    """Both are to leave the lab's node in the same state: else the figures compare two things."""
    if not BENCHMARKS.is_dir():
        pytest.skip("the benchmarks are not in the built collection")
    (play,) = yaml.safe_load((BENCHMARKS / "playbooks/stock.yml").read_text(encoding="utf-8"))
    edge = profile.parse(yaml.safe_load((REPOSITORY / "examples/edge.yml").read_text(encoding="utf-8")))
    topology = machine()
    declared = node_intent.resolve(edge, topology).profile
    found = pools.compute(declared, topology)
    assert declared.cpu
    cpus = dict.fromkeys(declared.cpu.reserved.slices, found.reserved)
    cpus.update(dict.fromkeys((*declared.cpu.shared_slices, "corral.slice"), found.shared))
    cpus["corral_isolated.slice"] = found.isolated
    slices = {row["unit"]: row for row in play["vars"]["slices"]}
    assert {unit: row["cpus"] for unit, row in slices.items()} == {one: cpuset.format(cpus[one]) for one in cpus}
    assert [unit for unit, row in slices.items() if "partition" in row] == ["corral_isolated.slice"]
    tasks = {unit: row["tasks"] for unit, row in slices.items() if "tasks" in row}
    assert tasks == {row.slice: str(row.tasks_max) for row in declared.pids.slices}
    assert {row["name"]: row["value"] for row in play["vars"]["sysctls"]} == {
        "kernel.pid_max": str(declared.pids.pid_max),
        "kernel.threads-max": str(declared.pids.threads_max),
    }
    files = {
        f"/sys/devices/system/node/node{pool.node}/hugepages/hugepages-{pool.size_kib}kB/nr_hugepages": str(pool.pages)
        for pool in declared.memory.hugepages
    }
    assert {row["file"]: row["count"] for row in play["vars"]["hugepages"]} == files
