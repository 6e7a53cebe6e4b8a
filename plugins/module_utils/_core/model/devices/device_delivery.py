# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# This module is private to the collection corral.node.
"""How granted devices reach a workload: the device files that its unit may open, its environment, and a CDI spec for its containers.

Sources: systemd.resource-control(5) (DeviceAllow=), systemd.exec(5) (EnvironmentFile=), SPEC.md of CDI. ``PCIDEVICE_…`` is the name that
the SR-IOV network device plugin uses, so that programs for this plugin find their PCI functions.
"""

from __future__ import annotations

import json
import re
import typing as t

from ..values.records import NamedTuple
from .cdi_spec import NAME
from .device import Device, GrantedDevice, Match, is_place, is_vfio

FOLDER = "/run/corral/devices"
CDI_FOLDER = "/run/cdi"
CDI_FILES = re.compile(r"corral\.node-grant(-[0-9.]+)?\.json", re.ASCII)
KIND = "corral.node/grant"
# The lowest version of CDI that allows the content of Corral's spec: Podman 4.3 knows versions up to 0.5.0.
VERSION = "0.3.0"
ACCESS = "rwm"  # m: a container engine makes the file of a device in the container
PCI_ADDRESS = re.compile(r"[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]", re.ASCII)
VFIO_FOLDER, VFIO_CONTROL = "/dev/vfio/", "/dev/vfio/vfio"
ENDING, DRIVER_ENDING = ".env", ".driver"
HEADER = (
    "# Corral (corral.node) keeps this file as long as the workload has these devices; a change by hand is drift.\n"
)
IDS = "CORRAL_DEVICES_"  # the prefix of the variables that contain ids


def env_file(workload: str, unit: str) -> str:
    """The path of a workload's environment file: the file has the name of the unit (the specifier %n), else of the workload."""
    return f"{FOLDER}/{unit or f'{workload}.workload'}{ENDING}"


def driver_record(address: str) -> str:
    """The file in FOLDER that names the driver to which a PCI function was bound before Corral."""
    return f"{FOLDER}/{address}{DRIVER_ENDING}"


def env_file_as_read(path: str) -> str:
    """The file that systemd reads for the path of env_file(): EnvironmentFile= is a pattern, in which a backslash (``job@a\\x2db.service``)
    only quotes the next character (glob(7)).
    """
    return path.replace("\\", "")


def unit_of(name: str) -> str:
    """The unit to which a file of FOLDER belongs; an empty string for the file of a workload without a unit."""
    stem = name[: -len(ENDING)] if name.endswith(ENDING) else ""
    return stem if stem.endswith(".service") else ""


def has_files(match: Match) -> bool:
    """Whether each device of a resource with this match has a file, so that a workload's unit needs no other device files."""
    return match.path is not None or match.cdi is not None or match.iommu_group is not None or is_vfio(match.driver)


def unit_lines(*, closed: bool, binds: t.Iterable[str] = ()) -> list[str]:
    """The settings in the drop-in of a unit with devices. systemd reads the environment file at each start, without a reload.

    ``closed`` adds DevicePolicy=closed. ``binds`` are the paths of BindPaths= (device_allow.binds), which only a unit file can set.
    """
    lines = [*(["DevicePolicy=closed"] if closed else []), f"EnvironmentFile=-{FOLDER}/%n{ENDING}"]
    return lines + [f"BindPaths={one}" for one in binds]


def paths_of(
    resources: t.Iterable[str], seen: t.Mapping[str, t.Iterable[Device]], granted: t.Iterable[GrantedDevice] = ()
) -> list[str]:
    """The device files, links included, that a unit may get: the files of all devices of ``resources`` and of the ``granted`` devices."""
    devices = [one for name in resources for one in seen.get(name, ())]
    paths = names_of(devices)
    paths += [key for one in granted for key in one.keys if key.startswith("/dev/")]
    return list(dict.fromkeys(paths))


def names_of(devices: t.Collection[Device]) -> list[str]:
    """The paths in /dev of devices: first the ids that are paths and may be links, then the device files."""
    return list(dict.fromkeys([*(one.id for one in devices if one.id.startswith("/dev/")), *files_of(devices)]))


def files_of(devices: t.Iterable[Device]) -> list[str]:
    """The device files of devices, with the control file that all users of VFIO need."""
    files = dict.fromkeys(file for one in devices for file in one.files)
    if any(file.startswith(VFIO_FOLDER) for file in files):
        files[VFIO_CONTROL] = None
    return list(files)


def allowed(devices: t.Iterable[Device], numbers: t.Mapping[str, str], bound: t.Collection[str] = ()) -> list[str]:
    """The entries of DeviceAllow= for devices: the numbers of their files, else the paths. ``numbers``: by path, as in char/195:0.

    systemd takes /dev/char/MAJOR:MINOR even if this file does not exist (bpf_devices_allow_list_device in its bpf-devices.c). systemd looks
    up a path whenever the list is set, also at a restart of the unit and at a daemon-reload, and leaves out a missing file. A link without
    a known number is listed as a path: the link still leads to the device when the device's number changes. The file of an IOMMU group that
    Corral binds, or has ``bound``, is listed as a path: the file exists only while the group is bound, and each bind sets the list again.
    """
    codes, linked = dict(numbers), []
    for device in devices:
        is_path = device.id.startswith("/dev/")
        linked.append(device._replace(files=(device.id,)) if is_path else device)
        ways = [device.id, *device.files] if is_path else []
        codes.update((device.id, numbers[path]) for path in ways[::-1] if path in numbers)
        for file in device.files if is_bound(device, bound) else ():
            codes.pop(file, None)
    return [f"{f'/dev/{codes[file]}' if file in codes else file} {ACCESS}" for file in files_of(linked)]


def is_bound(device: Device, bound: t.Collection[str]) -> bool:
    """Whether Corral binds a device to a driver now, or again after a lost binding. ``bound``: the functions that Corral has bound.

    A device whose resource no longer has a ``bind`` is never bound again, so that no later bind would set the unit's list of devices.
    """
    return bool(device.bind) and (bool(device.unbound) or any(part in bound for part in device.functions))


def variable(resource: str) -> str:
    """A resource's name as a part of a variable's name: ``example.com/nic`` → ``EXAMPLE_COM_NIC``."""
    return re.sub(r"[^A-Z0-9]", "_", resource.upper())


def environment(devices: t.Mapping[str, t.Sequence[Device]]) -> dict[str, str]:
    """The environment variables for devices, with commas in each list: ids, PCI functions and device files, by resource."""
    variables = {}
    for resource, held in sorted(devices.items()):
        lists = {
            IDS: [one.id for one in held],
            "PCIDEVICE_": [address for one in held for address in one.functions],
            "CORRAL_FILES_": [file for one in held for file in one.files],
        }
        variables.update(
            {f"{name}{variable(resource)}": ",".join(dict.fromkeys(row)) for name, row in lists.items() if row}
        )
    return variables


def env_text(devices: t.Mapping[str, t.Sequence[Device]]) -> str:
    """The text of an environment file: the variables for devices."""
    return "".join([HEADER, *(f"{name}={value}\n" for name, value in environment(devices).items())])


def given_ids(text: t.Optional[str]) -> frozenset[tuple[str, str]]:
    """The devices that an environment file names: for each device, the variable and the id."""
    rows = (line.partition("=") for line in (text or "").splitlines() if line.startswith(IDS))
    return frozenset((name, one) for name, dummy, ids in rows for one in ids.split(","))


def kept_text(now: t.Optional[str], devices: t.Mapping[str, t.Sequence[Device]]) -> t.Optional[str]:
    """The text of an environment file for those ``devices`` that the present text ``now`` names; ``now`` if no other devices are named."""
    had = given_ids(now)
    names = {resource: f"{IDS}{variable(resource)}" for resource in devices}
    left = {key: [one for one in group if (names[key], one.id) in had] for key, group in devices.items()}
    kept = env_text({key: group for key, group in left.items() if group})
    return now if given_ids(kept) == had else kept


class Held(NamedTuple):
    """The present devices of a grant, by resource. A ``missing`` device is not on the node; its Device is made from the granted keys.

    A key of a missing device is left out if another device has this key by now. ``others`` are the files of devices without this grant.
    """

    devices: t.Mapping[str, list[Device]]
    missing: tuple[GrantedDevice, ...]
    others: frozenset[str]


def held(granted: t.Sequence[GrantedDevice], seen: t.Mapping[str, t.Iterable[Device]]) -> Held:
    """The devices of a grant; ``seen`` are the devices of the node by resource."""
    # The profile may have renamed the resource of a device.
    known = {one.id: one for devices in seen.values() for one in devices}
    missing = tuple(one for one in granted if one.id not in known)
    ids = {one.id for one in granted}
    parts = {key for one in granted for key in filter(is_place, one.keys)}
    # A granted device may have a new id: its place shows that the device is the same.
    strange = [one for one in known.values() if one.id not in ids and parts.isdisjoint(one.keys)]
    others = frozenset(key for one in strange for key in (one.id, *one.keys) if key.startswith("/dev/"))
    taken = frozenset(key for one in missing if any(map(is_place, one.keys)) for key in one.keys if key in others)
    by_resource: dict[str, dict[str, Device]] = {}
    for device in granted:
        by_resource.setdefault(device.resource, {})[device.id] = known.get(device.id) or not_seen(device, taken)
    return Held({resource: list(devices.values()) for resource, devices in by_resource.items()}, missing, others)


def flat(held: t.Mapping[str, t.Sequence[Device]]) -> list[Device]:
    """All devices in ``held``, sorted by resource."""
    return [one for dummy, group in sorted(held.items()) for one in group]


def to_be_made(devices: t.Iterable[Device]) -> list[str]:
    """The files of the IOMMU groups that Corral will bind. The kernel makes such a file at the bind, perhaps with another number."""
    return [file for one in devices if one.unbound and not one.unhealthy for file in one.files]


def not_seen(granted: GrantedDevice, taken: t.Container[str] = ()) -> Device:
    """A Device for a granted device that the node does not have, made from the granted keys without the keys in ``taken``."""
    return Device(
        id=granted.id,
        numa_node=-1,
        unhealthy="gone",
        functions=tuple(key for key in granted.keys if PCI_ADDRESS.fullmatch(key)),
        driver=None,
        interfaces=(),
        files=tuple(key for key in granted.keys if key.startswith("/dev/") and key not in taken),
        keys=frozenset(granted.keys),
        within=frozenset(),
    )


# CDI


def cdi_name(workload: str, container: str = "") -> str:
    """The name of the CDI device for a workload or for a container of a pod; an empty string if the name is too long for CDI.

    No two workloads have the same name: a character that CDI forbids becomes a code (``_2f``), and so does an underscore that looks like
    the start of a code. A name ends in a letter or digit.
    """
    name = f"{workload}:{container}" if container else workload
    name = re.sub(r"[^A-Za-z0-9_.:-]|_(?=[0-9a-f]{2})|[^A-Za-z0-9]$", lambda match: f"_{ord(match.group()):02x}", name)
    return name if NAME.fullmatch(name) else ""


class Spec(NamedTuple):
    """A CDI spec of Corral: its version, and the containerEdits of each device, by the device's name."""

    version: str
    rows: t.Mapping[str, t.Any]


def cdi_file(version: str) -> str:
    """The path of the spec for devices that need ``version``: an engine that does not know this version ignores only this file."""
    return f"{CDI_FOLDER}/corral.node-grant{'' if version == VERSION else f'-{version}'}.json"


def spec_of(text: t.Optional[str]) -> Spec:
    """The spec that a text contains; an empty spec if Corral did not write the text."""
    try:
        data = json.loads(text or "")
        spec = Spec(data["cdiVersion"] + "", {row["name"]: row["containerEdits"] for row in data["devices"]})
        if CDI_FILES.fullmatch(cdi_file(spec.version).rpartition("/")[2]):
            return spec
        raise ValueError(spec.version)
    except (ValueError, TypeError, KeyError, RecursionError):
        return Spec(VERSION, {})


def node_paths(edits_of_one: object) -> set[str]:
    """The device files on the node that containerEdits name."""
    nodes = edits_of_one.get("deviceNodes") if isinstance(edits_of_one, dict) else None
    rows = [row for row in nodes if isinstance(row, dict)] if isinstance(nodes, list) else []
    return {str(row.get("hostPath") or row.get("path")) for row in rows}


def opened(edits_of_one: t.Any) -> set[t.Any]:
    """The device files in a device's containerEdits, and the devices that the environment variables there name (as in given_ids)."""
    told = edits_of_one.get("env") if isinstance(edits_of_one, dict) else None
    return node_paths(edits_of_one) | given_ids("\n".join(map(str, told)) if isinstance(told, list) else None)


def spec_text(version: str, rows: t.Mapping[str, t.Any]) -> str:
    """The JSON text of a spec. ``rows`` are the containerEdits by the device's name."""
    devices = [{"name": name, "containerEdits": edits} for name, edits in sorted(rows.items())]
    return json.dumps({"cdiVersion": version, "kind": KIND, "devices": devices}, indent=2, sort_keys=True) + "\n"


def version_of(devices: t.Iterable[Device]) -> str:
    """The version of a spec with these devices: the newest version of the specs that define the devices, at least VERSION."""
    return max([VERSION, *(one.cdi[0] for one in devices if one.cdi)], key=version_key)


def version_key(version: str) -> tuple[int, ...]:
    """A version as numbers, to compare versions. In the spec of another program the version may be any text."""
    return tuple(int(part) if re.fullmatch("[0-9]{1,9}", part) else 0 for part in version.split("."))


def edits(devices: t.Mapping[str, t.Sequence[Device]]) -> dict[str, t.Any]:
    """The containerEdits for devices: their files and variables, and the edits of the specs that define the devices.

    If a variable has several values, the first value counts, in the order of the resources.
    """
    return {key: rows for key, rows in ((key, distinct(key, rows)) for key, rows in all_edits(devices).items()) if rows}


def all_edits(devices: t.Mapping[str, t.Sequence[Device]]) -> dict[str, list[t.Any]]:
    """The lists of the devices' containerEdits, joined by key."""
    lists: dict[str, list[t.Any]] = {"env": [f"{name}={value}" for name, value in environment(devices).items()]}
    held = [one for dummy, group in sorted(devices.items()) for one in group]
    own = files_of(one for one in held if not one.cdi)
    lists["deviceNodes"] = [{"path": file, "permissions": ACCESS} for file in own]
    for device in held:
        for text in device.cdi[1:]:
            for key, rows in json.loads(text).items():
                if isinstance(rows, list):
                    lists.setdefault(key, []).extend(rows)
    return lists


def hook(path: str, args: t.Sequence[str]) -> dict[str, t.Any]:
    """A CDI hook: the engine runs the program ``path`` when the container's cgroup exists, before the container's first instruction."""
    return {"hookName": "createRuntime", "path": path, "args": list(args)}


def conflicts(devices: t.Mapping[str, t.Sequence[Device]]) -> list[str]:
    """The names of the environment variables for which the devices have different values."""
    values: dict[str, set[str]] = {}
    for row in all_edits(devices)["env"]:
        name, dummy, value = str(row).partition("=")
        values.setdefault(name, set()).add(value)
    return sorted(name for name, several in values.items() if len(several) > 1)


def distinct(key: str, rows: t.Iterable[t.Any]) -> list[t.Any]:
    """The rows of the list ``key`` of containerEdits without repetitions. Of several rows for a variable, only the first row stays."""
    by_name: dict[str, t.Any] = {}
    for row in rows:
        name = row.partition("=")[0] if key == "env" and isinstance(row, str) else json.dumps(row, sort_keys=True)
        by_name.setdefault(name, row)
    return list(by_name.values())
