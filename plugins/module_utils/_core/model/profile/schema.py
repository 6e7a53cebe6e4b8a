# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# This module is private to the collection corral.node.
"""The keys of a profile, all of them, in one table: the parser and docs/profile.md both read it.

A key of a manager that does not exist yet is in the table from the first day, marked ``later``, and refused by name.
To add a key: one entry here, and its section (profile.py); the reference page is written by ``tools/profile_reference.py``.
"""

from __future__ import annotations

import typing as t

from ..tenants import tenant
from ..values.records import NamedTuple
from . import schema_devices as devices
from . import schema_kubelet as kubelet
from . import schema_quantities as quantities
from . import schema_types as types

# The number of a profile's own format. A node refuses a profile with a larger one: it cannot know what it means.
FORMAT = 1

ONE = "one"
LIST = "list"
MAP = "map"

# No node needs more; a list of a million items is a mistake or an attack.
ITEMS_LIMIT = 1024


class Key(NamedTuple):
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
        "The CPUs for housekeeping: the system's own services and users' sessions. Exactly one of `cpus`, `count` and "
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
        "cpu.shared.min_cpus",
        types.integer(1, types.CPU_LIMIT),
        "The CPUs that the shared pool keeps at least: an exclusive grant that would leave fewer is refused.",
        example="2",
        default=1,
    ),
    Key(
        "cpu.isolated",
        None,
        "CPUs that only processes in `corral_isolated.slice` may use. Exactly one of `cpus` and `cores`.",
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
    Key(
        "cpu.isolated.numa",
        types.NODE_WITH_CPUS,
        "The NUMA node of the `cores`: its number, or `first` or `last` for the first or last NUMA node that has CPUs.",
        example="last",
    ),
    Key(
        "cpu.isolated.near",
        types.NEAR,
        "Take the `cores` from the NUMA node of this device: a network interface or a PCI address.",
        example="ens1f0",
    ),
    Key(
        "cpu.isolated.optional",
        types.BOOLEAN,
        "Whether a node that cannot have the isolated CPUs (too few cores, no such NUMA node or device) does without them. A note "
        "says so. When it is false the profile is refused there.",
        example="true",
        default=False,
    ),
    Key(
        "cpu.isolated.load_balance",
        types.BOOLEAN,
        "Whether the scheduler spreads threads over the isolated CPUs. When it is false a thread stays on the CPU that it "
        "was started on until it chooses others (sched_setaffinity, taskset): for polling threads that pin themselves. Needs "
        "cgroup v2 and `cpu.partitions: auto`.",
        example="false",
        default=True,
    ),
    Key(
        "cpu.partitions",
        types.choice("auto", "off"),
        "Whether the kernel keeps all other processes off isolated and exclusive CPUs (`cpuset.cpus.partition`, cgroup v2), also "
        "processes that the profile does not know. With `off` only the slices that the profile knows are kept off them.",
        example="off",
        default="auto",
    ),
    Key(
        "cpu.unmanaged",
        types.choice("report", "confine"),
        "What to do with top-level slices, scopes and services that the profile does not know. With `report` they are drift; "
        "with `confine` they are given the shared CPUs (`AllowedCPUs=`, until the node's next boot or Corral's removal). "
        "After a change back to `report` a unit that was confined keeps a request for CPUs until it stops, which the kernel cannot "
        "drop. Corral sets it to the CPUs that the unit requested before, else to all that no grant has, as grants come and go, and "
        "overwrites what is set by hand.",
        example="confine",
        default="report",
    ),
    Key(
        "cpu.whole_cores",
        types.BOOLEAN,
        "Whether the pools consist of whole cores, so that the threads of a core are never in two pools. Literal `cpus` "
        "that split a core are then refused. When it is false they are accepted, and a note names the split cores.",
        example="true",
        default=False,
    ),
    Key(
        "cpu.policy",
        types.choice("none", "static"),
        "The kubelet's CPU manager policy. With `static` a Guaranteed workload that asks for whole CPUs gets them for "
        "itself alone ([workloads.md](workloads.md)); with `none` all workloads run on the shared pool.",
        example="static",
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
    Key(
        "cpu.options.full-pcpus-only",
        types.BOOLEAN,
        "Exclusive CPUs are whole cores only; a request that is not a multiple of a core's threads is refused.",
        example="true",
        default=False,
    ),
    Key(
        "cpu.options.distribute-cpus-across-numa",
        types.BOOLEAN,
        "Exclusive CPUs that need several NUMA nodes are spread evenly over them, instead of filling one after another.",
        example="true",
        default=False,
    ),
    Key(
        "cpu.options.align-by-socket",
        types.BOOLEAN,
        "Exclusive CPUs are aligned to sockets instead of NUMA nodes. Not with the topology policy `single-numa-node`.",
        example="true",
        default=False,
    ),
    Key(
        "cpu.options.distribute-cpus-across-cores",
        types.BOOLEAN,
        "Exclusive CPUs are spread over cores: no two siblings while a fresh core is left.",
        example="true",
        default=False,
    ),
    Key(
        "cpu.options.prefer-align-cpus-by-uncorecache",
        types.BOOLEAN,
        "Exclusive CPUs share a last-level cache where they can.",
        example="true",
        default=False,
    ),
    Key("memory", None, "Memory that is kept for the system, hugepages and the places where they are mounted."),
    Key(
        "memory.policy",
        types.choice("none", "static"),
        "The kubelet's memory manager policy. With `static` the memory and the hugepages of a Guaranteed workload come "
        "from NUMA nodes that are chosen for it, and it is bound to them.",
        example="static",
        default="none",
    ),
    Key(
        "memory.reserved",
        quantities.SIZE,
        "Memory of each NUMA node that hugepages must not take.",
        example='{"0": 1Gi, "1": 512Mi}',
        many=MAP,
        keys=types.NODE,
    ),
    Key(
        "memory.reserved_per_numa",
        quantities.SIZE_OR_SHARE,
        "The same for each NUMA node that has memory and is not in `memory.reserved`: a size, or a share of the NUMA node's memory.",
        example="10%",
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
        quantities.PAGE_SIZE,
        "The size of a page. The node's kernel must have pages of this size.",
        example="2Mi",
        required=True,
    ),
    Key(
        "memory.hugepages[].count",
        types.integer(0, 1 << 32),
        "The number of pages; 0 is an empty pool. Exactly one of `count` and `share`.",
        example="512",
    ),
    Key(
        "memory.hugepages[].share",
        quantities.SHARE,
        "As many pages as this share of the memory has room for: of the NUMA node's memory, or of the machine's without a NUMA node.",
        example="25%",
    ),
    Key(
        "memory.hugepages[].node",
        types.NODES,
        "The NUMA node of the pool: its number, `first` or `last` for the first or last NUMA node that has CPUs and memory, or "
        "`each` for a pool on each NUMA node that has memory and no other pool of this size. On a machine without NUMA nodes a "
        "word means the whole machine. Without `node` and `near` the pool is the whole machine's and the kernel spreads the pages.",
        example="each",
    ),
    Key(
        "memory.hugepages[].near",
        types.NEAR,
        "Instead of `node`: the NUMA node of this device, a network interface or a PCI address.",
        example="ens1f0",
    ),
    Key(
        "memory.hugepages[].optional",
        types.BOOLEAN,
        "Whether a node that cannot have the pool (no pages of that size, no such NUMA node or device, too little memory) does "
        "without it. A note says so. When it is false the profile is refused there.",
        example="true",
        default=False,
    ),
    Key("memory.mounts", None, "hugetlbfs mounts, each a systemd mount unit.", many=LIST),
    Key("memory.mounts[].path", types.MOUNT_PATH, "Where it is mounted.", example="/dev/hugepages-2Mi", required=True),
    Key("memory.mounts[].pagesize", quantities.PAGE_SIZE, "The size of its pages.", example="2Mi", required=True),
    Key(
        "memory.mounts[].optional",
        types.BOOLEAN,
        "Whether a node whose kernel has no pages of that size, or too few for `min_size`, does without the mount. A note says so. "
        "When it is false the profile is refused there.",
        example="true",
        default=False,
    ),
    Key(
        "memory.mounts[].size",
        quantities.SIZE,
        "The most that it may hold, a multiple of the page size. The kernel cannot change it on a live mount: a new size is a "
        "new mount.",
        example="512Mi",
    ),
    Key(
        "memory.mounts[].min_size",
        quantities.SIZE,
        "What is reserved for it in the pool when it is mounted, a multiple of the page size.",
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
        "Tasks that are kept for housekeeping: the limits of shared slices and of workloads with CPUs of their own together "
        "leave so many. The rest is divided equally among those that declare no limit.",
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
        keys=types.SLICE_OR_CORRAL,
    ),
    Key(
        "pids.per_workload",
        types.integer(1, PID_MAX_HIGH),
        "The task limit of each workload that declares none in its `limits` (kubelet: `podPidsLimit`).",
        example="4096",
    ),
    Key(
        "topology",
        None,
        "The topology manager: whether CPUs, memory and hugepages of a workload must be near each other.",
    ),
    Key(
        "topology.policy",
        types.choice("none", "best-effort", "restricted", "single-numa-node"),
        "The kubelet's topology manager policy: `best-effort` prefers the fewest NUMA nodes, `restricted` refuses a "
        "workload that does not get them, `single-numa-node` one that does not fit on one node.",
        example="single-numa-node",
        default="none",
    ),
    Key(
        "topology.scope",
        types.choice("container", "pod"),
        "Whether each container of a pod is placed by itself, or all of them on the same nodes.",
        example="pod",
        default="container",
    ),
    Key(
        "topology.preferred_by",
        types.choice("capacity", "free"),
        "What the fewest nodes are counted by: what nodes have (the kubelet's rule: a half-full machine refuses what "
        "would fit), or what is free on them.",
        example="free",
        default="capacity",
    ),
    Key("topology.options", None, "The options of the topology manager, by the kubelet's names."),
    Key(
        "topology.options.prefer-closest-numa-nodes",
        types.BOOLEAN,
        "Of equally few nodes those with the smallest distances are taken.",
        example="true",
        default=False,
    ),
    Key(
        "topology.options.max-allowable-numa-nodes",
        types.integer(8, types.NODE_LIMIT),
        "The most NUMA nodes of a machine with a policy other than `none`. The kubelet has 8 because its search grows with "
        "2^nodes; Corral's does not.",
        example="64",
        default=types.NODE_LIMIT,
    ),
    Key(
        "gc",
        None,
        "Garbage collection on Podman's storage: root's, and that of the `users`. It runs in a timer of its own, never in "
        "the agent's tick. A section that is left out collects nothing.",
    ),
    Key(
        "gc.images",
        None,
        "Unused images are removed, least recently used first, when the file system that holds them has reached `high`, "
        "until it is down to `low`: the kubelet's image garbage collection ([how it decides](gc.md)). When an image was used last is kept over "
        "restarts and reboots. `{}` takes the defaults; a `high` of 100 without `max_age` turns it off.",
    ),
    Key(
        "gc.images.high",
        types.integer(0, 100),
        "The file system's use, in percent, from which on images go (kubelet: `imageGCHighThresholdPercent`).",
        example="85",
        default=85,
    ),
    Key(
        "gc.images.low",
        types.integer(0, 100),
        "The use, in percent, down to which they go; below `high` (kubelet: `imageGCLowThresholdPercent`).",
        example="80",
        default=80,
    ),
    Key(
        "gc.images.min_age",
        types.DURATION,
        "An image that was first seen more recently never goes (kubelet: `imageMinimumGCAge`).",
        example="2m",
        default="2m",
    ),
    Key(
        "gc.images.max_age",
        types.DURATION,
        "An image that was not used for longer is removed however full the disk is; `0s`: no limit (kubelet: "
        "`imageMaximumGCAge`). The time begins when Corral began to record use, or for an image that was never used when it "
        "was first seen.",
        example="30d",
        default="0s",
    ),
    Key("gc.images.interval", types.INTERVAL, "How often images are looked at.", example="5m", default="5m"),
    Key(
        "gc.images.keep",
        types.IMAGE,
        "Images that never go: a name (with or without a tag), a name with `*` and `?`, a name with a digest, or a digest.",
        example='["quay.example/base:*", "localhost/tools"]',
        many=LIST,
    ),
    Key(
        "gc.containers",
        None,
        "Dead containers go, the oldest first: the kubelet's container garbage collection. A pod is one of them once "
        "nothing in it runs, and goes as a whole. Those of a workload that left the profile all go. Nothing that runs is "
        "ever removed. `{}` takes the defaults.",
    ),
    Key(
        "gc.containers.min_age",
        types.DURATION,
        "A container that died more recently never goes.",
        example="10m",
        default="0s",
    ),
    Key(
        "gc.containers.max_per_workload",
        types.integer(-1, 1 << 20),
        "The most dead ones that are kept of each workload; -1: no limit. With `scope: all` a container of no workload "
        "counts with those of its unit, else of its image.",
        example="1",
        default=1,
    ),
    Key(
        "gc.containers.max_total",
        types.integer(-1, 1 << 20),
        "The most dead ones that are kept in all; -1: no limit.",
        example="100",
        default=-1,
    ),
    Key(
        "gc.containers.scope",
        types.choice("declared", "all"),
        "Whose containers may go: those of the `workloads` alone, or all.",
        example="all",
        default="declared",
    ),
    Key("gc.containers.interval", types.INTERVAL, "How often containers are looked at.", example="1m", default="1m"),
    Key(
        "gc.containers.volumes",
        types.BOOLEAN,
        "Whether the anonymous volumes of a container go with it. Named volumes never do.",
        example="true",
        default=False,
    ),
    Key(
        "gc.containers.keep",
        types.CONTAINER,
        "Containers and pods that never go, by name, `*` and `?` allowed.",
        example='["build-cache", "debug-*"]',
        many=LIST,
    ),
    Key(
        "gc.containers.keep_labels",
        types.CONTAINER_LABEL,
        "Containers and pods that never go, by a label they have: `KEY`, or `KEY=VALUE`.",
        example='["keep=true"]',
        many=LIST,
    ),
    Key(
        "gc.users",
        types.ACCOUNT,
        "Users whose rootless storage is collected as well, each through that user's own Podman. Root's storage always is.",
        example="[alice]",
        many=LIST,
    ),
    Key(
        "workloads",
        None,
        "The node's workloads, by name. Each can have CPUs, memory and limits of its own ([workloads.md](workloads.md)), and garbage "
        "collection may remove its dead containers (`gc.containers.scope: declared`).",
        many=LIST,
    ),
    Key("workloads[].name", types.LABEL, "What the workload is called.", example="batch", required=True),
    Key(
        "workloads[].match",
        None,
        "What belongs to it. Exactly one of `unit`, `container`, `pod` and `label`; `*` and `?` are allowed, except in labels.",
        required=True,
    ),
    Key(
        "workloads[].match.unit",
        types.UNIT,
        "The systemd unit that it is, or that starts its containers.",
        example="batch@*.service",
    ),
    Key("workloads[].match.container", types.CONTAINER, "The container's name.", example="batch-*"),
    Key("workloads[].match.pod", types.CONTAINER, "The pod's name.", example="web"),
    Key(
        "workloads[].match.label",
        types.CONTAINER_LABEL,
        "A label of the container or pod: `KEY`, or `KEY=VALUE`.",
        example="app=batch",
    ),
    Key(
        "workloads[].hold",
        types.choice("declared", "running"),
        "How long it keeps its grant: as long as it is declared, or from before each start until after its stop.",
        example="running",
        default="declared",
    ),
    Key(
        "workloads[].priority",
        types.LABEL,
        "The name of its priority, by which quotas of tenants tell workloads apart (`tenants[].quota[].scope_selector`).",
        example="high",
    ),
    Key(
        "workloads[].share_process_namespace",
        types.BOOLEAN_OR_ANY,
        "Whether the containers of a pod share one PID namespace, as `shareProcessNamespace` of Kubernetes: all of them, each has its "
        "own, or either is right. A difference is drift ([workloads.md](workloads.md#shared-process-namespaces)).",
        example="true",
        default="any",
    ),
    Key(
        "workloads[].requests",
        quantities.QUANTITY,
        "What the workload is to have: `cpu`, `memory`, hugepages by page size (`hugepages-2Mi`), as Kubernetes quantities, and a number "
        "of devices by the resource of `devices` (`example.com/nic`). A missing request equals its limit. Requests must equal limits "
        "for hugepages and devices.",
        example="{cpu: 4, memory: 2Gi, hugepages-2Mi: 512Mi}",
        many=MAP,
        keys=devices.WORKLOAD_RESOURCE,
    ),
    Key(
        "workloads[].limits",
        quantities.QUANTITY,
        "What the workload may have at most; also `pids`, the number of its tasks.",
        example="{cpu: 4, memory: 2Gi, hugepages-2Mi: 512Mi, pids: 512}",
        many=MAP,
        keys=devices.WORKLOAD_RESOURCE,
    ),
    Key(
        "workloads[].containers",
        None,
        "The containers of a pod, in the order in which they start, each with what it is to have; the pod has what they need "
        "together. An init container hands its CPUs to those that come after it.",
        many=LIST,
    ),
    Key("workloads[].containers[].name", types.CONTAINER_NAME, "The container's name.", example="app", required=True),
    Key(
        "workloads[].containers[].role",
        types.choice("app", "init", "sidecar"),
        "Its role: an `init` container ends before the next one starts, a `sidecar` starts among them and stays.",
        example="init",
        default="app",
    ),
    Key(
        "workloads[].containers[].requests",
        quantities.QUANTITY,
        "What the container is to have: `cpu`, `memory`, hugepages by page size (`hugepages-2Mi`), as Kubernetes quantities, and a number "
        "of devices by the resource of `devices` (`example.com/nic`). A missing request equals its limit. Requests must equal limits "
        "for hugepages and devices.",
        example="{cpu: 4, memory: 2Gi, hugepages-2Mi: 512Mi}",
        many=MAP,
        keys=devices.WORKLOAD_RESOURCE,
    ),
    Key(
        "workloads[].containers[].limits",
        quantities.QUANTITY,
        "What the container may have at most; also `pids`, the number of its tasks.",
        example="{cpu: 4, memory: 2Gi, hugepages-2Mi: 512Mi, pids: 512}",
        many=MAP,
        keys=devices.WORKLOAD_RESOURCE,
    ),
    Key(
        "tenants",
        None,
        "Groups of workloads: limits for each workload, and a quota for all of a group together ([tenants.md](tenants.md)). "
        "A workload has one tenant at most.",
        many=LIST,
    ),
    Key(
        "tenants[].name",
        types.LABEL,
        "The name of the tenant. No workload may have the same name.",
        example="acme",
        required=True,
    ),
    Key(
        "tenants[].members",
        None,
        "The workloads of the tenant: one of these patterns fits what a workload matches, or a setting of its unit.",
        required=True,
    ),
    Key(
        "tenants[].members.units", types.UNIT, "Services, `*` and `?` allowed.", example='["acme-*.service"]', many=LIST
    ),
    Key("tenants[].members.containers", types.CONTAINER, "Containers by name.", example='["acme-*"]', many=LIST),
    Key("tenants[].members.pods", types.CONTAINER, "Pods by name.", example='["acme-*"]', many=LIST),
    Key(
        "tenants[].members.labels",
        types.CONTAINER_LABEL,
        "Labels, `KEY` or `KEY=VALUE`, of workloads that match a label.",
        example='["tenant=acme"]',
        many=LIST,
    ),
    Key(
        "tenants[].members.slices",
        types.SLICE,
        "Services whose files say `Slice=` with this slice, or with one in it.",
        example="[acme.slice]",
        many=LIST,
    ),
    Key("tenants[].members.users", types.ACCOUNT, "Services whose files say `User=` so.", example="[acme]", many=LIST),
    Key(
        "tenants[].share_process_namespace",
        types.BOOLEAN,
        "Whether containers of a workload may share a PID namespace; false forbids it to all workloads of the tenant.",
        example="false",
        default=True,
    ),
    Key(
        "tenants[].limits",
        None,
        "What one workload may have: Kubernetes' LimitRange. They count when a workload is admitted; what was granted before "
        "stays as it is.",
        many=LIST,
    ),
    Key(
        "tenants[].limits[].type",
        types.choice("container", "pod"),
        "What is limited: each container (a workload without containers is one itself), or each workload as a whole.",
        example="container",
        required=True,
    ),
    *(
        Key(
            f"tenants[].limits[].{name}",
            quantities.QUANTITY,
            doc,
            example=example,
            many=MAP,
            keys=quantities.RESOURCE,
        )
        for name, doc, example in (
            ("min", "The least that it may request.", "{cpu: 100m, memory: 64Mi}"),
            ("max", "The most that it may have as its limit.", "{cpu: 2, memory: 1Gi}"),
            (
                "default",
                "The limit of a container that has none of its own; without a default it is `max`.",
                "{cpu: 500m, memory: 256Mi}",
            ),
            (
                "default_request",
                "The request of a container that has neither request nor limit; without one it is the default limit, else `min`.",
                "{cpu: 250m, memory: 128Mi}",
            ),
            ("max_limit_request_ratio", "How many times the request a limit may be at most.", "{memory: 2}"),
        )
    ),
    Key(
        "tenants[].quota",
        None,
        "What the workloads of the tenant may have together: Kubernetes' ResourceQuota. It counts when a workload is admitted; "
        "usage above it is reported, and nothing that runs is touched.",
        many=LIST,
    ),
    Key("tenants[].quota[].name", types.LABEL, "What the quota is called.", example="compute", required=True),
    Key(
        "tenants[].quota[].hard",
        quantities.QUANTITY,
        "The most of each resource: `requests.` and `limits.` of `cpu`, `memory` and hugepages by page size, `limits.pids`, "
        "and `count/workloads`. Each workload must name what the quota limits of CPU, memory and tasks, or get it by default.",
        example="{requests.cpu: 4, limits.memory: 8Gi, count/workloads: 10}",
        many=MAP,
        keys=quantities.QUOTA_RESOURCE,
        required=True,
    ),
    Key(
        "tenants[].quota[].scopes",
        types.choice(*tenant.SCOPES, later=("CrossNamespacePodAffinity", "VolumeAttributesClass")),
        "Only workloads of these scopes are counted: by QoS class, by whether the unit has `RuntimeMaxSec=`, or whether they "
        "have a priority.",
        example="[NotBestEffort]",
        many=LIST,
    ),
    Key(
        "tenants[].quota[].scope_selector",
        None,
        "Only workloads that meet all these conditions are counted, beside `scopes`.",
        many=LIST,
    ),
    Key(
        "tenants[].quota[].scope_selector[].scope",
        types.choice(*tenant.SCOPES, later=("CrossNamespacePodAffinity", "VolumeAttributesClass")),
        "The scope.",
        example="PriorityClass",
        required=True,
    ),
    Key(
        "tenants[].quota[].scope_selector[].operator",
        types.choice(*tenant.OPERATORS),
        "How it is compared with `values`; scopes other than `PriorityClass` have only `Exists`.",
        example="In",
        required=True,
    ),
    Key(
        "tenants[].quota[].scope_selector[].values",
        types.LABEL,
        "Names of priorities (`workloads[].priority`), for `In` and `NotIn`.",
        example="[high]",
        many=LIST,
    ),
    Key(
        "devices",
        None,
        "Resources that devices of the node belong to ([devices.md](devices.md)). `corral devices` shows the devices of each and "
        "who has them; workloads request a number of them.",
        many=LIST,
    ),
    Key(
        "devices[].name",
        devices.RESOURCE_NAME,
        "What the resource is called, as Kubernetes' extended resources: a domain and a name.",
        example="example.com/nic",
        required=True,
    ),
    Key(
        "devices[].match",
        None,
        "Which devices belong to it: `path` alone, `cdi` alone, or all that is said of a PCI function. Bridges never match.",
        required=True,
    ),
    Key(
        "devices[].match.pci",
        devices.PCI_ID,
        "Vendor and device of PCI functions as `lspci -nn` prints them; `*` is any device of the vendor.",
        example='"8086:1572"',
    ),
    Key(
        "devices[].match.class",
        devices.PCI_CLASS,
        "The first 2, 4 or 6 hexadecimal digits of the PCI class, in quotes: `0200` is Ethernet.",
        example='"0200"',
    ),
    Key(
        "devices[].match.driver",
        devices.DRIVER,
        "The driver that the PCI function is bound to. What is bound to `vfio-pci` is one device for each IOMMU group.",
        example="vfio-pci",
    ),
    Key(
        "devices[].match.interface",
        devices.INTERFACE,
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
        devices.DEVICE_PATH,
        "Device files in /dev, `*` and `?` allowed. Links count as what they lead to.",
        example="/dev/ttyUSB*",
    ),
    Key(
        "devices[].match.cdi",
        devices.CDI_KIND,
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
    ),
    Key(
        "confirm",
        None,
        "How a node confirms a profile by itself that was put into `/etc/corral/profile.json` by other means than a run of Corral, such as an "
        "image, `ansible-pull` or a copy ([pull mode](fleet.md#pull-mode)). Without this section such a profile stays once it is applied.",
    ),
    Key(
        "confirm.command",
        types.COMMAND_WORD,
        "A command, as a list of words that no shell reads, with the absolute path of the program first. It runs as root on the "
        "reserved CPUs, again and again until it ends with exit code 0: then the profile is confirmed.",
        example="[/usr/local/bin/node-is-healthy]",
        many=LIST,
        required=True,
    ),
    Key(
        "confirm.timeout",
        types.WAIT,
        "How long the node waits for that before it goes back to the profile before.",
        example="5m",
        default="2m",
    ),
    Key(
        "kubelet",
        None,
        "The configuration of the node's kubelet, from 1.28 on ([kubelet.md](kubelet.md)). Only what is declared is set; all else "
        "stays as others configure it. With the section `cpu` the kubelet's `reservedSystemCPUs` are the reserved and the isolated "
        "CPUs. Settings that the kubelet would refuse, or that contradict each other, are refused before anything is changed.",
    ),
    Key(
        "kubelet.optional",
        types.BOOLEAN,
        "Whether a node without a kubelet, or with one that Corral does not configure (k3s, RKE2, MicroK8s, MicroShift), does without "
        "this section. A note says so. When it is false the profile is refused there.",
        example="true",
        default=False,
    ),
    Key(
        "kubelet.drain",
        kubelet.HOOK,
        "The program that drains the node before a change that takes exclusive CPUs or NUMA memory away from pods: it is run with the "
        "argument `drain` before the kubelet stops, and with `resume` once it is healthy again. With `none` the change is made "
        "without it. When it is left out such a change is refused while there are such pods.",
        example="/usr/local/sbin/drain-node",
    ),
    Key(
        "kubelet.cpu_manager_policy",
        types.choice("none", "static"),
        "`cpuManagerPolicy`. With `static` pods of the class Guaranteed get whole CPUs for themselves. `cpu.policy`, which gives "
        "CPUs to Corral's own workloads, must then be `none`.",
        example="static",
    ),
    Key(
        "kubelet.cpu_manager_policy_options",
        None,
        "`cpuManagerPolicyOptions`, all of them: an option that is left out or false is off. One that the installed kubelet does not "
        "know is refused; the feature gate is set where the installed version needs one.",
    ),
    *(
        Key(f"kubelet.cpu_manager_policy_options.{name}", types.BOOLEAN, doc, example="true", default=False)
        for name, doc in (
            ("full-pcpus-only", "Exclusive CPUs are whole cores only; other requests are refused."),
            ("strict-cpu-reservation", "No pod at all runs on `reservedSystemCPUs` (1.32 on)."),
            ("distribute-cpus-across-numa", "Exclusive CPUs that need several NUMA nodes are spread evenly over them."),
            ("align-by-socket", "Exclusive CPUs are aligned to sockets instead of NUMA nodes."),
            ("distribute-cpus-across-cores", "Exclusive CPUs are spread over cores (1.31 on)."),
            ("prefer-align-cpus-by-uncorecache", "Exclusive CPUs share a last-level cache where they can (1.32 on)."),
        )
    ),
    Key(
        "kubelet.cpu_manager_reconcile_period",
        types.DURATION,
        "`cpuManagerReconcilePeriod`: how often containers are given the CPUs that the state has.",
        example="5s",
    ),
    Key(
        "kubelet.memory_manager_policy",
        types.choice("none", "static"),
        "`memoryManagerPolicy` (`None`, `Static`). With `static` the memory of Guaranteed pods comes from NUMA nodes that are chosen "
        "for it.",
        example="static",
    ),
    Key(
        "kubelet.reserved_memory",
        quantities.SIZE,
        "`reservedMemory`: memory by NUMA node. The sum must be what `kubeReserved`, `systemReserved` and the hard eviction threshold "
        "of memory make together. When it is left out with the policy `static`, that sum is divided in proportion to the NUMA nodes' memory.",
        example='{"0": 1Gi, "1": 612Mi}',
        many=MAP,
        keys=types.NODE,
    ),
    Key(
        "kubelet.topology_manager_policy",
        types.choice("none", "best-effort", "restricted", "single-numa-node"),
        "`topologyManagerPolicy`.",
        example="single-numa-node",
    ),
    Key(
        "kubelet.topology_manager_scope",
        types.choice("container", "pod"),
        "`topologyManagerScope`.",
        example="pod",
    ),
    Key(
        "kubelet.topology_manager_policy_options",
        None,
        "`topologyManagerPolicyOptions`, all of them: an option that is left out is off.",
    ),
    Key(
        "kubelet.topology_manager_policy_options.prefer-closest-numa-nodes",
        types.BOOLEAN,
        "Of equally few NUMA nodes those with the smallest distances are taken, with the policies `best-effort` and `restricted`.",
        example="true",
        default=False,
    ),
    Key(
        "kubelet.topology_manager_policy_options.max-allowable-numa-nodes",
        types.integer(8, types.NODE_LIMIT),
        "The most NUMA nodes with which the kubelet starts under a policy other than `none`; the kubelet has 8 (1.31 on).",
        example="16",
    ),
    Key(
        "kubelet.system_reserved",
        quantities.QUANTITY,
        "`systemReserved`, all of it. With the section `cpu` the CPUs follow from its reserved pool.",
        example="{memory: 1Gi, pid: 1000}",
        many=MAP,
        keys=kubelet.RESERVABLE,
    ),
    Key(
        "kubelet.kube_reserved",
        quantities.QUANTITY,
        "`kubeReserved`, all of it: for the kubelet and the container runtime.",
        example="{memory: 512Mi, pid: 500}",
        many=MAP,
        keys=kubelet.RESERVABLE,
    ),
    Key(
        "kubelet.enforce_node_allocatable",
        kubelet.ENFORCED,
        "`enforceNodeAllocatable`: whose limits the kubelet sets on control groups.",
        example="[pods]",
        many=LIST,
    ),
    Key(
        "kubelet.system_reserved_cgroup",
        kubelet.CONTROL_GROUP,
        "`systemReservedCgroup`, which `system-reserved` needs. Not with the section `cpu`: the kubelet does not take it beside "
        "`reservedSystemCPUs`.",
        example="/system.slice",
    ),
    Key(
        "kubelet.kube_reserved_cgroup",
        kubelet.CONTROL_GROUP,
        "`kubeReservedCgroup`, which `kube-reserved` needs. Not with the section `cpu`.",
        example="/kube.slice",
    ),
    Key(
        "kubelet.eviction_hard",
        kubelet.THRESHOLD,
        "`evictionHard`, all of it: a signal that is left out has no threshold, as with the kubelet.",
        example="{memory.available: 500Mi, nodefs.available: 10%, imagefs.available: 15%, nodefs.inodesFree: 5%}",
        many=MAP,
        keys=kubelet.SIGNAL,
    ),
    Key(
        "kubelet.eviction_soft",
        kubelet.THRESHOLD,
        "`evictionSoft`, all of it. Each signal needs a grace period.",
        example="{memory.available: 1Gi}",
        many=MAP,
        keys=kubelet.SIGNAL,
    ),
    Key(
        "kubelet.eviction_soft_grace_period",
        types.DURATION,
        "`evictionSoftGracePeriod`: how long a soft threshold must be met before pods go.",
        example="{memory.available: 90s}",
        many=MAP,
        keys=kubelet.SIGNAL,
    ),
    Key(
        "kubelet.pod_pids_limit",
        types.integer(-1, PID_MAX_HIGH),
        "`podPidsLimit`: the tasks of each pod; -1: no limit.",
        example="4096",
    ),
    Key("kubelet.max_pods", types.integer(1, 1 << 20), "`maxPods`.", example="110"),
    Key(
        "kubelet.image_gc_high_threshold_percent",
        types.integer(0, 100),
        "`imageGCHighThresholdPercent`: the disk use, in percent, from which on images go; 100: never.",
        example="80",
    ),
    Key(
        "kubelet.image_gc_low_threshold_percent",
        types.integer(0, 100),
        "`imageGCLowThresholdPercent`: the use, in percent, down to which they go.",
        example="70",
    ),
    Key("kubelet.image_minimum_gc_age", types.DURATION, "`imageMinimumGCAge`.", example="2m"),
    Key(
        "kubelet.image_maximum_gc_age",
        types.DURATION,
        "`imageMaximumGCAge`: an unused image goes after this time; `0s`: no limit (1.29 on).",
        example="30d",
    ),
    Key(
        "kubelet.container_log_max_size",
        quantities.SIZE,
        "`containerLogMaxSize`: the size at which a container's log is rotated.",
        example="10Mi",
    ),
    Key(
        "kubelet.container_log_max_files",
        types.integer(2, 1 << 16),
        "`containerLogMaxFiles`: the files that are kept of a container's log.",
        example="5",
    ),
    Key(
        "kubelet.fail_swap_on",
        types.BOOLEAN,
        "`failSwapOn`: whether the kubelet refuses to start while swap is on.",
        example="false",
    ),
    Key(
        "kubelet.swap_behavior",
        types.choice("NoSwap", "LimitedSwap"),
        "`memorySwap.swapBehavior`: whether pods may use swap.",
        example="LimitedSwap",
    ),
    _later("irq", "Interrupt affinity."),
    _later("boot", "Kernel command line."),
)

# Of these keys of a section exactly one is declared.
EXACTLY_ONE = {
    "cpu.reserved": ("cpus", "count", "cores_per_numa"),
    "cpu.isolated": ("cpus", "cores"),
    "memory.hugepages[]": ("count", "share"),
}

# Names from the kubelet's configuration.
KUBELET_NAMES = {
    "reservedSystemCPUs": "cpu.reserved.cpus",
    "cpuManagerPolicy": "cpu.policy",
    "cpuManagerPolicyOptions": "cpu.options",
    "reservedMemory": "memory.reserved",
    "podPidsLimit": "pids.per_workload",
    "topologyManagerPolicy": "topology.policy",
    "topologyManagerScope": "topology.scope",
    "topologyManagerPolicyOptions": "topology.options",
    "memoryManagerPolicy": "memory.policy",
    "imageGCHighThresholdPercent": "gc.images.high",
    "imageGCLowThresholdPercent": "gc.images.low",
    "imageMinimumGCAge": "gc.images.min_age",
    "imageMaximumGCAge": "gc.images.max_age",
}


class Node(NamedTuple):
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
