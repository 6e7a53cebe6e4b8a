# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The order of a hand-over: no new overlap at any instant, and it ends where it should."""

from __future__ import annotations

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
    homes += [Home("machine.slice", now[1], wanted[1]), Home("shared", now[1], wanted[1], frame="top")]
    if wanted[2]:
        homes.append(Home("isolated", now[2], wanted[2], guarded=True, frame="top"))
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
            if home.frame and now[home.unit] and unit == home.unit:
                assert now[unit] <= top, "the kernel would give it the parent's CPUs"
        assert cpus, "a unit is never without CPUs"
    return {**now, "top": top}


@given(partitions(), partitions())
def test_from_any_pools_to_any_pools(now: tuple[frozenset[int], ...], wanted: tuple[frozenset[int], ...]) -> None:
    homes = homes_of(now, wanted)
    frames = {"top": (now[1] | now[2], wanted[1] | wanted[2])}
    try:
        moves = handover.order(homes, frames, wanted[0])
    except Stuck:
        # Everybody else sits on what the isolated pool gets, and it sits on all that they could wait on.
        assert wanted[0] & now[2]
        assert (now[0] | now[1] | wanted[0] | wanted[1]) <= now[2] | wanted[2]
        return
    assert handover.new_overlap(homes, moves) is None
    end = replay(homes, moves, frames["top"][0])
    assert end == {**{home.unit: home.wanted for home in homes}, "top": frames["top"][1]}


@given(partitions())
def test_from_a_fresh_node_there_is_always_a_way(wanted: tuple[frozenset[int], ...]) -> None:
    empty: frozenset[int] = frozenset()
    homes = [Home("system.slice", CPUS, wanted[0]), Home("shared", empty, wanted[1], frame="top")]
    homes += [Home("isolated", empty, wanted[2], guarded=True, frame="top")] if wanted[2] else []
    moves = handover.order(homes, {"top": (empty, wanted[1] | wanted[2])}, wanted[0])
    assert handover.new_overlap(homes, moves) is None
    replay(homes, moves, empty)


@given(partitions())
def test_nothing_to_do_is_no_move(pools: tuple[frozenset[int], ...]) -> None:
    assert handover.order(homes_of(pools, pools), {"top": (pools[1] | pools[2], pools[1] | pools[2])}, pools[0]) == []


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
