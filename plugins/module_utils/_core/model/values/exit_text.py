# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# This module is private to the collection corral.node.
"""Why a user's command did not succeed, in one printable line."""

from __future__ import annotations

from .errors import shown

LIMIT = 200  # the most characters of the command's name, and of its output


def why_failed(program: str, code: int, output: str, why_not: str) -> str:
    """Why a command failed, with the last line of its output; an empty string after a success. ``why_not``: why there is no exit code."""
    if why_not:
        return shown(why_not, limit=LIMIT)
    if not code:
        return ""
    ended = f"exit code {code}" if code > 0 else f"ended by signal {-code}"
    lines = [line.strip() for line in output.splitlines()]
    last = next(filter(None, reversed(lines)), "")
    return ": ".join([shown(f"{program}: {ended}", limit=LIMIT), *([shown(last, limit=LIMIT)] if last else [])])
