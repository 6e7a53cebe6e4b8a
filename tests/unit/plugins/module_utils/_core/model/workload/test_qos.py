# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""QoS class, OOM score and CPU values: the kubelet's cases, and what holds for any."""

from __future__ import annotations

import typing as t

import pytest
from _core.model.values import quantity
from _core.model.workload import qos
from hypothesis import given
from hypothesis import strategies as st
from shared_data import cases

Pod = dict[str, t.Any]


def amounts(listed: dict[str, str] | None) -> dict[str, int]:
    found = {name: quantity.parse(text) for name, text in (listed or {}).items()}
    return {name: one.milli() if name == "cpu" else one.value() for name, one in found.items()}


def resources(holder: Pod) -> tuple[dict[str, int], dict[str, int]]:
    """Requests and limits of a container or of a pod as a whole."""
    found = holder.get("resources") or {}
    return amounts(found.get("requests")), amounts(found.get("limits"))


def containers(pod: Pod) -> list[Pod]:
    return [*pod["containers"], *pod.get("initContainers", [])]


def class_of(pod: Pod, *, pod_level: bool) -> str:
    whole = pod_level and pod.get("resources")
    return qos.qos_class([resources(one) for one in ([pod] if whole else containers(pod))])


def is_sidecar(container: Pod) -> bool:
    return container.get("restartPolicy") == "Always"


def memory(holder: Pod) -> int:
    return resources(holder)[0].get("memory", 0)


def asked(pod: Pod) -> int:
    """The memory that the containers ask for at most at a time."""
    peak = sidecars = 0
    for one in pod.get("initContainers", []):
        sidecars += memory(one) if is_sidecar(one) else 0
        peak = max(peak, sidecars + (0 if is_sidecar(one) else memory(one)))
    return max(peak, sidecars + sum(memory(one) for one in pod["containers"]))


def score(pod: Pod, name: str, capacity: int, *, pod_level: bool) -> int:
    container = next(one for one in containers(pod) if one["name"] == name)
    whole = memory(pod) if pod_level else 0
    critical = pod.get("priorityClassName") == "system-node-critical" and pod.get("priority", 0) >= 2 * 10**9
    return qos.oom_score_adj(
        class_of(pod, pod_level=pod_level),
        memory(container),
        capacity,
        node_critical=critical,
        share=(whole - asked(pod)) // len(containers(pod)) if whole else 0,
        main_request=min(memory(one) for one in pod["containers"]) if is_sidecar(container) else None,
    )


@pytest.mark.parametrize("case", cases("qos_class.json"))
def test_the_kubelets_classes(case: dict[str, t.Any]) -> None:
    assert class_of(case["pod"], pod_level=case["pod_level_resources"]) == case["expect"]


@pytest.mark.parametrize("case", cases("oom_score_adj.json"))
def test_the_kubelets_oom_scores(case: dict[str, t.Any]) -> None:
    found = score(case["pod"], case["container"], case["memory_capacity"], pod_level=case["pod_level_resources"])
    assert case["expect_low"] <= found <= case["expect_high"]
    assert found == case["go_actual"]


def test_the_class_without_the_kubelets_data() -> None:
    one = {"cpu": 1000, "memory": 1 << 30}
    half = {"cpu": 500, "memory": 1 << 30}
    assert qos.qos_class([]) == qos.BEST_EFFORT
    assert qos.qos_class([({}, {}), ({"memory": 0}, {"hugepages-2Mi": 1 << 21})]) == qos.BEST_EFFORT
    assert qos.qos_class([(one, one), (half, half)]) == qos.GUARANTEED
    assert qos.qos_class([(one, one), ({}, {})]) == qos.BURSTABLE
    assert qos.qos_class([(half, one)]) == qos.BURSTABLE
    assert qos.qos_class([({}, {"cpu": 1})]) == qos.BURSTABLE


sizes = st.integers(0, 4)
listed = st.fixed_dictionaries({}, optional={"cpu": sizes, "memory": sizes, "hugepages-2Mi": sizes})


@given(found=st.lists(st.tuples(listed, listed), max_size=4), data=st.data())
def test_neither_order_nor_zeros_nor_other_resources_make_a_class(
    found: list[tuple[dict[str, int], dict[str, int]]], data: st.DataObject
) -> None:
    """And a container that asks for nothing ends a guarantee."""
    other = data.draw(st.permutations(found))
    bare = [tuple({k: v for k, v in half.items() if v and k in qos.COMPUTE} for half in pair) for pair in other]
    before = qos.qos_class(found)
    assert before == qos.qos_class(t.cast("t.Any", bare))
    assert qos.qos_class([*found, ({}, {})]) == (qos.BURSTABLE if before == qos.GUARANTEED else before)


@given(request=st.integers(0, 1 << 41), more=st.integers(0, 1 << 41), capacity=st.integers(1 << 20, 1 << 40))
def test_who_asks_for_more_is_killed_later_and_a_class_never_passes_another(
    request: int, more: int, capacity: int
) -> None:
    def burstable(asked_for: int, main: int | None = None) -> int:
        return qos.oom_score_adj(qos.BURSTABLE, asked_for, capacity, main_request=main)

    assert burstable(request + more) <= burstable(request)
    assert burstable(request, more) == min(burstable(request), burstable(more))
    assert qos.oom_score_adj(qos.BURSTABLE, request, capacity, share=more) == burstable(request + more)
    assert qos.GUARANTEED_OOM_SCORE_ADJ < burstable(request) < qos.BESTEFFORT_OOM_SCORE_ADJ
    assert qos.oom_score_adj(qos.GUARANTEED, request, capacity) == qos.GUARANTEED_OOM_SCORE_ADJ
    assert qos.oom_score_adj(qos.BEST_EFFORT, 0, capacity, node_critical=True) == qos.GUARANTEED_OOM_SCORE_ADJ


@pytest.mark.parametrize(
    ("milli", "shares", "weight"),
    [(0, 2, 1), (1, 2, 1), (2, 2, 1), (100, 102, 4), (1000, 1024, 39), (256000, 262144, 10000), (10**6, 262144, 10000)],
)
def test_shares_and_weight(milli: int, shares: int, weight: int) -> None:
    assert qos.cpu_shares(milli) == shares
    assert qos.cpu_weight(shares) == weight


@given(milli=st.integers(0, 10**6), more=st.integers(0, 10**6))
def test_shares_and_weight_grow_with_the_request_within_the_kernels_range(milli: int, more: int) -> None:
    shares = [qos.cpu_shares(one) for one in (milli, milli + more)]
    assert qos.MIN_SHARES <= shares[0] <= shares[1] <= qos.MAX_SHARES
    assert 1 <= qos.cpu_weight(shares[0]) <= qos.cpu_weight(shares[1]) <= 10000


@pytest.mark.parametrize(
    ("milli", "period", "quota"),
    [
        (0, 100_000, None),
        (1, 100_000, 1000),
        (10, 100_000, 1000),
        (11, 100_000, 1100),
        (2500, 100_000, 250_000),
        (1500, 10_000, 15_000),
        (50, 10_000, 1000),
    ],
)
def test_quota(milli: int, period: int, quota: int | None) -> None:
    assert qos.cpu_quota(milli, period) == quota
