# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What is remembered of images and workloads, by clocks that are set."""

from __future__ import annotations

import json

import pytest
from _core.model.gc import gc_records
from _core.model.gc.gc_records import Clock, ImageUse, Records
from _core.model.profile.profile_workloads import Workload
from _core.model.workload.match_kinds import MATCH_KINDS
from hypothesis import given
from hypothesis import strategies as st
from test_profile_anything import anything

NOW = 1_700_000_000.0
CLOCK = Clock(NOW, 5000.0, "first")
past = st.floats(0, NOW)
times = st.floats(0, 2 * NOW)
names = st.text(max_size=6)
uses = st.dictionaries(names, st.builds(ImageUse, past, st.none() | past), max_size=4)
records = st.builds(
    Records,
    past,
    st.dictionaries(names, uses, max_size=3),
    st.lists(
        st.tuples(names, st.sampled_from(list(MATCH_KINDS)), names).map(lambda row: Workload(*row)), max_size=3
    ).map(tuple),
    st.just(CLOCK),
    past,
)


@given(records)
def test_what_is_kept_is_read(kept: Records) -> None:
    assert gc_records.read(json.loads(json.dumps(gc_records.to_data(kept))), CLOCK) == kept


KEYS = st.sampled_from(["since", "looked", "images", "workloads", "clock"])
rows = st.dictionaries(
    names, st.dictionaries(names, anything | st.lists(times | anything, max_size=2), max_size=3), max_size=2
)


@given(
    anything
    | st.dictionaries(KEYS, anything)
    | st.fixed_dictionaries(
        {"since": times, "images": rows, "workloads": anything, "clock": anything | st.lists(times | names, max_size=3)}
    )
)
def test_any_json_is_read(data: object) -> None:
    # As a file has it: every key is text.
    found = gc_records.read(json.loads(json.dumps(data, default=str)), CLOCK)
    assert found.since <= NOW
    assert gc_records.read(json.loads(json.dumps(gc_records.to_data(found))), CLOCK) == found
    for kept in found.images.values():
        gc_records.seen(kept, kept, {}, NOW)


future = st.dictionaries(st.text("ab", max_size=2), st.builds(ImageUse, times, st.none() | times), max_size=4)
used_when = st.dictionaries(st.text("ab", max_size=2), times, max_size=4)


@given(kept=future, present=st.sets(st.text("ab", max_size=2)), used=used_when)
def test_no_time_is_later_than_now_and_no_use_is_forgotten(
    kept: dict[str, ImageUse], present: set[str], used: dict[str, float]
) -> None:
    found = gc_records.seen(kept, present, used, NOW)
    assert set(found) == present
    for image, use in found.items():
        assert use.first == min(kept[image].first if image in kept else NOW, NOW)
        known = [
            moment for moment in (used.get(image), kept[image].last if image in kept else None) if moment is not None
        ]
        assert use.last == (min(max(known), NOW) if known else None)
    noted = gc_records.noted(kept, used, NOW)
    assert set(noted) == {*kept, *used}
    assert all(use.first <= NOW and (use.last is None or use.last <= NOW) for use in noted.values())


@pytest.mark.parametrize(
    ("clock", "age"),
    [
        (Clock(NOW + 100, 5100, "first"), 200),
        (Clock(NOW + 1_000_000, 5100, "first"), 200),  # set forward: a hundred seconds have passed
        (Clock(NOW - 1_000_000, 5100, "first"), 200),  # set back
        (Clock(NOW + 100, 20, "second"), 200),  # a reboot, and off for as long as it took
        (Clock(NOW - 1_000_000, 20, "second"), 100),  # a reboot without a clock: nobody knows for how long it was off
        (Clock(NOW + 30, 5000, "first"), 130),  # brought right bit by bit
    ],
)
def test_a_clock_that_was_set_makes_nothing_older_or_younger(clock: Clock, age: float) -> None:
    kept = Records(NOW - 100, {"root": {"a": ImageUse(NOW - 100, NOW - 100)}}, (), CLOCK)
    found = gc_records.read(gc_records.to_data(kept), clock)
    assert (clock.now - found.since, clock.now - found.images["root"]["a"].first) == (age, age)
    assert found.images["root"]["a"].last == found.images["root"]["a"].first
