# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# This module is private to the collection corral.node.
"""The one door for foreign text: names, messages and ids that another user or program chose."""

from __future__ import annotations


def printable(text: str) -> str:
    """The text with each character that is not printable written as its escape, so that it stays on one line.

    Line feeds, terminal escapes and the characters that reverse the direction of writing are not printable
    (str.isprintable). The text is escaped where it comes in: what prints it later need not know where it is from.
    """
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode("ascii") for char in text)
