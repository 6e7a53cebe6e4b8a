# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# This module is private to the collection corral.node.
"""The devices of a node that a profile can declare: PCI functions, files in /dev, CDI specs.

Sources: Documentation/ABI/testing/sysfs-bus-pci, sysfs-kernel-iommu_groups, sysfs-class-net (carrier); sysfs(5), /sys/dev.
"""

from __future__ import annotations

import errno
import fnmatch
import posixpath
import re
import typing as t

from ...model.devices import cdi_spec, inventory
from ...model.devices.device import FIT_PATH, CdiDevice, DeviceFile, Interface, PciFunction, Resource, Seen
from ...model.topology.topology import PciDevice
from ...model.values.errors import CorralError, shown
from ..files import Unreadable
from ..kubelet import kubelet_node
from ..topology.sysfs_reader import Reader
from . import devices, pci_use, pci_used_before

if t.TYPE_CHECKING:
    from ..files import Host

# Where runtimes look for CDI specs; a device in the later folder hides a device with the same name in the earlier folder.
CDI_FOLDERS = ("/etc/cdi", "/var/run/cdi")
CDI_ENDS = (".json", ".yaml")

_IOMMU_GROUP = re.compile(r"[0-9]{1,9}", re.ASCII)
_LINKS = 8


def observe(host: Host, resources: t.Iterable[Resource]) -> Seen:
    """The devices of ``host`` that ``resources`` may match."""
    reader = Reader(host)
    problems: list[str] = []
    notes: list[str] = []
    resources = list(resources)
    patterns = dict.fromkeys(resource.match.path for resource in resources if resource.match.path is not None)
    files = {pattern: tuple(_matching(host, pattern, notes)) for pattern in patterns}
    cdi = _cdi(host, problems) if any(resource.match.cdi is not None for resource in resources) else ()
    pci = functions(reader)
    seen = Seen(pci, files, tuple(cdi), tuple(problems), (*reader.notes(), *notes))
    drivers = {resource.bind for resource in resources if resource.bind is not None}
    if not drivers:
        return seen
    used = used_now(host, resources, pci)
    before = pci_used_before.of_boot_before(host, used)
    return seen._replace(
        in_use={address: why or before.get(address, "") for address, why in used.items()},
        drivers=frozenset(driver for driver in drivers if host.is_dir(f"{pci_use.DRIVERS}/{driver}")),
    )


def with_granted(host: Host, seen: Seen, ids: t.Iterable[str]) -> Seen:
    """``seen`` with the files and CDI devices of ``ids``: device ids that no resource of the profile matches."""
    matches = [inventory.match_of(ident) for ident in ids]
    files = {}
    for path in (match.path for match in matches if match.path is not None):
        file = device_file(host, path) if FIT_PATH.fullmatch(path) else None
        if file is not None and file.is_device and FIT_PATH.fullmatch(file.real):
            files[path] = (file,)
    cdi = seen.cdi
    if not cdi and any(match.cdi is not None for match in matches):
        cdi = tuple(_cdi(host, []))
    return seen._replace(files={**seen.files, **files}, cdi=cdi)


def used_now(
    host: Host, resources: t.Iterable[Resource], pci: t.Optional[t.Mapping[str, PciFunction]] = None
) -> dict[str, str]:
    """Why each PCI function that these resources may bind is in use, by address; an empty string for an unused function."""
    to_bind = inventory.functions_to_bind(list(resources), functions(Reader(host)) if pci is None else pci)
    return {function.address: pci_use.why_used(host, function) for function in to_bind}


def has_link(host: Host, interface: str) -> bool:
    """Whether a network interface has a link. The kernel answers EINVAL for the carrier of an interface that is down."""
    carrier = host.attempt(host.read, f"{devices.NET}/{interface}/carrier")
    if isinstance(carrier, Unreadable) and carrier.errno != errno.EINVAL:
        raise carrier
    return isinstance(carrier, str) and carrier.strip() == "1"


def functions(reader: Reader) -> dict[str, PciFunction]:
    """The PCI functions with their drivers, IOMMU groups and network interfaces."""
    interfaces: dict[str, list[Interface]] = {}
    for name, address in devices.net(reader).items():
        if address is not None:
            interfaces.setdefault(address, []).append(Interface(name, has_link(reader.host, name)))
    return {
        address: _function(reader.host, device, tuple(interfaces.get(address, ())))
        for address, device in devices.pci(reader).items()
    }


def _function(host: Host, device: PciDevice, interfaces: tuple[Interface, ...]) -> PciFunction:
    folder = f"{devices.PCI}/{device.address}"
    group = posixpath.basename(host.link(f"{folder}/iommu_group") or "")
    return PciFunction(
        device.address,
        _location(host.link(folder)),
        device.numa_node,
        f"{_digits(device.vendor, 4)}:{_digits(device.device, 4)}",
        _digits(device.pci_class, 6),
        posixpath.basename(host.link(f"{folder}/driver") or "") or None,
        int(group) if _IOMMU_GROUP.fullmatch(group) else None,
        interfaces,
    )


def _digits(text: t.Optional[str], width: int) -> str:
    """A number such as ``0x8086`` in ``width`` digits (``8086``); an empty string for None, which matches nothing."""
    return "" if text is None else text[2:].zfill(width)


def _location(link: t.Optional[str]) -> str:
    """The target of a link of sysfs as a path below /sys: ``devices/pci0000:00/0000:00:02.0``."""
    return re.sub(r"^(\.\./)+", "", link or "")


def device_file(host: Host, path: str) -> DeviceFile:
    """The file at a path, with its real path, the path of its device in sysfs, and the PCI function of the device."""
    real = path
    for dummy in range(_LINKS):
        text = host.link(real)
        # A link in /proc is not followed: its target differs between processes.
        if text is None or real.startswith("/proc/"):
            break
        real = posixpath.normpath(posixpath.join(posixpath.dirname(real), text))
    number = host.device(real)
    if number is None:
        return DeviceFile(path, real, is_device=False)
    location = _location(host.link(f"/sys/dev/{number}"))
    return DeviceFile(path, real, True, location, devices.address_in(location))


def _matching(host: Host, pattern: str, notes: list[str]) -> list[DeviceFile]:
    """The device files that a pattern names, sorted. Other files are noted and left out, folders are left out."""
    files = []
    for path in _expanded(host, pattern):
        if host.is_dir(path):
            continue
        file = device_file(host, path)
        if not (FIT_PATH.fullmatch(path) and FIT_PATH.fullmatch(file.real)):
            why = (
                "its path has characters that a unit file cannot contain"
                if file.real.startswith("/dev/")
                else "it is a link to a file outside /dev"
            )
            notes.append(f"{shown(path)}: left out, {why}")
        elif not file.is_device:
            notes.append(f"{shown(path)}: left out, it is not a device file")
        else:
            files.append(file)
    return files


def _expanded(host: Host, pattern: str) -> list[str]:
    """The existing paths that a pattern names; ``*`` and ``?`` match no slash."""
    paths = [""]
    for part in pattern.split("/")[1:]:
        if re.search(r"[*?]", part):
            paths = [
                f"{path}/{name}"
                for path in paths
                for name in host.names(path)
                if fnmatch.fnmatchcase(name, part) and not (name.startswith(".") and part[0] != ".")
            ]
        else:
            paths = [f"{path}/{part}" for path in paths if host.exists(f"{path}/{part}")]
    return paths


def _cdi(host: Host, problems: list[str]) -> list[CdiDevice]:
    """The devices of the CDI specs, without the devices that two specs in the same folder name."""
    known: dict[tuple[str, str], CdiDevice] = {}
    for folder in CDI_FOLDERS:
        here: dict[tuple[str, str], CdiDevice] = {}
        twice = set()
        for name in host.names(folder):
            if not name.endswith(CDI_ENDS):
                continue
            path = f"{folder}/{name}"
            for device in _spec(host, path, problems):
                key = (device.kind, device.name)
                if key in here:
                    twice.add(key)
                    problems.append(
                        f"{shown(path)}: {device.kind}={device.name} is in {shown(here[key].spec)} as well: remove one of the files"
                    )
                files, shared = (
                    tuple(device_file(host, inner) for inner in paths) for paths in (device.paths, device.shared)
                )
                here.setdefault(key, CdiDevice(device.kind, device.name, path, files, device.edits, shared))
        known.update(here)
        for key in twice:
            del known[key]
    return list(known.values())


def _spec(host: Host, path: str, problems: list[str]) -> list[cdi_spec.SpecDevice]:
    text = host.read(path)
    if text is None:
        problems.append(f"{shown(path)}: cannot be read: {kubelet_node.why_none(host, path)}")
        return []
    try:
        data = kubelet_node.load(text, path)
    except CorralError as error:
        is_torn = error.problems[0].message.startswith("is not YAML")  # otherwise PyYAML is missing
        problems.append(f"{error}: generate the spec again, or remove it" if is_torn else str(error))
        return []
    try:
        return cdi_spec.parse(data, path)
    except CorralError as error:
        problems.append(str(error))
        return []
