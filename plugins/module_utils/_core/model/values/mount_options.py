# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# This module is private to the collection corral.node.
"""Values of hugetlbfs options as the kernel shows them in the table of mounts."""

from __future__ import annotations

import typing as t


def number(text: str, base: int = 10) -> t.Optional[int]:
    """A number as the kernel writes it; None for other text."""
    try:
        return int(text, base)
    except ValueError:
        return None


def bytes_of(text: t.Optional[str]) -> t.Optional[int]:
    """The bytes of a size that the kernel writes as "512M" (powers of 1024); None for a missing value or other text."""
    if not text:
        return None
    number, unit = (text[:-1], text[-1].upper()) if text[-1].isalpha() else (text, "")
    factors = {"": 1, "K": 1024, "M": 1024**2, "G": 1024**3, "T": 1024**4}
    return int(number) * factors[unit] if number.isdecimal() and unit in factors else None
