# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# This module is private to the collection corral.node.
"""The choice of images to remove: the kubelet's image garbage collection (1.36, pkg/kubelet/images/image_gc_manager.go).

For the kubelet a never used image is infinitely old, so that an age limit removes the image as soon as it is pulled. In Corral the age of
such an image counts from its first detection, and ``min_age`` protects a young image from a removal by age and for space.
"""

from __future__ import annotations

import typing as t

from ..values.records import NamedTuple

# A function that removes an image and returns the freed bytes, or None if the removal was refused and the image still exists.
Remove = t.Callable[["Image"], t.Optional[int]]


class Image(NamedTuple):
    """An image that might be removed. Times are epoch seconds; ``last_used`` None: no use was observed.

    A ``pinned`` image always stays: the keep-list names the image, or the image is read-only.
    """

    id: str
    size: int
    in_use: bool
    pinned: bool
    first_detected: float
    last_used: t.Optional[float] = None


class ImageLimits(NamedTuple):
    """The limits for images: ``high`` and ``low`` are percent of the file system, ages are seconds; a ``max_age`` of 0 is no limit."""

    high: int
    low: int
    min_age: float = 0
    max_age: float = 0

    @property
    def off(self) -> bool:
        """Whether no image is ever removed (the kubelet's way to turn the collection off)."""
        return self.high == 100 and not self.max_age


def candidates(images: t.Iterable[Image]) -> list[Image]:
    """The images that are neither in use nor pinned, in the order of removal: by the time of the last use, then of the first detection."""
    free = [image for image in images if not image.in_use and not image.pinned]
    return sorted(free, key=lambda image: (image.last_used or 0.0, image.first_detected))


def is_young(image: Image, limits: ImageLimits, now: float) -> bool:
    """Whether ``min_age`` protects an image. The age counts from the image's first detection."""
    return now - image.first_detected < limits.min_age


def too_old(
    images: t.Iterable[Image], limits: ImageLimits, now: float, watched: float, *, protect: bool = True
) -> list[Image]:
    """The candidates that were not used for longer than ``max_age``.

    ``watched``: the seconds for which uses have been observed; no image is too old until these seconds exceed ``max_age``. If ``protect``
    is True, unlike in the kubelet, young images stay, and the age of a never used image counts from its first detection.
    """
    if not limits.max_age or watched <= limits.max_age:
        return []
    if protect:
        images = [image for image in images if not is_young(image, limits, now)]
    return [image for image in images if now - unused_since(image, from_first=protect) > limits.max_age]


def unused_since(image: Image, *, from_first: bool) -> float:
    """When an image was last used. For a never used image: its first detection if ``from_first``, else 0 as in the kubelet."""
    if image.last_used is None:
        return image.first_detected if from_first else 0.0
    return image.last_used


def used_percent(capacity: int, available: int) -> int:
    """The used percent of a file system, rounded as in the kubelet. Raises ValueError for a capacity of 0."""
    if capacity <= 0:
        raise ValueError("the file system says that it has no capacity")
    return 100 - min(available, capacity) * 100 // capacity


def bytes_to_free(capacity: int, available: int, limits: ImageLimits) -> t.Optional[int]:
    """The bytes to free to reach ``low``; None if the file system is below ``high``. Raises ValueError for a capacity of 0."""
    if used_percent(capacity, available) < limits.high:
        return None
    return capacity * (100 - limits.low) // 100 - min(available, capacity)


def free(images: t.Iterable[Image], need: float, limits: ImageLimits, now: float, remove: Remove) -> int:
    """Remove candidates in their order until ``need`` bytes are freed. Returns the freed bytes.

    No caller passes a ``need`` of 0: the kubelet would still remove the first image.
    """
    gained = 0
    for image in images:
        if (image.last_used or 0.0) >= now or is_young(image, limits, now):
            continue
        gained += remove(image) or 0
        if gained >= need:
            break
    return gained
