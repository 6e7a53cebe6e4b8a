# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# This module is private to the collection corral.node.
"""The section ``gc`` of a profile: what garbage collection may remove."""

from __future__ import annotations

import typing as t

from ..values import duration
from ..values.records import NamedTuple
from .schema_reader import Reader

ALL, DECLARED = "all", "declared"


class ImageGC(NamedTuple):
    """When images are removed. Thresholds are in percent of the file system, times in seconds; ``keep`` names images that always stay."""

    high: int
    low: int
    min_age: int
    max_age: int
    interval: int
    keep: tuple[str, ...] = ()


class ContainerGC(NamedTuple):
    """When dead containers are removed. Times are in seconds; -1 means no limit. ``scope`` is "declared" or "all"."""

    min_age: int
    max_per_workload: int
    max_total: int
    scope: str
    interval: int
    volumes: bool
    keep: tuple[str, ...] = ()
    keep_labels: tuple[str, ...] = ()


class GC(NamedTuple):
    """Garbage collection in the storage of root and of the ``users``. ``images`` None: no images are removed; ``containers`` likewise."""

    images: t.Optional[ImageGC] = None
    containers: t.Optional[ContainerGC] = None
    users: tuple[str, ...] = ()


def check(reader: Reader, values: t.Mapping[str, t.Any], given: t.Mapping[str, t.Any]) -> None:
    """Refuse contradictions. ``given`` is the profile as written."""
    gc = values.get("gc")
    if gc is not None:
        _check_images(reader, gc.get("images"))
        if isinstance(given.get("gc"), dict) and gc.get("images") is None and gc.get("containers") is None:
            reader.refuse(
                "gc", None, "collects nothing: write images or containers (an empty mapping takes the defaults)"
            )
        if "root" in gc.get("users", ()):
            reader.refuse("gc.users", "root", "root's storage is always looked after: leave it out")


def _check_images(reader: Reader, images: t.Optional[t.Mapping[str, t.Any]]) -> None:
    if not images:
        return
    high, low, oldest, youngest = (images.get(name) for name in ("high", "low", "max_age", "min_age"))
    if high is not None and low is not None and low >= high:
        hint = f"write at most {high - 1}, or a larger gc.images.high" if high else "gc.images.high must be larger"
        reader.refuse("gc.images.low", low, f"is not below gc.images.high ({high}): {hint}")
    if oldest and youngest is not None and oldest <= youngest:
        reader.refuse(
            "gc.images.max_age", duration.text(oldest),
            f"is not more than gc.images.min_age ({duration.text(youngest)}): write a longer time, or 0s for no limit",
        )  # fmt: skip


SHAPES = {"gc": GC, "gc.images": ImageGC, "gc.containers": ContainerGC}
