# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What images share, and what the removal of one gains."""

from __future__ import annotations

import pytest
from _core.model.gc import image_layers
from _core.model.gc.image_layers import Layers
from hypothesis import given
from hypothesis import strategies as st
from test_profile_anything import anything

# A forest: each layer's parent is an earlier one, or none. Images point at their uppermost layers.
parents = st.lists(st.integers(-1, 30), min_size=1, max_size=12).map(
    lambda rows: {str(number): str(row) for number, row in enumerate(rows) if 0 <= row < number}
)


@st.composite
def storages(draw: st.DrawFn) -> tuple[dict[str, str], dict[str, int], dict[str, list[str]]]:
    above = draw(parents)
    names = sorted({*above, *above.values(), "0"})
    sizes = {name: draw(st.integers(0, 100)) for name in names}
    tops = draw(st.dictionaries(st.text("abc", min_size=1), st.lists(st.sampled_from(names), max_size=2), max_size=6))
    return above, sizes, tops


def below(above: dict[str, str], tops: list[str]) -> set[str]:
    found = set(tops)
    for layer in tops:
        while layer in above:
            layer = above[layer]
            found.add(layer)
    return found


@given(storage=storages(), data=st.data())
def test_in_whatever_order_they_go_all_that_is_theirs_alone_is_gained_once(
    storage: tuple[dict[str, str], dict[str, int], dict[str, list[str]]], data: st.DataObject
) -> None:
    above, sizes, tops = storage
    layers = Layers(above, sizes, tops)
    going = data.draw(st.permutations(sorted(tops)))[: data.draw(st.integers(0, len(tops)))]
    gained = 0
    for image in going:
        gained += layers.gain(image) or 0
        layers.remove(image)
        assert layers.gain(image) is None
    staying = {layer for image in tops if image not in going for layer in below(above, tops[image])}
    theirs = {layer for image in going for layer in below(above, tops[image])} - staying
    assert gained == sum(sizes[layer] for layer in theirs)


def test_parents_in_a_circle_end() -> None:
    assert image_layers.chain({"a": "b", "b": "a"}, ["a"]) == {"a", "b"}


KEYS = st.sampled_from(["id", "parent", "layer", "mapped-layers", "diff-size"])
lists = anything | st.lists(st.dictionaries(KEYS, anything, max_size=5), max_size=4)


@given(lists, lists)
def test_any_json_is_layers_or_a_value_error(images: object, layers: object) -> None:
    try:
        found = image_layers.read(images, layers)
    except ValueError:
        return
    assert all((found.gain(image) or 0) >= 0 for image in found.chains)


def test_the_lists_as_a_storage_keeps_them() -> None:
    layers = [
        {"id": "base", "diff-size": 10},
        {"id": "top", "parent": "base", "diff-size": 5},
        {"id": "of-a-container", "parent": "top"},
    ]
    images = [{"id": "a", "layer": "base"}, {"id": "b", "layer": "top"}, {"id": "list", "names": ["x"]}]
    found = image_layers.read(images, layers)
    assert [found.gain(image) for image in ("a", "b", "list", "unknown")] == [0, 5, 0, None]
    with pytest.raises(ValueError, match="not as expected"):
        image_layers.read(images, None)
