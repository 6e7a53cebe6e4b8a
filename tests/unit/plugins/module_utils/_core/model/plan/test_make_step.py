# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The two writes of a target: what a workload keeps before the checkpoint, what it gets after it."""

from __future__ import annotations

from functools import partial

import pytest
from _core.model.plan import make_step
from _core.model.plan.plan import LIVE, RECORD, TAKE, Change, steps_in_order

FILE, LIST, CHECKPOINT = "/run/environment", "x.service", "/var/lib/checkpoint"


@pytest.mark.parametrize(
    ("now", "low", "high", "written"),
    [
        ("a", "a", "a", []),
        ("a b", "a", "a", [(TAKE, "a")]),  # it loses something
        ("a", "a", "a b", [(LIVE, "a b")]),  # it gets something
        ("a b", "a", "a c", [(TAKE, "a"), (LIVE, "a c")]),
        ("a", None, "b", [(TAKE, None), (LIVE, "b")]),  # it keeps nothing
        (None, None, "a", [(LIVE, "a")]),
        ("a", None, None, [(TAKE, None)]),
    ],
)
def test_a_target_is_written_where_it_changes(
    now: str | None, low: str | None, high: str | None, written: list[tuple[int, str | None]]
) -> None:
    steps = make_step.take_and_give(partial(make_step.file, FILE), now, low, high, 1)
    assert [(step.phase, step.value) for step in steps] == written


def test_what_depends_on_another_target_is_taken_before_it_and_given_after_it() -> None:
    told = make_step.take_and_give(partial(make_step.file, FILE), "a", "", "b", 0)
    opened = make_step.take_and_give(partial(make_step.unit_property, LIST, "DeviceAllow"), "a", "", "b", 1)
    change = Change("devices", LIST, "DeviceAllow", "a", "b", "", "", (*opened, *told))
    record = change._replace(steps=(make_step.file(CHECKPOINT, "b", RECORD),))
    assert [(step.target, step.value) for step in steps_in_order([record, change])] == [
        (FILE, ""), (LIST, ""), (CHECKPOINT, "b"), (LIST, "b"), (FILE, "b"),
    ]  # fmt: skip
