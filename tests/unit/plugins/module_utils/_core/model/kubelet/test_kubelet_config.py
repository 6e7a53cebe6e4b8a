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
    named = [Layer(f"file{index}", layer) for index, layer in enumerate(layers)]
    return kubelet_config.effective(named, set_by_flags).settings()


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


@pytest.mark.parametrize(
    ("words", "key", "value"),
    [
        (["--fail-swap-on"], "failSwapOn", True),
        (["--fail-swap-on=false"], "failSwapOn", False),
        (["--reserved-cpus", "0-1"], "reservedSystemCPUs", "0-1"),
        (["--pod-max-pids=-1"], "podPidsLimit", -1),
        (["--eviction-hard=memory.available<1Gi,nodefs.available<10%"], "evictionHard", {"memory.available": "1Gi", "nodefs.available": "10%"}),
        (["--cpu_manager_policy=none", "--cpu-manager-policy=static"], "cpuManagerPolicy", "static"),
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


def test_a_flag_that_cannot_be_read_is_named() -> None:
    flags = kubelet_config.flags_of(["--max-pods=many", "--fail-swap-on=perhaps", "--system-reserved=cpu"])
    layers, wrong = kubelet_config.flag_layers(flags)
    assert not layers
    assert [line.split("=")[0] for line in wrong] == ["--max-pods", "--fail-swap-on", "--system-reserved"]


LEAVES = st.none() | st.integers(0, 3) | st.lists(st.integers(0, 3), max_size=2)
PATCHES = st.recursive(LEAVES, lambda inner: st.dictionaries(st.sampled_from("abc"), inner, max_size=3), max_leaves=6)
FILES = st.lists(st.dictionaries(st.sampled_from("abc"), PATCHES, max_size=3), max_size=4)


@given(FILES)
def test_each_value_has_the_origin_of_the_last_file_that_sets_it(files: list[dict[str, t.Any]]) -> None:
    layers = [Layer(str(index), data) for index, data in enumerate(files)]
    found = kubelet_config.effective(layers, (), {})
    for path, origin in found.origins.items():
        value = found.get(*path)
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
