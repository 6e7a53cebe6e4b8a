# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# This module is private to the collection corral.node.
"""The keys of a profile, all of them, in one table: the parser and docs/profile.md both read it.

A key of a manager that does not exist yet is in the table from the first day, marked ``later``, and refused by name.
To add a key: one entry here, one field in profile.py; the reference page is written by ``tools/profile_reference.py``.
"""

from __future__ import annotations

import typing as t

from . import schema_types as types

# The number of a profile's own format. A node refuses a profile with a larger one: it cannot know what it means.
FORMAT = 1

ONE = "one"
LIST = "list"
MAP = "map"

# Nobody declares more of anything; a list of a million items is a mistake or an attack.
ITEMS_LIMIT = 1024


class Key(t.NamedTuple):
    """One key.

    ``path`` is where it stands, ``[]`` for an item of a list of mappings; ``type`` is None for a section (its keys
    follow in the table). ``many`` says whether the value is one, a list or a mapping (then ``keys`` is the type of
    its keys). ``default`` is written as in a profile and read like one; None: nothing is declared.
    """

    path: str
    type: t.Optional[types.Type]
    doc: str
    example: str = ""
    default: object = None
    required: bool = False
    many: str = ONE
    keys: t.Optional[types.Type] = None
    later: bool = False
    since: str = "0.1.0"

    @property
    def name(self) -> str:
        """The last part of the path."""
        return self.path.rpartition(".")[2].replace("[]", "")


def _later(path: str, doc: str) -> Key:
    return Key(path, None, doc, later=True, since="")


# Kernel: include/linux/threads.h (PID_MAX_LIMIT, RESERVED_PIDS), kernel/fork.c (MAX_THREADS), kernel/pid.c.
PID_MAX_LOW, PID_MAX_HIGH = 301, 1 << 22
THREADS_MAX_HIGH = 0x3FFFFFFF

HOUSEKEEPING_SLICES = ("system.slice", "user.slice", "init.scope")
SHARED_SLICES = ("machine.slice",)

KEYS: tuple[Key, ...] = (
    Key(
        "name",
        types.LABEL,
        "What the profile is called in reports and on the node.",
        example="edge-worker",
        required=True,
    ),
    Key(
        "version",
        types.integer(1, 1 << 31),
        "The format of the profile. A profile of a newer format than the node's Corral knows is refused.",
        example="1",
        default=FORMAT,
    ),
    Key(
        "mode",
        types.choice("enforce", "audit"),
        "Both are applied at a rollout, and brought back at boot. With `enforce` the agent keeps the node so from then on; "
        "with `audit` it only reports what differs. To change nothing at all, use check mode.",
        example="audit",
        default="enforce",
    ),
    Key(
        "cpu",
        None,
        "The CPU pools. Without this section Corral leaves the node's CPUs alone. CPUs that are neither reserved nor "
        "isolated are shared.",
    ),
    Key(
        "cpu.reserved",
        None,
        "The CPUs for housekeeping: the system's own services and people's sessions. Exactly one of `cpus`, `count` and "
        "`cores_per_numa`.",
        required=True,
    ),
    Key("cpu.reserved.cpus", types.CPUS, "These CPUs, as the kubelet's `reservedSystemCPUs`.", example='"0-1,32-33"'),
    Key(
        "cpu.reserved.count",
        types.integer(1, types.CPU_LIMIT),
        "This number of CPUs, chosen from all online ones as the kubelet chooses them for a reservation that is given as "
        "an amount: packed, whole sockets, NUMA nodes and cores first. With `cpu.whole_cores` the siblings of a core "
        "that would be split are added.",
        example="4",
    ),
    Key(
        "cpu.reserved.cores_per_numa",
        types.integer(1, types.CPU_LIMIT),
        "This number of whole cores on each NUMA node that has CPUs, lowest-numbered first; cores that the kernel "
        "isolates (isolcpus) come last.",
        example="1",
    ),
    Key(
        "cpu.reserved.slices",
        types.SLICE,
        "The top-level slices that are confined to the reserved CPUs.",
        example="[system.slice, user.slice, init.scope, monitoring.slice]",
        default=HOUSEKEEPING_SLICES,
        many=LIST,
    ),
    Key("cpu.shared", None, "The CPUs for workloads that have none of their own: all that are left."),
    Key(
        "cpu.shared.slices",
        types.SLICE,
        "The top-level slices that run on the shared CPUs, beside Corral's own.",
        example="[machine.slice, batch.slice]",
        default=SHARED_SLICES,
        many=LIST,
    ),
    Key(
        "cpu.isolated",
        None,
        "CPUs that are kept free of everybody: no slice of the node may use them. Exactly one of `cpus` and `cores`.",
    ),
    Key("cpu.isolated.cpus", types.CPUS, "These CPUs.", example='"6-7"'),
    Key(
        "cpu.isolated.cores",
        types.integer(1, types.CPU_LIMIT),
        "This number of whole cores that are not reserved. Without `numa` or `near` they are on one NUMA node where one "
        "has enough, else on as few as possible; cores that the kernel isolates already (isolcpus) are preferred, then the "
        "lowest numbers.",
        example="4",
    ),
    Key("cpu.isolated.numa", types.NODE, "The NUMA node of the `cores`.", example="1"),
    Key(
        "cpu.isolated.near",
        types.NEAR,
        "Take the `cores` from the NUMA node of this device: a network interface or a PCI address.",
        example="ens1f0",
    ),
    Key(
        "cpu.whole_cores",
        types.BOOLEAN,
        "Whether the pools are closed over SMT siblings, so that the threads of a core are never in two pools. Literal "
        "`cpus` that split a core are refused then; without it they are accepted and a note names the split cores.",
        example="true",
        default=False,
    ),
    Key(
        "cpu.policy",
        types.choice("none", later=("static",)),
        "The kubelet's CPU manager policy. Exclusive CPUs for workloads (`static`) come in a later version.",
        example="none",
        default="none",
    ),
    Key("cpu.options", None, "The options of the CPU manager, by the kubelet's names."),
    Key(
        "cpu.options.strict-cpu-reservation",
        types.BOOLEAN,
        "Whether shared workloads are kept off the reserved CPUs. When it is false they run on the shared and the "
        "reserved CPUs, as the kubelet's do by default.",
        example="false",
        default=True,
    ),
    _later("cpu.options.full-pcpus-only", "Exclusive CPUs are whole cores only."),
    _later("cpu.options.distribute-cpus-across-numa", "Exclusive CPUs are spread evenly over NUMA nodes."),
    _later("cpu.options.align-by-socket", "Exclusive CPUs are aligned to sockets instead of NUMA nodes."),
    _later("cpu.options.distribute-cpus-across-cores", "Exclusive CPUs are spread over cores."),
    _later("cpu.options.prefer-align-cpus-by-uncorecache", "Exclusive CPUs share a last-level cache where they can."),
    Key("memory", None, "Memory that is kept for the system, hugepages and the places where they are mounted."),
    Key(
        "memory.reserved",
        types.SIZE,
        "Memory of each NUMA node that hugepages must leave alone.",
        example='{"0": 1Gi, "1": 512Mi}',
        many=MAP,
        keys=types.NODE,
    ),
    Key(
        "memory.hugepages",
        None,
        "Hugepage pools, made at run time. Together with `memory.reserved` they fit into each node's memory, or the "
        "profile is refused.",
        many=LIST,
    ),
    Key(
        "memory.hugepages[].size",
        types.PAGE_SIZE,
        "The size of a page; one the node's kernel has.",
        example="2Mi",
        required=True,
    ),
    Key(
        "memory.hugepages[].count",
        types.integer(0, 1 << 32),
        "The number of pages; 0 is an empty pool.",
        example="512",
        required=True,
    ),
    Key(
        "memory.hugepages[].node",
        types.NODE,
        "The NUMA node of the pool. Without it `count` is for the whole machine and the kernel spreads the pages.",
        example="0",
    ),
    Key("memory.mounts", None, "hugetlbfs mounts, each a systemd mount unit.", many=LIST),
    Key("memory.mounts[].path", types.MOUNT_PATH, "Where it is mounted.", example="/dev/hugepages-2Mi", required=True),
    Key("memory.mounts[].pagesize", types.PAGE_SIZE, "The size of its pages.", example="2Mi", required=True),
    Key(
        "memory.mounts[].size",
        types.SIZE,
        "The most it may hold, a multiple of the page size. The kernel cannot change it on a live mount: a new size is a "
        "new mount.",
        example="512Mi",
    ),
    Key(
        "memory.mounts[].min_size",
        types.SIZE,
        "What is set aside for it from the pool when it is mounted, a multiple of the page size.",
        example="64Mi",
    ),
    Key(
        "memory.mounts[].mode",
        types.MODE,
        "Permission bits of its root directory, in quotes.",
        example='"0770"',
        default="0755",
    ),
    Key("memory.mounts[].uid", types.integer(0, (1 << 32) - 2), "The owner, as a number.", example="0"),
    Key("memory.mounts[].user", types.ACCOUNT, "The owner, by name. Root without `user` and `uid`.", example="qemu"),
    Key("memory.mounts[].gid", types.integer(0, (1 << 32) - 2), "The group, as a number.", example="64055"),
    Key(
        "memory.mounts[].group", types.ACCOUNT, "The group, by name. Root without `group` and `gid`.", example="hugetlb"
    ),
    Key(
        "pids",
        None,
        "Limits on processes and threads. The node's capacity is the smaller of `pid_max` and `threads_max`, as the "
        "kubelet counts it; the reserve and the limits of the slices must fit into it together.",
    ),
    Key(
        "pids.pid_max",
        types.integer(PID_MAX_LOW, PID_MAX_HIGH),
        "`kernel.pid_max`: ids for processes and threads.",
        example="4194304",
    ),
    Key(
        "pids.threads_max",
        types.integer(PID_MAX_LOW, THREADS_MAX_HIGH),
        "`kernel.threads-max`: threads on the whole node.",
        example="4194304",
    ),
    Key(
        "pids.reserved",
        types.integer(0, PID_MAX_HIGH),
        "What is kept for housekeeping: no sum of limits reaches into it.",
        example="2048",
    ),
    Key(
        "pids.default_tasks_max",
        types.integer(1, PID_MAX_HIGH),
        "systemd's `DefaultTasksMax`: the limit of each unit that declares none.",
        example="4096",
    ),
    Key(
        "pids.slices",
        types.integer(1, PID_MAX_HIGH),
        "`TasksMax` of the pools' slices: those of `cpu.reserved.slices` and `cpu.shared.slices`, and `corral.slice`.",
        example="{machine.slice: 16384, corral.slice: 8192}",
        many=MAP,
        keys=types.Type("slice", types.read_slice_or_corral),
    ),
    _later("pids.per_workload", "The task limit of each workload."),
    _later("topology", "The topology manager: policy, scope and options."),
    _later("gc", "Garbage collection of images and containers."),
    _later("workloads", "Systemd units and containers that get resources of their own."),
    _later("devices", "Devices that are handed to workloads."),
    _later("tenants", "Groups of workloads with a share of the node."),
    _later("kubelet", "A kubelet that runs on the same node."),
    _later("irq", "Interrupt affinity."),
    _later("boot", "Kernel command line."),
)

# What people who know the kubelet's configuration write first.
KUBELET_NAMES = {
    "reservedSystemCPUs": "cpu.reserved.cpus",
    "cpuManagerPolicy": "cpu.policy",
    "cpuManagerPolicyOptions": "cpu.options",
    "reservedMemory": "memory.reserved",
    "podPidsLimit": "pids.per_workload",
    "topologyManagerPolicy": "topology",
    "imageGCHighThresholdPercent": "gc",
    "imageGCLowThresholdPercent": "gc",
}


class Node(t.NamedTuple):
    """A key and the keys below it."""

    key: Key
    children: dict[str, Node]


def _tree() -> dict[str, Node]:
    nodes: dict[str, Node] = {}
    top: dict[str, Node] = {}
    for key in KEYS:
        node = nodes[key.path.replace("[]", "")] = Node(key, {})
        above = key.path.rpartition(".")[0].replace("[]", "")
        (nodes[above].children if above else top)[key.name] = node
    return top


TREE = _tree()
