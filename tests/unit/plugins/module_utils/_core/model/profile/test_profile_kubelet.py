# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The section kubelet of a profile: how it is read, refused and written."""

from __future__ import annotations

import typing as t

import pytest
from _core.model.profile import profile
from _core.model.profile.profile_kubelet import Kubelet
from _core.model.values.errors import CorralError

WHOLE = {
    "optional": True,
    "drain": "/usr/local/sbin/drain-node",
    "cpu_manager_policy": "static",
    "cpu_manager_policy_options": {"full-pcpus-only": True, "strict-cpu-reservation": True},
    "cpu_manager_reconcile_period": "5s",
    "memory_manager_policy": "static",
    "reserved_memory": {"0": "1Gi", "1": "612Mi"},
    "topology_manager_policy": "restricted",
    "topology_manager_scope": "pod",
    "topology_manager_policy_options": {"prefer-closest-numa-nodes": True, "max-allowable-numa-nodes": 16},
    "system_reserved": {"memory": "1Gi", "pid": "1k"},
    "kube_reserved": {"memory": "512Mi", "ephemeral-storage": "1Gi"},
    "reserve_formula": "gke-v1",
    "enforce_node_allocatable": ["pods"],
    "eviction_hard": {"memory.available": "100Mi", "nodefs.available": "10%", "pid.available": "0"},
    "eviction_soft": {"memory.available": "1Gi"},
    "eviction_soft_grace_period": {"memory.available": "1m30s"},
    "pod_pids_limit": 4096,
    "max_pods": 50,
    "image_gc_high_threshold_percent": 80,
    "image_gc_low_threshold_percent": 70,
    "image_minimum_gc_age": "2m",
    "image_maximum_gc_age": "30d",
    "container_log_max_size": "10Mi",
    "container_log_max_files": 5,
    "fail_swap_on": False,
    "swap_behavior": "LimitedSwap",
}


def parse(**kubelet: t.Any) -> Kubelet | None:
    return profile.parse({"name": "x", "kubelet": kubelet}).kubelet


def refusals(data: dict[str, t.Any]) -> list[str]:
    with pytest.raises(CorralError) as refused:
        profile.parse({"name": "x", **data})
    return str(refused.value).splitlines()


def test_all_of_it_is_read_and_written_again() -> None:
    found = profile.parse({"name": "x", "kubelet": WHOLE})
    assert profile.to_data(found)["kubelet"] == WHOLE
    assert found.kubelet is not None
    assert [key for key, value in found.kubelet._asdict().items() if value is None] == [
        "system_reserved_cgroup",
        "kube_reserved_cgroup",
    ]
    assert found.kubelet.cpu_manager_policy_options == ("full-pcpus-only", "strict-cpu-reservation")
    assert found.kubelet.reserved_memory == {0: 1 << 30, 1: 612 << 20}
    assert found.kubelet.eviction_soft_grace_period == {"memory.available": 90}


def test_what_is_left_out_is_not_declared_and_an_empty_section_of_options_is() -> None:
    assert parse() == Kubelet()
    found = parse(cpu_manager_policy_options={}, topology_manager_policy_options={}, eviction_hard={})
    assert found == Kubelet(cpu_manager_policy_options=(), topology_manager_policy_options={}, eviction_hard={}), (
        "then all options are off, and all thresholds are gone"
    )
    assert profile.parse({"name": "x"}).kubelet is None


CPU = {"cpu": {"reserved": {"count": 2}}}
REFUSED: list[tuple[dict[str, t.Any], str]] = [
    (
        {"kubelet": {"eviction_hard": {"memory.available": "100%"}}},
        'kubelet.eviction_hard["memory.available"]: 100%: is not a share of less than 100%: write it as in 10%',
    ),
    (
        {"kubelet": {"eviction_hard": {"memory": "1Gi"}}},
        (
            "kubelet.eviction_hard.memory: the key is not known: write memory.available or nodefs.available or nodefs.inodesFree or "
            "imagefs.available or imagefs.inodesFree or containerfs.available or containerfs.inodesFree or pid.available or "
            "allocatableMemory.available"
        ),
    ),
    (
        {"kubelet": {"eviction_soft": {"memory.available": "1Gi"}}},
        'kubelet.eviction_soft["memory.available"]: 1Gi: has no grace period: declare it in kubelet.eviction_soft_grace_period as well',
    ),
    (
        {"kubelet": {"system_reserved": {"cpu": "-1"}}},
        "kubelet.system_reserved.cpu: -1: is negative: write 0 or more",
    ),
    (
        {"kubelet": {"system_reserved": {"memory": 1.5}}},
        "kubelet.system_reserved.memory: 1.5: is not a whole number of bytes: write it as 512Mi",
    ),
    (
        {"kubelet": {"kube_reserved": {"ephemeral-storage": 10}}},
        "kubelet.kube_reserved.ephemeral-storage: 10: is less than 1Mi: write it with its unit, such as 512Mi",
    ),
    (
        {"kubelet": {"kube_reserved": {"pid": "1.5"}}},
        "kubelet.kube_reserved.pid: 1.5: is not a whole number: write it as 512",
    ),
    (
        {"kubelet": {"eviction_hard": {"memory.available": 500, "nodefs.inodesFree": 500}}},
        'kubelet.eviction_hard["memory.available"]: 500: is less than 1Mi: write it with its unit, such as 512Mi',
    ),
    (
        {"kubelet": {"eviction_hard": {"nodefs.available": "500m"}}},
        'kubelet.eviction_hard["nodefs.available"]: 500m: is not a whole number of bytes: write it as 512Mi',
    ),
    (
        {"kubelet": {"reserved_memory": {"0": 612}}},
        "kubelet.reserved_memory.0: 612: is less than 1Mi: write it with its unit, such as 512Mi",
    ),
    (
        {"kubelet": {"container_log_max_size": 10}},
        "kubelet.container_log_max_size: 10: is less than 1Ki: write it with its unit, such as 10Mi",
    ),
    (
        {"kubelet": {"eviction_hard": {"memory.available": "500MB"}}},
        'kubelet.eviction_hard["memory.available"]: 500MB: is neither a quantity nor a share in percent: did you mean 500Mi?',
    ),
    ({"kubelet": {"reserve_formula": "gke"}}, "kubelet.reserve_formula: gke: is not known: write gke-v1"),
    (
        {"kubelet": {"drain": "drain node7"}},
        (
            "kubelet.drain: drain node7: is neither none nor the absolute path of a program, without arguments: write it as in "
            "/usr/local/sbin/drain-node"
        ),
    ),
    (
        {
            "kubelet": {
                "cpu_manager_policy_options": dict.fromkeys(("full-pcpus-only", "distribute-cpus-across-cores"), True)
            }
        },
        (
            "kubelet.cpu_manager_policy_options.distribute-cpus-across-cores: true: cannot be combined with full-pcpus-only (the kubelet's "
            "rule): leave one out"
        ),
    ),
    (
        {"kubelet": {"image_minimum_gc_age": "0s"}},
        "kubelet.image_minimum_gc_age: 0s: is the kubelet's word for its default (2m0s): write 1s or more, or leave it out",
    ),
    (
        {"kubelet": {"cpu_manager_reconcile_period": "0s"}},
        "kubelet.cpu_manager_reconcile_period: 0s: is the kubelet's word for its default (10s): write 1s or more, or leave it out",
    ),
    (
        {**CPU, "kubelet": {"system_reserved": {"cpu": "500m"}}},
        "kubelet.system_reserved.cpu: 500m: the reserved CPUs are those of cpu.reserved: leave it out",
    ),
    (
        {**CPU, "kubelet": {"kube_reserved_cgroup": "/kube.slice"}},
        (
            "kubelet.kube_reserved_cgroup: /kube.slice: the kubelet does not take it beside reservedSystemCPUs, which the section cpu "
            "sets: leave it out"
        ),
    ),
    (
        {"cpu": {**CPU["cpu"], "policy": "static"}, "kubelet": {}},
        (
            "cpu.policy: static: gives the shared CPUs to workloads of Corral, and the kubelet gives the same ones to pods: leave out "
            "cpu.policy"
        ),
    ),
    (
        {"cpu": {**CPU["cpu"], "shared": {"slices": ["kubepods.slice"]}}, "kubelet": {}},
        "cpu.shared.slices[0]: kubepods.slice: the kubelet sets the CPUs of pods: leave it out",
    ),
    (
        {
            "kubelet": {
                "eviction_soft": {"memory.available": "1Gi"},
                "eviction_soft_grace_period": {"memory.available": 90},
            }
        },
        'kubelet.eviction_soft_grace_period["memory.available"]: 90: has no unit: write seconds as 90s, or such as 2m, 1h30m or 7d',
    ),
    (
        {"kubelet": {"reserved_system_cpus": "0-1"}},
        "kubelet.reserved_system_cpus: unknown key: did you mean cpu.reserved.cpus?",
    ),
]


@pytest.mark.parametrize(("data", "line"), REFUSED, ids=[line[:60] for dummy, line in REFUSED])
def test_it_is_refused_with_path_value_and_way_out(data: dict[str, t.Any], line: str) -> None:
    assert refusals(data) == [line]
