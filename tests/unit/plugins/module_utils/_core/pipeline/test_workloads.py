# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Workloads on a fake node: what they run on from their first instruction, who holds what for how long, and the way back."""

from __future__ import annotations

import copy
import errno
import json
import typing as t

import failing
import node
import pytest
import runs
import services
from _core.host import state
from _core.host.cpu import thread_masks
from _core.managers import registry
from _core.managers.manager import Manager
from _core.model.plan.context import Context
from _core.model.plan.plan import Change, Outcome, Plan
from _core.model.profile import profile
from _core.model.values import cpuset
from _core.model.values.errors import CorralError
from _core.pipeline import admit_workload, applying, confirming, planning
from _core.reports import workload_table

Make = t.Callable[..., node.Node]
SYSTEM = "/etc/systemd/system"
CHECKPOINT = "/var/lib/corral/checkpoint.json"
CGROUP = "/sys/fs/cgroup"
OWN = "corral_dataplane.slice"
PLACE = f"{CGROUP}/{OWN}"
SHARED = f"{CGROUP}/corral.slice/corral-feed.slice"
DATAPLANE, FEED, BATCH, OTHER = "dataplane.service", "feed.service", "batch@a.service", "batch@b.service"
# On the lab's machine: CPUs 0,4 1,5 on node 0 and 2,6 3,7 on node 1.
PROFILE: dict[str, t.Any] = {
    "name": "workloads",
    "cpu": {
        "reserved": {"cpus": "0,4"},
        "policy": "static",
        "options": {"full-pcpus-only": True},
        "shared": {"min_cpus": 2},
    },
    "topology": {"policy": "single-numa-node"},
    "memory": {
        "policy": "static",
        "reserved": {"0": "256Mi", "1": "256Mi"},
        "hugepages": [{"size": "2Mi", "count": 32, "node": 1}],
    },
    "workloads": [
        {
            "name": "dataplane",
            "match": {"unit": DATAPLANE},
            "limits": {"cpu": 2, "memory": "128Mi", "hugepages-2Mi": "32Mi", "pids": 64},
        },
        {
            "name": "feed",
            "match": {"unit": FEED},
            "requests": {"cpu": "500m", "memory": "64Mi"},
            "limits": {"cpu": "1500m", "memory": "256Mi"},
        },
        {
            "name": "batch",
            "match": {"unit": "batch@*.service"},
            "hold": "running",
            "limits": {"cpu": 2, "memory": "64Mi"},
        },
    ],
}
BOTH = "batch:batch@a"


def profile_with(**sections: t.Any) -> dict[str, t.Any]:
    return {**copy.deepcopy(PROFILE), **sections}


def without(*names: str) -> dict[str, t.Any]:
    return profile_with(workloads=[one for one in PROFILE["workloads"] if one["name"] not in names])


def changed(workload: str, **keys: t.Any) -> dict[str, t.Any]:
    rows = [{**one, **keys} if one["name"] == workload else one for one in PROFILE["workloads"]]
    return profile_with(workloads=rows)


def install(fake: node.Node) -> None:
    """The units that the profile is about."""
    services.add(fake, DATAPLANE, FEED, "batch@.service")
    for unit in (BATCH, OTHER):
        fake.put(f"{SYSTEM}/multi-user.target.wants/{unit}", "")


def roll_out(fake: node.Node, data: dict[str, t.Any] | None = None) -> Outcome:
    outcome = applying.declare(fake.host(), profile.parse(PROFILE if data is None else data))
    assert not outcome.error, outcome.error
    return outcome


def make_rolled(fake: node.Node) -> None:
    """A node with the profile, its agent, and the two units that hold what they have as long as they are declared."""
    make_ready(fake)
    assert roll_out(fake).remaining == ()
    for unit in (DATAPLANE, FEED):
        assert services.start(fake, unit)
    assert runs.tick(fake.host()) == 0
    fake.wait(10)


@pytest.fixture
def rolled(made_once: node.MadeOnce) -> node.Node:
    return made_once(make_rolled)


def make_ready(fake: node.Node) -> None:
    install(fake)
    assert not runs.install(fake.host()).error


@pytest.fixture
def ready(made_once: node.MadeOnce) -> node.Node:
    """A node with the units and the agent, and no profile yet."""
    return made_once(make_ready)


def make_unconfirmed(fake: node.Node) -> None:
    make_ready(fake)
    assert not confirming.declare(fake.host(), profile.parse(PROFILE), None, confirming.Terms(20)).error


@pytest.fixture
def unconfirmed(made_once: node.MadeOnce) -> node.Node:
    """A node whose first profile waits for 20 s to be confirmed."""
    return made_once(make_unconfirmed)


def held(fake: node.Node) -> dict[str, str]:
    """Who holds which CPUs, as the checkpoint has it."""
    rows = json.loads(fake.get(CHECKPOINT))["data"]["grants"]
    return {row["workload"]: row["cpus"] for row in rows}


def shared(fake: node.Node) -> str:
    return cpuset.format(fake.cpus("corral.slice"))


def status(fake: node.Node) -> dict[str, t.Any]:
    return t.cast("dict[str, t.Any]", json.loads(fake.get("/run/corral/status.json")))


def lines_of(changes: t.Iterable[Change]) -> list[tuple[str, str]]:
    return [(change.subject, change.property) for change in changes]


def in_sync(fake: node.Node) -> None:
    """A tick finds nothing to do, and nobody has shared a CPU since."""
    assert runs.tick(fake.host()) == 0, status(fake)["items"] or status(fake)["error"]
    assert fake.overlaps == []


def ticks_until_quiet(fake: node.Node) -> None:
    """One tick does all that there is to do."""
    runs.tick(fake.host())
    in_sync(fake)


# The rollout


def test_hugepages_of_a_pool_of_the_whole_machine_can_be_asked_for_by_the_profile_that_makes_it(
    fake: node.Node,
) -> None:
    install(fake)
    data = profile_with()
    data["memory"]["hugepages"] = [{"size": "2Mi", "count": 33}]
    assert roll_out(fake, data).remaining == ()
    assert held(fake)["dataplane"]
    in_sync(fake)
    data["memory"]["hugepages"] = [{"size": "2Mi", "count": 30}]  # 15 for each node, and it asks for 16
    with pytest.raises(CorralError, match="hugepages-2Mi"):
        applying.declare(fake.host(), profile.parse(data))


def test_hugepages_of_a_pool_that_is_made_already_count_where_they_are(fake: node.Node) -> None:
    install(fake)
    for number, count in ((0, 16), (1, 17)):
        fake.put(node.pool_file(number), f"{count}\n")
    data = changed("dataplane", limits={"cpu": 2, "memory": "128Mi", "hugepages-2Mi": "34Mi"})
    data["memory"]["hugepages"] = [{"size": "2Mi", "count": 33}]
    assert not roll_out(fake, data).error
    assert held(fake)["dataplane"] == "2,6", "node 1 has 17 pages"


def test_units_run_from_their_first_instruction_on_what_is_theirs(rolled: node.Node) -> None:
    own, fed = rolled.runs[DATAPLANE], rolled.runs[FEED]
    assert (own.cpus, own.mems, own.place) == ({2, 6}, {1}, f"{PLACE}/{DATAPLANE}"[len("/sys/fs/cgroup/") :])
    assert (fed.cpus, fed.mems) == ({1, 3, 5, 7}, {0, 1})
    assert rolled.get(f"/proc/{own.pid}/oom_score_adj") == "-997\n"
    wanted = {
        "cpuset.cpus": "2,6", "cpuset.mems": "1", "cpu.max": "max 100000", "cpu.weight": "79", "memory.max": str(128 << 20),
        "memory.swap.max": "0", "pids.max": "64", "hugetlb.2MB.max": str(32 << 20),
    }  # fmt: skip
    assert {name: rolled.get(f"{PLACE}/{name}").strip() for name in wanted} == wanted
    wanted = {"cpu.max": "150000 100000", "cpu.weight": "20", "memory.max": str(256 << 20), "hugetlb.2MB.max": "0"}
    assert {name: rolled.get(f"{SHARED}/{name}").strip() for name in wanted} == wanted
    assert rolled.overlaps == []


def test_check_mode_foretells_the_rollout_and_writes_nothing(fake: node.Node) -> None:
    install(fake)
    before, host = fake.fingerprint(), fake.host()
    context = planning.compile_profile(host, profile.parse(PROFILE), fresh=True)
    plan = planning.plan_profile(host, context, declare=True)
    assert (host.writes, host.commands, fake.fingerprint()) == ([], [], before)
    assert lines_of(roll_out(fake).applied) == lines_of(change for change in plan.changes if change.steps)


def test_a_second_run_changes_nothing(rolled: node.Node) -> None:
    assert services.start(rolled, BATCH)
    before, host = rolled.fingerprint(), rolled.host()
    outcome = applying.declare(host, profile.parse(PROFILE))
    assert (outcome.applied, outcome.remaining, host.acts) == ((), (), [])
    assert node.different(before, rolled.fingerprint()) == []


def test_a_converged_tick_writes_its_status_alone_and_starts_no_process(rolled: node.Node) -> None:
    assert services.start(rolled, BATCH)
    rolled.wait(1)
    in_sync(rolled)
    rolled.wait(10)
    host = rolled.host()
    assert runs.tick(host) == 0
    assert host.acts == ["write_file /run/corral/status.json"]


def test_what_is_declared_and_what_runs_is_there_after_a_reboot_only_as_long_as_it_should(rolled: node.Node) -> None:
    assert services.start(rolled, BATCH)
    assert held(rolled) == {"dataplane": "2,6", "feed": "", BOTH: "1,5"}
    services.reboot(rolled)
    assert services.running(rolled, DATAPLANE).cpus == {2, 6}
    ticks_until_quiet(rolled)
    assert held(rolled) == {"dataplane": "2,6", "feed": ""}
    assert shared(rolled) == "1,3,5,7"


@pytest.mark.parametrize("applied", [True, False], ids=["252", "257"])
def test_what_a_shared_slice_starts_with_is_what_it_has_also_after_a_boot(applied: bool, make: Make) -> None:
    """After a boot it has its CPUs by its file alone, which then says what it has while nobody holds any for a run."""
    fake = make(reload_applies=applied)
    make_ready(fake)
    roll_out(fake)
    services.reboot(fake)
    run = services.running(fake, DATAPLANE)
    roll_out(fake, changed("dataplane", hold="running"))
    fake.systemctl("daemon-reload")
    fake.systemd.stop_slice("machine.slice")
    fake.systemd.run_slice("machine.slice")
    assert (fake.systemd.effective(run.place), fake.systemd.effective("machine.slice")) == ({2, 6}, {1, 3, 5, 7})
    in_sync(fake)


@pytest.mark.parametrize("applied", [True, False], ids=["252", "257"])
def test_a_persistent_set_property_does_not_hide_what_is_set_live(applied: bool, make: Make) -> None:
    """It has the name of systemd's live file, and goes where grants come and go with runs, whatever it says."""
    fake = make(reload_applies=applied)
    install(fake)
    fake.systemctl("set-property", "machine.slice", "AllowedCPUs=1,3,5,7")
    assert not runs.install(fake.host()).error
    roll_out(fake)
    fake.systemd.run_slice("machine.slice")
    fake.systemd.occupy("machine.slice")
    assert services.start(fake, DATAPLANE)
    assert services.start(fake, BATCH)
    ticks_until_quiet(fake)
    fake.systemctl("daemon-reload")
    in_sync(fake)
    assert fake.systemd.effective("machine.slice") == {3, 7}


@pytest.mark.parametrize("later", [False, True], ids=["with the profile", "with a later one"])
def test_a_removal_brings_a_persistent_set_property_back(later: bool, make: Make) -> None:
    fake = make()
    install(fake)
    fake.systemctl("set-property", "machine.slice", "AllowedCPUs=1,3,5,7")
    file = "/etc/systemd/system.control/machine.slice.d/50-AllowedCPUs.conf"
    text = fake.get(file)
    assert not runs.install(fake.host()).error
    fake.systemd.run_slice("machine.slice")
    fake.systemd.occupy("machine.slice")
    if later:
        roll_out(fake, without("batch"))
    roll_out(fake)
    assert not fake.has(file)
    assert services.start(fake, BATCH)
    ticks_until_quiet(fake)
    services.stop(fake, BATCH)
    runs.remove(fake.host())
    assert fake.get(file) == text


def test_a_file_that_wins_over_what_is_set_live_is_named_and_left(rolled: node.Node) -> None:
    """As long as a run holds CPUs that this file gives the pool."""
    foreign = f"{SYSTEM}/machine.slice.d/90-admin.conf"
    rolled.drop(f"{SYSTEM}/machine.slice.d/10-corral-cpu.conf")
    rolled.put(foreign, "[Slice]\nAllowedCPUs=\nAllowedCPUs=1,3,5,7\n")
    assert services.start(rolled, BATCH)
    runs.tick(rolled.host())
    host = rolled.host()
    assert runs.tick(host) == 2
    assert [act for act in host.acts if not act.startswith("write_file /run/corral/")] == []
    (item,) = (one for one in status(rolled)["items"] if one["subject"] == "machine.slice")
    assert (item["property"], item["location"], item["verdict"]) == (
        "AllowedCPUs at its next start",
        foreign,
        "unchangeable",
    )
    services.stop(rolled, BATCH)
    in_sync(rolled)


@pytest.mark.parametrize("damage", ["the checkpoint", "both copies"])
def test_a_run_keeps_its_grant_when_the_checkpoint_goes_as_well(damage: str, rolled: node.Node) -> None:
    run = services.running(rolled, BATCH)
    rolled.drop(CHECKPOINT)
    if damage == "both copies":
        rolled.drop(f"{CHECKPOINT}.previous")
    rolled.drop("/etc/systemd/system/batch@.service.d/10-corral-workloads.conf")
    rolled.systemctl("daemon-reload")
    services.after_reload(rolled)
    assert not rolled.holders
    runs.tick(rolled.host())
    assert (held(rolled)[BOTH], rolled.systemd.effective(run.place)) == ("1,5", {1, 5})
    in_sync(rolled)


def test_removal_brings_the_node_back(fake: node.Node) -> None:
    install(fake)
    before = fake.fingerprint()
    assert not runs.install(fake.host()).error
    roll_out(fake)
    for unit in (DATAPLANE, FEED, BATCH):
        assert services.start(fake, unit)
    runs.tick(fake.host())
    for unit in (DATAPLANE, FEED, BATCH):
        services.stop(fake, unit)
    outcome = runs.remove(fake.host())
    assert (outcome.error, outcome.leftovers) == ("", ())
    assert node.different(before, fake.fingerprint()) == []


def test_a_removal_leaves_on_what_an_engine_has_passed_on(rolled: node.Node) -> None:
    root = f"{CGROUP}/cgroup.subtree_control"
    rolled.put(f"{CGROUP}/system.slice/cgroup.subtree_control", "cpu hugetlb\n")
    for unit in (DATAPLANE, FEED, BATCH):
        services.stop(rolled, unit)
    host = rolled.host()
    outcome = runs.remove(host)
    assert (outcome.error, outcome.leftovers, outcome.remaining) == ("", (), ())
    assert f"write_value {root}" not in host.acts
    assert "hugetlb" in rolled.get(root).split()
    assert not rolled.has("/var/lib/corral")


def test_removal_under_running_workloads_names_what_stays_and_ends_later(rolled: node.Node) -> None:
    plan = planning.plan_removal(rolled.host(), registry.names())
    foretold = applying.planned(rolled.host(), plan).leftovers
    with rolled.by_hand():  # What runs loses what it has of its own.
        outcome = runs.remove(rolled.host())
    said = (
        "{}: still holds processes, which a stop would end: stop what runs in it (systemctl stop {}), then repeat this"
    )
    for place, unit in (("corral.slice", FEED), (OWN, DATAPLANE)):
        assert said.format(place, unit) in outcome.leftovers
        assert said.format(place, unit) in foretold
    # What is back already is not named as different.
    assert {one.subject for one in outcome.remaining} == {
        OWN, "corral-feed.slice", "corral.slice", f"{CGROUP}/cgroup.subtree_control",
    }  # fmt: skip
    assert rolled.cpus(OWN) == rolled.systemd.online, "nobody is confined any more"
    for unit in (DATAPLANE, FEED):
        services.stop(rolled, unit)
    assert runs.remove(rolled.host()).leftovers == ()
    assert not rolled.has("/var/lib/corral")
    assert not rolled.has(PLACE)


# Held while it runs


def test_what_runs_holds_its_cpus_and_gives_them_back(rolled: node.Node) -> None:
    run = services.running(rolled, BATCH)
    assert (run.cpus, run.mems, held(rolled)[BOTH], shared(rolled)) == ({1, 5}, {0}, "1,5", "3,7")
    in_sync(rolled)
    services.stop(rolled, BATCH)
    assert (BOTH in held(rolled), shared(rolled)) == (False, "1,3,5,7")
    ticks_until_quiet(rolled)


@pytest.mark.parametrize("how", ["restart", "Restart=always"])
def test_a_new_run_of_the_same_unit_keeps_its_cpus(how: str, rolled: node.Node) -> None:
    assert services.start(rolled, BATCH)
    checkpoint = rolled.get(CHECKPOINT)
    run = services.restart(rolled, BATCH) if how == "restart" else services.crash(rolled, BATCH, always=True)
    assert run
    assert (run.cpus, rolled.get(CHECKPOINT)) == ({1, 5}, checkpoint)
    in_sync(rolled)


def test_each_of_ten_runs_that_crash_gives_its_cpus_back(rolled: node.Node) -> None:
    for dummy in range(10):
        assert services.start(rolled, BATCH)
        services.crash(rolled, BATCH)
        assert (held(rolled), shared(rolled)) == ({"dataplane": "2,6", "feed": ""}, "1,3,5,7")
    ticks_until_quiet(rolled)


def test_a_start_waits_for_a_run_that_has_ended_and_not_for_one_that_waits_to_start_again(rolled: node.Node) -> None:
    assert services.start(rolled, BATCH)
    assert not admit_workload.ending(rolled.host(), "dataplane"), "it runs"
    run = rolled.runs[BATCH]
    rolled.systemd.cgroups.pop(run.place)
    rolled.systemd.sync()
    assert admit_workload.ending(rolled.host(), "dataplane"), "its process has ended this moment"
    assert not admit_workload.ending(rolled.host(), "dataplane", settled=True), (
        "systemd has it as active: RestartSec= goes by"
    )
    rolled.drop(f"/run/systemd/units/invocation:{BATCH}")
    assert admit_workload.ending(rolled.host(), "dataplane", settled=True), "it has ended, and its release is to come"


def test_ten_starts_that_are_refused_leave_no_grant(rolled: node.Node) -> None:
    assert services.start(rolled, BATCH)
    for dummy in range(10):
        assert services.start(rolled, OTHER) is None
    said = "requests.cpu: 2: 500m missing: this node can give 6 in all, batch:batch@a has 2, dataplane has 2, feed has 500m"
    assert said in rolled.said[0]
    assert held(rolled) == {"dataplane": "2,6", "feed": "", BOTH: "1,5"}
    in_sync(rolled)
    services.stop(rolled, BATCH)
    assert services.start(rolled, OTHER), "there is room now"


def test_two_starts_at_once_get_cpus_of_their_own(rolled: node.Node) -> None:
    """kubernetes#103952: both slices are there before anybody is granted anything."""
    assert not applying.declare(rolled.host(), profile.parse(without("dataplane"))).error
    services.stop(rolled, DATAPLANE)
    for unit in (BATCH, OTHER):
        rolled.systemd.run_slice(services.slice_of(rolled, unit))
    for unit in (BATCH, OTHER):
        (holder,) = services.required(rolled, unit)
        assert services.hold(rolled, holder, rolled.host()), rolled.said
    first, second = (services.begin(rolled, unit) for unit in (BATCH, OTHER))
    assert (len(first.cpus), len(second.cpus), first.cpus & second.cpus) == (2, 2, frozenset())
    ticks_until_quiet(rolled)


def test_the_end_of_an_earlier_run_does_not_take_the_grant_of_a_later_one(rolled: node.Node) -> None:
    """kubernetes#90303, #107074: the stop of the old run is served after the start of the new one."""
    services.start(rolled, BATCH)
    (holder,) = services.required(rolled, BATCH)
    late = rolled.holders[holder]
    services.stop(rolled, BATCH)
    run = services.start(rolled, BATCH)
    link = rolled.root / services.INVOCATIONS / f"invocation:{holder}"
    now = link.readlink()
    link.unlink()
    link.symlink_to(late)
    assert services.corral(rolled, rolled.host(), "release", "--stop", holder)
    link.unlink()
    link.symlink_to(now)
    assert run
    assert (held(rolled)[BOTH], rolled.systemd.effective(run.place)) == ("1,5", {1, 5})
    in_sync(rolled)


def test_a_run_whose_cpus_are_reserved_shares_and_keeps_its_limits_until_it_stops(rolled: node.Node) -> None:
    run = services.running(rolled, BATCH)
    own = run.place.partition("/")[0]
    with rolled.by_hand():  # It is to lose its CPUs.
        roll_out(
            rolled, profile_with(cpu={**PROFILE["cpu"], "reserved": {"cpus": "0-1,4-5"}, "shared": {"min_cpus": 2}})
        )
    runs.tick(rolled.host())
    assert BOTH not in held(rolled)
    assert rolled.get(f"{CGROUP}/{own}/memory.max").strip() == str(64 << 20)
    services.stop(rolled, BATCH)
    for _turn in range(2):
        runs.tick(rolled.host())
    assert not rolled.has(f"{CGROUP}/{own}")
    assert not rolled.has(f"/run/systemd/system.control/{own}.d")


def test_a_tick_before_a_start_is_granted_leaves_its_slice_alone(rolled: node.Node) -> None:
    """systemd starts the slice, and the unit that asks for the grant, before that is granted."""
    (holder,) = services.required(rolled, BATCH)
    rolled.systemd.run_slice(services.slice_of(rolled, BATCH))
    services.invocation(rolled, holder)
    in_sync(rolled)


def test_the_live_file_of_a_run_comes_back(rolled: node.Node) -> None:
    run = services.running(rolled, BATCH)
    live = f"/run/systemd/system.control/{run.place.partition('/')[0]}.d/50-AllowedCPUs.conf"
    text = rolled.get(live)
    rolled.drop(live)
    rolled.systemctl("daemon-reload")
    assert runs.tick(rolled.host()) == 2
    assert rolled.get(live) == text
    in_sync(rolled)


def went_back(fake: node.Node, *, first: bool) -> None:
    """Declare a profile that was not confirmed in time and went back: the node's first one, or one after another."""
    if not first:
        roll_out(fake, without("batch"))
    refused = profile.parse(PROFILE)
    assert not confirming.declare(fake.host(), refused, None, confirming.Terms(20)).error
    fake.wait(30)
    runs.command(fake.host(), "confirm", "--tick")
    fake.put("/etc/corral/profile.json", json.dumps(profile.to_data(refused)))
    fake.wait(10)


def test_a_first_profile_is_in_force_until_the_node_has_gone_back(unconfirmed: node.Node) -> None:
    """Its time is over, and what goes back has not run yet: starts and releases wait for nothing."""
    unconfirmed.wait(30)
    assert services.start(unconfirmed, BATCH)
    services.stop(unconfirmed, BATCH)
    assert BOTH not in held(unconfirmed)


def test_drift_says_that_a_first_profile_went_back_and_not_what_it_would_change(ready: node.Node) -> None:
    went_back(ready, first=True)
    with pytest.raises(CorralError, match="went back"):
        runs.command(ready.host(), "drift")


@pytest.mark.parametrize(
    ("applied", "code"),
    [(None, 2), ("{", 2), ("[]", 1), ('{"name": 3}', 1)],
    ids=["lost", "torn", "of another hand", "of no profile"],
)
def test_a_last_profile_that_is_lost_beside_one_that_went_back(
    applied: str | None, code: int, ready: node.Node
) -> None:
    went_back(ready, first=False)
    right = ready.get(state.APPLIED)
    if applied is None:
        ready.drop(state.APPLIED)
    else:
        ready.put(state.APPLIED, applied)
    assert runs.tick(ready.host()) == code
    told = status(ready)
    assert "went back" in (told["error"] if code == 1 else " ".join(item["reason"] for item in told["items"]))
    assert code == 1 or json.loads(ready.get(state.APPLIED)) == json.loads(right)


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("batch:nonsense", "has no grant here|no such workload"),
        ("batch:", "has no grant here|no such workload"),
        ("batch:batch@b", "has no grant here|no such workload"),
        ("batch", "batch: has no grant here: release batch:batch@a"),
        ("nobody", "has no grant here|no such workload"),
    ],
)
def test_a_release_of_what_holds_nothing_is_refused(name: str, said: str, rolled: node.Node) -> None:
    assert services.start(rolled, BATCH)
    with pytest.raises(CorralError, match=said):
        runs.command(rolled.host(), "release", name)
    assert held(rolled)[BOTH] == "1,5"
    assert runs.command(rolled.host(), "release", BOTH) == 0, "an instance is released by its name"
    assert BOTH not in held(rolled)


@pytest.mark.parametrize("applied", [True, False], ids=["252", "257"])
def test_a_persistent_set_property_of_a_limit_is_named_and_goes(applied: bool, make: Make) -> None:
    """It hides what is set live: each daemon-reload would bring it back."""
    fake = make(reload_applies=applied)
    make_ready(fake)
    roll_out(fake)
    for unit in (DATAPLANE, BATCH):
        assert services.start(fake, unit)
    runs.tick(fake.host())
    for unit in (OWN, SHARED.rpartition("/")[2], r"corral_batch:batch\x40a.slice"):
        fake.systemctl("set-property", unit, "MemoryMax=200M")
        file = f"/etc/systemd/system.control/{unit}.d/50-MemoryMax.conf"
        assert fake.has(file)
        items = {(one.subject, one.property): one for one in runs.plan(fake.host())}
        assert items[unit, "MemoryMax by set-property"].location == file
        ticks_until_quiet(fake)
        fake.systemctl("daemon-reload")
        in_sync(fake)
        assert not fake.has(file)
    assert fake.get(f"{PLACE}/memory.max").strip() == str(128 << 20)


def test_the_limits_of_an_evicted_run_are_watched(rolled: node.Node) -> None:
    run = services.running(rolled, BATCH)
    roll_out(rolled, profile_with(cpu={**PROFILE["cpu"], "reserved": {"cpus": "0-1,4-5"}}))
    assert BOTH not in held(rolled)
    place = f"{CGROUP}/{run.place.split('/')[0]}/memory.max"
    assert rolled.get(place).strip() == str(64 << 20)
    rolled.systemctl("set-property", "--runtime", run.place.split("/")[0], "MemoryMax=512M")
    runs.tick(rolled.host())
    assert rolled.get(place).strip() == str(64 << 20)
    assert runs.printed(rolled.host(), "explain", BOTH, code=2).startswith(
        f"{BOTH} runs now, without a grant: on shared CPUs, with its limits;"
    )
    assert state_of(rolled, BOTH) == ("refused", workload_table.EVICTED), "it does not wait for a start"
    services.stop(rolled, "batch@a.service")
    runs.tick(rolled.host())
    assert state_of(rolled, BOTH) == ("waiting", None)


def state_of(fake: node.Node, name: str) -> tuple[str, str | None]:
    """What status.json says of a workload."""
    rows = json.loads(fake.get("/run/corral/status.json"))["workloads"]
    return next((row["state"], row["reason"]) for row in rows if row["name"] == name)


@pytest.mark.parametrize("how", ["removal", "profile"])
def test_a_start_that_was_refused_is_forgotten_with_the_unit_that_refused_it(rolled: node.Node, how: str) -> None:
    """systemctl --failed named it for good, and is-system-running said degraded."""
    assert services.start(rolled, "batch@a.service")
    assert services.start(rolled, "batch@b.service") is None, rolled.said
    assert rolled.systemd.failed == {r"corral-grant@batch:batch\x40b.service"}
    services.stop(rolled, "batch@a.service")
    runs.tick(rolled.host())
    assert rolled.systemd.failed, "it is still there to be seen"
    if how == "removal":
        assert not runs.remove(rolled.host()).error
    else:
        roll_out(rolled, profile_with(workloads=PROFILE["workloads"][:1]))
    assert not rolled.systemd.failed


def test_the_first_profile_has_its_pools_at_a_boot_after_its_time_to_be_confirmed(unconfirmed: node.Node) -> None:
    """Until the node has gone back it is in force, and units of its workloads start at once after the boot."""
    assert services.start(unconfirmed, DATAPLANE)
    unconfirmed.wait(30)
    services.reboot(unconfirmed)
    assert services.start(unconfirmed, DATAPLANE)
    with unconfirmed.by_hand():
        unconfirmed.intrude("rogue", procs=1)
    assert unconfirmed.systemd.kernel.shown(OWN) == "root"
    assert unconfirmed.exposed() == []


def test_a_tick_does_not_apply_a_first_profile_again_whose_time_is_over(unconfirmed: node.Node) -> None:
    """It may be the reason why nobody confirmed: the node goes back, also where that takes several turns."""
    unconfirmed.wait(30)
    file = f"{SYSTEM}/machine.slice.d/10-corral-cpu.conf"
    unconfirmed.drop(file)
    runs.tick(unconfirmed.host())
    assert not unconfirmed.has(file)


def test_an_admitted_run_keeps_its_grant_when_both_copies_of_the_checkpoint_go(rolled: node.Node) -> None:
    services.add(rolled, "guest.service")
    words = ("admit", "guest", "--unit", "guest.service", "--limits", "cpu=2,memory=16Mi", "--hold", "running")
    assert runs.command(rolled.host(), *words) == 0
    run = services.running(rolled, "guest.service")
    for path in state.rest_of(CHECKPOINT):
        if rolled.has(path):
            rolled.drop(path)
    rolled.drop(f"{SYSTEM}/guest.service.d/10-corral-workloads.conf")
    rolled.systemctl("daemon-reload")
    services.after_reload(rolled)
    runs.tick(rolled.host())
    assert (held(rolled)["guest"], rolled.systemd.effective(run.place)) == (cpuset.format(run.cpus), run.cpus)


def test_the_plan_of_a_removal_names_the_slices_that_running_workloads_keep(rolled: node.Node) -> None:
    said = f"will not be brought back: {OWN}: still holds processes, which a stop would end: stop what runs in it"
    assert any(one.startswith(said) for one in planning.plan_removal(rolled.host(), registry.names()).notes)
    assert any(said.endswith(one.partition(" (")[0]) for one in runs.remove(rolled.host()).leftovers)
    for unit in (DATAPLANE, FEED):
        services.stop(rolled, unit)
    assert planning.plan_removal(rolled.host(), registry.names()).notes == ()


def test_a_start_and_a_stop_name_the_workload_and_not_its_units_instance(rolled: node.Node) -> None:
    holder = "batch:batch\\x40a"
    services.invocation(rolled, f"corral-grant@{holder}.service")
    for words, said in ((("admit", "--start"), f"{BOTH}: CPUs "), (("release", "--stop"), f"{BOTH}: released")):
        assert runs.printed(rolled.host(), *words, holder).startswith(said)


def test_a_start_goes_by_the_profile_that_is_in_force(rolled: node.Node) -> None:
    """Not by a declared one that was not confirmed and went back, which drift names as well."""
    refused = profile.parse(profile_with(name="refused", cpu={**PROFILE["cpu"], "reserved": {"cpus": "1,5"}}))
    assert not confirming.declare(rolled.host(), refused, None, confirming.Terms(20)).error
    rolled.wait(30)
    runs.command(rolled.host(), "confirm", "--tick")
    rolled.put("/etc/corral/profile.json", json.dumps(profile.to_data(refused)))
    rolled.wait(10)
    runs.tick(rolled.host())
    assert "would have: 1,5" in runs.printed(rolled.host(), "explain", BATCH)
    run = services.running(rolled, BATCH)
    assert (run.cpus, rolled.cpus("system.slice")) == ({1, 5}, {0, 4})
    runs.tick(rolled.host())
    assert rolled.systemd.effective(run.place) == {1, 5}
    (item,) = json.loads(runs.printed(rolled.host(), "drift", "--json", code=2))["changes"]
    assert (item["subject"], "went back" in item["reason"]) == ("/etc/corral/profile.json", True)


def test_a_tick_in_the_middle_of_a_start_leaves_its_grant_alone(rolled: node.Node) -> None:
    """The grant is there, the process is not yet; kubernetes#103952."""
    (holder,) = services.required(rolled, BATCH)
    rolled.systemd.run_slice(services.slice_of(rolled, BATCH))
    assert services.hold(rolled, holder, rolled.host())
    for dummy in range(3):
        rolled.wait(300)
        runs.tick(rolled.host())
    assert services.begin(rolled, BATCH).cpus == {1, 5}
    in_sync(rolled)


def test_a_run_keeps_its_grant_when_the_file_that_requires_it_is_removed_by_hand(
    rolled: node.Node, capsys: pytest.CaptureFixture[str]
) -> None:
    """systemd stops the unit that holds the grant at the next daemon-reload, since nothing needs it any more."""
    run = services.running(rolled, BATCH)
    rolled.drop("/etc/systemd/system/batch@.service.d/10-corral-workloads.conf")
    rolled.systemctl("daemon-reload")
    services.after_reload(rolled)
    assert not rolled.holders
    assert f"{BOTH}: still runs, so its grant stays" in capsys.readouterr().out
    assert runs.tick(rolled.host()) == 2
    assert (held(rolled)[BOTH], rolled.systemd.effective(run.place)) == ("1,5", {1, 5})
    in_sync(rolled)
    services.stop(rolled, BATCH)
    assert runs.tick(rolled.host()) == 2
    assert (BOTH in held(rolled), shared(rolled)) == (False, "1,3,5,7")
    again = services.running(rolled, BATCH)
    assert again.cpus == {1, 5}


def test_a_unit_that_left_processes_in_its_slice_gives_its_grant_back(rolled: node.Node) -> None:
    run = services.running(rolled, BATCH)
    rolled.intrude(f"{run.place.partition('/')[0]}/left.service")
    services.stop(rolled, BATCH)
    assert BOTH not in held(rolled)


def test_a_unit_that_runs_elsewhere_gives_a_grant_back_that_it_never_used(ready: node.Node) -> None:
    assert services.start(ready, BATCH)
    roll_out(ready)
    (holder,) = services.required(ready, BATCH)
    assert services.hold(ready, holder, ready.host())
    assert held(ready)[BOTH]
    services.let_go(ready, holder, ready.host())
    assert BOTH not in held(ready)


def test_a_run_that_nobody_released_is_released_by_the_next_tick(rolled: node.Node) -> None:
    services.start(rolled, BATCH)
    services.end(rolled, BATCH)
    for holder in rolled.holders:
        (rolled.root / services.INVOCATIONS / f"invocation:{holder}").unlink()
    rolled.holders.clear()
    assert runs.tick(rolled.host()) == 2
    assert (BOTH in held(rolled), shared(rolled)) == (False, "1,3,5,7")
    assert any(change["reason"] == "its run has ended" for change in status(rolled)["last_changed"]["changes"])


@pytest.mark.parametrize("how", ["audit", "paused"])
def test_a_start_is_served_in_audit_mode_and_on_a_paused_node(how: str, rolled: node.Node) -> None:
    if how == "audit":
        roll_out(rolled, profile_with(mode="audit"))
    else:
        runs.command(rolled.host(), "pause", "--for", "1h")
    run = services.running(rolled, BATCH)
    assert run.cpus == {1, 5}
    services.stop(rolled, BATCH)
    assert BOTH not in held(rolled)
    assert rolled.overlaps == []


# What was declared otherwise


def test_a_running_workload_that_is_no_longer_declared_runs_as_shared_and_is_told(rolled: node.Node) -> None:
    outcome = roll_out(rolled, without("dataplane"))
    (item,) = outcome.remaining
    assert (item.subject, item.property, item.disruption) == (OWN, "placement", "service restart")
    assert "stop it, then start it" in item.reason
    assert (held(rolled), shared(rolled)) == ({"feed": ""}, "1-3,5-7")
    assert rolled.cpus(OWN) == {1, 2, 3, 5, 6, 7}
    assert services.restart(rolled, DATAPLANE).place == f"system.slice/{DATAPLANE}"  # type: ignore[union-attr]
    ticks_until_quiet(rolled)
    assert not rolled.has(PLACE)


def test_without_the_static_policy_a_run_keeps_its_cpus_until_it_ends(rolled: node.Node) -> None:
    services.start(rolled, BATCH)
    none = profile_with(cpu={**PROFILE["cpu"], "policy": "none"})
    roll_out(rolled, none)
    assert (held(rolled)["dataplane"], held(rolled)[BOTH]) == ("2,6", "1,5")
    services.stop(rolled, BATCH)
    services.stop(rolled, DATAPLANE)
    runs.tick(rolled.host())
    assert not any(held(rolled).values())
    assert shared(rolled) == "1-3,5-7"


def test_a_cpu_that_goes_offline_moves_its_workload_with_a_reason(rolled: node.Node) -> None:
    rolled.set_online(6)
    runs.tick(rolled.host())
    rolled.wait(10)
    runs.tick(rolled.host())
    assert (held(rolled)["dataplane"], shared(rolled), rolled.overlaps) == ("3,7", "1-2,5", [])
    assert not rolled.standing
    assert rolled.systemd.effective(rolled.runs[DATAPLANE].place) == {3, 7}
    rolled.set_online()
    runs.tick(rolled.host())
    assert (held(rolled)["dataplane"], shared(rolled)) == ("3,7", "1-2,5-6")


def test_a_shared_cpu_that_goes_offline_leaves_running_grants_alone(rolled: node.Node) -> None:
    assert services.start(rolled, BATCH)
    before = held(rolled)
    assert shared(rolled) == "3,7"
    rolled.set_online(7)
    for dummy in range(3):
        assert runs.tick(rolled.host()) == 2
    assert (held(rolled), rolled.cpus(OWN), rolled.overlaps) == (before, {2, 6}, [])
    (item,) = [one for one in status(rolled)["items"] if one["property"] == "cpu.shared.min_cpus"]
    assert (item["subject"], item["actual"], item["wanted"]) == ("corral.slice", "1 CPUs (3)", "2 CPUs")
    assert item["reason"].startswith("CPUs 7 are offline")
    rolled.set_online()
    runs.tick(rolled.host())
    in_sync(rolled)
    assert held(rolled) == before


# What cannot begin


REFUSED: dict[str, tuple[dict[str, t.Any], str]] = {
    "too many CPUs": (
        changed("dataplane", limits={"cpu": 6, "memory": "128Mi"}),
        "workloads[0].requests.cpu: 6: dataplane: the shared pool would be left with fewer than 2 CPUs",
    ),
    "too many CPUs for a NUMA node": (
        {**changed("dataplane", limits={"cpu": 4, "memory": "5Gi"}), "memory": {"policy": "static"}},
        "workloads[0].requests: cpu 4, memory 5Gi: dataplane: topology policy single-numa-node: ",
    ),
    "too much memory": (
        changed("feed", requests={"memory": "40Gi"}, limits={}),
        "workloads[1].requests.memory: 40Gi: feed: ",
    ),
    "a unit that two match": (
        changed("batch", match={"unit": "da*.service"}, hold="declared"),
        "workloads: dataplane.service: both dataplane and batch:dataplane match it: narrow the pattern of one",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_profile_with_a_workload_that_cannot_be_had_does_not_begin(name: str, fake: node.Node) -> None:
    install(fake)
    before, (data, said) = fake.fingerprint(), REFUSED[name]
    with pytest.raises(CorralError) as refused:
        applying.declare(fake.host(), profile.parse(data))
    assert any(problem.line().startswith(said) for problem in refused.value.problems), refused.value
    assert node.different(before, fake.fingerprint()) == []


@pytest.mark.parametrize(
    ("path", "text", "unit", "key", "said"),
    [
        ("/usr/lib/systemd/system/feed.service", "[Unit]\nDefaultDependencies=no\n[Service]\nExecStart=/usr/bin/feed\n", FEED,
         "workloads[1].match.unit", "DefaultDependencies=no"),
        (f"{SYSTEM}/{DATAPLANE}.d/50-place.conf", "[Service]\nSlice=system.slice\n", DATAPLANE,
         "workloads[0].match.unit", f"{SYSTEM}/{DATAPLANE}.d/50-place.conf"),
    ],
    ids=["it starts before Corral", "others keep it in another slice"],
)  # fmt: skip
def test_a_unit_that_cannot_be_placed_is_refused_by_path(
    path: str, text: str, unit: str, key: str, said: str, fake: node.Node
) -> None:
    install(fake)
    fake.put(path, text)
    before = fake.fingerprint()
    with pytest.raises(CorralError) as refused:
        applying.declare(fake.host(), profile.parse(PROFILE))
    (problem,) = refused.value.problems
    assert (problem.path, problem.value) == (key, unit)
    assert said in problem.message
    assert node.different(before, fake.fingerprint()) == []


def test_a_pattern_that_matches_nothing_is_noted(fake: node.Node) -> None:
    install(fake)
    outcome = roll_out(fake, changed("batch", match={"unit": "cron-*.service"}))
    assert "workload batch: no unit matches cron-*.service" in outcome.plan.notes


@pytest.mark.parametrize(("unit", "noted"), [("batch@*.service", False), ("bacth@*.service", True)])
def test_a_template_without_instances_is_no_pattern_that_matches_nothing(
    fake: node.Node, unit: str, noted: bool
) -> None:
    services.add(fake, DATAPLANE, FEED, "batch@.service")
    notes = roll_out(fake, changed("batch", match={"unit": unit})).plan.notes
    assert (f"workload batch: no unit matches {unit}" in notes) is noted


@pytest.mark.parametrize("unit", ["batch@*.service", "plain.service"])
@pytest.mark.parametrize(
    ("limits", "why"),
    [
        ({"cpu": 100, "memory": "64Mi"}, "requests.cpu: 100: 94 missing: this node can give 6 in all"),
        ({"cpu": 1, "memory": "64Mi"}, "requests.cpu: 1: SMT Alignment Error"),
        ({"cpu": 2, "memory": "64Gi"}, "requests.memory: 64Gi: "),
        ({"cpu": 6, "memory": "64Mi"}, "requests.cpu: 6: the shared pool would be left with fewer than"),
        ({"cpu": 4, "memory": "64Mi"}, ""),
    ],
)
def test_a_workload_whose_starts_would_all_be_refused_is_noted_at_the_rollout(
    fake: node.Node, unit: str, limits: dict[str, t.Any], why: str
) -> None:
    services.add(fake, DATAPLANE, FEED, "batch@.service", "plain.service")
    data = changed("batch", match={"unit": unit}, limits=limits)
    notes = roll_out(fake, data).plan.notes
    found = [note for note in notes if note.startswith("workload batch: ")]
    if why:
        (note,) = found
        assert note.startswith(f"workload batch: each of its starts would be refused on this node: {why}")
    else:
        assert not found


def test_a_file_that_cannot_be_written_is_no_leftover_of_the_undo(
    rolled: node.Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is as it was. Its own path is named, not that of the temporary file beside it."""
    path = f"{SYSTEM}/{OWN}.d/10-corral-workloads.conf"
    write = node.NodeHost.write_file

    def refused(self: node.NodeHost, target: str, text: str, mode: int = 0o644) -> None:
        if target == path:
            raise PermissionError(errno.EPERM, "Operation not permitted", f"{path}.corral")
        write(self, target, text, mode)

    before = rolled.fingerprint()
    monkeypatch.setattr(node.NodeHost, "write_file", refused)
    data = changed("dataplane", limits={"cpu": 2, "memory": "96Mi", "hugepages-2Mi": "32Mi", "pids": 64})
    outcome = applying.declare(rolled.host(), profile.parse(data))
    assert (outcome.error, outcome.leftovers) == (f"{path}: Operation not permitted", ())
    monkeypatch.undo()
    assert [line for line in node.different(before, rolled.fingerprint()) if "/run/corral" not in line] == []


def test_a_disk_that_is_full_when_the_checkpoint_is_written_leaves_the_node_as_before(rolled: node.Node) -> None:
    number = failing.number_of(rolled, lambda host: services.start(host.node, BATCH, host), f"write_file {CHECKPOINT}")
    others = ("run/corral", "var/lib/corral/journal")  # The journal knows more than it needs: no room to undo that.
    before = rolled.fingerprint(*others)
    assert services.start(rolled, BATCH, rolled.host("full", number)) is None
    assert "No space left on device" in rolled.said[0]
    assert node.different(before, rolled.fingerprint(*others)) == []
    in_sync(rolled)


# Damage


def granted(fake: node.Node) -> list[dict[str, t.Any]]:
    """All grants but for since when they are there."""
    return [{**row, "since": 0} for row in json.loads(fake.get(CHECKPOINT))["data"]["grants"]]


def hand_edited(text: str) -> str:
    return text.replace('"2,6"', '"2,3"')


DAMAGE: dict[str, tuple[t.Callable[[str], str | None], str]] = {
    "deleted": (lambda text: None, "is gone: grants are as the slices show them"),
    "truncated": (lambda text: text[: len(text) // 2], "is not JSON: truncated, or not Corral's"),
    "empty": (lambda text: "", "is not JSON: truncated, or not Corral's"),
    "foreign": (lambda text: '{"entries": {"pod": "0-3"}}', "is not Corral's"),
    "newer": (lambda text: text.replace('"version": 1', '"version": 2'), "is of version 2, this Corral writes 1"),
    "edited": (hand_edited, "was changed by hand, or is damaged (its checksum differs)"),
    "binary": (lambda text: "\0\1\2", "is not JSON: truncated, or not Corral's"),
}


@pytest.mark.parametrize("previous", [True, False])
@pytest.mark.parametrize("name", DAMAGE)
def test_a_damaged_checkpoint_is_set_aside_and_nobody_moves(name: str, previous: bool, rolled: node.Node) -> None:
    services.start(rolled, BATCH)
    in_sync(rolled)
    before = granted(rolled)
    damage, reason = DAMAGE[name]
    text = damage(rolled.get(CHECKPOINT))
    if not previous and rolled.has(f"{CHECKPOINT}.previous"):
        rolled.drop(f"{CHECKPOINT}.previous")
    if text is None:
        rolled.drop(CHECKPOINT)
    else:
        rolled.put(CHECKPOINT, text)
    places = {unit: rolled.systemd.effective(run.place) for unit, run in rolled.runs.items()}
    (item, *dummy) = runs.plan(rolled.host())
    assert (item.subject, item.manager) == (CHECKPOINT, "workloads")
    assert reason in item.reason
    host = rolled.host()
    assert runs.tick(host) == 2
    assert not any("set-property" in act and "AllowedCPUs" in act for act in host.acts), "nobody moves"
    assert {unit: rolled.systemd.effective(run.place) for unit, run in rolled.runs.items()} == places
    assert granted(rolled) == before
    if text is not None:
        assert rolled.get(f"{CHECKPOINT}.damaged") == text
    in_sync(rolled)


def tampered(place: str, file: str, text: str) -> t.Callable[[node.Node], None]:
    return lambda fake: fake.systemd.write_file(f"{place}/{file}".lstrip("/"), text)


def other_score(fake: node.Node) -> None:
    fake.put(f"/proc/{fake.runs[DATAPLANE].pid}/oom_score_adj", "0\n")


TAMPERED: dict[str, tuple[t.Callable[[node.Node], t.Any], str, str]] = {
    "cpuset.cpus": (tampered(PLACE, "cpuset.cpus", "2"), OWN, "AllowedCPUs"),
    "cpuset.mems": (tampered(PLACE, "cpuset.mems", "0-1"), OWN, "AllowedMemoryNodes"),
    "cpu.max": (tampered(SHARED, "cpu.max", "10000 100000"), "corral-feed.slice", "CPUQuota"),
    "cpu.max of exclusive CPUs": (tampered(PLACE, "cpu.max", "10000 100000"), OWN, "CPUQuota"),
    "cpu.weight": (tampered(PLACE, "cpu.weight", "100"), OWN, "CPUWeight"),
    "memory.max": (tampered(PLACE, "memory.max", "max"), OWN, "MemoryMax"),
    "memory.swap.max": (tampered(PLACE, "memory.swap.max", "max"), OWN, "MemorySwapMax"),
    "pids.max": (tampered(PLACE, "pids.max", "max"), OWN, "TasksMax"),
    "hugetlb": (tampered(PLACE, "hugetlb.2MB.max", "max"), OWN, "hugetlb.2MB"),
    "oom_score_adj": (other_score, "dataplane", "oom_score_adj"),
    "the partition": (tampered(PLACE, "cpuset.cpus.partition", "member"), OWN, "cpuset.cpus.partition"),
    "set-property": (
        lambda fake: fake.systemctl("set-property", "--runtime", OWN, "MemoryMax=infinity"), OWN, "MemoryMax",
    ),
    "set-property of CPUs": (
        lambda fake: fake.systemctl("set-property", "--runtime", OWN, "AllowedCPUs=2"), OWN, "AllowedCPUs",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", TAMPERED)
def test_what_a_hand_did_is_one_item_and_one_tick_mends_it(name: str, rolled: node.Node) -> None:
    def kernel() -> dict[str, str]:
        seen = rolled.fingerprint("run", "etc", "var", "usr", "dev")
        scores = [rolled.get(f"/proc/{run.pid}/oom_score_adj") for run in rolled.runs.values()]
        return {**seen, "scores": " ".join(scores)}

    do, subject, name = TAMPERED[name]
    before = kernel()
    with rolled.by_hand():
        do(rolled)
    assert kernel() != before
    (item,) = runs.plan(rolled.host())
    assert (item.subject, item.property, item.verdict) == (subject, name, "drift")
    assert runs.tick(rolled.host()) == 2
    assert node.different(before, kernel()) == []
    assert [change["property"] for change in status(rolled)["last_changed"]["changes"]] == [name]
    in_sync(rolled)


def test_a_unit_that_was_started_before_the_rollout_is_told_to_restart(fake: node.Node) -> None:
    install(fake)
    services.start(fake, DATAPLANE)
    (item,) = roll_out(fake).remaining
    assert (item.subject, item.property, item.actual, item.wanted) == (DATAPLANE, "slice", "system.slice", OWN)
    assert f"systemctl restart {DATAPLANE}" in item.reason
    services.restart(fake, DATAPLANE)
    in_sync(fake)


# By hand


def test_a_unit_whose_container_runs_elsewhere_is_named(rolled: node.Node) -> None:
    """As podman-generate-systemd(1) writes it."""
    lines = ["[Service]", "ExecStart=/usr/bin/podman run \\", "    --cgroups=no-conmon \\", "    image", ""]
    rolled.put("/usr/lib/systemd/system/feed.service", "\n".join(lines))
    (item,) = runs.plan(rolled.host())
    shown = (item.subject, item.property, item.actual, item.wanted, item.verdict)
    assert shown == (FEED, "container", "elsewhere", "corral-feed.slice", "unchangeable")
    assert "--cgroups=split" in item.reason
    rolled.put("/usr/lib/systemd/system/feed.service", "\n".join([*lines, "ExecStart=", "ExecStart=/usr/bin/feed", ""]))
    in_sync(rolled)


def test_a_unit_that_starts_a_container_which_is_not_in_its_slice_is_named(rolled: node.Node) -> None:
    rolled.put("/usr/lib/systemd/system/feed.service", "[Service]\nExecStart=/usr/bin/podman start -a web\n")
    (item,) = runs.plan(rolled.host())
    assert (item.subject, item.property, item.verdict) == (FEED, "container", "unchangeable")
    assert item.reason.startswith("podman start gives the container a control group elsewhere: use Quadlet, or create")
    rolled.intrude(f"corral.slice/corral-feed.slice/libpod-{64 * 'a'}.scope")
    in_sync(rolled)
    services.stop(rolled, FEED)
    rolled.withdraw(f"corral.slice/corral-feed.slice/libpod-{64 * 'a'}.scope")
    assert not [one for one in runs.plan(rolled.host()) if one.property == "container"], (
        "nothing is known of what does not run"
    )


def test_a_workload_is_admitted_by_hand_and_released(rolled: node.Node) -> None:
    services.add(rolled, "extra.service")
    words = ["extra", "--unit", "extra.service", "--limits", "cpu=2,memory=16Mi"]
    before = rolled.fingerprint()
    assert runs.command(rolled.host(), "admit", *words, "--dry-run") == 0
    assert node.different(before, rolled.fingerprint()) == []
    assert "extra: CPUs 1,5, memory of node 0, in corral_extra.slice" in runs.printed(rolled.host(), "admit", *words)
    assert services.running(rolled, "extra.service").cpus == {1, 5}
    ticks_until_quiet(rolled)
    services.stop(rolled, "extra.service")
    assert runs.command(rolled.host(), "release", "extra") == 0
    assert held(rolled) == {"dataplane": "2,6", "feed": ""}
    ticks_until_quiet(rolled)
    left = node.different(before, rolled.fingerprint("run/corral"))
    assert [line for line in left if not line.startswith(("run/corral", "var/lib/corral"))] == []


def test_the_slice_around_workloads_that_share_weighs_what_they_request_together(rolled: node.Node) -> None:
    def weight() -> str:
        return rolled.get(f"{CGROUP}/corral.slice/cpu.weight").strip()

    services.add(rolled, "extra.service")
    assert weight() == "100", "a request of 0.5 CPUs is worth less than the usual weight"
    assert runs.command(rolled.host(), "admit", "extra", "--unit", "extra.service", "--requests", "cpu=3") == 0
    assert weight() == str(1 + (3500 * 1024 // 1000 - 2) * 9999 // 262142)
    ticks_until_quiet(rolled)
    rolled.systemctl("set-property", "--runtime", "corral.slice", "CPUWeight=100")
    (item,) = runs.plan(rolled.host())
    assert (item.subject, item.property, item.actual) == ("corral.slice", "CPUWeight", "100")
    assert runs.tick(rolled.host()) == 2
    assert runs.command(rolled.host(), "release", "extra") == 0
    assert weight() == "100"
    ticks_until_quiet(rolled)


def test_a_grant_by_hand_under_a_run_stays_the_runs(rolled: node.Node) -> None:
    assert services.start(rolled, BATCH)
    run = next(row for row in granted(rolled) if row["workload"] == BOTH)["instance"]
    assert runs.command(rolled.host(), "admit", BOTH) == 0
    assert next(row for row in granted(rolled) if row["workload"] == BOTH)["instance"] == run
    services.stop(rolled, BATCH)
    assert BOTH not in held(rolled), "and ends with it"


def test_a_grant_by_hand_of_what_is_declared_is_no_runs(rolled: node.Node) -> None:
    assert runs.command(rolled.host(), "admit", "dataplane") == 0
    assert next(row for row in granted(rolled) if row["workload"] == "dataplane")["instance"] == ""
    in_sync(rolled)


def test_a_grant_by_hand_waits_no_longer_than_its_boot(rolled: node.Node) -> None:
    words = ("admit", "quick", "--container", "quick", "--limits", "cpu=2,memory=16Mi", "--hold", "running")
    assert runs.command(rolled.host(), *words) == 0
    assert held(rolled)["quick"] == "1,5"
    rolled.time += 1000  # A clock that is set ends nothing.
    assert runs.tick(rolled.host()) == 0
    assert held(rolled)["quick"] == "1,5"
    services.reboot(rolled)
    assert "quick" not in held(rolled)


def test_a_release_says_what_a_run_goes_on_to_hold(rolled: node.Node) -> None:
    services.add(rolled, "extra.service")
    words = ("extra", "--unit", "extra.service", "--limits", "cpu=2,memory=16Mi", "--hold", "running")
    assert runs.command(rolled.host(), "admit", *words) == 0
    assert services.start(rolled, "extra.service")
    said = runs.printed(rolled.host(), "release", "extra")
    assert said.startswith("extra: CPUs 1,5, ") and said.endswith(" in corral_extra.slice until it stops: it runs\n")
    services.stop(rolled, "extra.service")
    assert "extra" not in held(rolled)
    ticks_until_quiet(rolled)


def test_a_run_that_requests_much_leaves_no_reload_to_the_tick(rolled: node.Node) -> None:
    data = profile_with(
        workloads=[
            *PROFILE["workloads"],
            {"name": "job", "match": {"unit": "job.service"}, "hold": "running", "requests": {"cpu": 3}},
        ]
    )
    services.add(rolled, "job.service")
    roll_out(rolled, data)
    for dummy in range(2):
        assert services.start(rolled, "job.service")
        ticks_until_quiet(rolled)
        assert rolled.get(f"{CGROUP}/corral.slice/cpu.weight").strip() != "100"
        services.stop(rolled, "job.service")
        host = rolled.host()
        runs.tick(host)
        assert not any("daemon-reload" in act for act in host.acts)
        assert rolled.get(f"{CGROUP}/corral.slice/cpu.weight").strip() == "100"
        in_sync(rolled)
    roll_out(rolled, PROFILE)
    roll_out(rolled, profile_with(workloads=[]))
    assert not rolled.has("/run/systemd/system.control/corral.slice.d/50-CPUWeight.conf")


def test_a_profile_whose_workloads_request_much_is_removed_with_its_weight(fake: node.Node) -> None:
    before = fake.fingerprint()
    install(fake)
    data = changed("feed", requests={"cpu": 3, "memory": "64Mi"}, limits={"memory": "256Mi"})
    data["workloads"] = [one for one in data["workloads"] if one["name"] != "dataplane"]
    roll_out(fake, data)
    assert fake.get(f"{CGROUP}/corral.slice/cpu.weight").strip() == "118"
    assert runs.remove(fake.host()).leftovers == ()
    assert [line for line in node.different(before, fake.fingerprint()) if "weight" in line or "Weight" in line] == []


def test_an_admission_that_died_before_it_was_written_down_holds_nothing(rolled: node.Node) -> None:
    services.add(rolled, "extra.service")
    words = ("admit", "extra", "--unit", "extra.service", "--limits", "cpu=2,memory=16Mi", "--hold", "running")
    at = failing.number_of(rolled, lambda host: runs.command(host, *words), f"write_file {CHECKPOINT}")
    with pytest.raises(node.Killed):
        runs.command(rolled.host("killed", at), *words)
    assert held(rolled)["extra"] == "1,5"
    assert runs.tick(rolled.host()) == 2
    assert held(rolled) == {"dataplane": "2,6", "feed": ""}, "no start would find it"
    ticks_until_quiet(rolled)


def test_a_dry_run_has_the_notes_of_the_run(rolled: node.Node, capsys: pytest.CaptureFixture[str]) -> None:
    words = ("admit", "x", "--unit", "x.service", "--limits", "cpu=1500m,memory=1Mi")
    said = []
    for more in (("--dry-run",), ()):
        capsys.readouterr()
        assert runs.command(rolled.host(), *words, *more) == 0
        said.append(capsys.readouterr().err)
    assert said[0] == said[1] != ""


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (
            ("admit", "nobody"),
            "nobody: the profile declares no such workload with resources; corral status lists them, and --unit or --container admits",
        ),
        (
            ("admit", "batch"),
            "name: batch: is every unit that matches batch@*.service: name one of them, as in batch:UNIT",
        ),
        (("admit", "batch", "--dry-run"), "name: batch: is every unit that matches batch@*.service"),
        (
            ("admit", "x", "--unit", "x.service", "--limits", "cpu=1,cpu=2"),
            "cpu=1,cpu=2: cpu is there twice: leave one",
        ),
        (("status", "--tenants", "--html"), "--html: the page shows no tenants: leave out --html or --tenants"),
        (
            ("admit", "dataplane", "--unit", "x.service", "--limits", "cpu=1"),
            "name: dataplane: is declared in the node's profile",
        ),
        (("admit", "x", "--unit", "x.service", "--limits", "cpu"), "cpu: is not RESOURCE=AMOUNT"),
        (
            ("admit", "x", "--unit", "corral-reconcile.service", "--limits", "cpu=1,memory=1Mi"),
            "x.match.unit: corral-reconcile.service: is Corral's own",
        ),
        (("admit", "x", "--unit", "x.service", "--limits", "cpu=9,memory=1Mi"), "x.requests.cpu: 9: "),
        (("release", "nobody"), "name: nobody: no such workload was admitted here"),
        (("release", "dataplane"), "name: dataplane: holds what it has as long as the profile declares it"),
        (("explain", "nobody"), "nobody: no such workload is declared with resources"),
    ],
)
def test_a_hand_that_asks_for_what_cannot_be_is_told(words: tuple[str, ...], said: str, rolled: node.Node) -> None:
    before = rolled.fingerprint()
    with pytest.raises(CorralError) as refused:
        runs.command(rolled.host(), *words)
    assert str(refused.value).startswith(said)
    assert node.different(before, rolled.fingerprint()) == []


def test_status_shows_who_has_what(rolled: node.Node) -> None:
    services.start(rolled, BATCH)
    lines = [" ".join(line.split()) for line in runs.printed(rolled.host(), "status", code=None).splitlines()]
    memory = "cpu 2, hugepages-2Mi 32Mi, memory 128Mi"
    assert f"dataplane Guaranteed declared 2,6 1 {memory} {memory}, pids 64" in lines
    assert "feed Burstable declared shared - cpu 500m, memory 64Mi cpu 1500m, memory 256Mi" in lines
    assert f"{BOTH} Guaranteed running 1,5 0 cpu 2, memory 64Mi cpu 2, memory 64Mi" in lines
    assert "cpu: 4500m of 6 requested; limits 5500m" in lines
    assert f"R reserved 0,4 S shared 3,7 I isolated - E exclusive 1-2,5-6 ({BOTH} 1,5, dataplane 2,6)" in lines


def test_status_shows_by_how_much_limits_overcommit(rolled: node.Node) -> None:
    roll_out(rolled, changed("feed", limits={"cpu": 5, "memory": "256Mi"}))
    assert "cpu: 2500m of 6 requested; limits 7, 1 over what there is" in runs.printed(
        rolled.host(), "status", code=None
    )


def test_explain_says_why_a_workload_has_what_it_has(rolled: node.Node) -> None:
    assert runs.printed(rolled.host(), "explain", "dataplane").splitlines() == [
        "dataplane: granted",
        "class: Guaranteed, requests equal limits for CPU and memory",
        "CPUs: 2 of its own",
        f"has: 2,6 on NUMA node 1, in {OWN}",
        "exclusive CPUs: enforced by the kernel",
        "memory: bound to NUMA node 1",
        "placed by: topology policy single-numa-node, scope container",
    ]
    assert "has: the shared pool 1,3,5,7, in corral-feed.slice" in runs.printed(
        rolled.host(), "explain", "feed", code=None
    )


def test_explain_says_why_a_start_would_be_refused(rolled: node.Node) -> None:
    services.start(rolled, BATCH)
    said = runs.printed(rolled.host(), "explain", "batch:batch@b", code=2)
    assert "batch:batch@b: refused" in said
    assert "500m missing: this node can give 6 in all" in said


@pytest.mark.parametrize("text", ["batch@new", "batch@new.service", "batch:batch@new"])
def test_explain_knows_an_instance_that_has_not_started_yet(text: str, rolled: node.Node) -> None:
    said = runs.printed(rolled.host(), "explain", text)
    assert said.startswith("batch:batch@new: would be granted, if it started now\n")
    (row,) = json.loads(runs.printed(rolled.host(), "explain", text, "--json"))["workloads"]
    assert (row["state"], row["if_started"], row["run"], row["since"], bool(row["cpus"])) == (
        "waiting",
        True,
        None,
        None,
        True,
    )
    services.start(rolled, BATCH)
    assert "500m missing: this node can give 6 in all" in runs.printed(rolled.host(), "explain", text, code=2)


def test_explain_answers_by_the_workload_whose_file_a_start_reads(
    rolled: node.Node, capsys: pytest.CaptureFixture[str]
) -> None:
    special = {
        "name": "special",
        "match": {"unit": "batch@x.service"},
        "hold": "running",
        "limits": {"cpu": 4, "memory": "16Mi"},
    }
    roll_out(rolled, profile_with(workloads=[*PROFILE["workloads"], special]))
    for text in ("batch@x", "batch:batch@a:b", "batch@a:b"):
        capsys.readouterr()
        runs.command(rolled.host(), "explain", text)
        name = "special" if text == "batch@x" else "batch:batch@a:b"
        assert capsys.readouterr().out.startswith(f"{name}: ")


def test_explain_promises_no_grant_to_an_instance_that_is_not_known_yet(rolled: node.Node) -> None:
    roll_out(
        rolled,
        changed(
            "batch", hold="declared", limits={"cpu": 1, "memory": "16Mi"}, requests={"cpu": "100m", "memory": "16Mi"}
        ),
    )
    with pytest.raises(CorralError, match="is not known yet"):
        runs.command(rolled.host(), "explain", "batch@new")


def test_explain_finds_a_workload_by_its_unit(rolled: node.Node) -> None:
    assert runs.printed(rolled.host(), "explain", DATAPLANE).startswith("dataplane: granted")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("batch@var-lib", "has a dash"),
        ("batch@", "name one of them"),
        ("batch@*.service", "name one of them"),
        ("batch:batch@", "name one of them"),
        ("feed:batch@new", "no such workload"),
        ("x", "no such workload"),
    ],
)
def test_explain_refuses_what_no_start_is_granted_for(text: str, said: str, rolled: node.Node) -> None:
    with pytest.raises(CorralError, match=said):
        runs.command(rolled.host(), "explain", text)


def test_since_when_a_workload_has_what_it_has_does_not_move_with_the_clock(rolled: node.Node) -> None:
    services.start(rolled, BATCH)  # In the very second of the tick.
    for seconds in (0, 10, 10, 10):
        rolled.wait(seconds)
        in_sync(rolled)
        rows = {row["workload"]: row["since"] for row in json.loads(rolled.get(CHECKPOINT))["data"]["grants"]}
        shown = {row["name"]: row["since"] for row in status(rolled)["workloads"] if row["name"] in rows}
        assert shown == rows
        assert BOTH in rows


def test_what_threads_chose_is_remembered_for_a_whole_hand_over(
    rolled: node.Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[tuple[str, int]] = []
    monkeypatch.setattr(thread_masks, "record", lambda host, path, masks: seen.append((path, id(masks))))
    assert services.start(rolled, BATCH)
    assert len({path for path, dummy in seen}) > 1
    assert len({masks for dummy, masks in seen}) == 1


def test_a_start_loads_two_managers(rolled: node.Node, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: set[str] = set()
    manager = registry.manager

    def noted(name: str) -> Manager:
        asked.add(name)
        return manager(name)

    monkeypatch.setattr(registry, "manager", noted)
    assert services.start(rolled, BATCH)
    assert asked == {"cpu", "workloads"}


def test_a_start_plans_by_the_managers_that_it_needs_what_all_of_them_would_have_planned(
    rolled: node.Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where something goes back to what it was before Corral, all managers are asked whose it is."""
    asked: list[tuple[Plan, Plan]] = []
    plan_grants = planning.plan_grants

    def both(host: node.NodeHost, context: Context) -> Plan:
        asked.append((plan_grants(host, context), planning.plan_profile(host, context)))
        return asked[-1][0]

    monkeypatch.setattr(planning, "plan_grants", both)
    assert services.start(rolled, BATCH)
    services.stop(rolled, BATCH)
    assert services.start(rolled, OTHER)
    assert len(asked) >= 2
    planned = [(len(few.parts), len(all_.parts)) for few, all_ in asked]
    assert any(few < every for few, every in planned), "a start asks few"
    for few, every in asked:
        narrow, wide = (admit_workload.narrowed(plan, admit_workload.LATER) for plan in (few, every))
        assert narrow.changes == wide.changes
        assert narrow.obsolete == wide.obsolete


def test_options_of_what_the_profile_declares_are_refused(rolled: node.Node) -> None:
    with pytest.raises(CorralError) as refused:
        runs.command(rolled.host(), "admit", "batch:batch@a", "--limits", "cpu=2")
    assert refused.value.problems[0].path == "--limits"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--unit", "batch"), "extra.match.unit: batch: is not the full name of a unit: did you mean batch.service?"),
        (("--container", "extra", "--limits", "memory=1GB"), "extra.limits.memory: 1GB: is not a quantity"),
        (("--container", "extra", "--limits", "cpus=2"), "extra.limits.cpus: the key is not a resource"),
    ],
)
def test_options_of_an_admission_are_refused_by_the_workload_and_not_by_a_list(
    rolled: node.Node, words: tuple[str, ...], said: str
) -> None:
    with pytest.raises(CorralError) as caught:
        runs.command(rolled.host(), "admit", "extra", *words)
    assert str(caught.value).startswith(said)


def test_a_unit_that_is_not_there_yet_is_told_when_it_is_admitted(
    rolled: node.Node, capsys: pytest.CaptureFixture[str]
) -> None:
    assert runs.command(rolled.host(), "admit", "z", "--unit", "zzz.service", "--limits", "cpu=2,memory=16Mi") == 0
    assert "corral: workload z: this node has no unit zzz.service yet" in capsys.readouterr().err


# Units that run when they are declared


def running_before(fake: node.Node) -> dict[str, t.Any]:
    """A node on which the units of the profile run already; each with its process."""
    install(fake)
    services.add(fake, "feed2.service")
    assert not runs.install(fake.host()).error
    for unit in (DATAPLANE, FEED, BATCH):
        assert services.start(fake, unit)
    return {unit: run.pid for unit, run in fake.runs.items()}


def pids(fake: node.Node) -> dict[str, t.Any]:
    return {unit: run.pid for unit, run in fake.runs.items()}


def test_what_runs_when_it_is_declared_runs_on_and_is_named(fake: node.Node) -> None:
    before = running_before(fake)
    outcome = roll_out(fake)
    assert pids(fake) == before
    assert {(item.subject, item.property) for item in outcome.remaining} == {
        (DATAPLANE, "slice"),
        (FEED, "slice"),
        (BATCH, "slice"),
    }
    for _turn in range(3):
        runs.tick(fake.host())
    host = fake.host()
    runs.tick(host)
    assert not [act for act in host.acts if "/run/corral/" not in act]
    assert pids(fake) == before


@pytest.mark.parametrize("units", [(DATAPLANE,), (DATAPLANE, FEED), (DATAPLANE, FEED, BATCH)])
def test_going_back_stops_no_unit_that_ran_before(units: tuple[str, ...], fake: node.Node) -> None:
    before = running_before(fake)
    for unit in before.keys() - set(units):
        services.stop(fake, unit)
    before = pids(fake)
    roll_out(fake)
    assert runs.remove(fake.host()).error == ""
    assert pids(fake) == before
    assert not [path for path in fake.systemd.cgroups if path.startswith(("corral_", "corral.slice"))]


def test_an_undo_stops_no_unit_that_ran_before(fake: node.Node) -> None:
    before = running_before(fake)
    outcomes: list[Outcome] = []

    def act(host: node.NodeHost) -> None:
        outcomes.append(applying.declare(host, profile.parse(PROFILE)))

    for twin, what in failing.each(fake, act, "error"):
        assert pids(twin) == before, what
    assert any(outcome.error for outcome in outcomes)


def test_a_workload_that_leaves_while_its_unit_runs_elsewhere_stops_nothing(fake: node.Node) -> None:
    before = running_before(fake)
    roll_out(fake)
    roll_out(fake, without("dataplane", "batch"))
    assert pids(fake) == before
    for _turn in range(2):
        runs.tick(fake.host())
    assert pids(fake) == before


def test_a_release_by_hand_stops_no_unit_that_runs_elsewhere(fake: node.Node) -> None:
    before = running_before(fake)
    roll_out(fake, without("dataplane", "feed"))
    assert runs.command(fake.host(), "admit", "guest", "--unit", FEED, "--limits", "cpu=2,memory=16Mi") == 0
    assert runs.command(fake.host(), "release", "guest") == 0
    for _turn in range(2):
        fake.wait(200)
        runs.tick(fake.host())
    assert pids(fake) == before


def test_a_release_forgets_the_live_cpus_of_its_slice_also_while_a_file_waits_for_the_next_tick(
    rolled: node.Node,
) -> None:
    """Else the slice would start with CPUs that others have by then."""
    assert services.start(rolled, BATCH)
    rolled.drop("/etc/systemd/system/slices.target.d/10-corral-cpu.conf")
    services.stop(rolled, BATCH)
    control = f"/run/systemd/system.control/corral_{BOTH.replace('@', chr(92) + 'x40')}.slice.d"
    assert not rolled.has(f"{control}/50-AllowedCPUs.conf")
    ticks_until_quiet(rolled)
    assert not rolled.has(control)


def test_a_unit_that_runs_in_the_slice_of_a_workload_that_it_was_is_named(rolled: node.Node) -> None:
    """Another name is another slice, and a unit moves when it starts."""
    renamed = {**PROFILE["workloads"][1], "name": "feed2", "limits": {"cpu": 2, "memory": "64Mi"}}
    del renamed["requests"]
    data = profile_with(workloads=[PROFILE["workloads"][0], renamed, PROFILE["workloads"][2]])
    outcome = roll_out(rolled, data)
    (item,) = (one for one in outcome.remaining if one.subject == FEED)
    assert (item.actual, item.wanted) == ("corral-feed.slice", "corral_feed2.slice")
    services.restart(rolled, FEED)
    ticks_until_quiet(rolled)


def test_a_pods_grant_lasts_whatever_the_order_of_its_containers(fake: node.Node) -> None:
    cpu = {"reserved": {"count": 2}, "policy": "static"}
    rows = [{"name": one, "limits": {"cpu": 1, "memory": "16Mi"}} for one in ("zeta", "alpha", "mid")]

    def pod(*containers: dict[str, t.Any]) -> dict[str, t.Any]:
        return {
            "name": "x",
            "cpu": cpu,
            "workloads": [{"name": "web", "match": {"pod": "web"}, "containers": containers}],
        }

    assert roll_out(fake, pod(*rows[:2])).remaining == ()
    assert roll_out(fake, pod(*rows[:2])).applied == (), "the checkpoint keeps no order"
    grown = roll_out(fake, pod(*rows)).applied
    assert [one.subject for one in grown if one.property == "grant"] == ["web"]


def test_an_admitted_workload_keeps_its_cpus_until_it_starts_although_its_declaration_is_lost(fake: node.Node) -> None:
    assert not runs.install(fake.host()).error
    roll_out(fake, {"name": "x", "cpu": {"reserved": {"count": 2}, "policy": "static"}})
    words = ("--container", "box", "--limits", "cpu=2,memory=16Mi", "--hold", "running")
    assert runs.command(fake.host(), "admit", "box", *words) == 0
    (granted,) = json.loads(fake.get(CHECKPOINT))["data"]["grants"]
    for path in (state.ADMITTED, f"{state.ADMITTED}.previous"):
        fake.put(path, "{")
    runs.tick(fake.host())
    (kept,) = json.loads(fake.get(CHECKPOINT))["data"]["grants"]
    assert kept["cpus"] == granted["cpus"] != ""


def test_the_cpus_of_a_pod_are_divided_again_when_its_containers_exchange_theirs(fake: node.Node) -> None:
    def pod(app: int, proxy: int) -> dict[str, t.Any]:
        rows = [
            {"name": name, "limits": {"cpu": cpu, "memory": "16Mi"}} for name, cpu in (("app", app), ("proxy", proxy))
        ]
        return {
            "name": "x",
            "cpu": {"reserved": {"count": 2}, "policy": "static"},
            "workloads": [{"name": "web", "match": {"pod": "web"}, "containers": rows}],
        }

    def divided() -> dict[str, int]:
        (grant,) = json.loads(fake.get(CHECKPOINT))["data"]["grants"]
        return {name: len(cpuset.parse(cpus)) for name, cpus in grant["containers"].items()}

    roll_out(fake, pod(1, 2))
    assert divided() == {"app": 1, "proxy": 2}
    assert [one.subject for one in roll_out(fake, pod(2, 1)).applied if one.property == "grant"] == ["web"]
    assert divided() == {"app": 2, "proxy": 1}


@pytest.mark.parametrize("pattern", ["x-1", "x-*"])
def test_a_profile_with_what_an_admitted_workload_matches_is_refused_until_that_is_released(
    pattern: str, fake: node.Node
) -> None:
    """As the admission is beside such a profile: a container x-1 would belong to both."""
    assert not runs.install(fake.host()).error
    data: dict[str, t.Any] = {"name": "x", "cpu": {"reserved": {"count": 2}, "policy": "static"}}
    roll_out(fake, data)
    words = ("--container", pattern, "--limits", "cpu=2,memory=16Mi")
    assert runs.command(fake.host(), "admit", "all", *words) == 0
    limits = {"cpu": 2, "memory": "16Mi"}
    data = {**data, "workloads": [{"name": "one", "match": {"container": "x-1"}, "limits": limits}]}
    said = "x-1: all, which was admitted at run time, matches it: corral release all"
    with pytest.raises(CorralError, match=said):
        applying.declare(fake.host(), profile.parse(data))
    assert runs.command(fake.host(), "release", "all") == 0
    assert roll_out(fake, data).remaining == ()
    assert runs.tick(fake.host()) == 0
