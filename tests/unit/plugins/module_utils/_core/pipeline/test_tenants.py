# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Tenants on a fake node: who is refused and when, what the kernel limits, and what a change leaves alone."""

from __future__ import annotations

import copy
import json
import typing as t

import failing
import node
import pytest
import runs
import services
import test_workload_faults
import test_workloads
import yaml
from _core.managers.workload import workloads
from _core.model.profile import profile, profile_tenants
from _core.model.values.errors import CorralError
from _core.pipeline import admit_workload, applying, planning, tenant_workloads
from shared_data import REPOSITORY
from test_workloads import BATCH, BOTH, CGROUP, DATAPLANE, FEED, OTHER, held, profile_with, roll_out, status

Make = t.Callable[..., node.Node]
Row = dict[str, t.Any]
TENANT = f"{CGROUP}/corral.slice/corral-acme.slice"
PLACE = f"{TENANT}/corral-acme-feed.slice"
HARD = {"requests.cpu": 4, "limits.memory": "1Gi", "limits.pids": 200, "count/workloads": 3}
ACME: Row = {
    "name": "acme",
    "members": {"units": ["feed.service", "batch@*.service"]},
    "limits": [{"type": "container", "default": {"pids": 50}}],
    "quota": [{"name": "all", "hard": HARD}],
}
# dataplane has two CPUs of its own, and no tenant; feed has 256Mi at most, each batch two CPUs and 64Mi.
FED, BATCHED = 256 << 20, 64 << 20


def with_hard(**hard: t.Any) -> Row:
    names = {"cpu": "requests.cpu", "memory": "limits.memory", "pids": "limits.pids", "number": "count/workloads"}
    row = copy.deepcopy(ACME)
    row["quota"][0]["hard"].update({names[key]: value for key, value in hard.items()})
    return row


def profile_of(*tenants: Row, **sections: t.Any) -> Row:
    return profile_with(tenants=list(tenants), **sections)


def limits(fake: node.Node, place: str = TENANT) -> dict[str, str]:
    return {name: fake.get(f"{place}/{name}").strip() for name in ("memory.max", "pids.max", "cpu.weight")}


def in_sync(fake: node.Node) -> None:
    fake.wait(10)
    test_workloads.in_sync(fake)


def make_rolled(fake: node.Node) -> None:
    test_workloads.install(fake)
    assert not runs.install(fake.host()).error
    assert roll_out(fake, profile_of(ACME)).remaining == ()
    for unit in (DATAPLANE, FEED):
        assert services.start(fake, unit)
    in_sync(fake)


@pytest.fixture
def rolled(made_once: node.MadeOnce) -> node.Node:
    return made_once(make_rolled)


def test_a_workload_runs_in_the_slice_of_its_tenant_with_what_that_gives_it(rolled: node.Node) -> None:
    assert rolled.runs[FEED].place == f"{PLACE}/{FEED}"[len("/sys/fs/cgroup/") :]
    assert limits(rolled, PLACE)["pids.max"] == "50"
    # 500m of a CPU as in the kubelet: the quota limits no CPU, so the weight is that of the requests.
    assert limits(rolled) == {"memory.max": str(1 << 30), "pids.max": "200", "cpu.weight": "20"}
    assert rolled.runs[DATAPLANE].cpus == {2, 6}


def test_cpus_of_its_own_count_and_leave_less_to_the_slice(rolled: node.Node) -> None:
    assert services.start(rolled, BATCH)
    assert held(rolled)[BOTH] == "1,5"
    assert limits(rolled) == {"memory.max": str((1 << 30) - BATCHED), "pids.max": "150", "cpu.weight": "20"}
    in_sync(rolled)
    services.stop(rolled, BATCH)
    assert limits(rolled)["pids.max"] == "200"
    in_sync(rolled)


def test_a_second_run_and_a_tick_change_nothing(rolled: node.Node) -> None:
    assert services.start(rolled, BATCH)
    in_sync(rolled)
    before, host = rolled.fingerprint(), rolled.host()
    outcome = applying.declare(host, profile.parse(profile_of(ACME)))
    assert (outcome.applied, outcome.remaining, host.acts) == ((), (), [])
    assert node.different(before, rolled.fingerprint()) == []
    rolled.wait(10)
    host = rolled.host()
    assert runs.tick(host) == 0
    assert host.acts == ["write_file /run/corral/status.json"]


def test_a_start_above_the_quota_is_refused_and_says_why(make: Make) -> None:
    fake = make()
    test_workloads.install(fake)
    assert not runs.install(fake.host()).error
    roll_out(fake, profile_of(with_hard(cpu=2)))
    assert services.start(fake, FEED)
    before = held(fake)
    assert services.start(fake, BATCH) is None
    assert held(fake) == before
    said = "tenant acme, quota all: requests.cpu used 500m, asked 2, hard 2 (feed has 500m)"
    with pytest.raises(CorralError, match=r"requests\.cpu used 500m, asked 2, hard 2") as caught:
        admit_workload.start(fake.host(), BOTH, "")
    assert said in str(caught.value)
    in_sync(fake)


def test_a_rollout_above_the_quota_is_refused_as_its_check_mode_is_and_writes_nothing(fake: node.Node) -> None:
    test_workloads.install(fake)
    before, data = fake.fingerprint(), profile.parse(profile_of(with_hard(memory="128Mi")))
    said = (
        "workloads[1].limits.memory: 256Mi: feed: tenant acme, quota all: limits.memory used 0, asked 256Mi, hard 128Mi: "
        "ask for less, raise the quota, or release a workload of the tenant"
    )
    host = fake.host()
    with pytest.raises(CorralError) as caught:
        planning.plan_profile(host, planning.compile_profile(host, data, fresh=True), declare=True)
    assert str(caught.value) == said
    with pytest.raises(CorralError) as caught:
        applying.declare(host, data)
    assert str(caught.value) == said
    assert node.different(before, fake.fingerprint()) == []


def test_a_lower_quota_is_drift_and_limits_nothing_that_runs(rolled: node.Node) -> None:
    outcome = roll_out(rolled, profile_of(with_hard(memory="128Mi", pids=10)))
    assert [(one.subject, one.property, one.actual, one.wanted, one.verdict) for one in outcome.remaining] == [
        ("acme", "quota all limits.memory", "256Mi", "at most 128Mi", "unchangeable"),
        ("acme", "quota all limits.pids", "50", "at most 10", "unchangeable"),
    ]
    assert "feed has 256Mi" in outcome.remaining[0].reason
    assert limits(rolled) == {"memory.max": str(FED), "pids.max": "50", "cpu.weight": "20"}
    assert limits(rolled, PLACE)["memory.max"] == str(FED)
    assert services.start(rolled, BATCH) is None
    services.stop(rolled, FEED)
    assert roll_out(rolled, profile_of(ACME)).remaining == ()
    assert limits(rolled)["memory.max"] == str(1 << 30)


def test_new_defaults_are_for_what_does_not_run(rolled: node.Node) -> None:
    other = {**ACME, "limits": [{"type": "container", "default": {"pids": 60}}]}
    outcome = roll_out(rolled, profile_of(other))
    assert outcome.remaining == ()
    assert any("feed: it runs with earlier defaults of tenant acme" in note for note in outcome.plan.notes)
    assert limits(rolled, PLACE)["pids.max"] == "50"
    in_sync(rolled)
    services.stop(rolled, FEED)
    runs.tick(rolled.host())
    in_sync(rolled)
    assert limits(rolled, PLACE)["pids.max"] == "60"


def test_new_defaults_that_the_quota_leaves_no_room_for_raise_no_limit(rolled: node.Node) -> None:
    assert services.start(rolled, BATCH)
    row = copy.deepcopy(ACME)
    row["limits"][0]["default"]["pids"] = 180
    roll_out(rolled, profile_of(row))
    services.stop(rolled, FEED)
    assert runs.tick(rolled.host()) == 2
    (item,) = status(rolled)["items"]
    assert "limits.pids used 50, asked 180, hard 200" in item["reason"]
    assert (item["property"], item["actual"], item["wanted"]) == ("limits.pids", "50", "180"), "it keeps what it has"
    said = runs.printed(rolled.host(), "explain", "feed").splitlines()
    assert said[0] == "feed: granted"
    assert said[-1].startswith("refused more: tenant acme, quota all: limits.pids used 50, asked 180, hard 200")
    assert services.start(rolled, FEED)
    assert limits(rolled, PLACE)["pids.max"] == "50"
    services.stop(rolled, FEED)
    services.stop(rolled, BATCH)
    runs.tick(rolled.host())
    assert limits(rolled, PLACE)["pids.max"] == "180"
    in_sync(rolled)


def test_defaults_of_a_new_tenant_are_for_what_does_not_run(fake: node.Node) -> None:
    test_workloads.install(fake)
    assert not runs.install(fake.host()).error
    roll_out(fake)
    assert services.start(fake, FEED)
    outcome = roll_out(fake, profile_of(ACME))
    assert [(one.subject, one.property) for one in outcome.remaining] == [(FEED, "slice")], "it moves when it starts"
    assert limits(fake, PLACE)["pids.max"] == "max"
    # Its tasks are not limited, so the tenant's cannot be: it was admitted before.
    assert limits(fake)["pids.max"] == "max"
    services.stop(fake, FEED)
    runs.tick(fake.host())
    assert services.start(fake, FEED)
    in_sync(fake)
    assert (limits(fake, PLACE)["pids.max"], limits(fake)["pids.max"]) == ("50", "200")


def test_what_runs_in_the_slice_of_a_tenant_that_left_moves_at_its_next_start(rolled: node.Node) -> None:
    outcome = roll_out(rolled, profile_with())
    assert [(one.subject, one.property, one.verdict) for one in outcome.remaining] == [
        (FEED, "slice", "unchangeable"),
        ("corral-acme.slice", "state", "unchangeable"),
        ("corral-acme-feed.slice", "state", "unchangeable"),
    ]
    assert (outcome.remaining[0].actual, outcome.remaining[0].wanted) == ("corral-acme-feed.slice", "corral-feed.slice")
    assert limits(rolled) == {"memory.max": "max", "pids.max": "max", "cpu.weight": "100"}, (
        "nothing of it limits what runs"
    )
    services.restart(rolled, FEED)
    runs.tick(rolled.host())
    in_sync(rolled)
    assert rolled.runs[FEED].place.startswith("corral.slice/corral-feed.slice/")
    assert not rolled.has(TENANT), "its slice stops once nothing runs in it"


def test_removal_brings_the_node_back(fake: node.Node) -> None:
    test_workloads.install(fake)
    before = fake.fingerprint()
    assert not runs.install(fake.host()).error
    roll_out(fake, profile_of(ACME))
    for unit in (DATAPLANE, FEED, BATCH):
        assert services.start(fake, unit)
    runs.tick(fake.host())
    for unit in (DATAPLANE, FEED, BATCH):
        services.stop(fake, unit)
    outcome = runs.remove(fake.host())
    assert (outcome.error, outcome.leftovers) == ("", ())
    assert node.different(before, fake.fingerprint()) == []


@pytest.mark.parametrize(
    ("lines", "members"),
    [
        ("User=web\n", {"users": ["web"]}),
        ("Slice=acme-web.slice\n", {"slices": ["acme.slice"]}),
    ],
)
def test_a_unit_belongs_by_its_files(lines: str, members: Row, fake: node.Node) -> None:
    services.add(fake, DATAPLANE, "batch@.service")
    services.add(fake, FEED, lines=lines)
    tenant = {**ACME, "members": members}
    assert not runs.install(fake.host()).error
    assert roll_out(fake, profile_of(tenant)).remaining == ()
    assert services.start(fake, FEED)
    in_sync(fake)
    assert fake.runs[FEED].place.endswith(f"corral-acme-feed.slice/{FEED}")
    rival = {"name": "rival", "members": {"units": [FEED]}}
    services.stop(fake, FEED)
    fresh = profile_of(tenant, rival)
    outcome = roll_out(fake, fresh)
    assert [one.subject for one in outcome.remaining] == [], "it has its grant already"


@pytest.mark.parametrize(("limit", "terminating"), [("", False), ("0", False), ("infinity", False), ("1min", True)])
def test_the_time_of_a_unit_is_limited_where_its_files_say_so(limit: str, terminating: bool, fake: node.Node) -> None:
    services.add(fake, FEED, lines=f"RuntimeMaxSec=90\nRuntimeMaxSec={limit}\n")
    quota = {"name": "jobs", "hard": {"count/workloads": 1}, "scopes": ["NotTerminating"]}
    declared = profile.parse(profile_of({**ACME, "quota": [quota]}))
    units = tenant_workloads.UnitSettings(fake.host(), declared, declared.workloads)
    feed = next(one for one in declared.workloads if one.pattern == FEED)
    assert units.terminating(feed) == terminating


def test_a_container_with_the_name_of_a_unit_has_none_of_its_settings(fake: node.Node) -> None:
    services.add(fake, FEED, lines="User=web\nRuntimeMaxSec=90\n")
    quota = {"name": "jobs", "hard": {"count/workloads": 1}, "scopes": ["Terminating"]}
    declared = profile.parse(profile_of({**ACME, "members": {"users": ["web"]}, "quota": [quota]}))
    units = tenant_workloads.UnitSettings(fake.host(), declared, declared.workloads)
    feed = next(one for one in declared.workloads if one.pattern == FEED)
    assert (units.membership(feed), units.terminating(feed)) == (("", "web"), True)
    box = feed._replace(name="box", match="container")
    assert (units.membership(box), units.terminating(box)) == (("", ""), False)


def test_a_unit_that_two_tenants_claim_is_refused(fake: node.Node) -> None:
    services.add(fake, DATAPLANE, "batch@.service")
    services.add(fake, FEED, lines="User=web\n")
    data = profile.parse(
        profile_of({**ACME, "members": {"users": ["web"]}}, {"name": "rival", "members": {"units": [FEED]}})
    )
    with pytest.raises(CorralError, match="feed: belongs to the tenants rival and acme, by its match, Slice= or User="):
        applying.declare(fake.host(), data)


def test_a_scope_tells_units_with_a_time_limit_apart(fake: node.Node) -> None:
    services.add(fake, DATAPLANE, "batch@.service")
    services.add(fake, FEED, lines="RuntimeMaxSec=90\n")
    quota = {"name": "jobs", "hard": {"count/workloads": 0}, "scopes": ["Terminating"]}
    with pytest.raises(
        CorralError,
        match=r"^workloads\[\d\]\.name: [a-z]+: tenant acme, quota jobs: count/workloads used 0, asked 1, hard 0",
    ):
        applying.declare(fake.host(), profile.parse(profile_of({**ACME, "quota": [quota]})))
    other = {**quota, "scopes": ["NotTerminating"]}
    assert applying.declare(fake.host(), profile.parse(profile_of({**ACME, "quota": [other]}))).error == ""


def test_a_workload_without_resources_is_placed_and_counted(fake: node.Node) -> None:
    test_workloads.install(fake)
    services.add(fake, "bare.service", "free.service")
    assert not runs.install(fake.host()).error
    bare = [{"name": name, "match": {"unit": f"{name}.service"}} for name in ("bare", "free")]
    rows = [*test_workloads.PROFILE["workloads"], *bare]
    tenant = {
        "name": "acme",
        "members": {"units": ["bare.service"]},
        "quota": [{"name": "q", "hard": {"count/workloads": 1}}],
    }
    assert roll_out(fake, profile_of(tenant, workloads=rows)).remaining == ()
    run = services.running(fake, "bare.service")
    assert run.place == "corral.slice/corral-acme.slice/corral-acme-bare.slice/bare.service"
    run = services.running(fake, "free.service")
    assert run.place == "system.slice/free.service", "one of no tenant stays where it is"
    in_sync(fake)
    assert [one["name"] for one in status(fake)["workloads"] if one["name"] in ("bare", "free")] == ["bare"]


def test_an_admission_by_hand_is_asked_for_by_its_tenant(rolled: node.Node) -> None:
    def row(cpu: int) -> t.Any:
        data = {"name": "more", "match": {"unit": OTHER}, "limits": {"cpu": f"{cpu}500m", "memory": "1Mi"}}
        return profile.parse_workloads([data])[0]

    with pytest.raises(CorralError, match="is what the workload batch matches"):
        admit_workload.admit(rolled.host(), row(0))
    roll_out(rolled, profile_of(ACME, workloads=test_workloads.PROFILE["workloads"][:2]))
    with pytest.raises(CorralError, match=r"tenant acme, quota all: requests.cpu used 500m, asked 4500m, hard 4"):
        admit_workload.admit(rolled.host(), row(4))
    assert admit_workload.admit(rolled.host(), row(1)).grant
    in_sync(rolled)
    named = profile.parse_workloads([{"name": "acme", "match": {"unit": "x.service"}, "limits": {"cpu": 1}}])[0]
    with pytest.raises(CorralError, match="is the name of a tenant"):
        admit_workload.admit(rolled.host(), named)


def admitted(fake: node.Node, *words: str) -> str:
    """The grant that an admission at the command line gives, as it is shown."""
    assert runs.command(fake.host(), "admit", *words, "--json") == 0
    grants = json.loads(fake.get(test_workloads.CHECKPOINT))["data"]["grants"]
    return str(next(one["limits"] for one in grants if one["workload"] == words[0]))


def test_a_tenant_with_the_name_of_what_was_admitted_before_is_refused(fake: node.Node) -> None:
    """Each tick wrote the limits of the one over those of the other, as both have one slice."""
    test_workloads.install(fake)
    services.add(fake, "extra.service")
    runs.install(fake.host())
    roll_out(fake, profile_of())
    admitted(fake, "acme", "--unit", "extra.service", "--limits", "cpu=100m,memory=16Mi")
    said = (
        r"tenants\[0\]\.name: acme: is the name of a workload that was admitted at run time as well, and both would have one slice: "
        "corral release acme first"
    )
    with pytest.raises(CorralError, match=said):
        roll_out(fake, profile_of(ACME))
    in_sync(fake)
    assert runs.command(fake.host(), "release", "acme") == 0
    roll_out(fake, profile_of(ACME))
    in_sync(fake)


@pytest.mark.parametrize("tenant_first", [True, False])
def test_what_an_earlier_version_admitted_under_a_tenants_name_is_told_and_its_slice_settles(
    tenant_first: bool, fake: node.Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing was refused then: each tick wrote the limits of the one over those of the other, on the slice of both."""
    test_workloads.install(fake)
    services.add(fake, "extra.service")
    runs.install(fake.host())
    with monkeypatch.context() as earlier:
        earlier.setattr(profile_tenants, "refuse_workload", lambda *dummy: None)
        earlier.setattr(workloads, "named_as_tenants", lambda *dummy: [])
        roll_out(fake, profile_of(*([ACME] if tenant_first else [])))
        words = ("acme", "--unit", "extra.service", "--limits", "cpu=100m,memory=16Mi")
        assert runs.command(fake.host(), "admit", *words) in (0, 2)
        assert services.start(fake, "extra.service")
        assert limits(fake)["memory.max"] == str((1 << 30) if tenant_first else (16 << 20))
        applying.declare(fake.host(), profile.parse(profile_of(ACME)))
    for dummy in range(2):
        fake.wait(10)
        assert runs.tick(fake.host()) == 2
        found = status(fake)
        assert (found["error"], found["last_changed"] and found["last_changed"]["time"] == fake.time) == (None, False)
        item = found["items"][-1]
        assert (item["subject"], item["property"], item["verdict"]) == ("acme", "slice", "unchangeable")
        assert item["reason"] == (
            "has the name of a tenant, whose slice this is as well: corral release acme, and admit it under another name"
        )
        # What runs keeps the limits with which it began.
        others = [] if tenant_first else [("corral-acme.slice", "limits", "unchangeable")]
        assert [(one["subject"], one["property"], one["verdict"]) for one in found["items"][:-1]] == others
        assert limits(fake)["memory.max"] == str((1 << 30) if tenant_first else (16 << 20))
        assert fake.get(f"{TENANT}/cpu.max").split()[0] == ("max" if tenant_first else "10000")
        assert "extra.service" in fake.runs, "it runs on"
    assert runs.command(fake.host(), "release", "acme") == 0
    services.stop(fake, "extra.service")
    fake.wait(10)
    runs.tick(fake.host())
    in_sync(fake)
    assert limits(fake) == {"memory.max": str(1 << 30), "pids.max": "200", "cpu.weight": "20"}
    assert fake.get(f"{TENANT}/cpu.max").split()[0] == "max"


def test_an_admission_by_hand_gets_defaults_and_has_a_priority(rolled: node.Node) -> None:
    services.add(rolled, "job.service", "other.service")
    urgent = {"scope": "PriorityClass", "operator": "In", "values": ["high"]}
    jobs = {
        "name": "jobs",
        "members": {"units": ["job*.service"], "containers": ["job-?"]},
        "limits": [{"type": "container", "default": {"memory": "64Mi"}}],
        "quota": [{"name": "urgent", "hard": {"count/workloads": 0}, "scope_selector": [urgent]}],
    }
    roll_out(rolled, profile_of(ACME, jobs))
    with pytest.raises(CorralError, match="quota urgent: count/workloads used 0, asked 1, hard 0"):
        runs.command(rolled.host(), "admit", "job", "--unit", "job.service", "--priority", "high")
    assert admitted(rolled, "job", "--unit", "job.service", "--priority", "low") == str({"memory": 64 << 20})
    with pytest.raises(CorralError, match="asks for nothing"):
        runs.command(rolled.host(), "admit", "other", "--unit", "other.service")
    with pytest.raises(
        CorralError, match=r"match.container: job-\*: is in part what a tenant's job-\? matches: narrow it"
    ):
        runs.command(rolled.host(), "admit", "more", "--container", "job-*", "--limits", "memory=1Mi")
    in_sync(rolled)


@pytest.mark.parametrize(
    ("file", "name"), [("memory.max", "MemoryMax"), ("pids.max", "TasksMax"), ("cpu.weight", "CPUWeight")]
)
def test_a_slice_that_is_changed_by_hand_is_set_right(file: str, name: str, rolled: node.Node) -> None:
    before = limits(rolled)
    test_workloads.tampered(TENANT, file, "7" if file == "cpu.weight" else "max")(rolled)
    (item,) = runs.plan(rolled.host())
    assert (item.subject, item.property, item.verdict) == ("corral-acme.slice", name, "drift")
    runs.tick(rolled.host())
    in_sync(rolled)
    assert limits(rolled) == before


def test_a_reboot_keeps_the_limits(rolled: node.Node) -> None:
    assert services.start(rolled, BATCH)
    services.reboot(rolled)
    assert limits(rolled)["pids.max"] == "200"
    assert services.start(rolled, FEED)
    test_workloads.ticks_until_quiet(rolled)
    assert limits(rolled)["memory.max"] == str(1 << 30)


def test_a_lost_checkpoint_is_rebuilt_with_its_tenants(rolled: node.Node) -> None:
    for suffix in ("", ".previous"):
        (rolled.root / f"{test_workloads.CHECKPOINT[1:]}{suffix}").unlink()
    runs.tick(rolled.host())
    in_sync(rolled)
    assert status(rolled)["in_sync"]
    assert services.start(rolled, BATCH)
    assert services.start(rolled, OTHER) is None, "the quota of CPUs counts feed and one batch"


def test_the_example_gives_two_tenants_their_own(fake: node.Node) -> None:
    example = yaml.safe_load((REPOSITORY / "examples" / "tenants.yml").read_text(encoding="utf-8"))
    services.add(fake, "acme-web.service", "acme-job@.service", "globex-db.service")
    assert not runs.install(fake.host()).error
    assert roll_out(fake, example).remaining == ()
    places = {}
    for unit in ("acme-web.service", "globex-db.service", "acme-job@1.service"):
        if "@" in unit:
            fake.put(f"{test_workloads.SYSTEM}/multi-user.target.wants/{unit}", "")
        run = services.running(fake, unit)
        places[unit] = run.place.rpartition("/")[0]
    assert places == {
        "acme-web.service": "corral_web.slice",
        "globex-db.service": "corral.slice/corral-globex.slice/corral-globex-db.slice",
        "acme-job@1.service": "corral.slice/corral-acme.slice/corral-acme-jobs:acme\\x2djob\\x401.slice",
    }
    assert limits(fake)["memory.max"] == str((1024 - 256) << 20)
    assert limits(fake, f"{CGROUP}/corral.slice/corral-globex.slice")["pids.max"] == "512"
    test_workloads.ticks_until_quiet(fake)


# What is shown


def test_used_against_hard(rolled: node.Node) -> None:
    assert services.start(rolled, BATCH)
    assert runs.printed(rolled.host(), "status", "--tenants").splitlines() == [
        "tenant  workloads  quota  resource         used   hard",
        "acme    2          all    count/workloads  2      3",
        "                   all    limits.memory    320Mi  1Gi",
        "                   all    limits.pids      100    200",
        "                   all    requests.cpu     2500m  4",
    ]
    in_sync(rolled)
    told = json.loads(runs.printed(rolled.host(), "status", "--tenants", "--json", code=None))["tenants"]
    assert told == status(rolled)["tenants"]
    assert told[0]["workloads"] == ["feed", BOTH]
    assert told[0]["text"] == (
        "tenant acme: all count/workloads 2 of 3, all limits.memory 320Mi of 1Gi, all limits.pids 100 of 200, "
        "all requests.cpu 2500m of 4"
    )
    roll_out(rolled, profile_of(with_hard(memory="128Mi")))
    assert "limits.memory    320Mi  128Mi  exceeded" in runs.printed(rolled.host(), "status", "--tenants", code=2)


def test_a_workload_says_its_tenant_and_what_that_gave_it(rolled: node.Node) -> None:
    assert (
        "tenant: acme, by default limits.pids 50"
        in runs.printed(rolled.host(), "explain", "feed", code=None).splitlines()
    )
    assert "tenant" not in runs.printed(rolled.host(), "explain", "dataplane", code=None)
    shown = {one["name"]: one["tenant"] for one in status(rolled)["workloads"]}
    assert (shown["dataplane"], shown["feed"], shown[BOTH]) == (None, "acme", "acme")


def test_a_workload_that_a_tenant_alone_gives_something_is_explained_by_its_unit(fake: node.Node) -> None:
    """It requests nothing itself, and is granted what its tenant gives by default."""
    test_workloads.install(fake)
    row = {"name": "plain", "match": {"unit": "batch@*.service"}, "hold": "running"}
    roll_out(fake, profile_of({key: ACME[key] for key in ("name", "members", "limits")}, workloads=[row]))
    assert runs.printed(fake.host(), "explain", "batch@7").startswith(
        "plain:batch@7: would be granted, if it started now\n"
    )


def test_a_plan_notes_patterns_and_priorities_that_no_workload_has(fake: node.Node) -> None:
    """Misspelt, they would leave workloads without limits and quota, and nothing else would say so."""
    test_workloads.install(fake)
    urgent = {"scope": "PriorityClass", "operator": "In", "values": ["hihg"]}
    quota = {"name": "urgent", "hard": {"count/workloads": 1}, "scope_selector": [urgent]}
    nobody = {"name": "globex", "members": {"units": ["gloebx-*.service"]}}
    roll_out(fake, profile_of({**ACME, "quota": [quota]}, nobody))
    assert [
        line for line in runs.printed(fake.host(), "plan", code=None).splitlines() if line.startswith("tenants[")
    ] == [
        "tenants[0].quota[0].scope_selector: hihg: no workload has this priority yet (none has any)",
        "tenants[1].members: no workload belongs to tenant globex yet: compare its patterns with the workloads",
    ]


def test_a_node_without_tenants_says_so(fake: node.Node) -> None:
    test_workloads.install(fake)
    roll_out(fake)
    with pytest.raises(CorralError, match="declares no tenants"):
        runs.command(fake.host(), "status", "--tenants")
    runs.tick(fake.host())
    assert status(fake)["tenants"] is None


# A fault at every write


def declare(dummy: node.Node, host: node.NodeHost) -> None:
    applying.declare(host, profile.parse(profile_of(ACME)))


def running(fake: node.Node) -> None:
    test_workload_faults.fresh(fake)
    declare(fake, fake.host())
    for unit in (DATAPLANE, FEED):
        services.start(fake, unit)
    runs.tick(fake.host())
    fake.wait(10)


def lower(dummy: node.Node, host: node.NodeHost) -> None:
    applying.declare(host, profile.parse(profile_of(with_hard(memory="512Mi", pids=100))))


def stopped(fake: node.Node) -> None:
    running(fake)
    services.stop(fake, FEED)
    runs.tick(fake.host())
    fake.wait(10)


def leave(dummy: node.Node, host: node.NodeHost) -> None:
    applying.declare(host, profile.parse(profile_with()))


CASES = {
    "rollout": (test_workload_faults.fresh, declare),
    "admission": (running, test_workload_faults.start),
    "lower quota": (running, lower),
    "the tenant leaves": (stopped, leave),
}


# A stop that systemd refuses leaves an empty slice, as any workload's: the removal of the profile stops it.
FAILS = {**dict.fromkeys(CASES, ("error", "killed")), "the tenant leaves": ("killed",)}


@pytest.mark.parametrize(("name", "fail"), [(name, fail) for name, fails in FAILS.items() for fail in fails])
def test_whatever_happens_at_any_write_the_next_run_makes_it_good(name: str, fail: str, make: Make) -> None:
    prepare, act = CASES[name]
    prepared = make()
    prepare(prepared)
    host = failing.tried(prepared, lambda host: act(host.node, host))
    test_workload_faults.settled(host.node)
    wanted = test_workload_faults.seen(host.node)
    assert len(host.acts) > 3
    for fake, what in failing.each(prepared, lambda host: act(host.node, host), fail, FAILS[name]):
        act(fake, fake.host())
        test_workload_faults.settled(fake)
        assert node.different(wanted, test_workload_faults.seen(fake)) == [], what
        assert (fake.overlaps, held(fake)) == ([], held(host.node)), what


def test_a_drop_in_that_wins_over_the_place_of_a_unit_has_a_way_out_that_keeps_its_tenant(fake: node.Node) -> None:
    test_workloads.install(fake)
    data = profile_of({"name": "acme", "members": {"slices": ["apps-acme.slice"]}, "limits": ACME["limits"]})
    late, early = (f"/etc/systemd/system/{FEED}.d/{name}.conf" for name in ("override", "05-place"))
    fake.put(late, "[Service]\nSlice=apps-acme.slice\n")
    with pytest.raises(CorralError, match=r"take Slice= out of it, or rename it to sort before Corral's"):
        roll_out(fake, data)
    fake.drop(late)
    fake.put(early, "[Service]\nSlice=apps-acme.slice\n")
    assert roll_out(fake, data).remaining == ()
    assert services.start(fake, FEED)
    assert fake.runs[FEED].place == f"{PLACE}/{FEED}"[len("/sys/fs/cgroup/") :]
