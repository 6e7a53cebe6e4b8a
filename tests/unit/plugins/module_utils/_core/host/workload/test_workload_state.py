# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which of the units that hold grants systemd is asked to stop."""

from __future__ import annotations

from pathlib import Path

import pytest
from _core.host.command import Command
from _core.host.files import Host
from _core.host.workload import workload_state
from _core.model.profile.profile_workloads import DECLARED, RUNNING
from _core.model.tenants.tenant import Member
from _core.model.workload.grants import Grant

BATCH = "corral-grant@batch.service"
GRANT = Grant("batch", RUNNING, unit="batch.service")


@pytest.mark.parametrize(
    ("holder", "granted", "runs", "slice_name", "asked"),
    [
        pytest.param(BATCH, [GRANT], "", "", True, id="its unit does not run"),
        pytest.param(BATCH, [GRANT._replace(unit="")], "", "", True, id="it is for no unit"),
        pytest.param(BATCH, [], "", "", True, id="its grant was released"),
        pytest.param(BATCH, [GRANT], "other.service", "", True, id="another unit runs"),
        pytest.param(BATCH, [GRANT], "batch.service", "", False, id="its unit is active, and has no process yet"),
        pytest.param(BATCH, [GRANT], "", "corral_batch.slice", False, id="a process is left on its CPUs"),
        pytest.param(BATCH, [GRANT], "", "corral.slice/corral-batch.slice", False, id="a process is left on shared CPUs"),
        pytest.param(BATCH, [], "", "corral_batch.slice", False, id="it was released, and a process is left"),
        pytest.param(
            BATCH, [GRANT._replace(member=Member("lab"))], "", "corral.slice/corral-lab.slice/corral-lab-batch.slice", False,
            id="a process is left in its tenant",
        ),
        pytest.param(BATCH, [], "", "corral.slice/corral-lab.slice/corral-lab-batch.slice", False, id="it was released, and a process is left in a tenant"),
        pytest.param(BATCH, [], "needs.service", "", False, id="it was released, and a unit that runs needs it"),
        pytest.param(BATCH, [], "wants.service", "", False, id="a unit that runs has it from an earlier name"),
        pytest.param("corral-grant@batch\\x40a.service", [], "needs@a.service", "", False, id="an instance that runs needs it"),
        pytest.param("corral-grant@all:other.service", [], "other.service", "", False, id="it was released, and its unit of a pattern runs"),
        pytest.param("corral-grant@batch\\x40b.service", [], "needs@a.service", "", True, id="another instance runs"),
        pytest.param(BATCH, [GRANT._replace(hold=DECLARED)], "", "", False, id="its grant is not for a run"),
        pytest.param("corral-grant@b-c.service", [], "", "", False, id="a name that no workload has"),
    ],
)  # fmt: skip
def test_systemd_is_asked_to_stop_what_holds_a_grant_for_nothing(
    holder: str, granted: list[Grant], runs: str, slice_name: str, asked: bool, tmp_path: Path
) -> None:
    links = tmp_path / "run/systemd/units"
    links.mkdir(parents=True)
    for unit in filter(None, (holder, runs)):
        (links / f"invocation:{unit}").symlink_to("1234")
    for name, line in (
        ("needs.service.d/10-corral-workloads", f"Requires={BATCH}"),
        ("wants.service.d/10-corral-earlier-name", f"Wants={BATCH}"),
        ("needs@.service.d/10-corral-workloads", "Requires=corral-grant@batch\\x40%i.service"),
    ):
        file = tmp_path / f"etc/systemd/system/{name}.conf"
        file.parent.mkdir(parents=True)
        file.write_text(f"[Unit]\n{line}\n")
    group = tmp_path / "sys/fs/cgroup" / slice_name
    group.mkdir(parents=True)
    (tmp_path / "sys/fs/cgroup/cgroup.controllers").write_text("cpuset\n")
    if slice_name:
        (group / "cgroup.events").write_text("populated 1\n")
    host = Host(str(tmp_path), run=lambda *dummy: Command(0, "", ""))
    assert workload_state.ask_for_end(host, granted) is asked
    assert host.commands == ([("systemctl", "reload", "--no-block", holder)] if asked else [])
