# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which unmanaged units systemd is asked to move at once, although it refused a short time ago."""

from __future__ import annotations

import types

import pytest
from _core.host import cgroup
from _core.managers.cpu import cpu_moves
from _core.managers.cpu.cpu_observed import Observation, Wanted
from _core.model.cpu.unmanaged_groups import Unmanaged
from _core.model.plan.context import Attempt
from _core.model.values import cpuset

OWN = "corral_batch.slice"


@pytest.mark.parametrize(
    ("now", "wanted", "requested", "asked"),
    [
        pytest.param("", "2-3", "3-4", True, id="a new grant"),
        pytest.param("2", "2-3", "3-4", True, id="a larger grant"),
        pytest.param("2-3", "2-3", "3-4", False, id="the grant has these CPUs already"),
        pytest.param("", "2-3", "4-5", False, id="other CPUs"),
        pytest.param("", "2-3", "", False, id="it requests none"),
    ],
)
def test_a_unit_is_asked_again_where_an_exclusive_slice_gains_a_cpu_that_it_requests(
    now: str, wanted: str, requested: str, asked: bool
) -> None:
    slices = {OWN: cpuset.parse(wanted), "corral.slice": cpuset.parse("4-7")}
    plan = Wanted(slices, slices, frozenset({0, 1}), {}, frozenset(range(8)))
    unit = Unmanaged("payload.service", frozenset(range(8)), cpuset.parse(requested), True, ())
    seen = Observation({}, (unit,), frozenset(), frozenset(), None, {})
    before = {OWN: cpuset.parse(now) or None, "corral.slice": None}
    context = types.SimpleNamespace(attempts={cgroup.path_of(unit.name): Attempt(1, 0, 0)}, fresh=False, now=60)
    refused = cpu_moves.refused_in(plan, seen, context, before)  # type: ignore[arg-type]
    assert refused == (set() if asked else {unit.name})
