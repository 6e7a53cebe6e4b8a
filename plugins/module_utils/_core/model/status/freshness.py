# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# This module is private to the collection corral.node.
"""Whether a node's last report is too old, and why no newer report exists."""

from __future__ import annotations

import typing as t

from ..agent.agent_units import INTERVAL, SERVICE, TIMER
from ..values import duration
from ..values.records import NamedTuple

INTERVALS = 3  # a report is too old after this number of the agent's intervals
CLOCK_SECONDS = 5.0  # a smaller difference does not show that the clock was set


class Look(NamedTuple):
    """The time of the last published report. ``time``: epoch seconds (0: no report since the boot). ``since_boot``: seconds since the boot
    (None: an earlier version wrote the report). ``interval``: seconds between the agent's ticks (None: no agent).
    """

    time: int
    since_boot: t.Optional[int]
    interval: t.Optional[int]


class UnitStatus(NamedTuple):
    """The state of a unit in systemd. ``seconds``: how long the unit's job has run. ``limit``: the job's time limit in seconds."""

    load: str = "loaded"
    active: str = "active"
    enabled: str = "enabled"
    result: str = "success"
    condition: bool = True
    seconds: float = 0.0
    limit: float = 0.0


class Agent(NamedTuple):
    """The agent's state: its units, and another process that holds the node's lock (empty: no other process)."""

    timer: UnitStatus
    service: UnitStatus
    holder: str = ""


def age(look: Look, now: float, uptime: float) -> t.Optional[float]:
    """The seconds since the report; None for a report from the future. The clock since the boot, which cannot be set, is preferred."""
    seconds = now - look.time if look.since_boot is None else uptime - look.since_boot
    return seconds if seconds >= 0 else None


def stale(look: Look, now: float, uptime: float, ask: t.Callable[[], t.Optional[Agent]]) -> str:
    """Why the last report is too old; an empty string for a report that is not too old.

    ``ask`` returns the agent, and is called only for a report older than three intervals. Such a report is not too old while a tick runs
    that began in time and is within its time limit.
    """
    seconds, most = age(look, now, uptime), INTERVALS * (look.interval or INTERVAL)
    if seconds is not None and seconds <= most:
        return ""
    if look.interval is None:
        return "no agent keeps this node, and this is what the last run found: corral drift checks now"
    agent = ask()
    if agent is not None and looks(agent.service) and seconds is not None and seconds - agent.service.seconds <= most:
        return ""
    said = ["systemd does not say why"] if agent is None else reasons(agent)
    set_by = 0.0 if seconds is None or agent is None or not look.time else now - look.time - seconds
    if abs(set_by) > CLOCK_SECONDS:
        said.append(
            f"the clock was set {'back' if set_by < 0 else 'forward'} by {duration.text(int(abs(set_by)))} since"
        )
    return "; ".join(said)


def looks(service: UnitStatus) -> bool:
    """Whether a tick runs and is within its time limit."""
    return service.active == "activating" and service.seconds <= service.limit


def reasons(agent: Agent) -> list[str]:
    """Why the agent does not renew the report."""
    timer, service = agent.timer, agent.service
    said = [f"{name} is {unit.load}" for name, unit in ((SERVICE, service), (TIMER, timer)) if unit.load != "loaded"]
    if timer.load == "loaded" and timer.active != "active":
        said.append(f"{TIMER} is {timer.active}, {timer.enabled}: systemctl enable --now {TIMER}")
    if service.active in ("activating", "deactivating"):
        if looks(service):
            said.append(f"a tick runs for {int(service.seconds)} s, after one that ended without a look")
        else:
            said.append(f"a tick hangs for {int(service.seconds)} s, its TimeoutStartSec= is {service.limit:g} s")
    elif service.result != "success":
        said.append(f"{SERVICE} failed with the result {service.result}")
    elif not service.condition:
        said.append(f"a condition of {SERVICE} is not met: systemctl status {SERVICE} names it")
    if agent.holder:
        said.append(f"{agent.holder} holds the node's lock")
    return said or [f"its ticks end without a look: journalctl -u {SERVICE}"]
