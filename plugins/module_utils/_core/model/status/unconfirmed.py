# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# This module is private to the collection corral.node.
"""A profile that is applied on trial: without a confirmation the node goes back to the profile before.

This is the commit-confirm of network devices: a change that cuts the node off cannot be confirmed, so it is undone.
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
KEPT = 10  # profiles that went back


class Pending(NamedTuple):
    """An unconfirmed profile, the clocks when its change began (see pause.py), and the profile ``before`` (None: no profile) with its
    ``origins``.

    ``failed``: a step failed, and not every step before it could be undone. ``command``: the words of the command whose success confirms
    the profile, if any. ``passed``: the hashes of earlier profiles that were never confirmed and that this profile replaced.
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
        """Why the node goes back when the time has passed."""
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
    """The seconds of a duration such as 0s, 120s, 10m, 1h30m. Raises CorralError."""
    try:
        return units.parse(text)
    except ValueError as error:
        raise refusal(str(error), path="--confirm-timeout", value=text) from None


def pending_from_data(data: t.Any) -> t.Optional[Pending]:
    """The unconfirmed profile that a file holds; None for anything else."""
    # Earlier versions do not write the last three fields.
    if not isinstance(data, dict) or {*data, "failed", "command", "passed"} != {*Pending._fields}:
        return None
    pending = Pending(**data)
    right = (
        all(isinstance(text, str) for text in (pending.name, pending.hash, pending.boot_id))
        and all(isinstance(number, int) for number in (pending.since, pending.seconds))
        and isinstance(pending.uptime, (int, float))
        and 0 < pending.seconds <= MOST_SECONDS
        and 0 <= pending.since < 2**40
        and 0 <= pending.uptime < 2**40  # no NaN
        and isinstance(pending.before, (dict, type(None)))
        and isinstance(pending.origins, dict)
        and isinstance(pending.failed, bool)
        and isinstance(pending.command, (list, tuple))
        and isinstance(pending.passed, (list, tuple))
        and all(isinstance(word, str) for word in (*pending.command, *pending.passed))
    )
    return pending._replace(command=tuple(pending.command), passed=tuple(pending.passed)) if right else None


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
    """The profiles that went back, with a new one first."""
    return [new, *(row for row in known if row.hash != new.hash)][:KEPT]


def shown(pending: Pending, now: float, remaining: float) -> Unconfirmed:
    """An unconfirmed profile as JSON data; ``until`` is by the present wall clock."""
    return {
        "name": pending.name,
        "hash": pending.hash,
        "since": pending.since,
        "until": pause.ends(pending, now, max(remaining, 0)),
        "before": None if pending.before is None else str(pending.before.get("name", "")),
        "failed": pending.failed,
        "command": list(pending.command),
    }
