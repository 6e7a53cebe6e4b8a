# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""How many examples a property gets, and how many of a run's writes a fault."""

from __future__ import annotations

import os
import sys
import typing as t

LONG = bool(os.environ.get("CORRAL_LONG"))
# A decision is the same on every Python; an older one may lack what the code calls, which few examples show.
OLDER = sys.version_info < (3, 11) and not LONG
USUAL = 100  # hypothesis's own


def examples(count: int) -> int:
    """``count`` with CORRAL_LONG, else half of it, or a tenth on a Python older than the tools'."""
    return max(count // (1 if LONG else 10 if OLDER else 2), 10)


def places(count: int) -> list[int]:
    """The numbers 1 to ``count``, a third of them on a Python older than the tools', and the last."""
    return in_turn(count, "", ("",))


def in_turn(count: int, kind: str, kinds: t.Sequence[str]) -> list[int]:
    """Which of a run's ``count`` writes get this kind of fault: each write gets one of the kinds in turn, the last gets all.

    With CORRAL_LONG every write gets every kind; on a Python older than the tools' a third of them get one.
    """
    apart = 3 if OLDER else 1
    first, step = (1, 1) if LONG else (1 + apart * kinds.index(kind), apart * len(kinds))
    return sorted({*range(first, count + 1, step), count})
