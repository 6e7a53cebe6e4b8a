# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# This module is private to the collection corral.node.
"""Between the fields of a profile's tuples and the keys of its data: names, words and numbers, what is left out."""

from __future__ import annotations

import typing as t

if t.TYPE_CHECKING:
    from .schema_reader import Reader


def number(place: t.Union[int, str, None]) -> t.Optional[int]:
    """A NUMA node that is given by its number."""
    return place if isinstance(place, int) else None


def word(place: t.Union[int, str, None]) -> t.Optional[str]:
    """A NUMA node that is given by a word."""
    return place if isinstance(place, str) else None


def with_place(values: dict[str, t.Any], key: str) -> dict[str, t.Any]:
    """Values with a place that is a word at its key, and without ``optional`` where it is false."""
    place = values.pop("place", None)
    if not values.pop("optional", False):
        return values if place is None else {**values, key: place}
    return {**values, **({} if place is None else {key: place}), "optional": True}


def given(values: dict[str, t.Any], *without: str) -> dict[str, t.Any]:
    """The fields that are declared, but for some."""
    return {name: value for name, value in values.items() if value is not None and name not in without}


def renamed(values: dict[str, t.Any], **names: str) -> dict[str, t.Any]:
    """Fields by the names of their keys."""
    return {names.get(name, name): value for name, value in values.items()}


def refuse_command(
    reader: Reader, path: str, values: t.Optional[t.Mapping[str, t.Any]], written: t.Mapping[str, t.Any]
) -> None:
    """Refuse a section whose ``command`` has no words, or no absolute path first."""
    command = (values or {}).get("command")
    if command and not command[0].startswith("/"):
        message = "is not an absolute path: write the program's path, such as /usr/bin/curl"
        reader.refuse(f"{path}.command[0]", command[0], message)
    if written.get("command") == []:
        reader.refuse(f"{path}.command", [], "has no words: write a command, or leave the section out")
