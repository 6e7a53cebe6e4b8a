# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# This module is private to the collection corral.node.
"""Where a workload goes: its NUMA nodes by the topology manager, then its CPUs, and those of a pod's containers."""

from __future__ import annotations

import typing as t

from ..cpu import allocation
from ..numa import numa_memory, topology_manager
from ..numa.affinity import Affinity, decide
from ..numa.node_sets import Demand
from ..profile.profile_workloads import INIT
from ..topology.topology import Topology
from ..values import cpuset
from ..values.cpuset import CpuSet
from . import qos
from .grants import Grant
from .node_budget import AllocationInput, NodeBudget, Refused
from .resource_requirements import STATIC, ResourceRequirements
from .resources import CPU, HUGEPAGES, MEMORY, amount_text


def place(
    budget: NodeBudget, need: ResourceRequirements, before: t.Optional[Grant]
) -> tuple[Affinity, CpuSet, tuple[tuple[str, CpuSet], ...]]:
    """Nodes and CPUs for a need; CPUs that it had and may keep are taken first. Raises Refused."""
    kept = (before.cpus & budget.free) if before else cpuset.EMPTY
    if need.qos != qos.GUARANTEED:
        return Affinity(None, True, True, ()), cpuset.EMPTY, ()
    if need.cpus:
        check_cpus(budget, need)
    if len(need.containers) < 2 or budget.inputs.policy.scope == "pod":
        affinity = affinity_of(budget, need, need.cpus, kept)
        return affinity, *take_all(budget, need, affinity, kept)
    try:
        return place_each(budget, need)
    except Refused:
        # An init container that was placed first may leave no room for the others: place the pod as a whole.
        affinity = affinity_of(budget, need, need.cpus, kept)
        return affinity, *take_all(budget, need, affinity, kept)


def check_cpus(budget: NodeBudget, need: ResourceRequirements) -> None:
    """Refuse what fits nowhere: too few CPUs left, or a count that whole cores cannot make up. Raises Refused."""
    asked = need.cpus
    left = len(budget.free)
    if asked > left:
        said = f"{asked - left} CPUs missing: {left} are free{budget.holders_note()}"
        if budget.inputs.kubelet:
            said += (
                f"; {budget.inputs.kubelet} runs here and gives the others to pods: only its reservedSystemCPUs can be "
                "granted, under its static policy with strict-cpu-reservation"
            )
        raise Refused("requests.cpu", str(asked), said)
    if budget.inputs.options.full_pcpus_only:
        problem = allocation.smt_problem(budget.inputs.view, budget.free, budget.inputs.pools.reserved, asked)
        if problem:
            raise Refused("requests.cpu", str(asked), f"{problem} (cpu.options.full-pcpus-only)")
    if len(budget.shared_without(cpuset.EMPTY)) - asked < budget.min_shared:
        raise Refused(
            "requests.cpu", str(asked),
            f"the shared pool would be left with fewer than {budget.min_shared} CPUs (cpu.shared.min_cpus): ask for fewer, "
            f"or reserve fewer{budget.holders_note()}",
        )  # fmt: skip


def affinity_of(budget: NodeBudget, need: ResourceRequirements, cpus: int, kept: CpuSet) -> Affinity:
    """The NUMA nodes that the topology manager chooses. Raises Refused."""
    policy = budget.inputs.policy
    if policy.name == "none":
        return Affinity(None, True, True, ())
    demands = []
    if cpus:
        by_node = {node: members for node, members in budget.inputs.topology.node_cpus().items() if members}
        own = {node: len(members) for node, members in by_node.items()}
        whole = usable(budget, budget.free | kept)
        free = {node: len(members & whole) for node, members in by_node.items()}
        demands.append(Demand(CPU, cpus, own, free, socket_of=sockets(budget)))
    wanted = memory_demand(budget.inputs, need)
    demands += numa_memory.demands(budget.inputs.memory, budget.blocks, wanted) if wanted else []
    if not demands:
        return Affinity(None, True, True, ())
    nodes = sorted({*budget.inputs.topology.node_cpus(), *budget.inputs.memory})
    if topology_manager.too_many_nodes(policy.name, len(nodes), policy.max_nodes):
        raise Refused(
            "requests", shown(need, CPU),
            f"topology policy {policy.name} is for at most {policy.max_nodes} NUMA nodes here, this machine has "
            f"{len(nodes)}: raise topology.options.max-allowable-numa-nodes",
        )  # fmt: skip
    found = decide(policy, demands, nodes, distances(budget.inputs.topology))
    if not found.admitted:
        raise Refused(
            "requests",
            shown(need, CPU),
            f"topology policy {policy.name}: {'; '.join(found.reasons)}{budget.holders_note()}",
        )
    return found


def usable(budget: NodeBudget, free: CpuSet) -> CpuSet:
    """The free CPUs that may be given out: with full-pcpus-only those of cores that are free as a whole."""
    if not budget.inputs.options.full_pcpus_only:
        return free
    cores = budget.inputs.topology.cores
    return (free - cpuset.EMPTY.union(*cores)).union(*(core for core in cores if core <= free))


def sockets(budget: NodeBudget) -> t.Optional[dict[int, int]]:
    """The socket of each NUMA node that has CPUs, where CPUs are aligned to sockets."""
    if not budget.inputs.options.align_by_socket:
        return None
    return {info.numa: info.socket for info in budget.inputs.view.cpus.values()}


def take_all(
    budget: NodeBudget, need: ResourceRequirements, affinity: Affinity, kept: CpuSet
) -> tuple[CpuSet, tuple[tuple[str, CpuSet], ...]]:
    """The CPUs of a workload as a whole, and of its containers among them."""
    if not need.cpus:
        return cpuset.EMPTY, ()
    cpus = take(budget, budget.free, need.cpus, affinity, kept)
    if not need.workload.containers:
        return cpus, ()
    return cpus, shared_out(budget, need, cpus)


def take(budget: NodeBudget, free: CpuSet, count: int, affinity: Affinity, kept: CpuSet = cpuset.EMPTY) -> CpuSet:
    """``count`` of the free CPUs; those that the workload had are kept as far as they fit."""
    options = budget.inputs.options
    near = kept & machine_cpus(budget, affinity.nodes) if affinity.nodes is not None else kept
    if options.full_pcpus_only:
        # A CPU that was offline comes back to the core that it left.
        closed = budget.inputs.topology.siblings_of(near)
        near = closed if closed <= free | near else usable(budget, near)
    try:
        found = take_more(budget, free, count, affinity, near)
    except ValueError as error:
        raise Refused("requests.cpu", str(count), f"{error}{budget.holders_note()}") from None
    outside = found - machine_cpus(budget, affinity.nodes) if affinity.nodes is not None else cpuset.EMPTY
    if outside and budget.inputs.policy.name == topology_manager.SINGLE_NUMA_NODE:
        message = f"no {count} CPUs of NUMA node {cpuset.format(affinity.nodes or ())} can be given out together"
        raise Refused(
            "requests.cpu", str(count), f"topology policy {budget.inputs.policy.name}: {message}{budget.holders_note()}"
        )
    return found


def take_more(budget: NodeBudget, free: CpuSet, count: int, affinity: Affinity, near: CpuSet) -> CpuSet:
    """``count`` CPUs with as many of the ``near`` ones as possible; where these cannot be completed, all are other CPUs.

    Raises ValueError.
    """
    options = budget.inputs.options
    try:
        if len(near) >= count:
            return allocation.allocate(budget.inputs.view, near, count, options, affinity=affinity.nodes)
        rest = count - len(near)
        return near | allocation.allocate(budget.inputs.view, free - near, rest, options, affinity=affinity.nodes)
    except ValueError:
        return allocation.allocate(budget.inputs.view, free, count, options, affinity=affinity.nodes)


def machine_cpus(budget: NodeBudget, nodes: t.Optional[frozenset[int]]) -> CpuSet:
    """All CPUs of some NUMA nodes."""
    by_node = budget.inputs.topology.node_cpus()
    return cpuset.EMPTY.union(*(by_node.get(node, cpuset.EMPTY) for node in nodes or ()))


def shared_out(budget: NodeBudget, need: ResourceRequirements, cpus: CpuSet) -> tuple[tuple[str, CpuSet], ...]:
    """The CPUs of each container out of the pod's: those of an init container are free again for all after it."""
    options = budget.inputs.options
    left, found = cpus, []
    for container, count in need.containers:
        own = allocation.allocate(budget.inputs.view, left, count, options) if count else cpuset.EMPTY
        found.append((container.name, own))
        if container.role != INIT:
            left -= own
    return tuple(found)


def place_each(
    budget: NodeBudget, need: ResourceRequirements
) -> tuple[Affinity, CpuSet, tuple[tuple[str, CpuSet], ...]]:
    """Container by container, each with its own nodes, as the kubelet does; CPUs of init containers are used again."""
    free, reusable, found = budget.free, cpuset.EMPTY, []
    nodes: set[int] = set()
    for container, count in need.containers:
        own = cpuset.EMPTY
        if count:
            one = need._replace(requests=container.requests, limits=container.limits, cpus=count)
            affinity = affinity_of(budget, one, count, reusable)
            own = take(budget, free | reusable, count, affinity, reusable)
            nodes |= affinity.nodes or set()
        found.append((container.name, own))
        free -= own
        reusable = reusable | own if container.role == INIT else reusable - own
    everything = cpuset.EMPTY.union(*(own for dummy, own in found))
    if len(everything) > need.cpus:
        message = "placed one by one its containers would take more CPUs than the pod needs"
        raise Refused("requests.cpu", str(need.cpus), message)
    return Affinity(frozenset(nodes) or None, True, True, ()), everything, tuple(found)


def memory_demand(inputs: AllocationInput, need: ResourceRequirements) -> dict[str, int]:
    """The memory and hugepages that NUMA nodes must have for it: a Guaranteed workload's, under the static policy."""
    if need.qos != qos.GUARANTEED or inputs.profile.memory.policy != STATIC:
        return {}
    return {name: amount for name, amount in need.requests if name == MEMORY or name.startswith(HUGEPAGES)}


def shown(need: ResourceRequirements, resource: str) -> str:
    """What is asked for of a resource."""
    return amount_text(resource, dict(need.requests).get(resource, 0))


def distances(topology: Topology) -> t.Optional[topology_manager.Distances]:
    """NUMA distances by node, as far as the kernel reports them."""
    if topology.distances is None or topology.distance_nodes is None:
        return None
    return topology_manager.distances_of(topology.distance_nodes, topology.distances)
