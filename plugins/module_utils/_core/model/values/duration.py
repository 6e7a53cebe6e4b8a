# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# This module is private to the collection corral.node.
"""Durations in Go's form, with days as well: 90s, 2m, 1h30m, 7d."""

from __future__ import annotations

import re

UNITS = {"d": 86400, "h": 3600, "m": 60, "s": 1}
_PART = re.compile(r"([0-9]{1,10})([dhms])", re.ASCII)
_WHOLE = re.compile(r"(?:[0-9]{1,10}[dhms]){1,4}", re.ASCII)


def parse(text: str) -> int:
    """The seconds of a text such as ``1h30m``: whole numbers with different units. Raises ValueError."""
    parts = _PART.findall(text) if _WHOLE.fullmatch(text) else []
    units = [unit for dummy, unit in parts]
    if not parts or len(set(units)) != len(units):
        raise ValueError("is not a valid duration: use whole numbers with s, m, h or d, such as 90s, 15m, 1h30m or 2d")
    return sum(int(number) * UNITS[unit] for number, unit in parts)


def text(seconds: int) -> str:
    """Seconds as text with the largest units: 5400 -> ``1h30m``, 0 -> ``0s``."""
    parts = []
    for unit, size in UNITS.items():
        count, seconds = divmod(seconds, size)
        if count:
            parts.append(f"{count}{unit}")
    return "".join(parts) or "0s"
