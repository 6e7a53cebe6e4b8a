# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The lab's stand-in for a kubelet refuses what a kubelet refuses, with its words: by the kubelet's own cases, and as Corral expects it."""

from __future__ import annotations

import json
import sys
import typing as t
from pathlib import Path

import pytest
from _core.model.kubelet import start_checks, state_files
from _core.model.kubelet.start_checks import CpuSettings
from _core.model.kubelet.state_files import CPU, StateRefused
from _core.model.values import cpuset
from hypothesis import given
from hypothesis import strategies as st
from shared_data import cases

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "lab"))
import kubelet_standin

ONLINE = frozenset(range(6))
CPUS = st.frozensets(st.sampled_from(sorted(ONLINE)))
# Of a feature gate, and of files of version 1, which are 1.17's: it has neither.
OTHERS = ("restore-08", "restore-14")


def is_read(case: dict[str, t.Any]) -> bool:
    """Whether the stand-in reads such a file."""
    is_cpu = case["file"] == CPU.file and not case["pod_level_resource_managers"]
    return is_cpu and bool(case["content"]) and not case["initial_containers"] and case["id"] not in OTHERS


def said_by_standin(config: dict[str, t.Any], path: Path, online: frozenset[int]) -> str:
    """Why it ends; "" where it does not."""
    try:
        kubelet_standin.check_state(config, str(path), set(online))
    except ValueError as error:
        return str(error)
    return ""


@pytest.mark.parametrize("case", cases("checkpoint_restore.json", is_read))
def test_the_kubelets_own_cases(case: dict[str, t.Any], tmp_path: Path) -> None:
    path = tmp_path / "cpumanager_checkpoint_test"
    path.write_text(case["content"])
    said = said_by_standin({"cpuManagerPolicy": case["policy"]}, path, ONLINE)
    assert said.replace(str(tmp_path), "DIR") == case["actual_error"]


@given(
    own=st.sampled_from(["none", "static"]),
    policy=st.sampled_from(["none", "static"]),
    default=CPUS,
    taken=st.dictionaries(st.sampled_from(["a", "b"]), st.dictionaries(st.sampled_from(["x", "y"]), CPUS), max_size=2),
    reserved=CPUS.filter(bool),
    offline=st.frozensets(st.sampled_from(sorted(ONLINE)), max_size=2),
    strict=st.booleans(),
    apart=st.booleans(),
)
def test_it_says_what_corral_expects_of_a_kubelet(
    tmp_path_factory: pytest.TempPathFactory,
    own: str,
    policy: str,
    default: frozenset[int],
    taken: dict[str, dict[str, frozenset[int]]],
    reserved: frozenset[int],
    offline: frozenset[int],
    strict: bool,
    apart: bool,
) -> None:
    """``apart``: a file that a kubelet would write, whose sets do not overlap and are all CPUs together."""
    online = ONLINE - offline
    if apart:
        seen = reserved
        for containers in taken.values():
            for name, cpus in containers.items():
                containers[name] = cpus - seen
                seen |= cpus
        default = online - frozenset().union(*(cpus for of in taken.values() for cpus in of.values()))
        default -= reserved if strict else frozenset()
    entries = {uid: {name: cpuset.format(cpus) for name, cpus in of.items()} for uid, of in taken.items()}
    sums = kubelet_standin.checksum(own, cpuset.format(default), entries)
    path = tmp_path_factory.mktemp("state") / CPU.file
    text = json.dumps(
        {"policyName": own, "defaultCpuSet": cpuset.format(default), "entries": entries, "checksum": sums}
    )
    path.write_text(text)
    options = {"cpuManagerPolicyOptions": {"strict-cpu-reservation": "true"}} if strict else {}
    config = {"cpuManagerPolicy": policy, "reservedSystemCPUs": cpuset.format(reserved), **options}
    try:
        state = state_files.restore_cpus(text, policy)
    except StateRefused as error:
        expected = state_files.advice(CPU, str(path), str(error))
    else:
        try:
            start_checks.check_cpus(state, CpuSettings(policy, online, reserved, strict))
            expected = ""
        except StateRefused as error:
            expected = str(error)
    assert said_by_standin(config, path, online) == expected


@pytest.mark.parametrize("policy", ["none", "static"])
def test_the_file_that_it_makes_is_one_with_which_a_kubelet_starts(policy: str, tmp_path: Path) -> None:
    path = tmp_path / CPU.file
    config = {"cpuManagerPolicy": policy, "reservedSystemCPUs": "0-1"}
    for dummy in range(2):
        assert said_by_standin(config, path, ONLINE) == ""
        state = state_files.restore_cpus(path.read_text(), policy)
        start_checks.check_cpus(state, CpuSettings(policy, ONLINE, frozenset({0, 1})))
    assert json.loads(path.read_text())["checksum"] != 0


@pytest.mark.parametrize(
    ("config", "said"),
    [
        (
            {"cpuManagerPolicyOptions": {"full-pcpus-only": "true"}},
            "None policy: received unsupported options=map[full-pcpus-only:true]",
        ),
        (
            {"cpuManagerPolicy": "static"},
            "[cpumanager] the static policy requires systemreserved.cpu + kubereserved.cpu to be greater than zero",
        ),
    ],
)
def test_a_policy_that_cannot_be(config: dict[str, t.Any], said: str) -> None:
    with pytest.raises(ValueError) as error:
        kubelet_standin.check_policy(config)
    assert str(error.value) == said
    kubelet_standin.check_policy({"cpuManagerPolicy": "static", "systemReserved": {"cpu": "1"}})
    kubelet_standin.check_policy({})
