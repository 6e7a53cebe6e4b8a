# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# This module is private to the collection corral.node.
"""Makes the tuples of a profile from the values that were read, and plain data from the tuples, by the keys of the schema.

The field of a key that is not declared has its default. Plain data contains the defaults of the schema, except for ``quiet`` keys. A key
without a default is left out if its field is empty.
"""

from __future__ import annotations

import typing as t

from ..values.records import NamedTuple
from . import schema
from .schema_key import LIST, MAP, ONE


class Shape(NamedTuple):
    """Two conversions: ``make`` turns a value that was read into a profile's value, ``data`` turns a profile's value into plain data."""

    make: t.Callable[[t.Any], t.Any]
    data: t.Callable[[t.Any], t.Any]


# For the path of a key: the tuple of a section (or of an item of a list of sections), or a Shape. A section without an entry has no tuple:
# its keys are fields of the parent section's tuple.
Shapes = t.Mapping[str, t.Any]
_UNSET = object()


def build(value: t.Any, node: schema.Node, shapes: Shapes) -> t.Any:
    """The value of a key as a profile stores it: a tuple, a plain value, or the result of a Shape."""
    key, shape = node.key, t.cast("t.Any", shapes.get(node.key.path))
    if key.many == LIST:
        return tuple(value if key.type else (shape(**fields(row, node, shapes)) for row in value))
    if isinstance(shape, Shape):
        return shape.make(value)
    return value if key.type else shape(**fields(value, node, shapes))


def fields(values: t.Mapping[str, t.Any], node: schema.Node, shapes: Shapes) -> dict[str, t.Any]:
    """The values of a section's declared keys, by the names of their fields in the section's tuple."""
    found: dict[str, t.Any] = {}
    for name, value in values.items():
        below = node.children[name]
        if _is_flat(below, shapes):
            found.update(fields(value, below, shapes))
        elif below.key.word and isinstance(value, str):
            found[below.key.word] = value
        else:
            found[below.key.field_name] = build(value, below, shapes)
    return found


def to_data(value: t.Any, node: schema.Node, shapes: Shapes) -> t.Any:
    """The plain data of a value that ``build`` made."""
    key, shape = node.key, shapes.get(node.key.path)
    if key.many == LIST:
        return [key.type.write(item) if key.type else section(item, node, shapes) for item in value]
    if isinstance(shape, Shape):
        return shape.data(value)
    if key.type is None:
        return section(value, node, shapes)
    if key.many == MAP:
        return {str(name): key.type.write(amount) for name, amount in value.items()}
    return key.type.write(value)


def section(record: t.Any, node: schema.Node, shapes: Shapes) -> dict[str, t.Any]:
    """The plain data of a section's tuple."""
    data: dict[str, t.Any] = {}
    for name, below in node.children.items():
        key = below.key
        if _is_flat(below, shapes):
            data[name] = section(record, below, shapes)
            continue
        value = getattr(record, key.field_name, None)
        if value is None and key.word:
            value = getattr(record, key.word)
        is_left_out = key.quiet or (key.default is None and not value)
        if value is not None and not (is_left_out and value == record._field_defaults.get(key.field_name, _UNSET)):
            data[name] = to_data(value, below, shapes)
    one_of = schema.EXACTLY_ONE.get(f"{node.key.path}[]", ())
    if one_of and not data.keys() & set(one_of):  # The first key is written, with the default of its field.
        data[one_of[0]] = getattr(record, node.children[one_of[0]].key.field_name)
    return data


def _is_flat(node: schema.Node, shapes: Shapes) -> bool:
    """Whether the keys of a section are fields of the parent section's tuple."""
    return node.key.type is None and node.key.many == ONE and not node.key.later and node.key.path not in shapes
