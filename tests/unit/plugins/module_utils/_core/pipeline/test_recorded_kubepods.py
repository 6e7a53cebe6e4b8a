# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What is found of the pods of real kubelets, whose control groups tests/lab/record_pods.py has recorded."""

from __future__ import annotations

import copy
import json
import typing as t
from pathlib import Path

import pytest
import yaml
from _core.host.kubelet import kubelet_node
from _core.model.values import cpuset
from test_kubelet_inspection import FLAGS, Tree, findings

FOLDER = Path(__file__).resolve().parents[4] / "recorded_kubepods"
RECORDED = {path.stem: yaml.safe_load(path.read_text(encoding="utf-8")) for path in sorted(FOLDER.glob("*.yml"))}


class Node(Tree):
    """A node with the pods of a recording, ``data``; the names of its containers are those of their pods."""

    def __init__(self, folder: Path, name: str) -> None:
        super().__init__(folder)
        self.run(*FLAGS)
        self.data = copy.deepcopy(RECORDED[name])
        self.is_v1 = name.endswith("-v1")
        if self.is_v1:
            (folder / "sys/fs/cgroup/cgroup.controllers").unlink()
        self.base = f"sys/fs/cgroup{'/cpuset' if self.is_v1 else ''}"
        self.lay(self.base, self.data["groups"])
        for log in self.data["logs"]:
            self.write(f"var/log/containers/{log}", "")
        for pod in self.data["pods"]:
            (folder / "var/lib/kubelet/pods" / pod).mkdir(parents=True)
        self.write("var/lib/kubelet/cpu_manager_state", json.dumps(self.data["cpu_manager_state"]))

    def lay(self, path: str, groups: t.Mapping[str, t.Any]) -> None:
        """Write the files of control groups."""
        for name, what in groups.items():
            if isinstance(what, str):
                self.write(f"{path}/{name}", f"{what}\n")
            else:
                self.lay(f"{path}/{name}", what)

    def group(self, pod: str) -> Path:
        """The control group of a pod's container, by the name of its log."""
        (log,) = [log for log in self.data["logs"] if log.startswith(f"{pod}-")]
        digits = log.rpartition("-")[2].partition(".")[0]
        (found,) = [path for path in (self.folder / self.base).rglob(f"*{digits}*") if path.is_dir()]
        return found

    def move(self, pod: str, cpus: str) -> None:
        """Give a pod's container other CPUs."""
        for file in self.group(pod).glob("cpuset*cpus*"):
            file.write_text(f"{cpus}\n")

    def uid(self, cpus: str) -> str:
        """The pod that has these CPUs by the kubelet's state."""
        entries = self.data["cpu_manager_state"]["entries"]
        return next(uid for uid, own in entries.items() if own == {"main": cpus})


@pytest.fixture(params=sorted(RECORDED))
def node(request: pytest.FixtureRequest, tmp_path: Path) -> Node:
    return Node(tmp_path, request.param)


def test_a_real_kubelets_pods_and_its_state_fit(node: Node) -> None:
    state = node.data["cpu_manager_state"]
    look, found = node.look(), kubelet_node.containers(node.host)
    assert (look.findings, look.refusals, look.config.problems) == ((), (), ())
    named = {one.pod_name: cpuset.format(one.cpus) for one in found if one.name}
    cpus = {uid: own["main"] for uid, own in state["entries"].items()}
    assert {one.pod: cpuset.format(one.cpus) for one in found if one.name and one.pod in cpus} == cpus
    assert sorted(named.values()) == sorted([*cpus.values(), state["defaultCpuSet"]])
    sandboxes = [one for one in found if not one.name]
    assert len(sandboxes) == len(named), "one a pod, on all CPUs"
    assert {one.pod for one in found} <= set(node.data["pods"])


def test_what_others_did_to_them_is_found(node: Node) -> None:
    node.move("shared", "0-7")
    node.move("second", "3")
    kinds = {(kind, subject.partition("-")[0]) for kind, subject, dummy in findings(node.look())}
    assert kinds == {("overlap", "default/shared"), ("other_cpus", "default/second")}


def test_a_pod_that_went_while_no_kubelet_ran_leaks(node: Node) -> None:
    cpus = node.group("second").joinpath("cpuset.cpus").read_text().strip()
    gone = node.uid(cpus)
    pod = node.group("second").parent
    pod.rename(node.folder / "gone")
    (node.folder / "var/lib/kubelet/pods" / gone).rmdir()
    assert findings(node.look()) == [("leaked", gone, cpus)]
