# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Control groups of pods by their names, and what assignments and CPUs say of each other."""

from __future__ import annotations

import pytest
from _core.model.kubelet import pod_cgroups, pod_findings
from _core.model.kubelet.pod_cgroups import Container
from _core.model.kubelet.state_files import CpuState

ID = "0123456789abcdef" * 4
UID = "0b2a1f8e-0a1b-4c2d-8e3f-1234567890ab"
SYSTEMD = UID.replace("-", "_")
STATIC_POD = "0123456789abcdef0123456789abcdef"  # a static pod's UID is a hash


@pytest.mark.parametrize(
    ("path", "pod"),
    [
        (f"kubepods.slice/kubepods-pod{SYSTEMD}.slice/cri-containerd-{ID}.scope", UID),
        (f"kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod{SYSTEMD}.slice/crio-{ID}.scope", UID),
        (f"kubepods.slice/kubepods-besteffort.slice/kubepods-besteffort-pod{STATIC_POD}.slice/docker-{ID}.scope", STATIC_POD),
        (f"kubelet.slice/kubelet-kubepods.slice/kubelet-kubepods-pod{SYSTEMD}.slice/cri-containerd-{ID}.scope", UID),
        (f"kubepods/pod{UID}/{ID}", UID),
        (f"kubepods/burstable/pod{UID}/{ID}", UID),
        (f"kubelet/kubepods/besteffort/pod{UID}/crio-{ID}", UID),
    ],
)  # fmt: skip
def test_a_containers_pod_is_in_its_path(path: str, pod: str) -> None:
    assert pod_cgroups.container_of(path) == Container(pod, ID)


@pytest.mark.parametrize(
    "path",
    [
        "kubepods.slice",
        f"kubepods.slice/kubepods-pod{SYSTEMD}.slice",
        f"kubepods.slice/kubepods-pod{SYSTEMD}.slice/crio-conmon-{ID}.scope",
        f"kubepods/pod{UID}/{ID}/inner",
        f"system.slice/docker-{ID}.scope",
    ],
)
def test_what_is_no_container_is_none(path: str) -> None:
    assert pod_cgroups.container_of(path) is None


def test_a_link_of_a_log_names_pod_and_container() -> None:
    found = pod_cgroups.named_by_log(f"web-5c7-x2x4z_default_side-car-{ID}.log")
    assert found == Container("", ID, frozenset(), "default/web-5c7-x2x4z", "side-car")
    assert pod_cgroups.named_by_log("README") is None


STATE = CpuState("static", frozenset({0, 1, 2, 3}), {"pod": {"main": frozenset({4, 5}), "side": frozenset({6})}}, {})


def kinds(state: CpuState, *containers: Container) -> list[tuple[str, str, str]]:
    return [(one.kind, one.container, one.cpus) for one in pod_findings.of_containers(state, containers)]


def test_a_container_on_the_cpus_assigned_to_it_and_a_shared_one_beside_it_are_well() -> None:
    main = Container("pod", ID, frozenset({4, 5}), "ns/pod", "main")
    shared = Container("other", ID, frozenset({0, 1, 2, 3}), "ns/other", "web")
    assert not kinds(STATE, main, shared)


def test_a_container_with_other_cpus_than_its_own_is_found() -> None:
    assert kinds(STATE, Container("pod", ID, frozenset({4}), "ns/pod", "main")) == [("other_cpus", "main", "4")]


def test_a_shared_container_on_exclusive_cpus_is_found_with_their_pod() -> None:
    web = Container("other", ID, frozenset(range(8)), "ns/other", "web")
    assert kinds(STATE, web) == [("overlap", "web", "4-6")]
    assert "pod pod" in pod_findings.of_containers(STATE, [web])[0].message


def test_a_shared_container_of_the_same_pod_may_not_use_them_either() -> None:
    assert kinds(STATE, Container("pod", ID, frozenset({0, 6}), "ns/pod", "init")) == [("overlap", "init", "6")]


def test_a_container_whose_name_is_not_known_may_be_the_one_of_its_pods_cpus() -> None:
    assert not kinds(STATE, Container("pod", ID, frozenset({4, 5})))
    assert kinds(STATE, Container("other", ID, frozenset({4}))) == [("overlap", ID[:12], "4")]


def test_a_sandbox_beside_containers_with_logs_is_on_all_cpus_by_design() -> None:
    named = Container("other", "b" * 64, frozenset({7}), "ns/o", "x")
    sandbox = Container("other", ID, frozenset(range(8)))
    assert kinds(STATE, sandbox, named) == []
    assert kinds(STATE, sandbox) == [("overlap", ID[:12], "4-6")]


def test_the_containers_of_a_pod_with_cpus_of_its_own_share_them() -> None:
    state = CpuState("static", frozenset({0}), {}, {"pod": frozenset({4, 5})})
    assert not kinds(state, Container("pod", ID, frozenset({4, 5}), "ns/pod", "main"))
    assert kinds(state, Container("other", ID, frozenset({5}), "ns/o", "x")) == [("overlap", "x", "5")]


def test_an_assignment_without_a_pod_is_a_leak_once() -> None:
    cpus = pod_findings.exclusive_of(STATE)
    found = pod_findings.leaked(["pod", "pod", "there", "of-memory"], {"there"}, cpus)
    assert [(one.subject, one.cpus) for one in found] == [("of-memory", ""), ("pod", "4-6")]


def test_containers_without_a_kubelet_are_counted() -> None:
    containers = [Container("a", "1"), Container("a", "2"), Container("b", "3")]
    (found,) = pod_findings.of_stopped(False, containers)
    assert found.message.startswith("3 containers of 2 pods run")
    assert not pod_findings.of_stopped(True, containers)
    assert not pod_findings.of_stopped(False, [])
