# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# This module is private to the collection corral.node.
"""PCI devices with their NUMA nodes, and the PCI address of each network interface.

Sources: Documentation/ABI/testing/sysfs-bus-pci (numa_node, local_cpulist), sysfs-class-net.
"""

from __future__ import annotations

import re

from ...model.topology.topology import PciDevice
from ..topology.sysfs_reader import Reader

PCI = "/sys/bus/pci/devices"
NET = "/sys/class/net"

LOCAL_CPUS = ("local_cpus", "local_cpulist")

# A PCI domain has four digits, or more behind an Intel VMD (10000:00:00.0).
_ADDRESS = r"[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]"
_IS_ADDRESS = re.compile(_ADDRESS, re.ASCII)
_IN_PATH = re.compile(rf"(?:^|/)({_ADDRESS})(?=/|$)", re.ASCII)
_ROOT_BUS = re.compile(r"pci[0-9a-f]{4,8}:[0-9a-f]{2}", re.ASCII)
_HEXADECIMAL = re.compile(r"0x[0-9a-f]{1,8}", re.ASCII)

# The most PCI bridges in a row; real machines have fewer than ten.
_DEPTH = 24


def pci(reader: Reader) -> dict[str, PciDevice]:
    """All PCI devices by address."""
    folders = {name: f"{PCI}/{name}" for name in reader.host.names(PCI) if _IS_ADDRESS.fullmatch(name)}
    if not folders:
        for root in _root_buses(reader):
            _walk(reader, root, folders, _DEPTH)
    return {address: _device(reader, address, folders[address]) for address in sorted(folders)}


def net(reader: Reader) -> dict[str, str | None]:
    """The PCI address of each network interface; None for an interface that is not on PCI.

    The last address in the path of the interface's device counts: a virtio interface lies below a PCI device, a virtual function is a PCI
    device.
    """
    addresses_by_name: dict[str, str | None] = {}
    for name in reader.host.names(NET):
        path = f"{NET}/{name}"
        if name == "bonding_masters" or not (reader.host.link(path) or reader.host.is_dir(path)):
            continue
        texts = (reader.host.link(path), reader.host.link(f"{path}/device"))
        addresses = [address for text in texts if text for address in _IN_PATH.findall(text)[-1:]]
        addresses_by_name[name] = addresses[0] if addresses else None
    return addresses_by_name


def address_in(path: str) -> str | None:
    """The address of the last PCI function in a path of sysfs; None for a path without an address."""
    addresses = _IN_PATH.findall(path)
    return addresses[-1] if addresses else None


def _device(reader: Reader, address: str, folder: str) -> PciDevice:
    node = reader.integer(f"{folder}/numa_node")
    return PciDevice(
        address,
        -1 if node is None else node,
        reader.value(f"{folder}/class", _hexadecimal, "a PCI class"),
        reader.value(f"{folder}/vendor", _hexadecimal, "a PCI vendor"),
        reader.value(f"{folder}/device", _hexadecimal, "a PCI device id"),
        reader.cpus(folder, LOCAL_CPUS),
        node is not None,
    )


def _hexadecimal(text: str) -> str | None:
    text = text.strip()
    return text if _HEXADECIMAL.fullmatch(text) else None


def _root_buses(reader: Reader) -> list[str]:
    """The folders of host bridges, also of bridges below platform devices (Arm): for trees recorded without /sys/bus."""
    folders: list[str] = []
    for name in reader.host.names("/sys/devices"):
        if _ROOT_BUS.fullmatch(name):
            folders.append(f"/sys/devices/{name}")
    for platform in reader.host.names("/sys/devices/platform"):
        folder = f"/sys/devices/platform/{platform}"
        folders += [f"{folder}/{name}" for name in reader.host.names(folder) if _ROOT_BUS.fullmatch(name)]
    return folders


def _walk(reader: Reader, folder: str, folders: dict[str, str], depth: int) -> None:
    for name in reader.host.names(folder):
        if _IS_ADDRESS.fullmatch(name) and name not in folders:
            folders[name] = f"{folder}/{name}"
            if depth:
                _walk(reader, folders[name], folders, depth - 1)
