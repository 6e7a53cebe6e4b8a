# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What a node's machine is, as QEMU's command line."""

from __future__ import annotations

import json
import pathlib
import typing as t

import lab_base
from lab_base import LabError

FOLDER = lab_base.HERE / "topologies"
DEFAULT = "two-nodes-smt"
# Nehalem has SMT, an L3 per socket and, with pdpe1gb, pages of 1 GiB; without AVX an SSH handshake stays quick.
# Without cmpxchg16b: emulated, it now and then leaves wrong flags when an interrupt comes, and the kernel panics in its
# allocator (Debian 13, QEMU 7.2: double fault in __kmalloc_cache_noprof, EFLAGS with the half of a pointer).
CPU = "Nehalem,+pdpe1gb,-cx16"
KERNEL_ARGUMENTS = (
    "root=/dev/vda rw console=ttyS0 mitigations=off nokaslr audit=0 apparmor=0 "
    "systemd.show_status=0 cryptomgr.notests net.ifnames=0 loglevel=5"  # an emulated serial port is slow
)
# The control group hierarchies. Debian 13's kernel has no cpuset in the legacy one.
HIERARCHIES = {"v2": "", "v1": " systemd.unified_cgroup_hierarchy=0 systemd.legacy_systemd_cgroup_controller"}


class Node(t.NamedTuple):
    """A NUMA node of the machine."""

    cpus: str
    memory_mib: int


class Device(t.NamedTuple):
    """A PCI device of the machine: its NUMA node, and what it is to QEMU."""

    node: int
    model: str = "virtio-rng-pci"


class Topology(t.NamedTuple):
    """What a topology file says: sockets × cores × threads, NUMA nodes, distances, PCI devices on nodes, and whether an IOMMU is
    before these.
    """

    name: str
    description: str
    sockets: int
    cores: int
    threads: int
    nodes: tuple[Node, ...]
    distances: tuple[tuple[int, ...], ...]
    devices: tuple[Device, ...]
    iommu: bool

    @property
    def cpus(self) -> int:
        return self.sockets * self.cores * self.threads

    @property
    def memory_mib(self) -> int:
        return sum(node.memory_mib for node in self.nodes)


def names() -> list[str]:
    """The topologies there are."""
    return sorted(path.stem for path in FOLDER.glob("*.json"))


def load(name: str) -> Topology:
    """A topology by its name."""
    if name not in names():
        raise LabError(f"{name}: no such topology: there are {', '.join(names())}")
    data = json.loads((FOLDER / f"{name}.json").read_text())
    return Topology(
        name,
        data["description"],
        data["sockets"],
        data["cores"],
        data["threads"],
        tuple(Node(node["cpus"], node["memory_mib"]) for node in data["nodes"]),
        tuple(tuple(row) for row in data["distances"]),
        tuple(Device(**device) for device in data["devices"]),
        data.get("iommu", False),
    )


def host_cpu() -> str:
    """The host's own CPU for KVM. An AMD one shows its guests' threads only by topoext, which QEMU never turns on itself."""
    amd = "AuthenticAMD" in pathlib.Path("/proc/cpuinfo").read_text()
    return "host,+topoext" if amd else "host"


def host_cpu_marks() -> str:
    """What tells this host's CPU from another's: a cache may be shared by several hosts."""
    lines = pathlib.Path("/proc/cpuinfo").read_text().splitlines()
    return "\n".join(next((line for line in lines if line.startswith(key)), "") for key in ("model name", "flags"))


def command(
    topology: Topology,
    *,
    qemu: t.Sequence[str],
    accelerator: str,
    cgroup: str = "v2",
    kernel: pathlib.Path,
    initrd: pathlib.Path,
    overlay: pathlib.Path,
    compiled: pathlib.Path,
    folder: pathlib.Path,
    port: int,
) -> list[str]:
    """QEMU's command line, which begins with the words ``qemu``.

    A saved state fits only the very same one: nothing but the files and ``port`` may vary.
    """
    # fmt: off
    words = [
        *qemu, "-machine", "q35", "-nodefaults", "-no-user-config", "-display", "none",
        "-accel", accelerator,
        "-cpu", host_cpu() if accelerator.startswith("kvm") else CPU,
        "-m", str(topology.memory_mib),
        "-smp", f"{topology.cpus},sockets={topology.sockets},cores={topology.cores},threads={topology.threads}",
    ]
    for index, node in enumerate(topology.nodes):
        words += ["-object", f"memory-backend-ram,id=ram{index},size={node.memory_mib}M",
                  "-numa", f"node,nodeid={index},cpus={node.cpus},memdev=ram{index}"]
    for source, row in enumerate(topology.distances):
        words += [word for target, value in enumerate(row) if source < target
                  for word in ("-numa", f"dist,src={source},dst={target},val={value}")]
    words += ["-device", "intel-iommu,intremap=off"] if topology.iommu else []  # before all that it is for
    for index, device in enumerate(topology.devices):
        words += ["-device", f"pxb-pcie,id=bridge{index},bus=pcie.0,bus_nr={64 + 16 * index},numa_node={device.node}",
                  "-device", f"pcie-root-port,id=port{index},bus=bridge{index},slot={index + 1},chassis={index + 1}",
                  "-device", f"{device.model},bus=port{index},id=device{index}"]
    arguments = KERNEL_ARGUMENTS + HIERARCHIES[cgroup] + (" intel_iommu=on" if topology.iommu else "")
    return [
        *words,
        "-kernel", str(kernel), "-initrd", str(initrd), "-append", arguments,
        "-drive", f"if=none,id=disk,file={overlay},format=qcow2,cache=unsafe", "-device", "virtio-blk-pci,drive=disk,bus=pcie.0",
        "-drive", f"if=none,id=compiled,file={compiled},format=raw,readonly=on", "-device", "virtio-blk-pci,drive=compiled,bus=pcie.0",
        "-netdev", f"user,id=net,restrict=on,hostfwd=tcp:127.0.0.1:{port}-:22", "-device", "virtio-net-pci,netdev=net,bus=pcie.0,romfile=",
        "-serial", f"file:{folder / 'console.log'}",
        "-qmp", f"unix:{folder / 'qmp'},server=on,wait=off",
        "-pidfile", str(folder / "pid"),
    ]
    # fmt: on
