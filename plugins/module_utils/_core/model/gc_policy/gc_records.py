# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# This module is private to the collection corral.node.
"""When images were first seen and last used, and which workloads were declared: Podman does not record that.

Kept on the node, so that a restart or a reboot forgets nothing. Where it is lost the node is as one that is looked at
for the first time: ages start from 0, nothing is removed that would have stayed.
"""

from __future__ import annotations

import typing as t

from ..profile.profile_workloads import Workload
from ..values.records import NamedTuple
from ..workload.match_kinds import MATCH_KINDS

LATEST = 1 << 53  # Every whole second before it is a float, and none of those that JSON calls Infinity or NaN.
SLEWED = 60.0  # A clock that is off by less is brought right bit by bit, which no age notices.


class Use(NamedTuple):
    """Epoch seconds; ``last`` None: never seen in use."""

    first: float
    last: t.Optional[float]


class Clock(NamedTuple):
    """A reading of the clocks: epoch seconds, seconds since the machine started, and the id of the boot."""

    now: float
    up: float
    boot: str


class Records(NamedTuple):
    """``since`` when looking began, ``observed`` until when Podman's events are known; ``images`` by user and id;
    ``workloads`` as declared, those that left among them; ``clock`` is of when they were kept."""

    since: float
    images: dict[str, dict[str, Use]]
    workloads: tuple[Workload, ...]
    clock: Clock
    observed: float = 0.0


def read(data: object, clock: Clock) -> Records:
    """The records as they were kept, by the clock as it is now; data of another form is left out."""
    found = Records(clock.now, {}, (), clock)
    if not isinstance(data, dict) or not is_time(data.get("since")):
        return found
    off = set_by(data.get("clock"), clock)
    found = found._replace(since=min(float(data["since"]) + off, clock.now))
    for user, uses in mapping(data.get("images")).items():
        rows = {key: use(row, off) for key, row in mapping(uses).items()}
        found.images[user] = {key: row for key, row in rows.items() if row is not None}
    if is_time(data.get("looked")):
        found = found._replace(observed=min(float(data["looked"]) + off, clock.now))
    listed = data.get("workloads")
    known = [workload(row) for row in listed] if isinstance(listed, list) else []
    return found._replace(workloads=tuple(row for row in known if row is not None))


def to_data(records: Records) -> dict[str, t.Any]:
    """As plain JSON data."""
    return {
        "since": records.since,
        "looked": records.observed,
        "images": {user: {key: list(row) for key, row in uses.items()} for user, uses in records.images.items()},
        "workloads": [list(one[:3]) for one in records.workloads],
        "clock": list(records.clock),
    }


def set_by(kept: object, clock: Clock) -> float:
    """By how many seconds the clock was set since: that time has not passed, and no age may count it.

    After a reboot that is known of a clock that shows an earlier time than before, and of no other.
    """
    if not isinstance(kept, list) or len(kept) != 3 or not is_time(kept[0]) or not is_time(kept[1]):
        return 0.0
    passed = clock.now - kept[0]
    off = float(passed - (clock.up - kept[1]) if kept[2] == clock.boot else min(passed, 0))
    return off if abs(off) > SLEWED else 0.0


def is_time(value: object) -> bool:
    """Whether it is a number of seconds, and none that no clock shows."""
    return isinstance(value, (int, float)) and not isinstance(value, bool) and abs(value) < LATEST


def mapping(value: object) -> dict[str, t.Any]:
    """The mapping, or an empty one."""
    return value if isinstance(value, dict) else {}


def use(row: object, off: float) -> t.Optional[Use]:
    """One image's times, by a clock that was set by ``off`` since; None when they are none."""
    if not isinstance(row, list) or len(row) != 2 or not is_time(row[0]) or not (row[1] is None or is_time(row[1])):
        return None
    return Use(row[0] + off, None if row[1] is None else row[1] + off)


def workload(row: object) -> t.Optional[Workload]:
    """One workload as it was declared; None when it is none."""
    if not isinstance(row, list) or len(row) != 3 or not all(isinstance(item, str) for item in row):
        return None
    return Workload(*row) if row[1] in MATCH_KINDS else None


def seen(
    uses: t.Mapping[str, Use], present: t.Iterable[str], used: t.Mapping[str, float], now: float
) -> dict[str, Use]:
    """The times of the images that are there now. ``used`` has when each was used last, as far as it is known.

    A time in the future is of a clock that was set back since: now is the latest that it can have been.
    """
    found = {}
    for image in present:
        use = uses.get(image, Use(now, None))
        last = max((moment for moment in (use.last, used.get(image)) if moment is not None), default=None)
        found[image] = Use(min(use.first, now), None if last is None else min(last, now))
    return found


def noted(uses: t.Mapping[str, Use], used: t.Mapping[str, float], now: float) -> dict[str, Use]:
    """The times as they are known, with those of ``used``."""
    return seen(uses, [*uses, *used], used, now)


def limited(records: Records, most: t.Mapping[str, int]) -> Records:
    """The records with at most so many images of these users, those that were used or first seen last."""
    images = dict(records.images)
    for user, count in most.items():
        if len(images.get(user, {})) > count:
            rows = sorted(images[user].items(), key=lambda row: max(row[1].first, row[1].last or 0.0), reverse=True)
            images[user] = dict(rows[:count])
    return records._replace(images=images)
