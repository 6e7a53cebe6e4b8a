# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The names of grants in Corral's CDI spec, and what units and containers are given with devices."""

from __future__ import annotations

import itertools
import json
import typing as t

import pytest
from _core.model.devices import cdi_spec, device_delivery
from _core.model.devices.device import Device, GrantedDevice, Match


@pytest.mark.parametrize(
    ("workload", "container", "name"),
    [
        ("web", "", "web"),
        ("web", "app", "web:app"),
        ("batch:batch@a", "", "batch:batch_40a"),
        ("batch:my_unit", "", "batch:my_unit"),
        ("batch:batch_40a", "", "batch:batch_5f40a"),
        ("batch:batch@a\\x2db", "", "batch:batch_40a_5cx2db"),
        ("batch:batch@a-", "", "batch:batch_40a_2d"),
    ],
)
def test_names_of_devices(workload: str, container: str, name: str) -> None:
    assert device_delivery.cdi_name(workload, container) == name


def test_no_two_workloads_have_one_name() -> None:
    """All unit names of some characters, up to a length."""
    words = ["w:" + "".join(word) for size in range(1, 6) for word in itertools.product("@_40a-", repeat=size)]
    names = [device_delivery.cdi_name(word) for word in words]
    assert all(cdi_spec.NAME.fullmatch(name) for name in names)
    assert len(set(names)) == len(words)


def test_a_name_that_is_too_long_for_cdi_is_none() -> None:
    assert device_delivery.cdi_name("a" * 254)
    assert device_delivery.cdi_name("a" * 255) == ""


def made(name: str, *files: str, cdi: tuple[str, ...] = (), functions: tuple[str, ...] = ()) -> Device:
    return Device(name, -1, "", functions, None, (), files, frozenset([name, *files]), frozenset(), cdi)


@pytest.mark.parametrize(
    ("match", "closed"),
    [
        (Match(path="/dev/ttyUSB*"), True),
        (Match(cdi="vendor.com/gpu"), True),
        (Match(iommu_group=7), True),
        (Match(driver="vfio-pci"), True),
        (Match(driver="mlx5_vfio_pci"), True),
        (Match(driver="i40e"), False),
        (Match(pci="8086:1572"), False),
        (Match(interface="ens*"), False),
    ],
)
def test_a_unit_opens_nothing_else_where_all_devices_have_files(match: Match, closed: bool) -> None:
    assert device_delivery.has_files(match) is closed


def test_a_group_comes_with_the_file_that_all_users_of_vfio_need() -> None:
    assert device_delivery.files_of([made("a", "/dev/ttyUSB0"), made("b", "/dev/vfio/7")]) == [
        "/dev/ttyUSB0", "/dev/vfio/7", "/dev/vfio/vfio",
    ]  # fmt: skip
    assert device_delivery.files_of([made("a", "/dev/ttyUSB0")]) == ["/dev/ttyUSB0"]


def test_a_variable_names_the_file_that_a_link_leads_to() -> None:
    linked = made("/dev/serial/by-path/usb-0", "/dev/ttyUSB3")
    assert device_delivery.environment({"a.b/c": [linked]})["CORRAL_FILES_A_B_C"] == "/dev/ttyUSB3"


def test_variables_name_each_part_once() -> None:
    two = [
        made("a", "/dev/ctl", "/dev/a", functions=("0000:3b:00.0",)),
        made("b", "/dev/ctl", functions=("0000:3b:00.0",)),
    ]
    assert device_delivery.environment({"a.b/c-d": two}) == {
        "CORRAL_DEVICES_A_B_C_D": "a,b", "PCIDEVICE_A_B_C_D": "0000:3b:00.0", "CORRAL_FILES_A_B_C_D": "/dev/ctl,/dev/a",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("versions", "wanted"),
    [
        ((), "0.3.0"),
        (("0.2.0",), "0.3.0"),
        (("0.9.0", "0.10.0"), "0.10.0"),
        (("0.6.0", "0.5.0"), "0.6.0"),
        (("1.0.0", "0.10.0"), "1.0.0"),
    ],
)
def test_the_version_of_a_spec_is_that_of_the_newest(versions: tuple[str, ...], wanted: str) -> None:
    assert device_delivery.version_of([made("a"), *(made(one, cdi=(one,)) for one in versions)]) == wanted


def edited(name: str, *edits: dict[str, t.Any]) -> Device:
    return made(name, f"/dev/{name}", cdi=("0.5.0", *map(json.dumps, edits)))


def test_a_container_gets_what_specs_say_of_its_devices_once() -> None:
    mount = {"hostPath": "/lib/x", "containerPath": "/lib/x"}
    nodes = [{"path": f"/dev/{name}"} for name in ("gpu0", "gpu1")]
    held = {
        "z.com/nic": [made("nic", "/dev/nic")],
        "a.com/gpu": [
            edited("gpu0", {"deviceNodes": nodes[:1], "env": ["MODE=a", "GPU=0"]}, {"mounts": [mount]}),
            edited("gpu1", {"deviceNodes": nodes[1:], "env": ["MODE=a", "GPU=1"]}, {"mounts": [mount]}),
        ],
    }
    found = device_delivery.edits(held)
    assert found["deviceNodes"] == [{"path": "/dev/nic", "permissions": "rwm"}, *nodes], (
        "a spec says its devices itself"
    )
    assert found["mounts"] == [mount]
    assert [one for one in found["env"] if not one.startswith(("CORRAL_", "PCIDEVICE_"))] == ["MODE=a", "GPU=0"]
    assert device_delivery.conflicts(held) == ["GPU"]


def test_the_first_value_is_that_of_the_first_resource_by_name() -> None:
    held = {"z.com/a": [edited("z", {"env": ["WHO=z"]})], "a.com/a": [edited("a", {"env": ["WHO=a"]})]}
    assert "WHO=a" in device_delivery.edits(held)["env"]
    assert "WHO=z" not in device_delivery.edits(held)["env"]
    assert device_delivery.conflicts(held) == ["WHO"]


@pytest.mark.parametrize("version", ["../../etc/x", "a", "0.3.0\n", ""])
def test_a_spec_with_a_version_that_no_file_of_corral_has_is_not_its_own(version: str) -> None:
    text = json.dumps({"cdiVersion": version, "devices": [{"name": "a", "containerEdits": {}}]})
    assert device_delivery.spec_of(text) == device_delivery.Spec("0.3.0", {})


# What is known of devices that are away

AWAY = GrantedDevice(
    "", "a.b/tty", "/dev/serial/by-path/usb-0", ("/dev/ttyUSB0", "devices/usb1", "/dev/serial/by-path/usb-0")
)


def at(name: str, file: str, place: str) -> Device:
    return made(name, file)._replace(keys=frozenset([file, place]))


def test_a_number_that_another_device_has_by_now_is_no_way_to_the_one_that_is_away() -> None:
    found = device_delivery.held([AWAY], {"a.b/tty": [at("/dev/serial/by-path/usb-1", "/dev/ttyUSB0", "devices/usb2")]})
    assert found.missing == (AWAY,)
    assert found.devices["a.b/tty"][0].files == ("/dev/serial/by-path/usb-0",)


def test_a_device_at_the_same_place_under_another_id_is_the_same() -> None:
    found = device_delivery.held([AWAY], {"a.b/tty": [at("/dev/ttyUSB0", "/dev/ttyUSB0", "devices/usb1")]})
    assert found.others == frozenset()


def test_of_a_device_whose_place_is_not_known_no_number_is_taken() -> None:
    away = AWAY._replace(keys=("/dev/ttyUSB0", "vendor.com/gpu=0"))
    found = device_delivery.held([away], {"a.b/tty": [at("/dev/ttyUSB0", "/dev/ttyUSB0", "devices/usb2")]})
    assert found.devices["a.b/tty"][0].files == ("/dev/ttyUSB0",)
    assert found.others == {"/dev/ttyUSB0"}


def test_a_list_has_the_numbers_of_files_and_paths_of_what_has_none() -> None:
    there = at(AWAY.id, "/dev/ttyUSB0", "devices/usb1")
    numbers = {"/dev/ttyUSB0": "char/188:0", "/dev/vfio/vfio": "char/10:196", "/dev/vfio/7": "char/240:1"}
    assert device_delivery.allowed([there], numbers) == ["/dev/char/188:0 rwm"], "while its link is away as well"
    assert device_delivery.allowed([there], {AWAY.id: "char/188:4", **numbers}) == ["/dev/char/188:4 rwm"]
    assert device_delivery.allowed([there], {}) == [f"{AWAY.id} rwm"]
    group = made("0000:3b:00.0", "/dev/vfio/7")._replace(functions=("0000:3b:00.0",))
    by_number, by_path = ["/dev/char/240:1 rwm", "/dev/char/10:196 rwm"], ["/dev/vfio/7 rwm", "/dev/char/10:196 rwm"]
    assert device_delivery.allowed([group], numbers) == by_number
    # What Corral binds has its number only then.
    to_bind = group._replace(bind="vfio-pci")
    assert device_delivery.allowed([to_bind], numbers) == by_number, "others bound it"
    assert device_delivery.allowed([to_bind], numbers, group.functions) == by_path
    assert device_delivery.allowed([group], numbers, group.functions) == by_number, "its resource has no bind any more"
    assert device_delivery.allowed([to_bind._replace(unbound=(("0000:3b:00.0", "i40e"),))], numbers) == by_path


def test_a_unit_may_come_to_have_what_it_was_granted_under_names_of_now_and_then() -> None:
    there = at("/dev/serial/by-path/usb-1", "/dev/ttyUSB1", "devices/usb2")
    assert device_delivery.paths_of(["a.b/tty"], {"a.b/tty": [there]}, [AWAY]) == [
        "/dev/serial/by-path/usb-1", "/dev/ttyUSB1", "/dev/ttyUSB0", "/dev/serial/by-path/usb-0",
    ]  # fmt: skip


def test_meanwhile_a_unit_is_told_only_of_what_it_has_and_keeps() -> None:
    old, new = (
        at(AWAY.id, "/dev/ttyUSB0", "devices/usb1"),
        at("/dev/serial/by-path/usb-1", "/dev/ttyUSB1", "devices/usb2"),
    )
    before = device_delivery.env_text({"a.b/tty": [old]})
    both = device_delivery.env_text({"a.b/tty": [new, old]})
    assert device_delivery.kept_text(before, {"a.b/tty": [new, old]}) == before
    assert device_delivery.kept_text(both, {"a.b/tty": [old]}) == before
    assert device_delivery.kept_text(before, {"a.b/tty": [new]}) == device_delivery.env_text({})
    assert device_delivery.kept_text(None, {"a.b/tty": [old]}) is None


def gpu(number: int) -> Device:
    """A device of a CDI spec whose file has no place in sysfs."""
    name, file = f"vendor.com/gpu={number}", f"/dev/gpu{number}"
    return Device(name, -1, "", (), None, (), (file,), frozenset({name, file}), frozenset())


def test_a_device_of_a_grant_is_no_other_one_while_another_of_it_is_missing() -> None:
    """A container keeps its row in the CDI spec then: the file in it is no other device's."""
    granted = [GrantedDevice("", "vendor.com/gpu", one.id, tuple(sorted(one.keys))) for one in (gpu(0), gpu(1))]
    found = device_delivery.held(granted, {"vendor.com/gpu": [gpu(0), gpu(2)]})
    assert [one.id for one in found.missing] == ["vendor.com/gpu=1"]
    assert found.others == {"/dev/gpu2"}
    assert [(one.id, one.unhealthy) for one in found.devices["vendor.com/gpu"]] == [
        ("vendor.com/gpu=0", ""),
        ("vendor.com/gpu=1", "gone"),
    ]


@pytest.mark.parametrize(
    "text",
    [
        None,
        "",
        "[]",
        '{"cdiVersion": 1, "devices": []}',
        '{"cdiVersion": "0.3.0"}',
        "[" * 100_000,
        '{"cdiVersion": "0.3.0", "devices": [1]}',
    ],
)
def test_a_text_that_is_no_spec_has_no_rows(text: str | None) -> None:
    assert device_delivery.spec_of(text) == device_delivery.Spec("0.3.0", {})


@pytest.mark.parametrize(
    ("edits", "paths"),
    [
        ({"deviceNodes": [{"path": "/dev/a"}, {"path": "/dev/b", "hostPath": "/dev/c"}, 1]}, {"/dev/a", "/dev/c"}),
        ({"deviceNodes": {"path": "/dev/a"}}, set()),
        ({}, set()),
        ([], set()),
    ],
)
def test_the_files_that_edits_name_on_the_node(edits: t.Any, paths: set[str]) -> None:
    assert device_delivery.node_paths(edits) == paths
