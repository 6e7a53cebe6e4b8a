# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# This module is private to the collection corral.node.
"""Which images go: the kubelet's image garbage collection (1.36, pkg/kubelet/images/image_gc_manager.go).

One difference: an image that was never used is infinitely old for the kubelet, so that an age limit removes it the
moment it was pulled. Here its age counts from when it was first seen, and ``min_age`` protects from both reasons (see
``too_old``, ``protect``).
"""

from __future__ import annotations

import typing as t

from ..values.records import NamedTuple

# A function that removes an image and returns the bytes that this freed; None: it was refused, and the image still exists.
Remove = t.Callable[["Image"], t.Optional[int]]


class Image(NamedTuple):
    """An image that might be removed. Times are epoch seconds; ``last_used`` None: no use was observed.

    ``pinned`` is kept whatever happens: by the keep-list, or because it is not ours to remove.
    """

    id: str
    size: int
    in_use: bool
    pinned: bool
    first_detected: float
    last_used: t.Optional[float] = None


class Limits(NamedTuple):
    """``high`` and ``low`` in percent of the file system, ages in seconds; ``max_age`` 0: no limit."""

    high: int
    low: int
    min_age: float = 0
    max_age: float = 0

    @property
    def off(self) -> bool:
        """Whether nothing is ever collected (the kubelet's way to turn it off)."""
        return self.high == 100 and not self.max_age


def candidates(images: t.Iterable[Image]) -> list[Image]:
    """The images that are neither used nor kept, the first to go first: least recently used, then first seen."""
    free = [image for image in images if not image.in_use and not image.pinned]
    return sorted(free, key=lambda image: (image.last_used or 0.0, image.first_detected))


def is_young(image: Image, limits: Limits, now: float) -> bool:
    """Whether an image is protected by its age, counted from when it was first seen."""
    return now - image.first_detected < limits.min_age


def too_old(
    found: t.Iterable[Image], limits: Limits, now: float, watched: float, *, protect: bool = True
) -> list[Image]:
    """The candidates that were not used for longer than ``max_age``.

    ``watched`` is for how many seconds use has been looked at: while that is shorter the age is unknown. ``protect`` leaves
    alone the young ones, and those that were never used and were first seen more recently than that; the kubelet does neither.
    """
    if not limits.max_age or watched <= limits.max_age:
        return []
    if protect:
        found = [image for image in found if not is_young(image, limits, now)]
    return [image for image in found if now - unused_since(image, from_first=protect) > limits.max_age]


def unused_since(image: Image, *, from_first: bool) -> float:
    """When an image was used last; one that never was: when it was first seen, or (the kubelet's) for ever."""
    if image.last_used is None:
        return image.first_detected if from_first else 0.0
    return image.last_used


def used_percent(capacity: int, available: int) -> int:
    """How full a file system is, rounded as the kubelet rounds. Raises ValueError for one without capacity."""
    if capacity <= 0:
        raise ValueError("the file system says that it has no capacity")
    return 100 - min(available, capacity) * 100 // capacity


def bytes_to_free(capacity: int, available: int, limits: Limits) -> t.Optional[int]:
    """The bytes that lead down to ``low``; None while the file system is below ``high``. Raises ValueError."""
    if used_percent(capacity, available) < limits.high:
        return None
    return capacity * (100 - limits.low) // 100 - min(available, capacity)


def free(found: t.Iterable[Image], need: float, limits: Limits, now: float, remove: Remove) -> int:
    """Remove candidates in their order until ``need`` bytes are gained; returns the bytes that were.

    Never more than it takes: what is gained is known before the next one is considered. (When ``need``
    is 0 the kubelet still removes the first one; the caller does not call this then.)
    """
    gained = 0
    for image in found:
        if (image.last_used or 0.0) >= now or is_young(image, limits, now):
            continue
        gained += remove(image) or 0
        if gained >= need:
            break
    return gained
