# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# This module is private to the collection corral.node.
"""The units of a workload, as text: its slice, the drop-in of its unit, and the unit that asks for its grant."""

from __future__ import annotations

import re
import typing as t

from ..agent.agent_units import BOOT, LAUNCHER
from ..cpu.slices import described
from ..profile.profile_workloads import RUNNING, slice_name
from ..systemd.confinement import STATE_PATHS, confined
from ..systemd.unit_file import HEADER, unit_text
from ..systemd.unit_property import ETC
from .resource_requirements import ResourceRequirements

NAME = "workloads"
# The name of a second drop-in of a workload's unit. Under the name of the first drop-in, an instance's file would hide its template's file.
EARLIER_NAME = "earlier-name"
GRANT_UNIT = f"{ETC}/corral-grant@.service"
GRANT_UNITS = "corral-grant@*.service"  # a pattern for the loaded units of this template
REGRANT_UNIT = f"{ETC}/corral-regrant@.service"
REGRANT_UNITS = "corral-regrant@*.service"
# The beginning of a file's path. The file exists while a workload has a grant; without the file systemd does not start the unit.
GRANTED = "/run/corral/granted-"
LONGEST_NAME = 255  # of the name of a unit (UNIT_NAME_MAX) and of a file


def grant_unit(workload: str) -> str:
    """The unit that asks for a workload's grant and releases the grant; active from before the workload's start until after its stop."""
    return f"corral-grant@{slice_name(workload)}.service"


def regrant_unit(workload: str) -> str:
    """The unit that asks for a grant before a workload's start, in case the unit of grant_unit() is active without a grant."""
    return f"corral-regrant@{slice_name(workload)}.service"


def granted_file(workload: str) -> str:
    """The path of a file that exists while a workload has a grant for its unit."""
    return f"{GRANTED}{slice_name(workload)}"


def unit_file(workload: str) -> str:
    """The path of the file of a template's instance, named after the unit; the file exists since the instance's first grant.

    systemd ignores an assertion about a file name that is too long. This name is always short enough.
    """
    return f"{GRANTED}{workload.partition(':')[2]}"


def name_problem(workload: str) -> str:
    """Why an instance of a template cannot have a slice and a unit for its grant; an empty string if the name allows both."""
    if workload.count("@") > 1:
        return "has a second @ in its name, and no slice can have that: write \\x40, as systemd-escape(1) does"
    over = len(regrant_unit(workload)) - LONGEST_NAME
    return f"has a name that is {over} characters too long for the units beside it" if over > 0 else ""


def slice_text(need: ResourceRequirements, unit: str, limits: t.Mapping[str, str]) -> str:
    """The text of the drop-in of a workload's slice."""
    lines = []
    for name, value in limits.items():
        # A list adds up over drop-ins, so an empty assignment comes first.
        lines += ["AllowedMemoryNodes="] if name == "AllowedMemoryNodes" else []
        lines.append(f"{name}={value}")
    return unit_text(("Unit", [f"Description={described(unit)} ({need.qos})"]), ("Slice", lines))


def earlier_name_text(workload: str) -> str:
    """The drop-in of a running unit whose workload was renamed since its start and has its grant under the earlier name.

    Without Wants= systemd would stop the grant's unit at the next daemon-reload (StopWhenUnneeded=). With Requires= the next start of the
    workload would depend on the grant's unit.
    """
    return unit_text(("Unit", [f"Wants={grant_unit(workload)}"]))


def unit_dropin(
    need: ResourceRequirements,
    slice_unit: str,
    score: t.Optional[int],
    *,
    exclusive: bool,
    devices: t.Sequence[str] = (),
) -> str:
    """The drop-in of a workload's unit. With ``hold: running`` the unit does not start unless the workload has a grant.

    ``devices`` are the lines for granted devices (device_delivery.unit_lines).
    """
    # After a boot a workload with hold: declared gets its CPUs once the pools exist.
    sections = [("Unit", [f"After={BOOT}"])]
    name = need.workload.name
    holder, again, granted = grant_unit(name), regrant_unit(name), granted_file(name)
    if need.workload.is_template:
        # The slice of each instance is named after the instance (systemd.unit(5), specifiers).
        holder, again, slice_unit = (re.sub(r"(\.[a-z]+)$", r"%i\1", unit) for unit in (holder, again, slice_unit))
        granted += "%i"
    if need.workload.hold == RUNNING:
        # systemd checks the file at each start: without a grant the unit does not run, for whatever reason the grant ended.
        units = [line for unit in (holder, again) for line in (f"Requires={unit}", f"After={unit}")]
        files = [granted, f"{GRANTED}%N"] if need.workload.is_template else [granted]
        sections = [("Unit", [*units, *(f"AssertPathExists={file}" for file in files)])]
    lines = [f"Slice={slice_unit}"]
    if score is not None:
        lines.append(f"OOMScoreAdjust={score}")
    if exclusive:
        lines.append("CPUQuota=")
    lines += devices
    return unit_text(*sections, ("Service", lines))


def grant_unit_text() -> str:
    """The template of the units that ask for grants and release grants (see grant_unit()).

    Such a unit runs on the reserved CPUs and asks for the grant before the workload starts. The unit stays active while the workload needs
    it, through restarts, and releases the grant after the workload's stop. A refusal does not fail the workload's unit, so Restart= does
    not try again and again.
    """
    # STATE_PATHS contains /run, which is also needed for the CDI specs of containers.
    return HEADER + GRANT_TEXT.format(corral=LAUNCHER) + confined(f"/etc/systemd {STATE_PATHS}")


def regrant_unit_text() -> str:
    """The template of the units that ask for a grant again (see regrant_unit()).

    The unit of grant_unit() asks only once while it is active. Since then the grant may have ended by a release, or by a profile that
    reserves the CPUs. If there is a grant, systemd starts no process.
    """
    return HEADER + REGRANT_TEXT.format(corral=LAUNCHER, granted=GRANTED) + confined(f"/etc/systemd {STATE_PATHS}")


GRANT_TEXT = """\
[Unit]
Description=Corral: what workload %I holds while it runs
After=corral-boot.service
StopWhenUnneeded=yes
# How often the workload itself may start is its own matter.
StartLimitIntervalSec=0

[Service]
Type=oneshot
RemainAfterExit=yes
ExecStart={corral} admit --start %i
# After a reload systemd stops it if nothing needs it. It does not look by itself when a start is cancelled, or its condition is not met.
ExecReload=/bin/true
ExecStopPost={corral} release --stop %i
SuccessExitStatus=2
TimeoutStartSec=180
TimeoutStopSec=180
Slice=system.slice
"""

REGRANT_TEXT = """\
[Unit]
Description=Corral: the grant of workload %I, where it has none
After=corral-boot.service corral-grant@%i.service
ConditionPathExists=!{granted}%i
StartLimitIntervalSec=0

[Service]
Type=oneshot
ExecStart={corral} admit --start %i
SuccessExitStatus=2
TimeoutStartSec=180
Slice=system.slice
"""
