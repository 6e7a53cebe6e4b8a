# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""CPU lists as the kernel writes them, read without the core's code: what the watchers load must not measure the node first."""

from __future__ import annotations


def cpus(text: str) -> frozenset[int]:
    """The CPUs of a list such as 0-3,6; none for an empty text."""
    parts = [part.partition("-") for part in text.strip().split(",") if part]
    return frozenset(cpu for first, dash, last in parts for cpu in range(int(first), int(last if dash else first) + 1))
