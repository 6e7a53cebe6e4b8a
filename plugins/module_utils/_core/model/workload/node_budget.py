# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# This module is private to the collection corral.node.
"""The node's budget: what can be granted, and how much is left.

Allocatable = capacity − reserved, as in the kubelet. The requests of all admitted workloads together never exceed the allocatable amount.
"""

from __future__ import annotations

import types
import typing as t

from ..cpu import cpu_options
from ..cpu.pools import Pools
from ..devices.device import Device
from ..devices.held_devices import HeldDevices
from ..numa.numa_memory import Block
from ..numa.topology_manager import Policy
from ..profile.profile import Profile
from ..topology.cpu_topology import CpuTopology
from ..topology.topology import Topology
from ..values import cpuset
from ..values.cpuset import CpuSet
from ..values.listing import listed
from ..values.records import NamedTuple
from .grants import Grant
from .resource_requirements import ResourceRequirements
from .resources import CPU, PIDS, Amounts, about, amount_text

NO_POLICY = Policy("none")


class AllocationInput(NamedTuple):
    """What can be granted: the effective profile on this machine.

    ``memory``: the bytes that may be granted, by node and resource. ``pids``: the number of tasks that may be granted (None: unknown).
    ``kubelet``: a note on this node's kubelet, for refusals. ``not_kubelets``: the CPUs that the kubelet gives to no pod; with a kubelet,
    no other CPUs can be granted exclusively. ``taken``: CPUs of partitions that are not Corral's; no grant can have these CPUs.
    ``requested``: CPUs that other unmanaged control groups request; a new grant gets these CPUs only if no other CPUs fit, and the
    validator then refuses the grant and names these control groups. ``devices``: the devices of each resource. ``undeclared``: granted
    devices that no resource has any more. ``devices_elsewhere``: for each resource, notes on matching devices that an earlier resource has.
    """

    profile: Profile
    topology: Topology
    view: CpuTopology
    pools: Pools
    memory: t.Mapping[int, t.Mapping[str, int]]
    pids: t.Optional[int] = None
    kubelet: str = ""
    not_kubelets: t.Optional[CpuSet] = None
    taken: CpuSet = frozenset()
    requested: CpuSet = frozenset()
    devices: t.Mapping[str, tuple[Device, ...]] = types.MappingProxyType({})
    undeclared: tuple[Device, ...] = ()
    devices_elsewhere: t.Mapping[str, tuple[str, ...]] = types.MappingProxyType({})

    @property
    def policy(self) -> Policy:
        """The policy of the topology manager."""
        return self.profile.topology or NO_POLICY

    @property
    def options(self) -> cpu_options.Options:
        """The options of the CPU manager."""
        return self.profile.cpu.options if self.profile.cpu else cpu_options.DEFAULT

    @property
    def assignable(self) -> CpuSet:
        """The CPUs that can be granted to workloads."""
        cpus = self.pools.allocatable - self.taken
        return cpus if self.not_kubelets is None else cpus & self.not_kubelets


class Refused(Exception):
    """A workload cannot have what it requests. The text says what is missing and what to do; ``value`` is the declared value, if any."""

    def __init__(self, key: str, value: t.Optional[str], message: str) -> None:
        super().__init__(message)
        self.key = key
        self.value = value


class NodeBudget:
    """The grants so far, and what is left of CPUs, devices and counted resources."""

    def __init__(self, inputs: AllocationInput) -> None:
        self.inputs = inputs
        self.grants: dict[str, Grant] = {}
        self.given: dict[str, int] = {}
        self.free = inputs.assignable
        self.shared = inputs.pools.allocatable
        self.left: dict[str, CpuSet] = {}  # CPUs of running workloads that wait for a decision
        self.devices = HeldDevices()  # also of workloads that wait for a decision
        self.by_id: t.Optional[dict[str, Device]] = None
        self.version = 0  # raised at each change of the budget
        self._blocks: dict[tuple[frozenset[int], str], tuple[int, int]] = {}  # number of blocks and their bytes

    def reserve(self, grant: Grant) -> None:
        """Add a grant to the budget."""
        self.grants[grant.workload] = grant
        self.version += 1
        self._count_blocks(grant, 1)
        self.left.pop(grant.workload, None)
        for resource, amount in counted(grant):
            self.given[resource] = self.given.get(resource, 0) + amount
        self.free -= grant.cpus
        self.shared -= grant.cpus
        self.devices.give(grant.workload, grant.devices)

    def take_back(self, grant: Grant) -> None:
        """Remove a grant from the budget."""
        del self.grants[grant.workload]
        self.version += 1
        self._count_blocks(grant, -1)
        for resource, amount in counted(grant):
            self.given[resource] -= amount
        self.free |= grant.cpus
        self.shared |= grant.cpus

    def free_beside_others(self, workload: str) -> CpuSet:
        """The free CPUs without CPUs that unmanaged control groups request or that other running workloads without a decision have."""
        others = (cpus for name, cpus in self.left.items() if name != workload)
        return self.free.difference(self.inputs.requested, *others)

    def devices_by_id(self) -> dict[str, Device]:
        """The devices of the node by their ids, including devices without a resource."""
        if self.by_id is None:
            several = (*self.inputs.devices.values(), self.inputs.undeclared)
            self.by_id = {device.id: device for devices in several for device in devices}
        return self.by_id

    @property
    def blocks(self) -> list[Block]:
        """The memory granted on NUMA nodes, summed up for each set of nodes and each resource."""
        return [Block(nodes, resource, size) for (nodes, resource), (dummy, size) in self._blocks.items()]

    def block_holders(self) -> dict[str, tuple[Block, ...]]:
        """The granted memory of each workload, for display."""
        return {grant.workload: grant.blocks for grant in self.grants.values() if grant.blocks}

    def _count_blocks(self, grant: Grant, sign: int) -> None:
        for block in grant.blocks:
            count, size = self._blocks.pop((block.nodes, block.resource), (0, 0))
            if count + sign:
                self._blocks[block.nodes, block.resource] = (count + sign, size + sign * block.size)

    def check_totals(self, need: ResourceRequirements, before: t.Optional[Grant]) -> None:
        """Raises Refused if the requests of all admitted workloads would exceed the allocatable amounts.

        A workload keeps the amounts that it had, even if the node has less than before.
        """
        capacity = allocatable(self.inputs.pools, self.inputs.memory)
        had = dict(before.requests) if before else {}
        for resource, asked in need.requests:
            if asked > had.get(resource, 0):
                self.check_total(f"requests.{resource}", resource, asked, capacity.get(resource))
        pids = dict(need.limits).get(PIDS)
        if pids is not None and pids > (dict(before.limits).get(PIDS, 0) if before else 0):
            self.check_total("limits.pids", PIDS, pids, self.inputs.pids)

    def check_total(self, key: str, resource: str, asked: int, total: t.Optional[int]) -> None:
        if total is None:
            return
        left = total - self.given.get(resource, 0)
        if asked <= left:
            return
        amounts = {name: dict(counted(grant)).get(resource, 0) for name, grant in self.grants.items()}
        holders = {name: amount for name, amount in amounts.items() if amount}
        raise Refused(
            key, amount_text(resource, asked),
            f"{about(resource, asked - left)} missing: this node can give {about(resource, total)} in all"
            f"{', ' + holders_text(resource, holders) if holders else ''}: ask for less, reserve less, or release one of them",
        )  # fmt: skip

    @property
    def min_shared(self) -> int:
        """The smallest number of CPUs that must stay in the shared pool."""
        cpu = self.inputs.profile.cpu
        return cpu.min_shared if cpu else 1

    def shared_without(self, cpus: CpuSet) -> CpuSet:
        """The CPUs for shared workloads if ``cpus`` were granted as well."""
        left = self.shared - cpus
        return left if self.inputs.pools.strict else left | self.inputs.pools.reserved

    def may_keep(self, cpus: CpuSet) -> bool:
        """Whether the shared pool stays large enough without the CPUs of an existing grant.

        Offline CPUs count as shared here: a running workload does not lose its grant because CPUs are offline. For a new grant only online
        CPUs count.
        """
        left = self.shared_without(cpus)
        return bool(left) and len(left | self.inputs.topology.offline_present) >= self.min_shared

    def holders_note(self) -> str:
        """A note with the CPUs of each workload and the number of free CPUs of each NUMA node."""
        by_node = self.inputs.topology.node_cpus()
        free = ", ".join(f"node {node}: {len(cpus & self.free)}" for node, cpus in sorted(by_node.items()) if cpus)
        holders = [f"{grant.workload} has {cpuset.format(grant.cpus)}" for grant in self.grants.values() if grant.cpus]
        return f" (free CPUs: {free}{'; ' + listed(holders) if holders else ''})"


def allocatable(pools: Pools, memory: t.Mapping[int, t.Mapping[str, int]]) -> dict[str, int]:
    """The allocatable amounts (capacity − reserved) by resource; ``memory`` has the bytes by node and resource."""
    amounts = {CPU: 1000 * len(pools.allocatable)}
    for table in memory.values():
        for resource, size in table.items():
            amounts[resource] = amounts.get(resource, 0) + size
    return amounts


def counted(grant: Grant) -> Amounts:
    """The amounts of a grant that are charged to the node's budget: the requests, and the limit of tasks."""
    return (*grant.requests, *((name, amount) for name, amount in grant.limits if name == PIDS))


def holders_text(resource: str, holders: t.Mapping[str, int]) -> str:
    """A text with the amount of each workload: ``a has 4, b has 2``."""
    return listed([f"{name} has {amount_text(resource, amount)}" for name, amount in sorted(holders.items())])
