# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# This module is private to the collection corral.node.
"""The files of an unconfirmed profile and of rejected profiles, and the timer of the unconfirmed profile."""

from __future__ import annotations

import json
import time
import typing as t

from ...model.agent import agent_units
from ...model.status import history, pause, unconfirmed
from ...model.status.unconfirmed import Pending, Rejected
from ...model.values.errors import refusal
from .. import lock, state, systemd
from ..files import Host

SECONDS = 60.0  # the longest wait for systemd to start or stop a timer
FIRST_PAUSE, LONGEST_PAUSE = 10.0, 3600.0  # between two journal lines about the same failure

if t.TYPE_CHECKING:
    from ...model.status.json_shapes import RenderedUnconfirmed


def pending(host: Host) -> t.Optional[Pending]:
    """The unconfirmed profile; None without an unconfirmed profile, and for a damaged file (see damaged())."""
    return unconfirmed.pending_from_data(state.checked(host, state.UNCONFIRMED))


def damaged(host: Host) -> bool:
    """Whether the file of the unconfirmed profile is damaged, so that the profile before it is unknown."""
    return state.there(host, state.UNCONFIRMED) and pending(host) is None


def left(host: Host, unsettled: Pending) -> float:
    """The seconds until the confirmation is due."""
    return pause.left(unsettled, host.now(), host.boot_id(), host.uptime())


def shown(host: Host) -> t.Optional[RenderedUnconfirmed]:
    """The unconfirmed profile as JSON data with its line of text."""
    unsettled = pending(host)
    if unsettled is None:
        return None
    remaining = left(host, unsettled)
    data = unconfirmed.shown(unsettled, host.now(), remaining)
    until = time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(data["until"]))
    name, before = named(unsettled)
    said = "is unconfirmed: at {} the node goes back to {} (corral confirm keeps it)"
    if unsettled.command:
        said = f"is unconfirmed until {unsettled.command[0]} succeeds: at {{}} the node goes back to {{}} (corral confirm keeps it)"
    if remaining <= 0:
        said = "was not confirmed until {}: the node goes back to {} (apply it again with force to keep it)"
    if unsettled.failed:
        said = "failed, and not all of it could be undone: at {} the node goes back to {}"
    return {**data, "text": f"{name} {said.format(until, before)}"}


def named(unsettled: Pending, nothing: str = "no profile") -> tuple[str, str]:
    """The names of the unconfirmed profile and of the profile before it. Each has its hash: both profiles may have the same name."""
    before = unsettled.before
    back = nothing if before is None else f"profile {before.get('name')} ({history.hash_of(before)})"
    return f"profile {unsettled.name} ({unsettled.hash})", back


def log_now(host: Host, unsettled: Pending, said: str) -> bool:
    """Whether to log a failed return to the profile before: a new failure at once, else after pauses that double up to an hour."""
    known, now = state.read_json(host, state.WAY_BACK), host.uptime()
    which = [unsettled.hash, unsettled.since, said]
    seconds = FIRST_PAUSE
    if isinstance(known, dict) and known.get("which") == which:
        last, waited = known.get("last"), known.get("pause")
        if isinstance(last, (int, float)) and isinstance(waited, (int, float)):
            if 0 <= now - last < waited:
                return False
            seconds = min(2 * waited, LONGEST_PAUSE)
    try:
        lock.own_folder(host, state.RUN, 0o755)
        host.write_file(
            state.WAY_BACK, json.dumps({"which": which, "last": now, "pause": seconds}) + "\n", state.PRIVATE
        )
    except OSError:  # Without this file each failure is logged.
        pass
    return True


def make(host: Host, new: Pending) -> None:
    """Record an unconfirmed profile, and start the timer that watches it. Raises CorralError."""
    try:
        write(host, new)
    except OSError as error:
        message = (
            f"cannot be written ({error.strerror}), so nothing was changed: make room, or apply without confirm_timeout"
        )
        raise refusal(message, path=state.UNCONFIRMED) from None
    answer = systemd.control(host, "start", agent_units.CONFIRM_TIMER, timeout=SECONDS)
    if answer.code:
        message = f"cannot be started ({answer.err.strip() or answer.code}), so nothing was changed"
        raise refusal(message, path=agent_units.CONFIRM_TIMER)


def write(host: Host, unsettled: Pending) -> None:
    """Record an unconfirmed profile; its timer runs already."""
    state.write_checked(host, state.UNCONFIRMED, unsettled._asdict(), spare=False)


def forget(host: Host) -> None:
    """Remove the record of an unconfirmed profile, and stop the timer."""
    for path in (state.UNCONFIRMED, state.WAY_BACK):
        if state.there(host, path):
            host.remove(path)
    stop_timer(host)


def set_aside(host: Host) -> None:
    """Rename the damaged file of an unconfirmed profile, and stop the timer."""
    text = state.read_text(host, state.UNCONFIRMED)
    host.write_file(f"{state.UNCONFIRMED}.damaged", text or "", state.PRIVATE)
    forget(host)


def stop_timer(host: Host) -> None:
    """Stop the timer; a service that the timer started continues."""
    systemd.control(host, "stop", agent_units.CONFIRM_TIMER, timeout=SECONDS)
    systemd.close_connection(host)


def rejected(host: Host) -> list[Rejected]:
    """The rejected profiles, the newest first: the node went back from each to the profile before."""
    if not state.there(host, state.REJECTED):
        return []
    return unconfirmed.rejected_from_data(state.checked(host, state.REJECTED))


def rejected_damaged(host: Host) -> bool:
    """Whether the file of rejected profiles is damaged."""
    return state.there(host, state.REJECTED) and state.checked(host, state.REJECTED) is None


def save_rejected(host: Host, known: t.Sequence[Rejected]) -> None:
    """Record the rejected profiles."""
    if known:
        state.write_checked(host, state.REJECTED, [list(profile) for profile in known], spare=False)
    elif state.there(host, state.REJECTED):
        host.remove(state.REJECTED)
