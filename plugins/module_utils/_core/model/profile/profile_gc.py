# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# This module is private to the collection corral.node.
"""The section ``gc`` of a profile: what may be collected."""

from __future__ import annotations

import typing as t

from ..values import duration
from ..values.records import NamedTuple
from .schema_reader import Reader

ALL, DECLARED = "all", "declared"


class ImageGC(NamedTuple):
    """When images go. Thresholds in percent of the file system, times in seconds; ``keep`` names those that never do."""

    high: int
    low: int
    min_age: int
    max_age: int
    interval: int
    keep: tuple[str, ...]


class ContainerGC(NamedTuple):
    """When dead containers go. Times in seconds, -1: no limit; ``scope`` is "declared" or "all"."""

    min_age: int
    max_per_workload: int
    max_total: int
    scope: str
    interval: int
    volumes: bool
    keep: tuple[str, ...]
    keep_labels: tuple[str, ...]


class GC(NamedTuple):
    """Garbage collection on root's storage and that of the ``users``; what is None is not collected."""

    images: t.Optional[ImageGC]
    containers: t.Optional[ContainerGC]
    users: tuple[str, ...]


def check(reader: Reader, values: t.Mapping[str, t.Any], given: t.Mapping[str, t.Any]) -> None:
    """Refuse what contradicts itself. ``given`` is the profile as written."""
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


def build(gc: t.Optional[t.Mapping[str, t.Any]]) -> t.Optional[GC]:
    """The section, once everything was found right; None when there is none."""
    images, containers = None, None
    if gc is None:
        return None
    if gc.get("images") is not None:
        images = ImageGC(**_fields(ImageGC, gc["images"], "keep"))
    if gc.get("containers") is not None:
        containers = ContainerGC(**_fields(ContainerGC, gc["containers"], "keep", "keep_labels"))
    return GC(images, containers, tuple(gc.get("users", ())))


def _fields(of: t.Any, values: t.Mapping[str, t.Any], *lists: str) -> dict[str, t.Any]:
    """The fields of a tuple; a list that is not declared is empty."""
    return {name: tuple(values.get(name, ())) if name in lists else values[name] for name in of._fields}


def to_data(gc: GC) -> dict[str, t.Any]:
    """The section as plain data, defaults written out; what is not declared is left out."""
    data: dict[str, t.Any] = {
        name: _section(part) for name, part in (("images", gc.images), ("containers", gc.containers)) if part
    }
    if gc.users:
        data["users"] = list(gc.users)
    return data


def _section(part: t.Union[ImageGC, ContainerGC]) -> dict[str, t.Any]:
    data: dict[str, t.Any] = {}
    for name, value in part._asdict().items():
        if isinstance(value, tuple):
            if value:
                data[name] = list(value)
        else:
            data[name] = duration.text(value) if name in ("min_age", "max_age", "interval") else value
    return data
