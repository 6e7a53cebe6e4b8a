# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A persistent set-property by hand on slices that do not run, that have to give CPUs, and that a removal leaves. Found by walks (set-)."""

from __future__ import annotations

import functools
import json
import typing as t

import node
import pytest
import runs
import services
from _core.managers.cpu import cpu_moves
from _core.model.profile import profile
from _core.pipeline import applying
from fake_cpusets import BOOKWORM, FORKY, TRIXIE, Release
from test_persistent_set_property import FILE, FIRST, SECOND, UNIT, made, roll_out, with_workloads

Make = t.Callable[..., node.Node]
RELEASES = pytest.mark.parametrize("release", [BOOKWORM, TRIXIE, FORKY], ids=["6.1", "6.12", "7.2"])
CONTROL = "/etc/systemd/system.control"


def plain(make: Make, release: Release, *, unit: str = "", cpus: str = "") -> node.Node:
    """A node with the agent and two services; a hand may have set CPUs of a unit before."""
    fake = make(reload_applies=release == BOOKWORM, release=release)
    services.add(fake, FIRST, SECOND)
    if unit:
        fake.systemctl("set-property", unit, f"AllowedCPUs={cpus}")
    assert not runs.install(fake.host()).error
    return fake


def quiet(fake: node.Node) -> bool:
    """Whether ticks come to an end."""
    for dummy in range(3):
        fake.wait(10)
        host = fake.host()
        if runs.tick(host) == 0 and not [act for act in host.acts if not act.startswith("write_file /run/corral/")]:
            return True
    return False


@RELEASES
@pytest.mark.parametrize("cpus", ["1-7", "0-7", "3"])
def test_a_first_rollout_starts_a_slice_whose_file_says_other_cpus(make: Make, release: Release, cpus: str) -> None:
    """It started with the file's CPUs, whatever was set live: the rollout failed and was undone."""
    fake = plain(make, release, unit=UNIT, cpus=cpus)
    fake.systemctl("set-property", "--runtime", UNIT, "AllowedCPUs=0-7")
    text = fake.get(FILE)
    roll_out(fake, with_workloads("first"))
    assert fake.systemd.effective(UNIT) == {2, 3, 6, 7}
    assert not fake.overlaps
    assert quiet(fake)
    assert not runs.remove(fake.host()).error
    assert fake.get(FILE) == text


@RELEASES
@pytest.mark.parametrize("unit", ["corral_gone.slice", "corral_isolated.slice", "corral_first.slice"])
def test_cpus_that_a_hand_sets_of_an_exclusive_slice_that_does_not_run(make: Make, release: Release, unit: str) -> None:
    """Each tick set others live and started it, which gave it those of the file: none ever succeeded."""
    fake = plain(make, release)
    roll_out(fake, with_workloads("first", "second", hold="running"))
    assert services.start(fake, SECOND)
    with fake.by_hand():
        fake.systemctl("set-property", unit, f"AllowedCPUs={','.join(map(str, fake.cpus('corral_second.slice')))}")
    assert quiet(fake)
    assert not fake.has(f"{CONTROL}/{unit}.d/50-AllowedCPUs.conf")
    assert not fake.overlaps
    assert fake.get("/sys/fs/cgroup/corral_second.slice/cpuset.cpus.partition").strip() == "root"


@pytest.mark.parametrize("limit", ["CPUWeight=50", "MemoryMax=33554432"])
def test_a_limit_that_a_hand_sets_of_an_isolated_slice_that_no_profile_has(make: Make, limit: str) -> None:
    """set-property makes a control group for it, and a stop of what does not run leaves that: each tick stopped it."""
    fake = plain(make, BOOKWORM)
    roll_out(fake, with_workloads("first"))
    fake.systemctl("set-property", "--runtime", "corral_isolated.slice", limit)
    assert fake.has("/sys/fs/cgroup/corral_isolated.slice")
    assert quiet(fake)
    assert not fake.has("/sys/fs/cgroup/corral_isolated.slice")


@RELEASES
@pytest.mark.parametrize("which", [FIRST, SECOND])
def test_a_start_takes_what_a_hand_set_before_it_gives_these_cpus_away(
    make: Make, release: Release, which: str
) -> None:
    """No workload had them when they were set. The file stayed until the next tick, and a daemon-reload brought it back."""
    fake = plain(make, release)
    roll_out(fake, with_workloads("first", "second", hold="running"))
    fake.systemctl("set-property", UNIT, "AllowedCPUs=1-2,5-6")
    fake.systemd.occupy(UNIT)
    assert services.start(fake, which)
    fake.systemctl("daemon-reload")
    fake.systemctl("set-property", "--runtime", "user.slice", "CPUWeight=100")  # 257: what was read is in force now.
    assert not fake.overlaps
    assert not fake.systemd.effective(UNIT) & fake.cpus(f"corral_{which.removesuffix('.service')}.slice")


@RELEASES
def test_what_a_hand_sets_last_is_there_after_the_removal(make: Make, release: Release) -> None:
    """Nothing looked at it between: the removal wrote what had been there before Corral over it."""
    fake = made(make, "2-3,6-7", applies=release == BOOKWORM)
    roll_out(fake, with_workloads("first", "second"))
    assert not fake.has(FILE)
    fake.systemctl("set-property", UNIT, "AllowedCPUs=3,7")
    text = fake.get(FILE)
    assert not runs.remove(fake.host()).error
    assert fake.get(FILE) == text
    assert fake.systemd.effective(UNIT) == {3, 7}
    assert fake.systemd.units[UNIT].cpus == {3, 7}


@RELEASES
def test_what_was_set_of_a_slice_that_did_not_run_is_in_force_after_the_removal(make: Make, release: Release) -> None:
    """systemd 257 reads it at the daemon-reload, and puts it in force later: the slice had all CPUs."""
    fake = plain(make, release, unit=UNIT, cpus="1,3")
    roll_out(fake, with_workloads("first"))
    assert not runs.remove(fake.host()).error
    assert fake.systemd.effective(UNIT) == {1, 3}


def test_a_live_value_with_an_offline_cpu_comes_back(make: Make) -> None:
    """The kernel does not have that CPU in force: the removal took it for a failure."""
    fake = make()
    fake.systemctl("set-property", "--runtime", "user.slice", "AllowedCPUs=0-7")
    fake.set_online(7)
    roll_out(fake, with_workloads("first"))
    outcome = runs.remove(fake.host())
    assert (outcome.error, outcome.leftovers) == ("", ())
    assert fake.systemd.cgroups["user.slice"].requested == frozenset(range(8))


@pytest.mark.parametrize("runtime", [True, False])
def test_a_value_with_an_offline_cpu_is_undone(make: Make, runtime: bool) -> None:
    """The undo of a rollout took it for a failure as well, named it, and kept the originals of what it had undone."""
    fake = make()
    services.add(fake, FIRST)
    fake.systemctl("set-property", *["--runtime"] * runtime, "user.slice", "AllowedCPUs=0-7")
    fake.set_online(7)
    host = fake.host()
    host.then = lambda dummy: (
        setattr(host, "fail_at", len(host.acts) + 1) if "AllowedCPUs=0,4" in host.acts[-1] else None
    )
    host.fail = "error"
    outcome = applying.declare(host, profile.parse(with_workloads("first")))
    assert outcome.error
    assert outcome.leftovers == ()
    assert fake.systemd.cgroups["user.slice"].requested == frozenset(range(8))
    assert not fake.has("/var/lib/corral/journal/before.json")


def of_three_partitions(make: Make, release: Release, *, hold: str) -> tuple[node.Node, dict[str, t.Any]]:
    """A node on which two services run on CPUs of their own beside the isolated pool, and its profile."""
    fake = plain(make, release)
    data = with_workloads("first", "second", hold=hold)
    data["cpu"].update(reserved={"cpus": "0"}, isolated={"cpus": "3,7"}, options={}, shared={"min_cpus": 1})
    roll_out(fake, data)
    assert services.start(fake, FIRST)
    assert services.start(fake, SECOND)
    return fake, data


@RELEASES
@pytest.mark.parametrize("unit", ["corral_isolated.slice", "corral_first.slice"])
def test_a_run_ends_when_a_hand_gave_its_cpus_to_another_exclusive_slice(
    make: Make, release: Release, unit: str
) -> None:
    """From kernel 7.0 on that slice would get them as soon as the partition ends: neither its end nor any tick after it was possible."""
    fake, dummy = of_three_partitions(make, release, hold="running")
    with fake.by_hand():
        fake.systemctl("set-property", unit, "AllowedCPUs=0-7")
    services.stop(fake, SECOND)
    assert fake.said == []
    assert quiet(fake)
    assert "corral_second.slice" not in fake.systemd.cgroups
    assert fake.get(f"/sys/fs/cgroup/{unit}/cpuset.cpus.partition").strip() == "root"


@RELEASES
@pytest.mark.parametrize(
    "units", [("corral_first.slice", "corral_second.slice"), ("corral_second.slice", "corral_first.slice")]
)
def test_a_run_ends_when_a_hand_gave_two_exclusive_slices_the_same_cpus(
    make: Make, release: Release, units: tuple[str, ...]
) -> None:
    """The one that has none of them would get them as soon as the other's partition ends: each tick was refused."""
    fake, dummy = of_three_partitions(make, release, hold="running")
    cpus = fake.systemd.cgroups["corral_first.slice"].requested
    with fake.by_hand():
        for unit in units:
            fake.systemctl("set-property", unit, "AllowedCPUs=1-2,4-6")
        services.stop(fake, SECOND)
    runs.tick(fake.host())
    assert quiet(fake)
    assert fake.systemd.cgroups["corral_first.slice"].requested == cpus
    assert fake.get("/sys/fs/cgroup/corral_first.slice/cpuset.cpus.partition").strip() == "root"


@RELEASES
def test_a_partition_that_a_hand_made_of_a_slice_does_not_come_back_with_the_end_of_its_run(
    make: Make, release: Release
) -> None:
    """Without partitions it was the slice's original: to restore it would have taken CPUs that others have by then, and no tick succeeded."""
    fake = plain(make, release)
    data = with_workloads("first", hold="running")
    data["cpu"]["partitions"] = "off"
    roll_out(fake, data)
    assert services.start(fake, FIRST)
    path = "sys/fs/cgroup/corral_first.slice/cpuset.cpus.partition"
    with fake.by_hand():
        fake.systemd.write_file(path, "isolated")
    runs.tick(fake.host())
    assert fake.get(f"/{path}").strip() == "member"
    services.stop(fake, FIRST)
    assert fake.said == []
    assert quiet(fake)
    assert "corral_first.slice" not in fake.systemd.cgroups


@RELEASES
def test_a_slice_is_given_up_when_a_hand_gave_another_one_its_cpus_and_no_others(make: Make, release: Release) -> None:
    """The other one has none of what it requests, and gets it as soon as the partition ends: the rollout was refused, and each tick."""
    fake, data = of_three_partitions(make, release, hold="declared")
    cpus = fake.systemd.cgroups["corral_second.slice"].requested
    with fake.by_hand():
        fake.systemctl(
            "set-property",
            "corral_second.slice",
            f"AllowedCPUs={fake.get('/sys/fs/cgroup/corral_first.slice/cpuset.cpus').strip()}",
        )
    roll_out(fake, {**data, "workloads": data["workloads"][1:]})
    assert fake.systemd.cgroups["corral_first.slice"].partition == "member"
    assert fake.systemd.cgroups["corral_second.slice"].requested == cpus
    assert fake.get("/sys/fs/cgroup/corral_second.slice/cpuset.cpus.partition").strip() == "root"


@RELEASES
@pytest.mark.parametrize("beside", ["a workload that begins", "a slice that does not run"])
def test_it_is_given_up_too_where_a_slice_does_not_run(make: Make, release: Release, beside: str) -> None:
    """A control group that is not there counted as one with all CPUs that no partition has, among them those of its own."""
    fake, data = of_three_partitions(make, release, hold="declared")
    cpus = fake.systemd.cgroups["corral_second.slice"].requested
    first = fake.get("/sys/fs/cgroup/corral_first.slice/cpuset.cpus").strip()
    with fake.by_hand():
        fake.systemctl("set-property", "corral_second.slice", f"AllowedCPUs={first}")
        if beside == "a slice that does not run":
            fake.systemctl("stop", UNIT)
    left = data["workloads"][1:]
    if beside == "a workload that begins":
        services.add(fake, "third.service")
        left = [*left, {**data["workloads"][0], "name": "third", "match": {"unit": "third.service"}}]
    roll_out(fake, {**data, "workloads": left})
    assert fake.systemd.cgroups["corral_second.slice"].requested == cpus
    assert fake.get("/sys/fs/cgroup/corral_second.slice/cpuset.cpus.partition").strip() == "root"
    assert not fake.overlaps


@RELEASES
@pytest.mark.parametrize("unit", ["corral_isolated.slice", "corral_first.slice", "corral_second.slice"])
@pytest.mark.parametrize("what", ["removal", "no CPUs", "one workload less"])
def test_an_exclusive_slice_is_given_up_when_a_hand_gave_it_cpus_of_others(
    make: Make, release: Release, unit: str, what: str
) -> None:
    fake, data = of_three_partitions(make, release, hold="declared")
    with fake.by_hand():
        fake.systemctl("set-property", "--runtime", unit, "AllowedCPUs=0-7")
    if what == "removal":
        outcome = runs.remove(fake.host())
        assert all("still holds processes" in one for one in outcome.leftovers), outcome.leftovers
    else:
        cpu = {key: value for key, value in data["cpu"].items() if key != "isolated"}
        less = {**data, "cpu": cpu, "workloads": data["workloads"][1:]}
        roll_out(fake, less if what == "one workload less" else {"name": "property", "pids": {"pid_max": 4194304}})
    assert fake.systemd.cgroups["corral_first.slice"].partition == "member"


@RELEASES
def test_a_removal_gives_back_the_cpus_that_are_offline(make: Make, release: Release) -> None:
    """Another unit keeps the cpuset controller on, so the kernel keeps what was requested last: the slices never had that CPU again."""
    fake = plain(make, release, unit="user.slice", cpus="0-7")
    fake.systemd.run_slice(UNIT)
    fake.systemd.occupy(UNIT)
    roll_out(fake, with_workloads("first"))
    fake.set_online(7)
    outcome = runs.remove(fake.host())
    assert (outcome.error, outcome.leftovers) == ("", ())
    fake.set_online()
    units = ("init.scope", "system.slice", "user.slice", UNIT)
    assert {unit: fake.systemd.effective(unit) for unit in units} == dict.fromkeys(units, frozenset(range(8)))


@pytest.mark.parametrize("applies", [True, False], ids=["252", "257"])
@pytest.mark.parametrize("unit", ["corral.slice", "corral-acme.slice"])
def test_a_limit_that_a_hand_sets_of_a_slice_around_workloads(make: Make, unit: str, applies: bool) -> None:
    """It was corrected, and each daemon-reload brought it back; no item named its file."""
    fake = make(reload_applies=applies)
    services.add(fake, FIRST, SECOND)
    assert not runs.install(fake.host()).error
    data = with_workloads("first", "second")
    data["cpu"]["policy"] = "none"
    hard = {"requests.cpu": 4, "limits.memory": "64Mi"}
    tenant = {"name": "acme", "members": {"units": ["*.service"]}, "quota": [{"name": "all", "hard": hard}]}
    roll_out(fake, {**data, "tenants": [tenant]} if "acme" in unit else data)
    assert services.start(fake, FIRST)
    runs.tick(fake.host())
    path = fake.systemd.place(unit)
    before = fake.get(f"/sys/fs/cgroup/{path}/cpu.weight")
    assert before.strip() != "50"
    fake.systemctl("set-property", unit, "CPUWeight=50")
    assert [one.property for one in runs.plan(fake.host()) if "by set-property" in one.property] == [
        "CPUWeight by set-property"
    ]
    assert quiet(fake)
    fake.systemctl("daemon-reload")
    fake.systemctl("set-property", "--runtime", "user.slice", "CPUWeight=100")
    assert fake.get(f"/sys/fs/cgroup/{path}/cpu.weight") == before
    services.stop(fake, FIRST)
    assert not runs.remove(fake.host()).error
    assert not fake.has(f"{CONTROL}/{unit}.d/50-CPUWeight.conf")


@pytest.mark.parametrize("before", ["", "0-3"])
def test_a_removal_leaves_nothing_of_what_was_set_of_init_scope(make: Make, before: str) -> None:
    """Its live file has a place of its own. It stayed, and reset AllowedCPUs= of each drop-in that sorts before it."""
    fake = make()
    file = "/run/systemd/transient/init.scope.d/50-AllowedCPUs.conf"
    if before:
        fake.systemctl("set-property", "init.scope", f"AllowedCPUs={before}")
    text = fake.get(file) if before else None
    services.add(fake, FIRST)
    roll_out(fake, with_workloads("first"))
    assert fake.systemd.effective("init.scope") == {0, 4}
    assert fake.has(file)
    assert not runs.remove(fake.host()).error
    assert (fake.get(file) if fake.has(file) else None) == text
    assert fake.systemd.effective("init.scope") == ({0, 1, 2, 3} if before else set(range(8)))


@pytest.mark.parametrize("cpus", ["0-7", "2 3,6-7", ""])
def test_cpus_that_a_unit_gets_in_a_boot_alone_are_named(make: Make, cpus: str) -> None:
    """The slice has them while the boot goes on, and a workload that starts in the boot as well."""
    fake = plain(make, BOOKWORM)
    roll_out(fake, with_workloads("first"))
    file = f"/etc/systemd/system/{UNIT}.d/boot.conf"
    fake.put(file, f"[Slice]\nStartupAllowedCPUs={cpus}\n")
    found = [one for one in runs.plan(fake.host()) if one.property == "StartupAllowedCPUs"]
    assert [(one.subject, one.wanted, one.location) for one in found] == [(UNIT, "2-3,6-7", file)] * (cpus == "0-7")


@pytest.mark.parametrize("forgets", [True, False])
def test_a_plan_that_starts_a_slice_under_such_a_file_is_refused(
    make: Make, forgets: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is set live does not count while the file is there."""
    fake = plain(make, BOOKWORM)
    roll_out(fake, with_workloads("first", "second", hold="running"))
    assert services.start(fake, SECOND)
    with fake.by_hand():
        fake.systemctl("set-property", "corral_gone.slice", "AllowedCPUs=0-7")
    if forgets:
        monkeypatch.setattr(cpu_moves, "without_set_property", lambda dummy, steps, *more: steps)
    runs.tick(fake.host())
    said = json.loads(fake.get("/run/corral/status.json"))["error"]
    assert ("report this as a fault of Corral" in (said or "")) == forgets


@RELEASES
def test_what_systemd_has_read_of_it_meanwhile_does_not_come_into_force(make: Make, release: Release) -> None:
    """systemd 257 has it in memory after a daemon-reload, and gives the slice its CPUs when another one beside it gets some."""
    fake = plain(make, release)
    roll_out(fake, with_workloads("first"))
    assert services.start(fake, FIRST)
    with fake.by_hand():
        fake.systemctl("set-property", "system.slice", "AllowedCPUs=1-7")
        fake.systemctl("set-property", "--runtime", "system.slice", "AllowedCPUs=0,4")
        fake.systemctl("daemon-reload")
        fake.systemctl("set-property", "--runtime", "system.slice", "AllowedCPUs=0,4") if release == BOOKWORM else None
    roll_out(fake, with_workloads("first", "second"))
    assert fake.systemd.effective("system.slice") == {0, 4}
    assert not fake.overlaps
    assert not fake.has(f"{CONTROL}/system.slice.d/50-AllowedCPUs.conf")


def reload_by_hand(fake: node.Node, moment: int, number: int) -> None:
    if number == moment:
        with fake.by_hand():
            fake.systemctl("daemon-reload")


@RELEASES
def test_a_reload_at_any_moment_brings_it_into_nobodys_way(make: Make, release: Release) -> None:
    """systemd may read the file after the right CPUs were set live, and before the file is removed."""
    acts = 0
    while True:
        acts += 1
        fake = plain(make, release)
        roll_out(fake, with_workloads("first"))
        with fake.by_hand():
            fake.systemctl("set-property", "system.slice", "AllowedCPUs=1-7")
        host = fake.host(then=functools.partial(reload_by_hand, fake, acts))
        outcome = applying.declare(host, profile.parse(with_workloads("first", "second")))
        assert fake.overlaps == [], host.acts[:acts]
        if outcome.error:  # systemd 252 puts in force what it reads: then it is seen, and undone.
            assert release == BOOKWORM and "the kernel shows 1-7" in outcome.error
            continue
        assert fake.systemd.effective("system.slice") == {0, 4}
        if acts >= len(host.acts):
            return


@RELEASES
@pytest.mark.parametrize("base", ["/run/systemd/system.control", "/etc/systemd/system"])
def test_a_unit_forgets_cpus_of_a_file_of_corrals_that_a_hand_changed_before_a_workload_gets_them(
    make: Make, release: Release, base: str
) -> None:
    """On 257 they come with the next change of a unit beside it: that was the start of the workload's slice."""
    fake = plain(make, release)
    roll_out(fake, with_workloads("first"))
    live = "/run/systemd/system.control/system.slice.d/50-AllowedCPUs.conf"
    file = live if base in live else f"{base}/system.slice.d/10-corral-cpu.conf"
    with fake.by_hand():
        fake.drop(live)
        fake.put(file, "[Slice]\nAllowedCPUs=\nAllowedCPUs=2,6\n")
        fake.systemctl("daemon-reload")
    roll_out(fake, with_workloads("first", "second"))
    assert fake.systemd.effective("corral_second.slice") == {2, 6}
    assert not fake.overlaps
    assert quiet(fake)


def test_a_unit_that_requested_cpus_of_a_partition_in_vain_gives_them_up_before_the_next_workload_gets_them(
    make: Make,
) -> None:
    """From kernel 7.0 on the partition keeps them, and the unit has them as soon as the partition ends."""
    fake = plain(make, FORKY)
    roll_out(fake, with_workloads("first"))
    services.running(fake, FIRST)
    fake.systemd.run_slice(UNIT)
    fake.systemd.occupy(UNIT)
    with fake.by_hand():
        fake.systemctl("set-property", "--runtime", UNIT, "AllowedCPUs=1-3,5-7")
    roll_out(fake, with_workloads("second"))
    assert fake.systemd.effective("corral_second.slice") == {1, 5}
    assert fake.systemd.cgroups[UNIT].requested == {2, 3, 6, 7}
    assert not fake.overlaps
