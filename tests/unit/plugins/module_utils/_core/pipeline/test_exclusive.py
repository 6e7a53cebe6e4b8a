# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Exclusive CPUs: who else is in a slice, what goes back, workloads that come and go, and what explain says of it."""

from __future__ import annotations

import json
import shutil
import typing as t

import failing
import node
import pytest
import runs
import services
from _core.host.plan import apply_step, attempts
from _core.model.plan import make_step
from _core.model.plan.plan import CPUS, Change, Outcome, Step, steps_in_order
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
    held,
    in_sync,
    install,
    make_ready,
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


def make_rolled(fake: node.Node) -> None:
    make_ready(fake)
    assert roll_out(fake).remaining == ()
    assert services.start(fake, DATAPLANE)
    assert runs.tick(fake.host()) == 0


def rolled_on(made_once: node.MadeOnce, release: t.Any) -> node.Node:
    return made_once(make_rolled, release=release)


def apply_at(host: node.NodeHost, data: t.Any) -> Outcome:
    return applying.declare(host, profile.parse(data))


def ticks_until_quiet_after(fake: node.Node) -> None:
    for dummy in range(3):
        runs.tick(fake.host())
    in_sync(fake)


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
    made_once: node.MadeOnce, release: t.Any
) -> None:
    fake = rolled_on(made_once, release)
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


@pytest.mark.parametrize("tick_between", [True, False])
def test_a_partition_that_was_refused_once_is_mended_after_a_later_fault(
    made_once: node.MadeOnce, tick_between: bool
) -> None:
    """The refusal of an earlier fault counted for ten minutes, while a stranger ran on the CPUs."""
    fake = rolled_on(made_once, TRIXIE)
    refused = {f"{CGROUP}/{OWN}/{PARTITION}": [1, 0, fake.time]}
    fake.put("/run/corral/attempts.json", json.dumps(refused))
    if tick_between:  # It sees the partition in force.
        assert runs.tick(fake.host()) == 0
        assert json.loads(fake.get("/run/corral/attempts.json")) == {}
    else:  # The write of another run made it so.
        attempts.save(fake.host(), [make_step.partition(next(iter(refused)), "root", CPUS)])
        assert json.loads(fake.get("/run/corral/attempts.json")) == {}
    fake.intrude("greedy.slice", "2-3")
    runs.tick(fake.host())
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


def test_where_the_partition_wins_who_asks_for_its_cpus_is_told_all_the_same(made_once: node.MadeOnce) -> None:
    fake = rolled_on(made_once, FORKY)
    fake.intrude("greedy.slice", "2-3")
    assert partition(fake) == "root"
    assert list(items(fake)) == ["greedy.slice"]
    assert fake.exposed() == []


@pytest.mark.parametrize("release", [BOOKWORM, TRIXIE, FORKY])
def test_a_grant_of_which_no_cpu_is_online_moves_to_others(made_once: node.MadeOnce, release: t.Any) -> None:
    """Kernel 6.1 goes on to show a partition, which has no CPU then."""
    fake = rolled_on(made_once, release)
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
    apply_step.perform(host, Step("partition", file, wanted, CPUS))
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
    for fake, what in failing.each(rolled, lambda host: apply_at(host, data), "error"):
        assert partition(fake) == "root", what
        assert fake.overlaps == []


def test_a_release_that_is_undone_leaves_nobody_on_the_cpus_that_are_a_grants_again(rolled: node.Node) -> None:
    """A slice that nobody granted anything got shared CPUs in the run, the released ones among them."""
    assert services.start(rolled, BATCH)
    rolled.intrude("corral_rogue.slice/x.service")
    given_back = 0
    for fake, what in failing.each(rolled, lambda host: services.stop(host.node, BATCH, host), "error"):
        if "batch:batch@a" in held(fake) and fake.has(f"{CGROUP}/{BATCH_SLICE}"):
            given_back += 1
            assert not fake.cpus("corral_rogue.slice") & fake.cpus(BATCH_SLICE), what
    assert given_back > 5


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
    other = services.running(rolled, OTHER)
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


def starts(host: node.NodeHost) -> object:
    return services.start(host.node, BATCH, host)


@pytest.mark.parametrize("unit", [DATAPLANE, FEED])
def test_an_empty_slice_counts_a_service_may_start_in_it(unit: str, rolled: node.Node) -> None:
    """Killed at any write of what comes next, while the service is down, and it starts right then: nobody shares."""
    services.stop(rolled, unit)
    assert len(failing.tried(rolled, starts).acts) > 4
    for fake, what in failing.each(rolled, starts, "killed"):
        services.start(fake, unit)
        assert fake.overlaps == [], what
        ticks_until_quiet(fake)


def test_a_set_property_that_somebody_left_blocks_no_start(rolled: node.Node) -> None:
    rolled.systemctl("set-property", "machine.slice", "AllowedCPUs=1-3,5-7")
    rolled.overlaps.clear()
    assert services.start(rolled, BATCH), rolled.said
    assert partition(rolled, BATCH_SLICE) == "root"
    ticks_until_quiet(rolled)


# Explained


def explained(fake: node.Node, name: str = "dataplane") -> list[str]:
    return [
        line
        for line in runs.printed(fake.host(), "explain", name, code=None).splitlines()
        if line.startswith(("CPUs: ", "exclusive CPUs: "))
    ]


def test_explain_says_who_keeps_others_off(rolled: node.Node) -> None:
    assert explained(rolled) == ["CPUs: 2 of its own", "exclusive CPUs: enforced by the kernel"]
    assert explained(rolled, "feed") == ["CPUs: shared, as every Burstable workload"]


def test_explain_says_why_the_kernel_does_not_in_the_words_of_status(made_once: node.MadeOnce) -> None:
    fake = rolled_on(made_once, BOOKWORM)
    fake.intrude("greedy.slice", "2-3")
    assert services.start(fake, BATCH)
    runs.tick(fake.host())
    told = status(fake)["exclusive"]
    assert f"but not {OWN}: greedy.slice (2) asks for the same CPUs" in told
    assert explained(fake)[1] == f"exclusive CPUs: {told}"
    assert explained(fake, "batch")[1] == "exclusive CPUs: enforced by the kernel"


def test_explain_says_that_a_run_keeps_what_is_declared_no_longer(rolled: node.Node) -> None:
    services.start(rolled, DATAPLANE)
    assert apply(rolled, with_cpu(policy="none")).error == ""
    assert explained(rolled) == [
        "CPUs: its own until it stops, then shared: cpu.policy is none",
        "exclusive CPUs: enforced by the kernel",
    ]


def test_explain_says_so_where_partitions_are_off(rolled: node.Node) -> None:
    assert apply(rolled, with_cpu(partitions=False)).remaining == ()
    assert explained(rolled)[1] == "exclusive CPUs: not enforced by the kernel: cpu.partitions is off"
