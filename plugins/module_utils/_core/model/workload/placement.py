# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# This module is private to the collection corral.node.
"""Places a workload: the topology manager chooses NUMA nodes, then the workload or each of its containers gets CPUs and devices."""

from __future__ import annotations

import typing as t

from ..cpu import allocation
from ..numa import numa_memory, topology_manager
from ..numa.affinity import Affinity, decide
from ..numa.node_sets import Demand
from ..profile.profile_workloads import INIT, Container
from ..topology.topology import Topology
from ..values import cpuset
from ..values.cpuset import CpuSet
from ..values.records import NamedTuple
from . import qos
from .grants import Grant
from .node_budget import AllocationInput, NodeBudget, Refused
from .resource_requirements import STATIC, ResourceRequirements
from .resources import CPU, HUGEPAGES, MEMORY, amount_text

if t.TYPE_CHECKING:
    from ..devices.device import GrantedDevice
    from .device_placement import DevicePool

ANYWHERE = Affinity(None, True, True, ())


class Placement(NamedTuple):
    """The NUMA nodes of a workload (``affinity``), its CPUs, the CPUs of each container of a pod, and its devices."""

    affinity: Affinity
    cpus: CpuSet = cpuset.EMPTY
    containers: tuple[tuple[str, CpuSet], ...] = ()
    devices: tuple[GrantedDevice, ...] = ()


def place(
    budget: NodeBudget, need: ResourceRequirements, before: t.Optional[Grant], *, running: bool = False
) -> Placement:
    """The nodes, CPUs and devices for a need. The workload keeps its former CPUs and devices as far as possible; while ``running`` it keeps
    all its devices.

    The first choice is free CPUs on the NUMA nodes of the former CPUs, the second choice free CPUs on any node. The last choice also has
    CPUs on which other workloads still run. Raises Refused.
    """
    everything, beside = budget.free, budget.free_beside_others(need.workload.name)
    for free in (beside & near_cpus(budget, before), beside):
        if free and free != everything:
            budget.free = free
            try:
                return place_among(budget, need, before, running=running)
            except Refused:
                continue
            finally:
                budget.free = everything
    return place_among(budget, need, before, running=running)


def near_cpus(budget: NodeBudget, before: t.Optional[Grant]) -> CpuSet:
    """All CPUs of the NUMA nodes on which a workload can keep CPUs; empty without such CPUs, and under the topology policy "none"."""
    kept = (before.cpus & budget.free) if before else cpuset.EMPTY
    if not kept or budget.inputs.policy.name == "none":
        return cpuset.EMPTY
    return cpuset.EMPTY.union(*(cpus for cpus in budget.inputs.topology.node_cpus().values() if cpus & kept))


def place_among(
    budget: NodeBudget, need: ResourceRequirements, before: t.Optional[Grant], *, running: bool
) -> Placement:
    """The result of place(), but without a preference among the CPUs that are free in the budget. Raises Refused."""
    kept = (before.cpus & budget.free) if before else cpuset.EMPTY
    pool = device_pool(budget, need, before, running=running)
    if need.qos != qos.GUARANTEED and pool is None:
        return Placement(ANYWHERE)
    if need.cpus:
        check_cpus(budget, need)
    if len(members_of(need)) < 2 or budget.inputs.policy.scope == topology_manager.POD:
        return place_whole(budget, need, pool, kept)
    try:
        return place_each(budget, need, pool)
    except Refused:
        # An init container that was placed first may leave no room for the other containers: place the pod as a whole.
        return place_whole(budget, need, device_pool(budget, need, before, running=running), kept)


def device_pool(
    budget: NodeBudget, need: ResourceRequirements, before: t.Optional[Grant], *, running: bool
) -> t.Optional[DevicePool]:
    """The devices that a workload may get; None if the workload requests no devices. Raises Refused."""
    if not need.devices:
        return None
    from . import device_placement  # A node without devices for workloads does not load this module.

    return device_placement.DevicePool(budget, need, before, running=running)


def members_of(need: ResourceRequirements) -> tuple[tuple[Container, int], ...]:
    """The containers that are placed one after the other, each with its number of exclusive CPUs."""
    if need.containers or not need.devices:
        return need.containers
    return tuple((container, 0) for container in need.workload.containers)


def place_whole(
    budget: NodeBudget, need: ResourceRequirements, pool: t.Optional[DevicePool], kept: CpuSet
) -> Placement:
    """The placement of all containers on the NUMA nodes of the workload as a whole. Raises Refused."""
    demands = pool.whole(need, numa_nodes(budget)) if pool else []
    affinity = affinity_of(budget, need, need.cpus, kept, demands)
    cpus, containers = take_all(budget, need, affinity, kept)
    if pool is None:
        return Placement(affinity, cpus, containers)
    for row in need.devices:
        pool.take(*row, affinity.nodes)
    return Placement(affinity, cpus, containers, tuple(pool.taken))


def check_cpus(budget: NodeBudget, need: ResourceRequirements) -> None:
    """Raises Refused if too few CPUs are left, or if the number of CPUs does not fit whole cores."""
    asked = need.cpus
    left = len(budget.free)
    if asked > left:
        said = f"{asked - left} CPUs missing: {left} are free{budget.holders_note()}"
        said += f"; {budget.inputs.kubelet}" if budget.inputs.kubelet else ""
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


def numa_nodes(budget: NodeBudget) -> list[int]:
    """The NUMA nodes of the machine."""
    return sorted({*budget.inputs.topology.node_cpus(), *budget.inputs.memory})


def affinity_of(
    budget: NodeBudget, need: ResourceRequirements, cpus: int, kept: CpuSet, of_devices: t.Sequence[Demand] = ()
) -> Affinity:
    """The NUMA nodes that the topology manager chooses for the requested resources. Raises Refused."""
    policy = budget.inputs.policy
    if policy.name == "none":
        return ANYWHERE
    demands = []
    if cpus:
        by_node = {node: members for node, members in budget.inputs.topology.node_cpus().items() if members}
        own = {node: len(members) for node, members in by_node.items()}
        whole = usable(budget, budget.free | kept)
        free = {node: len(members & whole) for node, members in by_node.items()}
        demands.append(Demand(CPU, cpus, own, free, socket_of=sockets(budget)))
    wanted = memory_demand(budget.inputs, need)
    demands += numa_memory.demands(budget.inputs.memory, budget.blocks, wanted) if wanted else []
    demands += of_devices
    if not demands:
        return ANYWHERE
    nodes = numa_nodes(budget)
    if topology_manager.too_many_nodes(policy.name, len(nodes), policy.max_nodes):
        raise Refused(
            "requests", requests_text(need),
            f"topology policy {policy.name} is for at most {policy.max_nodes} NUMA nodes here, this machine has "
            f"{len(nodes)}: raise topology.options.max-allowable-numa-nodes",
        )  # fmt: skip
    affinity = decide(policy, demands, nodes, distances(budget.inputs.topology))
    if not affinity.admitted:
        raise Refused(
            "requests",
            requests_text(need),
            f"topology policy {policy.name}: {'; '.join(affinity.reasons)}{budget.holders_note() if cpus else ''}: ask for less, "
            "release a workload, or declare another topology.policy",
        )
    return affinity


def usable(budget: NodeBudget, free: CpuSet) -> CpuSet:
    """The CPUs of ``free`` that can be granted; with full-pcpus-only the CPUs of cores that are free as a whole."""
    if not budget.inputs.options.full_pcpus_only:
        return free
    cores = budget.inputs.topology.cores
    return (free - cpuset.EMPTY.union(*cores)).union(*(core for core in cores if core <= free))


def sockets(budget: NodeBudget) -> t.Optional[dict[int, int]]:
    """The socket of each NUMA node with CPUs; None without the option align-by-socket."""
    if not budget.inputs.options.align_by_socket:
        return None
    return {info.numa: info.socket for info in budget.inputs.view.cpus.values()}


def take_all(
    budget: NodeBudget, need: ResourceRequirements, affinity: Affinity, kept: CpuSet
) -> tuple[CpuSet, tuple[tuple[str, CpuSet], ...]]:
    """The CPUs of the whole workload, and for a pod the CPUs of each container."""
    if not need.cpus:
        return cpuset.EMPTY, ()
    cpus = take(budget, budget.free, need.cpus, affinity, kept)
    if not need.workload.containers:
        return cpus, ()
    return cpus, shared_out(budget, need, cpus)


def take(budget: NodeBudget, free: CpuSet, count: int, affinity: Affinity, kept: CpuSet = cpuset.EMPTY) -> CpuSet:
    """``count`` of the free CPUs, with as many of the workload's former CPUs (``kept``) as fit. Raises Refused."""
    options = budget.inputs.options
    near = kept & machine_cpus(budget, affinity.nodes) if affinity.nodes is not None else kept
    if options.full_pcpus_only:
        # Prefer the former cores as a whole: a sibling CPU may have been offline.
        closed = budget.inputs.topology.siblings_of(near)
        near = closed if closed <= free | near else usable(budget, near)
    try:
        taken = take_more(budget, free, count, affinity, near)
    except ValueError as error:
        raise Refused("requests.cpu", str(count), f"{error}{budget.holders_note()}") from None
    outside = taken - machine_cpus(budget, affinity.nodes) if affinity.nodes is not None else cpuset.EMPTY
    if outside and budget.inputs.policy.name == topology_manager.SINGLE_NUMA_NODE:
        message = f"no {count} CPUs of NUMA node {cpuset.format(affinity.nodes or ())} can be given out together"
        raise Refused(
            "requests.cpu", str(count), f"topology policy {budget.inputs.policy.name}: {message}{budget.holders_note()}"
        )
    return taken


def take_more(budget: NodeBudget, free: CpuSet, count: int, affinity: Affinity, near: CpuSet) -> CpuSet:
    """``count`` CPUs with as many CPUs of ``near`` as possible; if this fails, ``count`` of all free CPUs. Raises ValueError."""
    options = budget.inputs.options
    try:
        if len(near) >= count:
            return allocation.allocate(budget.inputs.view, near, count, options, affinity=affinity.nodes)
        rest = count - len(near)
        return near | allocation.allocate(budget.inputs.view, free - near, rest, options, affinity=affinity.nodes)
    except ValueError:
        return allocation.allocate(budget.inputs.view, free, count, options, affinity=affinity.nodes)


def machine_cpus(budget: NodeBudget, nodes: t.Optional[frozenset[int]]) -> CpuSet:
    """All CPUs of the NUMA nodes ``nodes``."""
    by_node = budget.inputs.topology.node_cpus()
    return cpuset.EMPTY.union(*(by_node.get(node, cpuset.EMPTY) for node in nodes or ()))


def shared_out(budget: NodeBudget, need: ResourceRequirements, cpus: CpuSet) -> tuple[tuple[str, CpuSet], ...]:
    """The pod's CPUs divided among its containers. Later containers may use the CPUs of an init container again."""
    options = budget.inputs.options
    left, containers = cpus, []
    for container, count in need.containers:
        own = allocation.allocate(budget.inputs.view, left, count, options) if count else cpuset.EMPTY
        containers.append((container.name, own))
        if container.role != INIT:
            left -= own
    return tuple(containers)


def place_each(budget: NodeBudget, need: ResourceRequirements, pool: t.Optional[DevicePool]) -> Placement:
    """The placement of each container on NUMA nodes of its own, as in the kubelet. Later containers reuse the CPUs of init containers."""
    free, reusable, placed = budget.free, cpuset.EMPTY, []
    nodes: set[int] = set()
    devices = {name: amounts for name, dummy, amounts in need.devices}
    for container, count in members_of(need):
        own = cpuset.EMPTY
        amounts = devices.get(container.name, ())
        if count or amounts:
            part = need._replace(requests=container.requests, limits=container.limits, cpus=count)
            demands = pool.of_container(container.name, amounts, numa_nodes(budget)) if pool else []
            affinity = affinity_of(budget, part, count, reusable, demands)
            own = take(budget, free | reusable, count, affinity, reusable) if count else cpuset.EMPTY
            if pool is not None:
                pool.take(container.name, container.role, amounts, affinity.nodes)
            nodes |= affinity.nodes or set()
        if need.containers:
            placed.append((container.name, own))
        free -= own
        reusable = reusable | own if container.role == INIT else reusable - own
    everything = cpuset.EMPTY.union(*(own for dummy, own in placed))
    if len(everything) > need.cpus:
        message = "placed one by one its containers would take more CPUs than the pod needs"
        raise Refused("requests.cpu", str(need.cpus), message)
    affinity = Affinity(frozenset(nodes) or None, True, True, ())
    return Placement(affinity, everything, tuple(placed), tuple(pool.taken) if pool else ())


def memory_demand(inputs: AllocationInput, need: ResourceRequirements) -> dict[str, int]:
    """The memory and hugepages that the chosen NUMA nodes must have; empty unless the workload is Guaranteed and the policy static."""
    if need.qos != qos.GUARANTEED or inputs.profile.memory.policy != STATIC:
        return {}
    return {name: amount for name, amount in need.requests if name == MEMORY or name.startswith(HUGEPAGES)}


def shown(need: ResourceRequirements, resource: str) -> str:
    """The requested amount of a resource as text."""
    return amount_text(resource, dict(need.requests).get(resource, 0))


def requests_text(need: ResourceRequirements) -> str:
    """All requests on one line: ``cpu 2, memory 64Mi, example.com/nic 1``."""
    return ", ".join(f"{resource} {amount_text(resource, amount)}" for resource, amount in need.requests)


def distances(topology: Topology) -> t.Optional[topology_manager.Distances]:
    """The NUMA distances by node; None if the kernel does not report distances."""
    if topology.distances is None or topology.distance_nodes is None:
        return None
    return topology_manager.distances_of(topology.distance_nodes, topology.distances)
