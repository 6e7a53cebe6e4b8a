# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# This module is private to the collection corral.node.
"""One inspection of a node's kubelet: its configuration in force, whether it would accept its state files, and which CPUs its pods have.

It reads, and never writes: what is in the state files is the kubelet's.
"""

from __future__ import annotations

import typing as t

from ..host import kubelet_node
from ..host.discovery import sysfs
from ..host.files import Host
from ..model.cpu import allocation
from ..model.cpu.cpu_options import NAMES, Options
from ..model.kubelet import kubelet_config, pod_findings, start_checks, state_files
from ..model.kubelet.go_values import GoError
from ..model.kubelet.kubelet_config import Config
from ..model.kubelet.pod_findings import Finding
from ..model.kubelet.start_checks import CpuSettings
from ..model.kubelet.state_files import CPU, MEMORY, CpuState, DeviceState, MemoryState, Refused
from ..model.topology import cpu_topology
from ..model.topology.topology import Topology
from ..model.values import cpuset, quantity
from ..model.values.errors import refusal
from ..model.values.records import NamedTuple
from ..model.values.sizes import page_text

GATE = "PodLevelResourceManagers"
TRUE = ("1", "t", "T", "TRUE", "true", "True")


class File(NamedTuple):
    """A state file: its path, whether it is there, its version or the state of its checksum, and why the kubelet would
    not start with it ("": it would)."""

    path: str
    exists: bool
    version: str = ""
    refusal: str = ""


class Inspection(NamedTuple):
    """What is known of a node's kubelet."""

    pid: t.Optional[int]
    began: t.Optional[float]
    config: Config
    newer: tuple[str, ...]
    files: tuple[File, ...]
    cpus: t.Optional[CpuState]
    memory: t.Optional[MemoryState]
    devices: t.Optional[DeviceState]
    findings: tuple[Finding, ...]

    @property
    def refusals(self) -> tuple[File, ...]:
        """The files that the kubelet would not start with."""
        return tuple(one for one in self.files if one.refusal)


def inspect(host: Host) -> Inspection:
    """Look at the node's kubelet. Raises CorralError where there is none, and for one that is part of another program."""
    process = kubelet_node.process(host)
    places = kubelet_node.files(process)
    if process is None and not host.is_dir(places.root_dir):
        raise refusal(
            "no kubelet runs here and there is no folder of one: is this a Kubernetes node?", path=places.root_dir
        )
    layers, wrong = kubelet_node.layers(host, places) if process or host.exists(places.config) else ([], [])
    flag_layers, unread = kubelet_config.flag_layers(places.flags)
    config = kubelet_config.effective(layers, flag_layers)
    config = config._replace(problems=(*wrong, *unread, *config.problems))
    topology = sysfs.discover(host, with_devices=False)
    cpu_file, cpus = inspect_cpus(host, places.root_dir, config, topology)
    memory_file, memory = inspect_memory(host, places.root_dir, config, topology)
    device_file, devices = inspect_devices(host, places.root_dir)
    containers = kubelet_node.containers(host)
    present = {one.pod for one in containers} | kubelet_node.pod_folders(host, places.root_dir)
    exclusive = pod_findings.exclusive_of(cpus) if cpus else {}
    of_devices = [one.pod for one in devices.entries] if devices else []
    assigned = [*exclusive, *(memory.containers if memory else ()), *of_devices]
    everybody = frozenset().union(*exclusive.values())
    findings = [
        *pod_findings.of_stopped(process is not None, containers),
        *pod_findings.leaked(assigned, present, exclusive),
        *(pod_findings.of_containers(cpus, containers) if cpus else ()),
        *(pod_findings.of_host(kubelet_node.others_on(host, everybody)) if everybody else ()),
    ]
    began = process.began if process else None
    newer = [one.origin for one in layers if began and (host.modified(one.origin) or 0) > began]
    return Inspection(
        process.pid if process else None, began, config, tuple(newer), (cpu_file, memory_file, device_file), cpus, memory,
        devices, tuple(findings),
    )  # fmt: skip


def gate(config: Config) -> bool:
    """Whether state files have pods of their own (alpha)."""
    return config.get("featureGates", GATE) is True


def option(config: Config, name: str) -> bool:
    """Whether an option of the CPU manager's policy is set: a Go bool, as text."""
    return str(config.get("cpuManagerPolicyOptions", name)) in TRUE


def settings_of(config: Config, topology: Topology) -> CpuSettings:
    """What the CPU manager goes by. Without reservedSystemCPUs it chooses as many as are reserved in all."""
    policy = str(config.get("cpuManagerPolicy"))
    strict = option(config, "strict-cpu-reservation")
    listed = config.get("reservedSystemCPUs")
    if listed:
        try:
            return CpuSettings(policy, topology.online, cpuset.parse(str(listed)), strict)
        except ValueError as error:
            raise Refused(f"reservedSystemCPUs: {error}") from None
    milli = sum(milli_cpus(config.get(key, "cpu")) for key in ("kubeReserved", "systemReserved"))
    options = Options(**{field: option(config, name) for name, field in NAMES.items()})
    try:
        # The kubelet chooses them without asking for whole cores.
        chosen = options._replace(full_pcpus_only=False)
        reserved = allocation.take(cpu_topology.of(topology), topology.online, -(-milli // 1000), chosen)
    except ValueError as error:
        raise Refused(str(error)) from None
    return CpuSettings(policy, topology.online, reserved, strict)


def milli_cpus(amount: object) -> int:
    """Thousandths of a CPU of a quantity; 0 where there is none."""
    try:
        return quantity.parse(str(amount)).milli() if amount not in (None, "") else 0
    except ValueError:
        return 0


def inspect_cpus(host: Host, root_dir: str, config: Config, topology: Topology) -> tuple[File, t.Optional[CpuState]]:
    """The CPU manager's file. What was read of one that is refused counts for the findings all the same."""
    path, text = f"{root_dir}/{CPU.file}", host.read(f"{root_dir}/{CPU.file}")
    found = unread(host, path, text)
    if found is not None or not text:
        return found or File(path, exists=text is not None), None
    read = state_files.read(CPU, text, pod_level=gate(config))
    file = File(path, exists=True, version=read.version)
    state = None
    try:
        if not read.refusal:
            state = state_files.cpu_state(read, {})
        restored = state_files.restore_cpus(text, str(config.get("cpuManagerPolicy")), pod_level=gate(config))
    except Refused as error:
        return file._replace(refusal=state_files.advice(CPU, path, str(error))), state
    try:
        start_checks.check_cpus(restored, settings_of(config, topology))
    except Refused as error:
        return file._replace(refusal=str(error)), state
    return file, state


def inspect_memory(
    host: Host, root_dir: str, config: Config, topology: Topology
) -> tuple[File, t.Optional[MemoryState]]:
    """The memory manager's file."""
    path, text = f"{root_dir}/{MEMORY.file}", host.read(f"{root_dir}/{MEMORY.file}")
    found = unread(host, path, text)
    if found is not None or not text:
        return found or File(path, exists=text is not None), None
    read = state_files.read(MEMORY, text, pod_level=gate(config))
    file = File(path, exists=True, version=read.version)
    if read.refusal:
        return file._replace(refusal=state_files.advice(MEMORY, path, read.refusal)), None
    state = state_files.memory_state(read)
    policy = str(config.get("memoryManagerPolicy"))
    try:
        restored = state_files.restore_memory(text, policy, pod_level=gate(config))
    except Refused as error:
        return file._replace(refusal=state_files.advice(MEMORY, path, str(error))), state
    try:
        start_checks.check_memory(restored, policy, totals(topology), reserved_memory(config))
    except Refused as error:
        return file._replace(refusal=str(error)), state
    return file, state


def unread(host: Host, path: str, text: t.Optional[str]) -> t.Optional[File]:
    """The file where it is there and cannot be read."""
    if text is not None or host.errors.get(path, 2) == 2:
        return None
    return File(path, exists=True, refusal=f"cannot be read: {host.why(path)}")


def totals(topology: Topology) -> dict[int, dict[str, int]]:
    """Bytes of each NUMA node by kind, as the kubelet counts them."""
    found = {}
    for node, one in topology.numa.items():
        pages = {f"hugepages-{page_text(size)}": (size << 10) * count for size, count in one.hugepages.items()}
        found[node] = {**pages, start_checks.MEMORY: (one.memory_kib or 0) << 10}
    return found


def reserved_memory(config: Config) -> dict[int, dict[str, int]]:
    """reservedMemory, in bytes by NUMA node and kind. Raises Refused for what is none."""
    found: dict[int, dict[str, int]] = {}
    rows = config.get("reservedMemory") or ()
    try:
        for row in rows:
            kinds = {kind: quantity.parse(str(size)).value() for kind, size in row["limits"].items()}
            found.setdefault(int(row["numaNode"]), {}).update(kinds)
    except (ValueError, LookupError, TypeError, AttributeError) as error:
        raise Refused(f"reservedMemory: {error}") from None
    return found


def inspect_devices(host: Host, root_dir: str) -> tuple[File, t.Optional[DeviceState]]:
    """The device manager's file. A wrong checksum makes the kubelet begin without it; it starts all the same."""
    path = f"{root_dir}/{state_files.DEVICE_FILE}"
    text = host.read(path)
    found = unread(host, path, text)
    if found is not None or not text:
        return found or File(path, exists=text is not None), None
    try:
        state = state_files.read_devices(text)
    except GoError as error:
        return File(path, exists=True, refusal=str(error)), None
    return File(path, exists=True, version=f"checksum {state.checksum}"), state
