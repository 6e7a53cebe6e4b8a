# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which devices belong to which resource: matches, IOMMU groups, health, and devices that two resources match."""

from __future__ import annotations

import typing as t

import hypothesis
import pytest
from _core.model.devices import inventory
from _core.model.devices.device import (
    CdiDevice,
    Device,
    DeviceFile,
    GrantedDevice,
    Interface,
    Inventory,
    Match,
    PciFunction,
    Resource,
    Seen,
)
from hypothesis import strategies

NIC = PciFunction(
    "0000:3b:00.0", "devices/pci0000:3a/0000:3b:00.0", 1, "8086:1572", "020000", "i40e", 7, (Interface("ens1f0", True),)
)
SECOND = NIC._replace(
    address="0000:3b:00.1", location="devices/pci0000:3a/0000:3b:00.1", interfaces=(Interface("ens1f1", False),)
)
DISK = PciFunction("0000:01:00.0", "devices/pci0000:00/0000:01:00.0", -1, "144d:a808", "010802", "nvme", 3)
BRIDGE = PciFunction("0000:3a:00.0", "devices/pci0000:3a/0000:3a:00.0", 1, "8086:1572", "060400", None, 7)


def seen(*functions: PciFunction, cdi: tuple[CdiDevice, ...] = (), **files: tuple[DeviceFile, ...]) -> Seen:
    patterns = {f"/dev/{name}*": found for name, found in files.items()}
    return Seen({one.address: one for one in functions}, patterns, cdi)


def look(found: Seen, *matches: Match, require_link: bool = False) -> Inventory:
    resources = [Resource(f"example.com/r{number}", match, require_link) for number, match in enumerate(matches)]
    return inventory.devices_of(resources, found)


def ids(found: Inventory, number: int = 0) -> list[str]:
    return [one.id for one in found.devices[f"example.com/r{number}"]]


def file(name: str, location: str = "", address: str | None = None, real: str = "") -> DeviceFile:
    return DeviceFile(f"/dev/{name}", f"/dev/{real or name}", True, location, address)


@pytest.mark.parametrize(
    ("match", "wanted"),
    [
        (Match(pci="8086:1572"), [NIC.address, SECOND.address]),
        (Match(pci="8086:*"), [NIC.address, SECOND.address]),
        (Match(pci_class="01"), [DISK.address]),
        (Match(pci_class="0200"), [NIC.address, SECOND.address]),
        (Match(driver="nvme"), [DISK.address]),
        (Match(interface="ens1f?"), [NIC.address, SECOND.address]),
        (Match(interface="ens1f1"), [SECOND.address]),
        (Match(pci="8086:1572", driver="nvme"), []),
    ],
    ids=str,
)
def test_all_that_is_declared_of_a_function_has_to_be_true_and_bridges_never_match(
    match: Match, wanted: list[str]
) -> None:
    found = look(seen(NIC, SECOND, DISK, BRIDGE), match)
    assert ids(found) == wanted
    assert bool(found.problems) == (not wanted)


def test_a_match_without_a_device_is_a_problem_that_names_it() -> None:
    found = look(seen(DISK), Match(pci="8086:1572", driver="vfio-pci"))
    assert found.problems == (
        "devices[0].match: pci 8086:1572, driver vfio-pci: no device of this node matches: compare it with lspci -nnk",
    )


def test_numa_node_driver_and_interfaces_are_the_functions() -> None:
    (device,) = look(seen(NIC), Match(pci="8086:1572")).devices["example.com/r0"]
    assert (device.numa_node, device.driver, device.interfaces, device.unhealthy) == (1, "i40e", ("ens1f0",), "")
    (device,) = look(seen(DISK), Match(driver="nvme")).devices["example.com/r0"]
    assert device.numa_node == -1


@pytest.mark.parametrize(
    ("function", "require_link", "why"),
    [
        (NIC, True, ""),
        (SECOND, False, ""),
        (SECOND, True, "no link on ens1f1"),
        (NIC._replace(interfaces=()), True, "no network interface, so no link"),
        (NIC._replace(driver=None), False, "no driver is bound to it"),
    ],
)
def test_health_of_a_function(function: PciFunction, require_link: bool, why: str) -> None:
    found = look(seen(function), Match(pci="8086:1572"), require_link=require_link)
    assert [one.unhealthy for one in found.devices["example.com/r0"]] == [why]


def test_the_file_of_a_group_is_the_group() -> None:
    for driver, why in (("vfio-pci", ""), ("i40e", f"IOMMU group 7: {NIC.address} is bound to i40e, not to vfio-pci")):
        found = look(seen(NIC._replace(driver=driver, iommu_group=7), vfio=(file("vfio/7"),)), Match(path="/dev/vfio*"))
        (device,) = found.devices["example.com/r0"]
        assert (device.id, device.functions, device.unhealthy) == ("/dev/vfio/7", (NIC.address,), why)


def test_a_group_has_a_link_where_one_is_required() -> None:
    function = NIC._replace(driver="vfio-pci", iommu_group=7)
    for interfaces, why in ((NIC.interfaces, ""), ((), "no network interface, so no link")):
        found = look(seen(function._replace(interfaces=interfaces)), Match(pci="8086:1572"), require_link=True)
        assert [one.unhealthy for one in found.devices["example.com/r0"]] == [why]


@pytest.mark.parametrize(
    ("first", "second", "why"),
    [
        ("vfio-pci", "vfio-pci", ""),
        ("vfio-pci", "pci-stub", ""),
        ("vfio-pci", None, ""),
        ("mlx5_vfio_pci", "vfio-pci", ""),
        ("vfio-pci", "i40e", "IOMMU group 7: 0000:3b:00.1 is bound to i40e, not to vfio-pci"),
    ],
)
@pytest.mark.parametrize("match", [Match(pci="8086:1572"), Match(iommu_group=7)], ids=str)
def test_an_iommu_group_is_one_device(match: Match, first: str | None, second: str | None, why: str) -> None:
    parts = [NIC._replace(driver=first, interfaces=()), SECOND._replace(driver=second, interfaces=()), BRIDGE]
    (device,) = look(seen(*parts), match).devices["example.com/r0"]
    assert (device.id, device.functions, device.files) == (NIC.address, (NIC.address, SECOND.address), ("/dev/vfio/7",))
    assert device.unhealthy == why


def test_a_declared_group_that_vfio_does_not_have_is_unhealthy() -> None:
    parts = [NIC._replace(driver=None), SECOND._replace(driver="pci-stub")]
    (device,) = look(seen(*parts), Match(iommu_group=7)).devices["example.com/r0"]
    assert device.unhealthy == "IOMMU group 7: no function of it is bound to vfio-pci"


def test_a_device_that_two_resources_match_belongs_to_the_first() -> None:
    found = look(seen(NIC, SECOND), Match(interface="ens1f1"), Match(pci="8086:1572"))
    assert (ids(found, 0), ids(found, 1)) == ([SECOND.address], [NIC.address])
    assert found.problems == (
        "devices[1].match: pci 8086:1572: 0000:3b:00.1 is in devices[0] (example.com/r0) already: narrow one of the two",
    )
    assert found.elsewhere == {"example.com/r1": ("0000:3b:00.1 is in devices[0] (example.com/r0) already",)}


def test_a_group_and_the_file_of_it_are_one_device() -> None:
    parts = [NIC._replace(driver="vfio-pci"), SECOND._replace(driver="vfio-pci")]
    found = look(seen(*parts, vfio=(file("vfio/7"),)), Match(interface="ens1f1"), Match(path="/dev/vfio*"))
    assert (ids(found, 0), ids(found, 1), len(found.problems)) == ([NIC.address], [], 1)


@pytest.mark.parametrize("file_first", [False, True])
def test_a_file_is_a_part_of_its_function(file_first: bool) -> None:
    disk = file("nvme0n1", f"{DISK.location}/nvme/nvme0/nvme0n1", DISK.address)
    matches = [Match(driver="nvme"), Match(path="/dev/nvme*")]
    found = look(seen(DISK, nvme=(disk,)), *(reversed(matches) if file_first else matches))
    first, second = ("/dev/nvme0n1", DISK.address) if file_first else (DISK.address, "/dev/nvme0n1")
    assert (ids(found, 0), ids(found, 1)) == ([first], [])
    assert f"{second} overlaps {first}, which is in devices[0] (example.com/r0) already" in found.problems[0]


def test_names_and_parts_of_one_file_count_once() -> None:
    at = f"{DISK.location}/block/sda"
    files = (
        file("sda", at),
        file("sda1", f"{at}/sda1"),
        file("sdx", at, real="sda"),
        file("sdb", f"{DISK.location}/block/sdb"),
    )
    found = look(seen(sd=files), Match(path="/dev/sd*"))
    assert (ids(found), found.problems) == (["/dev/sda", "/dev/sdb"], ())
    assert found.notes[0] == "devices[0].match: path /dev/sd*: /dev/sda1 overlaps /dev/sda: counted once"


def gpu(name: str, *files: str, gone: bool = False) -> CdiDevice:
    paths = tuple(DeviceFile(f"/dev/{one}", f"/dev/{one}", not gone) for one in files)
    return CdiDevice("nvidia.com/gpu", name, "/etc/cdi/nvidia.yaml", paths)


GPUS = (
    gpu("0", "nvidia0", "nvidiactl"),
    gpu("GPU-aa", "nvidia0", "nvidiactl"),
    gpu("1", "nvidia1", "nvidiactl"),
    gpu("all", "nvidia0", "nvidia1", "nvidiactl"),
)


def test_cdi_devices_count_once_by_the_files_that_they_do_not_share() -> None:
    found = look(seen(cdi=GPUS), Match(cdi="nvidia.com/gpu"))
    assert (ids(found), len(found.notes), found.problems) == (["nvidia.com/gpu=0", "nvidia.com/gpu=1"], 1, ())


CONTROL = tuple(DeviceFile(path, path, is_device=True) for path in ("/dev/nvidiactl", "/dev/nvidia-uvm"))


@pytest.mark.parametrize("names", [("0",), ("0", "1"), ("0", "1", "all")])
def test_the_files_that_a_spec_has_for_all_are_a_holders_too_and_count_for_none(names: tuple[str, ...]) -> None:
    rows = tuple(
        gpu(name, *(["nvidia0", "nvidia1"] if name == "all" else [f"nvidia{name}"]))._replace(shared=CONTROL)
        for name in names
    )
    found = look(seen(cdi=rows), Match(cdi="nvidia.com/gpu"), Match(cdi="nvidia.com/gpu=all"))
    devices = found.devices["example.com/r0"]
    assert [one.files for one in devices] == [
        (f"/dev/nvidia{name}", "/dev/nvidiactl", "/dev/nvidia-uvm") for name in names if name != "all"
    ]
    assert not any("/dev/nvidiactl" in one.keys for group in found.devices.values() for one in group)
    assert all(f"/dev/nvidia{one.id[-1]}" in one.keys for one in devices)


def test_a_file_that_a_spec_has_for_all_and_for_a_device_counts_for_none() -> None:
    rows = (gpu("0", "nvidia0", "nvidiactl")._replace(shared=CONTROL),)
    (device,) = look(seen(cdi=rows), Match(cdi="nvidia.com/gpu")).devices["example.com/r0"]
    assert (device.files, device.keys) == (
        ("/dev/nvidia0", "/dev/nvidiactl", "/dev/nvidia-uvm"),
        {"/dev/nvidia0", "nvidia.com/gpu=0"},
    )


@pytest.mark.parametrize(
    ("path", "is_device", "said"),
    [
        ("/dev/nvidia-uvm", False, "/dev/nvidia-uvm in /etc/cdi/nvidia.yaml: no such device"),
        ("/dev/nvidia uvm", True, "/dev/nvidia uvm in /etc/cdi/nvidia.yaml: a unit file cannot contain its path"),
    ],
)
def test_without_a_file_that_a_spec_has_for_all_its_devices_are_unhealthy(
    path: str, is_device: bool, said: str
) -> None:
    lost = (CONTROL[0], DeviceFile(path, path, is_device))
    rows = tuple(gpu(name, f"nvidia{name}")._replace(shared=lost) for name in "01")
    found = look(seen(cdi=rows), Match(cdi="nvidia.com/gpu")).devices["example.com/r0"]
    assert [one.unhealthy for one in found] == [said, said]


def test_cdi_devices_by_name() -> None:
    found = look(seen(cdi=GPUS), Match(cdi="nvidia.com/gpu=1"), Match(cdi="nvidia.com/gpu=*"))
    assert (ids(found, 0), ids(found, 1)) == (["nvidia.com/gpu=1"], ["nvidia.com/gpu=0"])
    assert ids(look(seen(cdi=GPUS), Match(cdi="nvidia.com/gpu=all"))) == ["nvidia.com/gpu=all"]
    assert look(seen(cdi=GPUS), Match(cdi="amd.com/gpu")).problems != ()


@pytest.mark.parametrize(
    "path",
    [
        "/dev/gpu 0",
        "/dev/gpu%0",
        '/dev/gpu"0',
        "/dev/gpu0\nLD_PRELOAD=/tmp/x",
        "/run/gpu0",
        "/dev/../etc/x",
        "/dev/gpü",
    ],
)
def test_a_cdi_device_with_a_file_that_units_cannot_name_is_not_given_out(path: str) -> None:
    one = CdiDevice("nvidia.com/gpu", "0", "/etc/cdi/nvidia.yaml", (DeviceFile(path, path, is_device=True),))
    (device,) = look(seen(cdi=(one,)), Match(cdi="nvidia.com/gpu")).devices["example.com/r0"]
    assert device.unhealthy.endswith("in /etc/cdi/nvidia.yaml: a unit file cannot contain its path")
    assert "\n" not in device.unhealthy


def test_a_cdi_device_without_its_file_is_unhealthy() -> None:
    (device,) = look(seen(cdi=(gpu("0", "nvidia0", gone=True),)), Match(cdi="nvidia.com/gpu")).devices["example.com/r0"]
    assert device.unhealthy == "/dev/nvidia0 in /etc/cdi/nvidia.yaml: no such device"


MATCHES = strategies.sampled_from(
    [Match(pci="8086:*"), Match(pci_class="02"), Match(driver="vfio-pci"), Match(driver="i40e"), Match(iommu_group=1), Match(path="/dev/vfio*")]
)  # fmt: skip


@hypothesis.given(
    strategies.lists(strategies.tuples(strategies.sampled_from(["vfio-pci", "i40e", None]), strategies.integers(0, 3)), max_size=8),
    strategies.lists(MATCHES, min_size=1, max_size=4),
)  # fmt: skip
def test_no_device_is_in_two_places(drivers: list[tuple[t.Any, int]], matches: list[Match]) -> None:
    functions = [
        NIC._replace(address=f"0000:3b:00.{index}", location=f"devices/pci/{index}", driver=driver, iommu_group=group)
        for index, (driver, group) in enumerate(drivers)
    ]
    found = look(seen(*functions, vfio=tuple(file(f"vfio/{group}") for group in range(4))), *matches)
    keys = [key for devices in found.devices.values() for one in devices for key in one.keys]
    assert len(keys) == len(set(keys))


def test_what_was_granted_and_no_resource_has_is_found_by_its_id() -> None:
    there = seen(
        NIC._replace(driver="vfio-pci", iommu_group=7), cdi=GPUS, tty=(file("serial/by-path/usb-0", "devices/usb1"),)
    )
    names = ["/dev/serial/by-path/usb-0", NIC.address, "nvidia.com/gpu=0", "nvidia.com/gpu=9", "0000:ff:00.0", "*"]
    there = there._replace(files={"/dev/serial/by-path/usb-0": there.files["/dev/tty*"]})
    granted = [GrantedDevice("", "a.b/c", one, ("/dev/x",)) for one in names]
    found = inventory.granted_elsewhere(granted, Inventory({}, (), ()), there)
    assert [one.id for one in found] == names[:3]
    assert found[1].files == ("/dev/vfio/7",)
    known = inventory.granted_elsewhere(granted, Inventory({"a.b/c": found[:2]}, (), ()), there)
    assert [one.id for one in known] == names[2:3]
    # It had the file of its group, and has another driver by now.
    there = there._replace(pci={NIC.address: NIC})
    assert [one.id for one in inventory.granted_elsewhere(granted, Inventory({}, (), ()), there)] == [
        names[0],
        names[2],
    ]


@pytest.mark.parametrize(
    ("opened", "left"),
    [
        ({}, ["a", "b", "link", "nic"]),
        ({"x.service": {"/dev/char/1:1"}}, ["b", "link"]),
        ({"x.service": {"/dev/b"}}, ["a", "link"]),
        ({"x.service": {"/dev/char/1:3"}}, ["a", "b"]),
        ({"x.service": set()}, ["a", "b", "link"]),
        ({"x.service": {"/dev/char/1:1"}, "y.service": {"/dev/b"}}, ["link"]),
        ({"box": None}, []),
    ],
    ids=str,
)
def test_a_device_that_a_run_without_a_grant_may_have_is_given_to_none(
    opened: dict[str, set[str] | None], left: list[str]
) -> None:
    def device(name: str, *files: str) -> Device:
        return Device(name, -1, "", (), None, (), files, frozenset(files[:1]), frozenset())

    made = {name: device(f"v/g={name}", f"/dev/{name}", "/dev/control") for name in ("a", "b")}
    made.update(link=device("/dev/by/link", "/dev/real"), nic=device("0000:01:00.0"))
    numbers = {"/dev/a": "char/1:1", "/dev/control": "char/1:2", "/dev/by/link": "char/1:3"}
    found = inventory.held_back(Inventory({"all": tuple(made.values())}, (), ()), (), opened, numbers)
    assert [name for name, one in zip(made, found.devices["all"]) if not one.unhealthy] == left
    granted = [GrantedDevice("", "all", one.id, tuple(one.keys)) for one in made.values()]
    found = inventory.held_back(Inventory({"all": tuple(made.values())}, (), ()), granted, opened, numbers)
    assert not any(one.unhealthy for one in found.devices["all"]), "what a grant has is known"


def test_the_file_that_all_users_of_vfio_need_is_no_device() -> None:
    pattern = "/dev/vfio/*"
    files = tuple(DeviceFile(path, path, is_device=True) for path in ("/dev/vfio/7", "/dev/vfio/vfio"))
    found = inventory.devices_of([Resource("example.com/vfio", Match(path=pattern))], Seen({}, {pattern: files}))
    assert [one.id for one in found.devices["example.com/vfio"]] == ["/dev/vfio/7"]


TO_BIND = Resource("example.com/r0", Match(pci="8086:1572"), bind="vfio-pci")
LOADED = frozenset({"vfio-pci"})


@pytest.mark.parametrize(
    ("functions", "in_use", "drivers", "unhealthy", "unbound"),
    [
        ([NIC, SECOND], {}, LOADED, "", [(NIC.address, "i40e"), (SECOND.address, "i40e")]),
        ([NIC._replace(driver=None), SECOND._replace(driver="vfio-pci")], {}, LOADED, "", [(NIC.address, "")]),
        ([NIC._replace(driver="vfio-pci"), SECOND._replace(driver="pci-stub")], {}, frozenset(), "", []),
        (
            [NIC, SECOND],
            {NIC.address: "", SECOND.address: "it is up"},
            LOADED,
            f"cannot be bound to vfio-pci: {SECOND.address} (i40e): it is up",
            [(NIC.address, "i40e"), (SECOND.address, "i40e")],
        ),
        ([NIC], {}, frozenset(), "driver vfio-pci is not there: modprobe", [(NIC.address, "i40e")]),
        ([NIC._replace(iommu_group=None)], {}, LOADED, "it has no IOMMU group", [(NIC.address, "i40e")]),
    ],
)
def test_a_group_that_is_to_be_bound(
    functions: list[PciFunction],
    in_use: dict[str, str],
    drivers: frozenset[str],
    unhealthy: str,
    unbound: list[tuple[str, str]],
) -> None:
    found = seen(*functions, BRIDGE)._replace(in_use=in_use, drivers=drivers)
    ((device,),) = inventory.devices_of([TO_BIND], found).devices.values()
    assert (device.id, device.unbound, device.bind) == (NIC.address, tuple(unbound), "vfio-pci")
    assert device.unhealthy.startswith(unhealthy)
    assert bool(device.unhealthy) is bool(unhealthy)
    assert device.files == (("/dev/vfio/7",) if functions[0].iommu_group else ())
    wanted = [one.address for one in functions if one.driver in (None, "i40e")]
    assert [one.address for one in inventory.functions_to_bind([TO_BIND], found.pci)] == wanted


@pytest.mark.parametrize(
    ("kind", "driver", "why"),
    [
        (
            "060100",
            "lpc_ich",
            "IOMMU group 7: 0000:3a:00.0, a bridge, is bound to lpc_ich: unbind that, or match nothing of this group",
        ),
        ("060000", "ie31200_edac", "IOMMU group 7: 0000:3a:00.0, a bridge, is bound to ie31200_edac: "),
        ("060100", None, ""),
        ("060100", "pci-stub", ""),
        ("060400", "pcieport", ""),
    ],
)
@pytest.mark.parametrize("bind", [None, "vfio-pci"])
def test_a_bridge_with_a_driver_keeps_vfio_from_its_group(
    kind: str, driver: str | None, why: str, bind: str | None
) -> None:
    parts = [NIC._replace(driver="i40e" if bind else "vfio-pci"), BRIDGE._replace(pci_class=kind, driver=driver)]
    found = seen(*parts, vfio=(file("vfio/7"),))._replace(drivers=LOADED)
    rows = [Resource("a.b/by-id", Match(pci="8086:1572"), bind=bind)]
    rows += [] if bind else [Resource("a.b/by-file", Match(path="/dev/vfio*"))]
    for row in rows:
        ((device,),) = inventory.devices_of([row], found).devices.values()
        assert device.unhealthy.startswith(why)
        assert bool(device.unhealthy) is bool(why)
        assert device.functions == (NIC.address,)


def test_functions_that_are_not_to_be_bound_are_not_looked_at() -> None:
    assert inventory.functions_to_bind([Resource("a.b/c", Match(pci="8086:1572"))], seen(NIC).pci) == []
    assert inventory.functions_to_bind([TO_BIND], seen(DISK, BRIDGE).pci) == []
