# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# This module is private to the collection corral.node.
"""The keys of the section ``devices``, and the types of values that only these keys have. Readers follow the rules in schema_types.py."""

from __future__ import annotations

import re

from ..devices import cdi_spec
from ..devices.device import VFIO_DRIVER as VFIO
from ..values import duration
from . import schema_quantities
from . import schema_types as types
from .schema_key import LIST, Key
from .schema_types import Type, kind, read_duration, read_text

_LABEL = r"[a-z0-9](?:[-a-z0-9]{0,61}[a-z0-9])?"
_RESOURCE = re.compile(rf"{_LABEL}(?:\.{_LABEL})*/[A-Za-z0-9](?:[-A-Za-z0-9_.]{{0,61}}[A-Za-z0-9])?")
_ADDRESS = re.compile(r"[0-9a-f*?]{1,8}:[0-9a-f*?]{1,2}:[0-9a-f*?]{1,2}\.[0-7*?]", re.IGNORECASE)
_PCI_ID = re.compile(r"[0-9a-f]{4}:(?:[0-9a-f]{4}|\*)", re.IGNORECASE)
_CLASS = re.compile(r"(?:[0-9a-f]{2}){1,3}", re.IGNORECASE)
_DRIVER = re.compile(r"[A-Za-z0-9_-]{1,64}")
_INTERFACE = re.compile(r"[A-Za-z0-9_.@+*?-]{1,32}")
_PATH = re.compile(r"/dev/[A-Za-z0-9_.:@+,=#*?/-]{1,250}")
_CDI = re.compile(rf"{cdi_spec.KIND.pattern}(?:=[A-Za-z0-9_.:*?-]{{1,255}})?")
# In these folders users, or the kernel for each process, make the files.
_NO_DEVICES = ("fd", "hugepages", "mqueue", "pts", "shm")
DOMAIN_LIMIT = 253


def _resource(value: object) -> str:
    """The name of an extended resource by Kubernetes' rules (pkg/apis/core/v1/helper, IsExtendedResourceName)."""
    text = read_text(value, such_as="example.com/nic")
    hint = "write a domain of yours and a name, such as example.com/nic"
    domain = text.partition("/")[0]
    if len(text) > 512 or not _RESOURCE.fullmatch(text) or len(domain) > DOMAIN_LIMIT:
        raise ValueError(f"is not the name of a resource: {hint}")
    if domain == "kubernetes.io" or domain.endswith(".kubernetes.io"):
        raise ValueError(f"is in a domain of Kubernetes itself: {hint}")
    if domain.startswith("requests."):
        raise ValueError(f"begins as the requests of a quota do: {hint}")
    return text


def _hexadecimal(value: object, pattern: re.Pattern[str], what: str, such_as: str) -> str:
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        meant = _without_quotes(value, pattern)
        said = f'{meant} without quotes: write "{meant}"' if meant else f"digits: write it in quotes, such as {such_as}"
        raise ValueError(f"is {kind(value)}, as YAML reads {said}")
    text = read_text(value, such_as=such_as)
    if not pattern.fullmatch(text):
        raise ValueError(f"is not {what}: write it as in {such_as}")
    return text.lower()


def _without_quotes(value: int | float, pattern: re.Pattern[str]) -> str:
    """The text that YAML 1.1 read as this number (0200 as the octal 128, 0000:03:00.1 in base 60); an empty string if no text fits."""
    if not 0 <= value < 1 << 32:
        return ""
    if isinstance(value, int):
        written = [f"0{value:o}", str(value)]
    else:
        hours, rest = divmod(value, 3600)
        written = [f"{int(hours):04}:{int(rest // 60):02}:{rest % 60:04.1f}"]
    return next((text for text in written if pattern.fullmatch(text)), "")


def _pci_address(value: object) -> str:
    if isinstance(value, str) and not _ADDRESS.fullmatch(value) and _ADDRESS.fullmatch(f"0000:{value}"):
        raise ValueError(f'has no domain, which lspci shows with -D: did you mean "0000:{value}"?')
    return _hexadecimal(value, _ADDRESS, "DOMAIN:BUS:SLOT.FUNCTION (lspci -D)", '"0000:5e:00.0"')


def _pci_id(value: object) -> str:
    return _hexadecimal(value, _PCI_ID, "VENDOR:DEVICE, each of four hexadecimal digits (lspci -nn)", '"8086:1572"')


def _pci_class(value: object) -> str:
    return _hexadecimal(value, _CLASS, "the first 2, 4 or 6 hexadecimal digits of a class (lspci -nn)", '"0200"')


def _text(value: object, pattern: re.Pattern[str], what: str, such_as: str) -> str:
    text = read_text(value, such_as=such_as)
    if len(text) > 600 or not pattern.fullmatch(text):
        raise ValueError(f"is not {what}: write it as in {such_as}")
    return text


def _driver(value: object) -> str:
    return _text(value, _DRIVER, "the name of a driver", "vfio-pci")


def _vfio_driver(value: object) -> str:
    return _text(value, VFIO, "a VFIO driver", "vfio-pci")


def _interface(value: object) -> str:
    return _text(value, _INTERFACE, "the name of a network interface, * and ? allowed", "ens1f*")


def _cdi(value: object) -> str:
    return _text(value, _CDI, "a CDI kind VENDOR/CLASS, or VENDOR/CLASS=DEVICE", "nvidia.com/gpu")


def _path(value: object) -> str:
    text = _text(value, _PATH, "a path in /dev, * and ? allowed", "/dev/ttyUSB*")
    parts = text.split("/")[2:]
    if any(part in ("", ".", "..") for part in parts):
        raise ValueError("has an empty part, . or .. in it: write a path such as /dev/ttyUSB*")
    if len(parts) == 1 and not parts[0].strip("*?"):
        raise ValueError("matches all of /dev, null and disks among it: write a path such as /dev/ttyUSB*")
    if parts[0] in _NO_DEVICES or (len(parts) > 1 and re.search(r"[*?]", parts[0])):
        raise ValueError("may lead to files that users make: name a folder of devices, such as /dev/dri/renderD*")
    return text


def _check_timeout(value: object) -> int:
    return read_duration(value, low=1, high=60)


def _workload_resource(value: object) -> str:
    """The name of a resource that a workload requests: a resource of devices, or another resource."""
    if isinstance(value, str) and "/" in value:
        return _resource(value)
    try:
        return str(schema_quantities.RESOURCE.read(value))
    except ValueError as error:
        raise ValueError(f"{error}, or a resource of devices such as example.com/nic") from None


WORKLOAD_RESOURCE = Type("resource", _workload_resource)
RESOURCE_NAME = Type("device resource", _resource, pattern=_RESOURCE.pattern)
PCI_ID = Type("PCI vendor:device", _pci_id, pattern=r"[0-9a-fA-F]{4}:([0-9a-fA-F]{4}|\*)")
PCI_ADDRESS = Type(
    "PCI address", _pci_address, pattern=r"[0-9a-fA-F*?]{1,8}:[0-9a-fA-F*?]{1,2}:[0-9a-fA-F*?]{1,2}\.[0-7*?]"
)
PCI_CLASS = Type("PCI class", _pci_class, pattern="([0-9a-fA-F]{2}){1,3}")
DRIVER = Type("driver name", _driver, pattern=_DRIVER.pattern)
VFIO_DRIVER = Type("VFIO driver", _vfio_driver, pattern=VFIO.pattern)
INTERFACE = Type("network interface", _interface, pattern=_INTERFACE.pattern)
DEVICE_PATH = Type("path in /dev", _path, pattern=_PATH.pattern)
CDI_KIND = Type("CDI kind", _cdi, pattern=_CDI.pattern)
CHECK_TIMEOUT = Type("length of time, 1s to 1m", _check_timeout, write=duration.text)

KEYS: tuple[Key, ...] = (
    Key(
        "devices",
        None,
        "Resources that devices of the node belong to ([devices.md](devices.md)). `corral devices` shows the devices of each and "
        "who has them; workloads request a number of them.",
        many=LIST,
    ),
    Key(
        "devices[].name",
        RESOURCE_NAME,
        "What the resource is called, as Kubernetes' extended resources: a domain and a name.",
        example="example.com/nic",
        required=True,
    ),
    Key(
        "devices[].match",
        None,
        "Which devices belong to it: `path` alone, `cdi` alone, or keys of a PCI function, all of which must fit. Bridges never match.",
        required=True,
    ),
    Key(
        "devices[].match.address",
        PCI_ADDRESS,
        "The address of PCI functions as `lspci -D` prints it, `*` and `?` allowed. It stays the same while the node's cards do.",
        example='"0000:5e:00.0"',
    ),
    Key(
        "devices[].match.pci",
        PCI_ID,
        "Vendor and device of PCI functions as `lspci -nn` prints them; `*` is any device of the vendor.",
        example='"8086:1572"',
    ),
    Key(
        "devices[].match.class",
        PCI_CLASS,
        "The first 2, 4 or 6 hexadecimal digits of the PCI class, in quotes: `0200` is Ethernet.",
        example='"0200"',
        field="pci_class",
    ),
    Key(
        "devices[].match.driver",
        DRIVER,
        "The driver that the PCI function is bound to. What is bound to `vfio-pci` is one device for each IOMMU group.",
        example="vfio-pci",
    ),
    Key(
        "devices[].match.interface",
        INTERFACE,
        "The network interface of the PCI function, `*` and `?` allowed.",
        example="ens1f*",
    ),
    Key(
        "devices[].match.iommu_group",
        types.integer(0, 1 << 30),
        "The PCI functions of this IOMMU group, which are one device together. The number may differ after a reboot.",
        example="12",
    ),
    Key(
        "devices[].match.path",
        DEVICE_PATH,
        "Device files in /dev, `*` and `?` allowed. Links count as what they lead to.",
        example="/dev/ttyUSB*",
    ),
    Key(
        "devices[].match.cdi",
        CDI_KIND,
        "The devices of a CDI kind in the specs of /etc/cdi and /var/run/cdi, or some of them: `KIND=NAME`, `*` and `?` allowed "
        "in the name. The device `all` counts only where it is named.",
        example="nvidia.com/gpu",
    ),
    Key(
        "devices[].require_link",
        types.BOOLEAN,
        "Whether a PCI function is healthy only while a network interface of it has a link.",
        example="true",
        default=False,
        quiet=True,
    ),
    Key(
        "devices[].bind",
        VFIO_DRIVER,
        "The VFIO driver that all PCI functions of a device's IOMMU group are bound to when a workload is given the device; afterwards they go "
        "back to the driver that they had ([devices.md](devices.md#drivers)). For matches by `address`, `pci`, `class` and `iommu_group`.",
        example="vfio-pci",
    ),
    Key(
        "devices[].check",
        None,
        "A command of yours that tells whether a device is healthy ([devices.md](devices.md#a-check-of-your-own)).",
    ),
    Key(
        "devices[].check.command",
        types.COMMAND_WORD,
        "A command, as a list of words that no shell reads, with the absolute path of the program first. It runs in a unit of its "
        "own, for one device after the other, with the id of the device as its last argument. Exit code 0: the device is "
        "healthy. It must change nothing: check mode runs it as well. Only root may be able to change the program and what "
        "paths among the words lead to ([devices.md](devices.md#what-root-runs-only-root-may-change)).",
        example="[/usr/local/sbin/nic-ok]",
        many=LIST,
        required=True,
    ),
    Key(
        "devices[].check.interval",
        types.INTERVAL,
        "How often it runs for each device.",
        example="5m",
        default="30s",
    ),
    Key(
        "devices[].check.timeout",
        CHECK_TIMEOUT,
        "How long it may take for a device before it is killed and the device is unhealthy.",
        example="10s",
        default="5s",
    ),
    Key(
        "devices[].check.user",
        types.choice("dynamic", "root"),
        "As whom it runs: as a user that exists for this run alone, without any right that other users lack, or as root, for a command "
        "that opens what only root can.",
        example="root",
        default="dynamic",
        quiet=True,
    ),
)
