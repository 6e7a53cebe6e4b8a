# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# This module is private to the collection corral.node.
"""The NUMA nodes of a machine with their CPUs, memory and hugepages, as JSON data."""

from __future__ import annotations

import typing as t

from ..model.topology.topology import Topology
from ..model.values import cpuset
from ..model.values.sizes import page_text

if t.TYPE_CHECKING:
    from ..model.status.json_shapes import NumaNode


def rows(topology: Topology) -> list[NumaNode]:
    """The NUMA nodes in the order of their numbers. The memory is null if the kernel does not report the memory."""
    return [
        {
            "node": node.id,
            "cpus": cpuset.format(node.cpus),
            "memory_mib": None if node.memory_kib is None else node.memory_kib >> 10,
            "hugepages": {page_text(size): count for size, count in sorted(node.hugepages.items())},
        }
        for dummy, node in sorted(topology.numa.items())
    ]
