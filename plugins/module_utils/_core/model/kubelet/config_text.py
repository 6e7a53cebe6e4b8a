# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# This module is private to the collection corral.node.
"""The text of a kubelet's configuration: Corral's own drop-in, or another program's file in which Corral changes some keys.

In another program's file only the lines of the changed keys differ: comments, order, blanks and all other keys stay as they are, byte by
byte. The caller, which can parse YAML, checks the data of the result.
"""

from __future__ import annotations

import re
import typing as t

from ..systemd.unit_file import HEADER
from ..values import yaml_text
from ..values.records import NamedTuple
from .kubelet_config import API_VERSION, KIND

# A key at the beginning of a line, plain or in quotes, and the colon after it.
_KEY = re.compile(r"""(?:"([^"\\]+)"|'([^']+)'|([A-Za-z0-9_.-]+))[ \t]*:(?:[ \t\r]|$)""")
_LIST_ITEM = re.compile(r"-(?:[ \t]|$)")
_MARKER = re.compile(r"(?:---|\.\.\.)(?:[ \t\r]|$)")


class NotEditable(ValueError):
    """A text in which no single key can be changed; the message says why."""


class Block(NamedTuple):
    """A key of the top level: its name, its first line, and the line after its last line (both from 0)."""

    key: str
    first: int
    end: int


def drop_in(patch: t.Mapping[str, t.Any]) -> str:
    """The text of a drop-in with the keys of ``patch``."""
    return HEADER + yaml_text.text({"apiVersion": API_VERSION, "kind": KIND, **patch})


def changed(text: str, keys: t.Mapping[str, t.Optional[str]]) -> str:
    """The text with new lines for each of the ``keys`` (from key_lines() or blocks_of()); None removes a key. New keys come last.

    Raises NotEditable.
    """
    lines = text.splitlines(keepends=True)
    found = {block.key: block for block in blocks(lines)}
    added = [own for key, own in keys.items() if key not in found and own is not None]
    for block in sorted(found.values(), key=lambda one: -one.first):
        if block.key in keys:
            lines[block.first : block.end] = (keys[block.key] or "").splitlines(keepends=True)
    if added:
        at = end_of(lines)
        if at and not lines[at - 1].endswith("\n"):
            lines[at - 1] += "\n"
        lines[at:at] = added
    return "".join(lines)


def key_lines(key: str, value: t.Any) -> str:
    """The lines of YAML for a top-level key and its value."""
    return "".join(f"{line}\n" for line in yaml_text.entry(key, value, indent=""))


def blocks_of(text: str, keys: t.Iterable[str]) -> dict[str, t.Optional[str]]:
    """The present lines of each of the ``keys``; None for a missing key. Raises NotEditable."""
    lines = text.splitlines(keepends=True)
    found = {block.key: "".join(lines[block.first : block.end]) for block in blocks(lines)}
    return {key: found.get(key) for key in keys}


def blocks(lines: t.Sequence[str]) -> list[Block]:
    """The keys of the top level in the order of the file. Raises NotEditable for a text that is no block mapping, such as JSON."""
    starts: list[tuple[str, int]] = []
    end = end_of(lines)
    for number, line in enumerate(lines[:end]):
        if line[:1] in ("", " ", "\t", "#", "\n", "\r") or _MARKER.match(line) or line.startswith("%"):
            continue
        match = _KEY.match(line)
        if match:
            starts.append((match.group(1) or match.group(2) or match.group(3), number))
        elif not starts or not _LIST_ITEM.match(line):
            raise NotEditable(f"line {number + 1} begins no key")
    names = [key for key, dummy in starts]
    twice = next((key for key in names if names.count(key) > 1), None)
    if twice is not None:
        raise NotEditable(f"the key {twice} is there twice")
    found = []
    for index, (key, first) in enumerate(starts):
        last = starts[index + 1][1] if index + 1 < len(starts) else end
        # Blank lines and comments before the next key belong to the next key.
        while last > first + 1 and not within(lines[last - 1]):
            last -= 1
        found.append(Block(key, first, last))
    return found


def within(line: str) -> bool:
    """Whether a line is a part of the key above it: indented text, or an item of a list that is not indented."""
    return bool(line.strip()) and line[:1] != "#" and not _MARKER.match(line)


def end_of(lines: t.Sequence[str]) -> int:
    """The index of the line with the document's end marker, else the number of lines."""
    return next((number for number, line in enumerate(lines) if re.match(r"\.\.\.(?:[ \t\r]|$)", line)), len(lines))
