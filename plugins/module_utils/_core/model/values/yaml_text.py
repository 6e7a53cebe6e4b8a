# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# This module is private to the collection corral.node.
"""Profiles as YAML for people, written without PyYAML; parts of a profile can be commented out."""

from __future__ import annotations

import functools
import json
import re
import typing as t

from .records import NamedTuple

WIDTH = 100

# Text that every YAML parser reads as text; other text is quoted.
_PLAIN = re.compile(r"[A-Za-z/][A-Za-z0-9_./-]*|[0-9]+[KMGTPE]i")
_WORDS = ("true", "false", "yes", "no", "on", "off", "y", "n", "null")


class Off(NamedTuple):
    """A value that is written as a comment, after the comment lines with its reasons (``why``)."""

    value: t.Any
    why: tuple[str, ...]


def text(data: t.Mapping[str, t.Any]) -> str:
    """A mapping as a YAML document without the first line (---). Values are mappings, lists, text, numbers, Off."""
    return "".join(f"{line}\n" for line in mapping(data))


def mapping(data: t.Mapping[str, t.Any], indent: str = "") -> list[str]:
    """The lines of a block mapping."""
    lines: list[str] = []
    for key, value in data.items():
        lines += switched(value, indent, functools.partial(entry, key, indent=indent))
    return lines


def entry(key: str, value: t.Any, *, indent: str) -> list[str]:
    """The lines for a key of a block mapping and the key's value."""
    head = f"{indent}{scalar(key)}:"
    if isinstance(value, dict) and value and not is_flow(value):
        return [head, *mapping(value, f"{indent}  ")]
    if isinstance(value, list) and value and not all(is_scalar(item) for item in value):
        inner = f"{indent}  "
        write = as_lines(inner) if all(fits(item, inner) for item in value) else as_block(inner)
        return [head, *(line for item in value for line in switched(item, inner, write))]
    return [f"{head} {flow(value)}"]


def fits(item: t.Any, indent: str) -> bool:
    """Whether an item of a list is short enough for one line. Items are written on one line each if all items of the list are short."""
    plain = item.value if isinstance(item, Off) else item
    short = not isinstance(plain, dict) or not plain or is_flow(plain)
    return short and len(f"{indent}- {flow(plain)}") <= WIDTH


def as_lines(indent: str) -> t.Callable[[t.Any], list[str]]:
    """A function that returns the line of a list's item."""
    return lambda value: [f"{indent}- {flow(value)}"]


def as_block(indent: str) -> t.Callable[[t.Any], list[str]]:
    """A function that returns the lines of a list's item; a mapping has a line for each key."""

    def item(value: t.Any) -> list[str]:
        if not isinstance(value, dict) or not value:
            return [f"{indent}- {flow(value)}"]
        lines = mapping(value, f"{indent}  ")
        return [f"{indent}- {lines[0].lstrip()}", *lines[1:]]

    return item


def switched(value: t.Any, indent: str, write: t.Callable[[t.Any], list[str]]) -> list[str]:
    """The lines of a value; an Off value becomes comments. Reasons have a blank after "#"; other lines are YAML if "#" is removed."""
    if not isinstance(value, Off):
        return write(value)
    lines = [f"{indent}# {line}".rstrip() for line in value.why]
    return lines + [f"{indent}#{line[len(indent) :]}" for line in write(value.value)]


def is_scalar(value: t.Any) -> bool:
    """Whether a value is neither a mapping nor a list nor Off."""
    return not isinstance(value, (dict, list, Off))


def is_flow(value: t.Mapping[str, t.Any]) -> bool:
    """Whether a mapping is short enough to be written in braces."""
    return 1 <= len(value) <= 3 and all(is_scalar(item) for item in value.values()) and len(flow(value)) <= 60


def flow(value: t.Any) -> str:
    """A value as text on one line."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{scalar(key)}: {flow(item)}" for key, item in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(flow(item) for item in value) + "]"
    return scalar(value)


def scalar(value: t.Any) -> str:
    """A text, a number, true or false as YAML. A text is quoted if YAML could read the text as another value."""
    if not isinstance(value, str):
        return json.dumps(value)
    if _PLAIN.fullmatch(value) and value.lower() not in _WORDS:
        return value
    return '"' + "".join(map(_quoted, value)) + '"'


def _quoted(char: str) -> str:
    """A character as it is written within double quotes."""
    if char in ('"', "\\"):
        return f"\\{char}"
    if " " <= char <= "~":
        return char
    return f"\\u{ord(char):04x}" if ord(char) < 0x10000 else f"\\U{ord(char):08x}"
