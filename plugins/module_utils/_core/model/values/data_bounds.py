# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# This module is private to the collection corral.node.
"""The bounds of a document in YAML or JSON. A few lines with aliases (*) can mean more values than fit into memory."""

from __future__ import annotations

import typing as t

MOST, DEEPEST = 100_000, 100  # the most values (all aliases written out), and the most levels


class OutOfBounds(ValueError):
    """An error: a document has too many values or levels; the text says what to do."""


def check_bounds(root: t.Any, parts: t.Callable[[t.Any], t.Iterable[t.Any]]) -> None:
    """Raises OutOfBounds if ``root`` has too many values or levels. A value with several aliases counts once for each alias."""
    counted: dict[int, tuple[int, int]] = {}  # for the id() of a value: its numbers of values and levels

    def count(value: t.Any, depth: int) -> tuple[int, int]:
        if depth > DEEPEST:
            raise OutOfBounds(f"is nested more than {DEEPEST} levels deep, or contains itself: write it flat")
        known = counted.get(id(value))
        if known is None:
            inner = [count(part, depth + 1) for part in parts(value)]
            known = (1 + sum(size for size, dummy in inner), 1 + max((levels for dummy, levels in inner), default=0))
            counted[id(value)] = known
        if known[0] > MOST:
            raise OutOfBounds(f"has more than {MOST} values with its aliases (*) written out: leave aliases out")
        if depth + known[1] > DEEPEST + 1:
            raise OutOfBounds(f"is nested more than {DEEPEST} levels deep: write it flat")
        return known

    if root is not None:
        count(root, 0)
