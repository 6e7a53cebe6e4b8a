# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the item of a refused workload says that it has, and which files go with a grant."""

from __future__ import annotations

import typing as t
from pathlib import Path

import pytest
from _core.host.files import Host
from _core.managers.workload import checkpoint
from _core.model.cpu.pools import Pools
from _core.model.plan.context import Workloads
from _core.model.profile import profile
from _core.model.profile.profile_workloads import RUNNING
from _core.model.workload import resource_requirements
from _core.model.workload.admission import AllocationEvent, AllocationResult, Refusal, WorkloadStatus
from _core.model.workload.grants import Checkpoint, Grant

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


RUNS = Grant("db", RUNNING, "1234")
NO_POOLS = Pools(*4 * [frozenset()], {}, (), strict=True)


@pytest.mark.parametrize(
    ("needed", "grants", "left", "removed"),
    [
        pytest.param(["db"], [RUNS], [], False, id="it has its grant"),
        pytest.param(["db"], [RUNS], ["db"], False, id="its grant changes"),
        pytest.param(["db"], [], [], True, id="it has none"),
        pytest.param(["db"], [GRANT], [], True, id="it has one that is not for a run"),
        pytest.param([], [], ["db"], True, id="it left the profile, and its grant ends"),
        pytest.param([], [], ["other"], False, id="of another author"),
    ],
)
def test_no_start_rests_on_a_grant_that_is_not_there(
    needed: list[str], grants: list[Grant], left: list[str], removed: bool, tmp_path: Path
) -> None:
    file = tmp_path / "run/corral/granted-db"
    file.parent.mkdir(parents=True)
    file.touch()
    rows = [{"name": name, "match": {"unit": f"{name}.service"}} for name in needed]
    needs = [resource_requirements.of(one, "static", None) for one in profile.parse_workloads(rows)]
    events = [AllocationEvent(name, RUNS, None, "its run has ended") for name in left]
    found = Workloads(
        tuple(needs), Checkpoint(), AllocationResult(tuple(grants), (), tuple(events)), {}, NO_POOLS, WorkloadStatus()
    )
    host = Host(str(tmp_path))
    assert checkpoint.files_without_grant(host, found) == (["/run/corral/granted-db"] if removed else [])
