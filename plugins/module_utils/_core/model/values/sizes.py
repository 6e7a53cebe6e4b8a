# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# This module is private to the collection corral.node.
"""Sizes, page sizes and permission bits as texts."""

from __future__ import annotations

from .records import NamedTuple


class Share(NamedTuple):
    """A share of an amount that depends on the node. ``parts`` is in hundredths of a percent: 12.5% is 1250."""

    parts: int

    def of(self, amount: int) -> int:
        """The share of an amount, rounded down."""
        return amount * self.parts // 10000


_UNITS = ((1 << 60, "Ei"), (1 << 50, "Pi"), (1 << 40, "Ti"), (1 << 30, "Gi"), (1 << 20, "Mi"), (1 << 10, "Ki"))


def size_text(size: int) -> str:
    """Bytes as a Kubernetes quantity, in the largest binary unit that is exact: 536870912 -> ``512Mi``."""
    for factor, unit in _UNITS:
        if size and size % factor == 0:
            return f"{size // factor}{unit}"
    return str(size)


def page_text(size_kib: int) -> str:
    """A page size in KiB as the profile writes it: 2048 -> ``2Mi``."""
    return size_text(size_kib << 10)


def about_text(size: int) -> str:
    """Bytes for a person, rounded down, with two digits or more: 2083729408 -> ``1987Mi``, 67491659776 -> ``62Gi``."""
    for factor, unit in _UNITS:
        if size >= 10 * factor:
            return f"{size // factor}{unit}"
    return str(size)


def mode_text(mode: int) -> str:
    """Permission bits as chmod writes them: 504 -> ``0770``."""
    return f"{mode:04o}"


def share_text(share: Share) -> str:
    """A share as the profile writes it: 1250 -> ``12.5%``."""
    whole, rest = divmod(share.parts, 100)
    return f"{whole}{f'.{rest:02d}'.rstrip('0') if rest else ''}%"
