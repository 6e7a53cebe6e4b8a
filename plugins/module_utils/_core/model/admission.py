# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# This module is private to the collection corral.node.
"""Who gets what: the grants that a profile comes to on a machine, given those that are there.

A grant that still fits stays as it is, whatever else changed; only the broken ones move. What does not fit is refused
with what is missing, where, and who has it. Nothing here is remembered between two calls but the grants themselves.
"""

from __future__ import annotations

import typing as t

from . import allocation, cpuset, numa_memory, qos, topology_manager
from .affinity import Affinity, Demand, Policy, decide
from .cpu_topology import CpuTopology
from .cpuset import CpuSet
from .grants import Grant
from .needs import STATIC, Need
from .numa_memory import Block
from .pools import Pools
from .profile import Profile
from .profile_workloads import CPU, DECLARED, HUGEPAGES, INIT, MEMORY, PIDS, RUNNING, Amounts, amount_text
from .schema_types import about_text
from .topology import Topology

NO_POLICY = Policy("none")


class Machine(t.NamedTuple):
    """What grants are made of: the compiled profile on this machine. ``memory`` has the bytes that may be granted by node
    and resource, ``pids`` the tasks (None: not known).
    Where a ``kubelet`` runs, only CPUs that it gives to no pod (``not_kubelets``) can be granted to anybody alone.
    """

    profile: Profile
    topology: Topology
    view: CpuTopology
    pools: Pools
    memory: t.Mapping[int, t.Mapping[str, int]]
    pids: t.Optional[int] = None
    kubelet: str = ""
    not_kubelets: t.Optional[CpuSet] = None

    @property
    def policy(self) -> Policy:
        """The topology manager's policy."""
        return self.profile.topology or NO_POLICY

    @property
    def assignable(self) -> CpuSet:
        """The CPUs that may become somebody's own."""
        cpus = self.pools.online - self.pools.reserved - self.pools.isolated
        return cpus if self.not_kubelets is None else cpus & self.not_kubelets


class Facts(t.NamedTuple):
    """What is seen of workloads. ``alive`` are those whose run has not ended; ``asked`` has those that are about to start
    with a hold of their own, and which run that is.
    """

    alive: frozenset[str] = frozenset()
    asked: t.Mapping[str, str] = {}
    now: int = 0
    lost_memory: t.Mapping[str, str] = {}
    undeclared_stay: bool = False


class Refusal(t.NamedTuple):
    """Why a workload does not get what it asks for. ``key`` is the key of the workload that says so."""

    workload: str
    key: str
    value: str
    message: str


class Told(t.NamedTuple):
    """What became of a grant and why; either side is None where there was none, or is none."""

    workload: str
    before: t.Optional[Grant]
    after: t.Optional[Grant]
    reason: str


class Settlement(t.NamedTuple):
    """The grants that are to be, why some are not, and what changes."""

    grants: tuple[Grant, ...]
    refusals: tuple[Refusal, ...] = ()
    told: tuple[Told, ...] = ()


def settle(machine: Machine, needs: t.Sequence[Need], held: t.Sequence[Grant], facts: Facts) -> Settlement:
    """The grants for these needs, in the order in which they are declared."""
    desk = Desk(machine)
    by_name = {need.workload.name: need for need in needs}
    broken: dict[str, tuple[Grant, str]] = {}
    told: list[Told] = []
    for grant in held:
        ended = why_ended(grant, by_name.get(grant.workload), facts)
        if ended:
            told.append(Told(grant.workload, grant, None, ended))
            continue
        need = by_name.get(grant.workload)
        whole = desk.completed(grant, need)
        why = desk.why_broken(whole, need, facts) or facts.lost_memory.get(grant.workload, "")
        if why:
            broken[grant.workload] = (grant, why)
            continue
        kept = renewed(whole, need, facts)
        desk.book(kept)
        if kept != grant:
            told.append(Told(grant.workload, grant, kept, "declared anew"))
    told += [Told(name, before, None, why) for name, (before, why) in broken.items() if name not in by_name]
    refusals = []
    # Who had something comes before who is new.
    for need in sorted(needs, key=lambda need: need.workload.name not in broken):
        name = need.workload.name
        before, reason = broken.get(name, (None, "granted"))
        wanted = need.workload.hold == DECLARED or name in facts.asked or (before is not None and name in facts.alive)
        if name in desk.grants or not wanted:
            continue
        try:
            grant = desk.admit(need, before, facts)
        except Refused as refused:
            refusals.append(Refusal(name, refused.key, refused.value, str(refused)))
            rest = desk.remnant(need, before, facts)
            if rest is not None:
                desk.book(rest)
            if before is not None and rest != before:
                told.append(Told(name, before, rest, f"{reason}; refused: {refused}"))
            continue
        told.append(Told(name, before, grant, reason))
    order = {need.workload.name: index for index, need in enumerate(needs)}
    grants = sorted(desk.grants.values(), key=lambda grant: (order.get(grant.workload, len(order)), grant.workload))
    return Settlement(tuple(grants), tuple(refusals), tuple(told))


def why_ended(grant: Grant, need: t.Optional[Need], facts: Facts) -> str:
    """Why a grant is over; "" while it lasts. What was granted for a run lasts as long as that run."""
    if grant.workload in facts.asked:
        return ""
    if grant.hold == RUNNING and grant.workload not in facts.alive:
        return "its run has ended"
    if grant.hold == DECLARED and need is None and not facts.undeclared_stay:
        return "no longer declared"
    if (
        grant.hold == DECLARED
        and need is not None
        and need.workload.hold == RUNNING
        and grant.workload not in facts.alive
    ):
        return "it holds what it has while it runs, and does not run"
    return ""


def renewed(grant: Grant, need: t.Optional[Need], facts: Facts) -> Grant:
    """The grant as it goes on: for the run that asks, with what is declared now where that is no more to carve out."""
    if need is None:
        return grant
    grant = grant._replace(hold=need.workload.hold, requests=need.requests, limits=need.limits)
    return grant._replace(instance=facts.asked.get(grant.workload, grant.instance if grant.hold == RUNNING else ""))


class Refused(Exception):
    """A workload cannot have what it asks for; the text says what is missing and the way out."""

    def __init__(self, key: str, value: str, message: str) -> None:
        super().__init__(message)
        self.key = key
        self.value = value


class Desk:
    """What is granted so far, and what is left."""

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        self.grants: dict[str, Grant] = {}
        self.given: dict[str, int] = {}
        self.free = machine.assignable
        self.shared = machine.pools.online - machine.pools.reserved - machine.pools.isolated

    def book(self, grant: Grant) -> None:
        """Count a grant in."""
        self.grants[grant.workload] = grant
        for resource, amount in counted(grant):
            self.given[resource] = self.given.get(resource, 0) + amount
        self.free -= grant.cpus
        self.shared -= grant.cpus

    @property
    def blocks(self) -> list[Block]:
        """All memory that is promised on NUMA nodes."""
        return [block for grant in self.grants.values() for block in grant.blocks]

    # Grants that are there

    def completed(self, grant: Grant, need: t.Optional[Need]) -> Grant:
        """A grant that the slices alone tell of, with the containers and the memory that belong to it.

        Who runs stays where it is, whatever would be chosen for it now.
        """
        if need is None or len(grant.cpus) != need.cpus or grant.blocks or grant.containers:
            return grant
        wanted = promised(self.machine, need)
        if bool(wanted) != (grant.mems is not None):
            return grant
        try:
            blocks = numa_memory.allocate(self.machine.memory, self.blocks, wanted, grant.mems) if wanted else ()
            containers = self.shared_out(need, grant.cpus) if need.cpus and need.workload.containers else ()
        except ValueError:
            return grant
        there = cpuset.EMPTY.union(*(block.nodes for block in blocks))
        return grant._replace(blocks=blocks, containers=containers) if there == (grant.mems or there) else grant

    def why_broken(self, grant: Grant, need: t.Optional[Need], facts: Facts) -> str:
        """Why a grant cannot go on as it is; "" when it can."""
        if need is None:
            return self.why_misplaced(grant)
        if grant.cpus and not need.cpus and grant.workload in facts.alive and self.keeps_run(need):
            return self.why_misplaced(grant)
        if len(grant.cpus) != need.cpus:
            return f"{need.cpus or 'no'} CPUs of its own are declared, it has {len(grant.cpus) or 'none'}"
        if tuple(name for name, dummy in grant.containers) != tuple(
            one.name for one, dummy in need.containers if one.name
        ):
            return "its containers are declared otherwise"
        if any(amount > dict(grant.requests).get(resource, 0) for resource, amount in need.requests):
            return "more is declared"
        wanted = promised(self.machine, need)
        if (
            sorted((block.resource, block.size) for block in grant.blocks) != sorted(wanted.items())
            and sums(grant.blocks) != wanted
        ):
            return "other amounts of memory are declared"
        return self.why_misplaced(grant)

    def keeps_run(self, need: Need) -> bool:
        """Whether a run keeps the CPUs that it has although none are given out any more (policy static → none)."""
        cpu = self.machine.profile.cpu
        return cpu is None or cpu.policy != STATIC

    def why_misplaced(self, grant: Grant) -> str:
        """Why its CPUs or nodes cannot be its own any more."""
        lost = grant.cpus - self.machine.assignable
        if lost:
            online = self.machine.pools.online
            what = "reserved or isolated" if lost <= online else "offline"
            return f"CPUs {cpuset.format(lost)} are {what} now"
        taken = grant.cpus - self.free
        if taken:
            return f"CPUs {cpuset.format(taken)} are somebody else's"
        cpu = self.machine.profile.cpu
        split = grant.cpus and self.machine.topology.siblings_of(grant.cpus) - grant.cpus
        if split and cpu is not None and cpu.options.full_pcpus_only:
            return f"whole cores are asked for, and it lacks CPUs {cpuset.format(split)}"
        if len(self.shared_without(grant.cpus)) < self.min_shared:
            return "the shared pool would be too small"
        return ""

    def remnant(self, need: Need, before: t.Optional[Grant], facts: Facts) -> t.Optional[Grant]:
        """What a grant that cannot be made whole keeps meanwhile: the CPUs that are still there, and nobody else's.

        Who is about to start has nothing to keep, and does not start.
        """
        if before is None or not need.cpus or need.workload.name in facts.asked:
            return None
        left = before.cpus & self.free
        if len(self.shared_without(left)) < self.min_shared:
            return None
        return before._replace(cpus=left, containers=()) if left else None

    # New ones

    def admit(self, need: Need, before: t.Optional[Grant], facts: Facts) -> Grant:
        """Grant what a workload needs. Raises Refused."""
        self.check_totals(need, before)
        name = need.workload.name
        affinity, cpus, containers = self.place(need, before)
        blocks: tuple[Block, ...] = ()
        wanted = promised(self.machine, need)
        if wanted:
            held = {grant.workload: grant.blocks for grant in self.grants.values() if grant.blocks}
            try:
                blocks = numa_memory.allocate(self.machine.memory, self.blocks, wanted, affinity.nodes, holders=held)
            except ValueError as error:
                raise Refused("requests.memory", shown(need, MEMORY), str(error)) from None
        mems = cpuset.EMPTY.union(*(block.nodes for block in blocks)) if blocks else None
        hold = need.workload.hold
        instance = facts.asked.get(name, before.instance if before and hold == RUNNING else "")
        since = before.since if before else facts.now
        grant = Grant(name, hold, instance, cpus, containers, mems, blocks, need.requests, need.limits, since)
        self.book(grant)
        return grant

    def check_totals(self, need: Need, before: t.Optional[Grant]) -> None:
        """The requests of all admitted workloads stay within what the node can give. Raises Refused.

        What somebody had stays his, even where the node has less than it had.
        """
        capacity = self.capacity()
        had = dict(before.requests) if before else {}
        for resource, asked in need.requests:
            if asked > had.get(resource, 0):
                self.check_total(need, f"requests.{resource}", resource, asked, capacity.get(resource))
        pids = dict(need.limits).get(PIDS)
        if pids is not None and pids > (dict(before.limits).get(PIDS, 0) if before else 0):
            self.check_total(need, "limits.pids", PIDS, pids, self.machine.pids)

    def check_total(self, need: Need, key: str, resource: str, asked: int, total: t.Optional[int]) -> None:
        if total is None:
            return
        left = total - self.given.get(resource, 0)
        if asked <= left:
            return
        amounts = {name: dict(counted(grant)).get(resource, 0) for name, grant in self.grants.items()}
        holders = {name: amount for name, amount in amounts.items() if amount}
        missing = amount_text(resource, asked - left) if resource in (CPU, PIDS) else about_text(asked - left)
        given = amount_text(resource, total) if resource in (CPU, PIDS) else about_text(total)
        raise Refused(
            key, amount_text(resource, asked),
            f"{missing} missing: this node can give {given or '0'} in all"
            f"{', ' + holders_text(resource, holders) if holders else ''}: ask for less, reserve less, or release one of them",
        )  # fmt: skip

    def capacity(self) -> dict[str, int]:
        """Allocatable = capacity − reserved, by resource."""
        pools = self.machine.pools
        found = {CPU: 1000 * len(pools.online - pools.reserved - pools.isolated)}
        for table in self.machine.memory.values():
            for resource, size in table.items():
                found[resource] = found.get(resource, 0) + size
        return found

    @property
    def min_shared(self) -> int:
        """The CPUs that stay shared."""
        cpu = self.machine.profile.cpu
        return cpu.min_shared if cpu else 1

    def shared_without(self, cpus: CpuSet) -> CpuSet:
        """Where shared workloads would run once ``cpus`` are gone as well."""
        left = self.shared - cpus
        return left if self.machine.pools.strict else left | self.machine.pools.reserved

    # Placing

    def place(self, need: Need, before: t.Optional[Grant]) -> tuple[Affinity, CpuSet, tuple[tuple[str, CpuSet], ...]]:
        """Nodes and CPUs for a need; CPUs that it had and may keep are taken first. Raises Refused."""
        held = (before.cpus & self.free) if before else cpuset.EMPTY
        if need.qos != qos.GUARANTEED:
            return Affinity(None, True, True, ()), cpuset.EMPTY, ()
        if need.cpus:
            self.check_cpus(need)
        if len(need.containers) < 2 or self.machine.policy.scope == "pod":
            affinity = self.affinity(need, need.cpus, held)
            return affinity, *self.take_all(need, affinity, held)
        try:
            return self.place_each(need)
        except Refused:
            # An init container that was placed first may have left no room for the others: the pod as a whole.
            affinity = self.affinity(need, need.cpus, held)
            return affinity, *self.take_all(need, affinity, held)

    def check_cpus(self, need: Need) -> None:
        """What no placing can mend: too few CPUs left, or a count that whole cores cannot make. Raises Refused."""
        cpu, asked = self.machine.profile.cpu, need.cpus
        left = len(self.free)
        if asked > left:
            said = f"{asked - left} CPUs missing: {left} are free{self.who_has()}"
            if self.machine.kubelet:
                said += (
                    f"; {self.machine.kubelet} runs here and gives the others to pods: only its reservedSystemCPUs can be "
                    "granted, under its static policy with strict-cpu-reservation"
                )
            raise Refused("requests.cpu", str(asked), said)
        if cpu is not None and cpu.options.full_pcpus_only:
            problem = allocation.smt_problem(self.machine.view, self.free, self.machine.pools.reserved, asked)
            if problem:
                raise Refused("requests.cpu", str(asked), f"{problem} (cpu.options.full-pcpus-only)")
        if len(self.shared_without(cpuset.EMPTY)) - asked < self.min_shared:
            raise Refused(
                "requests.cpu", str(asked),
                f"the shared pool would be left with fewer than {self.min_shared} CPUs (cpu.shared.min_cpus): ask for fewer, "
                f"or reserve fewer{self.who_has()}",
            )  # fmt: skip

    def affinity(self, need: Need, cpus: int, held: CpuSet) -> Affinity:
        """The NUMA nodes that the topology manager chooses. Raises Refused."""
        policy = self.machine.policy
        if policy.name == "none":
            return Affinity(None, True, True, ())
        demands = []
        if cpus:
            by_node = {node: members for node, members in self.machine.topology.node_cpus().items() if members}
            own = {node: len(members) for node, members in by_node.items()}
            usable = self.usable(self.free | held)
            free = {node: len(members & usable) for node, members in by_node.items()}
            demands.append(Demand(CPU, cpus, own, free, socket_of=self.sockets()))
        wanted = promised(self.machine, need)
        demands += numa_memory.demands(self.machine.memory, self.blocks, wanted) if wanted else []
        if not demands:
            return Affinity(None, True, True, ())
        nodes = sorted({*self.machine.topology.node_cpus(), *self.machine.memory})
        if topology_manager.too_many_nodes(policy.name, len(nodes), policy.max_nodes):
            raise Refused(
                "requests", shown(need, CPU),
                f"topology policy {policy.name} is for at most {policy.max_nodes} NUMA nodes here, this machine has "
                f"{len(nodes)}: raise topology.options.max-allowable-numa-nodes",
            )  # fmt: skip
        found = decide(policy, demands, nodes, distances(self.machine.topology))
        if not found.admitted:
            raise Refused(
                "requests",
                shown(need, CPU),
                f"topology policy {policy.name}: {'; '.join(found.reasons)}{self.who_has()}",
            )
        return found

    def usable(self, free: CpuSet) -> CpuSet:
        """The free CPUs that may be given out: with full-pcpus-only those of cores that are free as a whole."""
        cpu = self.machine.profile.cpu
        if cpu is None or not cpu.options.full_pcpus_only:
            return free
        cores = self.machine.topology.cores
        return (free - cpuset.EMPTY.union(*cores)).union(*(core for core in cores if core <= free))

    def sockets(self) -> t.Optional[dict[int, int]]:
        """The socket of each NUMA node that has CPUs, where CPUs are aligned to sockets."""
        cpu = self.machine.profile.cpu
        if cpu is None or not cpu.options.align_by_socket:
            return None
        return {info.numa: info.socket for info in self.machine.view.cpus.values()}

    def take_all(self, need: Need, affinity: Affinity, held: CpuSet) -> tuple[CpuSet, tuple[tuple[str, CpuSet], ...]]:
        """The CPUs of a workload as a whole, and of its containers among them."""
        if not need.cpus:
            return cpuset.EMPTY, ()
        cpus = self.take(self.free, need.cpus, affinity, held)
        if not need.workload.containers:
            return cpus, ()
        return cpus, self.shared_out(need, cpus)

    def take(self, free: CpuSet, count: int, affinity: Affinity, held: CpuSet = cpuset.EMPTY) -> CpuSet:
        """``count`` of the free CPUs; those that the workload had are kept as far as they fit."""
        cpu = self.machine.profile.cpu
        assert cpu is not None
        near = held & self.machine_cpus(affinity.nodes) if affinity.nodes is not None else held
        if cpu.options.full_pcpus_only:
            # A CPU that was offline comes back to the core that it left.
            closed = self.machine.topology.siblings_of(near)
            near = closed if closed <= free | near else self.usable(near)
        try:
            found = self.take_more(free, count, affinity, near)
        except ValueError as error:
            raise Refused("requests.cpu", str(count), f"{error}{self.who_has()}") from None
        outside = found - self.machine_cpus(affinity.nodes) if affinity.nodes is not None else cpuset.EMPTY
        if outside and self.machine.policy.name == topology_manager.SINGLE_NUMA_NODE:
            message = f"no {count} CPUs of NUMA node {cpuset.format(affinity.nodes or ())} can be given out together"
            raise Refused(
                "requests.cpu", str(count), f"topology policy {self.machine.policy.name}: {message}{self.who_has()}"
            )
        return found

    def take_more(self, free: CpuSet, count: int, affinity: Affinity, near: CpuSet) -> CpuSet:
        """``count`` CPUs with as many of the ``near`` ones as can be; where they cannot be completed, others altogether.

        Raises ValueError.
        """
        cpu = self.machine.profile.cpu
        assert cpu is not None
        try:
            if len(near) >= count:
                return allocation.allocate(self.machine.view, near, count, cpu.options, affinity=affinity.nodes)
            rest = count - len(near)
            return near | allocation.allocate(
                self.machine.view, free - near, rest, cpu.options, affinity=affinity.nodes
            )
        except ValueError:
            return allocation.allocate(self.machine.view, free, count, cpu.options, affinity=affinity.nodes)

    def machine_cpus(self, nodes: t.Optional[frozenset[int]]) -> CpuSet:
        """All CPUs of some NUMA nodes."""
        by_node = self.machine.topology.node_cpus()
        return cpuset.EMPTY.union(*(by_node.get(node, cpuset.EMPTY) for node in nodes or ()))

    def shared_out(self, need: Need, cpus: CpuSet) -> tuple[tuple[str, CpuSet], ...]:
        """The CPUs of each container out of the pod's: those of an init container are free again for all after it."""
        cpu = self.machine.profile.cpu
        assert cpu is not None
        left, found = cpus, []
        for container, count in need.containers:
            own = allocation.allocate(self.machine.view, left, count, cpu.options) if count else cpuset.EMPTY
            found.append((container.name, own))
            if container.role != INIT:
                left -= own
        return tuple(found)

    def place_each(self, need: Need) -> tuple[Affinity, CpuSet, tuple[tuple[str, CpuSet], ...]]:
        """Container by container, each with its own nodes, as the kubelet does; CPUs of init containers are used again."""
        free, reusable, found = self.free, cpuset.EMPTY, []
        nodes: set[int] = set()
        cpu = self.machine.profile.cpu
        assert cpu is not None
        for container, count in need.containers:
            own = cpuset.EMPTY
            if count:
                one = need._replace(requests=container.requests, limits=container.limits, cpus=count)
                affinity = self.affinity(one, count, reusable)
                own = self.take(free | reusable, count, affinity, reusable)
                nodes |= affinity.nodes or set()
            found.append((container.name, own))
            free -= own
            reusable = reusable | own if container.role == INIT else reusable - own
        everything = cpuset.EMPTY.union(*(own for dummy, own in found))
        if len(everything) > need.cpus:
            message = "placed one by one its containers would take more CPUs than the pod needs"
            raise Refused("requests.cpu", str(need.cpus), message)
        return Affinity(frozenset(nodes) or None, True, True, ()), everything, tuple(found)

    # Words

    def who_has(self) -> str:
        """Who holds CPUs of its own, by NUMA node what is free."""
        by_node = self.machine.topology.node_cpus()
        free = ", ".join(f"node {node}: {len(cpus & self.free)}" for node, cpus in sorted(by_node.items()) if cpus)
        holders = [f"{grant.workload} has {cpuset.format(grant.cpus)}" for grant in self.grants.values() if grant.cpus]
        return f" (free: {free}{'; ' + ', '.join(holders) if holders else ''})"


def counted(grant: Grant) -> Amounts:
    """What of a grant the node's budget is charged with: its requests, and the tasks that it may have."""
    return (*grant.requests, *((name, amount) for name, amount in grant.limits if name == PIDS))


def promised(machine: Machine, need: Need) -> dict[str, int]:
    """The memory and hugepages that NUMA nodes must have for it: a Guaranteed workload's, under the static policy."""
    if need.qos != qos.GUARANTEED or machine.profile.memory.policy != STATIC:
        return {}
    return {name: amount for name, amount in need.requests if name == MEMORY or name.startswith(HUGEPAGES)}


def sums(blocks: t.Iterable[Block]) -> dict[str, int]:
    """Bytes by resource."""
    found: dict[str, int] = {}
    for block in blocks:
        found[block.resource] = found.get(block.resource, 0) + block.size
    return found


def shown(need: Need, resource: str) -> str:
    """What is asked for of a resource."""
    return amount_text(resource, dict(need.requests).get(resource, 0))


def holders_text(resource: str, holders: t.Mapping[str, int]) -> str:
    """Who has how much: ``a has 4, b has 2``."""
    return ", ".join(f"{name} has {amount_text(resource, amount)}" for name, amount in sorted(holders.items()))


def distances(topology: Topology) -> t.Optional[topology_manager.Distances]:
    """NUMA distances by node, as far as the kernel tells them."""
    if topology.distances is None or topology.distance_nodes is None:
        return None
    return topology_manager.distances_of(topology.distance_nodes, topology.distances)
