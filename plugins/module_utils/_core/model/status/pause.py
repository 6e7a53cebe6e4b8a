# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# This module is private to the collection corral.node.
"""A pause for maintenance: Corral checks and reports, and changes nothing. A pause ends after its duration."""

from __future__ import annotations

import typing as t

from ..values import duration as units
from ..values.errors import refusal
from ..values.records import NamedTuple

if t.TYPE_CHECKING:
    from . import json_shapes

MOST_SECONDS = 30 * units.UNITS["d"]
REASON_LIMIT = 200
# If the clock was set by more than these seconds, the shown end of a pause follows the clock.
SHOWN_TOLERANCE = 2.0


class Pause(NamedTuple):
    """A request for a pause: user, reason, length, and the beginning by the wall clock (epoch seconds) and by the clock since the boot."""

    user: str
    uid: int
    reason: str
    since: int
    seconds: int
    boot_id: str
    uptime: float


def duration(text: str, key: str = "duration") -> int:
    """The seconds of an option's value (90s, 15m, 1h, 2d). Raises CorralError."""
    try:
        seconds = units.parse(text)
    except ValueError as error:
        raise refusal(str(error), path=key, value=text) from None
    if not 0 < seconds <= MOST_SECONDS:
        raise refusal("from 1s to 30d; pause again before it ends", path=key, value=text)
    return seconds


def reason(text: str, key: str = "reason") -> str:
    """An option's value as a reason that fits on a line of the journal. Raises CorralError."""
    if not text.isprintable() or len(text) > REASON_LIMIT:
        raise refusal(f"one printable line of at most {REASON_LIMIT} characters", path=key, value=text)
    return text


class Timed(t.Protocol):
    """A pause or an unconfirmed profile. Each lasts ``seconds`` from its beginning, which is known by both clocks."""

    @property
    def since(self) -> int: ...
    @property
    def seconds(self) -> int: ...
    @property
    def boot_id(self) -> str: ...
    @property
    def uptime(self) -> float: ...


def left(pause: Timed, now: float, boot_id: str, uptime: float) -> float:
    """The seconds that are left of a pause; 0 or fewer for a pause that has ended.

    Until a reboot only the clock since the boot counts, which cannot be set. After a reboot the wall clock counts, but the pause lasts at
    most ``seconds`` from the reboot, even if the wall clock was set back.
    """
    if boot_id == pause.boot_id:
        gone = uptime - pause.uptime
        return pause.seconds - gone if gone >= 0 else 0.0
    return min(pause.since + pause.seconds - now, pause.seconds - uptime)


def shown(pause: Pause, now: float, remaining: float) -> json_shapes.Pause:
    """A pause in force as JSON data; ``until`` is the end by the present wall clock."""
    until = ends(pause, now, remaining)
    return {"since": pause.since, "until": until, "by": pause.user, "uid": pause.uid, "reason": pause.reason}


def ends(timed: Timed, now: float, remaining: float) -> int:
    """The end of a pause by the present wall clock; the same value at each call until the clock is set."""
    until = timed.since + timed.seconds
    return int(now + remaining) if abs(now + remaining - until) > SHOWN_TOLERANCE else until


def from_data(data: t.Any) -> t.Optional[Pause]:
    """The pause in the data of a file; None for other data."""
    if not isinstance(data, dict) or set(data) != set(Pause._fields):
        return None
    pause = Pause(**data)
    texts = (pause.user, pause.reason, pause.boot_id)
    numbers = (pause.uid, pause.since, pause.seconds)
    right = (
        all(isinstance(text, str) and text.isprintable() for text in texts)
        and all(isinstance(number, int) for number in numbers)
        and isinstance(pause.uptime, (int, float))
        and 0 < pause.seconds <= MOST_SECONDS
        and 0 <= pause.since < 2**40
        and 0 <= pause.uptime < 2**40  # false for NaN
    )
    return pause if right else None
