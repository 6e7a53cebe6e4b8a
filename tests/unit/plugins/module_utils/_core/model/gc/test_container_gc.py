# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The kubelet's container garbage collection: its cases, and what holds for any containers."""

from __future__ import annotations

import typing as t

import pytest
from _core.model.gc import container_gc
from _core.model.gc.container_gc import Dead, DeadLimits, Pod
from hypothesis import given
from hypothesis import strategies as st
from shared_data import cases

NOW = 10**11


def has_left(case: dict[str, t.Any], pod: str) -> bool:
    """Whether the kubelet is done with a pod."""
    return pod in case["pods_deleted"] or (case["evict_non_deleted_pods"] and pod in case["pods_terminated"])


@pytest.mark.parametrize("case", cases("container_gc.json", lambda case: case["kind"] == "containers"))
def test_the_kubelets_containers(case: dict[str, t.Any]) -> None:
    policy = case["policy"]
    dead = [
        Dead(
            str(index),
            (row["pod"], row["container"]),
            NOW if row["created_now"] else row["created_at_ns"] * 1e-9,
            case["all_sources_ready"] and has_left(case, row["pod"]),
        )
        for index, row in enumerate(case["containers"])
        if row["state"] != "RUNNING"
    ]
    limits = DeadLimits(policy["min_age_s"], policy["max_per_pod_container"], policy["max_containers"])
    gone = {one.id for one in container_gc.evict(dead, limits, NOW)}
    assert [index for index in range(len(case["containers"])) if str(index) not in gone] == case["expect_remaining"]


@pytest.mark.parametrize("case", cases("container_gc.json", lambda case: case["kind"] == "sandboxes"))
def test_the_kubelets_sandboxes(case: dict[str, t.Any]) -> None:
    holding = {(row["pod"], row["sandbox_attempt"]) for row in case["containers"]}
    pods = [
        Pod(
            str(index),
            row["pod"],
            row["created_at_ns"] * 1e-9,
            row["state"] == "READY" or (row["pod"], row["attempt"]) in holding,
            has_left(case, row["pod"]),
        )
        for index, row in enumerate(case["sandboxes"])
    ]
    gone = {one.id for one in container_gc.evict_pods(pods)}
    assert [index for index in range(len(case["sandboxes"])) if str(index) not in gone] == case["expect_remaining"]


HOUR = 3600
LEFT = ("gone", "away")  # units that left; the others stay
units = st.sampled_from(("a", "b", "c", *LEFT))
dead_ones = st.lists(
    st.tuples(st.integers(0, 10**6), units, st.integers(0, HOUR)), max_size=25, unique_by=lambda row: row[0]
).map(lambda rows: [Dead(str(number), unit, since, unit in LEFT) for number, unit, since in rows])
policies = st.builds(DeadLimits, st.integers(0, HOUR), st.integers(-1, 4), st.integers(-1, 12))


@given(dead=dead_ones, limits=policies)
def test_limits_hold_the_oldest_go_first_and_what_left_goes_whole(dead: list[Dead], limits: DeadLimits) -> None:
    gone = container_gc.evict(dead, limits, HOUR)
    assert len(set(gone)) == len(gone)
    assert [one.since for one in gone] == sorted(one.since for one in gone)
    assert all(HOUR - one.since >= limits.min_age for one in gone)
    old = [one for one in dead if HOUR - one.since >= limits.min_age]
    assert all(one in gone for one in old if one.left)
    kept = [one for one in old if one not in gone]
    for unit in {one.unit for one in kept}:
        of_unit = [one for one in kept if one.unit == unit]
        assert limits.per_unit < 0 or len(of_unit) <= limits.per_unit
        # Of a unit the older ones go before the newer ones.
        oldest = min(one.since for one in of_unit)
        assert all(one.since <= oldest for one in gone if one.unit == unit)
    assert limits.total < 0 or len(kept) <= limits.total
    if limits.per_unit < 0 and limits.total < 0:
        assert [one for one in gone if not one.left] == []


@given(dead=dead_ones, per_unit=st.integers(0, 4))
def test_no_more_go_than_the_limit_of_a_unit_asks(dead: list[Dead], per_unit: int) -> None:
    gone = container_gc.evict(dead, DeadLimits(0, per_unit, -1), HOUR)
    for unit in {one.unit for one in dead if not one.left}:
        there = sum(one.unit == unit for one in dead)
        assert sum(one.unit == unit for one in gone) == max(there - per_unit, 0)


@given(dead=dead_ones, total=st.integers(0, 12))
def test_no_more_go_than_the_limit_in_all_asks(dead: list[Dead], total: int) -> None:
    staying = [one for one in dead if not one.left]
    gone = [one for one in container_gc.evict(dead, DeadLimits(0, -1, total), HOUR) if not one.left]
    # The kubelet shares the room out evenly, and what a unit does not need of its share is not given to another.
    assert len(staying) - len(gone) <= total
    assert gone == [] or len(staying) > total


pods = st.lists(
    st.tuples(st.integers(0, 10**6), units, st.integers(0, HOUR), st.booleans()),
    max_size=12,
    unique_by=lambda row: row[0],
).map(lambda rows: [Pod(str(number), unit, since, active, unit in LEFT) for number, unit, since, active in rows])


@given(found=pods)
def test_never_an_active_pod_and_never_the_newest_of_one_that_stays(found: list[Pod]) -> None:
    gone = container_gc.evict_pods(found)
    assert not any(one.active for one in gone)
    for unit in {one.unit for one in found}:
        of_unit = [one for one in found if one.unit == unit]
        newest = max(one.since for one in of_unit)
        going = [one for one in gone if one.unit == unit]
        idle = [one for one in of_unit if not one.active]
        assert len(going) == len(idle) if unit in LEFT else len(going) >= len(idle) - 1
        assert unit in LEFT or len(going) < len(of_unit)
        assert unit in LEFT or all(one.since < newest or len(of_unit) > 1 for one in going)
