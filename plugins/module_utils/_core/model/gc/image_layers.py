# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# This module is private to the collection corral.node.
"""The bytes that the removal of an image frees: the sizes of layers that no other image has.

The removal of the last image with a shared layer frees the layer.
"""

from __future__ import annotations

import typing as t

# The keys that Corral reads from the storage's lists of images and layers.
IMAGE, LAYER = ("id", "layer", "mapped-layers"), ("id", "parent", "diff-size")
MOST = 1_000_000  # the most layers of all images together, three times the layers of 10,000 images with 30 layers each


class Layers:
    """The layers of a storage. ``parents`` and ``sizes`` (bytes) are by layer; ``tops`` has the uppermost layers of each image."""

    def __init__(
        self, parents: t.Mapping[str, str], sizes: t.Mapping[str, int], tops: t.Mapping[str, t.Sequence[str]]
    ) -> None:
        self.sizes = sizes
        self.chains: dict[str, frozenset[str]] = {}
        self.users: dict[str, int] = {}
        left = MOST
        for image, layers in tops.items():
            self.chains[image] = own = chain(parents, layers)
            left -= len(own)
            if left < 0:
                raise ValueError("too many layers")
            for layer in own:
                self.users[layer] = self.users.get(layer, 0) + 1

    def gain(self, image: str) -> t.Optional[int]:
        """The bytes that removing the image now would free; None for an unknown image."""
        layers = self.chains.get(image)
        if layers is None:
            return None
        return sum(self.sizes.get(layer, 0) for layer in layers if self.users[layer] == 1)

    def remove(self, image: str) -> None:
        """No longer count the image as a user of its layers."""
        for layer in self.chains.pop(image, ()):
            self.users[layer] -= 1


def chain(parents: t.Mapping[str, str], tops: t.Sequence[str]) -> frozenset[str]:
    """The layers ``tops`` with all layers below, by the parent of each layer."""
    layers: set[str] = set()
    for layer in tops:
        while layer and layer not in layers:
            layers.add(layer)
            layer = parents.get(layer, "")
    return frozenset(layers)


def read(images: object, layers: object) -> Layers:
    """The layers that the storage's lists name (images.json and layers.json of containers/storage).

    Raises ValueError for lists of another form.
    """
    parents: dict[str, str] = {}
    sizes: dict[str, int] = {}
    tops: dict[str, t.Sequence[str]] = {}
    try:
        for row in t.cast("list[dict[str, t.Any]]", layers):
            parents[row["id"]] = row.get("parent") or ""
            size = row.get("diff-size") or 0
            sizes[row["id"]] = max(int(size), 0) if isinstance(size, (int, float)) else 0
        for row in t.cast("list[dict[str, t.Any]]", images):
            # The image of a manifest list has no layer. Mapped layers are copies for a user namespace.
            tops[row["id"]] = [layer for layer in (row.get("layer"), *(row.get("mapped-layers") or ())) if layer]
        return Layers(parents, sizes, tops)
    except (TypeError, KeyError, AttributeError, ValueError, OverflowError):
        raise ValueError("the storage's lists of images and layers are not as expected") from None
