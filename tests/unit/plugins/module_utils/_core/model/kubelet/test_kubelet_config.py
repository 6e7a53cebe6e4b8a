# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The configuration that a kubelet goes by: RFC 7386's examples, the order of its sources, and what flags say."""

from __future__ import annotations

import typing as t

import pytest
from _core.model.kubelet import kubelet_config
from _core.model.kubelet.kubelet_config import Layer, Setting
from hypothesis import given
from hypothesis import strategies as st

# RFC 7386, appendix A.
EXAMPLES: list[tuple[t.Any, t.Any, t.Any]] = [
    ({"a": "b"}, {"a": "c"}, {"a": "c"}),
    ({"a": "b"}, {"b": "c"}, {"a": "b", "b": "c"}),
    ({"a": "b"}, {"a": None}, {}),
    ({"a": "b", "b": "c"}, {"a": None}, {"b": "c"}),
    ({"a": ["b"]}, {"a": "c"}, {"a": "c"}),
    ({"a": "c"}, {"a": ["b"]}, {"a": ["b"]}),
    ({"a": {"b": "c"}}, {"a": {"b": "d", "c": None}}, {"a": {"b": "d"}}),
    ({"a": [{"b": "c"}]}, {"a": [1]}, {"a": [1]}),
    (["a", "b"], ["c", "d"], ["c", "d"]),
    ({"a": "b"}, ["c"], ["c"]),
    ({"a": "foo"}, None, None),
    ({"a": "foo"}, "bar", "bar"),
    ({"e": None}, {"a": 1}, {"e": None, "a": 1}),
    ([1, 2], {"a": "b", "c": None}, {"a": "b"}),
    ({}, {"a": {"bb": {"ccc": None}}}, {"a": {"bb": {}}}),
]


@pytest.mark.parametrize(("target", "patch", "result"), EXAMPLES)
def test_the_examples_of_the_rfc(target: t.Any, patch: t.Any, result: t.Any) -> None:
    assert kubelet_config.merge_patch(target, patch) == result


def effective(*layers: dict[str, t.Any], flags: t.Sequence[str] = ()) -> dict[str, Setting]:
    set_by_flags, wrong = kubelet_config.flag_layers(kubelet_config.flags_of(flags))
    assert not wrong
    return kubelet_config.effective(named(*layers), set_by_flags).settings()


def named(*layers: dict[str, t.Any]) -> list[Layer]:
    """--config and its drop-ins."""
    return [Layer(f"file{index}", layer, drop_in=index > 0) for index, layer in enumerate(layers)]


def test_a_later_file_wins_by_key_and_a_list_is_replaced() -> None:
    found = effective(
        {"systemReserved": {"cpu": "1", "memory": "1Gi"}, "enforceNodeAllocatable": ["pods"]},
        {"systemReserved": {"cpu": "2"}, "enforceNodeAllocatable": ["pods", "system-reserved"]},
    )
    assert found["systemReserved.cpu"] == Setting("2", "file1")
    assert found["systemReserved.memory"] == Setting("1Gi", "file0")
    assert found["enforceNodeAllocatable"] == Setting(["pods", "system-reserved"], "file1")


def test_null_brings_the_default_back() -> None:
    found = effective({"maxPods": 20, "cpuManagerPolicy": "static"}, {"maxPods": None})
    assert found["maxPods"] == Setting(110, "default")
    assert found["cpuManagerPolicy"] == Setting("static", "file0")


def test_a_zero_of_a_file_brings_the_default_back_and_that_of_a_flag_counts() -> None:
    found = effective({"imageMinimumGCAge": "1m"}, {"imageMinimumGCAge": "0s", "maxPods": 0})
    assert found["imageMinimumGCAge"] == Setting("2m0s", "default")
    assert found["maxPods"] == Setting(110, "default")
    flags = ["--minimum-image-ttl-duration=0s", "--max-pods=0", "--topology-manager-scope="]
    found = effective({"topologyManagerScope": "pod"}, flags=flags)
    assert found["imageMinimumGCAge"] == Setting("0s", "--minimum-image-ttl-duration")
    assert found["maxPods"] == Setting(0, "--max-pods")
    assert found["topologyManagerScope"] == Setting("", "--topology-manager-scope")


def test_a_flag_wins_over_every_file_and_replaces_a_map_whole() -> None:
    found = effective(
        {"maxPods": 20, "systemReserved": {"memory": "1Gi"}, "featureGates": {"A": True, "B": True}},
        flags=["--max-pods=30", "--system-reserved", "cpu=1", "--feature-gates=B=false", "--v=2"],
    )
    assert found["maxPods"] == Setting(30, "--max-pods")
    assert {name for name in found if name.startswith("systemReserved")} == {"systemReserved.cpu"}
    assert (found["featureGates.A"], found["featureGates.B"]) == (
        Setting(True, "file0"),
        Setting(False, "--feature-gates"),
    )


def test_thresholds_replace_the_default_ones_unless_they_are_to_be_merged() -> None:
    own = {"evictionHard": {"memory.available": "1Gi"}}
    assert {name for name in effective(own) if name.startswith("evictionHard")} == {"evictionHard.memory.available"}
    merged = effective({**own, "mergeDefaultEvictionSettings": True})
    assert merged["evictionHard.nodefs.available"] == Setting("10%", "default")
    assert merged["evictionHard.memory.available"] == Setting("1Gi", "file0")


# The default thresholds of Kubernetes on Linux (pkg/kubelet/eviction/defaults_linux.go).
THRESHOLDS = {
    "imagefs.available": "15%",
    "imagefs.inodesFree": "5%",
    "memory.available": "100Mi",
    "nodefs.available": "10%",
    "nodefs.inodesFree": "5%",
}
OWN = {"evictionHard": {"memory.available": "1Gi"}}
MERGING = {"mergeDefaultEvictionSettings": True}


@pytest.mark.parametrize(
    ("files", "found"),
    [
        ([{}], THRESHOLDS),
        ([{"evictionHard": None}], THRESHOLDS),
        ([{"evictionHard": ""}], THRESHOLDS),
        ([{"evictionHard": {}}], {}),
        ([{"evictionHard": {}, **MERGING}], THRESHOLDS),
        ([OWN], {"memory.available": "1Gi"}),
        ([{**OWN, **MERGING}], {**THRESHOLDS, "memory.available": "1Gi"}),
        ([{**OWN, "mergeDefaultEvictionSettings": "true"}], {"memory.available": "1Gi"}),
        ([{"evictionHard": "odd", **MERGING}], "odd"),
        # Drop-ins are merged over what --config has then.
        ([{}, OWN], {**THRESHOLDS, "memory.available": "1Gi"}),
        ([OWN, {"evictionHard": {"pid.available": "9%"}}], {"memory.available": "1Gi", "pid.available": "9%"}),
        ([OWN, MERGING, {}], {"memory.available": "1Gi"}),
        ([{**OWN, **MERGING}, {"mergeDefaultEvictionSettings": False}], {**THRESHOLDS, "memory.available": "1Gi"}),
        ([{}, {"evictionHard": None}], None),
        ([{}, {"evictionHard": None}, OWN], {"memory.available": "1Gi"}),
        ([{}, {"evictionHard": {"imagefs.available": None}}, {}], {
            name: value for name, value in THRESHOLDS.items() if name != "imagefs.available"
        }),
    ],
)  # fmt: skip
def test_thresholds_have_defaults_in_the_file_of_config_alone(files: list[dict[str, t.Any]], found: t.Any) -> None:
    """loadConfigFile and mergeKubeletConfigurations of cmd/kubelet/app/server.go."""
    assert kubelet_config.effective(named(*files)).get("evictionHard") == found


def test_without_config_no_thresholds_have_defaults() -> None:
    assert kubelet_config.effective([]).get("evictionHard") is None
    dropins = [Layer("/10", {"maxPods": 5}, drop_in=True), Layer("/20", OWN, drop_in=True)]
    found = kubelet_config.effective(dropins)
    assert (found.get("evictionHard"), found.get("maxPods")) == ({"memory.available": "1Gi"}, 5)


@pytest.mark.parametrize(
    ("files", "setting", "found"),
    [
        ([{"cpuManagerPolicy": ""}], "cpuManagerPolicy", Setting("none", "default")),
        ([{"imageMaximumGCAge": "0s"}], "imageMaximumGCAge", Setting("0s", "file0")),
        ([{"imageGCHighThresholdPercent": 0}], "imageGCHighThresholdPercent", Setting(0, "file0")),
        ([{"maxOpenFiles": "0"}], "maxOpenFiles", Setting(1000000, "default")),
        ([{"systemReserved": {}}], "systemReserved", Setting({}, "file0")),
        ([{"kubeReserved": {"cpu": "1"}, "systemReserved": {}}], "systemReserved", Setting({}, "file0")),
        ([{"systemReserved": {"cpu": "1"}}, {"systemReserved": {}}], "systemReserved.cpu", Setting("1", "file0")),
        ([{"systemReserved": {"cpu": "1"}}, {"systemReserved": {}}], "systemReserved", None),
        ([{"systemReserved": {}}, {"systemReserved": {"cpu": "1"}}], "systemReserved", None),
        ([{"clusterDNS": ["a"]}, {"clusterDNS": []}], "clusterDNS", Setting([], "file1")),
        ([{"clusterDNS": ["a"]}, {"clusterDNS": {}}], "clusterDNS", Setting({}, "file1")),
        ([{}], "", None),
        ([{"apiVersion": "v1", "kind": {"a": 1}}], "apiVersion", None),
        ([{"apiVersion": "v1", "kind": {"a": 1}}], "kind.a", None),
    ],
)
def test_what_sets_each_value(files: list[dict[str, t.Any]], setting: str, found: Setting | None) -> None:
    assert effective(*files).get(setting) == found


def test_the_head_of_a_file_is_no_setting() -> None:
    assert kubelet_config.effective([Layer("/a", {"apiVersion": "v1", "kind": "x"})], (), {}).data == {}


def test_other_words_of_a_command_line_are_no_flags() -> None:
    words = ["run", "-x", "--v=2", "--max-pods", "30", "--", "y", "--z=2"]
    assert kubelet_config.flags_of(words) == {"max-pods": "30", "v": "2"}


def test_settings_are_in_the_order_of_their_paths() -> None:
    found = list(effective({"b": 1, "a": {"d": 1, "c": 2}}))
    assert found == sorted(found)


def test_a_flag_leaves_nothing_of_a_map_in_force() -> None:
    flags, dummy = kubelet_config.flag_layers({"system-reserved": "cpu=1", "kube-reserved": ""})
    config = kubelet_config.effective(
        named({"systemReserved": {"memory": "1Gi"}, "kubeReserved": {"memory": "1Gi"}}), flags
    )
    assert (config.get("systemReserved"), config.get("kubeReserved")) == ({"cpu": "1"}, {})
    settings = config.settings()
    assert {name: one for name, one in settings.items() if "Reserved" in name} == {
        "systemReserved.cpu": Setting("1", "--system-reserved"),
        "kubeReserved": Setting({}, "--kube-reserved"),
    }


def test_drop_ins_are_merged_into_a_file_without_empty_lists() -> None:
    data = {"enforceNodeAllocatable": [], "clusterDNS": [], "evictionHard": {}, "maxPods": 0}
    assert kubelet_config.merged_into(data) == {"clusterDNS": [], "evictionHard": {}, "maxPods": 0}
    assert kubelet_config.merged_into({"enforceNodeAllocatable": ["none"]}) == {"enforceNodeAllocatable": ["none"]}


def test_keys_that_no_kubelet_has_are_named_with_their_file() -> None:
    found = kubelet_config.unknown_keys([
        Layer("/a", {"maxPods": 1, "kind": "x", "zoo": 1, "apiVersion": "x", "maxpods": 5}),
        Layer("/b", {"cpuManagerPolicy": "static", 5: 1}),
    ])  # fmt: skip
    assert [line.split(": no key")[0] for line in found] == ["/a: maxpods", "/a: zoo", "/b: 5"]


@pytest.mark.parametrize(
    ("words", "key", "value"),
    [
        (["--fail-swap-on"], "failSwapOn", True),
        (["--fail-swap-on=false"], "failSwapOn", False),
        (["--reserved-cpus", "0-1"], "reservedSystemCPUs", "0-1"),
        (["--pod-max-pids=-1"], "podPidsLimit", -1),
        (["--eviction-hard=memory.available<1Gi,nodefs.available<10%"], "evictionHard", {"memory.available": "1Gi", "nodefs.available": "10%"}),
        (["--cpu_manager_policy=none", "--cpu-manager-policy=static"], "cpuManagerPolicy", "static"),
        (["run", "--v", "2", "-x", "--max-pods", "30", "--", "x"], "maxPods", 30),
        (["--cpu-manager-policy", "--v=2"], "cpuManagerPolicy", "--v=2"),
        (["--cpu-manager-policy"], "cpuManagerPolicy", ""),
        (["--system-reserved="], "systemReserved", {}),
        (["--image-gc-high-threshold=90"], "imageGCHighThresholdPercent", 90),
        (["--eviction-soft-grace-period=memory.available=1m"], "evictionSoftGracePeriod", {"memory.available": "1m"}),
        *((["--fail-swap-on=" + word], "failSwapOn", True) for word in ("1", "t", "T", "true", "TRUE", "True")),
        *((["--fail-swap-on=" + word], "failSwapOn", False) for word in ("0", "f", "F", "false", "FALSE", "False")),
        (["--system-reserved= cpu = 1 , memory=2Gi"], "systemReserved", {"cpu": "1", "memory": "2Gi"}),
        (["--enforce-node-allocatable=pods,,kube-reserved"], "enforceNodeAllocatable", ["pods", "", "kube-reserved"]),
        (["--enforce-node-allocatable="], "enforceNodeAllocatable", []),
        (['--enforce-node-allocatable="pods","kube-reserved"'], "enforceNodeAllocatable", ["pods", "kube-reserved"]),
        (["--system-reserved=,cpu=1,,memory=a=b,"], "systemReserved", {"cpu": "1", "memory": "a=b"}),
        (["--qos-reserved=memory=50%"], "qosReserved", {"memory": "50%"}),
        (["--feature-gates=A=true,B=F"], "featureGates", {"A": True, "B": False}),
        (
            ["--reserved-memory=0:memory=1Gi,hugepages-1Gi=2Gi;1:memory=2Gi"],
            "reservedMemory",
            [{"numaNode": 0, "limits": {"memory": "1Gi", "hugepages-1Gi": "2Gi"}}, {"numaNode": 1, "limits": {"memory": "2Gi"}}],
        ),
    ],
)  # fmt: skip
def test_what_flags_say(words: list[str], key: str, value: object) -> None:
    layers, wrong = kubelet_config.flag_layers(kubelet_config.flags_of(words))
    assert [layer.data for layer in layers] == [{key: value}]
    assert not wrong


# Flags that are given again, by the kinds of options.go and of component-base, cli/flag: maps merge, lists grow, all else is replaced.
@pytest.mark.parametrize(
    ("words", "key", "value"),
    [
        (["--system-reserved=cpu=1", "--system-reserved=memory=1Gi"], "systemReserved", {"cpu": "1", "memory": "1Gi"}),
        (["--kube-reserved", "cpu=1,pid=9", "--kube_reserved=cpu=2"], "kubeReserved", {"cpu": "2", "pid": "9"}),
        (["--kube-reserved=cpu=1", "--kube-reserved="], "kubeReserved", {"cpu": "1"}),
        (["--eviction-hard=a<5%", "--eviction-hard=b<10%"], "evictionHard", {"a": "5%", "b": "10%"}),
        (["--eviction-soft=a<5%", "--v=2", "--eviction-soft=a<6%,b<1"], "evictionSoft", {"a": "6%", "b": "1"}),
        (["--eviction-soft-grace-period=a=1m", "--eviction-soft-grace-period=b=2m"], "evictionSoftGracePeriod", {"a": "1m", "b": "2m"}),
        (["--eviction-minimum-reclaim=a=1", "--eviction-minimum-reclaim=b=2"], "evictionMinimumReclaim", {"a": "1", "b": "2"}),
        (["--feature-gates=A=true,B=true", "--feature-gates=B=false"], "featureGates", {"A": True, "B": False}),
        (["--qos-reserved=memory=1%", "--qos-reserved=memory=2%"], "qosReserved", {"memory": "2%"}),
        (["--topology-manager-policy-options=a=1", "--topology-manager-policy-options=b=2,c=3"], "topologyManagerPolicyOptions",
         {"a": "1", "b": "2", "c": "3"}),
        (["--cpu-manager-policy-options=a=true", "--cpu-manager-policy-options=b=true"], "cpuManagerPolicyOptions", {"a": "true", "b": "true"}),
        (["--enforce-node-allocatable=pods", "--enforce-node-allocatable=kube-reserved,system-reserved"], "enforceNodeAllocatable",
         ["pods", "kube-reserved", "system-reserved"]),
        (["--allowed-unsafe-sysctls=a.*", "--allowed-unsafe-sysctls=", "--allowed-unsafe-sysctls=b"], "allowedUnsafeSysctls", ["a.*", "b"]),
        (
            ["--reserved-memory", "0:memory=1Gi", "--reserved-memory", "1:memory=2Gi;0:hugepages-2Mi=4Mi", "--reserved-memory="],
            "reservedMemory",
            [{"numaNode": 0, "limits": {"memory": "1Gi"}}, {"numaNode": 1, "limits": {"memory": "2Gi"}}, {"numaNode": 0, "limits": {"hugepages-2Mi": "4Mi"}}],
        ),
        (["--max-pods=10", "--max-pods=20"], "maxPods", 20),
        (["--reserved-cpus=0", "--reserved-cpus=1-2"], "reservedSystemCPUs", "1-2"),
        (["--fail-swap-on", "--fail-swap-on=false"], "failSwapOn", False),
    ],
)  # fmt: skip
def test_a_flag_that_is_given_again(words: list[str], key: str, value: object) -> None:
    layers, wrong = kubelet_config.flag_layers(kubelet_config.flags_of(words))
    assert ([layer.data for layer in layers], wrong) == ([{key: value}], [])


def test_flags_of_one_map_replace_that_of_the_files_as_a_whole() -> None:
    found = effective({"kubeReserved": {"pid": "5"}, "featureGates": {"A": True}},
                      flags=["--kube-reserved=cpu=1", "--kube-reserved=memory=1Gi", "--feature-gates=B=true"])  # fmt: skip
    assert {name for name in found if name.startswith(("kube", "feature"))} == {
        "kubeReserved.cpu", "kubeReserved.memory", "featureGates.A", "featureGates.B"
    }  # fmt: skip


def test_a_flag_that_says_nothing_leaves_what_files_say() -> None:
    rows = [{"numaNode": 0, "limits": {"memory": "1Gi"}}]
    assert effective({"reservedMemory": rows}, flags=["--reserved-memory="])["reservedMemory"] == Setting(rows, "file0")


@pytest.mark.parametrize(
    ("words", "way_out"),
    [
        *(
            ([f"--reserved-memory={text}"], "the flag once for each NUMA node")
            for text in (
                "0:memory=4Gi,1:memory=1Gi", "0", "0:", "0:memory", "a:memory=1Gi", " 0:memory=1Gi", "0:memory=1Gi;", "0:memory=1Gi;;1:memory=1Gi",
                "0:memory=1=2", "0:memory=much", "0:cpu=1", "0: memory=1Gi", "0:memory=1Gi, hugepages-2Mi=4Mi", "0:hugepages=1Gi",
            )
        ),
        (["--reserved-memory=", "--reserved-memory=0:memory=1Gi"], "the flag once for each NUMA node"),
        (["--reserved-memory=0:memory=1Gi", "--reserved-memory=1"], "the flag once for each NUMA node"),
        (["--cpu-manager-policy-options=a=true,b=true"], "the flag once for each option"),
        (["--cpu-manager-policy-options="], "the flag once for each option"),
        (["--max-pods=many", "--max-pods=20"], "a whole number"),
        (["--feature-gates=A=true", "--feature-gates=B"], "NAME=true"),
        (["--eviction-hard=memory.available=5%"], "SIGNAL<VALUE"),
        (['--enforce-node-allocatable="pods'], "words with commas"),
    ],
)  # fmt: skip
def test_a_flag_with_which_the_kubelet_does_not_start_is_named_with_the_way_out(words: list[str], way_out: str) -> None:
    layers, (said,) = kubelet_config.flag_layers(kubelet_config.flags_of(words))
    assert not layers
    assert said.startswith(f"{' '.join(words)}: the kubelet does not start with it: write {way_out}")


def test_a_flag_that_cannot_be_read_is_named() -> None:
    flags = kubelet_config.flags_of(
        ["--max-pods=many", "--fail-swap-on=perhaps", "--system-reserved=cpu", "--reserved-memory=1"]
    )
    layers, wrong = kubelet_config.flag_layers(flags)
    assert not layers
    assert [line.split("=")[0] for line in wrong] == [
        "--max-pods",
        "--fail-swap-on",
        "--system-reserved",
        "--reserved-memory",
    ]


LEAVES = st.none() | st.integers(0, 3) | st.lists(st.integers(0, 3), max_size=2)
PATCHES = st.recursive(LEAVES, lambda inner: st.dictionaries(st.sampled_from("abc"), inner, max_size=3), max_leaves=6)
FILES = st.lists(st.dictionaries(st.sampled_from("abc"), PATCHES, max_size=3), max_size=4)


@given(FILES)
def test_each_value_has_the_origin_of_the_last_file_that_sets_it(files: list[dict[str, t.Any]]) -> None:
    layers = [Layer(str(index), data) for index, data in enumerate(files)]
    found = kubelet_config.effective(layers, (), {})
    for path, origin in found.origins.items():
        value = found.get(*path)
        assert path
        assert value is not None
        # The file that is named sets it, and the files after it leave it as it is.
        until = kubelet_config.effective(layers[: int(origin) + 1], (), {})
        assert until.get(*path) == value
        assert until.origins.get(path) == origin

    def leaves(data: t.Any, path: tuple[str, ...]) -> t.Iterator[tuple[str, ...]]:
        if isinstance(data, dict) and data:
            for key, value in data.items():
                yield from leaves(value, (*path, key))
        elif path:
            yield path

    assert {path for path in leaves(found.data, ()) if found.get(*path) not in ({}, None)} <= set(found.origins)


def test_what_is_said_of_a_flag_stays_on_its_line() -> None:
    dummy, (said,) = kubelet_config.flag_layers({"max-pods": "7\r\nkubelet: in order\x1b[2J"})
    assert said.startswith("--max-pods=7\\r\\nkubelet: in order\\x1b[2J: the kubelet does not start")
