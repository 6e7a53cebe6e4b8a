# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""How many examples a property gets, and how many of a run's writes a fault."""

from __future__ import annotations

import os
import sys

# A decision is the same on every Python; an older one may lack what the code calls, which few examples show.
FEWER = 1 if sys.version_info >= (3, 11) or os.environ.get("CORRAL_LONG") else 10
USUAL = 100  # hypothesis's own


def examples(count: int) -> int:
    """``count``, or a tenth of it on a Python older than the tools'."""
    return max(count // FEWER, 10)


def places(count: int, step: int = 1) -> list[int]:
    """The numbers 1 to ``count`` in steps, a third of them on a Python older than the tools', and the last."""
    return sorted({*range(1, count + 1, step if FEWER == 1 else 3 * step), count})
