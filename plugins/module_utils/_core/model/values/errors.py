# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# This module is private to the collection corral.node.
"""Refusals: each names all problems together, each problem with its path, its value and what to do."""

from __future__ import annotations

import json

from .printable_text import printable, printable_fields
from .records import NamedTuple

# A value may be megabytes long; an error has to be a readable line.
VALUE_LIMIT = 120
PROBLEMS_LIMIT = 100  # the most problems of a refusal: a pattern may match ten thousand units


@printable_fields("path", "value", "message", "origin")
class Problem(NamedTuple):
    """A reason for a refusal.

    ``path``: a path in the profile (``memory.hugepages[0].count``), a file, or empty for the whole input. ``value``: the value at the path,
    or None. ``message``: what is wrong, and what to do. ``origin``: the layer of a composed profile that sets the value (see compose.py).
    """

    path: str
    value: object
    message: str
    origin: str = ""

    def line(self) -> str:
        """The problem as a printable line: ``path (from origin): value: message``."""
        place = f"{self.path or 'the profile'} (from {self.origin})" if self.origin else self.path
        parts = [shown(place)] if place else []
        if self.value is not None:
            parts.append(shown(self.value))
        return ": ".join([*parts, shown(self.message, limit=1000)])


class CorralError(Exception):
    """A refusal. Corral changed nothing; ``problems`` say why (at least one problem, at most PROBLEMS_LIMIT problems)."""

    def __init__(self, *problems: Problem) -> None:
        more = len(problems) - PROBLEMS_LIMIT - 1  # the last problem may be the reader's note on further problems
        if more > 0:
            said = f"there are {more + 1} problems more: correct these and check again"
            problems = (*problems[:PROBLEMS_LIMIT], Problem("", None, said))
        super().__init__("\n".join(problem.line() for problem in problems))
        self.problems = problems


def refusal(message: str, *, path: str = "", value: object = None) -> CorralError:
    """A CorralError with a single problem."""
    return CorralError(Problem(path, value, message))


def shown(value: object, *, limit: int = VALUE_LIMIT) -> str:
    """A value as an error shows it: on one line, printable, at most ``limit`` characters."""
    text = value if isinstance(value, str) else json.dumps(value, default=str, sort_keys=True)
    text = printable(text)
    return text if len(text) <= limit else text[:limit] + "…"
