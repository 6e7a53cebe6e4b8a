# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Slices with CPUs of their own are partitions of the kernel: with isolcpus=, beside partitions of others, and when something is off."""

from __future__ import annotations

import typing as t

import node
import pytest
import runs
import services
from _core.model.values import cpuset
from fake_cpusets import BOOKWORM, FORKY, TRIXIE
from test_exclusive import (
    BATCH_SLICE,
    CGROUP,
    PARTITION,
    apply,
    boot_with_isolcpus,
    forky,
    isolate,
    items,
    partition,
    quiet,
    with_cpu,
)
from test_workloads import (
    BATCH,
    DATAPLANE,
    FEED,
    OWN,
    held,
    in_sync,
    install,
    roll_out,
    rolled,
    status,
    ticks_until_quiet,
    without,
)

__all__ = ["rolled"]

Make = t.Callable[..., node.Node]


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


@pytest.mark.parametrize(
    ("release", "keys", "kind"),
    [(FORKY, {"load_balance": False}, "isolated"), (BOOKWORM, {}, "root")],
    ids=["7.2 without load_balance", "6.1"],
)
def test_a_kernel_that_makes_a_partition_of_cpus_of_isolcpus_and_others(
    make: Make, release: t.Any, keys: dict[str, bool], kind: str
) -> None:
    fake = make(release=release)
    boot_with_isolcpus(fake, "3")
    assert isolate(fake, "3,7", **keys).remaining == ()
    assert partition(fake, node.ISOLATED) == kind


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
