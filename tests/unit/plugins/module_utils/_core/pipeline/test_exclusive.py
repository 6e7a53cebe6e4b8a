# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Whoever is not a workload's own stays off its CPUs: intruders, slices that start on demand, workloads that leave."""

from __future__ import annotations

import functools
import shutil
import typing as t

import node
import pytest
import runs
import services
from _core.host import apply_step, state
from _core.managers import cpu_moves
from _core.model.plan import make_step, undo
from _core.model.plan.plan import CPUS, Change, Outcome, Plan, Step, steps_in_order
from _core.model.profile import profile
from _core.model.values import cpuset
from _core.model.values.errors import CorralError
from _core.pipeline import applying, overlap_check, planning
from fake_cpusets import BOOKWORM, FORKY, TRIXIE
from test_workloads import (
    BATCH,
    DATAPLANE,
    FEED,
    OTHER,
    OWN,
    PROFILE,
    SYSTEM,
    held,
    in_sync,
    install,
    roll_out,
    rolled,
    shared,
    status,
    ticks_until_quiet,
    without,
)

__all__ = ["rolled"]

Make = t.Callable[..., node.Node]
CGROUP = "/sys/fs/cgroup"
PARTITION = "cpuset.cpus.partition"
CHECKPOINT = "/var/lib/corral/checkpoint.json"
BATCH_SLICE = "corral_batch:batch\\x40a.slice"


def partition(fake: node.Node, unit: str = OWN) -> str:
    return fake.get(f"{CGROUP}/{unit}/{PARTITION}").strip()


def items(fake: node.Node) -> dict[str, Change]:
    return {change.subject: change for change in runs.plan(fake.host())}


def with_cpu(**keys: t.Any) -> dict[str, t.Any]:
    return {**PROFILE, "cpu": {**PROFILE["cpu"], **keys}}


def apply(fake: node.Node, data: t.Any) -> Outcome:
    return applying.declare(fake.host(), profile.parse(data))


# Partitions


def test_grants_are_partitions_and_the_rest_of_the_machine_has_what_is_left(rolled: node.Node) -> None:
    assert partition(rolled) == "root"
    assert services.start(rolled, BATCH)
    assert partition(rolled, BATCH_SLICE) == "root"
    assert rolled.exposed() == []
    assert rolled.get(f"{CGROUP}/cpuset.cpus.effective") == f"{cpuset.format(frozenset({0, 3, 4, 7}))}\n"
    assert status(rolled)["exclusive"] == "enforced by the kernel"
    in_sync(rolled)


def test_an_isolated_pool_without_load_balance_is_an_isolated_partition(fake: node.Node) -> None:
    isolated = {"cpus": "3,7"}
    runs.declare(fake.host(), cpu={"reserved": {"cpus": "0,4"}, "isolated": isolated})
    assert partition(fake, "corral_isolated.slice") == "root"
    outcome = runs.declare(
        fake.host(), cpu={"reserved": {"cpus": "0,4"}, "isolated": {**isolated, "load_balance": False}}
    )
    assert (outcome.remaining, partition(fake, "corral_isolated.slice")) == ((), "isolated")
    runs.declare(fake.host(), cpu={"reserved": {"cpus": "0,4"}})
    assert not fake.has(f"{CGROUP}/corral_isolated.slice")


@pytest.mark.parametrize(("value", "named"), [("member", True), ("isolated", True), ("root", False), ("", False)])
def test_a_file_that_has_systemd_make_another_partition_is_named(value: str, named: bool, rolled: node.Node) -> None:
    file = f"/etc/systemd/system/{OWN}.d/90-admin.conf"
    rolled.put(file, f"[Slice]\nCPUSetPartition={value}\n")
    found = [change for change in runs.plan(rolled.host()) if change.property == "CPUSetPartition"]
    assert [(one.subject, one.actual, one.wanted, one.location, one.verdict) for one in found] == (
        [(OWN, value, "root", file, "unchangeable")] if named else []
    )


# CPUs of isolcpus=, as kernels 6.1, 6.12 and 7.2 were seen to take them.
def boot_with_isolcpus(fake: node.Node, cpus: str) -> None:
    folder = fake.root / "sys/devices/system/cpu"
    shared_by_all = folder.resolve()
    folder.unlink()
    shutil.copytree(shared_by_all, folder)
    (folder / "isolated").write_text(f"{cpus}\n")
    fake.systemd.isolated = cpuset.parse(cpus)
    assert not runs.install(fake.host()).error


def isolate(fake: node.Node, cpus: str, **keys: t.Any) -> Outcome:
    return runs.declare(fake.host(), cpu={"reserved": {"cpus": "0,4"}, "isolated": {"cpus": cpus, **keys}})


@pytest.mark.parametrize("release", [BOOKWORM, FORKY])
def test_a_slice_on_cpus_of_isolcpus_alone_is_an_isolated_partition(make: Make, release: t.Any) -> None:
    fake = make(release=release)
    boot_with_isolcpus(fake, "3,7")
    for cpus, kind in (("3,7", "isolated"), ("2,6", "root"), ("3,7", "isolated")):
        assert isolate(fake, cpus).remaining == ()
        assert partition(fake, node.ISOLATED) == kind
        assert status(fake)["exclusive"] == "enforced by the kernel"
    in_sync(fake)


@pytest.mark.parametrize(
    ("release", "boot", "kind"), [(TRIXIE, "3,7", "isolated"), (TRIXIE, "3", "root"), (FORKY, "3", "root")]
)
def test_where_the_kernel_has_cpus_of_isolcpus_in_no_partition_the_status_says_so(
    make: Make, release: t.Any, boot: str, kind: str
) -> None:
    fake = make(release=release)
    boot_with_isolcpus(fake, boot)
    assert isolate(fake, "3,7").remaining == ()
    assert partition(fake, node.ISOLATED) == f"{kind} invalid (partition config conflicts with housekeeping setup)"
    in_sync(fake)
    assert status(fake)["exclusive"] == (
        f"enforced by the kernel, but not corral_isolated.slice: CPUs {boot} are in isolcpus= of the kernel's command line, "
        f"and this kernel has them in no partition of the kind {kind}: take them out there; "
        "cpu.isolated.load_balance: false does the same at run time"
    )
    assert fake.get(f"{CGROUP}/{node.ISOLATED}/cpuset.cpus.effective").strip() == "3,7"
    assert isolate(fake, "2,6").remaining == ()
    assert partition(fake, node.ISOLATED) == "root"
    in_sync(fake)


def test_without_load_balance_7_2_makes_a_partition_of_cpus_of_isolcpus_and_others(make: Make) -> None:
    fake = make(release=FORKY)
    boot_with_isolcpus(fake, "3")
    assert isolate(fake, "3,7", load_balance=False).remaining == ()
    assert partition(fake, node.ISOLATED) == "isolated"


def test_6_1_makes_a_partition_of_cpus_of_isolcpus_and_others(make: Make) -> None:
    fake = make(release=BOOKWORM)
    boot_with_isolcpus(fake, "3")
    assert isolate(fake, "3,7").remaining == ()
    assert partition(fake, node.ISOLATED) == "root"


def test_somebody_elses_partition_is_named_and_keeps_nothing_else_from_being_done(make: Make) -> None:
    """Such as a slice with CPUSetPartition=root on systemd 262: from kernel 7.0 on siblings that ask for its CPUs lose them."""
    fake = make(release=FORKY)
    install(fake)
    assert not runs.install(fake.host()).error
    roll_out(fake)
    assert services.start(fake, FEED)
    runs.tick(fake.host())
    with fake.by_hand():
        fake.intrude("foreign.slice", "1")
        fake.kernel_write(f"{CGROUP}/foreign.slice/{PARTITION}", "root")
    assert runs.tick(fake.host()) == 2
    item = items(fake)["foreign.slice"]
    assert item.reason.startswith("a partition of its own, so no pool has CPUs 1; ")
    host = fake.host()
    assert runs.tick(host) == 2
    assert not [act for act in host.acts if "/run/corral/" not in act], "nothing is asked for again and again"
    assert services.start(fake, DATAPLANE), "what has nothing to do with it starts"
    assert roll_out(fake, without("batch")).error == ""
    with fake.by_hand():
        fake.withdraw("foreign.slice")
    ticks_until_quiet(fake)
    assert 1 in fake.cpus("corral.slice")


@pytest.mark.parametrize("unit", ["system.slice", "machine.slice", "corral.slice", "init.scope"])
@pytest.mark.parametrize("release", [BOOKWORM, TRIXIE, FORKY])
def test_a_shared_or_reserved_slice_that_somebody_made_a_partition_is_none_after_a_tick(
    make: Make, release: t.Any, unit: str
) -> None:
    fake = make(release=release)
    install(fake)
    assert not runs.install(fake.host()).error
    roll_out(fake)
    services.start(fake, DATAPLANE)
    ticks_until_quiet(fake)
    before = {one: fake.cpus(one) for one in (OWN, "system.slice", "machine.slice", "corral.slice", "init.scope")}
    file = f"{CGROUP}/{unit}/{PARTITION}"
    with fake.by_hand():
        fake.kernel_write(file, "root")
    found = next(one for one in runs.plan(fake.host()) if one.location == file)
    assert (found.subject, found.wanted, found.verdict) == (unit, "member", "drift")
    runs.tick(fake.host())
    assert (partition(fake, unit), partition(fake)) == ("member", "root")
    assert {one: fake.cpus(one) for one in before} == before
    in_sync(fake)
    assert apply(fake, without("cpu")).error == ""
    assert partition(fake, unit) == "member"


# Partitions of others, from kernel 7.0 on: what they have, no other control group gets.


def forky(make: Make, data: dict[str, t.Any] | None = None, foreign: str = "") -> node.Node:
    """A node in sync on the newest kernel, beside a partition of somebody else's with these CPUs."""
    fake = make(release=FORKY)
    install(fake)
    assert not runs.install(fake.host()).error
    roll_out(fake, data)
    for unit in (DATAPLANE, FEED):
        assert services.start(fake, unit)
    ticks_until_quiet(fake)
    if foreign:
        with fake.by_hand():
            fake.intrude("foreign.slice", foreign)
            fake.kernel_write(f"{CGROUP}/foreign.slice/{PARTITION}", "root")
    return fake


def quiet(fake: node.Node) -> None:
    """After one tick nothing is asked for again."""
    runs.tick(fake.host())
    host = fake.host()
    runs.tick(host)
    assert not [act for act in host.acts if "/run/corral/" not in act]


def test_somebody_elses_partition_is_not_confined(make: Make) -> None:
    fake = forky(make, with_cpu(unmanaged="confine"), "1")
    quiet(fake)
    assert fake.cpus("foreign.slice") == {1}
    item = items(fake)["foreign.slice"]
    assert item.verdict == "unchangeable"
    assert "write member to its cpuset.cpus.partition" in item.reason


@pytest.mark.parametrize("pool", ["0,4", "1,3,5,7"])
def test_a_pool_all_of_which_a_partition_took_runs_with_the_other_one(pool: str, make: Make) -> None:
    fake = forky(make, foreign=pool)
    quiet(fake)
    left = cpuset.parse("0,1,3,4,5,7") - cpuset.parse(pool)
    assert fake.cpus("system.slice") == fake.cpus("corral.slice") == left
    assert roll_out(fake, without("feed")).error == ""
    with fake.by_hand():
        fake.withdraw("foreign.slice")
    ticks_until_quiet(fake)
    assert (fake.cpus("system.slice"), fake.cpus("corral.slice")) == ({0, 4}, {1, 3, 5, 7})


def test_a_partition_has_what_it_requests_also_what_another_one_in_it_took(make: Make) -> None:
    fake = forky(make, foreign="1,5")
    inner = fake.systemd.cgroups["foreign.slice/inner"] = node.Cgroup()
    inner.procs = 1
    inner.forget = lambda: None  # type: ignore[method-assign]  # whoever made it keeps the controller on
    fake.systemd.kernel.set_cpus("foreign.slice/inner", frozenset({5}))
    fake.systemd.kernel.set_partition("foreign.slice/inner", "root")
    with fake.by_hand():
        fake.systemd.sync()
    assert fake.cpus("foreign.slice") == {1}
    quiet(fake)
    assert fake.cpus("corral.slice") == {3, 7}
    assert "no pool has CPUs 1,5" in items(fake)["foreign.slice"].reason


def test_no_grant_is_made_of_what_somebody_elses_partition_has(make: Make) -> None:
    fake = forky(make, with_cpu(shared={"min_cpus": 1}), "1")
    quiet(fake)
    assert services.start(fake, BATCH), fake.said
    assert held(fake)["batch:batch@a"] == "3,7"


@pytest.mark.parametrize("unit", ["system.slice", "user.slice", "machine.slice", "corral.slice"])
def test_who_starts_after_a_slice_became_a_partition_waits_until_others_have_left_its_cpus(
    unit: str, make: Make
) -> None:
    fake = forky(make)
    with fake.by_hand():
        fake.kernel_write(f"{CGROUP}/{unit}/cpuset.cpus", "0-1,4-5")
        fake.kernel_write(f"{CGROUP}/{unit}/{PARTITION}", "root")
    assert services.start(fake, BATCH), fake.said
    assert fake.overlaps == []
    ticks_until_quiet(fake)


def test_a_slice_made_a_partition_where_the_profile_wants_none_does_not_stop_a_tick(make: Make) -> None:
    fake = forky(make, with_cpu(partitions=False))
    with fake.by_hand():
        fake.kernel_write(f"{CGROUP}/machine.slice/{PARTITION}", "root")
        fake.set_online(2)
    ticks_until_quiet(fake)
    assert partition(fake, "machine.slice") == "member"


def test_a_file_that_has_systemd_make_a_shared_slice_a_partition_is_named(make: Make) -> None:
    fake = forky(make)
    file = "/etc/systemd/system/machine.slice.d/90-admin.conf"
    fake.put(file, "[Slice]\nCPUSetPartition=root\n")
    (found,) = runs.plan(fake.host())
    assert (found.subject, found.property, found.wanted, found.location, found.verdict) == (
        "machine.slice", "CPUSetPartition", "member", file, "unchangeable"
    )  # fmt: skip


# Who else is in a slice


def test_who_runs_in_a_workloads_own_slice_beside_it_is_named(rolled: node.Node) -> None:
    rolled.intrude(f"{OWN}/stranger.service")
    rolled.intrude(f"{OWN}/corral_dataplane-x.slice/y.service")
    rolled.intrude(f"{OWN}/libpod-1.scope")
    found = [one for one in runs.plan(rolled.host()) if one.location.startswith(f"{CGROUP}/{OWN}/")]
    assert [(one.subject, one.verdict) for one in found] == [
        ("corral_dataplane-x.slice", "unchangeable"),
        ("stranger.service", "unchangeable"),
    ]
    assert "it runs on the CPUs of dataplane.service" in found[0].reason


def test_beside_a_workload_that_was_refused_its_cpus_others_may_run(rolled: node.Node) -> None:
    services.stop(rolled, DATAPLANE)
    rolled.set_online(2, 3, 5, 6, 7)
    for _turn in range(2):
        runs.tick(rolled.host())
    assert services.start(rolled, DATAPLANE)
    place = rolled.runs[DATAPLANE].place.rpartition("/")[0]
    assert place.startswith("corral.slice/"), "it shares"
    rolled.intrude(f"{place}/stranger.service")
    assert [one for one in runs.plan(rolled.host()) if one.subject == "stranger.service"] == []


def test_a_group_with_a_dash_at_the_top_is_not_systemds_to_confine(rolled: node.Node) -> None:
    assert apply(rolled, with_cpu(unmanaged="confine")).error == ""
    rolled.intrude("a-b.slice")
    assert runs.tick(rolled.host()) == 2
    item = items(rolled)["a-b.slice"]
    assert (item.verdict, "not made by systemd" in item.reason) == ("unchangeable", True)
    host = rolled.host()
    runs.tick(host)
    assert not [act for act in host.acts if "a-b" in act]


def test_an_empty_group_counts_where_isolcpus_is_in_the_way(make: Make) -> None:
    fake = make(release=TRIXIE)
    boot_with_isolcpus(fake, "3,7")
    assert isolate(fake, "3,7").remaining == ()
    fake.intrude("rogue.slice", procs=0)
    assert items(fake)["rogue.slice"].actual.startswith("is empty, would run on")


def test_partitions_can_be_off(rolled: node.Node) -> None:
    assert apply(rolled, with_cpu(partitions=False)).remaining == ()
    assert partition(rolled) == "member"
    assert runs.tick(rolled.host()) == 0
    assert status(rolled)["exclusive"] == "not enforced by the kernel: cpu.partitions is off"
    assert apply(rolled, PROFILE).remaining == ()
    assert partition(rolled) == "root"


@pytest.mark.parametrize("release", [BOOKWORM, TRIXIE])
def test_who_asks_for_the_same_cpus_is_named_and_the_partition_mended_once_it_is_gone(
    make: Make, release: t.Any
) -> None:
    fake = rolled_on(make, release)
    fake.intrude("greedy.slice", "2-3")
    found = items(fake)
    assert "root invalid" in (found[OWN].actual or "")
    assert (found[OWN].verdict, found[OWN].property) == ("unchangeable", PARTITION)
    assert "greedy.slice (2)" in found[OWN].reason
    assert f"on {OWN}'s 2; " in found["greedy.slice"].reason
    assert runs.tick(fake.host()) == 2
    assert status(fake)["exclusive"].startswith(f"enforced by the kernel, but not {OWN}: greedy.slice (2)")
    fake.withdraw("greedy.slice")
    assert runs.tick(fake.host()) == 2
    assert partition(fake) == "root"
    in_sync(fake)


def test_an_invalid_partition_that_moves_is_none_before_it_asks_for_other_cpus(make: Make) -> None:
    """Otherwise kernel 6.12 keeps the CPUs that it had from all control groups."""
    fake = make(release=TRIXIE)
    assert isolate(fake, "3,7").remaining == ()
    fake.intrude("greedy.slice", "3")
    fake.withdraw("greedy.slice")
    assert "invalid" in partition(fake, node.ISOLATED)
    moved = {"name": "edge", "cpu": {"reserved": {"cpus": "0,4"}, "isolated": {"cpus": "2,6"}}}
    context = planning.compile_profile(fake.host(), profile.parse(moved))
    steps = steps_in_order(planning.plan_profile(fake.host(), context).changes)
    mine = [step.text for step in steps if node.ISOLATED in step.target and step.kind in ("partition", "property")]
    assert mine == ["member", "AllowedCPUs=2,6", "root"]
    assert isolate(fake, "2,6").remaining == ()
    assert partition(fake, node.ISOLATED) == "root"


def test_where_the_partition_wins_who_asks_for_its_cpus_is_told_all_the_same(make: Make) -> None:
    fake = rolled_on(make, FORKY)
    fake.intrude("greedy.slice", "2-3")
    assert partition(fake) == "root"
    assert list(items(fake)) == ["greedy.slice"]
    assert fake.exposed() == []


def rolled_on(make: Make, release: t.Any) -> node.Node:
    fake = make(release=release)
    install(fake)
    assert not runs.install(fake.host()).error
    assert roll_out(fake).remaining == ()
    assert services.start(fake, DATAPLANE)
    assert runs.tick(fake.host()) == 0
    return fake


@pytest.mark.parametrize("release", [BOOKWORM, TRIXIE, FORKY])
def test_a_grant_of_which_no_cpu_is_online_moves_to_others(make: Make, release: t.Any) -> None:
    """Kernel 6.1 goes on to show a partition, which has no CPU then."""
    fake = rolled_on(make, release)
    fake.set_online(2, 6)
    assert runs.tick(fake.host()) == 2, status(fake)["error"]
    assert held(fake)["dataplane"] == "3,7"
    assert (partition(fake), fake.cpus(OWN)) == ("root", {3, 7})
    in_sync(fake)


@pytest.mark.parametrize("release", [BOOKWORM, TRIXIE, FORKY])
def test_whose_cpus_went_offline_gets_others_once_who_loses_its_grant_has_left_these(
    make: Make, release: t.Any
) -> None:
    """Both run on what partitions leave then. Nobody has to share with the one that keeps a grant."""
    fake = make(release=release)
    services.add(fake, "keeps.service", "leaves.service")
    assert not runs.install(fake.host()).error
    workloads = [
        {"name": name, "match": {"unit": f"{name}.service"}, "limits": {"cpu": 1, "memory": "64Mi"}}
        for name in ("keeps", "leaves")
    ]
    data = {"name": "edge", "cpu": {"reserved": {"cpus": "0,4"}, "policy": "static"}, "workloads": workloads}
    assert apply(fake, data).remaining == ()
    assert services.start(fake, "keeps.service")
    assert services.start(fake, "leaves.service")
    runs.tick(fake.host())
    fake.set_online(*(int(cpu) for cpu in held(fake).values()))
    assert not apply(fake, {**data, "workloads": workloads[:1]}).error
    assert partition(fake, "corral_keeps.slice") == "root"
    assert fake.overlaps == []


def test_another_kind_of_partition_lets_nobody_in(fake: node.Node) -> None:
    isolated = {"cpus": "3,7"}
    runs.declare(fake.host(), cpu={"reserved": {"cpus": "0,4"}, "isolated": isolated})
    fake.intrude("corral_isolated.slice/x.service")
    fake.intrude("rogue.service")
    wrong: list[str] = []

    def look(dummy: int) -> None:
        if fake.systemd.effective("rogue.service") & {3, 7}:
            wrong.append(host.acts[-1])

    host = fake.host(then=look)
    runs.declare(host, cpu={"reserved": {"cpus": "0,4"}, "isolated": {**isolated, "load_balance": False}})
    assert wrong == []


@pytest.mark.parametrize(
    ("text", "wanted", "writes"),
    [
        ("root", "root", 2),
        ("member", "root", 1),
        ("member", "member", 1),
        ("root invalid (x)", "root", 2),
        ("root", "member", 1),
    ],
)
def test_a_partition_is_none_first_where_the_kernel_would_not_look_again(
    text: str, wanted: str, writes: int, rolled: node.Node
) -> None:
    file, host = f"{CGROUP}/{OWN}/{PARTITION}", rolled.host()
    rolled.put(file, f"{text}\n")
    apply_step.set_partition(host, Step("partition", file, wanted, CPUS))
    assert host.acts == [f"write_value {file}"] * writes


@pytest.mark.parametrize("off", [False, True])
def test_the_validator_knows_whether_there_are_partitions(off: bool, rolled: node.Node) -> None:
    host = rolled.host()
    context = planning.compile_profile(host, profile.parse(with_cpu(partitions=False) if off else PROFILE))
    steps = [Step("partition", f"{CGROUP}/{OWN}/{PARTITION}", "member", CPUS)]
    assert bool(overlap_check.overlaps(host, planning.plan_profile(host, context), steps)) != off


def test_a_profile_without_cpus_ends_the_grants_first(rolled: node.Node) -> None:
    """A grant of which nothing runs: until it ends, a service that starts in its slice is promised its CPUs."""
    for unit in list(rolled.runs):
        services.stop(rolled, unit)
    host = rolled.host()
    assert applying.declare(host, profile.parse({"name": "plain"})).remaining == ()
    assert not rolled.has(CHECKPOINT)
    first = next(number for number, act in enumerate(host.acts) if "AllowedCPUs" in act)
    assert any(CHECKPOINT in act for act in host.acts[:first])
    in_sync(rolled)


def test_the_slice_of_a_workload_that_left_is_held_while_it_runs(rolled: node.Node) -> None:
    assert not apply(rolled, without("dataplane")).error
    host = rolled.host()
    plan = planning.plan_profile(host, planning.compile_profile(host, profile.parse(without("dataplane"))))
    for key in (f"unit:{OWN}", f"property:{OWN}:AllowedCPUs", f"partition:{CGROUP}/{OWN}/{PARTITION}"):
        assert any(key in part.owned for part in plan.parts), key
        assert key not in plan.obsolete


# What goes back


def test_a_slice_can_leave_the_profile_while_grants_are_in_force(rolled: node.Node) -> None:
    rolled.systemctl("start", "more.slice")
    rolled.systemd.occupy("more.slice")
    assert apply(rolled, with_cpu(shared={"slices": ["machine.slice", "more.slice"], "min_cpus": 2})).remaining == ()
    outcome = apply(rolled, PROFILE)
    assert [item.subject for item in outcome.remaining] == ["more.slice"], "it is nobody's now"
    assert partition(rolled) == "root"
    assert not rolled.cpus("more.slice") & rolled.cpus(OWN)


def test_a_refused_run_is_undone_beside_grants(rolled: node.Node) -> None:
    """A slice that is new to the profile had no CPUs of its own: it goes back to those that are nobody's."""
    rolled.systemctl("start", "more.slice")
    rolled.systemd.occupy("more.slice")
    data = with_cpu(shared={"slices": ["machine.slice", "more.slice"], "min_cpus": 2})
    for number in range(1, 60):
        fake = rolled.clone(rolled.root.with_name(f"refused-{number}"))
        host = fake.host("error", number)
        try:
            outcome = apply_at(host, data)
        except (CorralError, OSError):
            continue  # Corral's own files: nothing was changed, or all of it.
        if len(host.acts) < number:
            return
        assert partition(fake) == "root", (number, outcome.error)
        assert fake.overlaps == []
    raise AssertionError("it has no end")


def apply_at(host: node.NodeHost, data: t.Any) -> Outcome:
    return applying.declare(host, profile.parse(data))


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


def test_outsiders_can_be_confined_until_the_removal(rolled: node.Node) -> None:
    rolled.systemctl("start", "rogue.slice")
    rolled.systemd.occupy("rogue.slice")
    assert apply(rolled, with_cpu(unmanaged="confine")).remaining == ()
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
    rolled.systemctl("start", "rogue.slice")
    rolled.systemd.occupy("rogue.slice")
    assert apply(rolled, with_cpu(unmanaged="confine")).remaining == ()
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


def ticks_until_quiet_after(fake: node.Node) -> None:
    for dummy in range(3):
        runs.tick(fake.host())
    in_sync(fake)


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
    rolled.systemctl("start", "rogue.slice")
    rolled.systemd.occupy("rogue.slice")
    assert apply(rolled, with_cpu(unmanaged="confine")).remaining == ()
    rolled.systemd.occupy("rogue.slice", 0)
    rolled.systemctl("stop", "rogue.slice")
    ticks_until_quiet_after(rolled)


def test_confining_can_be_taken_back_while_grants_are_in_force(rolled: node.Node) -> None:
    rolled.systemctl("start", "rogue.slice")
    rolled.systemd.occupy("rogue.slice")
    assert apply(rolled, with_cpu(unmanaged="confine")).remaining == ()
    assert [item.subject for item in apply(rolled, PROFILE).remaining] == ["rogue.slice"]
    assert partition(rolled) == "root"


def test_an_administrator_may_take_over_a_unit_that_was_confined(make: Make) -> None:
    """By a persistent set-property: what the unit requested before Corral may be a grant's by now."""
    fake = rolled_on(make, BOOKWORM)
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


def test_after_a_boot_nothing_is_requested_for_a_unit_that_was_confined(make: Make) -> None:
    """The boot ended the request. To give the unit all CPUs would make one that nobody can take back."""
    fake = rolled_on(make, TRIXIE)
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


@pytest.mark.parametrize("kind", [TRIXIE, BOOKWORM])
def test_a_slice_that_leaves_the_profile_is_in_no_grants_way(kind: t.Any, make: Make) -> None:
    fake = rolled_on(make, kind)
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


def test_an_undo_gives_a_running_grant_its_partition_back(make: Make) -> None:
    """The new slice that is to have its CPUs stops late, after systemd has read all files."""
    fake = rolled_on(make, TRIXIE)
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
    host = rolled.clone(rolled.root.with_name("trial")).host()
    assert runs.command(host, "release", "guest") == 0
    number = next(n for n, act in enumerate(host.acts, 1) if act.startswith("run systemctl set-property"))
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


def confined_once(make: Make) -> node.Node:
    """A node with rogue.slice, which was confined and is only reported since."""
    fake = rolled_on(make, TRIXIE)
    fake.systemctl("start", "rogue.slice")
    fake.systemd.occupy("rogue.slice")
    assert apply(fake, with_cpu(unmanaged="confine")).remaining == ()
    assert apply(fake, PROFILE).error == ""
    return fake


def about_rogue(fake: node.Node, seconds: float) -> list[str]:
    """What a tick does to rogue.slice."""
    fake.wait(seconds)
    host = fake.host()
    runs.tick(host)
    return [act for act in host.acts if "rogue.slice" in act]


def test_a_unit_that_was_confined_and_started_anew_requests_nothing(make: Make) -> None:
    fake = confined_once(make)
    fake.systemd.occupy("rogue.slice", 0)
    fake.systemctl("stop", "rogue.slice")
    shutil.rmtree(fake.root / "run/systemd/system.control/rogue.slice.d", ignore_errors=True)
    fake.systemctl("daemon-reload")
    fake.systemctl("start", "rogue.slice")
    fake.systemd.occupy("rogue.slice")
    assert about_rogue(fake, 10) == []
    assert not fake.systemd.cgroups["rogue.slice"].requested


def test_a_slice_starts_with_its_own_cpus_whatever_was_set_live_before_its_last_stop(make: Make) -> None:
    fake = exclusive_slice_stopped(make)
    assert apply(fake, PROFILE).error == ""
    assert (partition(fake), partition(fake, BATCH_SLICE), fake.overlaps) == ("root", "root", [])


FOREIGN_SHARED = f"{SYSTEM}/machine.slice.d/90-admin.conf"


def shared_slice_stopped(make: Make) -> node.Node:
    """A node on which machine.slice does not run, and would start with all CPUs by a file of another author."""
    fake = rolled_on(make, BOOKWORM)
    with fake.by_hand():
        fake.systemctl("stop", "machine.slice")
    fake.put(FOREIGN_SHARED, "[Slice]\nAllowedCPUs=0-7\n")
    fake.intrude("lxc/web.example")
    return fake


def test_a_shared_slice_starts_with_its_own_cpus_whatever_others_wrote(make: Make) -> None:
    fake = shared_slice_stopped(make)
    assert services.start(fake, BATCH)
    assert "machine.slice" in fake.systemd.cgroups
    assert (partition(fake), partition(fake, BATCH_SLICE), fake.overlaps) == ("root", "root", [])


def exclusive_slice_stopped(make: Make) -> node.Node:
    """A node on which dataplane's slice does not run, is not declared, and would start with all CPUs, those of batch@a among them."""
    fake = rolled_on(make, BOOKWORM)
    services.stop(fake, DATAPLANE)
    assert apply(fake, without("dataplane")).remaining == ()
    assert services.start(fake, BATCH)
    fake.intrude("lxc/web.example")
    fake.put(f"/run/systemd/system.control/{OWN}.d/50-AllowedCPUs.conf", "[Slice]\nAllowedCPUs=0-7\n")
    return fake


@pytest.mark.parametrize("prepared", [shared_slice_stopped, exclusive_slice_stopped])
def test_a_plan_that_starts_a_slice_before_it_sets_its_cpus_is_refused(
    prepared: t.Callable[[Make], node.Node], make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    def start_first(unit: str, cpus: frozenset[int], seen: t.Any, first: int, second: int) -> list[Step]:
        assignment = make_step.unit_property(unit, "AllowedCPUs", cpuset.format(cpus), CPUS, second)
        return [make_step.unit(unit, "start", CPUS, first), assignment]

    fake = prepared(make)
    monkeypatch.setattr(cpu_moves, "started_with", start_first)
    with pytest.raises(CorralError, match="report this as a fault of Corral"):
        apply(fake, with_cpu(shared={"min_cpus": 1}))


@pytest.mark.parametrize("recorded", [True, False])
def test_the_live_file_goes_after_the_drop_in(recorded: bool, make: Make) -> None:
    """In the other order a daemon-reload between the two gives the slice the CPUs of the drop-in."""
    fake = rolled_on(make, BOOKWORM)
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


def left_with_cpus(make: Make) -> tuple[node.Node, frozenset[int]]:
    """A node on which batch@a's slice does not run, and would start with the CPUs that it had: a release ended in the middle."""
    fake = rolled_on(make, BOOKWORM)
    run = services.start(fake, BATCH)
    assert run is not None
    services.stop(fake, BATCH)
    fake.put(LEFT, f"[Slice]\nAllowedCPUs={cpuset.format(run.cpus)}\n")
    fake.systemctl("daemon-reload")
    assert BATCH_SLICE not in fake.systemd.cgroups
    return fake, run.cpus


def test_no_grant_has_cpus_with_which_a_slice_that_does_not_run_would_start(make: Make) -> None:
    fake, cpus = left_with_cpus(make)
    fake.intrude("lxc/web.example")
    run = services.start(fake, "batch@b.service")
    assert run is not None and run.cpus == cpus
    fake.systemctl("start", BATCH_SLICE)
    assert (partition(fake, "corral_batch:batch\\x40b.slice"), fake.overlaps) == ("root", [])
    fake.systemctl("stop", BATCH_SLICE)
    assert [runs.tick(fake.host()) for dummy in range(2)] == [2, 2]  # What is not managed stays reported.
    assert not fake.has(LEFT)


def test_the_live_file_of_a_slice_that_does_not_run_is_no_original(make: Make) -> None:
    """A tick that fails at its removal leaves no record by which a later run would write it again."""
    fake, dummy = left_with_cpus(make)
    whole = fake.clone(fake.root.with_name("whole")).host()
    runs.tick(whole)
    runs.tick(fake.host("error", 1 + whole.acts.index(f"remove {LEFT}")))
    targets = [record.before.target for record in state.records(fake.host())[0] if record.before.kind == "file"]
    assert [path for path in targets if path.startswith("/run/")] == []


FOREIGN = "/etc/systemd/system/corral_foo.slice.d/50-admin.conf"


def test_a_file_of_another_author_for_an_exclusive_slice_is_named_and_left(make: Make) -> None:
    fake = rolled_on(make, BOOKWORM)
    fake.put(FOREIGN, "[Slice]\nAllowedCPUs=1,5\n")
    found = items(fake)["corral_foo.slice"]
    assert (found.actual, found.location, found.steps, found.verdict) == ("1,5", FOREIGN, (), "unchangeable")
    host = fake.host()
    assert runs.tick(host) == 2
    assert [act for act in host.acts if "corral_foo" in act] == []
    assert services.start(fake, BATCH)


def test_a_file_of_another_author_is_named_whatever_its_name(make: Make) -> None:
    fake = rolled_on(make, BOOKWORM)
    foreign = FOREIGN.replace("50-admin", "50-AllowedCPUs")
    fake.put(foreign, "[Slice]\nAllowedCPUs=1,5\n")
    assert items(fake)["corral_foo.slice"].location == foreign
    host = fake.host()
    assert runs.tick(host) == 2
    assert [act for act in host.acts if "corral_foo" in act] == []


def test_a_partition_is_tried_again_at_once_where_its_rival_went_with_the_same_plan(make: Make) -> None:
    fake = rolled_on(make, BOOKWORM)
    with fake.by_hand():
        fake.systemctl("set-property", "--runtime", "--", "corral_x.slice", "AllowedCPUs=2,6")
        fake.systemd.stop_slice(OWN)
    services.start(fake, BATCH)
    for _turn in range(3):
        fake.wait(10)
        runs.tick(fake.host())
    assert (partition(fake), fake.exposed()) == ("root", [])


def test_what_set_property_left_for_a_slice_that_does_not_run_goes(make: Make) -> None:
    fake, dummy = left_with_cpus(make)
    by_hand = f"/etc/systemd/system.control/{BATCH_SLICE}.d/50-AllowedCPUs.conf"
    fake.put(by_hand, "[Slice]\nAllowedCPUs=1,5\n")
    fake.systemctl("daemon-reload")
    ticks_until_quiet(fake)
    assert not fake.has(by_hand)
    assert not fake.has(LEFT)


@pytest.mark.parametrize("fail", ["error", "full"])
def test_an_undo_leaves_what_was_set_for_a_slice_that_does_not_run(fail: str, make: Make) -> None:
    fake, dummy = left_with_cpus(make)
    whole = fake.clone(fake.root.with_name("whole")).host()
    services.start(whole.node, "batch@b.service", whole)
    number = 1 + next(i for i, act in enumerate(whole.acts) if "set-property" in act and BATCH_SLICE in act)
    assert services.start(fake, "batch@b.service", fake.host(fail, number)) is None
    fake.intrude("mine.slice/x.service")
    runs.tick(fake.host())
    assert services.start(fake, "batch@b.service")
    fake.systemctl("start", BATCH_SLICE)
    assert (partition(fake, "corral_batch:batch\\x40b.slice"), fake.overlaps) == ("root", [])


def test_a_plan_that_forgets_with_which_cpus_a_slice_would_start_is_refused(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake, dummy = left_with_cpus(make)
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


def test_no_grant_gets_cpus_that_a_unit_keeps_which_systemd_does_not_move(make: Make) -> None:
    fake = rolled_on(make, TRIXIE)
    fake.systemctl("start", "rogue.slice")
    fake.systemd.occupy("rogue.slice")
    assert apply(fake, with_cpu(unmanaged="confine")).remaining == ()
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
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without partitions: what keeps its new CPUs is in the way of those that would get their old ones back."""
    fake = rolled_on(make, BOOKWORM)
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


def test_who_asks_for_exclusive_cpus_and_cannot_be_confined_is_why_there_is_no_partition(make: Make) -> None:
    fake = rolled_on(make, TRIXIE)
    fake.intrude("payload.service", "2-3")
    del fake.systemd.units["payload.service"]
    apply(fake, with_cpu(unmanaged="confine"))
    found = items(fake)
    assert (found[OWN].property, found[OWN].verdict) == (PARTITION, "unchangeable")
    assert "payload.service (2)" in found[OWN].reason
    fake.withdraw("payload.service")
    assert runs.tick(fake.host()) == 2
    in_sync(fake)


# Workloads that come and go


def test_what_runs_in_a_slice_that_nobody_granted_anything_is_named(rolled: node.Node) -> None:
    rolled.intrude("corral_rogue.slice/x.service")
    item = items(rolled)["corral_rogue.slice"]
    assert (item.property, item.actual.endswith("(PID 0 ?)")) == ("placement", True), item.actual


def test_a_workload_that_leaves_the_profile_while_it_runs_shares_with_nobodys_exclusive_cpus(rolled: node.Node) -> None:
    assert services.start(rolled, BATCH)
    outcome = apply(rolled, without("dataplane"))
    assert outcome.error == ""
    (item,) = outcome.remaining
    assert (item.subject, item.property, item.verdict) == (OWN, "placement", "unchangeable")
    for dummy in range(3):
        assert runs.tick(rolled.host()) == 2, "told as long as it lives, and nothing else moves"
        assert cpuset.format(rolled.cpus(OWN)) == shared(rolled)
        assert not rolled.cpus(OWN) & rolled.cpus(BATCH_SLICE)
    assert partition(rolled) == "member"
    services.stop(rolled, DATAPLANE)
    ticks_until_quiet(rolled)
    assert not rolled.has(f"{CGROUP}/{OWN}")


def test_a_run_keeps_what_it_holds_though_its_workload_left_and_gives_it_back_at_its_end(rolled: node.Node) -> None:
    assert services.start(rolled, BATCH)
    cpus = rolled.cpus(BATCH_SLICE)
    limit = rolled.get(f"{CGROUP}/{BATCH_SLICE}/memory.max")
    assert apply(rolled, without("batch")).error == ""
    for dummy in range(2):
        runs.tick(rolled.host())
        assert (rolled.cpus(BATCH_SLICE), partition(rolled, BATCH_SLICE)) == (cpus, "root")
        assert rolled.get(f"{CGROUP}/{BATCH_SLICE}/memory.max") == limit
        assert rolled.has("/etc/systemd/system/batch@.service.d/10-corral-workloads.conf"), (
            "it requires what holds the grant"
        )
        assert "batch:batch@a" in held(rolled)
    services.stop(rolled, BATCH)
    ticks_until_quiet(rolled)
    assert "batch:batch@a" not in held(rolled)
    assert not rolled.has("/etc/systemd/system/batch@.service.d/10-corral-workloads.conf")
    assert not rolled.has("/etc/systemd/system/corral-grant@.service")


def test_a_run_gives_back_what_it_holds_after_the_policy_and_then_its_workload_left(rolled: node.Node) -> None:
    assert services.start(rolled, BATCH)
    assert not apply(rolled, with_cpu(policy="none")).error
    assert not apply(rolled, {**without("batch"), "cpu": {**PROFILE["cpu"], "policy": "none"}}).error
    services.stop(rolled, BATCH)
    ticks_until_quiet(rolled)
    assert held(rolled) == {"dataplane": "2,6", "feed": ""}


def test_another_instance_starts_with_nothing_of_its_own_once_its_workload_left(rolled: node.Node) -> None:
    assert services.start(rolled, BATCH)
    assert apply(rolled, without("batch")).error == ""
    other = services.start(rolled, OTHER)
    assert other is not None
    assert not other.cpus & (rolled.cpus(OWN) | rolled.cpus(BATCH_SLICE))


def test_without_cpu_a_profile_is_refused_while_a_run_keeps_its_cpus(rolled: node.Node) -> None:
    assert services.start(rolled, BATCH)
    with pytest.raises(CorralError, match=r"batch:batch@a \(CPUs 1,5\) runs and keeps its CPUs until it stops"):
        apply(rolled, {"name": "less"})


def test_an_instance_in_its_escaped_form_keeps_its_limits(rolled: node.Node) -> None:
    unit, place = "batch@a\\x2db.service", f"{CGROUP}/corral_batch:batch\\x40a\\x2db.slice"
    assert services.start(rolled, unit)
    assert rolled.get(f"{place}/memory.max") == f"{64 << 20}\n"
    in_sync(rolled)
    assert rolled.get(f"{place}/memory.max") == f"{64 << 20}\n"
    assert rolled.get(f"{place}/{PARTITION}") == "root\n"
    services.stop(rolled, unit)
    ticks_until_quiet(rolled)


def test_an_instance_with_a_dash_does_not_start_in_a_slice_within_anothers(rolled: node.Node) -> None:
    before = held(rolled)
    assert services.start(rolled, "batch@var-lib.service") is None
    assert any("has a dash" in said for said in rolled.said)
    assert held(rolled) == before
    ticks_until_quiet(rolled)


@pytest.mark.parametrize("unit", [DATAPLANE, FEED])
def test_an_empty_slice_counts_a_service_may_start_in_it(unit: str, rolled: node.Node) -> None:
    """Killed at any write of what comes next, while the service is down, and it starts right then: nobody shares."""
    services.stop(rolled, unit)
    for number in range(1, 60):
        fake = rolled.clone(rolled.root.with_name(f"killed-{number}"))
        host = fake.host("killed", number)
        services.start(fake, BATCH, host)
        if len(host.acts) < number:
            assert number > 5
            return
        services.start(fake, unit)
        assert fake.overlaps == []
        ticks_until_quiet(fake)
    raise AssertionError("it has no end")


def test_a_set_property_that_somebody_left_blocks_no_start(rolled: node.Node) -> None:
    rolled.systemctl("set-property", "machine.slice", "AllowedCPUs=1-3,5-7")
    rolled.overlaps.clear()
    assert services.start(rolled, BATCH), rolled.said
    assert partition(rolled, BATCH_SLICE) == "root"
    ticks_until_quiet(rolled)


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


# Explained


def explained(fake: node.Node, capsys: pytest.CaptureFixture[str], name: str = "dataplane") -> list[str]:
    capsys.readouterr()
    runs.command(fake.host(), "explain", name)
    return [line for line in capsys.readouterr().out.splitlines() if line.startswith(("CPUs: ", "exclusive CPUs: "))]


def test_explain_says_who_keeps_others_off(rolled: node.Node, capsys: pytest.CaptureFixture[str]) -> None:
    assert explained(rolled, capsys) == ["CPUs: 2 of its own", "exclusive CPUs: enforced by the kernel"]
    assert explained(rolled, capsys, "feed") == ["CPUs: shared, as every Burstable workload"]


def test_explain_says_why_the_kernel_does_not_in_the_words_of_status(
    make: Make, capsys: pytest.CaptureFixture[str]
) -> None:
    fake = rolled_on(make, BOOKWORM)
    fake.intrude("greedy.slice", "2-3")
    assert services.start(fake, BATCH)
    runs.tick(fake.host())
    told = status(fake)["exclusive"]
    assert f"but not {OWN}: greedy.slice (2) asks for the same CPUs" in told
    assert explained(fake, capsys)[1] == f"exclusive CPUs: {told}"
    assert explained(fake, capsys, "batch")[1] == "exclusive CPUs: enforced by the kernel"


def test_explain_says_that_a_run_keeps_what_is_declared_no_longer(
    rolled: node.Node, capsys: pytest.CaptureFixture[str]
) -> None:
    services.start(rolled, DATAPLANE)
    assert apply(rolled, with_cpu(policy="none")).error == ""
    assert explained(rolled, capsys) == [
        "CPUs: its own until it stops, then shared: cpu.policy is none",
        "exclusive CPUs: enforced by the kernel",
    ]


def test_explain_says_so_where_partitions_are_off(rolled: node.Node, capsys: pytest.CaptureFixture[str]) -> None:
    assert apply(rolled, with_cpu(partitions=False)).remaining == ()
    assert explained(rolled, capsys)[1] == "exclusive CPUs: not enforced by the kernel: cpu.partitions is off"


# Every plan that is executed is replayed, whatever it is of


def widening(unit: str = "machine.slice") -> Change:
    step = make_step.unit_property(unit, "AllowedCPUs", "0-7", CPUS)
    return Change("cpu", unit, "AllowedCPUs", "", "0-7", "", "", (step,))


@pytest.mark.parametrize("of", ["a removal", "a profile without workloads", "a profile without cpu"])
def test_a_plan_that_takes_a_partitions_cpus_is_refused(of: str, rolled: node.Node) -> None:
    host = rolled.host()
    data = {
        "a removal": None,
        "a profile without workloads": without("dataplane"),
        "a profile without cpu": {"name": "x"},
    }
    context = planning.compile_profile(host, profile.parse(data[of])) if data[of] else None
    plan = Plan(context, (widening(),), (), frozenset())
    with pytest.raises(CorralError, match=f"machine.slice would have CPUs of {OWN}"):
        applying.apply(host, plan, lambda: plan, keep_going=True)
    assert not host.writes


def test_a_removal_that_widens_others_first_is_refused(rolled: node.Node, monkeypatch: pytest.MonkeyPatch) -> None:
    restore = undo.restore_recorded

    def late(before: undo.Original, *cpus: t.Any) -> list[Step]:
        steps = restore(before, *cpus)
        return [step._replace(order=95) for step in steps] if before.kind == "partition" else steps

    monkeypatch.setattr(undo, "restore_recorded", late)
    with pytest.raises(CorralError, match=f"would have CPUs of {OWN}"):
        runs.remove(rolled.host())
    assert partition(rolled) == "root"
    monkeypatch.undo()
    assert not any("would have" in said for said in runs.remove(rolled.host()).leftovers)


def test_a_removal_whose_partition_stays_leaves_others_off_its_cpus(rolled: node.Node) -> None:
    acts = rolled.clone(rolled.root.with_name("trial")).host()
    runs.remove(acts)
    number = acts.acts.index(f"write_value {CGROUP}/{OWN}/{PARTITION}") + 1
    outcome = runs.remove(rolled.host("error", number))
    assert len([said for said in outcome.leftovers if f"would have CPUs of {OWN}" in said]) > 1
    assert (rolled.exposed(), rolled.overlaps) == ([], [])
    assert not any("would have" in said for said in runs.remove(rolled.host()).leftovers)
    assert rolled.cpus("system.slice") == rolled.systemd.online


@pytest.mark.parametrize("requested", [True, False])
def test_the_undo_gives_back_what_was_shared_before(requested: bool, rolled: node.Node) -> None:
    """What runs in corral_isolated.slice shares with others before there is an isolated pool: the undo ends in that."""
    rolled.intrude("corral_isolated.slice/pinned.service")
    if requested:  # Else that is yet to come: the slice has what partitions leave.
        assert runs.tick(rolled.host()) == 2
        assert rolled.cpus("corral_isolated.slice") == rolled.cpus("corral.slice")
    before = rolled.cpus("corral_isolated.slice")
    data = with_cpu(isolated={"cores": 1})
    trial = rolled.clone(rolled.root.with_name("trial")).host()
    assert applying.declare(trial, profile.parse(data)).error == ""
    first = trial.acts.index(f"write_value {CGROUP}/corral_isolated.slice/{PARTITION}") + 1
    for number in range(first, len(trial.acts)):
        fake = rolled.clone(rolled.root.with_name(f"refused-{number}"))
        try:
            outcome = apply_at(fake.host("error", number), data)
        except OSError:
            continue  # Corral's own files: all is done.
        if not outcome.error:
            continue
        assert outcome.leftovers == (), number
        assert (partition(fake, "corral_isolated.slice"), fake.cpus("corral_isolated.slice")) == ("member", before)
        assert (partition(fake), fake.overlaps) == ("root", [])


def test_an_undo_that_would_let_others_in_leaves_them_off(rolled: node.Node, monkeypatch: pytest.MonkeyPatch) -> None:
    more = {"name": "more", "match": {"unit": "more.service"}, "limits": {"cpu": 2, "memory": "64Mi"}}
    data = {**PROFILE, "workloads": [*PROFILE["workloads"], more]}
    inverse = undo.inverse

    def forgetful(before: undo.Original, step: Step, online: str) -> list[Step]:
        return [] if "/corral_more.slice" in f"/{step.target}" else inverse(before, step, online)

    trial = rolled.clone(rolled.root.with_name("trial")).host()
    assert applying.declare(trial, profile.parse(data)).error == ""
    number = trial.acts.index(f"write_value {CGROUP}/corral_more.slice/{PARTITION}") + 2
    monkeypatch.setattr(undo, "inverse", forgetful)
    outcome = applying.declare(rolled.host("error", number), profile.parse(data))
    assert outcome.error
    assert any("would have CPUs of corral_more.slice" in said for said in outcome.leftovers)
    assert (partition(rolled, "corral_more.slice"), rolled.exposed(), rolled.overlaps) == ("root", [], [])
