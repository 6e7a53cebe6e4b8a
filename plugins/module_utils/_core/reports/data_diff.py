# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# This module is private to the collection corral.node.
"""The differences between two JSON documents by path. The documents show two machines, or one machine at two times."""

from __future__ import annotations

import json
import typing as t

from ..model.values import cpuset
from ..model.values.printable_text import printable_fields
from ..model.values.records import NamedTuple
from . import value_text

# Keys that are not compared: times, and the version of the JSON.
MOMENTS = frozenset({"time", "since", "age", "seconds", "last_in_sync", "schema"})
# The name of a list's item is the first of these keys that all items of the list have. Items with the same name are compared.
NAMES = ("host", "name", "id", "subject", "path", "file")


@printable_fields("path", "before", "after")
class Difference(NamedTuple):
    """A value that differs between two documents; ``before`` or ``after`` is None if that document does not have the value."""

    path: str
    before: t.Optional[str]
    after: t.Optional[str]


def differences(before: t.Any, after: t.Any) -> list[Difference]:
    """The differences in the order of their paths. Times are not compared."""
    first, second = dict(leaves(before, "")), dict(leaves(after, ""))
    paths = sorted({*first, *second})
    return [
        Difference(path, first.get(path), second.get(path)) for path in paths if first.get(path) != second.get(path)
    ]


def leaves(data: t.Any, path: str) -> t.Iterator[tuple[str, str]]:
    """The leaves of data by path, as text. A list without names is one leaf; an empty value or null is no leaf."""
    rows = named_rows(data)
    if isinstance(data, dict) and data:
        for key, value in data.items():
            if key not in MOMENTS:
                yield from leaves(value, f"{path}.{key}" if path else str(key))
    elif rows:
        for name, row in rows:
            yield from leaves(row, f"{path}[{name}]")
    elif data not in ({}, [], None):
        yield path, shown_text(data) if isinstance(data, str) else list_text(data) or json.dumps(data, sort_keys=True)


def shown_text(text: str) -> str:
    """The text, in quotes if the text would otherwise look like a number, a truth value or null."""
    try:
        is_other = json.loads(text) is None or isinstance(json.loads(text), (bool, int, float))
    except (ValueError, RecursionError):
        is_other = False
    return json.dumps(text) if is_other else text


def list_text(data: t.Any) -> str:
    """A list of ascending numbers as a CPU list, a list of such lists with " | " between the CPU lists; empty for other data."""
    if isinstance(data, list) and data and all(isinstance(one, list) for one in data):
        texts = [list_text(one) for one in data]
        return " | ".join(texts) if all(texts) else ""
    if not isinstance(data, list) or not all(
        isinstance(one, int) and not isinstance(one, bool) and one >= 0 for one in data
    ):
        return ""
    return cpuset.format(data) if data == sorted(set(data)) else ""


def named_rows(data: t.Any) -> list[tuple[str, t.Any]]:
    """The items of a list with their names; empty for other data or items without names. Equal names are numbered."""
    if not isinstance(data, list) or not data or not all(isinstance(row, dict) for row in data):
        return []
    key = next((name for name in NAMES if all(isinstance(row.get(name), (str, int)) for row in data)), None)
    if key is None:
        return []
    found: dict[str, int] = {}
    rows = []
    for row in data:
        name = "/".join(str(row[part]) for part in (key, "property") if part in row)
        found[name] = found.get(name, 0) + 1
        rows.append((name if found[name] == 1 else f"{name}#{found[name]}", row))
    return rows


def lines(found: t.Iterable[Difference]) -> list[str]:
    """A line for each difference."""
    return [f"{one.path or 'value'}: {' -> '.join(value_text.compared(one.before, one.after))}" for one in found]
