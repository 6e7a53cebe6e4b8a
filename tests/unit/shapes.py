# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Whether JSON data has exactly a shape of json_shapes.py."""

from __future__ import annotations

import typing as t


def misfits(data: t.Any, shape: t.Any, path: str = "") -> list[str]:
    """Where data has not exactly the shape: a field too many or too few, or a value of another type."""
    kind, inner = t.get_origin(shape), t.get_args(shape)
    if kind is t.Union:
        found = [misfits(data, one, path) for one in inner]
        return min(found, key=len)
    if kind is t.Literal:
        return [] if data in inner else [f"{path}: {data!r}"]
    if kind is list:
        if not isinstance(data, list):
            return [f"{path}: no list"]
        return [line for index, one in enumerate(data) for line in misfits(one, inner[0], f"{path}[{index}]")]
    if kind is dict:
        if not isinstance(data, dict):
            return [f"{path}: no mapping"]
        return [line for name, one in data.items() for line in misfits(one, inner[1], f"{path}.{name}")]
    if hasattr(shape, "__total__"):
        if not isinstance(data, dict):
            return [f"{path}: no {shape.__name__}"]
        fields = t.get_type_hints(shape)
        wrong = [f"{path}.{name}: one side alone has it" for name in sorted(fields.keys() ^ data.keys())]
        both = fields.keys() & data.keys()
        return wrong + [line for name in sorted(both) for line in misfits(data[name], fields[name], f"{path}.{name}")]
    return [] if shape is t.Any or data.__class__ is shape else [f"{path}: {data!r}"]
