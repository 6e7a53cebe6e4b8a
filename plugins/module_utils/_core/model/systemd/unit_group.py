# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# This module is private to the collection corral.node.
"""The paths of units' control groups in systemd's tree."""

from __future__ import annotations


def group_of(unit: str) -> str:
    """The control group (below the root) of a top-level unit or of any slice. Dashes nest slices (systemd.slice(5))."""
    if not unit.endswith(".slice"):
        return unit
    parts = unit[: -len(".slice")].split("-")
    return "/".join("-".join(parts[: depth + 1]) + ".slice" for depth in range(len(parts)))


def unit_of_partition(path: str) -> str:
    """The top-level unit to which the path of a file cpuset.cpus.partition belongs."""
    return path.rpartition("/")[0].rpartition("/")[2]
