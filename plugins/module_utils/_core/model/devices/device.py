# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# This module is private to the collection corral.node.
"""Devices of a node: what a profile declares, what is found on the node, and the devices of each resource."""

from __future__ import annotations

import re
import types
import typing as t

from ..values.records import NamedTuple

# The path of a device file that DeviceAllow=, an environment file and a CDI spec can carry unchanged.
FIT_PATH = re.compile(r"/dev/[A-Za-z0-9_.:@+,=#/-]+")


# The names of vfio-pci and of the drivers derived from it, which hand out whole IOMMU groups.
VFIO_DRIVER = re.compile(r"vfio-pci|[a-z0-9]{1,32}[_-]vfio[_-]pci", re.ASCII)
VFIO_DRIVERS = ("vfio-pci", "vfio_pci")  # the endings of these drivers' names, as in mlx5_vfio_pci


class Match(NamedTuple):
    """The fields that a device has to match: all PCI fields that are set, else the ``path`` in /dev, else the ``cdi`` kind.

    ``pci`` is ``vendor:device`` (device may be ``*``), ``pci_class`` (key `class`) the first digits of a class; ``address``, ``interface``,
    ``path`` and the device in ``cdi`` may have ``*`` and ``?``.
    """

    pci: t.Optional[str] = None
    pci_class: t.Optional[str] = None
    driver: t.Optional[str] = None
    interface: t.Optional[str] = None
    iommu_group: t.Optional[int] = None
    path: t.Optional[str] = None
    cdi: t.Optional[str] = None
    address: t.Optional[str] = None


class Check(NamedTuple):
    """A command that checks the health of a device, the seconds between two runs, and the seconds that a run may take.

    ``user`` is ``dynamic`` (a user that exists for this run alone) or ``root``.
    """

    command: tuple[str, ...]
    interval: int
    timeout: int
    user: str = "dynamic"


class Resource(NamedTuple):
    """A resource and the match of its devices. ``require_link``: a device without a link is unhealthy.

    ``bind`` is the driver to which Corral binds the PCI functions of a device while a workload has the device.
    """

    name: str
    match: Match
    require_link: bool = False
    check: t.Optional[Check] = None
    bind: t.Optional[str] = None


class Interface(NamedTuple):
    """A network interface and whether it has a link (carrier)."""

    name: str
    has_link: bool


class PciFunction(NamedTuple):
    """A PCI function of the node; ids and class are hexadecimal digits without 0x, ``location`` is its path in sysfs."""

    address: str
    location: str
    numa_node: int
    pci_id: str
    pci_class: str
    driver: t.Optional[str]
    iommu_group: t.Optional[int]
    interfaces: tuple[Interface, ...] = ()


class DeviceFile(NamedTuple):
    """A file that was looked for. ``real``: the path to which its links lead; ``location``: its device in sysfs ("": unknown)."""

    path: str
    real: str
    is_device: bool
    location: str = ""
    address: t.Optional[str] = None  # of the PCI function that the file belongs to


class CdiDevice(NamedTuple):
    """A device of a CDI spec with the files that it needs on the node, and its ``edits`` (cdi_spec.py).

    ``shared`` are the files that the spec has for all its devices: each holder needs these files, so they identify no device.
    """

    kind: str
    name: str
    spec: str
    files: tuple[DeviceFile, ...]
    edits: tuple[str, ...] = ()
    shared: tuple[DeviceFile, ...] = ()


class Seen(NamedTuple):
    """What was found on the node: PCI functions by address, files by pattern, devices of CDI specs.

    ``in_use``: by address, why a PCI function cannot be bound to another driver. ``drivers``: which drivers of ``bind`` exist.
    """

    pci: t.Mapping[str, PciFunction]
    files: t.Mapping[str, tuple[DeviceFile, ...]]
    cdi: tuple[CdiDevice, ...] = ()
    problems: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    in_use: t.Mapping[str, str] = {}
    drivers: frozenset[str] = frozenset()


class Device(NamedTuple):
    """A device of a resource, the unit of allocation. ``unhealthy`` says why it cannot be given out; "" when it can.

    ``numa_node``: -1 for none. ``keys``: paths and names that only one holder can have. ``within``: the sysfs folders above the device.
    ``cdi``: the edits of its CDI spec. ``unbound``: the functions that Corral binds to ``bind`` for a workload, each with its present
    driver ("" for none). ``in_use``: the device is unhealthy only because the machine itself uses it.
    """

    id: str
    numa_node: int
    unhealthy: str
    functions: tuple[str, ...]
    driver: t.Optional[str]
    interfaces: tuple[str, ...]
    files: tuple[str, ...]
    keys: frozenset[str]
    within: frozenset[str]
    cdi: tuple[str, ...] = ()
    bind: str = ""
    unbound: tuple[tuple[str, str], ...] = ()
    in_use: bool = False


class GrantedDevice(NamedTuple):
    """A device that a container has ("": the workload has no containers), by its resource and its id.

    ``keys`` are the device's keys when it was last seen: no other workload gets a device with one of these keys.
    """

    container: str
    resource: str
    id: str
    keys: tuple[str, ...] = ()


class Inventory(NamedTuple):
    """The devices of each resource, in the profile's order. ``problems`` need a change of profile or node, ``notes`` do not.

    ``undeclared``: granted devices that no resource has any more. ``elsewhere``: by resource, the matching devices that an earlier resource
    has. ``runs``: by environment file, the unit or workload that runs with devices of an unknown grant.
    """

    devices: t.Mapping[str, tuple[Device, ...]]
    problems: tuple[str, ...]
    notes: tuple[str, ...]
    undeclared: tuple[Device, ...] = ()
    elsewhere: t.Mapping[str, tuple[str, ...]] = types.MappingProxyType({})
    runs: t.Mapping[str, str] = types.MappingProxyType({})

    @property
    def known(self) -> t.Mapping[str, tuple[Device, ...]]:
        """The devices of each resource, and under "" the granted devices that no resource has any more."""
        return {**self.devices, "": self.undeclared} if self.undeclared else self.devices


def around(locations: t.Iterable[str]) -> frozenset[str]:
    """The sysfs folders above these locations: a device at one of these folders includes all devices below it."""
    return frozenset(
        location[:end] for location in locations for end, char in enumerate(location) if char == "/" and end
    )


def is_place(key: str) -> bool:
    """Whether a key is a place of a device: its folder in sysfs or its PCI address, which no other device has."""
    return not key.startswith("/") and "=" not in key


def is_still(own: t.AbstractSet[str], device: Device) -> bool:
    """Whether a device may have this identity (empty: not known)."""
    if not (own and identity(device)):
        return True
    return not own.isdisjoint(device.keys) if any(map(is_place, own)) else _alike(own, _own_files(device))


def identity(device: t.Union[Device, GrantedDevice]) -> frozenset[str]:
    """The keys that identify a device, whatever its id is: its places, else its own files; empty if neither is known."""
    return frozenset(filter(is_place, device.keys)) or _own_files(device)


def is_same(granted: GrantedDevice, device: Device) -> bool:
    """Whether a device is the granted device: both have the same places (see is_place) or, if a place is not known, files of one device.

    A device whose file is missing has no place in sysfs, for example while its driver is loaded again.
    """
    own, seen = identity(granted), identity(device)
    if any(map(is_place, own)) and any(map(is_place, seen)):
        return own == seen
    return _alike(_own_files(granted), _own_files(device))


def _alike(files: t.AbstractSet[str], others: t.AbstractSet[str]) -> bool:
    """Whether both sets are files of the same device. A device that is alone in its spec has the spec's files for control as well."""
    return bool(files and others) and (files <= others or files >= others)


def _own_files(device: t.Union[Device, GrantedDevice]) -> frozenset[str]:
    """The files of a device; empty for a device whose id is a link, which may lead to another file by now."""
    if device.id.startswith("/dev/") and device.id not in device.keys:
        return frozenset()
    return frozenset(key for key in device.keys if key.startswith("/dev/"))


def is_vfio(driver: t.Optional[str]) -> bool:
    """Whether a driver is vfio-pci, or derived from it."""
    return driver is not None and driver.endswith(VFIO_DRIVERS)
