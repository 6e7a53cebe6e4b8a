# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# This module is private to the collection corral.node.
"""The timer of a service that works in passes, such as garbage collection, as text."""

from __future__ import annotations

from .unit_file import HEADER

WANTED_BY = "timers.target"
TIMER_TEXT = """\
[Unit]
Description=Corral: {description}

[Timer]
OnActiveSec={first}s
OnUnitInactiveSec={seconds}s
AccuracySec={accuracy}s

[Install]
WantedBy={target}
"""


def timer_text(description: str, first: int, seconds: int) -> str:
    """A timer that starts its service ``first`` seconds after its own start, and then ``seconds`` after the end of each pass."""
    text = TIMER_TEXT.format(
        description=description, first=first, seconds=seconds, accuracy=max(seconds // 20, 1), target=WANTED_BY
    )
    return HEADER + text
