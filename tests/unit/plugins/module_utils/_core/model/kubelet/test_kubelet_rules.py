# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Contradictions in a kubelet's configuration, each with the place that declares it, its value and the way out."""

from __future__ import annotations

import typing as t

import pytest
from _core.model.kubelet import kubelet_drift, kubelet_rules, kubelet_sizing
from _core.model.kubelet.kubelet_config import Layer, effective
from _core.model.kubelet.kubelet_sizing import Amount
from _core.model.kubelet.kubelet_wanted import ASKED_BY, Machine, Wanted
from hypothesis import given
from hypothesis import strategies as st

MIB, GIB = 1 << 20, 1 << 30
MACHINE = Machine(
    (1, 36),
    frozenset(range(8)),
    sockets=2,
    numa={0: {"memory": 4 * GIB, "hugepages-2Mi": 512 * MIB}, 1: {"memory": 4 * GIB}},
    memory=8 * GIB,
    pids=32768,
)
FILE = "/var/lib/kubelet/config.yaml"
STATIC = {"cpuManagerPolicy": "static", "reservedSystemCPUs": "0-1"}


def found(config: dict[str, t.Any], machine: Machine = MACHINE, own: tuple[str, ...] = ()) -> list[str]:
    in_force = effective([Layer(FILE, config)])
    return [problem.line() for problem in kubelet_rules.problems(in_force, machine, own)]


def test_the_defaults_and_a_usual_static_policy_are_right() -> None:
    assert found({}) == []
    memory = [{"numaNode": 0, "limits": {"memory": "1124Mi"}}]
    usual = {
        **STATIC,
        "memoryManagerPolicy": "Static",
        "systemReserved": {"memory": "1Gi", "pid": "1000"},
        "podPidsLimit": 256,
    }
    assert found({**usual, "reservedMemory": memory, "topologyManagerPolicy": "single-numa-node"}) == []


@pytest.mark.parametrize(
    "reserve",
    [{"systemReserved": {"cpu": "500m"}}, {"kubeReserved": {"cpu": "1"}}, {"reservedSystemCPUs": "0"}],
    ids=["system", "kube", "list"],
)
def test_each_of_the_kubelets_reserves_is_enough_for_the_policy_static(reserve: dict[str, t.Any]) -> None:
    assert found({"cpuManagerPolicy": "static", **reserve}) == []


WAYS_OUT = ("declare ", "leave ", "write ", "reserve ", "name ", "take ", "turn it off")
OPTIONS = "cpuManagerPolicyOptions"
REFUSED: list[tuple[dict[str, t.Any], dict[str, t.Any], str]] = [
    ({**STATIC, "reservedSystemCPUs": "7-9"}, {}, "reservedSystemCPUs: 7-9: CPUs 8-9 are not online"),
    ({**STATIC, "systemReservedCgroup": "/system.slice"}, {}, "systemReservedCgroup: /system.slice: the kubelet does not take it"),
    ({"cpuManagerPolicy": "static"}, {}, "cpuManagerPolicy: static: needs reserved CPUs"),
    ({**STATIC, "reservedSystemCPUs": "0-7"}, {}, "reservedSystemCPUs: 0-7: leaves no CPU for pods"),
    (STATIC, {"isolated": frozenset({7})}, "cpuManagerPolicy: static: pods of other classes would run on the isolated CPUs 7"),
    (STATIC, {"isolcpus": frozenset({1, 6})}, "reservedSystemCPUs: 0-1: pods share CPUs 6, on which the kernel balances no load"),
    ({OPTIONS: {"full-pcpus-only": "true"}}, {}, "cpuManagerPolicyOptions: full-pcpus-only: the policy none takes no options"),
    (
        {**STATIC, OPTIONS: {"full-pcpus-only": "true", "distribute-cpus-across-cores": "1"}}, {},
        "cpuManagerPolicyOptions.distribute-cpus-across-cores: true: cannot be combined with full-pcpus-only",
    ),
    (
        {**STATIC, OPTIONS: {"align-by-socket": "true"}, "topologyManagerPolicy": "single-numa-node"}, {},
        "cpuManagerPolicyOptions.align-by-socket: true: cannot be combined with the topology policy single-numa-node",
    ),
    ({**STATIC, OPTIONS: {"align-by-socket": "true"}}, {"sockets": 3}, "cpuManagerPolicyOptions.align-by-socket: true: this machine"),
    (
        {"topologyManagerPolicy": "single-numa-node", "topologyManagerPolicyOptions": {"prefer-closest-numa-nodes": "true"}}, {},
        "topologyManagerPolicyOptions.prefer-closest-numa-nodes: true: has no effect with the policy single-numa-node",
    ),
    (
        {"topologyManagerPolicy": "restricted"}, {"numa": {node: {"memory": GIB} for node in range(9)}},
        "topologyManagerPolicy: restricted: this machine has 9 NUMA nodes and the kubelet starts with at most 8",
    ),
    ({"enforceNodeAllocatable": ["pods", "none"]}, {}, "enforceNodeAllocatable: none: cannot be combined"),
    ({"enforceNodeAllocatable": ["pods"], "cgroupsPerQOS": False}, {}, "enforceNodeAllocatable: pods: needs cgroupsPerQOS"),
    ({"enforceNodeAllocatable": ["system-reserved"]}, {}, "enforceNodeAllocatable: system-reserved: needs systemReservedCgroup"),
    *(
        ({"enforceNodeAllocatable": ["kube-reserved"], "kubeReservedCgroup": group, "cgroupDriver": driver},
         {"absent_groups": {"/b.slice", "/a.slice/a-b.slice", "/kube.slice"}}, f"kubeReservedCgroup: {group}: {said}")
        for driver, group, said in (
            ("cgroupfs", "/b.slice", "there is no control group /b.slice, and"),
            ("systemd", "/b", "there is no control group /b.slice, and"),
            ("systemd", "/a.slice/a-b.slice", "there is no control group /a.slice/a-b.slice, and"),
            ("systemd", "/kube", "there is no control group /kube.slice, and"),
            ("systemd", "/a.slice/kubelet.service", "is no slice, and systemd's driver"),
            ("cgroupfs", "/a.slice/kubelet.service", "is no slice, and systemd's driver"),
        )
    ),
    (
        {"enforceNodeAllocatable": ["system-reserved-compressible"], "systemReservedCgroup": "/s"}, {"absent_groups": {"/s"}},
        "systemReservedCgroup: /s: there is no control group /s",
    ),
    (
        {"memoryManagerPolicy": "Static", "reservedMemory": [{"numaNode": 0, "limits": {"memory": "100Mi", "hugepages-2Mi": "4Mi"}}]}, {},
        "reservedMemory: hugepages-2Mi: no reserve has hugepages",
    ),
    (
        {"enforceNodeAllocatable": ["kube-reserved", "kube-reserved-compressible"], "kubeReservedCgroup": "/kube"}, {},
        "enforceNodeAllocatable: kube-reserved-compressible: cannot be combined with kube-reserved",
    ),
    ({"evictionSoft": {"memory.available": "1Gi"}}, {}, "evictionSoft.memory.available: 1Gi: has no grace period"),
    (
        {"evictionSoft": {"nodefs.available": "5%"}, "evictionSoftGracePeriod": {"nodefs.available": "1m"}}, {},
        "evictionSoft.nodefs.available: 5%: is below the hard threshold 10%",
    ),
    ({"imageGCLowThresholdPercent": 85}, {}, "imageGCLowThresholdPercent: 85: is not below imageGCHighThresholdPercent (85)"),
    ({"imageMaximumGCAge": "1m"}, {}, "imageMaximumGCAge: 1m: is not more than imageMinimumGCAge (2m0s)"),
    ({"imageGCHighThresholdPercent": 90}, {}, "imageGCHighThresholdPercent: 90: pods are evicted from 85% on"),
    (
        {"systemReserved": {"pid": "40000"}}, {},
        "systemReserved.pid: 40000: leaves nothing of the 32768 tasks of this machine",
    ),
    ({"podPidsLimit": 1024}, {}, "podPidsLimit: 1024: 110 pods with 1024 tasks each and 0 reserved ones are more than the 32768"),
    ({"systemReserved": {"memory": "8Gi"}}, {}, "systemReserved.memory: 8Gi: with the eviction threshold and hugepages of 512Mi"),
    ({"memoryManagerPolicy": "Static"}, {}, "memoryManagerPolicy: Static: needs reservedMemory"),
    (
        {"memoryManagerPolicy": "Static", "reservedMemory": [{"numaNode": 0, "limits": {"memory": "1Gi"}}]}, {},
        "reservedMemory: adds up to 1Gi, but kubeReserved, systemReserved and the hard eviction threshold of memory add up to 100Mi",
    ),
    (
        {"memoryManagerPolicy": "Static", "reservedMemory": [{"numaNode": 2, "limits": {"memory": "100Mi"}}]}, {},
        "reservedMemory: 2: this machine has no NUMA node 2",
    ),
    (
        {
            "memoryManagerPolicy": "Static", "systemReserved": {"memory": "3900Mi"},
            "reservedMemory": [{"numaNode": 0, "limits": {"memory": "4000Mi"}}],
        }, {},
        "reservedMemory: 4000Mi: NUMA node 0 has 4096Mi, of which hugepages are 512Mi",
    ),
    ({"failSwapOn": True}, {"swap": True}, "failSwapOn: true: swap is on here"),
    ({}, {"swap": True}, "failSwapOn: true: swap is on here"),
    ({"memorySwap": {"swapBehavior": "LimitedSwap"}}, {"swap": True}, "failSwapOn: true: swap is on here, and the kubelet"),
    ({**STATIC, "kubeReservedCgroup": "/kube.slice"}, {}, "kubeReservedCgroup: /kube.slice: the kubelet does not take it"),
    (
        {OPTIONS: {"full-pcpus-only": "true", "align-by-socket": "true"}}, {},
        "cpuManagerPolicyOptions: align-by-socket, full-pcpus-only: the policy none takes no options",
    ),
    (
        {**STATIC, OPTIONS: {"align-by-socket": "true"}}, {"numa": {0: {"memory": 8 * GIB}}},
        "cpuManagerPolicyOptions.align-by-socket: true: this machine has 2 sockets and fewer NUMA nodes",
    ),
    (
        {"topologyManagerPolicyOptions": {"prefer-closest-numa-nodes": "true"}}, {},
        "topologyManagerPolicyOptions.prefer-closest-numa-nodes: true: has no effect with the policy none",
    ),
    (
        {"topologyManagerPolicy": "best-effort", "topologyManagerPolicyOptions": {"max-allowable-numa-nodes": "9"}},
        {"numa": {node: {"memory": GIB} for node in range(10)}},
        "topologyManagerPolicy: best-effort: this machine has 10 NUMA nodes and the kubelet starts with at most 9",
    ),
    ({"enforceNodeAllocatable": "pods"}, {}, "enforceNodeAllocatable: is not a list"),
    (
        {"enforceNodeAllocatable": ["kube-reserved-compressible"]}, {},
        "enforceNodeAllocatable: kube-reserved-compressible: needs kubeReservedCgroup",
    ),
    (
        {"evictionSoft": {"memory.available": "99Mi"}, "evictionSoftGracePeriod": {"memory.available": "1m"}}, {},
        "evictionSoft.memory.available: 99Mi: is below the hard threshold 100Mi",
    ),
    ({"imageMaximumGCAge": "2m"}, {}, "imageMaximumGCAge: 2m: is not more than imageMinimumGCAge (2m0s)"),
    (
        {"evictionHard": {"nodefs.available": "20%"}}, {},
        "imageGCHighThresholdPercent: 85: pods are evicted from 80% on (nodefs.available 20%), before images go: write at most 80",
    ),
    ({"imageGCHighThresholdPercent": 86}, {}, "imageGCHighThresholdPercent: 86: pods are evicted from 85% on"),
    ({"systemReserved": {"pid": 32768}}, {}, "systemReserved.pid: 32768: leaves nothing of the 32768 tasks"),
    ({"kubeReserved": {"pid": "32768"}}, {}, "kubeReserved.pid: 32768: leaves nothing of the 32768 tasks"),
    (
        {"podPidsLimit": 256, "maxPods": 128, "kubeReserved": {"pid": "1"}}, {},
        ("podPidsLimit: 256: 128 pods with 256 tasks each and 1 reserved ones are more than the 32768 tasks of this machine (pid_max, "
         "threads-max): write at most 255"),
    ),
    (
        {"podPidsLimit": 2, "maxPods": 40000}, {},
        ("podPidsLimit: 2: 40000 pods with 2 tasks each and 0 reserved ones are more than the 32768 tasks of this machine (pid_max, "
         "threads-max): write at most 1,"),
    ),
    (
        {"podPidsLimit": 40000, "maxPods": 1}, {},
        ("podPidsLimit: 40000: 1 pods with 40000 tasks each and 0 reserved ones are more than the 32768 tasks of this machine (pid_max, "
         "threads-max): write at most 32768,"),
    ),
    (
        {"memoryManagerPolicy": "Static", "reservedMemory": [{"numaNode": 0, "limits": {"memory": "0"}}]}, {},
        "reservedMemory: adds up to 0, but kubeReserved, systemReserved and the hard eviction threshold of memory add up to 100Mi",
    ),
    (
        {"memorySwap": {"swapBehavior": "NoSwap"}, "failSwapOn": True}, {"swap": True},
        "failSwapOn: true: swap is on here, and the kubelet would not start",
    ),
    (
        {"systemReserved": {"memory": "7600Mi"}}, {},
        "systemReserved.memory: 7600Mi: with the eviction threshold and hugepages of 512Mi that is 8212Mi, and this machine has 8192Mi",
    ),
    # 8Gi less hugepages of 512Mi and the threshold of 100Mi.
    ({"kubeReserved": {"memory": "7580Mi"}}, {}, "kubeReserved.memory: 7580Mi: with the eviction threshold and hugepages of 512Mi"),
    ({"evictionHard": {"memory.available": "7680Mi"}}, {}, "evictionHard.memory.available: 7680Mi: with the eviction threshold"),
    ({"memoryManagerPolicy": "Static", "reservedMemory": [{"limits": {"memory": "100Mi"}}]}, {}, "memoryManagerPolicy: Static: needs"),
    (
        {
            "memoryManagerPolicy": "Static", "systemReserved": {"memory": "3484Mi"},
            "reservedMemory": [{"numaNode": 0, "limits": {"memory": "3584Mi"}}],
        }, {},
        "reservedMemory: 3584Mi: NUMA node 0 has 4096Mi, of which hugepages are 512Mi",
    ),
    *(
        ({key: "x"}, {}, f"{key}: x: is not a mapping, and the kubelet would not start")
        for key in (
            "cpuManagerPolicyOptions", "topologyManagerPolicyOptions", "systemReserved", "kubeReserved", "evictionHard", "evictionSoft",
            "evictionSoftGracePeriod", "featureGates", "memorySwap",
        )
    ),
]  # fmt: skip
NODES = {node: {"memory": GIB} for node in range(9)}
# One step from what is refused above.
RIGHT: list[tuple[dict[str, t.Any], dict[str, t.Any]]] = [
    ({**STATIC, "reservedSystemCPUs": "0-6"}, {}),
    ({"reservedSystemCPUs": "0-7", "cpuManagerPolicy": "none"}, {}),
    ({**STATIC, OPTIONS: {"strict-cpu-reservation": "true"}}, {"isolated": frozenset({7})}),
    (STATIC, {"isolcpus": frozenset({1})}),
    ({"systemReservedCgroup": "/system.slice", "kubeReservedCgroup": "/kube.slice"}, {}),
    ({**STATIC, OPTIONS: {"align-by-socket": "true"}, "topologyManagerPolicy": "restricted"}, {}),
    ({**STATIC, OPTIONS: {"align-by-socket": "false"}, "topologyManagerPolicy": "single-numa-node"}, {"sockets": 3}),
    ({**STATIC, OPTIONS: {"align-by-socket": "true"}}, {"sockets": 1, "numa": {}}),
    (
        {
            "topologyManagerPolicy": "best-effort",
            "topologyManagerPolicyOptions": {"prefer-closest-numa-nodes": "true"},
        },
        {},
    ),
    ({"topologyManagerPolicy": "restricted"}, {"numa": {node: {"memory": GIB} for node in range(8)}}),
    ({"topologyManagerPolicy": "none"}, {"numa": NODES}),
    (
        {"topologyManagerPolicy": "restricted", "topologyManagerPolicyOptions": {"max-allowable-numa-nodes": "9"}},
        {"numa": NODES},
    ),
    ({"enforceNodeAllocatable": ["none"]}, {}),
    ({"enforceNodeAllocatable": ["none"], "cgroupsPerQOS": False}, {}),
    ({"enforceNodeAllocatable": [], "cgroupsPerQOS": False}, {}),
    ({"enforceNodeAllocatable": ["system-reserved"], "systemReservedCgroup": "/system.slice"}, {}),
    ({"kubeReservedCgroup": "/lost"}, {"absent_groups": {"/lost"}}),
    *(
        (
            {"enforceNodeAllocatable": ["kube-reserved"], "kubeReservedCgroup": group, "cgroupDriver": driver},
            {"absent_groups": {"/a", "/x/a-b.slice", "/a.slice/", "/kube.slice"}},
        )
        for driver, group in (
            ("systemd", "/a"),
            ("systemd", "/x/a-b.slice"),
            ("systemd", "/a.slice/"),
            ("cgroupfs", "/kube"),
        )
    ),
    ({"evictionSoft": {"memory.available": "100Mi"}, "evictionSoftGracePeriod": {"memory.available": "0s"}}, {}),
    ({"evictionSoft": {"nodefs.available": "10%"}, "evictionSoftGracePeriod": {"nodefs.available": "1m"}}, {}),
    ({"evictionSoft": {"memory.available": "1%"}, "evictionSoftGracePeriod": {"memory.available": "1m"}}, {}),
    ({"evictionSoft": {"pid.available": "1"}, "evictionSoftGracePeriod": {"pid.available": "1m"}}, {}),
    ({"imageGCLowThresholdPercent": 84}, {}),
    ({"imageMaximumGCAge": "2m1s"}, {}),
    ({"imageMaximumGCAge": "0s"}, {}),
    ({"imageMaximumGCAge": "1m", "imageMinimumGCAge": "x"}, {}),
    ({"imageGCHighThresholdPercent": 100}, {}),
    ({"imageGCHighThresholdPercent": 90, "evictionHard": {"nodefs.available": "1Gi", "imagefs.available": "10%"}}, {}),
    ({"systemReserved": {"pid": "32767"}}, {}),
    ({"podPidsLimit": 256, "maxPods": 128}, {}),
    ({"podPidsLimit": -1, "maxPods": 40000}, {}),
    ({"podPidsLimit": 1024, "systemReserved": {"pid": "40000"}}, {"pids": None}),
    ({"kubeReserved": {"memory": "7579Mi"}}, {}),
    ({"kubeReserved": {"memory": "8Gi"}}, {"memory": 0}),
    (
        {
            "memoryManagerPolicy": "Static",
            "systemReserved": {"memory": "3483Mi"},
            "reservedMemory": [
                {"numaNode": 0, "limits": {"memory": "3082Mi"}},
                {"numaNode": 1, "limits": {"memory": "501Mi"}},
            ],
        },
        {},
    ),
    ({"memoryManagerPolicy": "None", "reservedMemory": [{"numaNode": 5, "limits": {"memory": "1Gi"}}]}, {}),
    ({"failSwapOn": False}, {"swap": True}),
]


@pytest.mark.parametrize(("config", "machine"), RIGHT)
def test_what_the_kubelet_starts_with_is_not_refused(config: dict[str, t.Any], machine: dict[str, t.Any]) -> None:
    assert found(config, MACHINE._replace(**machine)) == []


@pytest.mark.parametrize(("config", "machine", "line"), REFUSED, ids=[line[:70] for dummy, dummy2, line in REFUSED])
def test_a_contradiction_is_named_where_it_is_declared(
    config: dict[str, t.Any], machine: dict[str, t.Any], line: str
) -> None:
    key = line.partition(": ")[0]
    lines = found(config, MACHINE._replace(**machine))
    declared = key.partition(".")[0] in config
    assert [one for one in lines if one.startswith(f"{FILE}: {line}" if declared else line)], lines
    assert len(lines) == 1, "one fault, one line"
    assert any(word in lines[0] for word in WAYS_OUT)


def test_what_the_profile_declares_has_the_profiles_path_and_all_is_told_at_once() -> None:
    config = {
        **STATIC,
        OPTIONS: {"align-by-socket": "true"},
        "topologyManagerPolicy": "single-numa-node",
        "evictionSoft": {"memory.available": "1Gi"},
        "podPidsLimit": 9999,
    }
    paths = [line.partition(": ")[0] for line in found(config, own=tuple(config))]
    assert paths == [
        "kubelet.cpu_manager_policy_options.align-by-socket",
        'kubelet.eviction_soft["memory.available"]',
        "kubelet.pod_pids_limit",
    ]


def test_each_row_of_reserved_memory_is_looked_at() -> None:
    rows = [{"numaNode": 7, "limits": {"memory": "50Mi"}}, {"numaNode": 0, "limits": {"memory": "4Gi"}}]
    config = {"memoryManagerPolicy": "Static", "systemReserved": {"memory": "4046Mi"}, "reservedMemory": rows}
    assert [line.partition(", of")[0] for line in found(config)] == [
        f"{FILE}: reservedMemory: 7: this machine has no NUMA node 7: write another one",
        f"{FILE}: reservedMemory: 4Gi: NUMA node 0 has 4096Mi",
    ]


def test_swap_for_pods_that_the_profile_declares_is_refused_at_its_key() -> None:
    config = {"memorySwap": {"swapBehavior": "LimitedSwap"}, "featureGates": "x"}
    no_swap = found({"memorySwap": {"swapBehavior": "NoSwap"}}, MACHINE._replace(swap=True), own=("memorySwap",))
    assert [line.partition(":")[0] for line in no_swap] == ["failSwapOn"]
    lines = found(config, MACHINE._replace(swap=True), own=("memorySwap", "featureGates"))
    assert [line.partition(" (")[0] for line in lines] == [
        f"{FILE}: featureGates: x: is not a mapping, and the kubelet would not start: write one",
        (
            "kubelet.swap_behavior: LimitedSwap: swap is on here, and with failSwapOn the kubelet would not start: declare "
            "kubelet.fail_swap_on: false as well"
        ),
    ]


@pytest.mark.parametrize(
    ("one", "other", "below"),
    [
        ("5%", "10%", True),
        ("9.5%", "10%", True),
        ("10%", "10.0%", False),
        ("15%", "10%", False),
        ("99Mi", "100Mi", True),
        ("102400Ki", "100Mi", False),
        ("1Gi", "100Mi", False),
        # Which is larger depends on the size of the machine.
        ("1%", "100Mi", False),
        ("1", "10%", False),
    ],
)
def test_thresholds_of_one_kind_are_compared(one: str, other: str, below: bool) -> None:
    assert kubelet_rules.is_below(one, other) == below


def test_what_pods_may_have_is_what_the_kubelet_computes() -> None:
    config = effective(
        [
            Layer(
                FILE,
                {
                    "reservedSystemCPUs": "0-1",
                    "kubeReserved": {"cpu": "3", "memory": "512Mi", "pid": "500"},
                    "systemReserved": {"memory": "1Gi", "pid": "1000"},
                    "evictionHard": {"memory.available": "5%"},
                    "podsPerCore": 5,
                },
            )
        ]
    )
    amounts = kubelet_sizing.sizing(config, MACHINE)
    memory = 8 * GIB - 1536 * MIB - 429_496_736 - 512 * MIB  # 5% as a float32
    assert amounts == [
        Amount("cpu", 8000, 6000),
        Amount("memory", 8 * GIB, memory),
        Amount("hugepages-2Mi", 512 * MIB, 512 * MIB),
        Amount("pid", 32768, 31268),
        Amount("pods", 40, 40),
    ]
    before = kubelet_sizing.sizing(effective([Layer(FILE, {})]), MACHINE)
    changed = kubelet_sizing.compared(before, amounts)
    assert [(new.resource, new.text(old.allocatable), new.text(new.allocatable)) for old, new in changed] == [
        ("cpu", "8", "6"),
        ("memory", "7580Mi", str(memory)),
        ("pid", "32768", "31268"),
        ("pods", "110", "40"),
    ]


def test_a_reserve_without_a_list_counts_both_amounts() -> None:
    config = effective([Layer(FILE, {"kubeReserved": {"cpu": "500m"}, "systemReserved": {"cpu": "250m"}})])
    assert kubelet_sizing.sizing(config, MACHINE)[0] == Amount("cpu", 8000, 7250)
    assert kubelet_sizing.sizing(config, MACHINE)[0].text(7250) == "7250m"
    memory = Amount("memory", 8 << 30, 8_089_934_592)
    assert [memory.text(amount) for amount in memory[1:]] == ["8Gi", "8089934592"], "exact, for programs"
    assert [memory.about(amount) for amount in memory[1:]] == ["8Gi", "7715Mi"]


SCALARS = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5)
SCALARS |= st.sampled_from(["static", "10%", "1Gi", "true"])
NAMES = st.sampled_from(["cpu", "memory", "pid", "limits", "numaNode", "memory.available", "imagefs.available"])
ODD: st.SearchStrategy[t.Any] = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=2) | st.dictionaries(NAMES, inner, max_size=3), max_leaves=5
)
KEYS = st.sampled_from([*sorted(ASKED_BY), "cgroupsPerQOS", "podsPerCore", "featureGates", "healthzPort"])


def test_reserves_that_are_less_than_what_is_used_are_told_in_their_units() -> None:
    used = [
        kubelet_sizing.Use(name, 30 << 20, tasks) for name, tasks in (("a", 5), ("b", 700), ("c", 80), ("d", 5 << 20))
    ]
    config = effective([Layer("f", {"systemReserved": {"memory": "100Mi", "pid": "1000"}, "kubeReserved": {"pid": 9}})])
    way_out = "reserve more, or pods may use what it needs"
    assert kubelet_sizing.exceeded(config, used) == [
        (
            "what runs beside pods uses memory 120Mi now (a 30Mi, b 30Mi, c 30Mi), and kubeReserved and systemReserved add up to "
            f"100Mi: {way_out}"
        ),
        (
            "what runs beside pods uses pid 5243665 now (d 5242880, b 700, c 80), and kubeReserved and systemReserved add up to 1009: "
            f"{way_out}"
        ),
    ]
    assert kubelet_sizing.exceeded(effective([]), [kubelet_sizing.Use("a", 0, 5)]) == []


@given(config=st.dictionaries(KEYS, ODD, max_size=5), wanted=st.dictionaries(KEYS, ODD, max_size=2))
def test_no_configuration_of_others_is_too_odd_to_judge(config: dict[str, t.Any], wanted: dict[str, t.Any]) -> None:
    in_force = effective([Layer(FILE, config)])
    for problem in kubelet_rules.problems(in_force, MACHINE, wanted):
        assert problem.line()
    for amount in kubelet_sizing.sizing(in_force, MACHINE):
        assert amount.text(amount.allocatable)
    patch = Wanted(wanted).patch(config)
    then = effective([Layer(FILE, config), Layer("/20", patch)])
    for one in (*kubelet_drift.changing(in_force, then), *kubelet_drift.overridden(then, wanted)):
        assert one.key
    assert kubelet_drift.changing(then, then) == []


@pytest.mark.parametrize(
    ("driver", "said", "path"),
    [
        ("systemd", "/a", "/a.slice"),
        ("systemd", "/x/a-b.slice", "/a.slice/a-b.slice"),
        ("systemd", "/a.slice/", "/a.slice"),
        ("cgroupfs", "/kube", "/kube"),
    ],
)
def test_a_control_group_is_looked_for_where_the_kubelet_does(driver: str, said: str, path: str) -> None:
    config = effective([Layer("", {"cgroupDriver": driver, "systemReservedCgroup": said})])
    assert kubelet_rules.groups_of(config) == {path}
