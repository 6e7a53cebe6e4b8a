# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the slices of a node say of a checkpoint, and how long a workload that was admitted by hand has to start."""

from __future__ import annotations

from pathlib import Path

import pytest
from _core.host import workload_files
from _core.host.files import Host
from _core.model.profile import profile
from _core.model.profile.profile_workloads import DECLARED, RUNNING
from _core.model.values import cpuset
from _core.model.workload import resource_requirements
from _core.model.workload.grants import Checkpoint, Grant
from _core.pipeline import allocate_workloads

OWN = {"cpu": 2, "memory": "1Mi"}
GRANT = Grant("batch", RUNNING, "1234", cpuset.parse("2-3"))


@pytest.mark.parametrize(
    ("granted", "run", "cpus", "populated", "limits", "unknown"),
    [
        pytest.param([], "1234", "2-3", True, OWN, "batch", id="a run without a grant"),
        pytest.param([GRANT._replace(instance="1")], "1234", "4-5", True, OWN, "batch", id="a later run on other CPUs"),
        pytest.param([GRANT._replace(instance="1")], "1234", "2-3", True, OWN, "", id="a later run on the same CPUs"),
        pytest.param([GRANT], "1234", "4-5", True, OWN, "", id="the run that has the grant"),
        pytest.param([GRANT], "", "4-5", True, OWN, "", id="nothing holds a grant for it"),
        pytest.param([GRANT._replace(hold=DECLARED)], "9", "4-5", True, OWN, "", id="the grant is not for a run"),
        pytest.param([], "1234", "2-3", False, OWN, "", id="no process"),
        pytest.param([], "1234", "6-7", True, OWN, "", id="it lost its CPUs, and has those of the shared pool"),
        pytest.param([], "1234", "", True, OWN, "", id="its slice requests none"),
        pytest.param([], "1234", "2-3", True, {"cpu": "500m", "memory": "1Mi"}, "", id="no CPUs of its own"),
    ],
)
def test_a_checkpoint_of_before_a_run_got_its_cpus_is_an_earlier_one(
    granted: list[Grant], run: str, cpus: str, populated: bool, limits: dict[str, object], unknown: str, tmp_path: Path
) -> None:
    row = {"name": "batch", "match": {"unit": "batch.service"}, "hold": "running", "limits": limits}
    needs = [resource_requirements.of(one, "static", None) for one in profile.parse_workloads([row])]
    for path, text in (
        ("cgroup.controllers", "cpuset"),
        ("corral.slice/cpuset.cpus", "6-7"),
        ("corral_batch.slice/cpuset.cpus", cpus),
        ("corral_batch.slice/cgroup.events", f"populated {int(populated)}"),
    ):
        file = tmp_path / "sys/fs/cgroup" / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(f"{text}\n")
    if run:
        link = tmp_path / "run/systemd/units/invocation:corral-grant@batch.service"
        link.parent.mkdir(parents=True)
        link.symlink_to(run)
    assert workload_files.run_unknown_to(Host(str(tmp_path)), Checkpoint(tuple(granted)), needs) == unknown


@pytest.mark.parametrize(
    ("instance", "waits"),
    [
        ("by-hand:0123abcd:1000", True),
        ("by-hand:0123abcd:881", True),
        ("by-hand:0123abcd:880", False),  # 120 s ago
        ("by-hand:0123abcd:1001", False),
        ("by-hand:ffffffff:1000", False),  # of another boot
        ("0123abcd:1000", False),
        ("by-hand:0123abcd:", False),
        ("", False),
    ],
)
def test_a_workload_that_was_admitted_by_hand_has_two_minutes_to_start(
    instance: str, waits: bool, tmp_path: Path
) -> None:
    file = tmp_path / "proc/sys/kernel/random/boot_id"
    file.parent.mkdir(parents=True)
    file.write_text("0123abcd-0000\n")
    host = Host(str(tmp_path), uptime=lambda: 1000.0)
    assert allocate_workloads.waits_to_start(host, GRANT._replace(instance=instance)) is waits
