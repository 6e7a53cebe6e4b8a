# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The map of the CPUs as they are, beside what is declared."""

from __future__ import annotations

import machines
from _core.model.cpu.cpu_assignment import Assignment
from _core.reports import cpu_map

DECLARED = {
    **{cpu: Assignment("reserved") for cpu in (0, 1)},
    **{cpu: Assignment("shared") for cpu in (2, 3, 4)},
    5: Assignment("exclusive", "lane"),
    6: Assignment("isolated"),
}


def test_where_all_is_as_declared_there_is_no_second_map() -> None:
    topology = machines.machine(2, 2, 2, offline_present=frozenset({7}))
    assert cpu_map.map_in_force(topology, DECLARED, DECLARED) == []
    assert cpu_map.map_in_force(topology, {**DECLARED, 7: Assignment("shared")}, DECLARED) == [], "it is offline"


def test_a_small_letter_is_another_pool_or_another_workload() -> None:
    topology = machines.machine(2, 2, 2, offline_present=frozenset({7}))
    now = {**DECLARED, 1: Assignment("shared"), 5: Assignment("exclusive", "other")}
    del now[4]
    assert cpu_map.map_in_force(topology, now, DECLARED) == [
        "node 0   Rs SS   CPUs 0-3",
        "node 1   ?e I   CPUs 4-6",
        "S shared 1-3   R reserved 0   E exclusive 5   I isolated 6   small letters: not as declared, 1,4-5",
    ]
