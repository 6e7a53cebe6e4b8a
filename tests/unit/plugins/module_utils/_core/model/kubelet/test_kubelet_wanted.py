# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The section kubelet compiled for versions and machines, and the patch that makes it so over what others configure."""

from __future__ import annotations

import typing as t

import pytest
from _core.model.kubelet import config_values, kubelet_options, kubelet_wanted
from _core.model.kubelet.kubelet_config import Layer, effective
from _core.model.kubelet.kubelet_wanted import Machine, Wanted
from _core.model.profile import profile
from _core.model.profile.profile_kubelet import Kubelet
from hypothesis import given
from hypothesis import strategies as st

GIB = 1 << 30
MACHINE = Machine((1, 36), frozenset(range(8)), numa={0: {"memory": 3 * GIB}, 1: {"memory": GIB}}, memory=4 * GIB,
                  with_cpus=frozenset({0, 1}))  # fmt: skip
OWN, CONFIG = "/etc/kubelet.d/20-corral.conf", "/var/lib/kubelet/config.yaml"


def compiled(machine: Machine = MACHINE, **kubelet: t.Any) -> Wanted:
    section = profile.parse({"name": "x", "kubelet": kubelet}).kubelet
    assert section is not None
    return kubelet_wanted.compile(section, machine)


def test_each_key_has_the_kubelets_name_and_its_way_to_write_values() -> None:
    found = compiled(
        cpu_manager_policy="static",
        cpu_manager_policy_options={"full-pcpus-only": True, "align-by-socket": False},
        cpu_manager_reconcile_period="5s",
        memory_manager_policy="static",
        reserved_memory={"1": "1Gi"},
        topology_manager_policy_options={"max-allowable-numa-nodes": 16},
        system_reserved={"memory": "1Gi"},
        enforce_node_allocatable=["pods"],
        eviction_soft={"memory.available": "1Gi"},
        eviction_soft_grace_period={"memory.available": "1m30s"},
        image_maximum_gc_age="30d",
        container_log_max_size="10Mi",
        swap_behavior="LimitedSwap",
    )
    assert found == Wanted(
        {
            "cpuManagerPolicy": "static",
            "cpuManagerPolicyOptions": {"full-pcpus-only": "true"},
            "cpuManagerReconcilePeriod": "5s",
            "memoryManagerPolicy": "Static",
            "reservedMemory": [{"numaNode": 1, "limits": {"memory": "1Gi"}}],
            "topologyManagerPolicyOptions": {"max-allowable-numa-nodes": "16"},
            "systemReserved": {"memory": "1Gi"},
            "enforceNodeAllocatable": ["pods"],
            "evictionSoft": {"memory.available": "1Gi"},
            "evictionSoftGracePeriod": {"memory.available": "1m30s"},
            "imageMaximumGCAge": "720h",
            "containerLogMaxSize": "10Mi",
            "memorySwap": {"swapBehavior": "LimitedSwap"},
        }
    )
    assert compiled() == Wanted({})


def test_every_field_of_the_section_has_a_term() -> None:
    assert set(Kubelet._fields) - set(kubelet_wanted.TERMS) == {"optional", "drain", "reserve_formula"}


def test_the_pools_of_the_profile_are_the_reserved_cpus() -> None:
    machine = MACHINE._replace(reserved=frozenset({0, 1}), isolated=frozenset({7}))
    assert compiled(machine).data == {"reservedSystemCPUs": "0-1,7"}
    assert compiled(machine._replace(exclusive=frozenset({3}))).data == {"reservedSystemCPUs": "0-1,3,7"}


def test_a_formula_makes_the_reserves_but_those_that_are_declared() -> None:
    pools = MACHINE._replace(reserved=frozenset({0}))
    declared = {"kube_reserved": {"memory": "2Gi", "pid": "100"}, "reserve_formula": "gke-v1"}
    assert compiled(reserve_formula="gke-v1").data == {"kubeReserved": {"cpu": "90m", "memory": "1Gi"}}
    assert compiled(**declared).data == {"kubeReserved": {"cpu": "90m", "memory": "2Gi", "pid": "100"}}
    assert compiled(pools, reserve_formula="gke-v1").data["kubeReserved"] == {"memory": "1Gi"}
    assert compiled(pools, **declared).data["kubeReserved"] == {"memory": "2Gi", "pid": "100"}, (
        "reservedSystemCPUs stand in place of the formula's"
    )


def test_the_policy_none_takes_options_and_reserves_away() -> None:
    found = compiled(cpu_manager_policy="none", memory_manager_policy="none")
    theirs = {"cpuManagerPolicyOptions": {"full-pcpus-only": "true"}, "reservedMemory": [{}], "maxPods": 5}
    assert found.patch(theirs) == {
        "cpuManagerPolicy": "none",
        "cpuManagerPolicyOptions": {"full-pcpus-only": None},
        "memoryManagerPolicy": "None",
        "reservedMemory": [],
    }
    assert found.replacing(theirs)["cpuManagerPolicyOptions"] == {}
    assert found.patch({}) == {"cpuManagerPolicy": "none", "memoryManagerPolicy": "None"}


def test_what_the_policy_none_is_declared_with_stays_to_be_judged() -> None:
    """The rules refuse such options at the key of the profile."""
    assert compiled(cpu_manager_policy="none", cpu_manager_policy_options={"full-pcpus-only": True}).data == {
        "cpuManagerPolicy": "none",
        "cpuManagerPolicyOptions": {"full-pcpus-only": "true"},
    }
    assert compiled(memory_manager_policy="none", reserved_memory={"0": "1Gi"}).data == {
        "memoryManagerPolicy": "None",
        "reservedMemory": [{"numaNode": 0, "limits": {"memory": "1Gi"}}],
    }


# What is asked for, the versions in which it is refused, and the gate with those in which it needs one, of 1.28 to 1.37.
VERSIONS: list[tuple[dict[str, t.Any], str, range, str, range]] = [
    ({"cpu_manager_policy_options": {"full-pcpus-only": True}}, "", range(0), "", range(0)),
    (
        {"cpu_manager_policy_options": {"distribute-cpus-across-numa": True}}, "", range(0),
        "CPUManagerPolicyAlphaOptions", range(28, 33),
    ),
    ({"cpu_manager_policy_options": {"align-by-socket": True}}, "", range(0), "CPUManagerPolicyAlphaOptions", range(28, 38)),
    (
        {"cpu_manager_policy_options": {"distribute-cpus-across-cores": True}}, "the option distribute-cpus-across-cores",
        range(28, 31), "CPUManagerPolicyAlphaOptions", range(31, 38),
    ),
    (
        {"cpu_manager_policy_options": {"strict-cpu-reservation": True}}, "the option strict-cpu-reservation", range(28, 32),
        "CPUManagerPolicyAlphaOptions", range(32, 33),
    ),
    (
        {"cpu_manager_policy_options": {"prefer-align-cpus-by-uncorecache": True}},
        "the option prefer-align-cpus-by-uncorecache", range(28, 32), "CPUManagerPolicyAlphaOptions", range(32, 34),
    ),
    ({"topology_manager_policy_options": {"prefer-closest-numa-nodes": True}}, "", range(0), "", range(0)),
    (
        {"topology_manager_policy_options": {"max-allowable-numa-nodes": 16}}, "the option max-allowable-numa-nodes",
        range(28, 31), "", range(0),
    ),
    ({"image_maximum_gc_age": "1d"}, "imageMaximumGCAge", range(28, 29), "ImageMaximumGCAge", range(29, 30)),
    ({"swap_behavior": "LimitedSwap"}, "", range(0), "NodeSwap", range(28, 30)),
    ({"enforce_node_allocatable": ["system-reserved-compressible"]}, "enforceNodeAllocatable: system-reserved-compressible",
     range(28, 32), "", range(0)),
    ({"enforce_node_allocatable": ["kube-reserved-compressible"]}, "enforceNodeAllocatable: kube-reserved-compressible",
     range(28, 32), "", range(0)),
    ({"swap_behavior": "NoSwap"}, "memorySwap: NoSwap", range(28, 30), "NodeSwap", range(28, 30)),
]  # fmt: skip


@pytest.mark.parametrize(("asked", "word", "refused", "gate", "gated"), VERSIONS)
def test_what_a_version_does_not_know_is_refused_by_name_and_gates_are_set_where_needed(
    asked: dict[str, t.Any], word: str, refused: range, gate: str, gated: range
) -> None:
    for minor in range(28, 38):
        found = compiled(MACHINE._replace(version=(1, minor)), **asked)
        lines = [problem.line() for problem in found.problems]
        assert bool(lines) == (minor in refused), minor
        if lines:
            assert (
                f"the installed kubelet 1.{minor} does not know {word}, 1.{refused.stop} does: leave it out" in lines[0]
            )
            assert lines[0].startswith(f"kubelet.{next(iter(asked))}")
        assert found.data.get("featureGates") == ({gate: True} if minor in gated else None), minor


@pytest.mark.parametrize(
    ("text", "version"),
    [
        ("Kubernetes v1.36.2\n", (1, 36)),
        ("Kubernetes v1.29.6+aba1e8d\n", (1, 29)),
        ("Kubernetes v1.37.0-rc.0", (1, 37)),
        ("Python 3.11.2", None),
        ("kubelet v1.30.0", None),
        ("Kubernetes", None),
        ("", None),
    ],
)
def test_a_version_is_read_from_what_the_kubelet_prints(text: str, version: tuple[int, int] | None) -> None:
    assert kubelet_options.version(text) == version


def test_of_a_version_that_is_not_known_nothing_is_said() -> None:
    asked = {"cpu_manager_policy_options": {"align-by-socket": True}, "image_maximum_gc_age": "0s"}
    assert compiled(MACHINE._replace(version=None), **asked) == Wanted(
        {"cpuManagerPolicyOptions": {"align-by-socket": "true"}, "imageMaximumGCAge": "0s"}
    )


def test_no_limit_of_age_is_not_written_for_a_version_without_one() -> None:
    assert compiled(MACHINE._replace(version=(1, 28)), image_maximum_gc_age="0s") == Wanted({})
    assert compiled(image_maximum_gc_age="0s") == Wanted({"imageMaximumGCAge": "0s"})


@pytest.mark.parametrize(
    ("declared", "written"),
    [("90s", "1m30s"), ("23h", "23h"), ("1d", "24h"), ("25h", "25h"), ("2d3h4m5s", "51h4m5s"), ("1d1s", "24h1s")],
)
def test_go_has_no_days(declared: str, written: str) -> None:
    assert compiled(image_maximum_gc_age=declared).data == {"imageMaximumGCAge": written}


@pytest.mark.parametrize(
    ("term", "section", "key"),
    [
        ("maxPods", None, "kubelet.max_pods"),
        ("reservedSystemCPUs", None, "cpu.reserved"),
        ("apiVersion", None, None),
        ("kubeReserved", None, "kubelet.kube_reserved"),
        ("kubeReserved", {"kube_reserved": {"cpu": "1"}}, "kubelet.kube_reserved"),
        ("kubeReserved", {"reserve_formula": "gke-v1"}, "kubelet.reserve_formula"),
        ("kubeReserved", {"reserve_formula": "gke-v1", "kube_reserved": {"cpu": "1"}}, "kubelet.kube_reserved"),
        ("kubeReserved", {"max_pods": 5}, "kubelet.kube_reserved"),
        ("maxPods", {"reserve_formula": "gke-v1"}, "kubelet.max_pods"),
    ],
)
def test_each_key_follows_from_one_of_the_profile(term: str, section: dict[str, t.Any] | None, key: str | None) -> None:
    kubelet = None if section is None else profile.parse({"name": "x", "kubelet": section}).kubelet
    assert kubelet_wanted.asked_by(term, kubelet) == key


def test_gates_of_others_stay() -> None:
    wanted = Wanted({"featureGates": {"A": True}})
    assert wanted.patch({"featureGates": {"B": False}}) == {"featureGates": {"A": True}}
    assert wanted.replacing({"featureGates": {"B": False}}) == {"featureGates": {"A": True, "B": False}}


def test_a_value_of_another_kind_is_replaced() -> None:
    theirs = {"maxPods": {"a": 1}, "systemReserved": 5}
    assert Wanted({"maxPods": 5, "systemReserved": {"cpu": "1"}}).patch(theirs) == {
        "maxPods": 5,
        "systemReserved": {"cpu": "1"},
    }


def test_a_reserve_that_is_left_to_corral_is_what_the_kubelet_demands_whoever_declares_it() -> None:
    base = Layer("/base", {"kubeReserved": {"memory": "1Gi"}, "evictionHard": {"memory.available": "5%"}})
    section = Kubelet(memory_manager_policy="static", system_reserved={"memory": "300Mi"})
    wanted = kubelet_wanted.compile(section, MACHINE)

    def in_force(one: Wanted) -> t.Any:
        return kubelet_wanted.in_force([base], [], OWN, one.patch(base.data))

    completed = kubelet_wanted.complete(wanted, section, MACHINE, in_force)
    found = completed.data["reservedMemory"]
    assert completed.data == {**wanted.data, "reservedMemory": found}
    rows = config_values.reserved_memory(found)
    total = sum(kinds["memory"] for kinds in rows.values()) // 10**9
    assert total == GIB + (300 << 20) + 214_748_368  # 5% as a float32
    assert set(rows) == {0, 1}
    assert rows[0]["memory"] > 2 * rows[1]["memory"], "in proportion to the nodes' memory"
    assert rows[1]["memory"] // 10**9 % (1 << 20) == 0


MIB = 1 << 20


@pytest.mark.parametrize(
    ("total", "numa", "parts"),
    [
        (1000 * MIB, {0: {"memory": 3 * GIB}, 1: {"memory": GIB}}, {0: 750 * MIB, 1: 250 * MIB}),
        (
            100 * MIB + 1,
            {2: {"memory": GIB}, 1: {"memory": GIB}, 0: {"memory": GIB}},
            {0: 34 * MIB + 1, 1: 33 * MIB, 2: 33 * MIB},
        ),
        (3 * MIB, {0: {"hugepages-1Gi": GIB}, 1: {"memory": GIB}}, {1: 3 * MIB}),
        (3 * MIB, {0: {"hugepages-1Gi": GIB}, 1: {"memory": 0}}, {}),
        (3 * MIB, {}, {}),
    ],
)
def test_a_reserve_is_divided_by_memory_in_whole_mi(
    total: int, numa: dict[int, dict[str, int]], parts: dict[int, int]
) -> None:
    assert kubelet_wanted.divided(total, numa) == parts
    rows = [{"numaNode": node, "limits": {"memory": str(size)}} for node, size in parts.items()]
    assert config_values.meaning("reservedMemory", kubelet_wanted.memory_rows(parts)) == (
        config_values.meaning("reservedMemory", rows)
    )


def test_rows_of_reserved_memory_are_in_the_order_of_nodes_and_none_is_zero() -> None:
    assert kubelet_wanted.memory_rows({1: GIB, 2: 0, 0: 5 * MIB}) == [
        {"numaNode": 0, "limits": {"memory": "5Mi"}},
        {"numaNode": 1, "limits": {"memory": "1Gi"}},
    ]


def test_a_reserve_is_divided_over_the_nodes_with_cpus() -> None:
    section = Kubelet(memory_manager_policy="static", system_reserved={"memory": "1Gi"})
    gpu = MACHINE._replace(numa={**MACHINE.numa, 2: {"memory": 96 * GIB}})
    wanted = kubelet_wanted.compile(section, gpu)
    rows = kubelet_wanted.complete(wanted, section, gpu, lambda known: effective([Layer(CONFIG, known.data)])).data
    assert [row["numaNode"] for row in rows["reservedMemory"]] == [0, 1]


def test_a_reserve_that_is_declared_or_not_needed_is_not_completed() -> None:
    for section in (Kubelet(memory_manager_policy="static", reserved_memory={0: GIB}), Kubelet()):
        wanted = kubelet_wanted.compile(section, MACHINE)
        assert kubelet_wanted.complete(wanted, section, MACHINE, pytest.fail) is wanted


@given(
    total=st.integers(0, 1 << 40),
    nodes=st.dictionaries(st.integers(0, 9), st.integers(0, 1 << 41).map(lambda size: {"memory": size}), max_size=8),
)
def test_a_divided_reserve_is_whole(total: int, nodes: dict[int, dict[str, int]]) -> None:
    parts = kubelet_wanted.divided(total, nodes)
    if any(kinds["memory"] for kinds in nodes.values()):
        assert sum(parts.values()) == total
    assert all(size >= 0 and nodes[node]["memory"] for node, size in parts.items())


VALUES = st.dictionaries(st.sampled_from("abc"), st.sampled_from(["1", "2"]), max_size=3)
SECTIONS = st.fixed_dictionaries(
    {},
    optional={
        "evictionHard": VALUES,
        "systemReserved": VALUES,
        "maxPods": st.integers(1, 9),
        "enforceNodeAllocatable": st.lists(st.sampled_from(["pods", "none"]), max_size=2),
    },
)


@given(before=st.lists(SECTIONS, max_size=3), wanted=SECTIONS)
def test_over_any_files_before_it_the_patch_makes_exactly_what_is_wanted(
    before: list[dict[str, t.Any]], wanted: dict[str, t.Any]
) -> None:
    names = [CONFIG, "/etc/kubelet.d/10.conf", "/etc/kubelet.d/11.conf"]
    files = [Layer(name, data, drop_in=name != CONFIG) for name, data in zip(names, before)]
    one = Wanted(wanted)
    found = kubelet_wanted.in_force(files, [], OWN, one.patch(kubelet_wanted.below(files, OWN)))
    for key, value in wanted.items():
        assert config_values.meaning(key, found.get(key)) == config_values.meaning(key, value)
    others = effective(files)
    for key in others.data:
        assert key in wanted or found.get(key) == others.get(key)


# The default thresholds of Kubernetes on Linux (pkg/kubelet/eviction/defaults_linux.go).
THRESHOLDS = {
    "imagefs.available": "15%",
    "imagefs.inodesFree": "5%",
    "memory.available": "100Mi",
    "nodefs.available": "10%",
    "nodefs.inodesFree": "5%",
}


@pytest.mark.parametrize(
    ("config", "dropins", "before"),
    [
        (CONFIG, ["10-a.conf", "10-dir/99.conf", "20-corral.conf", "20-later.conf", "30.conf"], 3),
        # --config comes first wherever it is.
        ("/etc/kubelet.d/config.yaml", ["10-a.conf", "20-corral.conf", "30.conf"], 2),
        ("/etc/kubelet.d/config.yaml", ["30.conf"], 1),
        (CONFIG, ["30-dir/10.conf"], 1),
        (None, ["10-a.conf", "30.conf"], 1),
        (None, [], 0),
    ],
)
def test_it_takes_the_place_of_its_name_among_the_files(config: str | None, dropins: list[str], before: int) -> None:
    files = [Layer(config, {"maxPods": 1})] if config else []
    files += [Layer(f"/etc/kubelet.d/{name}", {"maxPods": index}, True) for index, name in enumerate(dropins, 2)]
    others = [layer for layer in files if layer.origin != OWN]
    assert kubelet_wanted.place_of(others, OWN) == before
    found = kubelet_wanted.in_force(files, [], OWN, {"maxPods": 99, "podPidsLimit": 5})
    later = others[before:]
    assert found.origins["maxPods",] == (later[-1].origin if later else OWN)
    assert found.get("podPidsLimit") == 5
    below = kubelet_wanted.below([*files, Layer("/etc/kubelet.d/90.conf", {"podPidsLimit": 1}, True)], OWN)
    assert below == {
        **({"maxPods": others[before - 1].data["maxPods"]} if before else {}),
        **({"evictionHard": THRESHOLDS} if config else {}),
    }


def test_a_drop_in_is_merged_into_the_default_thresholds() -> None:
    """The kubelet gives --config its defaults before it merges drop-ins into it (cmd/kubelet/app/server.go, loadConfigFile)."""
    own = {"evictionHard": {"memory.available": "1Gi"}}
    assert kubelet_wanted.in_force([Layer(CONFIG, {})], [], OWN, own).get("evictionHard") == {
        **THRESHOLDS,
        "memory.available": "1Gi",
    }
    assert kubelet_wanted.below([Layer(CONFIG, own)], OWN) == own
    assert kubelet_wanted.in_force([], [], OWN, {"maxPods": 5}).get("evictionHard") is None, "without --config"
    flag = Layer("--max-pods", {"maxPods": 7})
    assert kubelet_wanted.in_force([], [flag], OWN, {"maxPods": 5}).origins["maxPods",] == "--max-pods"


SAME: list[tuple[str, t.Any, t.Any]] = [
    ("cpuManagerReconcilePeriod", "1m30s", "90s"),
    ("imageMaximumGCAge", "720h", "720h0m0s"),
    ("imageMaximumGCAge", "0s", 0),
    ("reservedSystemCPUs", "0-1,4", "0,1,4"),
    ("systemReserved", {"cpu": "500m", "memory": "1Gi"}, {"memory": "1024Mi", "cpu": 0.5}),
    ("cpuManagerPolicyOptions", {"full-pcpus-only": "true", "align-by-socket": "false"}, {"full-pcpus-only": "1"}),
    ("evictionHard", {"memory.available": "1Gi", "nodefs.available": "10%"}, {"nodefs.available": "10.0%", "memory.available": "1024Mi"}),
    ("enforceNodeAllocatable", ["pods", "kube-reserved"], ["kube-reserved", "pods"]),
    ("reservedMemory", [{"numaNode": 0, "limits": {"memory": "1Gi"}}], [{"numaNode": "0", "limits": {"memory": "1024Mi"}}]),
    ("containerLogMaxSize", "10Mi", "10485760"),
    ("evictionSoft", {}, None),
]  # fmt: skip
OTHER: list[tuple[str, t.Any, t.Any]] = [
    ("cpuManagerReconcilePeriod", "10s", "10m"),
    ("reservedSystemCPUs", "0-1", "0"),
    ("systemReserved", {"memory": "1G"}, {"memory": "1Gi"}),
    ("cpuManagerPolicyOptions", {"full-pcpus-only": "true"}, {"full-pcpus-only": "false"}),
    ("evictionHard", {"memory.available": "10%"}, {"memory.available": "10"}),
    ("reservedMemory", [{"numaNode": 0, "limits": {"memory": "1Gi"}}], [{"numaNode": 1, "limits": {"memory": "1Gi"}}]),
    ("maxPods", 110, 50),
    ("failSwapOn", False, None),
]


@pytest.mark.parametrize(("key", "one", "other"), SAME)
def test_values_are_compared_by_meaning(key: str, one: t.Any, other: t.Any) -> None:
    assert config_values.meaning(key, one) == config_values.meaning(key, other)


@pytest.mark.parametrize(("key", "one", "other"), OTHER)
def test_other_values_differ(key: str, one: t.Any, other: t.Any) -> None:
    assert config_values.meaning(key, one) != config_values.meaning(key, other)


@pytest.mark.parametrize("value", ["x", "5", "", None, [], {}, True, "1h-", "9" * 5000, "١s"])
@pytest.mark.parametrize("key", sorted(kubelet_wanted.ASKED_BY))
def test_no_value_of_others_is_too_odd_to_compare(key: str, value: t.Any) -> None:
    for one in (value, {"memory": value}, [value], [{"numaNode": value, "limits": value}]):
        assert config_values.meaning(key, one) == config_values.meaning(key, one)


@pytest.mark.parametrize(
    ("value", "capacity", "bytes_"),
    [
        ("10%", 64 << 30, 6_871_947_776),  # A tenth is 6871947673.
        ("5%", 8 << 30, 429_496_736),
        ("1.5%", 16 << 30, 257_698_032),
        ("50%", 8 << 30, 4 << 30),
        ("100%", 8 << 30, 0),
        ("0%", 8 << 30, 0),
        ("100Mi", 8 << 30, 100 << 20),
    ],
)
def test_a_share_is_of_single_precision_as_the_kubelets(value: str, capacity: int, bytes_: int) -> None:
    assert config_values.threshold(value, capacity) == bytes_
