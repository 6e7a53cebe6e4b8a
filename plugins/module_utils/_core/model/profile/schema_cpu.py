# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# This module is private to the collection corral.node.
"""The keys of the section ``cpu``: the CPU pools, and the options of the CPU manager."""

from __future__ import annotations

from . import schema_types as types
from .schema_key import LIST, Key

HOUSEKEEPING_SLICES = ("system.slice", "user.slice", "init.scope")
SHARED_SLICES = ("machine.slice",)

KEYS: tuple[Key, ...] = (
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
        field="number",
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
        field="shared_slices",
    ),
    Key(
        "cpu.shared.min_cpus",
        types.integer(1, types.CPU_LIMIT),
        "The CPUs that the shared pool keeps at least: an exclusive grant that would leave fewer is refused.",
        example="2",
        default=1,
        field="min_shared",
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
        word="place",
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
        quiet=True,
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
        "After a change back to `report`, a unit that was confined keeps a request for CPUs until it stops, because the kernel "
        "cannot drop one. Corral sets this request to the CPUs that the unit requested before. If it requested none, Corral sets it "
        "to all CPUs that no grant has, again at each change of the grants. CPUs that are set by hand there are overwritten.",
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
)
