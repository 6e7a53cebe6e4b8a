# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The pools as programs read them."""

from __future__ import annotations

from _core.model.cpu import published_pools
from test_pools import compute, with_empty_node


def test_as_data_and_as_environment() -> None:
    found = compute(
        with_empty_node(2),
        reserved={"cores_per_numa": 1},
        isolated={"cores": 1, "numa": 1},
        options={"strict-cpu-reservation": False},
    )
    assert published_pools.to_dict(found) == {
        "online": "0-7",
        "reserved": "0-1,4-5",
        "shared": "2-3",
        "isolated": "6-7",
        "exclusive": "",
        "workloads": "0-5",
        "strict": False,
        "numa": {
            "0": {"reserved": "0-1", "shared": "2-3", "isolated": "", "exclusive": ""},
            "1": {"reserved": "4-5", "shared": "", "isolated": "6-7", "exclusive": ""},
            "2": {"reserved": "", "shared": "", "isolated": "", "exclusive": ""},
        },
        "notes": [],
    }
    lines = published_pools.to_env(found).splitlines()
    assert lines[:7] == [
        'CORRAL_ONLINE_CPUS="0-7"',
        'CORRAL_RESERVED_CPUS="0-1,4-5"',
        'CORRAL_SHARED_CPUS="2-3"',
        'CORRAL_ISOLATED_CPUS="6-7"',
        'CORRAL_EXCLUSIVE_CPUS=""',
        'CORRAL_WORKLOAD_CPUS="0-5"',
        'CORRAL_RESERVED_CPUS_NUMA0="0-1"',
    ]
    assert len(lines) == 6 + 3 * 4
