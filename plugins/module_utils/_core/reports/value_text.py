# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# This module is private to the collection corral.node.
"""Values that fit on a line. If two values are compared, their difference stays visible."""

from __future__ import annotations

import typing as t

LIMIT = 100
LINE = "; "  # between the lines of a file: see unit_file.settings
BEFORE = 20  # characters that are shown before the first difference


def shorten(text: str, limit: int = LIMIT) -> str:
    """A value that fits on a line."""
    return text if len(text) <= limit else text[: limit - 1] + "…"


def compared(actual: t.Optional[str], wanted: t.Optional[str], limit: int = LIMIT) -> tuple[str, str]:
    """Two values that differ, each short enough for a line; "…" may replace text that both have in common."""
    if actual is None or wanted is None:
        return ("absent" if actual is None else shorten(actual, limit)), (
            "absent" if wanted is None else shorten(wanted, limit)
        )
    if max(len(actual), len(wanted)) <= limit:
        return actual, wanted
    lines = actual.split(LINE), wanted.split(LINE)
    sides = without(lines[0], lines[1]), without(lines[1], lines[0])
    if sides[0] == sides[1]:  # Both texts have the same lines in another order.
        sides = actual, wanted
    if max(map(len, sides)) > limit:
        start = max(first_difference(*sides) - BEFORE, 0)
        sides = window(sides[0], start, limit), window(sides[1], start, limit)
    return sides


def without(lines: t.Sequence[str], others: t.Container[str]) -> str:
    """The lines, with "…" for each sequence of lines that ``others`` contains."""
    shown: list[str] = []
    for line in lines:
        if line not in others:
            shown.append(line)
        elif shown[-1:] != ["…"]:
            shown.append("…")
    return LINE.join(shown)


def first_difference(one: str, other: str) -> int:
    """The index of the first character that differs, or the end of the shorter text."""
    pairs = enumerate(zip(one, other))
    return next((index for index, (left, right) in pairs if left != right), min(len(one), len(other)))


def window(text: str, start: int, limit: int) -> str:
    """The text from ``start`` on, cut to ``limit`` characters."""
    return shorten(f"…{text[start:]}" if start else text, limit)


def counted(count: int, one: str, more: str = "") -> str:
    """A number of things: "1 step", "2 steps"; ``more`` is the plural of ``one`` if the plural is not formed with an s."""
    return f"{count} {one if count == 1 else more or one + 's'}"
