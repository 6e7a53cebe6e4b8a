# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What nobody declared: it is named, confined where the profile says so, and in no grant's way when it comes and goes."""

from __future__ import annotations

import functools
import shutil
import typing as t

import failing
import node
import pytest
import runs
import services
from _core.host import state
from _core.managers.cpu import cpu_moves
from _core.model.plan import make_step
from _core.model.plan.plan import CPUS, Plan, Step
from _core.model.profile import profile
from _core.model.values import cpuset
from _core.model.values.errors import CorralError
from _core.pipeline import admit_workload, applying, overlap_check, planning
from _core.pipeline.allocate_workloads import Request
from fake_cpusets import BOOKWORM, FORKY, TRIXIE
from test_exclusive import (
    BATCH_SLICE,
    CHECKPOINT,
    PARTITION,
    apply,
    apply_at,
    items,
    partition,
    rolled_on,
    ticks_until_quiet_after,
    with_cpu,
)
from test_workloads import (
    BATCH,
    CGROUP,
    DATAPLANE,
    OWN,
    PROFILE,
    SYSTEM,
    held,
    in_sync,
    rolled,
    shared,
    status,
    ticks_until_quiet,
    without,
)

__all__ = ["rolled"]

Make = t.Callable[..., node.Node]


# Intruders


@pytest.mark.parametrize(
    "path",
    ["rogue.service", "rogue.slice/x.service", "lxc", "lxc/web.example", "cpu.mine", "a.mount", "my-app.slice",
     "corral_rogue.slice/x.service"],
)  # fmt: skip
def test_what_nobody_declared_is_off_exclusive_cpus_and_named(path: str, rolled: node.Node) -> None:
    rolled.intrude(path)
    top = path.partition("/")[0]
    assert not rolled.systemd.effective(path) & rolled.cpus(OWN)
    (change,) = (one for one in runs.plan(rolled.host()) if one.subject == top and one.property == "placement")
    assert change.verdict == "unchangeable"
    assert rolled.exposed() == []


@pytest.mark.parametrize(("name", "named"), [("rogue.slice", True), ("lxc", True), ("a.mount", False)])
def test_an_empty_group_counts_where_the_kernel_keeps_nobody_out(name: str, named: bool, rolled: node.Node) -> None:
    rolled.intrude(name, procs=0)
    assert name not in items(rolled), "a partition keeps out what starts there"
    assert apply(rolled, with_cpu(partitions=False)).error == ""
    found = items(rolled)
    assert (name in found) == named
    if not named:
        return
    change = found[name]
    assert (change.actual, change.verdict) == ("is empty, would run on 0-7", "unchangeable")
    assert change.reason.startswith("on corral_dataplane.slice's ")
    assert apply(rolled, with_cpu(partitions=False, unmanaged="confine")).error == ""
    if name.endswith(".slice"):
        assert rolled.cpus(name) == rolled.cpus("corral.slice")
        assert name not in items(rolled)
    else:
        assert items(rolled)[name].verdict == "unchangeable"


def confine_rogue(fake: node.Node) -> None:
    """rogue.slice runs, with a process, and is confined."""
    fake.systemctl("start", "rogue.slice")
    fake.systemd.occupy("rogue.slice")
    assert apply(fake, with_cpu(unmanaged="confine")).remaining == ()


def test_outsiders_can_be_confined_until_the_removal(rolled: node.Node) -> None:
    confine_rogue(rolled)
    assert cpuset.format(rolled.cpus("rogue.slice")) == shared(rolled)
    assert runs.tick(rolled.host()) == 0
    # What comes later is confined by the next tick, and what was there when it asked for others' CPUs as well.
    with rolled.by_hand():
        rolled.systemctl("start", "greedy.slice")
        rolled.systemctl("set-property", "--runtime", "greedy.slice", "AllowedCPUs=2-3")
    ticks_until_quiet_after(rolled)
    assert cpuset.format(rolled.cpus("greedy.slice")) == shared(rolled)
    assert partition(rolled) == "root"
    runs.remove(rolled.host())
    assert rolled.cpus("rogue.slice") == rolled.systemd.online


def test_a_confined_unit_of_systemd_run_is_in_its_place(rolled: node.Node) -> None:
    """What is set of a transient unit systemd keeps beside the unit: those are Corral's own CPUs, not another's."""
    confine_rogue(rolled)
    written, name = rolled.root / "run/systemd/system.control/rogue.slice.d", "50-AllowedCPUs.conf"
    rolled.put(f"/run/systemd/transient/rogue.slice.d/{name}", (written / name).read_text())
    shutil.rmtree(written)
    assert items(rolled) == {}


def test_a_service_at_the_top_is_confined_as_long_as_it_runs(rolled: node.Node) -> None:
    rolled.intrude("rogue.service")
    assert apply(rolled, with_cpu(unmanaged="confine")).remaining == ()
    assert cpuset.format(rolled.cpus("rogue.service")) == shared(rolled)
    in_sync(rolled)
    rolled.withdraw("rogue.service")
    assert not rolled.systemd.units["rogue.service"].running
    ticks_until_quiet_after(rolled)


@pytest.mark.parametrize("cpu", [{"unmanaged": "confine"}, {}], ids=["confined", "confined earlier"])
@pytest.mark.parametrize("top", ["rogue.service", "rogue.slice"])
def test_a_unit_that_was_confined_starts_anew_off_later_grants(
    top: str, cpu: dict[str, str], rolled: node.Node
) -> None:
    """In audit mode no tick takes back what was set of it, but services that start are granted CPUs."""
    rolled.intrude(top)
    assert apply(rolled, with_cpu(unmanaged="confine")).remaining == ()
    assert apply(rolled, {**with_cpu(**cpu), "mode": "audit"}).error == ""
    rolled.withdraw(top)
    assert rolled.has(f"/run/systemd/system.control/{top}.d/50-AllowedCPUs.conf")
    assert services.start(rolled, BATCH)
    rolled.intrude(top)
    exclusive = rolled.cpus(OWN) | rolled.cpus(BATCH_SLICE)
    assert (partition(rolled, BATCH_SLICE), rolled.cpus(top) & exclusive) == ("root", frozenset())
    assert rolled.overlaps == []


@pytest.mark.parametrize("workloads", [True, False])
def test_an_isolated_pool_comes_back_beside_a_unit_that_was_confined(*, workloads: bool, rolled: node.Node) -> None:
    """What runs in the pool's slice shared its CPUs meanwhile with others, and with that unit at its start."""
    pool = {"cores": 1}

    def data(**cpu: t.Any) -> dict[str, t.Any]:
        found = with_cpu(unmanaged="confine", **cpu)
        return found if workloads else {key: value for key, value in found.items() if key != "workloads"}

    assert apply(rolled, data(isolated=pool)).error == ""
    rolled.systemd.occupy("corral_isolated.slice")
    rolled.intrude("rogue.service")
    assert apply(rolled, data()).error == ""
    rolled.withdraw("rogue.service")
    assert apply(rolled, data(isolated=pool)).error == ""
    assert partition(rolled, "corral_isolated.slice") == "root"
    rolled.intrude("rogue.service")
    assert not rolled.cpus("rogue.service") & rolled.cpus("corral_isolated.slice")


def test_a_container_in_a_slice_that_nobody_granted_anything_runs_with_the_others(rolled: node.Node) -> None:
    """Started before ``corral admit``, with --cgroup-parent: CPUs that are left, not everybody's exclusive ones."""
    assert services.start(rolled, BATCH)
    rolled.intrude("corral_early.slice/libpod-1.scope")
    place = "corral_early.slice/libpod-1.scope"
    assert not rolled.systemd.effective(place) & (rolled.cpus(OWN) | rolled.cpus(BATCH_SLICE))
    runs.tick(rolled.host())
    assert cpuset.format(rolled.systemd.effective(place)) == shared(rolled)
    assert rolled.overlaps == []


def test_a_slice_that_starts_on_demand_is_there_and_off_running_grants(rolled: node.Node) -> None:
    assert services.start(rolled, BATCH)
    with rolled.by_hand():
        rolled.systemctl("stop", "machine.slice")
        rolled.systemctl("start", "machine.slice")
    rolled.systemd.occupy("machine.slice")
    assert not rolled.cpus("machine.slice") & rolled.cpus(BATCH_SLICE)
    assert partition(rolled, BATCH_SLICE) == "root"


def test_a_confined_unit_that_ends_is_no_matter(rolled: node.Node) -> None:
    confine_rogue(rolled)
    rolled.systemd.occupy("rogue.slice", 0)
    rolled.systemctl("stop", "rogue.slice")
    ticks_until_quiet_after(rolled)


def test_confining_can_be_taken_back_while_grants_are_in_force(rolled: node.Node) -> None:
    confine_rogue(rolled)
    assert [item.subject for item in apply(rolled, PROFILE).remaining] == ["rogue.slice"]
    assert partition(rolled) == "root"


def test_an_administrator_may_take_over_a_unit_that_was_confined(made_once: node.MadeOnce) -> None:
    """By a persistent set-property: what the unit requested before Corral may be a grant's by now."""
    fake = rolled_on(made_once, BOOKWORM)
    fake.systemctl("start", "rogue.slice")
    with fake.by_hand():
        fake.systemctl("set-property", "--runtime", "rogue.slice", "AllowedCPUs=1,3,5")
    fake.systemd.occupy("rogue.slice")
    assert apply(fake, with_cpu(unmanaged="confine")).remaining == ()
    assert services.start(fake, BATCH)
    assert fake.cpus(BATCH_SLICE) == {1, 5}
    assert apply(fake, PROFILE).error == ""
    with fake.by_hand():
        fake.systemctl("set-property", "rogue.slice", "AllowedCPUs=3,7")
    for _turn in range(3):
        assert runs.tick(fake.host()) == 2, status(fake)["error"]
    assert (partition(fake, BATCH_SLICE), fake.overlaps) == ("root", [])


def test_after_a_boot_nothing_is_requested_for_a_unit_that_was_confined(made_once: node.MadeOnce) -> None:
    """The boot ended the request. To give the unit all CPUs would make one that nobody can take back."""
    fake = rolled_on(made_once, TRIXIE)
    fake.systemctl("start", "rogue.slice")
    with fake.by_hand():
        fake.systemctl("set-property", "--runtime", "rogue.slice", "AllowedCPUs=3-5")
    fake.systemd.occupy("rogue.slice")
    assert apply(fake, with_cpu(unmanaged="confine")).remaining == ()
    assert apply(fake, PROFILE).error == ""
    services.reboot(fake)
    fake.systemctl("start", "rogue.slice")
    fake.systemd.occupy("rogue.slice")
    for _turn in range(2):
        runs.tick(fake.host())
    assert not fake.systemd.cgroups["rogue.slice"].requested
    assert services.start(fake, BATCH)
    assert partition(fake, BATCH_SLICE) == "root"


def reserve_for_itself(fake: node.Node, name: str, cpus: str) -> None:
    """A control group by hand, whose CPUs no partition beside it can have (kernel 6.7 and later)."""
    fake.intrude(name, procs=0)
    with fake.by_hand():
        fake.kernel_write(f"{CGROUP}/{name}/cpuset.cpus.exclusive", cpus)


def request(fake: node.Node, name: str, cpus: str) -> None:
    fake.intrude(name, cpus)


BY_HAND = [(reserve_for_itself, TRIXIE), (reserve_for_itself, FORKY), (request, BOOKWORM), (request, TRIXIE)]


@pytest.mark.parametrize(("ask", "kind"), BY_HAND)
def test_a_start_gets_cpus_that_nothing_else_at_the_top_asks_for(
    ask: t.Any, kind: t.Any, made_once: node.MadeOnce
) -> None:
    trial = rolled_on(made_once, kind)
    fake = trial.clone(trial.root.with_name("fake"))
    assert services.start(trial, BATCH)
    usual = trial.cpus(BATCH_SLICE)
    ask(fake, "byhand", cpuset.format(usual - {min(usual)}))
    assert services.start(fake, BATCH)
    assert (partition(fake, BATCH_SLICE), fake.cpus(BATCH_SLICE) & usual, len(usual)) == ("root", frozenset(), 2)
    assert fake.overlaps == []
    item = items(fake)["byhand"]
    assert (item.verdict, "exclusive" in item.reason) == ("unchangeable", ask is reserve_for_itself)
    given = fake.cpus(BATCH_SLICE)
    runs.tick(fake.host())
    assert fake.cpus(BATCH_SLICE) == given, "it stays there"


@pytest.mark.parametrize(("ask", "kind"), BY_HAND)
def test_a_start_that_would_share_with_a_group_by_hand_is_refused(
    ask: t.Any, kind: t.Any, made_once: node.MadeOnce
) -> None:
    fake = rolled_on(made_once, kind)
    ask(fake, "byhand", "1,3,5,7")
    assert services.start(fake, BATCH) is None
    assert list(held(fake)) == ["dataplane", "feed"]
    with pytest.raises(CorralError, match="byhand would have CPUs of"):
        admit_workload.planned(fake.host(), Request({"batch:batch@a": "run"}), "batch:batch@a")


def test_a_group_by_hand_that_is_a_partition_by_its_exclusive_cpus_keeps_them(made_once: node.MadeOnce) -> None:
    fake = rolled_on(made_once, FORKY)
    reserve_for_itself(fake, "byhand", "5")
    fake.kernel_write(f"{CGROUP}/byhand/{PARTITION}", "root")
    assert services.start(fake, BATCH)
    assert partition(fake, BATCH_SLICE) == "root"
    assert "so no pool has CPUs 5" in items(fake)["byhand"].reason
    assert fake.exposed() == []


@pytest.mark.parametrize("kind", [TRIXIE, BOOKWORM])
def test_cpusets_that_a_program_switched_off_are_named_and_come_back(kind: t.Any, made_once: node.MadeOnce) -> None:
    """systemd does not look again whether the controller is on, and a property that it sets comes to nothing."""
    fake = rolled_on(made_once, kind)
    assert services.start(fake, BATCH)
    in_sync(fake)
    own = fake.cpus(BATCH_SLICE)
    with fake.by_hand():
        fake.kernel_write(f"{CGROUP}/cgroup.subtree_control", "-cpuset")
    item = items(fake)[f"{CGROUP}/cgroup.subtree_control"]
    assert (item.actual, item.wanted, item.verdict) == ("off", "on", "drift")
    ticks_until_quiet_after(fake)
    assert (partition(fake), partition(fake, BATCH_SLICE), fake.cpus(BATCH_SLICE)) == ("root", "root", own)
    runs.remove(fake.host())


@pytest.mark.parametrize("kind", [TRIXIE, BOOKWORM])
def test_a_slice_that_leaves_the_profile_is_in_no_grants_way(kind: t.Any, made_once: node.MadeOnce) -> None:
    fake = rolled_on(made_once, kind)
    fake.systemctl("start", "extra.slice")
    fake.systemd.occupy("extra.slice")
    reserved = PROFILE["cpu"]["reserved"]
    data = with_cpu(reserved={**reserved, "slices": ["system.slice", "user.slice", "init.scope", "extra.slice"]})
    assert apply(fake, data).error == ""
    assert fake.cpus("extra.slice") == fake.cpus("system.slice")
    assert apply(fake, PROFILE).error == ""
    assert services.start(fake, BATCH)
    assert partition(fake, BATCH_SLICE) == "root"
    assert not fake.cpus("extra.slice") & fake.cpus(BATCH_SLICE)


def test_an_undo_gives_a_running_grant_its_partition_back(made_once: node.MadeOnce) -> None:
    """The new slice that is to have its CPUs stops late, after systemd has read all files."""
    fake = rolled_on(made_once, TRIXIE)
    assert services.start(fake, BATCH)
    more = {"name": "more", "match": {"unit": "more.service"}, "limits": {"cpu": 2, "memory": "64Mi"}}
    data = {**without("dataplane"), "workloads": [*without("dataplane")["workloads"], more]}
    host = fake.clone(fake.root.with_name("trial")).host()
    assert apply_at(host, data).error == ""
    number = max(n for n, act in enumerate(host.acts, 1) if act == "run systemctl daemon-reload")
    outcome = apply_at(fake.host("error", number), data)
    assert (bool(outcome.error), outcome.leftovers) == (True, ())
    assert (partition(fake), fake.exposed()) == ("root", [])


def test_an_admission_leaves_a_slice_whose_files_are_still_to_go(rolled: node.Node) -> None:
    """systemd would start it with the CPUs of its file, which others have by then."""
    assert (
        runs.command(rolled.host(), "admit", "guest", "--unit", "guest.service", "--limits", "cpu=2,memory=16Mi") == 0
    )
    slice_name = "corral_guest.slice"
    had = rolled.cpus(slice_name)
    number = failing.number_of(
        rolled, lambda host: runs.command(host, "release", "guest"), "run systemctl set-property"
    )
    with pytest.raises(node.Killed):
        runs.command(rolled.host("killed", number), "release", "guest")
    assert services.start(rolled, BATCH)
    assert rolled.cpus(BATCH_SLICE) == had, "else this shows nothing"
    rolled.systemctl("daemon-reload")
    rolled.systemctl("start", slice_name)
    assert not rolled.cpus(slice_name) & had
    assert partition(rolled, BATCH_SLICE) == "root"
    runs.tick(rolled.host())
    in_sync(rolled)


def test_a_unit_that_was_confined_has_what_grants_leave_as_they_come_and_go(rolled: node.Node) -> None:
    """Clearing AllowedCPUs= leaves the kernel's request, which would keep the next grant from being a partition."""
    rolled.systemctl("start", "rogue.slice")
    rolled.systemd.occupy("rogue.slice")
    with rolled.by_hand():
        rolled.systemctl("start", "greedy.slice")
        rolled.systemctl("set-property", "--runtime", "greedy.slice", "AllowedCPUs=3-5")
    rolled.systemd.occupy("greedy.slice")
    assert apply(rolled, with_cpu(unmanaged="confine")).remaining == ()
    context = planning.compile_profile(rolled.host(), profile.parse(PROFILE))
    (item,) = (one for one in planning.plan_profile(rolled.host(), context).changes if one.subject == "rogue.slice")
    left_by_grants = cpuset.format(rolled.systemd.online - rolled.cpus(OWN))
    assert (item.verdict, item.wanted) == ("drift", f"CPUs {left_by_grants}")
    assert apply(rolled, PROFILE).error == ""
    assert items(rolled)["rogue.slice"].verdict == "unchangeable", "it has these CPUs now, and is in no pool"
    asked, online = frozenset({3, 4, 5}), rolled.systemd.online

    def left(*units: str) -> frozenset[int]:
        return online - frozenset().union(*(rolled.cpus(unit) for unit in units))

    assert rolled.cpus("rogue.slice") == left(OWN)
    assert rolled.cpus("greedy.slice") == left(OWN) & asked
    assert services.start(rolled, BATCH)
    assert (partition(rolled), partition(rolled, BATCH_SLICE)) == ("root", "root")
    assert rolled.cpus("rogue.slice") == left(OWN, BATCH_SLICE)
    assert rolled.cpus("greedy.slice") == left(OWN, BATCH_SLICE) & asked
    services.stop(rolled, BATCH)
    runs.tick(rolled.host())
    assert rolled.cpus("rogue.slice") == left(OWN)
    host = rolled.host()
    assert runs.tick(host) == 2, "both are named"
    assert [act for act in host.acts if not act.startswith("write_file /run/corral/")] == []
    runs.remove(rolled.host())
    assert rolled.cpus("rogue.slice") == online
    assert rolled.cpus("greedy.slice") == asked


def confined_once(made_once: node.MadeOnce) -> node.Node:
    """A node with rogue.slice, which was confined and is only reported since."""
    fake = rolled_on(made_once, TRIXIE)
    confine_rogue(fake)
    assert apply(fake, PROFILE).error == ""
    return fake


def about_rogue(fake: node.Node, seconds: float) -> list[str]:
    """What a tick does to rogue.slice."""
    fake.wait(seconds)
    host = fake.host()
    runs.tick(host)
    return [act for act in host.acts if "rogue.slice" in act]


def test_a_unit_that_was_confined_and_started_anew_requests_nothing(made_once: node.MadeOnce) -> None:
    fake = confined_once(made_once)
    fake.systemd.occupy("rogue.slice", 0)
    fake.systemctl("stop", "rogue.slice")
    shutil.rmtree(fake.root / "run/systemd/system.control/rogue.slice.d", ignore_errors=True)
    fake.systemctl("daemon-reload")
    fake.systemctl("start", "rogue.slice")
    fake.systemd.occupy("rogue.slice")
    assert about_rogue(fake, 10) == []
    assert not fake.systemd.cgroups["rogue.slice"].requested


def test_a_slice_starts_with_its_own_cpus_whatever_was_set_live_before_its_last_stop(made_once: node.MadeOnce) -> None:
    fake = exclusive_slice_stopped(made_once)
    assert apply(fake, PROFILE).error == ""
    assert (partition(fake), partition(fake, BATCH_SLICE), fake.overlaps) == ("root", "root", [])


FOREIGN_SHARED = f"{SYSTEM}/machine.slice.d/90-admin.conf"


def shared_slice_stopped(made_once: node.MadeOnce) -> node.Node:
    """A node on which machine.slice does not run, and would start with all CPUs by a file of another author."""
    fake = rolled_on(made_once, BOOKWORM)
    with fake.by_hand():
        fake.systemctl("stop", "machine.slice")
    fake.put(FOREIGN_SHARED, "[Slice]\nAllowedCPUs=0-7\n")
    fake.intrude("lxc/web.example")
    return fake


def test_a_shared_slice_starts_with_its_own_cpus_whatever_others_wrote(made_once: node.MadeOnce) -> None:
    fake = shared_slice_stopped(made_once)
    assert services.start(fake, BATCH)
    assert "machine.slice" in fake.systemd.cgroups
    assert (partition(fake), partition(fake, BATCH_SLICE), fake.overlaps) == ("root", "root", [])


def exclusive_slice_stopped(made_once: node.MadeOnce) -> node.Node:
    """A node on which dataplane's slice does not run, is not declared, and would start with all CPUs, those of batch@a among them."""
    fake = rolled_on(made_once, BOOKWORM)
    services.stop(fake, DATAPLANE)
    assert apply(fake, without("dataplane")).remaining == ()
    assert services.start(fake, BATCH)
    fake.intrude("lxc/web.example")
    fake.put(f"/run/systemd/system.control/{OWN}.d/50-AllowedCPUs.conf", "[Slice]\nAllowedCPUs=0-7\n")
    return fake


@pytest.mark.parametrize("prepared", [shared_slice_stopped, exclusive_slice_stopped])
def test_a_plan_that_starts_a_slice_before_it_sets_its_cpus_is_refused(
    prepared: t.Callable[[node.MadeOnce], node.Node], made_once: node.MadeOnce, monkeypatch: pytest.MonkeyPatch
) -> None:
    def start_first(unit: str, cpus: frozenset[int], seen: t.Any, first: int, second: int) -> list[Step]:
        assignment = make_step.unit_property(unit, "AllowedCPUs", cpuset.format(cpus), CPUS, second)
        return [make_step.unit(unit, "start", CPUS, first), assignment]

    fake = prepared(made_once)
    monkeypatch.setattr(cpu_moves, "started_with", start_first)
    with pytest.raises(CorralError, match="report this as a fault of Corral"):
        apply(fake, with_cpu(shared={"min_cpus": 1}))


@pytest.mark.parametrize("recorded", [True, False])
def test_the_live_file_goes_after_the_drop_in(recorded: bool, made_once: node.MadeOnce) -> None:
    """In the other order a daemon-reload between the two gives the slice the CPUs of the drop-in."""
    fake = rolled_on(made_once, BOOKWORM)
    services.stop(fake, DATAPLANE)
    dropin, live = f"{SYSTEM}/{OWN}.d/10-corral-cpu.conf", f"/run/systemd/system.control/{OWN}.d/50-AllowedCPUs.conf"
    if not recorded:
        text = fake.get(dropin)
        assert apply(fake, without("dataplane")).remaining == ()
        fake.put(dropin, text)
        fake.put(live, "[Slice]\nAllowedCPUs=2,6\n")
        fake.systemctl("daemon-reload")
    host = fake.host()
    applying.declare(host, profile.parse(without("dataplane")))
    order = [host.acts.index(act) for act in (f"remove {dropin}", f"remove {live}")]
    assert order == sorted(order)


LEFT = f"/run/systemd/system.control/{BATCH_SLICE}.d/50-AllowedCPUs.conf"


def left_with_cpus(made_once: node.MadeOnce) -> tuple[node.Node, frozenset[int]]:
    """A node on which batch@a's slice does not run, and would start with the CPUs that it had: a release ended in the middle."""
    fake = rolled_on(made_once, BOOKWORM)
    run = services.running(fake, BATCH)
    services.stop(fake, BATCH)
    fake.put(LEFT, f"[Slice]\nAllowedCPUs={cpuset.format(run.cpus)}\n")
    fake.systemctl("daemon-reload")
    assert BATCH_SLICE not in fake.systemd.cgroups
    return fake, run.cpus


def test_no_grant_has_cpus_with_which_a_slice_that_does_not_run_would_start(made_once: node.MadeOnce) -> None:
    fake, cpus = left_with_cpus(made_once)
    fake.intrude("lxc/web.example")
    run = services.running(fake, "batch@b.service")
    assert run.cpus == cpus
    fake.systemctl("start", BATCH_SLICE)
    assert (partition(fake, "corral_batch:batch\\x40b.slice"), fake.overlaps) == ("root", [])
    fake.systemctl("stop", BATCH_SLICE)
    assert [runs.tick(fake.host()) for dummy in range(2)] == [2, 2]  # What is not managed stays reported.
    assert not fake.has(LEFT)


def test_the_live_file_of_a_slice_that_does_not_run_is_no_original(made_once: node.MadeOnce) -> None:
    """A tick that fails at its removal leaves no record by which a later run would write it again."""
    fake, dummy = left_with_cpus(made_once)
    runs.tick(fake.host("error", failing.number_of(fake, runs.tick, f"remove {LEFT}")))
    targets = [record.before.target for record in state.records(fake.host())[0] if record.before.kind == "file"]
    assert [path for path in targets if path.startswith("/run/")] == []


FOREIGN = "/etc/systemd/system/corral_foo.slice.d/50-admin.conf"


def test_a_file_of_another_author_for_an_exclusive_slice_is_named_and_left(made_once: node.MadeOnce) -> None:
    fake = rolled_on(made_once, BOOKWORM)
    fake.put(FOREIGN, "[Slice]\nAllowedCPUs=1,5\n")
    found = items(fake)["corral_foo.slice"]
    assert (found.actual, found.location, found.steps, found.verdict) == ("1,5", FOREIGN, (), "unchangeable")
    host = fake.host()
    assert runs.tick(host) == 2
    assert [act for act in host.acts if "corral_foo" in act] == []
    assert services.start(fake, BATCH)


def test_a_file_of_another_author_is_named_whatever_its_name(made_once: node.MadeOnce) -> None:
    fake = rolled_on(made_once, BOOKWORM)
    foreign = FOREIGN.replace("50-admin", "50-AllowedCPUs")
    fake.put(foreign, "[Slice]\nAllowedCPUs=1,5\n")
    assert items(fake)["corral_foo.slice"].location == foreign
    host = fake.host()
    assert runs.tick(host) == 2
    assert [act for act in host.acts if "corral_foo" in act] == []


def test_a_partition_is_tried_again_at_once_where_its_rival_went_with_the_same_plan(made_once: node.MadeOnce) -> None:
    fake = rolled_on(made_once, BOOKWORM)
    with fake.by_hand():
        fake.systemctl("set-property", "--runtime", "--", "corral_x.slice", "AllowedCPUs=2,6")
        fake.systemd.stop_slice(OWN)
    services.start(fake, BATCH)
    for _turn in range(3):
        fake.wait(10)
        runs.tick(fake.host())
    assert (partition(fake), fake.exposed()) == ("root", [])


def test_what_set_property_left_for_a_slice_that_does_not_run_goes(made_once: node.MadeOnce) -> None:
    fake, dummy = left_with_cpus(made_once)
    by_hand = f"/etc/systemd/system.control/{BATCH_SLICE}.d/50-AllowedCPUs.conf"
    fake.put(by_hand, "[Slice]\nAllowedCPUs=1,5\n")
    fake.systemctl("daemon-reload")
    ticks_until_quiet(fake)
    assert not fake.has(by_hand)
    assert not fake.has(LEFT)


@pytest.mark.parametrize("fail", ["error", "full"])
def test_an_undo_leaves_what_was_set_for_a_slice_that_does_not_run(fail: str, made_once: node.MadeOnce) -> None:
    fake, dummy = left_with_cpus(made_once)
    other = "batch@b.service"
    number = failing.number_of(fake, lambda host: services.start(host.node, other, host), f"-- {BATCH_SLICE} ")
    assert services.start(fake, "batch@b.service", fake.host(fail, number)) is None
    fake.intrude("mine.slice/x.service")
    runs.tick(fake.host())
    assert services.start(fake, "batch@b.service")
    fake.systemctl("start", BATCH_SLICE)
    assert (partition(fake, "corral_batch:batch\\x40b.slice"), fake.overlaps) == ("root", [])


def test_a_plan_that_forgets_with_which_cpus_a_slice_would_start_is_refused(
    made_once: node.MadeOnce, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake, dummy = left_with_cpus(made_once)
    monkeypatch.setattr(cpu_moves, "stopped_with_cpus", lambda wanted, seen: {})
    assert services.start(fake, "batch@b.service") is None
    assert any("report this as a fault of Corral" in line for line in fake.said)


def test_no_slice_keeps_its_cpus_in_a_removal_that_goes_on_after_the_grants_ended(rolled: node.Node) -> None:
    nothing = Plan(None, (), (), frozenset())
    assert overlap_check.keep_cpus(rolled.host(), nothing, {OWN}) == {OWN}
    for path in state.rest_of(CHECKPOINT):
        rolled.host().remove(path)
    assert overlap_check.keep_cpus(rolled.host(), nothing, {OWN}) == set()


def test_what_systemd_does_not_know_cannot_be_confined_and_stops_nothing_else(rolled: node.Node) -> None:
    rolled.intrude("payload.service")
    del rolled.systemd.units["payload.service"]  # It stopped, and left its processes (KillMode=process).
    outcome = apply(rolled, with_cpu(unmanaged="confine"))
    assert (outcome.error, [item.subject for item in outcome.remaining]) == ("", ["payload.service"])
    assert services.start(rolled, BATCH)


def test_no_grant_gets_cpus_that_a_unit_keeps_which_systemd_does_not_move(made_once: node.MadeOnce) -> None:
    fake = rolled_on(made_once, TRIXIE)
    confine_rogue(fake)
    trial = fake.clone(fake.root.with_name("trial"))
    host = trial.host()
    assert services.start(trial, BATCH, host)
    (number,) = (n for n, act in enumerate(host.acts, 1) if "set-property" in act and "rogue.slice" in act)
    assert services.start(fake, BATCH, fake.host("error", number)) is None
    assert f"rogue.slice requests CPUs 1,5 of {BATCH_SLICE}" in "".join(fake.said)
    assert "batch:batch@a" not in held(fake)
    assert (partition(fake), fake.overlaps) == ("root", [])
    before = fake.cpus("rogue.slice")
    for seconds in (10, 10, 700):
        fake.wait(seconds)
        runs.tick(fake.host())
        assert fake.cpus("rogue.slice") == before == fake.cpus("corral.slice"), (
            "it does not get the reserved CPUs meanwhile"
        )


def test_an_undo_of_which_one_step_is_refused_lets_nobody_onto_a_grants_cpus(
    made_once: node.MadeOnce, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without partitions: what keeps its new CPUs is in the way of those that would get their old ones back."""
    fake = rolled_on(made_once, BOOKWORM)
    assert apply(fake, with_cpu(partitions="off")).remaining == ()
    wanted = profile.parse(with_cpu(partitions="off", reserved={"cpus": "2,6"}))  # They are dataplane's, which moves.
    host = fake.clone(fake.root.with_name("trial")).host()
    assert not applying.declare(host, wanted).error
    left: list[str] = []
    for number in [number for number, act in enumerate(host.acts, 1) if "AllowedCPUs=" in act]:
        for refused in (act.split()[-2] for act in host.acts[: number - 1] if "AllowedCPUs=" in act):
            trial = fake.clone(fake.root.with_name(f"{number} {refused}"))
            with monkeypatch.context() as patch:
                patch.setattr(applying, "attempt", functools.partial(all_but, refused, applying.attempt))
                outcome = applying.declare(trial.host("error", number), wanted)
            assert outcome.error and "refused" in outcome.leftovers
            left += outcome.leftovers
            units = ("corral.slice", "machine.slice", "system.slice", "user.slice", "init.scope")
            assert [unit for unit in units if trial.cpus(unit) & trial.cpus(OWN)] == []
    assert [one for one in left if "left as it is, since" in one]


def all_but(unit: str, attempt: t.Callable[..., str], host: node.NodeHost, step: Step, *more: t.Any) -> str:
    """A step of an undo, which is refused for one unit."""
    return "refused" if step.target == unit else attempt(host, step, *more)


def test_systemd_is_not_asked_at_each_tick_to_confine_what_it_does_not_know(rolled: node.Node) -> None:
    rolled.intrude("payload.service")
    unit = rolled.systemd.units.pop("payload.service")
    outcome = apply(rolled, with_cpu(unmanaged="confine"))
    assert "payload.service" not in [change.subject for change in outcome.applied], "it was refused"
    (item,) = outcome.remaining
    assert item.verdict == "unchangeable"
    assert "systemd did not give it the shared CPUs" in item.reason

    def asked(seconds: int) -> list[str]:
        rolled.wait(seconds)
        host = rolled.host()
        assert runs.tick(host) == 2
        return [act for act in host.acts if "payload.service" in act]

    assert [asked(10) for dummy in range(3)] == [[], [], []]
    assert len(asked(600)) == 1
    assert asked(10) == []
    # It is no unit that lives on: what it has of others' CPUs is named, and mended once it is gone.
    assert "payload.service" not in rolled.get("/var/lib/corral/journal/before.json"), "nothing of it is to be restored"
    rolled.systemd.units["payload.service"] = unit
    assert len(asked(600)) == 1
    assert cpuset.format(rolled.cpus("payload.service")) == shared(rolled)
    in_sync(rolled)


def test_who_asks_for_exclusive_cpus_and_cannot_be_confined_is_why_there_is_no_partition(
    made_once: node.MadeOnce,
) -> None:
    fake = rolled_on(made_once, TRIXIE)
    fake.intrude("payload.service", "2-3")
    del fake.systemd.units["payload.service"]
    apply(fake, with_cpu(unmanaged="confine"))
    found = items(fake)
    assert (found[OWN].property, found[OWN].verdict) == (PARTITION, "unchangeable")
    assert "payload.service (2)" in found[OWN].reason
    fake.withdraw("payload.service")
    assert runs.tick(fake.host()) == 2
    in_sync(fake)
