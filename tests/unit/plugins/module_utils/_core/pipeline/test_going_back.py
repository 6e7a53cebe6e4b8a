# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A node goes back from an unconfirmed profile whatever workloads got while that was in force."""

from __future__ import annotations

import json
import typing as t

import failing
import node
import pytest
import runs
import services
from _core.host import state
from _core.model.profile import profile
from _core.model.values import cpuset
from _core.pipeline import confirming
from _core.pipeline.confirming import Terms
from test_workloads import BATCH, CHECKPOINT, DATAPLANE, OTHER, PROFILE, held, profile_with, roll_out, status, without
from test_workloads import install as add_units

SECONDS = 120
MEMORY_MAX = "/sys/fs/cgroup/corral_dataplane.slice/memory.max"
EXTRA = "extra.service"
HOLDS = ("--hold", "declared", "--limits")
WIDE = {"name": "wide", "match": {"unit": EXTRA}, "limits": {"cpu": 4, "memory": "64Mi"}}
TENANT = {
    "name": "acme",
    "members": {"units": ["feed.service", EXTRA]},
    "quota": [{"name": "all", "hard": {"count/workloads": 1}}],
}
PLAIN = {"name": "plain", "pids": {"pid_max": 80000}}


class Case(t.NamedTuple):
    """A profile and the one after it, what is admitted then and what starts; the items after the way back, what ends, and who has CPUs."""

    before: dict[str, t.Any]
    after: dict[str, t.Any]
    admitted: tuple[str, ...] = ()
    started: tuple[str, ...] = ()
    items: tuple[tuple[str, str], ...] = ()
    granted: tuple[str, ...] = ("dataplane",)


CASES = {
    "another has its name": Case(
        PROFILE, without("dataplane"), ("dataplane", "--unit", EXTRA, *HOLDS, "cpu=2,memory=64Mi")
    ),
    "another has its unit": Case(
        PROFILE, without("dataplane"), ("extra", "--unit", DATAPLANE, *HOLDS, "cpu=2,memory=64Mi")
    ),
    "another has its CPUs": Case(
        PROFILE,
        without("dataplane"),
        ("extra", "--unit", EXTRA, *HOLDS, "cpu=4,memory=64Mi"),
        items=(("dataplane", "requests.cpu"),),
    ),
    "others run on its CPUs": Case(
        profile_with(workloads=[WIDE]),
        profile_with(workloads=[PROFILE["workloads"][2]]),
        started=(BATCH, OTHER),
        items=(("wide", "requests.cpu"),),
        granted=("wide",),
    ),
    "another has its quota": Case(
        profile_with(tenants=[TENANT]),
        {**without("feed"), "tenants": [TENANT]},
        ("extra", "--unit", EXTRA, *HOLDS, "cpu=100m,memory=64Mi"),
        items=(("feed", "name"),),
    ),
    "another has its tenant's name": Case(
        profile_with(tenants=[{"name": "acme", "members": {"units": ["feed.service"]}}]),
        PROFILE,
        ("acme", "--unit", EXTRA, *HOLDS, "cpu=100m,memory=64Mi"),
    ),
    "there are no pools": Case(
        PLAIN,
        PROFILE,
        ("extra", "--unit", EXTRA, *HOLDS, "cpu=2,memory=64Mi"),
        items=(("workloads", "placement"),),
        granted=(),
    ),
}


def changed(fake: node.Node, case: Case, container: str = "") -> None:
    """A node with the agent, on which the second profile waits for a confirmation that does not come. A ``container`` runs in this place."""
    add_units(fake)
    services.add(fake, EXTRA)
    assert not runs.install(fake.host()).error
    roll_out(fake, case.before)
    outcome = confirming.declare(fake.host(), profile.parse(case.after), None, Terms(SECONDS))
    assert (outcome.error, outcome.remaining) == ("", ())
    if case.admitted:
        assert runs.command(fake.host(), "admit", *case.admitted) == 0
    for unit in case.started:
        assert services.start(fake, unit)
    if container:
        fake.intrude(container)
    fake.wait(SECONDS + 1)


def went_back(fake: node.Node, case: Case) -> None:
    """The profile before is in force, and what it cannot have is drift, until what has that is released or stops."""
    assert not fake.has(state.UNCONFIRMED)
    assert json.loads(fake.get(state.DECLARED)) == profile.to_data(profile.parse(case.before))
    code = runs.tick(fake.host())
    found = status(fake)
    assert (found["error"], [(one["subject"], one["property"]) for one in found["items"]]) == (None, [*case.items])
    assert code == (2 if case.items else 0)
    if case.items and case.admitted:
        assert runs.command(fake.host(), "release", case.admitted[0]) == 0
    for unit in case.started:
        services.stop(fake, unit)
    runs.tick(fake.host())
    assert runs.tick(fake.host()) == 0
    assert status(fake)["in_sync"]
    having = {name for name, cpus in held(fake).items() if cpus} if fake.has(CHECKPOINT) else set()
    assert having == {*case.granted}


@pytest.mark.parametrize("by_tick", [False, True], ids=["its unit", "a tick first"])
@pytest.mark.parametrize("name", CASES)
def test_what_workloads_got_meanwhile_keeps_no_node_from_going_back(
    name: str, by_tick: bool, fake: node.Node, capsys: pytest.CaptureFixture[str]
) -> None:
    """The way back was refused again and again, and so were the ticks, as long as the workload was there."""
    changed(fake, CASES[name])
    if by_tick:
        runs.tick(fake.host())
    assert runs.command(fake.host(), "confirm", "--tick") == 0
    assert "went back to" in capsys.readouterr().err or by_tick
    went_back(fake, CASES[name])


@pytest.mark.parametrize("name", CASES)
def test_a_way_back_past_such_workloads_that_is_killed_is_made_again(name: str, fake: node.Node) -> None:
    def act(host: node.NodeHost) -> int:
        return runs.command(host, "confirm", "--tick")

    changed(fake, CASES[name])
    for twin, dummy in failing.each(fake, act, "killed", share=(name, list(CASES))):
        act(twin.host())
        went_back(twin, CASES[name])


@pytest.mark.parametrize(
    ("name", "released"), [("another has its name", "dataplane"), ("another has its unit", "extra")]
)
def test_the_item_of_a_released_workload_names_it(name: str, released: str, fake: node.Node) -> None:
    changed(fake, CASES[name])
    assert runs.command(fake.host(), "admit", "guest", "--container", "guest", *HOLDS, "cpu=100m,memory=64Mi") == 0
    outcome = confirming.tick(fake.host())[1]
    assert outcome
    (item,) = [one for one in outcome.applied if one.subject == state.ADMITTED]
    assert (item.actual, item.wanted) == (f"{released}, guest", "guest")
    assert item.reason == (
        f"admitted at run time; released: {released}, in the way of the profile to which the node goes back"
    )


def test_what_runs_in_the_slice_of_a_workload_stops_before_a_first_profile_goes_back(
    fake: node.Node, capsys: pytest.CaptureFixture[str]
) -> None:
    add_units(fake)
    services.add(fake, EXTRA)
    assert not runs.install(fake.host()).error
    confirming.declare(fake.host(), profile.parse(PROFILE), None, Terms(SECONDS))
    assert runs.command(fake.host(), "admit", "extra", "--unit", EXTRA, *HOLDS, "cpu=2,memory=64Mi") == 0
    assert services.start(fake, EXTRA)
    fake.wait(SECONDS + 1)
    assert runs.command(fake.host(), "confirm", "--tick") == 1
    assert (
        f"corral_extra.slice: still holds processes, which a stop would end: stop what runs in it (systemctl stop {EXTRA})"
        in capsys.readouterr().err
    )
    assert fake.has(state.UNCONFIRMED)
    services.stop(fake, EXTRA)
    assert runs.command(fake.host(), "confirm", "--tick") == 0
    assert [fake.has(path) for path in (state.UNCONFIRMED, state.DECLARED, CHECKPOINT)] == [False, False, False]


@pytest.mark.parametrize("is_lost", [False, True], ids=["", "and the checkpoint is lost"])
@pytest.mark.parametrize("hold", ["declared", "running"])
@pytest.mark.parametrize("of_other", ["declared", "running"])
def test_the_declared_unit_does_not_start_on_the_cpus_of_another_one_that_runs_under_its_name(
    of_other: str, hold: str, is_lost: bool, fake: node.Node
) -> None:
    """What was admitted under the name runs in the slice that is the declared one's by now, until it stops."""
    rows = [{**one, "hold": hold} if one["name"] == "dataplane" else one for one in PROFILE["workloads"]]
    own = ("dataplane", "--unit", EXTRA, "--hold", of_other, "--limits", "cpu=2,memory=1Gi")
    changed(fake, Case(profile_with(workloads=rows), without("dataplane"), own, (EXTRA,)))
    assert runs.command(fake.host(), "confirm", "--tick") == 0
    for path in (CHECKPOINT, f"{CHECKPOINT}.previous") if is_lost else ():
        fake.put(path, "lost")
    for dummy in range(2):
        runs.tick(fake.host())
    assert [(one["subject"], one["property"]) for one in status(fake)["items"]] == [("dataplane", "match.unit")]
    mine, memory = fake.runs[EXTRA].cpus, fake.get(MEMORY_MAX)
    assert memory == f"{1 << 30}\n"
    started = services.start(fake, DATAPLANE)
    if hold == "running":
        assert started is None
        assert "extra.service still runs under this name" in fake.said[-1]
    else:
        assert started is not None
        assert not started.cpus & mine
    runs.tick(fake.host())
    assert (fake.runs[EXTRA].cpus, held(fake)["dataplane"]) == (mine, cpuset.format(mine))
    assert fake.get(MEMORY_MAX) == memory
    services.stop(fake, EXTRA)
    for dummy in range(2):
        runs.tick(fake.host())
    (services.restart if started else services.start)(fake, DATAPLANE)
    assert runs.tick(fake.host()) == 0
    assert cpuset.format(fake.runs[DATAPLANE].cpus) == held(fake)["dataplane"]
    assert fake.get(MEMORY_MAX) == f"{128 << 20}\n"


@pytest.mark.parametrize("is_lost", [False, True], ids=["", "and the checkpoint is lost"])
@pytest.mark.parametrize("hold", ["declared", "running"])
@pytest.mark.parametrize("of_other", ["declared", "running"])
@pytest.mark.parametrize("name", ["libpod-1.scope", "corral_dataplane-libpod_pod_1.slice"])
def test_the_declared_unit_does_not_start_on_the_cpus_of_a_container_that_runs_under_its_name(
    name: str, of_other: str, hold: str, is_lost: bool, fake: node.Node
) -> None:
    """The grant of a container has no unit, and was taken for the one of the declared unit."""
    rows = [{**one, "hold": hold} if one["name"] == "dataplane" else one for one in PROFILE["workloads"]]
    own = ("dataplane", "--container", "extra", "--hold", of_other, "--limits", "cpu=2,memory=1Gi")
    case = Case(profile_with(workloads=rows), without("dataplane"), own)
    place = f"corral_dataplane.slice/{name}"
    changed(fake, case, place)
    assert runs.command(fake.host(), "confirm", "--tick") == 0
    for path in (CHECKPOINT, f"{CHECKPOINT}.previous") if is_lost else ():
        fake.put(path, "lost")
    mine = fake.systemd.effective(place)
    for dummy in range(2):
        assert runs.tick(fake.host()) == 2
        (item,) = status(fake)["items"]
        assert (item["subject"], item["property"]) == ("dataplane", "match.unit")
        assert f"{name} still runs under this name, in its slice: stop {name} first" in item["reason"]
        started = services.start(fake, DATAPLANE)
        assert (started is None) == (hold == "running")
        assert not started or not started.cpus & mine
        assert (fake.systemd.effective(place), held(fake)["dataplane"]) == (mine, cpuset.format(mine))
        assert fake.get(MEMORY_MAX) == f"{1 << 30}\n"
    fake.withdraw(place)
    for dummy in range(2):
        runs.tick(fake.host())
    (services.restart if started else services.start)(fake, DATAPLANE)
    assert runs.tick(fake.host()) == 0
    assert cpuset.format(fake.runs[DATAPLANE].cpus) == held(fake)["dataplane"]
    assert fake.get(MEMORY_MAX) == f"{128 << 20}\n"


def test_what_runs_in_the_slice_of_a_tenant_of_its_name_keeps_its_limits(fake: node.Node) -> None:
    """It got the tenant's limit of memory, below what it used, and the node was in sync."""
    tenant = {**TENANT, "quota": [{"name": "all", "hard": {"limits.memory": "64Mi"}}]}
    rows = [{"name": "feed", "match": {"unit": "feed.service"}, "limits": {"memory": "64Mi"}}]
    own = ("acme", "--unit", EXTRA, *HOLDS, "cpu=100m,memory=1Gi")
    changed(fake, Case(profile_with(tenants=[tenant], workloads=rows), profile_with(workloads=rows), own, (EXTRA,)))
    limit = "/sys/fs/cgroup/corral.slice/corral-acme.slice/memory.max"
    before = fake.get(limit)
    assert before == f"{1 << 30}\n"
    assert runs.command(fake.host(), "confirm", "--tick") == 0
    for dummy in range(2):
        assert runs.tick(fake.host()) == 2
        assert fake.get(limit) == before
        (item,) = status(fake)["items"]
        assert (item["subject"], item["property"]) == ("corral-acme.slice", "limits")
        assert "stop extra.service, then the slice gets the tenant's limits" in item["reason"]
    services.stop(fake, EXTRA)
    runs.tick(fake.host())
    assert runs.tick(fake.host()) == 0
    assert fake.get(limit) == f"{64 << 20}\n"


def of_an_older_version(fake: node.Node) -> None:
    """The record of the applied profile as a version wrote it that did not know an option."""
    data = json.loads(fake.get(state.APPLIED))
    del data["cpu"]["options"]["strict-cpu-reservation"]
    fake.put(state.APPLIED, json.dumps(data))


def test_a_node_goes_back_to_a_profile_that_an_older_version_applied(fake: node.Node) -> None:
    """What workloads have kept it from that for as long as they had it."""
    case = CASES["another has its CPUs"]
    add_units(fake)
    services.add(fake, EXTRA)
    assert not runs.install(fake.host()).error
    roll_out(fake, case.before)
    of_an_older_version(fake)
    confirming.declare(fake.host(), profile.parse(case.after), None, Terms(SECONDS))
    assert runs.command(fake.host(), "admit", *case.admitted) == 0
    fake.wait(SECONDS + 1)
    assert runs.command(fake.host(), "confirm", "--tick") == 0
    went_back(fake, case)


def test_what_a_node_cannot_give_is_drift_after_an_update_of_corral_too(fake: node.Node) -> None:
    """Ticks refused the profile as one that was never applied."""
    case = CASES["another has its CPUs"]
    changed(fake, case)
    assert runs.command(fake.host(), "confirm", "--tick") == 0
    of_an_older_version(fake)
    went_back(fake, case)


def test_the_profile_that_an_older_version_applied_waits_for_no_confirmation(fake: node.Node) -> None:
    add_units(fake)
    roll_out(fake, PROFILE)
    of_an_older_version(fake)
    assert not confirming.needs_confirmation(fake.host(), profile.parse(PROFILE), Terms(SECONDS))
    assert confirming.needs_confirmation(fake.host(), profile.parse(without("dataplane")), Terms(SECONDS))
