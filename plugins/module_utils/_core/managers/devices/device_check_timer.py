# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# This module is private to the collection corral.node.
"""The timer of the commands that check the health of devices, and an item of drift if no pass of the timer ends.

The passes are in pipeline/run_device_checks.py. A failed check of a workload's device is drift of the devices manager.
"""

from __future__ import annotations

import typing as t

from ...host import state
from ...host.files import Host
from ...model.devices import device_check_units, device_checks
from ...model.devices.device_check_units import SERVICE, TIMER
from ...model.plan.context import Context
from ...model.plan.plan import Change, Part
from .. import pass_timer
from ..manager import Manager, agent_note
from ..pass_timer import PassTimer

if t.TYPE_CHECKING:
    from ...model.profile.profile import Profile

NAME = "checks"
OWN = PassTimer(
    NAME,
    TIMER,
    SERVICE,
    results=state.DEVICES_CHECKED,
    when="when the health of devices is checked",
    what="what checks it",
    without="no device is checked without it",
    ended="no device is checked any more",
)
STATUS_FILES = (state.DEVICE_CHECKS, state.DEVICES_CHECKED, state.DEVICE_CHECKS_LOCK)
WRITES = OWN.writes(STATUS_FILES)


def plan(host: Host, context: Context) -> Part:
    """The manager's part of the plan; without checks in the profile the plan removes the results of earlier passes."""
    checks = [check for dummy, check in device_checks.checked(context.profile.devices)]
    if not checks:
        return Part(pass_timer.stale(host, OWN, STATUS_FILES), frozenset())
    texts, period = device_check_units.units(checks), device_check_units.period(checks)
    seen = pass_timer.observe(host, context, OWN, period)
    return Part(
        tuple(pass_timer.changes(context, OWN, texts, period, seen)),
        OWN.owned(),
        notes=agent_note(host, context, "devices[].check: runs before a run of Corral, and at its times"),
    )


def status_files(dummy_host: Host) -> tuple[str, ...]:
    """The files that passes write for the next pass and the tick."""
    return STATUS_FILES


def key_of(dummy_change: Change, declared: Profile) -> str:
    """The profile's key for a change: the key of the first check."""
    indexes = (index for index, resource in enumerate(declared.devices) if resource.check is not None)
    return next((f"devices[{index}].check" for index in indexes), "devices")


MANAGER = Manager(NAME, plan, WRITES, status_files=status_files, key_of=key_of)
