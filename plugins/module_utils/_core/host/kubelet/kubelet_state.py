# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# This module is private to the collection corral.node.
"""The state files of a node's kubelet: their content, and whether a kubelet with a configuration would start with these files."""

from __future__ import annotations

import typing as t

from ...model.cpu import allocation
from ...model.cpu.cpu_options import NAMES, Options
from ...model.kubelet import config_values, start_checks, state_files
from ...model.kubelet.go_values import GoError
from ...model.kubelet.inspected import StateFile
from ...model.kubelet.kubelet_config import Config, effective, flag_layers
from ...model.kubelet.start_checks import Amounts, CpuSettings
from ...model.kubelet.state_files import CPU, MEMORY, CpuState, DeviceState, MemoryState, StateRefused
from ...model.topology import cpu_topology
from ...model.topology.topology import Topology
from ...model.values import cpuset, quantity
from ...model.values.sizes import page_text
from ..files import Host
from . import kubelet_node, kubelet_unit

GATE = "PodLevelResourceManagers"


def cpu_file(root_dir: str) -> str:
    """The state file of the CPU manager."""
    return f"{root_dir}/{CPU.file}"


def way_to_read(host: Host, newer: t.Iterable[str], topology: Topology) -> str:
    """The commands that make a kubelet read the ``newer`` files, also if its state files or its unit would keep it from starting.

    A file that was written while the clock was ahead stays newer than any start of the kubelet: ``touch`` corrects the file's time.
    """
    places = kubelet_node.files(host, kubelet_node.of_unit(host))
    config = effective(kubelet_node.layers(host, places)[0], flag_layers(places.flags)[0])
    files = (
        inspect_cpus(host, places.root_dir, config, topology)[0],
        inspect_memory(host, places.root_dir, config, totals(topology))[0],
    )
    refused = " ".join(one.path for one in files if one.refusal)
    stuck = kubelet_unit.cannot_start(host)
    ahead = " ".join(path for path in newer if (host.changed(path) or 0) > host.now() + kubelet_node.SLACK)
    steps = (
        f"{kubelet_unit.UNIT} {stuck}; " if stuck else "",
        f"touch {ahead} (its time is in the future), " if ahead else "",
        f"drain the node, then systemctl stop {kubelet_unit.UNIT}, rm {refused}, systemctl start {kubelet_unit.UNIT}"
        if refused
        else f"systemctl restart {kubelet_unit.UNIT}",
    )
    return "then ".join(filter(None, steps))


def gate(config: Config) -> bool:
    """Whether state files may have entries for whole pods (a feature gate, alpha)."""
    return config.get("featureGates", GATE) is True


def option(config: Config, name: str) -> bool:
    """Whether an option of the CPU manager's policy is on; its value is a Go bool as text."""
    return config_values.is_on(config.get("cpuManagerPolicyOptions", name))


def settings_of(config: Config, topology: Topology) -> CpuSettings:
    """The CPU manager's settings. Only the policy static reserves CPUs: reservedSystemCPUs, else CPUs that are chosen as in the kubelet."""
    policy = str(config.get("cpuManagerPolicy"))
    if policy != start_checks.STATIC_CPU:
        return CpuSettings(policy, topology.online, cpuset.EMPTY)
    strict = option(config, "strict-cpu-reservation")
    listed = config.get("reservedSystemCPUs")
    if listed:
        try:
            return CpuSettings(policy, topology.online, cpuset.parse(str(listed)), strict)
        except ValueError as error:
            raise StateRefused(f"reservedSystemCPUs: {error}") from None
    milli = sum(config_values.milli(config.get(key, "cpu")) for key in ("kubeReserved", "systemReserved"))
    options = Options(**{field: option(config, name) for name, field in NAMES.items()})
    try:
        # Like the kubelet, this call ignores full-pcpus-only when it chooses reserved CPUs.
        chosen = options._replace(full_pcpus_only=False)
        reserved = allocation.take(cpu_topology.of(topology), topology.online, -(-milli // 1000), chosen)
    except ValueError as error:
        raise StateRefused(str(error)) from None
    return CpuSettings(policy, topology.online, reserved, strict)


def inspect_cpus(
    host: Host, root_dir: str, config: Config, topology: Topology
) -> tuple[StateFile, t.Optional[CpuState]]:
    """The CPU manager's file and its state (None: not readable). The findings use the state of a refused file too."""
    path = cpu_file(root_dir)
    text = host.read(path)
    if text is None:
        return unread(host, path), None
    read = state_files.read(CPU, text, pod_level=gate(config))
    file = StateFile(path, exists=True, version=read.version)
    if read.refusal:
        return file._replace(refusal=state_files.advice(CPU, path, read.refusal)), None
    state = None
    try:
        state = state_files.cpu_state(read, {})
        restored = state_files.restore_cpus(text, str(config.get("cpuManagerPolicy")), pod_level=gate(config))
    except StateRefused as error:
        return file._replace(refusal=state_files.advice(CPU, path, str(error))), state
    try:
        start_checks.check_cpus(restored, settings_of(config, topology))
    except StateRefused as error:
        return file._replace(refusal=str(error)), state
    return file, state


def inspect_memory(
    host: Host, root_dir: str, config: Config, numa: Amounts
) -> tuple[StateFile, t.Optional[MemoryState]]:
    """The memory manager's file and its state (None: not readable). ``numa``: the machine's bytes by NUMA node and kind."""
    path = f"{root_dir}/{MEMORY.file}"
    text = host.read(path)
    if text is None:
        return unread(host, path), None
    read = state_files.read(MEMORY, text, pod_level=gate(config))
    file = StateFile(path, exists=True, version=read.version)
    if read.refusal:
        return file._replace(refusal=state_files.advice(MEMORY, path, read.refusal)), None
    state = state_files.memory_state(read)
    policy = str(config.get("memoryManagerPolicy"))
    try:
        restored = state_files.restore_memory(text, policy, pod_level=gate(config))
    except StateRefused as error:
        return file._replace(refusal=state_files.advice(MEMORY, path, str(error))), state
    try:
        reserved = reserved_memory(config) if policy == start_checks.STATIC_MEMORY else {}
        start_checks.check_memory(restored, policy, numa, reserved)
    except StateRefused as error:
        return file._replace(refusal=str(error)), state
    return file, state


def unread(host: Host, path: str) -> StateFile:
    """The StateFile for a path from which nothing could be read: the path is absent, or no file."""
    if not host.exists(path):
        return StateFile(path, exists=False)
    return StateFile(path, exists=True, refusal=f"cannot be read: {kubelet_node.why_none(host, path)}")


def counts_hugepages(host: Host) -> bool:
    """Whether the running kubelet gives hugepages to pods by NUMA node: such a kubelet starts only with the hugepages of its state file."""
    running = kubelet_node.of_unit(host)
    if running is None:
        return False
    text = host.read(f"{kubelet_node.files(host, running).root_dir}/{MEMORY.file}") or ""
    return state_files.read(MEMORY, text, pod_level=True).values.get("PolicyName") == start_checks.STATIC_MEMORY


def counted(host: Host) -> tuple[str, dict[int, dict[str, int]]]:
    """The path of the memory manager's file, and the bytes by NUMA node and kind that the kubelet needs at its start. Both are empty
    without an installed or running kubelet that gives hugepages to pods by NUMA node.
    """
    running = kubelet_node.of_unit(host)
    if running is None and not kubelet_unit.is_installed(host):
        return "", {}
    path = f"{kubelet_node.files(host, running).root_dir}/{MEMORY.file}"
    read = state_files.read(MEMORY, host.read(path) or "", pod_level=True)
    if read.values.get("PolicyName") != start_checks.STATIC_MEMORY:
        return "", {}
    nodes = state_files.memory_state(read).nodes
    return path, {
        node: {kind: table["TotalMemSize"] for kind, table in (one["MemoryMap"] or {}).items() if table}
        for node, one in nodes.items()
    }


def totals(topology: Topology) -> dict[int, dict[str, int]]:
    """The bytes of each NUMA node by kind (memory, hugepages-SIZE), as the kubelet counts them."""
    found = {}
    for node, one in topology.numa.items():
        pages = {f"hugepages-{page_text(size)}": (size << 10) * count for size, count in one.hugepages.items()}
        found[node] = {**pages, start_checks.MEMORY: (one.memory_kib or 0) << 10}
    return found


def reserved_memory(config: Config) -> dict[int, dict[str, int]]:
    """The value of reservedMemory, in bytes by NUMA node and kind. Raises StateRefused for an invalid value."""
    found: dict[int, dict[str, int]] = {}
    rows = config.get("reservedMemory") or ()
    try:
        for row in rows:
            kinds = {kind: quantity.parse(str(size)).value() for kind, size in row["limits"].items()}
            found.setdefault(int(row["numaNode"]), {}).update(kinds)
    except (ValueError, LookupError, TypeError, AttributeError) as error:
        raise StateRefused(f"reservedMemory: {error}") from None
    return found


def inspect_devices(host: Host, root_dir: str) -> tuple[StateFile, t.Optional[DeviceState]]:
    """The device manager's file and its state. If the checksum is wrong, the kubelet starts without the file."""
    path = f"{root_dir}/{state_files.DEVICE_FILE}"
    text = host.read(path)
    if text is None:
        return unread(host, path), None
    if not text:
        return StateFile(path, exists=True), None
    try:
        state = state_files.read_devices(text)
    except GoError as error:
        return StateFile(path, exists=True, refusal=str(error)), None
    return StateFile(path, exists=True, version=f"checksum {state.checksum}"), state
