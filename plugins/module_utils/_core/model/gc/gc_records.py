# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# This module is private to the collection corral.node.
"""When images were first seen and last used, and which workloads were declared: Podman has no such records.

The records are a file on the node. If the file is lost, all ages start from 0, so that nothing is removed too early.
"""

from __future__ import annotations

import typing as t

from ..profile.profile_workloads import Workload
from ..values.records import NamedTuple
from ..workload.match_kinds import MATCH_KINDS

LATEST = 1 << 53  # A float can express each whole second below LATEST; JSON's Infinity and NaN are not below LATEST.
SLEWED = 60.0  # s; a smaller error of the clock is corrected gradually, which changes no age


class ImageUse(NamedTuple):
    """When an image was first seen and last used, in epoch seconds; ``last`` is None if no use was observed."""

    first: float
    last: t.Optional[float]


class Clock(NamedTuple):
    """A reading of the clocks: epoch seconds, seconds since the machine started, and the id of the boot."""

    now: float
    up: float
    boot: str


class Records(NamedTuple):
    """The records. ``since``: when observation began. ``observed``: the time up to which Podman's events are known. ``images``: by user and
    id. ``workloads``: the declared workloads, and former workloads that still have containers. ``clock``: when the records were written.
    """

    since: float
    images: dict[str, dict[str, ImageUse]]
    workloads: tuple[Workload, ...]
    clock: Clock
    observed: float = 0.0


def read(data: object, clock: Clock) -> Records:
    """The records in ``data``. Their times are corrected if the clock was set after the write. Data of another form is left out."""
    records = Records(clock.now, {}, (), clock)
    if not isinstance(data, dict) or not is_time(data.get("since")):
        return records
    off = set_by(data.get("clock"), clock)
    records = records._replace(since=min(float(data["since"]) + off, clock.now))
    for user, uses in mapping(data.get("images")).items():
        rows = {key: use(row, off) for key, row in mapping(uses).items()}
        records.images[user] = {key: row for key, row in rows.items() if row is not None}
    if is_time(data.get("looked")):
        records = records._replace(observed=min(float(data["looked"]) + off, clock.now))
    listed = data.get("workloads")
    known = [workload(row) for row in listed] if isinstance(listed, list) else []
    return records._replace(workloads=tuple(row for row in known if row is not None))


def to_data(records: Records) -> dict[str, t.Any]:
    """The records as JSON data."""
    return {
        "since": records.since,
        "looked": records.observed,
        "images": {user: {key: list(row) for key, row in uses.items()} for user, uses in records.images.items()},
        "workloads": [list(workload[:3]) for workload in records.workloads],
        "clock": list(records.clock),
    }


def set_by(kept: object, clock: Clock) -> float:
    """The seconds by which the clock was set since the records were written. These seconds do not count as age.

    After a reboot Corral can recognise only a clock that was set back.
    """
    if not isinstance(kept, list) or len(kept) != 3 or not is_time(kept[0]) or not is_time(kept[1]):
        return 0.0
    passed = clock.now - kept[0]
    off = float(passed - (clock.up - kept[1]) if kept[2] == clock.boot else min(passed, 0))
    return off if abs(off) > SLEWED else 0.0


def is_time(value: object) -> bool:
    """Whether a value is a number of seconds that a clock can show."""
    return isinstance(value, (int, float)) and not isinstance(value, bool) and abs(value) < LATEST


def mapping(value: object) -> dict[str, t.Any]:
    """The value if it is a mapping, else an empty mapping."""
    return value if isinstance(value, dict) else {}


def use(row: object, off: float) -> t.Optional[ImageUse]:
    """The times of an image, corrected for a clock that was set by ``off`` seconds; None for a row of another form."""
    if not isinstance(row, list) or len(row) != 2 or not is_time(row[0]) or not (row[1] is None or is_time(row[1])):
        return None
    return ImageUse(row[0] + off, None if row[1] is None else row[1] + off)


def workload(row: object) -> t.Optional[Workload]:
    """A workload as it was declared; None for a row of another form."""
    if not isinstance(row, list) or len(row) != 3 or not all(isinstance(item, str) for item in row):
        return None
    return Workload(*row) if row[1] in MATCH_KINDS else None


def seen(
    uses: t.Mapping[str, ImageUse], present: t.Iterable[str], used: t.Mapping[str, float], now: float
) -> dict[str, ImageUse]:
    """The times of the ``present`` images. ``used`` has the last use of an image, if known.

    A time in the future becomes ``now``: the clock was set back after this time.
    """
    times = {}
    for image in present:
        use = uses.get(image, ImageUse(now, None))
        last = max((moment for moment in (use.last, used.get(image)) if moment is not None), default=None)
        times[image] = ImageUse(min(use.first, now), None if last is None else min(last, now))
    return times


def noted(uses: t.Mapping[str, ImageUse], used: t.Mapping[str, float], now: float) -> dict[str, ImageUse]:
    """The known times, updated with the times in ``used``."""
    return seen(uses, [*uses, *used], used, now)


def limited(records: Records, most: t.Mapping[str, int]) -> Records:
    """The records, limited to ``most`` images by user. The images with the latest use or first detection stay."""
    images = dict(records.images)
    for user, count in most.items():
        if len(images.get(user, {})) > count:
            rows = sorted(images[user].items(), key=lambda row: max(row[1].first, row[1].last or 0.0), reverse=True)
            images[user] = dict(rows[:count])
    return records._replace(images=images)
