# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Limits of the slices around a workload, and tasks that all slices together leave."""

from __future__ import annotations

import typing as t

import node
import pytest
import runs
import services
from _core.model.values.errors import CorralError
from test_exclusive import BATCH_SLICE, CGROUP, apply
from test_workloads import (
    BATCH,
    OTHER,
    OWN,
    PROFILE,
    in_sync,
    rolled,
)

__all__ = ["rolled"]

Make = t.Callable[..., node.Node]


# Limits around limits


@pytest.mark.parametrize(
    ("file", "text", "name", "around"),
    [
        ("memory.max", str(64 << 20), "MemoryMax", str(64 << 20)),
        ("cpu.max", "50000 100000", "CPUQuota", "50000 100000"),
    ],
)
def test_a_limit_that_the_slice_around_does_not_let_a_workload_reach_is_told(
    file: str, text: str, name: str, around: str, rolled: node.Node
) -> None:
    rolled.systemd.write_file(f"{CGROUP}/corral.slice/{file}".lstrip("/"), text)
    (item,) = runs.plan(rolled.host())
    assert (item.subject, item.property, item.actual) == ("feed", f"{name} in force", around)
    assert item.verdict == "unchangeable"


def test_tasks_beyond_those_of_the_shared_pool_are_told(rolled: node.Node) -> None:
    rows = [
        {**one, "limits": {**one["limits"], "pids": 20000}} if one["name"] == "feed" else one
        for one in PROFILE["workloads"]
    ]
    outcome = apply(rolled, {**PROFILE, "workloads": rows, "pids": {"slices": {"corral.slice": 4096}}})
    assert [(item.subject, item.property, item.actual, item.wanted) for item in outcome.remaining] == [
        ("feed", "TasksMax in force", "4096", "20000")
    ]


def tasks(fake: node.Node, *units: str) -> list[int]:
    return [int(fake.get(f"{CGROUP}/{unit}/pids.max")) for unit in units]


def top_tasks(fake: node.Node) -> int:
    """What all slices at the top together may have, but for those that the reserve is for."""
    names = {path.parent.name for path in (fake.root / CGROUP[1:]).glob("*/pids.max")}
    return sum(tasks(fake, *(names - {"system.slice", "user.slice", "init.scope", "corralagent.slice"})))


def test_the_reserve_of_tasks_is_out_of_reach_of_all_slices_together(rolled: node.Node) -> None:
    assert services.start(rolled, BATCH)
    assert rolled.get(f"{CGROUP}/{BATCH_SLICE}/pids.max") == "max\n"
    assert apply(rolled, {**PROFILE, "pids": {"reserved": 1000}}).error == ""
    # dataplane has 64; three instances of batch may come to run, beside the two shared slices.
    part = (15631 - 1000 - 64) // 5
    assert tasks(rolled, BATCH_SLICE, OWN, "corral.slice", "machine.slice") == [part, 64, part, part]
    assert top_tasks(rolled) <= 15631 - 1000
    in_sync(rolled)


def test_a_start_changes_no_other_slices_share_of_the_tasks(rolled: node.Node) -> None:
    assert apply(rolled, {**PROFILE, "pids": {"reserved": 1000}}).error == ""
    before = tasks(rolled, OWN, "corral.slice", "machine.slice")
    for unit in (BATCH, OTHER):
        assert services.start(rolled, unit)
        assert tasks(rolled, OWN, "corral.slice", "machine.slice") == before
        assert top_tasks(rolled) <= 15631 - 1000
        services.stop(rolled, unit)
    in_sync(rolled)


def test_limits_of_exclusive_workloads_that_reach_into_the_reserve_are_refused(rolled: node.Node) -> None:
    slices = {"corral.slice": 7000, "machine.slice": 7000}
    assert apply(rolled, {**PROFILE, "pids": {"reserved": 500, "slices": slices, "per_workload": 300}}).error == ""
    with pytest.raises(CorralError) as refused:
        apply(rolled, {**PROFILE, "pids": {"reserved": 1000, "slices": slices, "per_workload": 300}})
    (problem,) = refused.value.problems
    assert problem.path == "pids.reserved"
    assert "the slices' 14000 and workloads' with CPUs of their own 964 exceed the 15631" in problem.message


def test_a_machine_limit_that_goes_back_counts_for_exclusive_slices_too(rolled: node.Node) -> None:
    assert apply(rolled, {**PROFILE, "pids": {"reserved": 1000, "threads_max": 9000}}).remaining == ()
    assert services.start(rolled, BATCH)
    assert apply(rolled, {**PROFILE, "pids": {"reserved": 1000}}).remaining == ()
    part = (15631 - 1000 - 64) // 5
    assert tasks(rolled, BATCH_SLICE, "corral.slice") == [part, part]
