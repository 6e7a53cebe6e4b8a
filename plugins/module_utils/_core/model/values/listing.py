# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# This module is private to the collection corral.node.
"""Lists within sentences. Long lists are cut: a list may have ten thousand items."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    import typing as t

LISTED = 16


def listed(items: t.Sequence[str], most: int = LISTED) -> str:
    """The items as ``a, b, c``; a list of more than ``most`` items ends with the number of the further items."""
    if len(items) <= most:
        return ", ".join(items)
    return f"{', '.join(items[:most])} and {len(items) - most} more"
