# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Workloads that get another name while they run with CPUs of their own until they stop."""

from __future__ import annotations

import contextlib
import typing as t

import node
import pytest
import runs
import services
from _core.cli import grant_service
from _core.model.values import cpuset
from _core.model.values.errors import CorralError
from test_workloads import (
    BATCH,
    DATAPLANE,
    OTHER,
    SYSTEM,
    changed,
    held,
    profile_with,
    roll_out,
    rolled,
    status,
    ticks_until_quiet,
    without,
)

__all__ = ["rolled"]

GLOB = "batch@*.service"
EARLIER = f"{SYSTEM}/{BATCH}.d/10-corral-earlier-name.conf"


def batch(**keys: t.Any) -> dict[str, t.Any]:
    """The profile with another workload batch, and without dataplane, so that two of it have room."""
    rows = [{**row, **keys} if row["name"] == "batch" else row for row in without("dataplane")["workloads"]]
    return profile_with(workloads=rows)


def started(fake: node.Node, data: dict[str, t.Any], *units: str) -> dict[str, str]:
    """What units are granted that start with a profile."""
    services.stop(fake, DATAPLANE)
    roll_out(fake, data)
    for unit in units:
        assert services.start(fake, unit)
    return {name: cpus for name, cpus in held(fake).items() if cpus}


def renamed(fake: node.Node, data: dict[str, t.Any]) -> None:
    """Roll another profile out, and let some time pass."""
    roll_out(fake, data)
    for _turn in range(2):
        services.after_reload(fake)
        fake.wait(200)
        runs.tick(fake.host())


# Both of its instances would have CPUs as long as the glob is declared, for which this machine has no room.
@pytest.mark.parametrize(
    ("before", "after", "hold"),
    [
        (GLOB, GLOB, "running"),
        (BATCH, BATCH, "running"),
        (GLOB, BATCH, "running"),
        (BATCH, GLOB, "running"),
        (BATCH, BATCH, "declared"),
        (GLOB, BATCH, "declared"),
    ],
)
def test_it_keeps_its_cpus_until_it_stops(before: str, after: str, hold: str, rolled: node.Node) -> None:
    granted = started(rolled, batch(match={"unit": before}), BATCH)
    ((name, cpus),) = granted.items()
    renamed(rolled, batch(match={"unit": after}, name="night", hold=hold))
    own = "night" if after == BATCH else "night:batch@a"
    assert held(rolled)[name] == cpus == cpuset.format(rolled.systemd.effective(rolled.runs[BATCH].place))
    (item,) = (one for one in status(rolled)["items"] if one["verdict"] != "in sync")
    assert (item["subject"], item["reason"]) == (BATCH, f"a unit moves when it starts: systemctl restart {BATCH}")
    assert rolled.has(EARLIER)
    assert services.restart(rolled, BATCH)
    runs.tick(rolled.host())
    assert name not in held(rolled)
    assert held(rolled)[own] == cpuset.format(rolled.systemd.effective(rolled.runs[BATCH].place))
    ticks_until_quiet(rolled)
    assert not rolled.has(EARLIER)
    services.stop(rolled, BATCH)
    assert (own in held(rolled)) == (hold == "declared")
    ticks_until_quiet(rolled)


def test_the_cpus_of_the_run_before_are_free_for_the_next_one(rolled: node.Node) -> None:
    """There are no others left on this node."""
    assert services.start(rolled, BATCH)
    cpus = held(rolled)["batch:batch@a"]
    renamed(rolled, changed("batch", name="night"))
    assert services.restart(rolled, BATCH)
    assert (held(rolled).get("batch:batch@a"), held(rolled)["night:batch@a"]) == (None, cpus)


def test_it_gives_its_cpus_back_when_it_stops(rolled: node.Node) -> None:
    assert services.start(rolled, BATCH)
    renamed(rolled, changed("batch", name="night"))
    services.stop(rolled, BATCH)
    assert "batch:batch@a" not in held(rolled)
    ticks_until_quiet(rolled)


def test_an_admission_by_hand_takes_nothing_from_the_run(rolled: node.Node) -> None:
    assert services.start(rolled, BATCH)
    renamed(rolled, changed("batch", name="night"))
    cpus = held(rolled)["batch:batch@a"]
    with contextlib.suppress(CorralError):
        runs.command(rolled.host(), "admit", "night:batch@a")
    assert held(rolled)["batch:batch@a"] == cpus == cpuset.format(rolled.runs[BATCH].cpus)
    assert rolled.overlaps == []


def test_another_instance_takes_nothing_from_one_that_is_about_to_be_started_again(
    rolled: node.Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(grant_service, "ENDING_SECONDS", 0.5)
    limits = {"cpu": 4, "memory": "64Mi"}
    granted = started(rolled, batch(limits=limits), BATCH)
    renamed(rolled, batch(limits=limits, name="night"))
    services.end(rolled, BATCH)  # It waits for its RestartSec=.
    assert services.start(rolled, OTHER) is None
    assert {name: cpus for name, cpus in held(rolled).items() if cpus} == granted


def test_a_drop_in_that_is_deleted_is_written_again_as_it_was(rolled: node.Node) -> None:
    granted = started(rolled, batch(), BATCH)
    renamed(rolled, batch(name="night"))
    text = rolled.get(EARLIER)
    rolled.drop(EARLIER)
    runs.tick(rolled.host())
    services.after_reload(rolled)
    assert rolled.get(EARLIER) == text
    assert {name: cpus for name, cpus in held(rolled).items() if cpus} == granted


ALPHA = {"name": "alpha", "match": {"unit": DATAPLANE}, "hold": "running", "limits": {"cpu": 2, "memory": "64Mi"}}
BETA = {**ALPHA, "name": "beta", "match": {"unit": BATCH}}


@pytest.mark.parametrize(
    "rows",
    [
        pytest.param([{**ALPHA, "name": "beta"}, {**BETA, "name": "alpha"}], id="two exchange their names"),
        pytest.param([{**ALPHA, "name": "old"}, {**BETA, "name": "alpha"}], id="another unit takes the name"),
        pytest.param([{**BETA, "name": "alpha"}], id="it leaves, and another unit takes the name"),
    ],
)
@pytest.mark.parametrize("hold", ["running", "declared"])
def test_a_name_is_not_given_to_another_unit_while_one_runs_under_it(
    hold: str, rows: list[dict[str, t.Any]], rolled: node.Node
) -> None:
    """Both would run in the slice of that name, on the same CPUs."""
    first = profile_with(workloads=[{**ALPHA, "hold": hold}, {**BETA, "hold": hold}])
    granted = started(rolled, first, DATAPLANE, BATCH)
    before = rolled.fingerprint()
    said = f"{DATAPLANE} still runs under this name, in its slice: stop {DATAPLANE} first, or take another name"
    with pytest.raises(CorralError, match=r"match\.unit: batch@a\.service: alpha: ") as refused:
        roll_out(rolled, profile_with(workloads=[{**row, "hold": hold} for row in rows]))
    assert said in str(refused.value)
    assert node.different(before, rolled.fingerprint()) == []
    ticks_until_quiet(rolled)
    assert {name: cpus for name, cpus in held(rolled).items() if cpus} == granted
    for unit in (DATAPLANE, BATCH):
        services.stop(rolled, unit)
    assert not roll_out(rolled, profile_with(workloads=[{**row, "hold": hold} for row in rows])).error


def test_a_workload_of_a_tenant_keeps_its_grant_as_well(rolled: node.Node) -> None:
    tenants = [{"name": "acme", "members": {"units": [GLOB]}}]
    row = {"requests": {"cpu": "500m", "memory": "64Mi"}, "limits": {"cpu": 1, "memory": "64Mi"}}
    started(rolled, {**batch(**row), "tenants": tenants}, BATCH)
    renamed(rolled, {**batch(**row, name="night"), "tenants": tenants})
    runs.command(rolled.host(), "admit", "night:batch@a")
    assert {"batch:batch@a", "night:batch@a"} <= set(held(rolled))


def test_explain_says_what_a_restart_gives_also_where_the_machine_is_full(rolled: node.Node) -> None:
    """The CPUs that it has under its earlier name are free at its restart."""
    assert len(started(rolled, batch(match={"unit": GLOB}), BATCH, OTHER)) == 2
    renamed(rolled, batch(match={"unit": GLOB}, name="night"))
    said = runs.printed(rolled.host(), "explain", "night:batch@a")
    assert "night:batch@a: would be granted, if it started now\n" in said
    services.restart(rolled, BATCH)
    assert f"would have: {held(rolled)['night:batch@a']}" in said
