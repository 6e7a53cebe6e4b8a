# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# This module is private to the collection corral.node.
"""A node's present state as parts of a profile that would declare this state. Each manager returns its own parts."""

from __future__ import annotations

import re
import typing as t

from ..values.records import NamedTuple
from ..values.yaml_text import Off


class ProfileFragment(NamedTuple):
    """A part of a profile: path, value and name. With ``item``, the value is an item of the list at the path."""

    path: tuple[str, ...]
    value: t.Any
    name: str
    item: bool = False


def label(hostname: str) -> str:
    """The name for a profile of a host: the host's name as a DNS label."""
    text = re.sub(r"[^a-z0-9-]+", "-", hostname.strip().partition(".")[0].lower())[:63].strip("-")
    return text or "node"


def profile_data(head: t.Mapping[str, t.Any], parts: t.Iterable[ProfileFragment]) -> dict[str, t.Any]:
    """The profile with the keys of ``head`` and ``parts``, as plain data."""
    return assembled(head, ((fragment, fragment.value) for fragment in parts))


def profile_shown(
    head: t.Mapping[str, t.Any], parts: t.Sequence[ProfileFragment], left_out: t.Mapping[int, tuple[str, ...]]
) -> dict[str, t.Any]:
    """The profile of all parts. The parts in ``left_out`` (index: reasons) become comments with the reasons."""
    shown = (
        (fragment, Off(fragment.value, left_out[index]) if index in left_out else fragment.value)
        for index, fragment in enumerate(parts)
    )
    return {key: collapsed(value) for key, value in assembled(head, shown).items()}


def assembled(head: t.Mapping[str, t.Any], parts: t.Iterable[tuple[ProfileFragment, t.Any]]) -> dict[str, t.Any]:
    """The data of ``head`` with the value of each part at the part's path."""
    data = dict(head)
    for fragment, value in parts:
        place = data
        for key in fragment.path[:-1]:
            place = place.setdefault(key, {})
        if fragment.item:
            place.setdefault(fragment.path[-1], []).append(value)
        else:
            place[fragment.path[-1]] = value
    return data


def collapsed(value: t.Any) -> t.Any:
    """The value; sections and lists with only items that are left out (Off) become one Off with all reasons."""
    if isinstance(value, dict):
        value = {key: collapsed(item) for key, item in value.items()}
        items = list(value.values())
        plain: t.Any = {key: item.value for key, item in value.items() if isinstance(item, Off)}
    elif isinstance(value, list):
        items, plain = value, [item.value for item in value if isinstance(item, Off)]
    else:
        return value
    if not items or not all(isinstance(item, Off) for item in items):
        return value
    return Off(plain, tuple(line for item in items for line in item.why))
