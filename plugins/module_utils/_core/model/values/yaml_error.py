# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# This module is private to the collection corral.node.
"""PyYAML's error about a text, as one line."""

from __future__ import annotations


def line(error: Exception) -> str:
    """A line with the place in a text and what is wrong there. PyYAML's own message has several lines."""
    mark, problem = getattr(error, "problem_mark", None), getattr(error, "problem", None)
    if mark is None or problem is None:
        return f"is not YAML: {' '.join(str(error).split())}"
    context, begin = getattr(error, "context", None), getattr(error, "context_mark", None)
    opened = f" of line {begin.line + 1}" if begin and begin.line != mark.line else ""
    before = f"{context}{opened}, " if context else ""
    return f"is not YAML: line {mark.line + 1}, column {mark.column + 1}: {before}{problem}"
