# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the item of a refused workload says that it has."""

from __future__ import annotations

import typing as t

import pytest
from _core.managers import checkpoint
from _core.model.workload.admission import Refusal
from _core.model.workload.grants import Grant

NIC = "example.com/nic"
GRANT = Grant("db", requests=(("cpu", 1500), ("memory", 64 << 20), (NIC, 1)), limits=(("pids", 50),))


@pytest.mark.parametrize(
    ("key", "wanted", "grant", "actual"),
    [
        ("requests.cpu", "2", None, "nothing"),
        ("requests.cpu", "2", GRANT, "1500m"),
        ("requests.cpu", "2", GRANT._replace(cpus=frozenset({3})), "1"),
        ("requests.memory", "128Mi", GRANT, "64Mi"),
        ("requests.memory", "64Mi", GRANT, "less"),
        ("limits.pids", "180", GRANT, "50"),
        ("limits.memory", None, GRANT, "nothing"),
        (f'requests["{NIC}"]', "2", GRANT, "1"),
        (f"requests.{NIC}", "2", GRANT, "1"),
        ("requests", f"cpu 2, {NIC} 1", GRANT, f"cpu 1500m, memory 64Mi, {NIC} 1"),
        ("match.unit", "db.service", GRANT, "an earlier grant"),
    ],
)
def test_a_refused_workload_has_what_it_was_granted(
    key: str, wanted: t.Optional[str], grant: t.Optional[Grant], actual: str
) -> None:
    item = checkpoint.refused_change(Refusal("db", key, wanted, "refused"), grant)
    assert (item.actual, item.wanted) == (actual, wanted)
