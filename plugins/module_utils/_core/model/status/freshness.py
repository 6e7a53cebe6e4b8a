# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# This module is private to the collection corral.node.
"""How old a report of a node may be, and why it is older: a report that no look renews is not known to hold."""

from __future__ import annotations

import typing as t

from ..systemd.agent_units import INTERVAL, SERVICE, TIMER
from ..values import duration
from ..values.records import NamedTuple

INTERVALS = 3  # so many of them without a look are too many
CLOCK_SECONDS = 5.0  # A clock that differs by less was not set by hand.


class Look(NamedTuple):
    """The last look at a node as it is published: the time by the clock (0: none since the boot), and in seconds since the boot (None: by
    an earlier Corral); the agent's interval in seconds (None: no agent).
    """

    time: int
    since_boot: t.Optional[int]
    interval: t.Optional[int]


class Unit(NamedTuple):
    """What systemd says of a unit; ``seconds`` is how long its job has run, ``limit`` how long it may."""

    load: str = "loaded"
    active: str = "active"
    enabled: str = "enabled"
    result: str = "success"
    condition: bool = True
    seconds: float = 0.0
    limit: float = 0.0


class Agent(NamedTuple):
    """The agent as it is now: its units, and which other process holds the node's lock ("": none)."""

    timer: Unit
    service: Unit
    holder: str = ""


def age(look: Look, now: float, uptime: float) -> t.Optional[float]:
    """Seconds since the look, by the clock of the boot, which cannot be set; None where it is of another boot, or lies ahead."""
    seconds = now - look.time if look.since_boot is None else uptime - look.since_boot
    return seconds if seconds >= 0 else None


def stale(look: Look, now: float, uptime: float, ask: t.Callable[[], t.Optional[Agent]]) -> str:
    """Why the last look is too old to speak of the node now; "" where it is not.

    ``ask`` is called for a look that is older than three intervals: a tick that began in time and is within its own limit looks now.
    """
    seconds, most = age(look, now, uptime), INTERVALS * (look.interval or INTERVAL)
    if seconds is not None and seconds <= most:
        return ""
    if look.interval is None:
        return "no agent keeps this node, and this is what the last run found: corral drift checks now"
    found = ask()
    if found is not None and looks(found.service) and seconds is not None and seconds - found.service.seconds <= most:
        return ""
    said = ["systemd does not say why"] if found is None else reasons(found)
    set_by = 0.0 if seconds is None or found is None or not look.time else now - look.time - seconds
    if abs(set_by) > CLOCK_SECONDS:
        said.append(
            f"the clock was set {'back' if set_by < 0 else 'forward'} by {duration.text(int(abs(set_by)))} since"
        )
    return "; ".join(said)


def looks(service: Unit) -> bool:
    """Whether a tick runs that is within its time limit."""
    return service.active == "activating" and service.seconds <= service.limit


def reasons(found: Agent) -> list[str]:
    """Why nothing renews the status."""
    timer, service = found.timer, found.service
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
    if found.holder:
        said.append(f"{found.holder} holds the node's lock")
    return said or [f"its ticks end without a look: journalctl -u {SERVICE}"]
