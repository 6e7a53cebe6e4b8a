# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# This module is private to the collection corral.node.
"""The devices of a node by the resources of a profile, and whether each device can be allocated."""

from __future__ import annotations

import fnmatch
import typing as t

from ..values.errors import shown
from .device import (
    FIT_PATH,
    CdiDevice,
    Device,
    DeviceFile,
    GrantedDevice,
    Inventory,
    Match,
    PciFunction,
    Resource,
    Seen,
    around,
    identity,
    is_same,
    is_still,
    is_vfio,
)
from .device_delivery import VFIO_CONTROL

# A bridge is a part of the machine, not a device of its own: PCI class 06.
BRIDGE = "06"
# The class of PCI-to-PCI bridges. Their driver leaves the IOMMU group to VFIO (driver_managed_dma in drivers/pci/pcie/portdrv.c). The
# driver of any other bridge, such as an ISA bridge, keeps the group.
PCI_BRIDGE = "0604"
# A driver that leaves the IOMMU group to VFIO, like VFIO's own drivers (driver_managed_dma in drivers/pci/pci-stub.c).
STUB = "pci-stub"
# By convention the name of the CDI device that stands for all other devices of its kind.
CDI_ALL = "all"

# The profile's key for a field of Match, if the key is not the name of the field.
KEYS = {"pci_class": "class"}


def match_text(match: Match) -> str:
    """A match as text: ``pci 8086:1572, driver ice``."""
    values = match._asdict().items()
    return ", ".join(f"{KEYS.get(field, field)} {value}" for field, value in values if value is not None)


def devices_of(resources: t.Sequence[Resource], seen: Seen) -> Inventory:
    """The devices of each resource. If several resources match a device, the first resource gets the device and ``problems`` name it."""
    owners: dict[str, tuple[int, Device]] = {}
    inner: dict[str, tuple[int, Device]] = {}
    devices: dict[str, tuple[Device, ...]] = {}
    elsewhere: dict[str, tuple[str, ...]] = {}
    problems, notes = list(seen.problems), list(seen.notes)
    for index, resource in enumerate(resources):
        kept: list[Device] = []
        at = f"devices[{index}].match: {match_text(resource.match)}"
        candidates = _candidates(resource, seen)
        for device in candidates:
            taken = [owners[key] for key in sorted(device.keys | device.within) if key in owners]
            taken += [inner[key] for key in sorted(device.keys) if key in inner]
            if not taken:
                kept.append(device)
                owners.update((key, (index, device)) for key in device.keys)
                inner.update((key, (index, device)) for key in device.within)
                continue
            other, first = taken[0]
            if other == index:
                notes.append(shown(f"{at}: {device.id} overlaps {first.id}: counted once", limit=1000))
            else:
                place = f"devices[{other}] ({resources[other].name})"
                overlap = "" if device.id == first.id else f" overlaps {first.id}, which"
                where = f"{device.id}{overlap} is in {place} already"
                problems.append(shown(f"{at}: {where}: narrow one of the two", limit=1000))
                elsewhere[resource.name] = (*elsewhere.get(resource.name, ()), shown(where, limit=1000))
        if not candidates:
            problems.append(f"{at}: no device of this node matches: compare it with {_where(resource.match)}")
        devices[resource.name] = tuple(kept)
    return Inventory(devices, tuple(problems), tuple(notes), elsewhere=elsewhere)


def granted_elsewhere(granted: t.Iterable[GrantedDevice], inventory: Inventory, seen: Seen) -> tuple[Device, ...]:
    """The devices of the node that were granted and belong to no resource (any more), found by the granted ids.

    If a CDI spec gives its devices other numbers, the identity tells which device was granted.
    """
    ids = {one.id for devices in inventory.devices.values() for one in devices}
    devices: dict[str, Device] = {}
    for lost in unknown(granted, inventory):
        match = match_of(lost.id)
        if match.cdi is not None:
            match = Match(cdi=match.cdi.partition("=")[0])
        there = _candidates(Resource(lost.resource, match), seen)
        same = [device for device in there if match.cdi is not None and is_same(lost, device)]
        for device in same or [device for device in there if device.id == lost.id]:
            # If the granted device had a file, a device without a file (its present driver makes no file) is another device.
            if device.id not in ids and (device.files or not any(key.startswith("/dev/") for key in lost.keys)):
                devices[device.id] = device
    return tuple(devices.values())


def unknown(granted: t.Iterable[GrantedDevice], inventory: Inventory) -> list[GrantedDevice]:
    """The granted devices that no resource has. A resource's device with the same id may be another device."""
    known = {one.id: one for devices in inventory.devices.values() for one in devices}
    return [one for one in granted if one.id not in known or not is_still(identity(one), known[one.id])]


def held_back(
    inventory: Inventory,
    granted: t.Iterable[GrantedDevice],
    runs: t.Mapping[str, t.Optional[t.AbstractSet[str]]],
    numbers: t.Mapping[str, t.Optional[str]],
) -> Inventory:
    """The inventory, in which a device is unhealthy if a run without a grant may use the device.

    ``runs``: by the run's name, the device files that DeviceAllow= opens (None: no list, as for a container). ``numbers``: by path, the
    number of a device file. A device without a file is on no list, so each run may use the device.
    """
    granted = list(granted)
    known = {one.id for one in granted}.difference(one.id for one in unknown(granted, inventory))

    def seen(device: Device) -> Device:
        files = {device.id, *device.keys.intersection(device.files)}
        files = {file for file in files if file.startswith("/dev/")}
        files.update([f"/dev/{numbers[file]}" for file in files if numbers.get(file)])
        name = next((name for name, opened in runs.items() if opened is None or not files or opened & files), "")
        why = f"{name} may have it, and its grant is lost: stop {name}"
        return device if device.unhealthy or not name or device.id in known else device._replace(unhealthy=why)

    return inventory._replace(devices={name: tuple(map(seen, group)) for name, group in inventory.devices.items()})


def match_of(name: str) -> Match:
    """The match that finds the device with the id ``name``: a path, the name of a CDI device or a PCI address."""
    if name.startswith("/dev/"):
        return Match(path=name)
    return Match(cdi=name) if "=" in name else Match(address=name)


def _where(match: Match) -> str:
    if match.path is not None:
        return "ls -l of that folder"
    if match.cdi is not None:
        return "the specs in /etc/cdi and /var/run/cdi"
    return "lspci -nnk"


def _candidates(resource: Resource, seen: Seen) -> list[Device]:
    match = resource.match
    if match.path is not None:
        # Every program that uses VFIO opens /dev/vfio/vfio, so no single workload gets this file.
        return [_of_file(one, seen) for one in seen.files.get(match.path, ()) if one.real != VFIO_CONTROL]
    if match.cdi is not None:
        return _of_cdi(match.cdi, seen)
    devices: dict[str, Device] = {}
    for address in sorted(seen.pci):
        function = seen.pci[address]
        if not _fits(match, function):
            continue
        group = _group(function.iommu_group, seen)
        if resource.bind is not None:
            device = _to_bind(resource.bind, group or [function], seen)
        elif group and (match.iommu_group is not None or is_vfio(function.driver)):
            device = _of_group(group, seen, resource.require_link)
        else:
            device = _of_functions([function], _unhealthy(function, resource.require_link))
        devices[device.id] = device
    return list(devices.values())


def _fits(match: Match, function: PciFunction) -> bool:
    return (
        not function.pci_class.startswith(BRIDGE)
        and (match.address is None or fnmatch.fnmatchcase(function.address, match.address))
        and (match.pci is None or fnmatch.fnmatchcase(function.pci_id, match.pci))
        and (match.pci_class is None or function.pci_class.startswith(match.pci_class))
        and (match.driver is None or function.driver == match.driver)
        and (match.iommu_group is None or function.iommu_group == match.iommu_group)
        and (
            match.interface is None
            or any(fnmatch.fnmatchcase(one.name, match.interface) for one in function.interfaces)
        )
    )


def _group(number: t.Optional[int], seen: Seen) -> list[PciFunction]:
    """The functions of an IOMMU group without bridges, by address."""
    if number is None:
        return []
    functions = [one for one in seen.pci.values() if one.iommu_group == number and not one.pci_class.startswith(BRIDGE)]
    return sorted(functions)


def _unhealthy(function: PciFunction, require_link: bool) -> str:
    if function.driver is None:
        return "no driver is bound to it"
    return _without_link([function]) if require_link else ""


def _without_link(functions: t.Sequence[PciFunction]) -> str:
    interfaces = [interface for one in functions for interface in one.interfaces]
    if any(one.has_link for one in interfaces):
        return ""
    return (
        f"no link on {', '.join(one.name for one in interfaces)}" if interfaces else "no network interface, so no link"
    )


def _held_bridges(number: int, seen: Seen) -> str:
    """As text: the bridges of an IOMMU group with a driver that keeps VFIO from opening the group; an empty string without such bridges.

    Corral does not change the driver of a bridge.
    """
    bridges = [
        f"{bridge.address}, a bridge, is bound to {bridge.driver}"
        for bridge in sorted(seen.pci.values())
        if bridge.iommu_group == number
        and bridge.pci_class.startswith(BRIDGE)
        and not bridge.pci_class.startswith(PCI_BRIDGE)
        and bridge.driver is not None
        and not _is_ready(bridge)
    ]
    return f"IOMMU group {number}: {', '.join(bridges)}: unbind that, or match nothing of this group" if bridges else ""


def _of_group(group: list[PciFunction], seen: Seen, require_link: bool = False) -> Device:
    """An IOMMU group as one device: VFIO opens a group only if no function of the group is bound to another driver."""
    number = group[0].iommu_group
    others = [one for one in group if one.driver not in (None, STUB) and not is_vfio(one.driver)]
    unhealthy = ""
    if others:
        parts = ", ".join(f"{one.address} is bound to {one.driver}" for one in others)
        unhealthy = f"IOMMU group {number}: {parts}, not to vfio-pci"
    elif not any(is_vfio(one.driver) for one in group):
        unhealthy = f"IOMMU group {number}: no function of it is bound to vfio-pci"
    elif number is not None and _held_bridges(number, seen):
        unhealthy = _held_bridges(number, seen)
    elif require_link:
        unhealthy = _without_link(group)
    return _of_functions(group, unhealthy, (f"/dev/vfio/{number}",))


def functions_to_bind(resources: t.Iterable[Resource], pci: t.Mapping[str, PciFunction]) -> list[PciFunction]:
    """The functions that Corral may bind to another driver: the functions of the IOMMU groups that resources with ``bind`` match."""
    seen = Seen(pci, {})
    functions: dict[str, PciFunction] = {}
    for resource in resources:
        for function in pci.values() if resource.bind is not None else ():
            if _fits(resource.match, function):
                parts = _group(function.iommu_group, seen) or [function]
                functions.update((one.address, one) for one in parts if not _is_ready(one))
    return list(functions.values())


def _is_ready(function: PciFunction) -> bool:
    """Whether VFIO can use a function without a new bind: the function's driver belongs to VFIO or leaves the IOMMU group to VFIO."""
    return function.driver == STUB or is_vfio(function.driver)


def _to_bind(driver: str, group: list[PciFunction], seen: Seen) -> Device:
    """An IOMMU group as a device that Corral binds to ``driver`` for a workload. A group that is in use now is unhealthy."""
    number = group[0].iommu_group
    device = _of_group(group, seen) if number is not None else _of_functions(group, "")
    others = [one for one in group if not _is_ready(one)]
    used = [
        f"{function.address} ({function.driver}): {seen.in_use[function.address]}"
        for function in others
        if seen.in_use.get(function.address)
    ]
    unhealthy, in_use = "", False
    if number is None:
        unhealthy = "it has no IOMMU group: switch the IOMMU on in the firmware and on the kernel's command line (intel_iommu=on)"
    elif not others and not any(is_vfio(one.driver) for one in group):
        unhealthy = f"IOMMU group {number}: {STUB} has all of it, and VFIO leaves that alone: unbind one, or take it out of {STUB}.ids"
    elif _held_bridges(number, seen):
        unhealthy = _held_bridges(number, seen)
    elif used:
        unhealthy, in_use = f"cannot be bound to {driver}: {'; '.join(used)}", True
    elif others and driver not in seen.drivers:
        unhealthy = f"driver {driver} is not there: modprobe {driver}, and name it in a file of /etc/modules-load.d"
    unbound = tuple((one.address, one.driver or "") for one in others)
    return device._replace(unhealthy=unhealthy, bind=driver, unbound=unbound, in_use=in_use)


def _of_functions(functions: t.Sequence[PciFunction], unhealthy: str, files: tuple[str, ...] = ()) -> Device:
    drivers = [one.driver for one in functions if one.driver]
    locations = [one.location for one in functions if one.location]
    return Device(
        id=functions[0].address,
        numa_node=_node(one.numa_node for one in functions),
        unhealthy=unhealthy,
        functions=tuple(one.address for one in functions),
        driver=next(filter(is_vfio, drivers), drivers[0] if drivers else None),
        interfaces=tuple(interface.name for one in functions for interface in one.interfaces),
        files=files,
        keys=frozenset([*(one.address for one in functions), *locations, *files]),
        within=around(locations),
    )


def _of_file(file: DeviceFile, seen: Seen) -> Device:
    """The device of a file in /dev; for the file of an IOMMU group, the device is the group."""
    head, dummy, number = file.real.rpartition("/")
    group = _group(int(number), seen) if head == "/dev/vfio" and number.isascii() and number.isdigit() else []
    if group:
        return _of_group(group, seen)._replace(id=file.path)
    function = seen.pci.get(file.address or "")
    return Device(
        id=file.path,
        numa_node=function.numa_node if function else -1,
        unhealthy="",
        functions=(function.address,) if function else (),
        driver=function.driver if function else None,
        interfaces=(),
        files=(file.real,),
        keys=_keys([file]),
        within=around([file.location]),
    )


def _of_cdi(wanted: str, seen: Seen) -> list[Device]:
    """The devices of a CDI kind. A file that several devices have, such as a control file, identifies no device."""
    kind, dummy, pattern = wanted.partition("=")
    of_kind = [one for one in seen.cdi if one.kind == kind]
    sets = {frozenset(file.real for file in one.files) for one in of_kind if one.name != CDI_ALL}
    chosen = [
        device
        for device in sorted(of_kind, key=lambda one: one.name)
        if (device.name == pattern or device.name != CDI_ALL) and fnmatch.fnmatchcase(device.name, pattern or "*")
    ]
    devices = []
    for device in chosen:
        alone = device.name == CDI_ALL
        shared = {file.real for file in device.shared}
        own = [
            file
            for file in device.files
            if file.real not in shared and (alone or sum(file.real in files for files in sets) == 1)
        ]
        devices.append(_of_cdi_device(device, own, seen))
    return devices


def _of_cdi_device(device: CdiDevice, own: list[DeviceFile], seen: Seen) -> Device:
    needed = (*device.files, *device.shared)
    gone = [file.path for file in needed if not file.is_device]
    odd = [file.path for file in needed if not FIT_PATH.fullmatch(file.real) or "/../" in file.real]
    unhealthy = f"{', '.join(gone)} in {device.spec}: no such device" if gone else ""
    if odd and not gone:
        unhealthy = f"{', '.join(odd)} in {device.spec}: a unit file cannot contain its path"
    functions = [seen.pci[file.address] for file in own if file.address and file.address in seen.pci]
    name = f"{device.kind}={device.name}"
    return Device(
        id=name,
        numa_node=_node(function.numa_node for function in functions),
        unhealthy=shown(unhealthy, limit=1000),
        functions=tuple(dict.fromkeys(function.address for function in functions)),
        driver=functions[0].driver if functions else None,
        interfaces=(),
        files=tuple(dict.fromkeys(file.real for file in needed)),
        keys=_keys(own) | {name},
        within=around([file.location for file in own]),
        cdi=device.edits,
    )


def _keys(files: t.Iterable[DeviceFile]) -> frozenset[str]:
    return frozenset(key for file in files for key in (file.real, file.location) if key)


def _node(nodes: t.Iterable[int]) -> int:
    """The common NUMA node; -1 if the nodes differ, or if ``nodes`` is empty."""
    known = set(nodes)
    return known.pop() if len(known) == 1 else -1
