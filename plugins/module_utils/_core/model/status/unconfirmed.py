# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# This module is private to the collection corral.node.
"""A profile that is applied on trial: without a confirmation the node goes back to the earlier profile.

This is the commit-confirm of network devices: a change that cuts off the node cannot be confirmed, so Corral undoes the change.
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
KEPT = 10  # the most rejected profiles that are kept


class Pending(NamedTuple):
    """An unconfirmed profile, the clocks when its change began (see pause.py), and the earlier profile ``before`` (None: no profile) with
    its ``origins``.

    ``failed``: a step failed, and Corral could not undo every step before it. ``command``: the words of the command whose success confirms
    the profile (empty: no command). ``passed``: the hashes of earlier unconfirmed profiles that this profile replaced.
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
        """Why the node goes back to the earlier profile when the time has passed."""
        if self.command:
            return f"{self.command[0]} did not succeed within {self.seconds} s"
        return f"not confirmed within {self.seconds} s"


class Rejected(NamedTuple):
    """A profile from which the node went back: its hash and name, the time (epoch seconds), and the reason."""

    hash: str
    name: str
    time: int
    reason: str


def timeout(seconds: int) -> int:
    """The seconds until the node goes back from an unconfirmed profile; 0 if no confirmation is needed. Raises CorralError."""
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
    """The unconfirmed profile in the data of a file; None for other data."""
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
        and 0 <= pending.uptime < 2**40  # false for NaN
        and isinstance(pending.before, (dict, type(None)))
        and isinstance(pending.origins, dict)
        and isinstance(pending.failed, bool)
        and isinstance(pending.command, (list, tuple))
        and isinstance(pending.passed, (list, tuple))
        and all(isinstance(word, str) for word in (*pending.command, *pending.passed))
    )
    return pending._replace(command=tuple(pending.command), passed=tuple(pending.passed)) if right else None


def rejected_from_data(data: t.Any) -> list[Rejected]:
    """The rejected profiles, the newest first; entries in another form are left out."""
    rows = data if isinstance(data, list) else []
    kinds = (str, str, int, str)
    return [
        Rejected(*row)
        for row in rows
        if isinstance(row, list) and len(row) == len(kinds) and all(map(isinstance, row, kinds))
    ]


def with_rejected(known: t.Sequence[Rejected], new: Rejected) -> list[Rejected]:
    """The rejected profiles with the new one first, at most KEPT."""
    return [new, *(row for row in known if row.hash != new.hash)][:KEPT]


def shown(pending: Pending, now: float, remaining: float) -> Unconfirmed:
    """An unconfirmed profile as JSON data; ``until`` is the end by the present wall clock."""
    return {
        "name": pending.name,
        "hash": pending.hash,
        "since": pending.since,
        "until": pause.ends(pending, now, max(remaining, 0)),
        "before": None if pending.before is None else str(pending.before.get("name", "")),
        "failed": pending.failed,
        "command": list(pending.command),
    }
