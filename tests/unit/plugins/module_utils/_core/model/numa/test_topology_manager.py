# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Merging hints: the kubelet's cases, and the same as merging every permutation."""

from __future__ import annotations

import itertools
import typing as t

import pytest
from _core.model.numa import topology_manager
from _core.model.numa.topology_manager import Hint, admits, distances_of, mask_of, merge, narrowest
from hypothesis import given
from hypothesis import strategies as st
from shared_data import KUBELET_CASES, absent, document

Row = dict[str, t.Any]


def hint_of(row: Row) -> Hint:
    nodes = row["affinity"]
    return Hint(None if nodes is None else mask_of(nodes), row["preferred"])


def hints_of(rows: list[Row] | None) -> list[Hint] | None:
    return None if rows is None else [hint_of(row) for row in rows]


def by_resource(providers: list[dict[str, list[Row] | None] | None]) -> list[list[Hint] | None]:
    """The hints of all providers; one that says nothing is a resource without a preference."""
    return [hints_of(rows) for provider in providers for rows in (provider or {"": None}).values()]


def merge_cases(name: str) -> list[t.Any]:
    found = document(name).get("cases")
    if found is None:
        return [absent(KUBELET_CASES / name, "CORRAL_KUBELET_CASES")]
    return [pytest.param(case, id=case["id"]) for case in found]


def unit_cases(kind: str) -> list[t.Any]:
    found = document("topology_units.json").get("cases")
    if found is None:
        return [absent(KUBELET_CASES / "topology_units.json", "CORRAL_KUBELET_CASES")]
    return [pytest.param(case, id=f"{kind}-{number}") for number, case in enumerate(found) if case["kind"] == kind]


@pytest.mark.parametrize("case", [*merge_cases("topology_merge.json"), *merge_cases("topology_merge_generated.json")])
def test_the_kubelets_merges(case: Row) -> None:
    nodes = case["numa_nodes"]
    distances = distances_of(nodes, case["numa_distances"])
    resources = by_resource(case["providers"])
    for order in (resources, resources[::-1]):
        found = merge(case["policy"], order, nodes, distances, prefer_closest=case["prefer_closest_numa"])
        assert found == hint_of(case["expect"])
        assert admits(case["policy"], found) is case["admit"]


@pytest.mark.parametrize("case", unit_cases("can_admit"))
def test_the_kubelets_admissions(case: Row) -> None:
    assert admits(case["policy"], hint_of(case["hint"])) is case["expect"]


@pytest.mark.parametrize("case", unit_cases("filter_single_numa_hints"))
def test_the_kubelets_single_numa_hints(case: Row) -> None:
    found = [topology_manager.single_numa(hints_of(rows) or []) for rows in case["hints"]]
    assert found == [hints_of(rows) or [] for rows in case["expect"]]


@pytest.mark.parametrize("case", unit_cases("max_of_min_affinity_counts"))
def test_the_kubelets_counts(case: Row) -> None:
    assert topology_manager.max_of_min_counts([hints_of(rows) or [] for rows in case["hints"]]) == case["expect"]


@pytest.mark.parametrize("case", unit_cases("compare_hints_narrowest"))
def test_the_kubelets_comparisons(case: Row) -> None:
    current, candidate = (case[name] and hint_of(case[name]) for name in ("current", "candidate"))
    best = narrowest(filter(None, (current, candidate)), case["best_non_preferred_affinity_count"])
    if case["expect"] == "candidate":
        assert best == candidate != current
    else:
        # What has no node is no better than what is there, which may be nothing.
        assert best == current or not (candidate.nodes or (current and current.nodes))


# Against the kubelet's own way: every permutation, compared one by one with the best so far.

NODES = (0, 1, 3)  # ids are sparse on some machines
DISTANCES = distances_of(NODES, ((10, 21, 12), (21, 10, 13), (12, 13, 10)))

masks = st.sets(st.sampled_from((*NODES, 2)), max_size=4).map(mask_of)
hints = st.builds(Hint, st.none() | masks, st.booleans())
listings = st.lists(st.none() | st.lists(hints, max_size=4), max_size=4)


def bits(hint: Hint) -> int:
    return bin(hint.nodes or 0).count("1")


def narrower(one: int, other: int, *, closest: bool) -> bool:
    """The mask rule: whether ``one`` is better than ``other``."""
    sizes = [topology_manager.count(mask) for mask in (one, other)]
    if sizes[0] != sizes[1]:
        return sizes[0] < sizes[1]
    means = [topology_manager.total_distance(mask, DISTANCES) / sizes[0] ** 2 for mask in (one, other)]
    return means[0] < means[1] if closest and means[0] != means[1] else one < other


def replaces(best: Hint | None, found: Hint, wished: int, *, closest: bool) -> bool:
    assert found.nodes is not None
    if best is None or best.preferred is not found.preferred:
        return best is None or found.preferred
    assert best.nodes is not None
    rule = narrower(found.nodes, best.nodes, closest=closest)
    if best.preferred:
        return rule
    now, new = bits(best), bits(found)
    if now > wished:
        return rule
    if now == wished:
        return new == wished and rule
    if new >= wished:
        return new == wished
    return rule if new == now else new > now


def permuted(policy: str, resources: list[list[Hint] | None], *, closest: bool) -> Hint:
    if policy == topology_manager.NONE:
        return Hint(None, False)
    everywhere = mask_of(NODES)
    listed = [[Hint(None, True)] if one is None else one or [Hint(None, False)] for one in resources]
    if policy == "single-numa-node":
        closest = False
        listed = [
            [hint for hint in one if hint.preferred and (hint.nodes is None or bits(hint) == 1)] for one in listed
        ]
    wished = max([min([bits(hint) for hint in one if hint.nodes is not None] or [0]) for one in listed] or [0])
    best: Hint | None = None
    for permutation in itertools.product(*listed):
        named = [hint.nodes for hint in permutation if hint.nodes is not None]
        mask = everywhere
        for one in named:
            mask &= one
        found = Hint(mask, all(hint.preferred for hint in permutation) and len(set(named)) <= 1)
        if mask and replaces(best, found, wished, closest=closest):
            best = found
    best = best or Hint(everywhere, False)
    return Hint(None, best.preferred) if policy == "single-numa-node" and best.nodes == everywhere else best


@given(policy=st.sampled_from(topology_manager.POLICIES), resources=listings, closest=st.booleans())
def test_merging_is_as_good_as_trying_every_permutation(
    policy: str, resources: list[list[Hint] | None], *, closest: bool
) -> None:
    found = merge(policy, resources, NODES, DISTANCES, prefer_closest=closest)
    assert found == permuted(policy, resources, closest=closest)


@given(policy=st.sampled_from(topology_manager.POLICIES), resources=listings, data=st.data())
def test_neither_the_order_nor_a_repeated_hint_matters(
    policy: str, resources: list[list[Hint] | None], data: st.DataObject
) -> None:
    other = [one and [*one, one[0]] for one in data.draw(st.permutations(resources))]
    assert merge(policy, other, NODES) == merge(policy, resources, NODES)


def test_ten_resources_on_eight_nodes_are_no_matter_of_permutations() -> None:
    every = [Hint(mask, topology_manager.count(mask) == 3) for mask in range(1, 256)]
    assert merge("restricted", [every] * 10, range(8)) == Hint(0b111, True)
    unlike = [Hint(mask, False) for mask in range(1, 256)]
    assert merge("restricted", [every, *[unlike] * 9], range(8)) == Hint(0b1, False)


@pytest.mark.parametrize(
    ("policy", "count", "allowed", "refused"),
    [("restricted", 8, 8, False), ("restricted", 9, 8, True), ("best-effort", 64, 64, False), ("none", 64, 8, False)],
)
def test_too_many_nodes(policy: str, count: int, allowed: int, *, refused: bool) -> None:
    assert topology_manager.too_many_nodes(policy, count, allowed) is refused


def test_the_limit_of_nodes_is_never_below_eight() -> None:
    with pytest.raises(ValueError, match="max-allowable-numa-nodes is 7"):
        topology_manager.too_many_nodes("restricted", 4, 7)


def test_masks_and_nodes() -> None:
    assert topology_manager.nodes_of(mask_of((0, 3, 70))) == {0, 3, 70}
    assert topology_manager.nodes_of(0) == frozenset()
    assert topology_manager.count(mask_of((0, 3, 70))) == 3
