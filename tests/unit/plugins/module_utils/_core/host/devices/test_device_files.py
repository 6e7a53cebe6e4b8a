# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a look at a node finds of devices, on a folder with the files and links that sysfs, /dev and CDI have."""

from __future__ import annotations

import errno
import json
import os
import typing as t
from pathlib import Path

import pytest
from _core.host.devices import device_files
from _core.host.files import Host
from _core.model.devices.device import DeviceFile, Interface, Match, PciFunction, Resource, Seen

NIC = "0000:3b:00.0"


class Tree:
    """A machine as a folder. Device files cannot be made everywhere: their numbers stand in a mapping."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder = folder
        self.numbers: dict[str, str] = {}
        monkeypatch.setattr(Host, "device", lambda dummy, path: self.numbers.get(path))

    def write(self, path: str, text: str = "") -> None:
        file = self.folder / path.lstrip("/")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)

    def link(self, path: str, to: str) -> None:
        file = self.folder / path.lstrip("/")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.symlink_to(to)

    def pci(self, address: str, driver: str | None, group: int | None, **files: str) -> None:
        real = f"sys/devices/pci0000:3a/{address}"
        values = {"vendor": "0x8086", "device": "0x1572", "class": "0x020000", "numa_node": "1", **files}
        for name, text in values.items():
            self.write(f"{real}/{name}", f"{text}\n")
        self.link(f"sys/bus/pci/devices/{address}", f"../../../devices/pci0000:3a/{address}")
        if driver:
            self.link(f"{real}/driver", f"../../../bus/pci/drivers/{driver}")
        if group is not None:
            self.link(f"{real}/iommu_group", f"../../../kernel/iommu_groups/{group}")

    def device(self, path: str, number: str, location: str = "") -> None:
        self.write(path)
        self.numbers[path] = number
        if location:
            self.link(f"sys/dev/{number}", f"../../{location}")

    def look(self, **match: t.Any) -> Seen:
        return device_files.observe(Host(str(self.folder)), [Resource("example.com/a", Match(**match))])


@pytest.fixture(name="tree")
def made_tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Tree:
    return Tree(tmp_path, monkeypatch)


def test_a_function_with_driver_group_and_links(tree: Tree) -> None:
    tree.pci(NIC, "i40e", 7)
    for name, carrier in (("ens1f0", "1\n"), ("ens1f1", "0\n")):
        tree.write(f"sys/devices/pci0000:3a/{NIC}/net/{name}/carrier", carrier)
        tree.link(f"sys/class/net/{name}", f"../../devices/pci0000:3a/{NIC}/net/{name}")
    interfaces = (Interface("ens1f0", True), Interface("ens1f1", False))
    at = f"devices/pci0000:3a/{NIC}"
    assert tree.look(pci="8086:1572").pci == {
        NIC: PciFunction(NIC, at, 1, "8086:1572", "020000", "i40e", 7, interfaces)
    }


def test_an_interface_that_is_down_has_no_link(tree: Tree, monkeypatch: pytest.MonkeyPatch) -> None:
    """The kernel refuses to read its carrier (carrier_show(): EINVAL)."""
    tree.pci(NIC, "i40e", 7)
    tree.write(f"sys/devices/pci0000:3a/{NIC}/net/ens1f0/carrier", "1\n")
    tree.link("sys/class/net/ens1f0", f"../../devices/pci0000:3a/{NIC}/net/ens1f0")
    read = os.read

    def refused(file: int, size: int) -> bytes:
        if os.readlink(f"/proc/self/fd/{file}").endswith("/carrier"):
            raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))
        return read(file, size)

    monkeypatch.setattr(os, "read", refused)
    assert tree.look(pci="8086:1572").pci[NIC].interfaces == (Interface("ens1f0", False),)


def test_a_function_without_driver_group_and_numa_node(tree: Tree) -> None:
    tree.pci(NIC, None, None, numa_node="-1", vendor="odd")
    found = tree.look(pci="8086:1572")
    (one,) = found.pci.values()
    assert (one.driver, one.iommu_group, one.numa_node, one.pci_id, one.interfaces) == (None, None, -1, ":1572", ())
    assert [note for note in found.notes if "is not a PCI vendor" in note]


def test_files_by_pattern_with_what_is_behind_them(tree: Tree) -> None:
    location = f"devices/pci0000:3a/{NIC}/usb1/ttyUSB0"
    tree.device("/dev/ttyUSB0", "char/188:0", location)
    tree.link("/dev/serial/by-path/pci-usb-0", "../../ttyUSB0")
    (file,) = tree.look(path="/dev/serial/by-path/*").files["/dev/serial/by-path/*"]
    assert file == DeviceFile("/dev/serial/by-path/pci-usb-0", "/dev/ttyUSB0", True, location, NIC)
    assert [one.path for one in tree.look(path="/dev/ttyUSB?").files["/dev/ttyUSB?"]] == ["/dev/ttyUSB0"]
    assert tree.look(path="/dev/ttyUSB1").files["/dev/ttyUSB1"] == ()


def test_what_is_no_device_or_leads_away_is_left_out_and_noted(tree: Tree) -> None:
    tree.device("/dev/gpu0", "char/1:1")
    tree.device("/dev/gpu\n$(rm)", "char/1:2")
    tree.device("/home/x/null", "char/1:3")
    tree.write("/dev/gpu-file")
    tree.write("/dev/gpu-folder/card")
    tree.link("/dev/gpu-away", "../home/x/null")
    tree.link("/dev/gpu-loop", "gpu-loop")
    tree.link("/dev/gpu-own", "/proc/self/fd/0")
    tree.link("/proc/self/fd/0", "/dev/gpu0")
    tree.numbers["/proc/self/fd/0"] = "char/1:1"
    found = tree.look(path="/dev/gpu*")
    assert [one.path for one in found.files["/dev/gpu*"]] == ["/dev/gpu0"]
    assert sorted(found.notes) == [
        "/dev/gpu-away: left out, it is a link to a file outside /dev",
        "/dev/gpu-file: left out, it is not a device file",
        "/dev/gpu-loop: left out, it is not a device file",
        "/dev/gpu-own: left out, it is a link to a file outside /dev",
        "/dev/gpu\\n$(rm): left out, its path has characters that a unit file cannot contain",
    ]


def spec(*names: str, path: str = "/dev/gpu0") -> dict[str, t.Any]:
    rows = [{"name": name, "containerEdits": {"deviceNodes": [{"path": path}]}} for name in names]
    return {"cdiVersion": "0.6.0", "kind": "a.com/gpu", "devices": rows}


def test_cdi_specs_in_json_and_yaml_and_the_later_folder_first(tree: Tree) -> None:
    tree.device("/dev/gpu0", "char/1:1")
    tree.write("/etc/cdi/a.json", json.dumps(spec("0", "1")))
    tree.write(
        "/var/run/cdi/b.yaml",
        "cdiVersion: 0.6.0\nkind: a.com/gpu\ndevices: [{name: '1', containerEdits: {env: [A=1]}}]\n",
    )
    tree.write("/etc/cdi/README.txt", "no spec")
    found = tree.look(cdi="a.com/gpu")
    assert [(one.name, one.spec, len(one.files)) for one in found.cdi] == [
        ("0", "/etc/cdi/a.json", 1),
        ("1", "/var/run/cdi/b.yaml", 0),
    ]
    assert found.cdi[0].files[0].is_device
    assert found.problems == ()


def test_damaged_specs_and_names_in_two_of_them_are_problems_and_the_rest_is_read(tree: Tree) -> None:
    tree.write("/etc/cdi/a.json", json.dumps(spec("0", "1")))
    tree.write("/etc/cdi/b.json", json.dumps(spec("1", "2")))
    tree.write("/etc/cdi/c.json", '{"kind"')
    tree.write("/etc/cdi/d.yaml", "[]")
    tree.link("/etc/cdi/e.json", "gone")
    found = tree.look(cdi="a.com/gpu")
    assert [one.name for one in found.cdi] == ["0", "2"]
    torn = "line 1, column 8: while parsing a flow mapping, expected ',' or '}', but got '<stream end>'"
    begins = ["/etc/cdi/b.json: a.com/gpu=1 is in /etc/cdi/a.json as well",
              f"/etc/cdi/c.json: is not YAML: {torn}: generate the spec again, or remove it",
              "/etc/cdi/d.yaml: is not a CDI spec", "/etc/cdi/e.json: cannot be read: No such file"]  # fmt: skip
    assert len(found.problems) == len(begins)
    assert [text for text, begin in zip(found.problems, begins) if not text.startswith(begin)] == []


def test_specs_are_read_only_for_a_resource_of_theirs(tree: Tree) -> None:
    tree.write("/etc/cdi/c.json", "{")
    assert tree.look(pci="8086:1572").problems == ()


def test_the_number_of_a_device_file(tmp_path: Path) -> None:
    host = Host("/")
    (tmp_path / "link").symlink_to("/dev/null")
    assert host.device("/dev/null") == host.device(str(tmp_path / "link")) == "char/1:3"
    assert host.device(str(tmp_path)) is None
    assert host.device("/dev/gone") is host.device("/dev/\0") is None
