# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# This module is private to the collection corral.node.
"""The kubelet's state files, read as at the kubelet's start. A refusal has the words of the kubelet.

cpu_manager_state (v1 to v3), memory_manager_state (v1, v2) and kubelet_internal_checkpoint of the device manager;
kubelet 1.36, pkg/kubelet/cm/{cpumanager,memorymanager}/state and pkg/kubelet/cm/devicemanager/checkpoint.
"""

from __future__ import annotations

import typing as t

from ..values.records import NamedTuple
from .go_values import Bytes, CpuSet, Field, GoError, Integer, Map, Slice, String, Struct, checksum, cpu_list, parse

CORRUPTED = "checkpoint is corrupted"
TEXT, INT, UINT64 = String(), Integer("int"), Integer("uint64")
SUM = Field("Checksum", "checksum", Integer("checksum.Checksum"))
RESOURCE = String("v1.ResourceName")

CPU_HEAD = (Field("PolicyName", "policyName", TEXT), Field("DefaultCPUSet", "defaultCpuSet", TEXT))
CPU_V1 = (*CPU_HEAD, Field("Entries", "entries", Map("map[string]string", TEXT), made=True), SUM)
OF_PODS = Field("Entries", "entries", Map("map[string]map[string]string", Map("map[string]string", TEXT)), made=True)
CPU_V2 = (*CPU_HEAD, OF_PODS, SUM)
POD_CPUS = Struct("state.PodCPUAssignment", [Field("CPUSet", "cpuSet", CpuSet())])
CPU_V3 = (
    *CPU_HEAD,
    OF_PODS,
    Field("PodEntries", "podEntries", Map("state.PodCPUAssignments", POD_CPUS), made=True),
    SUM,
)

TABLE = Struct(
    "state.MemoryTable",
    [
        Field("TotalMemSize", "total", UINT64),
        Field("SystemReserved", "systemReserved", UINT64),
        Field("Allocatable", "allocatable", UINT64),
        Field("Reserved", "reserved", UINT64),
        Field("Free", "free", UINT64),
    ],
    pointer=True,
)
INTS = Slice("[]int", INT)
NODE = Struct(
    "state.NUMANodeState",
    [
        Field("NumberOfAssignments", "numberOfAssignments", INT),
        Field("MemoryMap", "memoryMap", Map("map[v1.ResourceName]*state.MemoryTable", TABLE)),
        Field("Cells", "cells", INTS),
    ],
    pointer=True,
)
BLOCK = Struct(
    "state.Block", [Field("NUMAAffinity", "numaAffinity", INTS), Field("Type", "type", RESOURCE), Field("Size", "size", UINT64)]
)  # fmt: skip
BLOCKS = Slice("[]state.Block", BLOCK)
MEMORY_HEAD = (
    Field("PolicyName", "policyName", TEXT),
    Field("MachineState", "machineState", Map("state.NUMANodeMap", NODE, numbered=True), made=True),
    Field(
        "Entries",
        "entries",
        Map("state.ContainerMemoryAssignments", Map("map[string][]state.Block", BLOCKS)),
        made=True,
    ),
)
MEMORY_V1 = (*MEMORY_HEAD, SUM)
POD_MEMORY = Struct("state.PodMemoryAssignment", [Field("MemoryBlocks", "memoryBlocks", BLOCKS)])
MEMORY_V2 = (
    *MEMORY_HEAD,
    Field("PodEntries", "podEntries", Map("state.PodMemoryAssignments", POD_MEMORY), made=True),
    SUM,
)

IDS = Slice("[]string", TEXT)
DEVICE_HEAD = (
    Field("PodUID", "PodUID", TEXT),
    Field("ContainerName", "ContainerName", TEXT),
    Field("ResourceName", "ResourceName", TEXT),
)
RESPONSE = Field("AllocResp", "AllocResp", Bytes())
BY_NODE = Field("DeviceIDs", "DeviceIDs", Map("checkpoint.DevicesPerNUMA", IDS, numbered=True))
REGISTERED = Field("RegisteredDevices", "RegisteredDevices", Map("map[string][]string", IDS), made=True)


def device_data(ids: Field, entry: str, name: str) -> Struct:
    """The struct of a device checkpoint whose entries have the field ``ids``."""
    row = Struct(entry, [*DEVICE_HEAD, ids, RESPONSE])
    return Struct(
        name, [Field("PodDeviceEntries", "PodDeviceEntries", Slice(f"[]{entry}", row), made=True), REGISTERED]
    )


DEVICES = device_data(BY_NODE, "checkpoint.PodDevicesEntry", "checkpoint.checkpointData")
# Until 1.19 a container's devices were one list; Corral cannot verify the checksum of this form.
OLD_DEVICES = device_data(Field("DeviceIDs", "DeviceIDs", IDS), "checkpoint.PodDevicesEntryV1", "checkpoint.checkpointDataV1")  # fmt: skip


class Version(NamedTuple):
    """A form of a state file: its name, the struct's name in errors, and the fields.

    ``zero_passes``: the kubelet accepts a checksum of 0 without a check.
    """

    name: str
    struct: str
    fields: tuple[Field, ...]
    zero_passes: bool


class Kind(NamedTuple):
    """A state file: its name, its manager, the struct's name in the hashed text, and the file's versions, the newest first.

    The kubelet reads the first version only with the feature gate PodLevelResourceManagers.
    """

    file: str
    manager: str
    hashed: str
    versions: tuple[Version, ...]


CPU = Kind(
    "cpu_manager_state",
    "CPU manager",
    "*state.CPUManagerCheckpoint",
    (
        Version("v3", "CPUManagerCheckpoint", CPU_V3, zero_passes=False),
        Version("v2", "CPUManagerCheckpointV2", CPU_V2, zero_passes=True),
        Version("v1", "CPUManagerCheckpointV1", CPU_V1, zero_passes=True),
    ),
)
MEMORY = Kind(
    "memory_manager_state",
    "memory manager",
    "*state.MemoryManagerCheckpoint",
    (
        Version("v2", "MemoryManagerCheckpoint", MEMORY_V2, zero_passes=False),
        Version("v1", "MemoryManagerCheckpointV1", MEMORY_V1, zero_passes=False),
    ),
)
DEVICE_FILE = "device-plugins/kubelet_internal_checkpoint"


class StateFile(NamedTuple):
    """The result of reading a file: its version (empty: no version fits), its values by Go's names, the refusal (empty: accepted)."""

    version: str
    values: t.Mapping[str, t.Any]
    refusal: str = ""


def hashed(kind: Kind, version: Version, values: t.Mapping[str, t.Any]) -> str:
    """The text whose FNV-1a hash is the file's checksum."""
    struct = Struct(kind.hashed, version.fields)
    return f"({kind.hashed}){struct.text({**values, 'Checksum': 0})}"


def read(kind: Kind, text: str, *, pod_level: bool = False) -> StateFile:
    """A file of the CPU or memory manager, read as the first version that fits. ``pod_level``: the gate PodLevelResourceManagers.

    The refusal is the error of the version tried last, as in the kubelet. The error names neither the file's path nor what to do.
    """
    refusal = ""
    for version in kind.versions if pod_level else kind.versions[1:]:
        try:
            data = document(text)
            struct = Struct(kind.hashed, version.fields)
            values = struct.decode(data, version.struct) if isinstance(data, dict) else None
            if values is None:
                raise GoError(f"json: cannot unmarshal {name_of(data)} into Go value of type state.{version.struct}")
        except GoError as error:
            refusal = str(error)
            continue
        own = values["Checksum"]
        if (own == 0 and version.zero_passes) or own == checksum(hashed(kind, version, values)):
            return StateFile(version.name, values)
        refusal = CORRUPTED
    return StateFile("", {}, refusal)


def document(text: str) -> t.Any:
    """The data of a file; an empty dict for null, since Go leaves the struct empty then. Raises GoError."""
    data = parse(text)
    return {} if data is None else data


def name_of(data: object) -> str:
    """The kind of a JSON value, as encoding/json names it."""
    return {bool: "bool", str: "string", list: "array"}.get(type(data), "number")


def advice(kind: Kind, path: str, refusal: str) -> str:
    """A refusal as the kubelet logs it, with the path of the file."""
    return (
        f"could not restore state from checkpoint: {refusal}, please drain this node and delete the {kind.manager} "
        f'checkpoint file "{path}" before restarting Kubelet'
    )


class CpuState(NamedTuple):
    """Assignments of the CPU manager: the policy, the shared CPUs, exclusive CPUs of containers (by pod's UID) and of whole pods."""

    policy: str
    default: frozenset[int]
    containers: t.Mapping[str, t.Mapping[str, frozenset[int]]]
    pods: t.Mapping[str, frozenset[int]]


class StateRefused(ValueError):
    """The kubelet refuses a state file; the text is its reason."""


def restore_cpus(
    text: str, policy: str, *, pod_level: bool = False, containers: t.Optional[t.Mapping[str, tuple[str, str]]] = None
) -> CpuState:
    """The state that the CPU manager restores from its file's text (empty: no file) at the kubelet's start. Raises StateRefused.

    ``containers`` has the pod and the name of each container id that the runtime knows: files of v1 have only the ids.
    """
    if not text:
        return CpuState(policy, frozenset(), {}, {})
    found = read(CPU, text, pod_level=pod_level)
    if found.refusal:
        raise StateRefused(found.refusal)
    own = found.values["PolicyName"]
    if own != policy:
        raise StateRefused(f'configured policy "{policy}" differs from state checkpoint policy "{own}"')
    return cpu_state(found, containers or {})


def cpu_state(found: StateFile, containers: t.Mapping[str, tuple[str, str]]) -> CpuState:
    """The assignments in a file of the CPU manager. Raises StateRefused for an invalid list or an unknown container."""
    default_text = found.values["DefaultCPUSet"]
    try:
        default = cpu_list(default_text)
    except GoError as error:
        raise StateRefused(f'could not parse default cpu set "{default_text}": {error}') from None
    entries: dict[str, dict[str, str]] = {}
    if found.version == "v1":
        for container_id, cpus in (found.values["Entries"] or {}).items():
            if container_id not in containers:
                raise StateRefused(f"container {container_id} of a file of version 1 is not known to the runtime")
            pod, name = containers[container_id]
            entries.setdefault(pod, {})[name] = cpus
    else:
        entries = {pod: dict(of or {}) for pod, of in (found.values["Entries"] or {}).items()}
    assigned: dict[str, dict[str, frozenset[int]]] = {}
    for pod, of in entries.items():
        for name, cpus in of.items():
            try:
                assigned.setdefault(pod, {})[name] = cpu_list(cpus)
            except GoError as error:
                raise StateRefused(
                    f'could not parse cpuset "{cpus}" for container "{name}" in pod "{pod}": {error}'
                ) from None
    pods = {pod: of["CPUSet"] for pod, of in (found.values.get("PodEntries") or {}).items()}
    return CpuState(found.values["PolicyName"], default, assigned, pods)


class MemoryState(NamedTuple):
    """Assignments of the memory manager: the policy, each NUMA node's tables, blocks of containers (by pod's UID) and of whole pods.

    A table has total, systemReserved, allocatable, reserved and free in bytes, under Go's names.
    """

    policy: str
    nodes: t.Mapping[int, t.Mapping[str, t.Any]]
    containers: t.Mapping[str, t.Mapping[str, t.Sequence[t.Mapping[str, t.Any]]]]
    pods: t.Mapping[str, t.Mapping[str, t.Any]]


def restore_memory(text: str, policy: str, *, pod_level: bool = False) -> MemoryState:
    """The state that the memory manager restores from its file's text (empty: no file) at the kubelet's start. Raises StateRefused."""
    if not text:
        return MemoryState(policy, {}, {}, {})
    found = read(MEMORY, text, pod_level=pod_level)
    if found.refusal:
        raise StateRefused(found.refusal)
    own = found.values["PolicyName"]
    if own != policy:
        raise StateRefused(f'configured policy "{policy}" differs from state checkpoint policy "{own}"')
    return memory_state(found)


def memory_state(found: StateFile) -> MemoryState:
    """The assignments in a file of the memory manager."""
    values = found.values
    return MemoryState(
        values["PolicyName"],
        {node: of for node, of in (values["MachineState"] or {}).items() if of is not None},
        {pod: of or {} for pod, of in (values["Entries"] or {}).items()},
        values.get("PodEntries") or {},
    )


class DeviceEntry(NamedTuple):
    """A container's devices of one resource, by NUMA node (-1: unknown), and the serialized response of the device plugin."""

    pod: str
    container: str
    resource: str
    devices: t.Mapping[int, tuple[str, ...]]
    response: bytes


VERIFIED, WRONG, UNVERIFIABLE = "verified", "wrong", "unverifiable"


class DeviceState(NamedTuple):
    """Assignments of the device manager. ``checksum`` is verified, wrong, or unverifiable for the form of 1.19 and older."""

    entries: tuple[DeviceEntry, ...]
    registered: t.Mapping[str, tuple[str, ...]]
    checksum: str


def read_devices(text: str) -> DeviceState:
    """The data of kubelet_internal_checkpoint, in the present form or the form of 1.19. Raises GoError for any other text."""
    data = document(text)
    if not isinstance(data, dict):
        raise GoError(f"json: cannot unmarshal {name_of(data)} into Go value of type checkpoint.Data")
    outer = {key.lower(): value for key, value in data.items()}
    inner, own = outer.get("data"), Integer("checksum.Checksum").decode(outer.get("checksum"), "Data.Checksum")
    if inner is None:
        inner = {}
    if not isinstance(inner, dict):
        raise DEVICES.refuse(inner, "Data.Data")
    try:
        values = DEVICES.decode(inner, "checkpointData")
        found = checksum(f"({DEVICES.name}){DEVICES.text(values)}")
        verdict = VERIFIED if found == own else WRONG
    except GoError:
        values, verdict = OLD_DEVICES.decode(inner, "checkpointDataV1"), UNVERIFIABLE
    values = values or {}
    entries = tuple(device_entry(row) for row in values.get("PodDeviceEntries") or ())
    registered = {name: tuple(ids or ()) for name, ids in (values.get("RegisteredDevices") or {}).items()}
    return DeviceState(entries, registered, verdict)


def device_entry(row: t.Mapping[str, t.Any]) -> DeviceEntry:
    """A container's devices of a resource by NUMA node. The node is -1 for a plain list, which names no node."""
    ids = row["DeviceIDs"]
    by_node = {-1: tuple(ids)} if isinstance(ids, list) else {node: tuple(of or ()) for node, of in (ids or {}).items()}
    return DeviceEntry(row["PodUID"], row["ContainerName"], row["ResourceName"], by_node, row["AllocResp"] or b"")
