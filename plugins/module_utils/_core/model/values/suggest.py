# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# This module is private to the collection corral.node.
"""The nearest known name: what a mistyped key was probably meant to be."""

from __future__ import annotations

import typing as t

# A hostile name may be megabytes long; no key of ours comes near this.
LONGEST = 60


def distance(left: str, right: str) -> int:
    """Number of letters inserted, deleted, replaced or swapped with a neighbour (optimal string alignment)."""
    before: list[int] = []
    row = list(range(len(right) + 1))
    for i, char in enumerate(left):
        older, before, row = before, row, [i + 1]
        for j, other in enumerate(right):
            cost = min(before[j + 1] + 1, row[j] + 1, before[j] + (char != other))
            if i and j and char == right[j - 1] and left[i - 1] == other:
                cost = min(cost, older[j - 1] + 1)
            row.append(cost)
    return row[-1]


def nearest(word: str, known: t.Iterable[str]) -> str | None:
    """The one of ``known`` that ``word`` was probably meant to be, or None when nothing is near.

    Case and the choice between ``_`` and ``-`` do not count: ``Min-Size`` is ``min_size``.
    """
    plain = _plain(word)
    if not plain or len(plain) > LONGEST:
        return None
    best = min(((distance(plain, _plain(name)), name) for name in known), default=None)
    # A third of the letters may be wrong: cpu and pids are different words, reservd and reserved are not.
    return best[1] if best is not None and best[0] <= max(1, len(plain) // 3) else None


def _plain(word: str) -> str:
    return word.lower().replace("-", "_").strip("_ ")
