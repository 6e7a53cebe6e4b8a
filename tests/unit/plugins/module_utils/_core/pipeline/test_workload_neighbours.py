# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Workloads beside others on the node: a kubelet that gives out the same CPUs, and containers started past Corral."""

from __future__ import annotations

import json
import typing as t

import node
import pytest
from _core import reconcile
from _core.model import profile
from _core.model.errors import CorralError

KUBELET = """\
kind: KubeletConfiguration
cpuManagerPolicy: {policy}
cpuManagerPolicyOptions:
  strict-cpu-reservation: "{strict}"
reservedSystemCPUs: "{reserved}"
"""
CONTAINER = "ab" * 32
SCOPE = f"/sys/fs/cgroup/machine.slice/libpod-{CONTAINER}.scope"


def declared(*workloads: dict[str, t.Any]) -> profile.Profile:
    cpu = {"reserved": {"cpus": "0,4"}, "policy": "static"}
    return profile.parse({"name": "beside", "cpu": cpu, "workloads": list(workloads)})


def own(cpus: int) -> dict[str, t.Any]:
    return {"name": "own", "match": {"unit": "own.service"}, "limits": {"cpu": cpus, "memory": "64Mi"}}


def run_kubelet(fake: node.Node, *, policy: str = "static", strict: str = "true", reserved: str = "0-2,4-6") -> None:
    fake.put("/sys/fs/cgroup/system.slice/kubelet.service/cgroup.events", "populated 1\nfrozen 0\n")
    fake.put("/var/lib/kubelet/config.yaml", KUBELET.format(policy=policy, strict=strict, reserved=reserved))


def granted(fake: node.Node, workload: dict[str, t.Any]) -> frozenset[int]:
    context = reconcile.compile_profile(fake.host(), declared(workload))
    return context.grants[0].cpus if context.grants else frozenset()


def test_beside_a_kubelet_only_what_it_gives_to_no_pod_is_granted(fake: node.Node) -> None:
    assert granted(fake, own(5)) & {3, 7}
    run_kubelet(fake)
    assert granted(fake, own(4)) == {1, 5, 2, 6}
    assert granted(fake, own(5)) == frozenset()


@pytest.mark.parametrize("kubelet", [{"policy": "none"}, {"strict": "false"}, {"reserved": "0,4"}], ids=str)
def test_a_kubelet_that_keeps_nothing_to_itself_leaves_nothing_to_grant(
    kubelet: dict[str, str], fake: node.Node
) -> None:
    run_kubelet(fake, **kubelet)
    with pytest.raises(CorralError) as refused:
        reconcile.declare(fake.host(), declared(own(2)))
    (problem,) = refused.value.problems
    assert problem.path == "workloads[0].requests.cpu"
    assert "2 CPUs missing: 0 are free" in problem.message
    assert "kubelet.service runs here" in problem.message
    assert "reservedSystemCPUs" in problem.message


def test_who_shares_is_no_matter_of_the_kubelets(fake: node.Node) -> None:
    run_kubelet(fake, policy="none")
    feed = {"name": "feed", "match": {"unit": "feed.service"}, "requests": {"cpu": "500m"}}
    assert not reconcile.declare(fake.host(), declared(feed)).error


def start_container(fake: node.Node, name: str, *, populated: bool = True) -> None:
    rows = [{"id": CONTAINER, "names": [name], "image": "0", "layer": "1"}]
    fake.put("/var/lib/containers/storage/overlay-containers/containers.json", json.dumps(rows))
    fake.put(f"{SCOPE}/cgroup.events", f"populated {int(populated)}\nfrozen 0\n")


HELD = {"name": "held", "match": {"container": "held-*"}, "hold": "running", "limits": {"cpu": 2, "memory": "64Mi"}}


def items(fake: node.Node) -> list[tuple[str, str, str]]:
    context = reconcile.compile_profile(fake.host(), declared(HELD))
    return [
        (change.subject, change.property, change.reason)
        for change in reconcile.plan_profile(fake.host(), context).changes
        if change.manager == "workloads" and change.property == "slice"
    ]


def test_a_container_past_corral_is_named_with_the_way_out(fake: node.Node) -> None:
    assert not reconcile.declare(fake.host(), declared(HELD)).error
    start_container(fake, "held-1")
    ((subject, dummy, reason),) = items(fake)
    assert subject == "held"
    assert "--cgroup-parent=corral_held.slice" in reason


@pytest.mark.parametrize(("name", "populated"), [("other", True), ("held-1", False)])
def test_others_and_dead_ones_are_not(name: str, populated: bool, fake: node.Node) -> None:
    assert not reconcile.declare(fake.host(), declared(HELD)).error
    start_container(fake, name, populated=populated)
    assert items(fake) == []


@pytest.mark.parametrize(
    "text", ["", "{", "[]", "{}", "[1]", '[{"names": ["held-1"]}]', '[{"id": 1, "names": 5}]', "[[]]"]
)
def test_a_list_of_containers_that_is_none_tells_of_none(text: str, fake: node.Node) -> None:
    assert not reconcile.declare(fake.host(), declared(HELD)).error
    start_container(fake, "held-1")
    fake.put("/var/lib/containers/storage/overlay-containers/containers.json", text)
    assert items(fake) == []
