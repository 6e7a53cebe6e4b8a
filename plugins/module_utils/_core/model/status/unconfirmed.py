# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# This module is private to the collection corral.node.
"""A profile that was applied until it is confirmed: without that the node goes back to the profile before.

As commit-confirm of network devices: a change after which the node cannot be reached any more cannot be confirmed either.
"""

from __future__ import annotations

import typing as t

from ..values import duration as units
from ..values.errors import refusal
from ..values.records import NamedTuple
from . import pause

if t.TYPE_CHECKING:
    from .json_shapes import Unconfirmed

MOST_SECONDS = 86400
KEPT = 10  # hashes of profiles that went back


class Pending(NamedTuple):
    """An unconfirmed profile: its name and hash, the clocks when its change began, and what the node had before (None: no profile).

    ``origins`` are those of the profile before. See pause.py for the clocks. ``failed``: a step failed, and not every step before it
    could be undone. ``command``: its words, where the node confirms the profile by itself once this command succeeds.
    ``passed``: the hashes of the unconfirmed profiles in whose place this one came. None of them was ever confirmed.
    """

    name: str
    hash: str
    since: int
    seconds: int
    boot_id: str
    uptime: float
    before: t.Optional[dict[str, t.Any]]
    origins: dict[str, str]
    failed: bool = False
    command: tuple[str, ...] = ()
    passed: tuple[str, ...] = ()

    @property
    def why_back(self) -> str:
        """Why the node goes back when the time is over."""
        if self.command:
            return f"{self.command[0]} did not succeed within {self.seconds} s"
        return f"not confirmed within {self.seconds} s"


class Rejected(NamedTuple):
    """A profile that went back: its hash and name, when (epoch seconds), and why."""

    hash: str
    name: str
    time: int
    reason: str


def timeout(seconds: int) -> int:
    """The seconds until an unconfirmed profile goes back; 0 for never. Raises CorralError."""
    if not 0 <= seconds <= MOST_SECONDS:
        message = f"seconds from 1 to {MOST_SECONDS}, or 0 to apply it without waiting for a confirmation"
        raise refusal(message, path="confirm_timeout", value=seconds)
    return seconds


def seconds_of(text: str) -> int:
    """The seconds that ``text`` (0s, 120s, 10m, 1h30m) writes. Raises CorralError."""
    try:
        return units.parse(text)
    except ValueError as error:
        raise refusal(str(error), path="--confirm-timeout", value=text) from None


def pending_from_data(data: t.Any) -> t.Optional[Pending]:
    """The unconfirmed profile that a file holds; None for anything else."""
    # Earlier versions do not write the last ones.
    if not isinstance(data, dict) or {*data, "failed", "command", "passed"} != {*Pending._fields}:
        return None
    found = Pending(**data)
    right = (
        all(isinstance(text, str) for text in (found.name, found.hash, found.boot_id))
        and all(isinstance(number, int) for number in (found.since, found.seconds))
        and isinstance(found.uptime, (int, float))
        and 0 < found.seconds <= MOST_SECONDS
        and 0 <= found.since < 2**40
        and 0 <= found.uptime < 2**40  # no NaN
        and isinstance(found.before, (dict, type(None)))
        and isinstance(found.origins, dict)
        and isinstance(found.failed, bool)
        and isinstance(found.command, (list, tuple))
        and isinstance(found.passed, (list, tuple))
        and all(isinstance(word, str) for word in (*found.command, *found.passed))
    )
    return found._replace(command=tuple(found.command), passed=tuple(found.passed)) if right else None


def rejected_from_data(data: t.Any) -> list[Rejected]:
    """The profiles that went back, the newest first; rows in another form are left out."""
    rows = data if isinstance(data, list) else []
    kinds = (str, str, int, str)
    return [
        Rejected(*row)
        for row in rows
        if isinstance(row, list) and len(row) == len(kinds) and all(map(isinstance, row, kinds))
    ]


def with_rejected(known: t.Sequence[Rejected], new: Rejected) -> list[Rejected]:
    """The profiles that went back, with another one."""
    return [new, *(one for one in known if one.hash != new.hash)][:KEPT]


def shown(pending: Pending, now: float, remaining: float) -> Unconfirmed:
    """An unconfirmed profile as JSON data; ``until`` by the clock as it goes now."""
    return {
        "name": pending.name,
        "hash": pending.hash,
        "since": pending.since,
        "until": pause.ends(pending, now, max(remaining, 0)),
        "before": None if pending.before is None else str(pending.before.get("name", "")),
        "failed": pending.failed,
        "command": list(pending.command),
    }
