# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The NUMA nodes of a machine as JSON data."""

from __future__ import annotations

import machines
from _core.model.topology.topology import NumaNode
from _core.reports import numa_table


def test_each_node_by_its_number_with_its_pages_by_size() -> None:
    numa = {
        4: NumaNode(4, frozenset({2, 3}), None, {}),
        0: NumaNode(0, frozenset({0, 1}), 4097, {1 << 20: 1, 2048: 32}),
    }
    found = numa_table.rows(machines.machine(1, 2, 2, numa=numa))
    assert found == [
        {"node": 0, "cpus": "0-1", "memory_mib": 4, "hugepages": {"2Mi": 32, "1Gi": 1}},
        {"node": 4, "cpus": "2-3", "memory_mib": None, "hugepages": {}},
    ]
    assert list(found[0]["hugepages"]) == ["2Mi", "1Gi"], "small pages first"
