# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# This module is private to the collection corral.node.
"""Whether the machine uses a PCI function, so that its driver must stay bound: network interfaces, disks, virtual functions.

Sources: Documentation/ABI/testing/sysfs-class-net (flags), sysfs-bus-pci (sriov_numvfs); open(2), O_EXCL of a block device.
A function whose use cannot be checked counts as in use.
"""

from __future__ import annotations

import typing as t

from .. import mounts
from .devices import NET, PCI

if t.TYPE_CHECKING:
    from ...model.devices.device import PciFunction
    from ..files import Host

DRIVERS = "/sys/bus/pci/drivers"
BLOCK, NVME = "/sys/block", "/sys/class/nvme-subsystem"
IS_UP = 0x1  # IFF_UP
UNMOUNT = "unmount it, or take it out, first"
NETWORK = "02"  # the PCI class of network controllers


def why_used(host: Host, function: PciFunction) -> str:
    """Why a function must keep its driver; an empty string for an unused function."""
    if function.driver is None:
        return ""
    virtual = (host.read(f"{PCI}/{function.address}/sriov_numvfs") or "0").strip()
    if virtual != "0":
        return f"it has {virtual} virtual functions: write 0 to its sriov_numvfs first"
    for interface in function.interfaces:
        said = why_interface_used(host, interface.name)
        if said:
            return f"its network interface {interface.name} {said}"
    if function.pci_class.startswith(NETWORK) and not function.interfaces:
        return "no network interface of it is seen here: it is in another network namespace, or its driver has none: unbind that first"
    for name in disks(host, function):
        said = why_disk_used(host, name) if has_file(host, name) else "cannot be checked"
        if said:
            return f"its disk {path_of(name)} {said}"
    return ""


def why_claimed(host: Host, function: PciFunction) -> str:
    """Why a disk of the function is in use; empty without such a disk. The check opens disks exclusively: call it just before unbinding."""
    claimed = (
        path_of(name) for name in disks(host, function) if not has_file(host, name) or host.is_claimed(path_of(name))
    )
    return next((f"its disk {path} is in use: {UNMOUNT}" for path in claimed), "")


def disks(host: Host, function: PciFunction) -> list[str]:
    """The function's disks by the kernel's names.

    A disk with several NVMe controllers lies below its subsystem; below the function lies only a path to the disk, without a file in /dev.
    """
    links = {name: host.link(f"{BLOCK}/{name}") or "" for name in host.names(BLOCK)}
    below = [name for name, link in links.items() if f"/{function.address}/" in link]
    shared = [name for outer in subsystems(host, function) for name, link in links.items() if f"/{outer}/" in link]
    return [*shared, *(name for name in below if not (shared and is_hidden(host, name)))]


def subsystems(host: Host, function: PciFunction) -> list[str]:
    """The NVMe subsystems that have a controller of the function."""
    names = []
    for subsystem in host.names(NVME):
        links = (host.link(f"{NVME}/{subsystem}/{name}") or "" for name in host.names(f"{NVME}/{subsystem}"))
        if any(f"/{function.address}/" in link for link in links):
            names.append(subsystem)
    return names


def is_hidden(host: Host, disk: str) -> bool:
    """Whether a disk of the kernel is only a path to another disk."""
    return (host.read(f"{BLOCK}/{disk}/hidden") or "").strip() == "1"


def has_file(host: Host, disk: str) -> bool:
    """Whether the use of a disk can be checked: a disk without a device file is not known to be free."""
    return not is_hidden(host, disk) and host.exists(path_of(disk))


def path_of(disk: str) -> str:
    """The device file of a disk."""
    return f"/dev/{disk.replace('!', '/')}"


def why_disk_used(host: Host, disk: str) -> str:
    """Why a disk cannot be released: it is mounted, swap or part of another disk; an empty string for an unused disk."""
    folder, path = f"{BLOCK}/{disk}", path_of(disk)
    parts = [f"{folder}/{name}" for name in host.names(folder) if host.exists(f"{folder}/{name}/partition")]
    for part in (folder, *parts):
        above = host.names(f"{part}/holders")
        if above:
            return f"is a part of {above[0]}: {UNMOUNT}"
    numbers = filter(None, ((host.read(f"{part}/dev") or "").strip() for part in (folder, *parts)))
    # Btrfs shows a device number of its own, so the disk's path is searched for too. A longer path also counts as a use of the disk.
    mounted = [host.lines(mounts.TABLE, word) for word in (*(f" {number} " for number in numbers), f" {path}")]
    if None in mounted:
        return "cannot be checked"
    if any(mounted):
        return f"is mounted: {UNMOUNT}"
    swaps = host.lines("/proc/swaps", path)
    if swaps is None and host.exists("/proc/swaps"):
        return "cannot be checked"
    return f"is swap: {UNMOUNT}" if swaps else ""


def why_interface_used(host: Host, name: str) -> str:
    """Why a network interface cannot be released; an empty string for an unused interface."""
    try:
        flags = int((host.read(f"{NET}/{name}/flags") or "").strip(), 16)
    except ValueError:
        return "cannot be checked"
    if flags & IS_UP:
        return f"is up: move its addresses and routes elsewhere, then ip link set {name} down"
    above = host.link(f"{NET}/{name}/master")
    return f"is a part of {above.rpartition('/')[2]}: take it out first" if above else ""
