# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The fake node itself: partitions, what systemd has loaded, who comes from outside, and what its guard notes."""

from __future__ import annotations

import errno
import json
import typing as t

import node
import pytest
import services
from fake_cpusets import BOOKWORM, FORKY, TRIXIE, Release
from guard import CHECKPOINT

Make = t.Callable[..., node.Node]
CGROUP = "/sys/fs/cgroup"
SYSTEM = "/etc/systemd/system"
OWN, OTHER = "corral_dataplane.slice", "corral_feed.slice"
RELEASES = pytest.mark.parametrize("release", [BOOKWORM, TRIXIE, FORKY], ids=str)
INTRUDERS = ("rogue.service", "mine.slice/x.service", "machine.slice/libpod-1.scope", "lxc")


def set_cpus(fake: node.Node, unit: str, cpus: str) -> None:
    fake.systemctl("set-property", "--runtime", unit, f"AllowedCPUs={cpus}")


def partition(fake: node.Node, unit: str, kind: str | None = None) -> str:
    """Write cpuset.cpus.partition as Corral does, and read it."""
    path = f"{CGROUP}/{fake.systemd.place(unit)}/cpuset.cpus.partition"
    if kind:
        fake.host().write_value(path, kind)
    return fake.get(path).strip()


def reserve(fake: node.Node) -> None:
    """All that is there on 0,4."""
    for unit in ("system.slice", "user.slice", "init.scope"):
        set_cpus(fake, unit, "0,4")


def own(fake: node.Node, unit: str, cpus: str) -> None:
    """A slice with CPUs of its own, in the order that is never wrong."""
    fake.systemctl("start", unit)
    set_cpus(fake, unit, cpus)
    assert partition(fake, unit, "root") == "root"


def grant(fake: node.Node, cpus: str) -> None:
    rows = [{"workload": "dataplane", "cpus": cpus}]
    fake.put(f"/{CHECKPOINT}", json.dumps({"data": {"grants": rows}}))


def noted(fake: node.Node) -> list[str]:
    """What the guard found, which is what the test wants."""
    found = list(fake.overlaps)
    fake.overlaps.clear()
    fake.seen.clear()
    return found


# Partitions


def test_cpuset_files_are_there_once_a_unit_wants_them(fake: node.Node) -> None:
    fake.intrude("lxc")
    assert not fake.has(f"{CGROUP}/lxc/cpuset.cpus")
    set_cpus(fake, "system.slice", "0-3")
    files = ("cpuset.cpus", "cpuset.cpus.effective", "cpuset.cpus.partition")
    for unit in ("lxc", "user.slice", "init.scope"):
        assert [fake.get(f"{CGROUP}/{unit}/{file}") for file in files] == ["\n", "0-7\n", "member\n"]
    assert fake.has(f"{CGROUP}/cpuset.cpus.effective")
    assert not fake.has(f"{CGROUP}/cpuset.cpus.partition")
    assert not fake.has(f"{CGROUP}/system.slice/dbus.service/cpuset.cpus"), "nothing in it wants one"
    set_cpus(fake, "system.slice", "")
    assert not fake.has(f"{CGROUP}/lxc/cpuset.cpus")


@RELEASES
def test_what_comes_from_outside_is_kept_out(release: Release, make: Make) -> None:
    fake = make(release=release)
    reserve(fake)
    own(fake, OWN, "1,5")
    for path in INTRUDERS:
        fake.intrude(path)
        assert fake.systemd.effective(path) == {0, 2, 3, 4, 6, 7}
    assert fake.get(f"{CGROUP}/cpuset.cpus.effective") == "0,2-4,6-7\n"
    assert (fake.overlaps, fake.exposed()) == ([], [])
    for path in INTRUDERS:
        fake.withdraw(path)


@RELEASES
def test_a_partition_outlives_a_reload_and_a_move_and_ends_with_its_slice(release: Release, make: Make) -> None:
    fake = make(release=release)
    reserve(fake)
    own(fake, OWN, "1,5")
    own(fake, OTHER, "2")
    fake.systemctl("daemon-reload")
    set_cpus(fake, OTHER, "6")
    set_cpus(fake, OWN, "1,2")
    assert (partition(fake, OWN), partition(fake, OTHER), fake.cpus(OWN)) == ("root", "root", {1, 2})
    fake.systemctl("stop", OWN)
    assert fake.get(f"{CGROUP}/cpuset.cpus.effective") == "0-5,7\n"
    fake.systemctl("start", OWN)
    assert partition(fake, OWN) == "member"


@RELEASES
def test_a_sibling_that_asks_for_its_cpus(release: Release, make: Make) -> None:
    fake = make(release=release)
    reserve(fake)
    own(fake, OWN, "1,5")
    fake.systemd.occupy(OWN)
    fake.intrude("lxc", cpus="5-6")
    assert partition(fake, OWN).startswith("root" if release == FORKY else "root invalid")
    assert bool(fake.standing) == bool(fake.exposed()) == (release != FORKY)
    assert fake.overlaps == [], "that was not Corral"
    fake.withdraw("lxc")
    assert (partition(fake, OWN) == "root") == (release == FORKY)
    partition(fake, OWN, "member")
    assert partition(fake, OWN, "root") == "root"
    assert (fake.standing, fake.exposed()) == (frozenset(), [])


@RELEASES
def test_its_cpus_go_offline_and_come_back(release: Release, make: Make) -> None:
    fake = make(release=release)
    reserve(fake)
    own(fake, OWN, "1")
    fake.systemd.occupy(OWN)
    fake.set_online(1)
    assert fake.cpus(OWN) == (frozenset() if release == BOOKWORM else {0, 2, 3, 4, 5, 6, 7})
    assert partition(fake, OWN).startswith("root" if release == BOOKWORM else "root invalid")
    fake.set_online()
    assert (partition(fake, OWN), fake.cpus(OWN), fake.standing) == ("root", {1}, frozenset())
    assert fake.overlaps == []


def test_what_the_kernel_refuses(fake: node.Node) -> None:
    fake.systemctl("start", OWN)
    host, path = fake.host(), f"{CGROUP}/{OWN}/cpuset.cpus"
    for file, text, number in (
        ("partition", "root", errno.ENOENT),
        ("partition", "exclusive", errno.EINVAL),
        ("effective", "1", errno.EACCES),
    ):
        with pytest.raises(OSError, match=OWN) as refused:
            host.write_value(f"{path}.{file}", text)
        assert refused.value.errno == number
        set_cpus(fake, OWN, "1")


# The guard


def test_an_order_that_is_never_wrong_is_not_noted(fake: node.Node) -> None:
    fake.intrude("rogue.service")
    grant(fake, "1,5")
    reserve(fake)
    own(fake, OWN, "1,5")
    fake.systemd.occupy(OWN)
    assert (fake.overlaps, fake.exposed()) == ([], [])
    fake.systemd.occupy(OWN, 0)
    fake.systemctl("stop", OWN)
    set_cpus(fake, "system.slice", "0-7")


@pytest.mark.parametrize("procs", [0, 1])
def test_a_gainer_that_grows_before_the_loser_shrinks_is_noted(procs: int, fake: node.Node) -> None:
    reserve(fake)
    set_cpus(fake, "system.slice", "0,4-5")
    grant(fake, "1,5")
    fake.systemctl("start", OWN)
    fake.systemd.occupy(OWN, procs)
    set_cpus(fake, OWN, "1,5")
    assert noted(fake) == [f"system.slice/dbus.service has 5 of {OWN}"]


def test_a_partition_that_ends_too_early_is_noted(fake: node.Node) -> None:
    reserve(fake)
    own(fake, OWN, "1,5")
    fake.systemd.occupy(OWN)
    grant(fake, "1,5")
    fake.intrude("rogue.service")
    partition(fake, OWN, "member")
    assert (noted(fake), len(fake.exposed())) == ([], 2), "nothing else can keep it out: told at rest, not at once"
    set_cpus(fake, "system.slice", "0,4-5")
    assert noted(fake) == [f"system.slice/dbus.service has 5 of {OWN}"]


def test_a_slice_that_runs_as_shared_and_an_empty_isolated_pool_are_exempt(fake: node.Node) -> None:
    grant(fake, "1,5")
    reserve(fake)
    fake.systemctl("start", OWN)
    fake.systemd.occupy(OWN)
    for unit in ("corral.slice", OWN):
        fake.systemctl("start", unit)
        set_cpus(fake, unit, "2-3")
    fake.systemctl("start", "corral_isolated.slice")
    set_cpus(fake, "corral_isolated.slice", "4")
    fake.systemd.occupy("corral_isolated.slice")
    assert fake.overlaps == [], "no profile has isolated CPUs"
    fake.put("/etc/corral/profile.json", '{"cpu": {"isolated": {"cores": 1}}}')
    fake.systemd.occupy("corral_isolated.slice", 0)
    assert fake.overlaps == [], "nobody is in there"
    fake.systemd.occupy("corral_isolated.slice")
    assert len(noted(fake)) == 3


def test_clones_tell_as_well(fake: node.Node) -> None:
    reserve(fake)
    own(fake, OWN, "1,5")
    twin = fake.clone(fake.root.with_name("twin"))
    set_cpus(twin, "system.slice", "1")
    assert (fake.overlaps, len(twin.overlaps), len(fake.seen)) == ([], 1, 1)
    noted(twin)


def test_something_may_happen_after_each_act(fake: node.Node) -> None:
    moments = []
    host = fake.host(then=moments.append)
    host.write_file("/etc/x", "")
    host.run("systemctl", "daemon-reload")
    assert moments == [1, 2]


# What systemd has loaded


def allow(fake: node.Node, unit: str, cpus: str) -> None:
    fake.put(f"{SYSTEM}/{unit}.d/10-corral-cpu.conf", f"[Slice]\nAllowedCPUs=\nAllowedCPUs={cpus}\n")


def test_a_unit_that_something_wants_keeps_what_was_loaded(fake: node.Node) -> None:
    allow(fake, OWN, "1,5")
    fake.put(f"{SYSTEM}/slices.target.d/10-corral-cpu.conf", f"[Unit]\nWants={OWN}\n")
    fake.systemctl("daemon-reload")
    allow(fake, OWN, "2")
    fake.systemctl("start", OWN)
    assert fake.cpus(OWN) == {1, 5}
    fake.systemctl("stop", OWN)
    fake.systemctl("start", OWN)
    assert fake.cpus(OWN) == {1, 5}
    fake.systemctl("stop", OWN)
    fake.systemctl("daemon-reload")
    fake.systemctl("start", OWN)
    assert fake.cpus(OWN) == {2}


def test_a_unit_that_nothing_names_is_loaded_when_it_starts(fake: node.Node) -> None:
    for cpus in ("1,5", "2"):
        allow(fake, OWN, cpus)
        fake.systemctl("start", OWN)
        assert fake.get(f"{CGROUP}/{OWN}/cpuset.cpus").strip() == cpus
        fake.systemctl("stop", OWN)


def test_a_running_service_keeps_its_slice_until_it_is_loaded_anew(fake: node.Node) -> None:
    services.add(fake, "dataplane.service")
    services.start(fake, "dataplane.service")
    fake.put(f"{SYSTEM}/dataplane.service.d/10-corral.conf", f"[Service]\nSlice={OWN}\n")
    services.restart(fake, "dataplane.service")
    assert fake.runs["dataplane.service"].place == "system.slice/dataplane.service"
    fake.systemctl("daemon-reload")
    services.restart(fake, "dataplane.service")
    assert fake.runs["dataplane.service"].place == f"{OWN}/dataplane.service"


@pytest.mark.parametrize("child", [True, False])
def test_on_257_what_was_loaded_comes_with_the_next_change_nearby(child: bool, make: Make) -> None:
    fake = make(reload_applies=False)
    services.add(fake, "x.service", lines="Slice=system.slice\n")
    set_cpus(fake, "user.slice", "0-6")
    allow(fake, "system.slice", "0,4")
    fake.systemctl("daemon-reload")
    assert fake.cpus("system.slice") == fake.systemd.online
    if child:
        services.start(fake, "x.service")
    else:
        set_cpus(fake, "user.slice", "0-5")
    assert fake.cpus("system.slice") == {0, 4}


def test_who_is_no_longer_required_is_not_asked_whether_it_is_needed(fake: node.Node) -> None:
    """StopWhenUnneeded= counts when a unit that requires it stops, as that was loaded."""
    fake.holders["corral-grant@x.service"] = ""
    services.add(fake, "x.service")
    services.start(fake, "x.service")
    services.stop(fake, "x.service")
    assert "corral-grant@x.service" in fake.holders
