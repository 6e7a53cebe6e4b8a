# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# This module is private to the collection corral.node.
"""The pause of a node: its file, the user who set it, and whether it is in force."""

from __future__ import annotations

import os
import time
import typing as t

from ..model.status import pause
from ..model.status.pause import Pause
from ..model.systemd import agent_units
from ..model.systemd.unit_property import ETC
from ..model.values.errors import refusal
from ..model.values.errors import shown as printable
from ..model.values.records import NamedTuple
from . import accounts, state, systemd
from .files import Host

if t.TYPE_CHECKING:
    from ..model.status import json_shapes
    from ..model.status.json_shapes import RenderedPause

TICK_SECONDS = 200.0  # more than the unit's own limit


class PauseState(NamedTuple):
    """The pause in force and the one whose time is over (each as JSON data), and what is wrong with the file."""

    paused: t.Optional[RenderedPause] = None
    ended: t.Optional[RenderedPause] = None
    error: t.Optional[str] = None


def observe(host: Host) -> PauseState:
    """Whether the node is paused. Where its file cannot be read as Corral wrote it, it is as the last status says."""
    if not state.there(host, state.PAUSE):
        return PauseState()
    found = pause.from_data(state.checked(host, state.PAUSE))
    if found is None:
        return as_published(host)
    now = host.now()
    remaining = pause.left(found, now, host.boot_id(), host.uptime())
    data = with_text(pause.shown(found, now, remaining))
    return PauseState(paused=data) if remaining > 0 else PauseState(ended=data)


def as_published(host: Host) -> PauseState:
    """The pause of the last status, where that has one which has not ended, and that the file is damaged."""
    status = host.unrecorded(lambda: state.read_json(host, state.STATUS))
    data = status.get("paused") if isinstance(status, dict) else None
    lasts = isinstance(data, dict) and isinstance(data.get("until"), int) and data["until"] > host.now()
    said = (
        "stays paused as it was published last: end the pause, or pause it again"
        if lasts
        else "is not paused: pause it again"
    )
    error = f"{state.PAUSE}: not readable as Corral wrote it, so the node {said}"
    return PauseState(paused=t.cast("RenderedPause", data) if lasts else None, error=error)


def in_force(host: Host) -> t.Optional[RenderedPause]:
    """The pause in force, None when the node is not paused."""
    return observe(host).paused


def tidy(host: Host) -> PauseState:
    """As observe(); the file of an ended pause is removed, so that a clock that is set back cannot restore it. The caller holds the lock."""
    found = observe(host)
    if found.ended is not None:
        try:
            host.remove(state.PAUSE)
        except OSError as error:
            found = found._replace(error=f"{state.PAUSE}: cannot be removed ({error.strerror})")
    return found


def requested(host: Host, seconds: int, reason: str) -> Pause:
    """A pause that begins now, by the user who runs this; under sudo(8) by its caller."""
    return Pause(*who(host), reason, int(host.now()), seconds, host.boot_id(), host.uptime())


def begin(host: Host, one: Pause) -> RenderedPause:
    """Pause the node, in place of any pause before; the caller holds the lock."""
    state.write_checked(host, state.PAUSE, one._asdict(), spare=False)
    return as_shown(one)


def as_shown(one: Pause) -> RenderedPause:
    """A pause that begins now, as JSON data."""
    return with_text(pause.shown(one, one.since, one.seconds))


def with_text(data: json_shapes.Pause) -> RenderedPause:
    """A pause as JSON data, with its line."""
    return {**data, "text": sentence(data)}


def end(host: Host) -> None:
    """End the pause, and remove a file that is none; the caller holds the lock."""
    host.remove(state.PAUSE)


def who(host: Host) -> tuple[str, int]:
    """Name and uid of the user who runs this; under sudo(8) of its caller."""
    user, uid = os.environ.get("SUDO_USER", ""), os.environ.get("SUDO_UID", "")
    if user and uid.isdecimal():
        return printable(user), int(uid)
    return accounts.user_name(host, os.geteuid()), os.geteuid()


def sentence(paused: json_shapes.Pause) -> str:
    """A pause on one line."""
    until = time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(paused["until"]))
    return f"paused until {until} by {paused['by']}: {paused['reason'] or 'no reason given'}"


def refuse_changes(host: Host, hint: str) -> None:
    """Raise CorralError when the node is paused."""
    paused = in_force(host)
    if paused is not None:
        raise refusal(f"this node is {sentence(paused)}; nothing was changed: {hint}")


def ticks(host: Host) -> bool:
    """Whether an agent is there that looks at the node."""
    return systemd.runs(host) and host.exists(f"{ETC}/{agent_units.SERVICE}")


def tick_now(host: Host) -> None:
    """Start a tick of the agent at once, where it is installed, so that the status is current and drift is corrected.

    The tick reports the result. A start joins a tick that runs already: one that has looked before this run took the
    node's lock, or that found it taken, publishes nothing any more, and is followed by another one.
    """
    if not ticks(host):
        return
    before = state.read_text(host, state.STATUS)
    for dummy in range(2):
        host.run("systemctl", "start", agent_units.SERVICE, timeout=TICK_SECONDS)
        if state.read_text(host, state.STATUS) != before:
            return
