# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# This module is private to the collection corral.node.
"""The program of corral-grant@.service: the admission of a workload before its start, and the release after its stop.

A workload's start waits for this program, so this file loads no other file of the command line.
"""

from __future__ import annotations

import os
import sys
import time
import typing as t

from ..constants import IN_SYNC
from ..host import workload_files
from ..host.files import Host
from ..host.workload import workload_state
from ..managers.workload.checkpoint import grant_text
from ..model.devices import device_check_units
from ..model.profile.profile_workloads import RUNNING, workload_name
from ..model.systemd.unit_property import ETC
from ..model.values.errors import CorralError, refusal
from ..model.workload import workload_units
from ..pipeline import admit_workload, locked_run
from ..pipeline.admit_workload import Admission

if t.TYPE_CHECKING:
    from ..model.workload.grants import Grant

# A run that ends releases its grant within moments; if other runs of Corral have the lock, the release takes longer.
ENDING_SECONDS = 60.0
MOMENT_SECONDS = 3.0  # in this time systemd notices that a unit's last process has ended


def run(host: Host, words: t.Sequence[str]) -> int:
    """Run ``admit --start INSTANCE`` or ``release --stop INSTANCE``. Returns the exit code. Raises CorralError."""
    if words[0] == "release":
        return stop(host, words[-1], os.environ.get("INVOCATION_ID", ""))
    name = started_name(words[-1])
    # The grant is for the run of the unit that holds grants, even if corral-regrant@.service runs this program.
    holder = workload_state.run_of(host, name)
    if holder is None:
        # The unit that holds grants has stopped, since the start was cancelled. Without this unit no start may begin.
        sys.stdout.write(f"{name}: {workload_units.grant_unit(name)} is not active, so nothing is granted\n")
        return IN_SYNC
    try:
        said = shown(name, started(host, name, holder).grant)
    except admit_workload.Undeclared as error:
        # The workload left the profile, but another run still needs the unit's drop-in: the unit starts without a grant.
        said = f"{error}: it shares"
        let_start(host, name)
    sys.stdout.write(f"{said}\n")
    return IN_SYNC


def stop(host: Host, instance: str, run_id: str) -> int:
    """Release the grant of a run, but not at a shutdown: the shutdown ends all runs, and the next boot begins without grants."""
    if host.run("systemctl", "is-system-running").out.strip() == "stopping":
        return IN_SYNC

    name = workload_name(instance) or instance
    if admit_workload.still_runs(host, name):
        said = (
            "still runs, so its grant stays: after its stop the next tick (not in audit mode) or admission releases it"
        )
        sys.stdout.write(f"{name}: {said}\n")
        return IN_SYNC
    locked_run.locked(host, lambda: admit_workload.stop(host, name, run_id), publish=published)
    sys.stdout.write(f"{shown(name, None)}\n")
    return IN_SYNC


def shown(name: str, grant: t.Optional[Grant]) -> str:
    """A line with a workload's grant (None: it was released)."""
    return f"{name}: {grant_text(grant)}, in {grant.slice}" if grant else f"{name}: released"


def started_name(escaped: str) -> str:
    """The name of the workload whose grant a corral-grant@ unit requests: the unescaped instance name. Raises CorralError."""
    name = workload_name(escaped)
    if name is None:
        message = (
            "the instance's name has a dash, which nests slices: "
            "enable it first (systemctl enable), so that it gets a slice of its own before it starts"
        )
        raise refusal(message, path="name", value=escaped)
    problem = workload_units.name_problem(name)
    if problem:
        raise refusal(f"the instance {problem}", path="name", value=escaped)
    return name


def started(host: Host, name: str, run: str) -> Admission:
    """Admit a workload that is about to start. If the run of another workload is ending, wait for the resources of that run."""
    if host.exists(f"{ETC}/{device_check_units.TIMER}"):
        from ..pipeline import run_device_checks  # Only profiles with checks load the module.

        run_device_checks.check_before_start(host)
    begin = time.monotonic()
    while True:
        try:
            return locked_run.locked(host, lambda: granted(host, name, run), publish=published)
        except CorralError:
            workload_state.ask_for_end(host, workload_files.grants_in_force(host))
            waited = time.monotonic() - begin
            if waited > ENDING_SECONDS or not admit_workload.ending(host, name, settled=waited > MOMENT_SECONDS):
                raise
        time.sleep(0.3)


def granted(host: Host, name: str, run: str) -> Admission:
    """Grant a workload its resources for a start, and let systemd start the workload's unit. Raises CorralError."""
    admission = admit_workload.start(host, name, run)
    if admission.grant is not None and admission.grant.hold == RUNNING and admission.grant.unit:
        let_start(host, name)
    return admission


def let_start(host: Host, name: str) -> None:
    """Write the files without which systemd does not start the workload's unit."""
    if "@" in name:
        host.write_file(workload_units.unit_file(name), "")
    host.write_file(workload_units.granted_file(name), "")


def published(host: Host, admission: Admission) -> None:
    """Publish the pools at once: readers of pools.env must stop using the CPUs of a workload."""
    locked_run.published_pools(host, admission.outcome)
