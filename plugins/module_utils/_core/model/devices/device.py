# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# This module is private to the collection corral.node.
"""The declared resources of a profile, the hardware and CDI devices found on a node, and the devices of each resource."""

from __future__ import annotations

import re
import types
import typing as t

from ..values.records import NamedTuple

# The form of a device file's path that DeviceAllow=, an environment file and a CDI spec can contain unchanged.
FIT_PATH = re.compile(r"/dev/[A-Za-z0-9_.:@+,=#/-]+")


# The names of vfio-pci and of the drivers derived from vfio-pci. These drivers give a program a whole IOMMU group.
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
    """A PCI function of the node. Ids and class are hexadecimal digits without 0x; ``location`` is the function's path in sysfs."""

    address: str
    location: str
    numa_node: int
    pci_id: str
    pci_class: str
    driver: t.Optional[str]
    iommu_group: t.Optional[int]
    interfaces: tuple[Interface, ...] = ()


class DeviceFile(NamedTuple):
    """A path in /dev. ``real``: the path to which its links lead; ``location``: the device's folder in sysfs (empty: unknown)."""

    path: str
    real: str
    is_device: bool
    location: str = ""
    address: t.Optional[str] = None  # of the file's PCI function


class CdiDevice(NamedTuple):
    """A device of a CDI spec with the device files that the device needs on the node, and its ``edits`` (cdi_spec.py).

    ``shared`` are the files that come with each device of the spec: several workloads may get these files, so they identify no device.
    """

    kind: str
    name: str
    spec: str
    files: tuple[DeviceFile, ...]
    edits: tuple[str, ...] = ()
    shared: tuple[DeviceFile, ...] = ()


class Seen(NamedTuple):
    """The PCI functions (by address), the files (by pattern) and the devices of CDI specs that were found on the node.

    ``in_use``: by address, why a PCI function cannot be bound to another driver. ``drivers``: the existing drivers among all ``bind``.
    """

    pci: t.Mapping[str, PciFunction]
    files: t.Mapping[str, tuple[DeviceFile, ...]]
    cdi: tuple[CdiDevice, ...] = ()
    problems: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    in_use: t.Mapping[str, str] = {}
    drivers: frozenset[str] = frozenset()


class Device(NamedTuple):
    """A device of a resource, the unit of allocation. ``unhealthy``: why no workload gets the device; empty for a healthy device.

    ``numa_node``: -1 without a node. ``keys``: paths and names that only one workload can have. ``within``: the sysfs folders above
    the device. ``cdi``: the edits of its CDI spec. ``unbound``: the functions that Corral binds to the driver ``bind`` for a workload,
    each with its present driver (empty without a driver). ``in_use``: the device is unhealthy only because the machine itself uses it.
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
    """A device that a container has, by resource and id. ``container`` is empty if the workload has no containers.

    ``keys`` are the last known keys of the device: no other workload gets a device with one of these keys.
    """

    container: str
    resource: str
    id: str
    keys: tuple[str, ...] = ()


class Inventory(NamedTuple):
    """The devices of each resource, in the profile's order. ``problems`` need a change of profile or node, ``notes`` need no change.

    ``undeclared``: granted devices that no resource has any more. ``elsewhere``: by resource, texts about the matching devices that belong
    to an earlier resource. ``runs``: by environment file, the unit or workload that runs with devices of an unknown grant.
    """

    devices: t.Mapping[str, tuple[Device, ...]]
    problems: tuple[str, ...]
    notes: tuple[str, ...]
    undeclared: tuple[Device, ...] = ()
    elsewhere: t.Mapping[str, tuple[str, ...]] = types.MappingProxyType({})
    runs: t.Mapping[str, str] = types.MappingProxyType({})

    @property
    def known(self) -> t.Mapping[str, tuple[Device, ...]]:
        """The devices of each resource, and under an empty name the granted devices that no resource has any more."""
        return {**self.devices, "": self.undeclared} if self.undeclared else self.devices


def around(locations: t.Iterable[str]) -> frozenset[str]:
    """The sysfs folders above ``locations``. A device at such a folder includes all devices below the folder."""
    return frozenset(
        location[:end] for location in locations for end, char in enumerate(location) if char == "/" and end
    )


def is_place(key: str) -> bool:
    """Whether a key of a device is a place: the device's folder in sysfs or its PCI address. Two devices never have the same place."""
    return not key.startswith("/") and "=" not in key


def is_still(own: t.AbstractSet[str], device: Device) -> bool:
    """Whether ``device`` may be the device with the identity ``own``. An empty identity is unknown and fits any device."""
    if not (own and identity(device)):
        return True
    return not own.isdisjoint(device.keys) if any(map(is_place, own)) else _alike(own, _own_files(device))


def identity(device: t.Union[Device, GrantedDevice]) -> frozenset[str]:
    """The keys that identify a device without its id: the device's places, else its own files; an empty set if both are unknown."""
    return frozenset(filter(is_place, device.keys)) or _own_files(device)


def is_same(granted: GrantedDevice, device: Device) -> bool:
    """Whether ``device`` is the granted device: the places of both devices are equal (see is_place), or their files if a place is unknown.

    The place of a device in sysfs is unknown while its file is missing, for example while its driver is loaded again.
    """
    own, seen = identity(granted), identity(device)
    if any(map(is_place, own)) and any(map(is_place, seen)):
        return own == seen
    return _alike(_own_files(granted), _own_files(device))


def _alike(files: t.AbstractSet[str], others: t.AbstractSet[str]) -> bool:
    """Whether one set of files contains the other set, as for one device: a device alone in its CDI spec also has the control files."""
    return bool(files and others) and (files <= others or files >= others)


def _own_files(device: t.Union[Device, GrantedDevice]) -> frozenset[str]:
    """The files of a device; an empty set for a device whose id is a symbolic link, since the link may lead to another file by now."""
    if device.id.startswith("/dev/") and device.id not in device.keys:
        return frozenset()
    return frozenset(key for key in device.keys if key.startswith("/dev/"))


def is_vfio(driver: t.Optional[str]) -> bool:
    """Whether a driver is vfio-pci or a driver derived from vfio-pci."""
    return driver is not None and driver.endswith(VFIO_DRIVERS)
