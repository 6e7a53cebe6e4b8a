# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# This module is private to the collection corral.node.
"""The text of the systemd units that check devices."""

from __future__ import annotations

import typing as t

from ..agent.agent_units import LAUNCHER
from ..systemd.confinement import STATE_PATHS, confined
from ..systemd.pass_units import timer_text
from ..systemd.unit_file import HEADER

if t.TYPE_CHECKING:
    from .device import Check

TIMER = "corral-device-checks.timer"
SERVICE = "corral-device-checks.service"


def period(checks: t.Iterable[Check]) -> int:
    """Seconds from one pass to the next: the shortest interval. A device that is not due yet waits for a later pass."""
    return min(check.interval for check in checks)


def units(checks: t.Collection[Check]) -> dict[str, str]:
    """The text of each unit, by the unit's name."""
    seconds = period(checks)
    return {
        TIMER: timer_text("check the health of devices", 1, seconds),
        SERVICE: HEADER + SERVICE_TEXT.format(run=f"{LAUNCHER} devices --tick") + confined(STATE_PATHS),
    }


# The service is not in the agent's slice: the slice stops with the agent, and the timer of the service may elapse later and would start the
# slice again. The commands of the checks run in other units.
SERVICE_TEXT = """\
[Unit]
Description=Corral: run the profile's commands for the health of devices
ConditionPathExists=/usr/libexec/corral/corral
StartLimitIntervalSec=0

[Service]
Type=oneshot
ExecStart={run}
# Each command has its own time.
TimeoutStartSec=infinity
LogLevelMax=notice
Slice=system.slice
"""
