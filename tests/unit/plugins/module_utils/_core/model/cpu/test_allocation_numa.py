# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The quick search against one that looks at everything, as the kubelet does."""

from __future__ import annotations

import itertools
import math
import typing as t

import pytest
from _core.model.cpu import allocation_numa
from _core.model.cpu.allocation_numa import Portion, portions
from example_counts import examples
from hypothesis import given, settings
from hypothesis import strategies as st

NodeSet = tuple[int, ...]


def balance(free: t.Sequence[int]) -> int:
    """The standard deviation in thousandths."""
    variance = len(free) * sum(cpus * cpus for cpus in free) - sum(free) ** 2
    return math.floor(math.sqrt(variance) / len(free) * 1000 + 0.5)


def in_turns(left: list[int], subset: NodeSet, rest: int, group: int) -> tuple[list[int], list[int]] | None:
    """What is left, and who gave, when a subset gives groups in turn until nothing is missing."""
    after, turns = list(left), []
    while rest > len(turns):
        able = [node for node in subset if after[node] >= group]
        if not able:
            return None
        for node in able[: rest - len(turns)]:
            after[node] -= group
            turns.append(node)
    return after, turns


def of_nodes(free: t.Sequence[int], nodes: NodeSet, count: int, group: int) -> tuple[int, list[Portion]] | None:
    """The best balance that these nodes can leave, and their portions."""
    share = count // len(nodes) // group * group
    rest = count // group - share // group * len(nodes)
    if any(free[node] < share for node in nodes):
        return None
    left = [cpus - share if node in nodes else cpus for node, cpus in enumerate(free)]
    if not rest:
        return balance(left), [(node, share) for node in nodes]
    able = [node for node in nodes if left[node] >= group]
    best: tuple[int, list[Portion]] | None = None
    for number in range(len(able), 0, -1):
        for subset in itertools.combinations(able, number):
            done = in_turns(left, subset, rest, group)
            if done and (best is None or balance(done[0]) < best[0]):
                best = balance(done[0]), [(node, share) for node in nodes] + [(node, group) for node in done[1]]
    return best


def looking_at_everything(free: t.Sequence[int], count: int, group: int, fewest: int) -> list[Portion] | None:
    for number in range(fewest, min(count // group, len(free)) + 1):
        best: tuple[int, list[Portion]] | None = None
        for nodes in itertools.combinations(range(len(free)), number):
            found = of_nodes(free, nodes, count, group)
            if found and (best is None or found[0] < best[0]):
                best = found
        if best:
            return best[1]
    return None


@st.composite
def requests(draw: st.DrawFn, nodes: int, cpus: int, ascending: bool) -> tuple[list[int], int, int, int]:
    free = draw(st.lists(st.integers(1, cpus), min_size=1, max_size=nodes))
    group = draw(st.sampled_from([1, 1, 2, 4]))
    groups = draw(st.integers(1, max(1, sum(free) // group)))
    return sorted(free) if ascending else free, groups * group, group, draw(st.integers(1, len(free)))


@settings(max_examples=examples(400), deadline=None)
@given(requests(6, 12, ascending=True) | requests(6, 12, ascending=False) | requests(5, 500, ascending=True))
def test_the_kubelets_choice(request: tuple[list[int], int, int, int]) -> None:
    assert portions(*request) == looking_at_everything(*request)


@pytest.mark.parametrize(
    ("free", "count", "group", "fewest", "expected"),
    [
        ([4, 4], 4, 1, 2, [(0, 2), (1, 2)]),
        ([4, 4], 5, 1, 2, [(0, 2), (1, 2), (0, 1)]),
        # the fullest nodes, and of equal ones the first
        ([2, 6, 6, 6], 4, 1, 2, [(1, 2), (2, 2)]),
        # whole groups only
        ([3, 3], 4, 2, 2, [(0, 2), (1, 2)]),
        ([3, 3], 6, 2, 2, None),
        # the whole remainder from the one node that has much
        ([4, 4, 22, 28, 32], 70, 2, 3, [(2, 22), (3, 22), (4, 22), (4, 2), (4, 2)]),
        # one node more when so few cannot share
        ([2, 8, 8], 18, 1, 2, None),
        ([1, 8, 8], 16, 1, 1, [(1, 8), (2, 8)]),
        ([3, 3, 3, 3], 7, 1, 2, [(0, 2), (1, 2), (2, 2), (0, 1)]),
    ],
)
def test_examples(free: list[int], count: int, group: int, fewest: int, expected: list[Portion] | None) -> None:
    assert portions(free, count, group, fewest) == expected


def test_remainder_that_fits_only_in_parts_of_groups() -> None:
    """7 free groups of two for seven: each of four nodes gives one, the three left come from where they are whole.

    The kubelet counts the CPUs left in nodes 0 and 1, 3 + 3, as enough for 3 x 2, and gives for ever.
    """
    found = portions([5, 5, 5, 5], 14, 2, 4)
    assert found == [(0, 2), (1, 2), (2, 2), (3, 2), (0, 2), (1, 2), (2, 2)]


@settings(max_examples=examples(60), deadline=None)
@given(requests(64, 16, ascending=True) | requests(64, 32, ascending=False), st.booleans())
def test_many_uneven_nodes_share_evenly(request: tuple[list[int], int, int, int], impatient: bool) -> None:
    """Also when looking ends early."""
    free, count, group, fewest = request
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(allocation_numa, "LIMIT", 0 if impatient else allocation_numa.LIMIT)
        found = portions(free, count, group, fewest)
    if found is None:
        return
    given_by: dict[int, int] = {}
    for node, cpus in found:
        given_by[node] = given_by.get(node, 0) + cpus
    assert sum(given_by.values()) == count
    assert all(cpus <= free[node] for node, cpus in given_by.items())
    share = count // len(given_by) // group * group
    assert min(given_by.values()) == share, "an equal share each, and the remainder on top"


@pytest.mark.parametrize("count", [64, 65, 100, 300, 640, 1000, 1023])
def test_looks_are_bounded(count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """64 nodes: the kubelet would look at up to 64 over 32 combinations, 1.8e18."""
    looks = []
    search = allocation_numa._Search.run

    def counting(self: t.Any) -> t.Any:
        found = search(self)
        looks.append(self.tries)
        return found

    monkeypatch.setattr(allocation_numa._Search, "run", counting)
    for free in ([16] * 64, [1 + node % 16 for node in range(64)], sorted(1 + node * 7 % 16 for node in range(64))):
        portions(free, min(count, sum(free)), 1, -(-count // 16))
    assert max(looks) <= allocation_numa.LIMIT + 64 * 64


def test_more_nodes_than_are_searched() -> None:
    """No combination is looked for, and none of the many nodes makes Python's stack overflow."""
    free = [1 + node % 7 for node in range(1500)]
    found = portions(free, 2600, 2, 1300)
    assert found is None, "1,300 of the nodes do not have 2 CPUs each"
    found = portions(free, 2000, 2, 1000)
    assert found == [(node, 2) for node in sorted(sorted(range(1500), key=lambda node: -free[node])[:1000])]
