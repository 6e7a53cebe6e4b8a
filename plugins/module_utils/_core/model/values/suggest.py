# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# This module is private to the collection corral.node.
"""The known name that a mistyped key was probably meant to be."""

from __future__ import annotations

import typing as t

# A mistyped name may be megabytes long; no key of a profile is longer than this.
LONGEST = 60
# The least ratio of difflib for a similar name (1.0: the same name): cpu and pids have 0.29, hihg and high 0.75.
ALIKE = 0.7


def nearest(word: str, known: t.Iterable[str]) -> str | None:
    """The name in ``known`` that ``word`` was probably meant to be; None if no name is similar.

    Case does not count, nor does the choice between ``_`` and ``-``: ``Min-Size`` equals ``min_size``.
    """
    plain = _plain(word)
    if not plain or len(plain) > LONGEST:
        return None
    import difflib  # only a mistyped name needs this module

    names = {_plain(name): name for name in sorted(known, reverse=True)}
    return next((names[near] for near in difflib.get_close_matches(plain, names, n=1, cutoff=ALIKE)), None)


def _plain(word: str) -> str:
    return word.lower().replace("-", "_").strip("_ ")
