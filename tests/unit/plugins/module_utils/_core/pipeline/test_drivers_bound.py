# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""PCI functions that are bound to a VFIO driver for a workload on a fake node, what is never taken from the machine, and the way back."""

from __future__ import annotations

import copy
import json
import shutil
import typing as t

import failing
import node
import pytest
import runs
import services
import test_workloads
from _core.host import state
from _core.model.plan.plan import Outcome
from _core.model.profile import profile
from _core.model.values.errors import CorralError
from _core.pipeline import applying, planning
from services import running
from test_workloads import in_sync, status, ticks_until_quiet

Make = t.Callable[..., node.Node]
NIC = "example.com/nic"
# Two functions in one group, and two with groups of their own.
FIRST, SECOND, THIRD, FOURTH = "0000:3b:00.0", "0000:3b:00.1", "0000:5e:00.0", "0000:5e:00.1"
ALL = (FIRST, SECOND, THIRD, FOURTH)
GROUPS = {FIRST: 7, SECOND: 7, THIRD: 8, FOURTH: 9}
DPDK, LATER, OTHER = "dpdk.service", "later.service", "other.service"
FOLDER = "/run/corral/devices"
PROFILE: dict[str, t.Any] = {
    "name": "drivers",
    "cpu": {"reserved": {"cpus": "0,4"}, "policy": "static", "shared": {"min_cpus": 2}},
    "devices": [{"name": NIC, "match": {"pci": "8086:1572"}, "bind": "vfio-pci"}],
    "workloads": [
        {"name": "dpdk", "match": {"unit": DPDK}, "requests": {NIC: 1, "cpu": "100m"}},
        {"name": "later", "match": {"unit": LATER}, "hold": "running", "requests": {NIC: 1, "cpu": "100m"}},
        {"name": "other", "match": {"unit": OTHER}, "hold": "running", "requests": {NIC: 2, "cpu": "100m"}},
    ],
}


def profile_with(**sections: t.Any) -> dict[str, t.Any]:
    return {**copy.deepcopy(PROFILE), **sections}


def only(*names: str) -> dict[str, t.Any]:
    return profile_with(workloads=[one for one in PROFILE["workloads"] if one["name"] in names])


def equip(fake: node.Node) -> None:
    fake.put("/dev/vfio/vfio", "char/10:196\n")
    fake.pci.load("i40e", "vfio-pci")
    for number, address in enumerate(ALL):
        fake.pci.plug(address, "i40e", interface=f"ens{number}", group=GROUPS[address], sriov_numvfs="0")
    services.add(fake, DPDK, LATER, OTHER)
    assert not runs.install(fake.host()).error


def roll_out(fake: node.Node, data: dict[str, t.Any] | None = None) -> Outcome:
    return test_workloads.roll_out(fake, PROFILE if data is None else data)


def bound(fake: node.Node) -> dict[str, tuple[str, str]]:
    """The override and the driver of each function that is not as it was."""
    found = {one: (fake.pci.override(one), fake.pci.driver(one)) for one in fake.pci.functions}
    return {one: state for one, state in found.items() if state != ("", "i40e")}


def records(fake: node.Node) -> list[str]:
    folder = fake.root / FOLDER[1:]
    return sorted(path.name for path in folder.glob("*.driver")) if folder.is_dir() else []


VFIO = ("vfio-pci", "vfio-pci")


def make_rolled(fake: node.Node) -> None:
    equip(fake)
    assert roll_out(fake).remaining == ()
    assert running(fake, DPDK).devices == {"/dev/vfio/7", "/dev/vfio/vfio"}
    in_sync(fake)
    fake.wait(10)


@pytest.fixture
def rolled(made_once: node.MadeOnce) -> node.Node:
    return made_once(make_rolled)


@pytest.fixture
def fake(made_once: node.MadeOnce) -> node.Node:
    """A node with the cards and the units, and no profile yet."""
    return made_once(equip)


# The way there and back


def test_a_workload_has_all_functions_of_the_group_bound(rolled: node.Node) -> None:
    assert bound(rolled) == {FIRST: VFIO, SECOND: VFIO}
    assert rolled.runs[DPDK].env["PCIDEVICE_EXAMPLE_COM_NIC"] == f"{FIRST},{SECOND}"
    host = rolled.host()
    assert runs.tick(host) == 0
    assert (host.commands, [act for act in host.acts if "/sys/bus/pci" in act]) == ([], [])


def test_a_run_has_them_bound_before_its_first_instruction_and_gives_them_back(rolled: node.Node) -> None:
    before = rolled.fingerprint()
    run = running(rolled, LATER)
    assert run.devices == {"/dev/vfio/8", "/dev/vfio/vfio"}
    assert bound(rolled) == {FIRST: VFIO, SECOND: VFIO, THIRD: VFIO}
    assert not rolled.has("/sys/class/net/ens2/flags")
    in_sync(rolled)
    services.stop(rolled, LATER)
    assert bound(rolled) == {FIRST: VFIO, SECOND: VFIO}
    assert rolled.has("/sys/class/net/ens2/flags")
    in_sync(rolled)
    different = node.different(before, rolled.fingerprint())
    assert [line for line in different if "sys/bus" in line or "devices/" in line] == []
    assert rolled.pci.held_up == []


def test_it_goes_back_to_a_driver_that_is_not_the_kernels_choice(rolled: node.Node) -> None:
    """As dpdk-devbind leaves it: bound by an override that is taken back."""
    rolled.pci.load("uio_pci_generic")
    rolled.put(f"/sys/bus/pci/devices/{THIRD}/class", "0x010802\n")
    rolled.pci.bind_anew(THIRD, "uio_pci_generic")
    rolled.pci.write(f"/sys/bus/pci/devices/{THIRD}/driver_override", "\n")
    assert bound(rolled)[THIRD] == ("", "uio_pci_generic")
    assert running(rolled, LATER).devices == {"/dev/vfio/8", "/dev/vfio/vfio"}
    services.stop(rolled, LATER)
    assert bound(rolled)[THIRD] == ("", "uio_pci_generic")
    in_sync(rolled)


def test_what_others_bound_meanwhile_stays(rolled: node.Node) -> None:
    rolled.pci.load("ice")
    running(rolled, LATER)
    rolled.pci.bind_anew(THIRD, "ice")
    services.stop(rolled, LATER)
    assert bound(rolled)[THIRD] == ("", "ice")
    assert f"{THIRD}.driver" not in records(rolled)


@pytest.mark.parametrize("hand", ["unbound", "bound to its own driver"])
def test_one_that_a_hand_took_is_bound_before_the_unit_may_open_it_and_goes_back_later(
    rolled: node.Node, hand: str
) -> None:
    (rolled.pci.unbind if hand == "unbound" else rolled.pci.bind_anew)(FIRST)
    host = rolled.host()
    assert runs.tick(host) == 2
    probes = [index for index, act in enumerate(host.acts) if "drivers_probe" in act]
    lists = [index for index, act in enumerate(host.acts) if "DeviceAllow=" in act]
    assert lists[0] < min(probes)
    assert max(probes) < lists[-1]
    assert bound(rolled) == {FIRST: VFIO, SECOND: VFIO}
    in_sync(rolled)
    services.stop(rolled, DPDK)
    assert roll_out(rolled, only("later")).remaining == ()
    assert bound(rolled) == {}


def test_they_go_back_once_the_unit_may_not_open_them_any_more(rolled: node.Node) -> None:
    running(rolled, LATER)
    host = rolled.host()
    services.stop(rolled, LATER, host)
    unbound = [index for index, act in enumerate(host.acts) if THIRD in act and "sys/bus" in act]
    lists = [index for index, act in enumerate(host.acts) if "DeviceAllow=" in act]
    assert max(lists) < min(unbound)
    assert max(unbound) < host.acts.index("write_file /var/lib/corral/checkpoint.json"), "free only then"
    assert bound(rolled) == {FIRST: VFIO, SECOND: VFIO}


def test_one_that_its_driver_does_not_let_go_holds_up_nothing_else_in_a_tick(rolled: node.Node) -> None:
    rolled.pci.bind_anew(FIRST)
    rolled.pci.stuck.add(FIRST)
    rolled.put(f"{FOLDER}/{DPDK}.env", "")
    assert runs.tick(rolled.host()) == 2
    assert status(rolled)["error"] is None
    assert "PCIDEVICE_" in rolled.get(f"{FOLDER}/{DPDK}.env")
    assert FIRST in {one["subject"] for one in status(rolled)["items"]}
    rolled.pci.stuck.clear()
    ticks_until_quiet(rolled)


def test_one_card_is_named_by_its_address(fake: node.Node) -> None:
    rows = [{"name": NIC, "match": {"address": "0000:5e:00.1"}, "bind": "vfio-pci"}]
    data = profile_with(devices=rows, workloads=only("later")["workloads"])
    assert roll_out(fake, data).remaining == ()
    assert running(fake, LATER).devices == {"/dev/vfio/9", "/dev/vfio/vfio"}
    assert bound(fake) == {FOURTH: VFIO}


@pytest.mark.parametrize("address", ["5e:00.0", 30.5, "0000:5e:00.9", "0000:5e:00.0\n", ""])
def test_an_address_that_is_none_is_refused(address: object) -> None:
    rows = [{"name": NIC, "match": {"address": address}, "bind": "vfio-pci"}]
    with pytest.raises(CorralError, match=r"devices\[0\].match.address: .*\"0000:(5e:00.0|00:30.5)\""):
        profile.parse(profile_with(devices=rows))


def test_a_group_that_pci_stub_has_as_a_whole_is_not_given(rolled: node.Node) -> None:
    rolled.pci.load("pci-stub")
    rolled.pci.bind_anew(THIRD, "pci-stub")
    assert running(rolled, LATER).devices == {"/dev/vfio/9", "/dev/vfio/vfio"}
    assert services.start(rolled, OTHER) is None
    assert any("IOMMU group 8: pci-stub has all of it" in line for line in rolled.said)


def test_an_override_that_its_driver_does_not_follow_comes_back(rolled: node.Node) -> None:
    rolled.pci.write(f"/sys/bus/pci/devices/{THIRD}/driver_override", "another")
    assert running(rolled, LATER).devices == {"/dev/vfio/8", "/dev/vfio/vfio"}
    services.stop(rolled, LATER)
    assert bound(rolled)[THIRD] == ("another", "i40e")
    in_sync(rolled)


@pytest.mark.parametrize("how", ["workload leaves", "resource leaves", "bind leaves", "removal"])
def test_they_go_back_when_they_are_declared_no_longer(rolled: node.Node, how: str) -> None:
    services.stop(rolled, DPDK)
    if how == "removal":
        runs.remove(rolled.host())
    else:
        gone = {
            "workload leaves": only(),
            "resource leaves": profile_with(devices=[], workloads=[]),
            "bind leaves": profile_with(
                devices=[{"name": NIC, "match": {"pci": "8086:1572", "driver": "vfio-pci"}}], workloads=[]
            ),
        }
        roll_out(rolled, gone[how])
    assert (bound(rolled), records(rolled)) == ({}, [])


def test_a_run_keeps_its_drivers_when_its_workload_leaves_the_profile(rolled: node.Node) -> None:
    running(rolled, LATER)
    roll_out(rolled, profile_with(devices=[], workloads=[]))
    assert bound(rolled) == {FIRST: VFIO, SECOND: VFIO, THIRD: VFIO}
    for unit in (DPDK, LATER):
        services.stop(rolled, unit)
        runs.tick(rolled.host())
    runs.tick(rolled.host())
    assert (bound(rolled), records(rolled), rolled.pci.held_up) == ({}, [], [])


def test_a_run_whose_grant_is_lost_keeps_its_drivers_until_it_stops(rolled: node.Node) -> None:
    """They were taken back while it did not have the group open just then."""
    rolled.pci.open_files = set
    for path in (state.CHECKPOINT, f"{state.CHECKPOINT}.previous"):
        rolled.drop(path)
    for dummy in range(2):
        host = rolled.host()
        assert runs.tick(host) == 2
        assert [act for act in host.acts if "/sys/bus/pci" in act] == []
    running(rolled, LATER)
    services.stop(rolled, LATER)
    services.stop(rolled, DPDK)
    ticks_until_quiet(rolled)
    assert bound(rolled) == {FIRST: VFIO, SECOND: VFIO}
    assert roll_out(rolled, only("later")).remaining == ()
    assert bound(rolled) == {}


def test_what_a_workload_hands_on_stays_bound(rolled: node.Node) -> None:
    assert running(rolled, OTHER).devices == {"/dev/vfio/8", "/dev/vfio/9", "/dev/vfio/vfio"}
    services.stop(rolled, OTHER)
    assert bound(rolled) == {FIRST: VFIO, SECOND: VFIO}
    rows = [{**one, "requests": {NIC: 3}} if one["name"] == "other" else one for one in PROFILE["workloads"]]
    services.stop(rolled, DPDK)
    roll_out(rolled, profile_with(workloads=[one for one in rows if one["name"] != "dpdk"]))
    assert bound(rolled) == {}
    running(rolled, OTHER)
    assert set(bound(rolled)) == set(ALL)
    in_sync(rolled)


def test_what_was_vfios_before_stays_so(fake: node.Node) -> None:
    fake.pci.bind_anew(THIRD, "vfio-pci")
    fake.pci.unbind(FOURTH)  # has no driver at all
    assert roll_out(fake, only("other")).remaining == ()
    rows = [{"name": "other", "match": {"unit": OTHER}, "hold": "running", "requests": {NIC: 3}}]
    roll_out(fake, profile_with(workloads=rows))
    running(fake, OTHER)
    assert bound(fake) == dict.fromkeys(ALL, VFIO)
    services.stop(fake, OTHER)
    assert bound(fake) == {THIRD: VFIO, FOURTH: ("", "")}
    in_sync(fake)


def test_a_group_that_others_bound_stays_open_where_it_was_away_while_systemd_set_the_list(
    fake: node.Node,
) -> None:
    # as ids= of vfio-pci does whenever it is plugged in
    fake.pci.bind_anew(THIRD, "vfio-pci")
    rows = [{"name": NIC, "match": {"address": THIRD}, "bind": "vfio-pci"}]
    roll_out(fake, {**only("dpdk"), "devices": rows})
    running(fake, DPDK)
    in_sync(fake)
    program = fake.systemd.programs[DPDK]
    assert program == {"char/10:196", "char/240:8"}
    fake.drop("/dev/vfio/8")
    fake.systemctl("daemon-reload")
    fake.put("/dev/vfio/8", "char/240:8\n")
    assert fake.systemd.programs[DPDK] == program
    in_sync(fake)


def test_after_a_reboot_a_declared_workload_has_them_again(rolled: node.Node) -> None:
    for address in (FIRST, SECOND):  # The kernel forgets the override.
        rolled.pci.bind_anew(address)
    services.reboot(rolled)
    assert bound(rolled) == {FIRST: VFIO, SECOND: VFIO}
    assert running(rolled, DPDK).devices == {"/dev/vfio/7", "/dev/vfio/vfio"}
    in_sync(rolled)


# What is refused


NET, PARTITION, WAY = "/sys/class/net/ens2", "cciss!c0d0p1", f"/sys/devices/pci0000:5e/{THIRD}/nvme/nvme0/nvme0c0n1"
DISKS = f"/sys/devices/pci0000:5e/{THIRD}/nvme"
# A disk with a partition; one without; and one way to a disk of several NVMe controllers, below which is no other disk
# (drivers/nvme/host/multipath.c).
DISK = {
    f"{DISKS}/cciss!c0d0/dev": "104:0\n",
    f"{DISKS}/cciss!c0d0/{PARTITION}/partition": "1\n",
    f"{DISKS}/cciss!c0d0/{PARTITION}/dev": "104:1\n",
    "/sys/block/cciss!c0d0": f"-> ../..{DISKS}/cciss!c0d0",
    "/dev/cciss/c0d0": "",
}
WHOLE = {
    f"{DISKS}/nvme0/nvme0n1/dev": "259:0\n",
    "/sys/block/nvme0n1": f"-> ../..{DISKS}/nvme0/nvme0n1",
    "/dev/nvme0n1": "",
}
WAY_TO_DISK = {f"{WAY}/hidden": "1\n", "/sys/block/nvme0c0n1": f"-> ../..{WAY}"}
OF_SEVERAL = {
    **WAY_TO_DISK,
    "/sys/devices/virtual/nvme-subsystem/nvme-subsys0/nvme0n1/dev": "259:1\n",
    "/sys/block/nvme0n1": "-> ../../sys/devices/virtual/nvme-subsystem/nvme-subsys0/nvme0n1",
    "/sys/devices/virtual/nvme-subsystem/nvme-subsys0/nvme0": f"-> ../../../pci0000:5e/{THIRD}/nvme/nvme0",
    "/sys/class/nvme-subsystem/nvme-subsys0": "-> ../../../sys/devices/virtual/nvme-subsystem/nvme-subsys0",
    "/dev/nvme0n1": "",
}
UNMOUNT = "unmount it, or take it out, first"
MOUNTS = "/proc/1/mountinfo"
# What is there, by path: a text that is added to the file, the target of a link, None for what is missing; and what is said.
USES: dict[str, tuple[dict[str, str | None], str]] = {
    "up": ({f"{NET}/flags": "=0x1003\n"}, "its network interface ens2 is up: move its addresses and routes elsewhere, then ip link set ens2 down"),
    "enslaved": ({f"{NET}/master": "-> ../../../../virtual/net/bond0"}, "its network interface ens2 is a part of bond0: take it out first"),
    "hidden": (
        {NET: None}, "no network interface of it is seen here: it is in another network namespace, or its driver has none: unbind that first",
    ),
    "unreadable": ({f"{NET}/flags": None}, "its network interface ens2 cannot be checked"),
    "with functions": (
        {f"/sys/bus/pci/devices/{THIRD}/sriov_numvfs": "=4\n"}, "it has 4 virtual functions: write 0 to its sriov_numvfs first",
    ),
    "mounted": (
        {**DISK, MOUNTS: "99 1 104:1 / /srv rw - ext4 /dev/disk rw\n"}, f"its disk /dev/cciss/c0d0 is mounted: {UNMOUNT}",
    ),
    "of Btrfs": (
        {**DISK, MOUNTS: "99 1 0:47 / /srv rw - btrfs /dev/cciss/c0d0p1 rw\n"}, f"its disk /dev/cciss/c0d0 is mounted: {UNMOUNT}",
    ),
    "swap": ({**DISK, "/proc/swaps": "/dev/cciss/c0d0p1 partition 1 0 -2\n"}, f"its disk /dev/cciss/c0d0 is swap: {UNMOUNT}"),
    "of RAID": ({**DISK, f"{DISKS}/cciss!c0d0/{PARTITION}/holders/md0": ""}, f"its disk /dev/cciss/c0d0 is a part of md0: {UNMOUNT}"),
    "without a table of mounts": ({**DISK, MOUNTS: None}, "its disk /dev/cciss/c0d0 cannot be checked"),
    "without its file": ({**DISK, "/dev/cciss/c0d0": None}, "its disk /dev/cciss/c0d0 cannot be checked"),
    "a way to nothing": (WAY_TO_DISK, "its disk /dev/nvme0c0n1 cannot be checked"),
    "of several controllers": (
        {**OF_SEVERAL, MOUNTS: "99 1 259:1 / /srv rw - ext4 /dev/disk rw\n"}, f"its disk /dev/nvme0n1 is mounted: {UNMOUNT}",
    ),
    "a whole disk, mounted": (
        {**WHOLE, MOUNTS: "99 1 259:0 / /srv rw - ext4 /dev/disk rw\n"}, f"its disk /dev/nvme0n1 is mounted: {UNMOUNT}",
    ),
    "a whole disk, of LVM": ({**WHOLE, f"{DISKS}/nvme0/nvme0n1/holders/dm-0": ""}, f"its disk /dev/nvme0n1 is a part of dm-0: {UNMOUNT}"),
}  # fmt: skip


def put_there(fake: node.Node, there: dict[str, str | None]) -> None:
    """What is at these paths: see USES; a text after "=" takes the place of what a file has."""
    for path, text in there.items():
        file = fake.root / path[1:]
        if text is None:
            file.unlink(missing_ok=True)
        elif text.startswith("-> "):
            file.parent.mkdir(parents=True, exist_ok=True)
            file.symlink_to(text[3:])
        else:
            fake.put(path, text[1:] if text.startswith("=") else (fake.get(path) if fake.has(path) else "") + text)


@pytest.mark.parametrize("use", USES)
def test_what_the_machine_uses_is_never_taken_from_it(rolled: node.Node, use: str) -> None:
    there, said = USES[use]
    put_there(rolled, there)
    before = rolled.fingerprint()
    host = rolled.host()
    assert services.start(rolled, OTHER, host) is None
    assert any(f"{THIRD} cannot be bound to vfio-pci: {THIRD} (i40e): {said}" in line for line in rolled.said)
    assert [act for act in host.acts if "/sys/bus/pci" in act] == []
    assert running(rolled, LATER).devices == {"/dev/vfio/9", "/dev/vfio/vfio"}, "the other one"
    services.stop(rolled, LATER)
    assert [line for line in node.different(before, rolled.fingerprint()) if "sys/bus" in line] == []
    in_sync(rolled)


def test_a_disk_that_the_kernel_has_given_to_another_keeps_its_driver(rolled: node.Node) -> None:
    put_there(rolled, DISK)
    asked: list[str] = []
    host = rolled.host()
    host.is_claimed = lambda path: bool(asked.append(path))  # type: ignore[method-assign]
    planning.compile_profile(host, profile.parse(PROFILE))
    assert asked == [], "for this moment no other one could have the disk"
    rolled.claimed.add("/dev/cciss/c0d0")  # Of a file system with several disks the kernel shows one.
    host = rolled.host()
    assert services.start(rolled, LATER, host) is None
    assert any(f"{THIRD}: i40e keeps it: its disk /dev/cciss/c0d0 is in use: {UNMOUNT}" in line for line in rolled.said)
    assert [act for act in host.acts if "/sys/bus/pci" in act] == []
    rolled.claimed.clear()
    assert running(rolled, LATER).devices == {"/dev/vfio/8", "/dev/vfio/vfio"}


def test_an_interface_that_comes_up_at_the_last_moment_keeps_its_driver(rolled: node.Node) -> None:
    number = failing.number_of(rolled, lambda host: services.start(host.node, LATER, host), "checkpoint.json")

    def come_up(now: int) -> None:
        if now == number:
            rolled.pci.bring("ens2", up=True)

    assert services.start(rolled, LATER, rolled.host(then=come_up)) is None
    assert any(f"{THIRD}: i40e keeps it: its network interface ens2 is up" in line for line in rolled.said)
    assert bound(rolled) == {FIRST: VFIO, SECOND: VFIO}


def test_a_node_without_the_driver_or_the_iommu_says_so(fake: node.Node) -> None:
    shutil.rmtree(fake.root / "sys/bus/pci/drivers/vfio-pci")
    before = fake.fingerprint()
    with pytest.raises(CorralError, match="driver vfio-pci is not there: modprobe vfio-pci"):
        applying.declare(fake.host(), profile.parse(PROFILE))
    fake.pci.load("vfio-pci")
    for address in ALL:
        (fake.root / f"sys/bus/pci/devices/{address}/iommu_group").unlink()
    with pytest.raises(CorralError, match="it has no IOMMU group: switch the IOMMU on"):
        applying.declare(fake.host(), profile.parse(PROFILE))
    assert [line for line in node.different(before, fake.fingerprint()) if "sys/bus" not in line] == []


def test_check_mode_foretells_it_and_writes_nothing(fake: node.Node) -> None:
    before, host = fake.fingerprint(), fake.host()
    declared = profile.parse(PROFILE)
    plan = planning.plan_profile(host, planning.compile_profile(host, declared, fresh=True), declare=True)
    found = [(one.subject, one.actual, one.wanted) for one in plan.changes if one.property == "driver"]
    assert found == [(FIRST, "i40e", "vfio-pci"), (SECOND, "i40e", "vfio-pci")]
    assert (host.writes, node.different(before, fake.fingerprint())) == ([], [])


def test_a_driver_that_does_not_let_go_stops_the_start_and_all_is_as_it_was(rolled: node.Node) -> None:
    rolled.pci.stuck.add(THIRD)
    before = rolled.fingerprint()
    assert services.start(rolled, LATER) is None
    assert any(f"{THIRD}: driver i40e does not let go of it: stop what uses it" in line for line in rolled.said)
    assert bound(rolled) == {FIRST: VFIO, SECOND: VFIO}
    different = node.different(before, rolled.fingerprint())
    assert [line for line in different if "sys/bus" in line or "corral/devices" in line] == []


def test_a_function_that_vfio_does_not_take_goes_back(rolled: node.Node) -> None:
    rolled.pci.refusing.add(THIRD)
    assert services.start(rolled, LATER) is None
    assert any(f"{THIRD}: vfio-pci does not take it, it has no driver now" in line for line in rolled.said)
    rolled.pci.refusing.clear()
    runs.tick(rolled.host())
    assert (bound(rolled), records(rolled)) == ({FIRST: VFIO, SECOND: VFIO}, [f"{FIRST}.driver", f"{SECOND}.driver"])


def test_one_that_its_driver_does_not_take_back_holds_up_no_release(rolled: node.Node) -> None:
    running(rolled, LATER)
    rolled.pci.refusing.add(THIRD)
    services.stop(rolled, LATER)
    assert "later" not in rolled.get("/var/lib/corral/checkpoint.json")
    assert runs.tick(rolled.host()) == 2
    (item,) = status(rolled)["items"]
    assert (item["subject"], item["property"]) == (THIRD, "driver")
    rolled.pci.refusing.clear()
    runs.tick(rolled.host())
    assert bound(rolled) == {FIRST: VFIO, SECOND: VFIO}
    in_sync(rolled)


def test_a_group_that_a_process_has_open_waits(rolled: node.Node) -> None:
    running(rolled, LATER)
    rolled.claimed.add("/dev/vfio/8")
    services.stop(rolled, LATER)
    assert bound(rolled)[THIRD][1] == "vfio-pci"
    rolled.claimed.clear()
    runs.tick(rolled.host())
    assert bound(rolled) == {FIRST: VFIO, SECOND: VFIO}
    in_sync(rolled)


# What happens meanwhile


def test_a_run_that_binds_again_and_fails_later_leaves_no_override_behind(rolled: node.Node) -> None:
    rolled.pci.bind_anew(FIRST)

    def act(host: node.NodeHost) -> object:
        return applying.declare(host, profile.parse(profile_with(pids={"per_workload": 64})))

    assert bound(failing.tried(rolled, act).node) == {FIRST: VFIO, SECOND: VFIO}
    for fake, what in failing.each(rolled, act, "error"):
        assert fake.pci.override(FIRST) in ("", "vfio-pci"), what
        runs.tick(fake.host())
        runs.tick(fake.host())
        assert bound(fake) == {FIRST: VFIO, SECOND: VFIO}, what


def test_one_that_got_another_driver_and_is_in_use_is_left_alone(rolled: node.Node) -> None:
    rolled.pci.bind_anew(FIRST)
    rolled.pci.bring("ens0", up=True)
    assert runs.tick(rolled.host()) == 2
    (item,) = status(rolled)["items"]
    assert (item["subject"], item["property"]) == (f"dpdk {FIRST}", "health")
    assert "ens0 is up" in item["actual"]
    services.stop(rolled, DPDK)
    roll_out(rolled, only("later"))
    assert (bound(rolled), records(rolled)) == ({}, [])


def test_one_that_is_unplugged_is_forgotten_with_its_workload(rolled: node.Node) -> None:
    running(rolled, LATER)
    shutil.rmtree(rolled.root / f"sys/bus/pci/devices/{THIRD}")
    del rolled.pci.functions[THIRD]
    runs.tick(rolled.host())
    services.stop(rolled, LATER)
    runs.tick(rolled.host())
    assert records(rolled) == [f"{FIRST}.driver", f"{SECOND}.driver"]
    in_sync(rolled)


def test_a_card_that_the_machine_uses_is_no_fault_unless_a_workload_has_it(
    fake: node.Node, capsys: pytest.CaptureFixture[str]
) -> None:
    fake.pci.bring("ens3", up=True)
    assert roll_out(fake, only("later")).error == ""
    capsys.readouterr()
    assert runs.command(fake.host(), "devices") == 0
    assert (
        f"in use: cannot be bound to vfio-pci: {FOURTH} (i40e): its network interface ens3 is up"
        in capsys.readouterr().out
    )
    uplink = devices(fake)[FOURTH]
    assert (uplink["healthy"], uplink["in_use"]) == (False, True)
    assert services.start(fake, LATER)
    assert runs.command(fake.host(), "devices") == 0
    fake.pci.bind_anew(FIRST)
    fake.pci.bring("ens0", up=True)
    assert runs.command(fake.host(), "devices") == 2


@pytest.mark.parametrize("text", ["", "{", "[]", '["a"]', "[1, 2]", "null", '["", "i40e", 3]'])
def test_a_record_that_is_damaged_lets_the_kernel_choose(rolled: node.Node, text: str) -> None:
    running(rolled, LATER)
    rolled.put(f"{FOLDER}/{THIRD}.driver", text)
    in_sync(rolled)
    services.stop(rolled, LATER)
    assert bound(rolled) == {FIRST: VFIO, SECOND: VFIO}
    assert f"{THIRD}.driver" not in records(rolled)


def test_a_file_of_another_name_is_no_record(rolled: node.Node) -> None:
    for name in ("..driver", "a.driver", "0000:3b:00.9.driver", "0000:3b:00.0\n.driver"):
        rolled.put(f"{FOLDER}/{name}", "{}")
    in_sync(rolled)


# Faults

FAULTS = ("error", "killed", "torn")


def starts(host: node.NodeHost) -> object:
    return services.start(host.node, OTHER, host)


def stops(host: node.NodeHost) -> object:
    return services.stop(host.node, LATER, host)


def rolls_out(host: node.NodeHost) -> object:
    rows = [{"name": "new", "match": {"unit": "new.service"}, "requests": {NIC: 2}}]
    return applying.declare(host, profile.parse(profile_with(workloads=[*rows, *only("later")["workloads"]])))


@pytest.mark.parametrize("act", [starts, stops, rolls_out, runs.remove], ids=lambda act: act.__name__)
@pytest.mark.parametrize("fail", FAULTS)
def test_a_run_that_fails_anywhere_is_gone_on_with(fake: node.Node, fail: str, act: failing.Act) -> None:
    services.add(fake, "new.service")
    roll_out(fake, only("later", "other") if act is starts else None)
    if act in (stops, rolls_out):
        running(fake, LATER)
    runs.tick(fake.host())
    writes = [one for one in failing.tried(fake, act).acts if "/sys/bus/pci" in one]
    assert len(writes) >= (3 if act is not runs.remove else 2), writes
    for twin, what in failing.each(fake, act, fail, FAULTS):
        if act is runs.remove:
            runs.remove(twin.host())
            assert (bound(twin), records(twin)) == ({}, []), what
            continue
        for dummy in range(3):
            runs.tick(twin.host())
        rows = json.loads(twin.get("/var/lib/corral/checkpoint.json"))["data"]["grants"]
        held = {key for row in rows for one in row.get("devices", ()) for key in one[3] if key in ALL}
        assert bound(twin) == dict.fromkeys(held, VFIO), what
        assert records(twin) == sorted(f"{one}.driver" for one in held), what
        assert twin.pci.held_up == [], what
        in_sync(twin)


# A boot


def devices(fake: node.Node) -> dict[str, dict[str, t.Any]]:
    """The devices by id, as a person is told of them."""
    return {
        one["id"]: one
        for row in json.loads(runs.printed(fake.host(), "devices", "--json", code=None))["resources"]
        for one in row["devices"]
    }


def rebooted(fake: node.Node) -> None:
    """The node starts: no interface is up yet, and systemd is not done."""
    for number in range(len(ALL)):
        fake.pci.bring(f"ens{number}", up=False)
    fake.systemd.starting = True
    services.reboot(fake)


def test_what_the_machine_used_before_a_reboot_is_given_to_nobody_while_it_starts(fake: node.Node) -> None:
    fake.pci.bring("ens2", up=True)
    assert roll_out(fake, only("later")).error == ""
    runs.tick(fake.host())
    kept = fake.get(state.PCI_USED)
    rebooted(fake)
    assert not services.start(fake, LATER) or fake.pci.driver(THIRD) == "i40e"
    services.stop(fake, LATER)
    runs.tick(fake.host())
    assert devices(fake)[THIRD]["reason"].endswith(
        "is still starting (systemctl is-system-running), and before it booted this was so: its network interface ens2 is up"
    )
    assert fake.get(state.PCI_USED) == kept, "the node has not started"
    fake.systemd.starting = False
    for dummy in range(2):
        fake.wait(10)
        runs.tick(fake.host())
    assert THIRD not in fake.get(state.PCI_USED)
    assert devices(fake)[THIRD]["healthy"]


def test_what_the_machine_uses_is_kept_where_it_changes_and_goes_with_the_profile(fake: node.Node) -> None:
    assert roll_out(fake, only("later")).error == ""
    runs.tick(fake.host())
    assert not fake.has(state.PCI_USED), "nothing is used"
    fake.pci.bring("ens3", up=True)
    fake.wait(10)
    runs.tick(fake.host())
    assert FOURTH in fake.get(state.PCI_USED)
    fake.wait(10)
    host = fake.host()
    runs.tick(host)
    assert [path for path in host.writes if "pci-used" in path] == []
    assert runs.remove(fake.host()).error == ""
    assert not fake.has(state.PCI_USED)


def test_a_record_that_cannot_be_written_is_drift_until_there_is_room(fake: node.Node) -> None:
    assert roll_out(fake, only("later")).error == ""
    runs.tick(fake.host())
    fake.pci.bring("ens3", up=True)
    fake.wait(10)
    number = failing.number_of(fake, runs.tick, f"write_file {state.PCI_USED}")
    assert runs.tick(fake.host("error", number)) == 2
    status = state.read_json(fake.host(), state.STATUS)
    (item,) = status["items"]
    assert (item["subject"], item["manager"], item["verdict"], status["error"]) == (
        state.PCI_USED, "devices", "drift", None,
    )  # fmt: skip
    assert "No space left on device" in item["reason"]
    assert f"{FOURTH}: its network interface ens3 is up" in item["wanted"]
    assert not fake.has(state.PCI_USED)
    fake.wait(10)
    assert runs.tick(fake.host()) == 0
    assert FOURTH in fake.get(state.PCI_USED)
    assert state.read_json(fake.host(), state.STATUS)["in_sync"]


@pytest.mark.parametrize("text", ["", "{", "[]", "null", '{"version": 1, "checksum": "x", "data": {}}'])
def test_a_record_that_is_none_holds_everything_back_while_the_node_starts(text: str, fake: node.Node) -> None:
    assert roll_out(fake, only("later")).error == ""
    fake.put(state.PCI_USED, text)
    rebooted(fake)
    runs.tick(fake.host())
    assert {one["healthy"] for one in devices(fake).values()} == {False}
    assert "pci-used.json, with what it used before it booted, cannot be read" in devices(fake)[THIRD]["reason"]
    assert fake.get(state.PCI_USED) == text
    fake.systemd.starting = False
    assert services.start(fake, LATER)
    runs.tick(fake.host())
    assert state.checked(fake.host(), state.PCI_USED)["used"] == {}


def test_what_a_workload_has_is_not_what_the_machine_uses(fake: node.Node) -> None:
    assert roll_out(fake, only("later")).error == ""
    assert services.start(fake, LATER)
    runs.tick(fake.host())
    assert bound(fake)
    assert not fake.has(state.PCI_USED)


def test_a_record_of_long_ago_holds_nothing_back_on_a_node_that_has_started(fake: node.Node) -> None:
    fake.pci.bring("ens2", up=True)
    assert roll_out(fake, only("later")).error == ""
    runs.tick(fake.host())
    assert THIRD in fake.get(state.PCI_USED)
    assert roll_out(fake, profile_with(devices=[], workloads=[])).error == ""
    rebooted(fake)
    fake.systemd.starting = False
    runs.tick(fake.host())  # It looks at no function, and so the record is of the boot before still.
    one = [{"name": NIC, "match": {"address": THIRD}, "bind": "vfio-pci"}]
    assert roll_out(fake, profile_with(devices=one, workloads=[PROFILE["workloads"][0]])).error == ""
    assert bound(fake) == {THIRD: VFIO}


def test_an_interface_that_goes_down_at_a_shutdown_is_used_by_the_machine_all_the_same(fake: node.Node) -> None:
    fake.pci.bring("ens2", up=True)
    assert roll_out(fake, only("later")).error == ""
    runs.tick(fake.host())
    fake.systemd.stopping = True
    fake.pci.bring("ens2", up=False)
    fake.wait(10)
    runs.tick(fake.host())
    fake.systemd.stopping = False
    rebooted(fake)
    runs.tick(fake.host())
    assert not devices(fake)[THIRD]["healthy"]
