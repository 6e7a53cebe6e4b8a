# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# This module is private to the collection corral.node.
"""The units around a workload, as text: its slice, its own unit's place in that, and the unit that holds its grant."""

from __future__ import annotations

import re
import typing as t

from ..cpu.slices import described
from ..profile.profile_workloads import RUNNING, slice_name
from ..workload.resource_requirements import ResourceRequirements
from .agent_units import BOOT, LAUNCHER
from .confinement import STATE_PATHS, confined
from .unit_file import HEADER, unit_text
from .unit_property import ETC

NAME = "workloads"
# Another file than the workload's own drop-in: that of an instance would take the place of its template's.
EARLIER_NAME = "earlier-name"
GRANT_UNIT = f"{ETC}/corral-grant@.service"
GRANT_UNITS = "corral-grant@*.service"  # all that systemd has loaded
REGRANT_UNIT = f"{ETC}/corral-regrant@.service"
REGRANT_UNITS = "corral-regrant@*.service"
# There while a workload has the grant without which its unit does not start; in /run, as systemd looks for it.
GRANTED = "/run/corral/granted-"
LONGEST_NAME = 255  # of a unit (UNIT_NAME_MAX) and of a file


def grant_unit(workload: str) -> str:
    """The unit that is active from before a workload's start until after its stop."""
    return f"corral-grant@{slice_name(workload)}.service"


def regrant_unit(workload: str) -> str:
    """The unit that runs before each start for which there is no grant although the one that holds it is active."""
    return f"corral-regrant@{slice_name(workload)}.service"


def granted_file(workload: str) -> str:
    """The file that is there while a workload has a grant for its unit."""
    return f"{GRANTED}{slice_name(workload)}"


def unit_file(workload: str) -> str:
    """The file, named after the unit, that is there once an instance of a template was granted something; it stays.

    systemd ignores an assertion about a name that is longer than a file's can be. This one never is.
    """
    return f"{GRANTED}{workload.partition(':')[2]}"


def name_problem(workload: str) -> str:
    """Why the instance of a template that is this workload cannot have a slice and a holder; "" where it can."""
    if workload.count("@") > 1:
        return "has a second @ in its name, and no slice can have that: write \\x40, as systemd-escape(1) does"
    over = len(regrant_unit(workload)) - LONGEST_NAME
    return f"has a name that is {over} characters too long for the units beside it" if over > 0 else ""


def slice_text(need: ResourceRequirements, unit: str, limits: t.Mapping[str, str]) -> str:
    """The drop-in of a workload's slice."""
    lines = [f"{name}={value}" for name, value in limits.items()]
    # A list adds up over drop-ins, so it begins with an empty assignment.
    lines = [
        line for one in lines for line in (["AllowedMemoryNodes=", one] if one.startswith("AllowedMemory") else [one])
    ]
    return unit_text(("Unit", [f"Description={described(unit)} ({need.qos})"]), ("Slice", lines))


def earlier_name_text(workload: str) -> str:
    """The drop-in of a running unit whose workload has another name since its start, and its grant from the earlier one.

    The unit that holds that grant has StopWhenUnneeded=: systemd stops it at the next daemon-reload where no unit needs it. The next
    start of the workload must not depend on it.
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
    """The drop-in of a workload's unit. What is admitted before each start does not start when it is refused.

    ``devices`` are the lines of a unit that is granted some (device_delivery.unit_lines).
    """
    # A workload that keeps its CPUs over a boot has them again once the pools exist.
    sections = [("Unit", [f"After={BOOT}"])]
    name = need.workload.name
    holder, again, granted = grant_unit(name), regrant_unit(name), granted_file(name)
    if need.workload.is_template:
        # Each instance has a slice of its own, named after it (systemd.unit(5), specifiers).
        holder, again, slice_unit = (re.sub(r"(\.[a-z]+)$", r"%i\1", unit) for unit in (holder, again, slice_unit))
        granted += "%i"
    if need.workload.hold == RUNNING:
        # systemd looks for the file at the very start: whatever ended the grant before, nothing runs without one.
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
    """The template of the units that hold grants.

    It runs on the reserved CPUs while the workload is still dead, stays active while the workload needs it, restarts of
    the workload included, and gives the grant back after its stop. A refusal is no failure of the workload itself, so
    Restart= does not try again and again.
    """
    # What containers are given stands in a CDI spec.
    return HEADER + GRANT_TEXT.format(corral=LAUNCHER) + confined(f"/etc/systemd {STATE_PATHS}")


def regrant_unit_text() -> str:
    """The template of the units that grant what a start lacks although the unit that holds the grant is active.

    That one runs once for all the starts while it is active; its grant may have ended by a release, or by a profile that reserves the
    CPUs. Where there is a grant, systemd starts no process.
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
