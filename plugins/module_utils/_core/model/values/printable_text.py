# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# This module is private to the collection corral.node.
"""Text that another user or program chose (names, messages, ids), made printable when Corral reads the text."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    import typing as t

    Tuple = t.TypeVar("Tuple", bound=type)


def printable(text: str) -> str:
    """The text with an escape for each character that is not printable, so that the text stays on one line.

    Line feeds, terminal escapes and characters that reverse the direction of writing are not printable (str.isprintable). Text is escaped
    when Corral reads it, so code that prints the text need not know its source.
    """
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode("ascii") for char in text)


def printable_lines(text: str) -> str:
    """The result of printable(), but with line feeds and tabs as they are."""
    if text.isprintable():
        return text
    return "".join(char if char in "\n\t" else printable(char) for char in text)


def printable_data(data: t.Any) -> t.Any:
    """Plain data with each text made printable (JSON can contain any character as an escape)."""
    if isinstance(data, dict):
        return {printable(key): printable_data(value) for key, value in data.items()}
    if isinstance(data, list):
        return [printable_data(value) for value in data]
    return printable(data) if isinstance(data, str) else data


def printable_fields(*names: str, escape: t.Callable[[str], str] = printable) -> t.Callable[[Tuple], Tuple]:
    """A decorator for a named tuple: makes the text in these fields printable when a tuple is made.

    Values for display (a change, a problem, a command's output) are made in many places, from names that must stay unchanged for reads and
    writes. So the text is escaped in the tuple alone, and the tuple can be printed anywhere.
    """

    def decorated(made: Tuple) -> Tuple:
        kind: t.Any = made
        make, plain_make = kind.__new__, kind._make.__func__
        places = [kind._fields.index(name) for name in names]

        def shown(value: t.Any) -> t.Any:
            if isinstance(value, tuple):
                return tuple(map(shown, value))
            return escape(value) if isinstance(value, str) else value

        def _make(cls: t.Any, values: t.Iterable[t.Any]) -> t.Any:
            row = list(values)
            for place in places:
                row[place : place + 1] = map(shown, row[place : place + 1])
            return plain_make(cls, row)

        def new(cls: t.Any, *given: t.Any, **named: t.Any) -> t.Any:
            return _make(cls, make(cls, *given, **named))

        kind.__new__, kind._make = staticmethod(new), classmethod(_make)
        return made

    return decorated
