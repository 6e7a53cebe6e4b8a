# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# This module is private to the collection corral.node.
"""The pause of a node: the file, the user who paused the node, and whether the pause is in force."""

from __future__ import annotations

import os
import time
import typing as t

from ...model.agent import agent_units
from ...model.status import pause
from ...model.status.pause import Pause
from ...model.systemd.unit_property import ETC
from ...model.values.errors import refusal
from ...model.values.errors import shown as printable
from ...model.values.records import NamedTuple
from .. import accounts, state, systemd
from ..files import Host

if t.TYPE_CHECKING:
    from ...model.status import json_shapes
    from ...model.status.json_shapes import RenderedPause

TICK_SECONDS = 200.0  # the longest wait for a tick; the tick's unit has a shorter time limit


class PauseState(NamedTuple):
    """``paused``: the pause in force. ``ended``: a pause that has ended. ``error``: what is wrong with the file."""

    paused: t.Optional[RenderedPause] = None
    ended: t.Optional[RenderedPause] = None
    error: t.Optional[str] = None


def observe(host: Host) -> PauseState:
    """The node's pause. If the file is damaged, the pause of the last status counts."""
    if not state.there(host, state.PAUSE):
        return PauseState()
    recorded = pause.from_data(state.checked(host, state.PAUSE))
    if recorded is None:
        return as_published(host)
    now = host.now()
    remaining = pause.left(recorded, now, host.boot_id(), host.uptime())
    data = with_text(pause.shown(recorded, now, remaining))
    return PauseState(paused=data) if remaining > 0 else PauseState(ended=data)


def as_published(host: Host) -> PauseState:
    """The pause of the last status if it has not ended, and the error that the file is damaged."""
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
    """The result of observe(). Removes the file of an ended pause, which a clock set back could restore. The caller holds the lock."""
    seen = observe(host)
    if seen.ended is not None:
        try:
            host.remove(state.PAUSE)
        except OSError as error:
            seen = seen._replace(error=f"{state.PAUSE}: cannot be removed ({error.strerror})")
    return seen


def requested(host: Host, seconds: int, reason: str) -> Pause:
    """A pause that begins now, set by the calling user; under sudo(8) by the user who called sudo."""
    return Pause(*who(host), reason, int(host.now()), seconds, host.boot_id(), host.uptime())


def begin(host: Host, new: Pause) -> RenderedPause:
    """Pause the node in place of any present pause; the caller holds the lock."""
    state.write_checked(host, state.PAUSE, new._asdict(), spare=False)
    return as_shown(new)


def as_shown(new: Pause) -> RenderedPause:
    """A pause that begins now, as JSON data."""
    return with_text(pause.shown(new, new.since, new.seconds))


def with_text(data: json_shapes.Pause) -> RenderedPause:
    """A pause as JSON data with its line of text."""
    return {**data, "text": sentence(data)}


def end(host: Host) -> None:
    """End the pause and remove its file, even a damaged one; the caller holds the lock."""
    host.remove(state.PAUSE)


def who(host: Host) -> tuple[str, int]:
    """The name and uid of the calling user; under sudo(8) of the user who called sudo."""
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
    """Whether an agent watches the node."""
    return systemd.runs(host) and host.exists(f"{ETC}/{agent_units.SERVICE}")


def tick_now(host: Host) -> None:
    """Start a tick of the agent, if the agent is installed, so that the status is current and drift is corrected.

    The tick reports the result. If a tick runs already, systemctl only waits for its end. That tick may have read the node before this run
    changed the node, and then publishes no new status: so a second tick is started.
    """
    if not ticks(host):
        return
    before = state.read_text(host, state.STATUS)
    for dummy in range(2):
        host.run("systemctl", "start", agent_units.SERVICE, timeout=TICK_SECONDS)
        if state.read_text(host, state.STATUS) != before:
            return
