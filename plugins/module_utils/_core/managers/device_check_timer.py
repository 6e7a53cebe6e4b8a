# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# This module is private to the collection corral.node.
"""The timer of the commands for the health of devices, and whether its passes end.

The passes themselves are in pipeline/asking_about_devices.py. What they say of a device that a workload has is drift of the devices
manager.
"""

from __future__ import annotations

import re
import typing as t

from ..host import state, systemd
from ..host.files import Host
from ..model.devices import device_checks
from ..model.plan import make_step
from ..model.plan.context import Context
from ..model.plan.places import Place
from ..model.plan.plan import FILES, START, UNKNOWN, Change, Part
from ..model.systemd import agent_units, device_check_units
from ..model.systemd.device_check_units import SERVICE, TIMER
from ..model.systemd.unit_file import file_change
from ..model.systemd.unit_property import ETC
from ..model.values.records import NamedTuple
from .manager import Manager

if t.TYPE_CHECKING:
    from ..model.devices.device import Check
    from ..model.profile.profile import Profile

NAME = "checks"
LINK = f"{ETC}/{device_check_units.WANTED_BY}.wants/{TIMER}"
# A pass over many devices that all hang takes about as long.
LONGEST_PASS = 600
STATUS_FILES = (state.DEVICE_CHECKS, state.DEVICES_ASKED, state.DEVICE_CHECKS_LOCK)
WRITES = (
    Place("file", rf"{ETC}/({re.escape(TIMER)}|{re.escape(SERVICE)})"),
    Place("file", re.escape(LINK)),
    Place("unit", re.escape(TIMER), "start|stop|restart"),
    # Passes write their own results.
    Place("file", "|".join(map(re.escape, STATUS_FILES)), None, volatile=True),
)


class Observation(NamedTuple):
    """As observed: the units' texts, whether the timer is enabled and active, when the last pass ended, whether the agent is there."""

    texts: dict[str, t.Optional[str]]
    enabled: bool
    active: bool
    last: t.Optional[float]
    agent: bool


def plan(host: Host, context: Context) -> Part:
    """The manager's part of the plan; without a command in the profile it removes the results of earlier passes."""
    checks = [check for dummy, check in device_checks.checked(context.profile.devices)]
    return decide(context, checks, observe(host, context, checks)) if checks else Part(stale(host), frozenset())


def observe(host: Host, context: Context, checks: t.Sequence[Check]) -> Observation:
    """Read the units. A tick that the timer started runs no command.

    The time of the last pass does not cause a full tick: it changes all the time.
    """
    data = host.unrecorded(lambda: state.read_json(host, state.DEVICES_ASKED))
    last = data.get("time") if isinstance(data, dict) else None
    last = float(last) if isinstance(last, (int, float)) and abs(last) < 1 << 63 else None  # not Infinity, not NaN
    return Observation(
        {unit: host.read(f"{ETC}/{unit}") for unit in (TIMER, SERVICE)},
        host.link(LINK) is not None,
        is_active(host, context, checks, last),
        last,
        host.exists(agent_units.LAUNCHER),
    )


def is_active(host: Host, context: Context, checks: t.Sequence[Check], last: t.Optional[float]) -> bool:
    """Whether the timer runs. No file shows that: a recent pass does; without one systemd is asked."""
    if context.at_boot:
        return host.link(LINK) is not None  # Boot has yet to start it.
    longest = 2 * device_check_units.period(checks) + LONGEST_PASS
    if context.by_timer and last is not None and abs(context.now - last) < longest:
        return True
    return systemd.runs(host) and TIMER in systemd.active(host, [TIMER])


def decide(context: Context, checks: t.Sequence[Check], seen: Observation) -> Part:
    """The changes of the units, and whether the last pass is too long ago."""
    changes: list[t.Optional[Change]] = []
    for unit, text in device_check_units.units(checks).items():
        reason = "when the health of devices is checked" if unit == TIMER else "what checks it"
        change = file_change(NAME, f"{ETC}/{unit}", seen.texts[unit], text, reason=reason)
        if change is not None and unit == TIMER and seen.active:
            # A running timer is not armed again by a reload.
            change = change._replace(steps=(*change.steps, make_step.unit(TIMER, "restart", START, 20)))
        changes.append(change)
    changes.append(state_change(seen))
    period = device_check_units.period(checks)
    if seen.active and seen.last is not None and context.now - seen.last > 3 * period + LONGEST_PASS:
        reason = f"the timer runs, and no pass has ended since: see journalctl -u {SERVICE}"
        changes.append(Change(NAME, SERVICE, "last pass", None, None, reason, state.DEVICES_ASKED, (), UNKNOWN))
    owned = {f"file:{ETC}/{unit}" for unit in (TIMER, SERVICE)} | {f"link:{LINK}", f"unit:{TIMER}"}
    note = (
        "devices[].check: runs once the agent is installed on the node (corral.node.agent), and before a run of Corral"
    )
    return Part(tuple(filter(None, changes)), frozenset(owned), notes=() if seen.agent else (note,))


def state_change(seen: Observation) -> t.Optional[Change]:
    """The change of the timer's state."""
    if seen.enabled and seen.active:
        return None
    steps = [] if seen.enabled else [make_step.link(LINK, f"../{TIMER}", FILES, reload=True)]
    if not seen.active:
        steps.append(make_step.unit(TIMER, "start", START, 20))
    actual = f"{'enabled' if seen.enabled else 'disabled'}, {'active' if seen.active else 'inactive'}"
    reason = "no device is checked without it"
    return Change(NAME, TIMER, "state", actual, "enabled, active", reason, LINK, tuple(steps))


def stale(host: Host) -> tuple[Change, ...]:
    """The removal of the files about passes that are not made any more."""
    reason = "no device is checked any more"
    return tuple(
        Change(NAME, path, "content", "the last pass", None, reason, path, (make_step.file(path, None, FILES),))
        for path in STATUS_FILES
        if host.exists(path)
    )


def status_files(dummy_host: Host) -> tuple[str, ...]:
    """The files that passes write for the next pass and the tick."""
    return STATUS_FILES


def key_of(dummy_change: Change, declared: Profile) -> str:
    """The key that a change follows from: the first command."""
    found = (index for index, one in enumerate(declared.devices) if one.check is not None)
    return next((f"devices[{index}].check" for index in found), "devices")


MANAGER = Manager(NAME, plan, WRITES, status_files=status_files, key_of=key_of)
