# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The order of a hand-over: no new overlap at any instant, and it ends where it should."""

from __future__ import annotations

import typing as t

import pytest
from _core.model import handover
from _core.model.handover import Home, Stuck
from hypothesis import given
from hypothesis import strategies as st

CPUS = frozenset(range(8))


@st.composite
def partitions(draw: st.DrawFn) -> tuple[frozenset[int], frozenset[int], frozenset[int]]:
    """Reserved and shared are never empty; isolated may be."""
    labels = draw(st.lists(st.sampled_from("rsi"), min_size=8, max_size=8).filter(lambda row: {"r", "s"} <= set(row)))
    return tuple(frozenset(cpu for cpu in CPUS if labels[cpu] == pool) for pool in "rsi")  # type: ignore[return-value]


def homes_of(now: tuple[frozenset[int], ...], wanted: tuple[frozenset[int], ...]) -> list[Home]:
    homes = [Home("system.slice", now[0], wanted[0]), Home("user.slice", now[0], wanted[0])]
    homes += [Home("machine.slice", now[1], wanted[1]), Home("shared", now[1], wanted[1], frames=("top",))]
    if wanted[2]:
        homes.append(Home("isolated", now[2], wanted[2], guarded=True, frames=("top",)))
    return homes


def replay(
    homes: list[Home], moves: list[tuple[str, frozenset[int]]], top: frozenset[int]
) -> dict[str, frozenset[int]]:
    now = {home.unit: home.now for home in homes}
    for unit, cpus in moves:
        if unit == "top":
            top = cpus
        else:
            now[unit] = cpus
        for home in homes:
            if home.frames and now[home.unit] and unit == home.unit:
                assert now[unit] <= top, "the kernel would give it the parent's CPUs"
        assert cpus, "a unit is never without CPUs"
    return {**now, "top": top}


@given(partitions(), partitions())
def test_from_any_pools_to_any_pools(now: tuple[frozenset[int], ...], wanted: tuple[frozenset[int], ...]) -> None:
    homes = homes_of(now, wanted)
    frames = {"top": (now[1] | now[2], wanted[1] | wanted[2])}
    moves = handover.order(homes, frames, wanted[0])
    assert handover.new_overlap(homes, moves) is None
    end = replay(homes, moves, frames["top"][0])
    assert end == {**{home.unit: home.wanted for home in homes}, "top": frames["top"][1]}


@given(partitions())
def test_from_a_fresh_node_there_is_always_a_way(wanted: tuple[frozenset[int], ...]) -> None:
    empty: frozenset[int] = frozenset()
    homes = [Home("system.slice", CPUS, wanted[0]), Home("shared", empty, wanted[1], frames=("top",))]
    homes += [Home("isolated", empty, wanted[2], guarded=True, frames=("top",))] if wanted[2] else []
    moves = handover.order(homes, {"top": (empty, wanted[1] | wanted[2])}, wanted[0])
    assert handover.new_overlap(homes, moves) is None
    replay(homes, moves, empty)


@given(partitions())
def test_nothing_to_do_is_no_move(pools: tuple[frozenset[int], ...]) -> None:
    assert handover.order(homes_of(pools, pools), {"top": (pools[1] | pools[2], pools[1] | pools[2])}, pools[0]) == []


# Workloads with CPUs of their own lie in two frames: corral.slice, and in that corral-exclusive.slice.
OUTER, INNER = "top", "inner"
OWN = ("x", "y", "z")
Now = dict[str, frozenset[int]]


@st.composite
def owners(draw: st.DrawFn) -> list[str]:
    """Who has each CPU: the reserved pool, the shared one or a workload; the pools are never without any."""
    labels = draw(st.lists(st.sampled_from([*"rs", *OWN]), min_size=8, max_size=8))
    return labels if {"r", "s"} <= set(labels) else ["r", "s", *labels[2:]]


def of(labels: list[str], owner: str) -> frozenset[int]:
    return frozenset(cpu for cpu, label in enumerate(labels) if label == owner)


def workload_homes(
    now: list[str], wanted: list[str]
) -> tuple[list[Home], dict[str, tuple[frozenset[int], frozenset[int]]]]:
    homes = [Home("system.slice", of(now, "r"), of(wanted, "r"))]
    homes.append(Home("shared", of(now, "s"), of(wanted, "s"), frames=(OUTER,)))
    # Who has no CPUs now is yet to start, who gets none is gone before.
    own = [name for name in OWN if of(wanted, name)]
    homes += [Home(name, of(now, name), of(wanted, name), True, (OUTER, INNER)) for name in own]
    inner = [frozenset[int]().union(*(of(labels, name) for name in own)) for labels in (now, wanted)]
    outer = [of(labels, "s") | part for labels, part in zip((now, wanted), inner)]
    frames = {OUTER: (outer[0], outer[1])}
    if inner[1]:
        frames[INNER] = (inner[0], inner[1])
    return homes, frames


def step_by_step(homes: list[Home], frames: dict[str, tuple[frozenset[int], frozenset[int]]], moves: t.Any) -> Now:
    """Replay the moves; after each one everybody lies within what is around it, and no guarded home shares."""
    now = {home.unit: home.now for home in homes} | {name: cpus for name, (cpus, dummy) in frames.items()}
    for unit, cpus in moves:
        assert cpus, "a unit is never without CPUs"
        now[unit] = cpus
        for home in homes:
            for frame in home.frames:
                assert now[home.unit] <= now[frame], f"{home.unit} outside {frame} after {unit}"
        if INNER in now:
            assert now[INNER] <= now[OUTER], f"the inner frame outside after {unit}"
        for home in homes:
            others = [other for other in homes if other is not home and home.guarded]
            assert not any(now[home.unit] & now[other.unit] for other in others), f"{home.unit} shares after {unit}"
    return now


@given(owners(), owners())
def test_workloads_hand_over_within_two_frames(now: list[str], wanted: list[str]) -> None:
    homes, frames = workload_homes(now, wanted)
    moves = handover.order(homes, frames, of(wanted, "r"))
    assert handover.new_overlap(homes, moves) is None
    end = step_by_step(homes, frames, moves)
    assert end == {
        **{home.unit: home.wanted for home in homes},
        **{name: cpus for name, (dummy, cpus) in frames.items()},
    }


def test_who_can_keep_a_part_steps_aside_before_others_lend() -> None:
    homes, frames = workload_homes(list("xzrsrrrs"), list("rsyxyyyz"))
    moves = handover.order(homes, frames, frozenset({0}))
    assert handover.new_overlap(homes, moves) is None
    step_by_step(homes, frames, moves)


# On machines so small that somebody must leave his last CPU, or begin with a part of what he is to have.
TIGHT = [
    "rszx rsxz", "xrxxs zzrsx", "sxryx xyrxs", "sryyx yxxrs", "xryxs rxysx", "xyrrs rsyyx", "xsyr ysxr", "xsyxr yxrsx",
    "rsyrx zxrys", "ryrys yrzsy", "xrxsr rzsyx", "yxrs srxy",
]  # fmt: skip


@pytest.mark.parametrize("pools", TIGHT)
def test_there_is_a_way_where_it_is_tight(pools: str) -> None:
    now, wanted = map(list, pools.split())
    homes, frames = workload_homes(now, wanted)
    moves = handover.order(homes, frames, of(wanted, "r"))
    end = step_by_step(homes, frames, moves)
    assert all(end[home.unit] == home.wanted for home in homes)


@pytest.mark.parametrize("circle", [("x", "y"), ("x", "y", "z")])
def test_workloads_that_swap_wait_on_a_cpu_that_others_lend(circle: tuple[str, ...]) -> None:
    now = [*circle, "r", "s", "s"]
    wanted = [*circle[1:], circle[0], "r", "s", "s"]
    homes, frames = workload_homes(now, wanted)
    moves = handover.order(homes, frames, of(wanted, "r"))
    assert handover.new_overlap(homes, moves) is None
    assert step_by_step(homes, frames, moves)["shared"] == of(wanted, "s")


def test_workloads_that_swap_are_stuck_where_nobody_can_spare_a_cpu() -> None:
    homes, frames = workload_homes(["x", "y", "s"], ["y", "x", "s"])
    with pytest.raises(Stuck):
        handover.order(homes, frames, frozenset())


def test_the_validator_sees_what_the_order_must_not_do() -> None:
    homes = [Home("a", frozenset({0}), frozenset({1}), guarded=True), Home("b", frozenset({1}), frozenset({0}))]
    assert handover.new_overlap(homes, [("a", frozenset({1})), ("b", frozenset({0}))]) == ("a", "b", 1)
    with pytest.raises(Stuck):
        handover.order(homes, {}, frozenset())


def test_an_overlap_that_is_there_already_is_mended_not_refused() -> None:
    homes = [Home("a", frozenset({0, 1}), frozenset({1}), guarded=True), Home("b", frozenset({0, 1}), frozenset({0}))]
    moves = handover.order(homes, {}, frozenset({0}))
    assert handover.new_overlap(homes, moves) is None
    assert replay(homes, moves, frozenset()) == {"a": {1}, "b": {0}, "top": frozenset()}
