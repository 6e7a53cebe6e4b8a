# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which devices a container gets, and the hints of a resource, beside the kubelet's own way written down for this test alone."""

from __future__ import annotations

import itertools
import typing as t

import pytest
from _core.model.devices.device import Device
from _core.model.devices.device_allocation import TooFew, choose, demand
from _core.model.numa import affinity
from _core.model.numa.node_sets import providers_of
from _core.model.numa.topology_manager import Hint, Policy, mask_of
from example_counts import examples
from hypothesis import assume, given, settings
from hypothesis import strategies as st


def device(name: str, node: int) -> Device:
    return Device(name, node, "", (), None, (), (), frozenset({name}), frozenset())


def made(text: str) -> list[Device]:
    """``a0 b1 c-``: a on node 0, b on node 1, c on none."""
    return [device(word[0], -1 if word[1:] == "-" else int(word[1:])) for word in text.split()]


def ids(devices: t.Iterable[Device]) -> str:
    return "".join(one.id for one in devices)


@pytest.mark.parametrize(
    ("free", "count", "nodes", "reusable", "kept", "wanted"),
    [
        ("d0 c0 b0 a0", 2, None, "", "", "ab"),  # in the order of ids
        ("a1 b1 c0 d0", 1, [0], "", "", "c"),  # aligned first
        ("a1 b1 c0 d0", 3, [0], "", "", "acd"),  # all aligned ones, then the others
        ("a- b1 c0", 2, [0], "", "", "bc"),  # those without a node come last
        ("a- b1 c0", 3, [0], "", "", "abc"),
        ("a1 b0 c0", 1, [0], "a", "", "a"),  # those of finished init containers first, wherever they are
        ("a0 b0 c1", 1, [0], "", "b", "b"),  # what it had before is preferred
        ("a0 b0 c1", 1, [0], "", "c", "a"),  # but on the nodes that were chosen
        ("a0 b1 c1", 2, [0], "", "c", "ac"),
        ("a0 b1 c-", 2, None, "", "c", "ac"),
        ("a0 b1", 0, [1], "", "", ""),
    ],
)
def test_the_order(free: str, count: int, nodes: list[int] | None, reusable: str, kept: str, wanted: str) -> None:
    assert ids(choose(made(free), count, nodes, reusable=set(reusable), kept=set(kept))) == wanted


def test_too_few() -> None:
    with pytest.raises(TooFew, match="2 asked, 1 free"):
        choose(made("a0"), 2)


NAMES = "abcdefgh"
DEVICES = st.lists(st.integers(-1, 3), min_size=1, max_size=8).map(
    lambda nodes: [device(name, node) for name, node in zip(NAMES, nodes)]
)


@settings(max_examples=examples(200), deadline=None)
@given(st.data(), DEVICES)
def test_no_choice_is_aligned_worse_than_possible_and_its_order_is_of_no_matter(
    data: st.DataObject, free: list[Device]
) -> None:
    count = data.draw(st.integers(0, len(free)))
    nodes = data.draw(st.none() | st.frozensets(st.integers(0, 3), min_size=1))
    kept = data.draw(st.frozensets(st.sampled_from(NAMES)))
    found = choose(free, count, nodes, kept=kept)
    assert len(set(found)) == len(found) == count
    assert set(found) <= set(free)
    assert found == choose(free[::-1], count, nodes, kept=kept)
    if nodes is not None:
        aligned = sum(one.numa_node in nodes for one in free)
        assert sum(one.numa_node in nodes for one in found) == min(count, aligned)
        without = sum(one.numa_node < 0 for one in free)
        assert sum(one.numa_node < 0 for one in found) == max(0, count - (len(free) - without))
    # What is given once is not free for the next.
    rest = [one for one in free if one not in found]
    assert not set(choose(rest, len(rest), nodes)) & set(found)


@settings(max_examples=examples(100), deadline=None)
@given(st.data(), DEVICES)
def test_devices_of_init_containers_are_taken_first(data: st.DataObject, free: list[Device]) -> None:
    reusable = data.draw(st.frozensets(st.sampled_from([one.id for one in free])))
    count = data.draw(st.integers(0, len(free)))
    found = {one.id for one in choose(free, count, [0], reusable=reusable)}
    assert len(found & reusable) == min(count, len(reusable))


def kubelet_hints(
    everything: list[Device], available: set[str], reusable: set[str], request: int, nodes: list[int]
) -> list[Hint]:
    """generateDeviceTopologyHints of pkg/kubelet/cm/devicemanager/topology_hints.go, for devices with one node at most."""
    smallest, found = len(nodes), []
    masks = [set(some) for size in range(1, len(nodes) + 1) for some in itertools.combinations(nodes, size)]
    for mask in masks:
        if sum(one.numa_node in mask for one in everything) >= request:
            smallest = min(smallest, len(mask))
        those = [one for one in everything if one.id in reusable and one.numa_node >= 0]
        if any(one.numa_node not in mask for one in those):
            continue
        matching = len(those) + sum(one.id in available and one.numa_node in mask for one in everything)
        if matching >= request:
            found.append(mask)
    return [Hint(mask_of(mask), len(mask) == smallest) for mask in found]


@settings(max_examples=examples(300), deadline=None)
@given(st.data(), DEVICES)
def test_hints_are_the_kubelets(data: st.DataObject, everything: list[Device]) -> None:
    nodes = [0, 1, 2, 3]
    names = [one.id for one in everything]
    reusable = data.draw(st.frozensets(st.sampled_from(names)))
    available = data.draw(st.frozensets(st.sampled_from(names))) - reusable
    request = data.draw(st.integers(1, 8))
    assume(
        len(available | reusable) >= request
    )  # The kubelet gives an empty list else, and so does a demand that fits nowhere.
    found = demand("example.com/a", request, everything, available | reusable, nodes, reusable)
    if all(one.numa_node < 0 for one in everything):
        assert found is None
        return
    assert found is not None
    (provider,) = providers_of(Policy("restricted"), [found])
    assert sorted(affinity.hints_of(provider), key=str) == sorted(
        kubelet_hints(everything, set(available), set(reusable), request, nodes), key=str
    )


def test_a_device_on_a_node_that_the_machine_does_not_have_counts_on_none() -> None:
    found = demand("example.com/a", 1, made("a0 b7"), {"a", "b"}, [0, 1])
    assert found is not None
    assert (found.capacity, found.free) == ({0: 1, 1: 0}, {0: 1, 1: 0})
    assert demand("example.com/a", 1, made("b7 c-"), {"b", "c"}, [0, 1]) is None
