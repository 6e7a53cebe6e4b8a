# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# This module is private to the collection corral.node.
"""The grants that follow from a profile, a machine, and the existing grants.

A grant that still fits stays unchanged; only other grants move. If a workload does not fit, the refusal says what is missing, where, and
which workloads have the missing resources. Between two calls only the grants are kept.
"""

from __future__ import annotations

import typing as t

from ..numa import numa_memory
from ..numa.numa_memory import Block
from ..profile.profile_workloads import DECLARED, RUNNING
from ..values import cpuset
from ..values.records import NamedTuple
from .grants import Grant, why_redeclared
from .node_budget import AllocationInput, NodeBudget, Refused
from .placement import memory_demand, place, shared_out, shown
from .resource_requirements import STATIC, ResourceRequirements
from .resources import MEMORY


class WorkloadStatus(NamedTuple):
    """Workloads as observed. Each set contains names of workloads; each mapping has a text for the name of a workload.

    ``alive``: the run has not ended. ``starting``: the run that is about to start, for workloads whose grant lasts as long as a run.
    ``now``: seconds since the epoch. ``lost_memory``: why the granted memory is gone. ``undeclared_stay``: workloads that the profile no
    longer declares keep their grants. ``sharing``: the profile no longer requests exclusive CPUs for the workload, and its run does not use
    the granted CPUs. ``other_units``: the unit that runs in the workload's slice instead of the declared unit. ``evicted``: the workload
    runs without a grant, since its CPUs were reserved or isolated. ``unknown_runs``: the unit that runs with devices of a lost grant.
    """

    alive: frozenset[str] = frozenset()
    starting: t.Mapping[str, str] = {}
    now: int = 0
    lost_memory: t.Mapping[str, str] = {}
    undeclared_stay: bool = False
    sharing: frozenset[str] = frozenset()
    other_units: t.Mapping[str, str] = {}
    evicted: frozenset[str] = frozenset()
    unknown_runs: t.Mapping[str, str] = {}


class Refusal(NamedTuple):
    """Why a workload does not get a grant. ``key``: the workload's key with the refused request. ``value``: the value of this key."""

    workload: str
    key: str
    value: t.Optional[str]
    message: str


class AllocationEvent(NamedTuple):
    """How and why a grant changed. ``before`` is None for a new grant, ``after`` is None for a grant that ended."""

    workload: str
    before: t.Optional[Grant]
    after: t.Optional[Grant]
    reason: str


class AllocationResult(NamedTuple):
    """The wanted grants, the refusals, and the changes of grants."""

    grants: tuple[Grant, ...]
    refusals: tuple[Refusal, ...] = ()
    events: tuple[AllocationEvent, ...] = ()


def allocate(
    inputs: AllocationInput, needs: t.Sequence[ResourceRequirements], granted: t.Sequence[Grant], status: WorkloadStatus
) -> AllocationResult:
    """The grants for these needs, in the order of declaration. If ``granted`` is an earlier result, the result is the same again.

    A refusal may free resources for a workload that was refused before. So if a decision both changes and refuses grants, another decision
    starts from the new grants. The repetition ends: each decision completes more grants than the decision before.
    """
    if any(grant.devices for grant in granted):
        from . import device_placement  # loaded only on nodes where workloads have devices

        running = status.alive.difference(status.starting)
        granted = device_placement.followed(granted, inputs.devices, inputs.undeclared, running)
    result = latest = decide(inputs, needs, granted, status)
    for dummy in needs:
        if not latest.refusals or not latest.events:
            break
        latest = decide(inputs, needs, latest.grants, status)
        # If several decisions refuse a workload, the refusal has the first reason.
        why = {refusal.workload: refusal for refusal in result.refusals}
        refusals = tuple(why.get(refusal.workload, refusal) for refusal in latest.refusals)
        result = AllocationResult(latest.grants, refusals, joined(result.events, latest.events))
    refused = {refusal.workload: f"; refused: {refusal.message}" for refusal in result.refusals}
    events = (event._replace(reason=event.reason + refused.get(event.workload, "")) for event in result.events)
    return result._replace(events=tuple(events))


def joined(first: t.Sequence[AllocationEvent], later: t.Sequence[AllocationEvent]) -> tuple[AllocationEvent, ...]:
    """The changes of two decisions in one list. If both decisions changed a grant, the event has the first decision's reason."""
    events = {event.workload: event for event in first}
    for event in later:
        earlier = events.pop(event.workload, None)
        if earlier is None:
            events[event.workload] = event
        elif earlier.before != event.after:
            events[event.workload] = earlier._replace(after=event.after)
    return tuple(events.values())


def decide(
    inputs: AllocationInput, needs: t.Sequence[ResourceRequirements], granted: t.Sequence[Grant], status: WorkloadStatus
) -> AllocationResult:
    """The result of one decision: attempts are repeated until each refused workload keeps as much of its grant as possible.

    What a refused workload keeps is known only after its refusal. If the attempt has already given these CPUs or this memory to another
    workload, the next attempt first reserves these resources.
    """
    kept_first: dict[str, Refused] = {}
    while True:
        result, crowded = attempt(inputs, needs, granted, status, kept_first)
        if not crowded:
            return result
        kept_first.update(crowded)


def attempt(
    inputs: AllocationInput,
    needs: t.Sequence[ResourceRequirements],
    granted: t.Sequence[Grant],
    status: WorkloadStatus,
    kept_first: t.Mapping[str, Refused],
) -> tuple[AllocationResult, dict[str, Refused]]:
    """The grants. Workloads in ``kept_first`` keep the rest of their grants before other workloads get resources.

    The second result is the refused workloads whose CPUs or memory this attempt gave to other workloads.
    """
    state = Attempt(inputs, needs, status, kept_first)
    for grant in granted:
        state.keep(grant)
    state.end_undeclared()
    # Workloads that had a grant come before workloads without a grant.
    for need in sorted(
        needs, key=lambda need: (need.workload.name not in kept_first, need.workload.name not in state.broken)
    ):
        state.meet(need)
    order = {need.workload.name: index for index, need in enumerate(needs)}
    grants = sorted(
        state.budget.grants.values(), key=lambda grant: (order.get(grant.workload, len(order)), grant.workload)
    )
    return AllocationResult(tuple(grants), tuple(state.refusals), tuple(state.events)), state.crowded


class Attempt:
    """The state of an attempt: the budget, the changes, and the grants that wait for a decision.

    ``broken``: the grants that cannot stay unchanged, with the reason. ``raised``: the grants of workloads that ask their tenant for more.
    """

    def __init__(
        self,
        inputs: AllocationInput,
        needs: t.Sequence[ResourceRequirements],
        status: WorkloadStatus,
        kept_first: t.Mapping[str, Refused],
    ) -> None:
        self.budget = NodeBudget(inputs)
        self.by_name = {need.workload.name: need for need in needs}
        self.status = status
        self.kept_first = kept_first
        self.broken: dict[str, tuple[Grant, str]] = {}
        self.crowded: dict[str, Refused] = {}
        self.raised: dict[str, Grant] = {}
        self.refusals: list[Refusal] = []
        self.events: list[AllocationEvent] = []
        self.refused_alike: dict[t.Hashable, tuple[int, Refused]] = {}

    def changed(self, before: t.Optional[Grant], after: t.Optional[Grant], workload: str, reason: str) -> None:
        self.events.append(AllocationEvent(workload, before, after, reason))

    def keep(self, grant: Grant) -> None:
        """Charge an existing grant to the budget, end the grant, or set the grant aside for a decision."""
        budget, name, status = self.budget, grant.workload, self.status
        need = self.by_name.get(name)
        if name in status.other_units and not why_misplaced(budget, grant):
            budget.reserve(grant)
            return
        ended = why_ended(grant, need, status)
        if ended:
            self.changed(grant, left_while_running(budget, grant, status), name, ended)
            return
        # After a restart on the shared pool no process uses the granted CPUs: the grant loses its CPUs and nothing else.
        gives_up = name in status.sharing
        whole = completed(budget, grant._replace(cpus=cpuset.EMPTY, containers=()) if gives_up else grant, need)
        why = why_broken(budget, whole, need, status) or status.lost_memory.get(name, "")
        if need is not None and need.member is not None and raised_in_tenant(budget, whole, need, status):
            self.raised[name] = whole
            budget.reserve(whole)
        elif why:
            self.broken[name] = (whole, why)
            budget.devices.give(name, whole.devices)  # No other workload gets these devices before the decision.
            if whole.cpus and is_running(name, status):
                budget.left[name] = whole.cpus
        else:
            kept = renewed(whole, need, status)
            budget.reserve(seen_again(budget, kept))
            if kept != grant:
                reason = "it does not run on its CPUs any more" if gives_up else why_redeclared(grant, kept)
                self.changed(grant, kept, name, reason)

    def end_undeclared(self) -> None:
        """End the broken grants of workloads that the profile no longer declares."""
        for name, (grant, why) in self.broken.items():
            if name not in self.by_name:
                self.budget.devices.give(name, ())
                self.changed(grant, left_while_running(self.budget, grant, self.status), name, why)

    def meet(self, need: ResourceRequirements) -> None:
        """Grant what a workload needs, or refuse the workload."""
        name, status = need.workload.name, self.status
        if name in status.other_units:
            unit = status.other_units[name]
            message = f"{unit} still runs under this name, in its slice: stop {unit} first, or take another name"
            self.refusals.append(Refusal(name, "match.unit", need.workload.pattern, message))
            return
        if name in self.raised:
            before = self.raised[name]
            more, refusal = raise_grant(self.budget, need, before, status)
            self.refusals += [refusal] if refusal else []
            if more != before or not refusal:
                self.changed(before, more, name, why_redeclared(before, more))
            return
        had, reason = self.broken.get(name, (None, "granted"))
        wanted = need.workload.hold == DECLARED or name in status.starting or (had is not None and name in status.alive)
        if name in self.budget.grants or not wanted:
            return
        try:
            if name in self.kept_first:
                raise self.kept_first[name]
            grant = admit_as_others(self.budget, need, had, status, self.refused_alike)
        except Refused as refused:
            self.refuse(need, had, refused, reason)
            return
        self.changed(had, grant, name, reason)

    def refuse(self, need: ResourceRequirements, before: t.Optional[Grant], refused: Refused, reason: str) -> None:
        """Refuse a workload; the workload keeps what remains of its grant."""
        budget, name = self.budget, need.workload.name
        self.refusals.append(Refusal(name, refused.key, refused.value, str(refused)))
        budget.devices.give(name, ())
        budget.left.pop(name, None)
        rest = remaining_grant(budget, need, before, self.status)
        if before is not None and name not in self.kept_first:
            if taken_by_others(budget, need, before, rest, self.status):
                self.crowded[name] = refused
        if rest is not None:
            budget.reserve(rest)
        if before is not None and rest != before:
            self.changed(before, rest, name, reason)


def raised_in_tenant(budget: NodeBudget, grant: Grant, need: ResourceRequirements, status: WorkloadStatus) -> bool:
    """Whether a grant could stay unchanged, but its workload asks the tenant for more than before."""
    from ..tenants import tenant, tenant_admission  # A node without tenants does not load these modules.

    lost = grant.workload in status.lost_memory or why_misplaced(budget, grant)
    own = tenant.named(budget.inputs.profile.tenants, need.tenant)
    return not lost and tenant_admission.is_raised(grant, need, own)


def raise_grant(
    budget: NodeBudget, need: ResourceRequirements, before: Grant, status: WorkloadStatus
) -> tuple[Grant, t.Optional[Refusal]]:
    """A larger grant for a workload of a tenant. After a refusal: the old grant (counted in the declared tenant) and the refusal."""
    budget.take_back(before)
    try:
        return admit(budget, need, before, status), None
    except Refused as refused:
        kept = before if before.tenant == need.tenant else before._replace(member=need.member)
        budget.reserve(kept)
        return kept, Refusal(need.workload.name, refused.key, refused.value, str(refused))


def why_ended(grant: Grant, need: t.Optional[ResourceRequirements], status: WorkloadStatus) -> str:
    """Why a grant has ended; an empty string for a grant that lasts. A grant for a run lasts as long as that run."""
    if grant.workload in status.starting:
        return ""
    if grant.hold == RUNNING and grant.workload not in status.alive:
        return "its run has ended"
    if grant.hold == DECLARED and need is None and not status.undeclared_stay:
        return "no longer declared"
    if (
        grant.hold == DECLARED
        and need is not None
        and need.workload.hold == RUNNING
        and grant.workload not in status.alive
    ):
        return "its grant lasts while it runs, and it does not run"
    return ""


def left_while_running(budget: NodeBudget, grant: Grant, status: WorkloadStatus) -> t.Optional[Grant]:
    """The rest of an ended grant, charged to the budget: the devices while the workload runs; None without devices or without a run."""
    if not grant.devices or not is_running(grant.workload, status):
        return None
    from . import device_placement  # loaded only on nodes where workloads have devices

    rest = device_placement.devices_only(grant)._replace(hold=RUNNING)
    budget.reserve(rest)
    return rest


def is_running(workload: str, status: WorkloadStatus) -> bool:
    """Whether a workload runs, except for a workload that is about to start."""
    return workload in status.alive and workload not in status.starting


def seen_again(budget: NodeBudget, grant: Grant) -> Grant:
    """A grant with the present keys of its devices."""
    if not grant.devices:
        return grant
    from ..devices import device_allocation

    return grant._replace(devices=device_allocation.refreshed(grant.devices, budget.devices_by_id()))


def renewed(grant: Grant, need: t.Optional[ResourceRequirements], status: WorkloadStatus) -> Grant:
    """A grant that stays, with the values of the present declaration and run; nothing new is allocated."""
    if need is None:
        return grant
    grant = grant._replace(hold=need.workload.hold, requests=need.requests, limits=need.limits, member=need.member)
    return grant._replace(instance=instance_of(need, grant, status), unit=need.workload.unit)


def instance_of(need: ResourceRequirements, before: t.Optional[Grant], status: WorkloadStatus) -> str:
    """The run that a grant is for; an empty string for a grant that lasts as long as the workload is declared."""
    if need.workload.hold != RUNNING:
        return ""
    return status.starting.get(need.workload.name, before.instance if before is not None else "")


def completed(budget: NodeBudget, grant: Grant, need: t.Optional[ResourceRequirements]) -> Grant:
    """A grant that was read from a slice, completed with the workload's containers and memory.

    A running workload stays on its CPUs and NUMA nodes, even if other CPUs would be chosen today. A workload that keeps only some of its
    CPUs keeps its memory as well: no other workload gets this memory.
    """
    if need is None or (need.cpus and not grant.cpus) or grant.blocks or grant.containers:
        return grant
    wanted = memory_demand(budget.inputs, need)
    if bool(wanted) != (grant.mems is not None):
        return grant
    try:
        blocks = numa_memory.allocate(budget.inputs.memory, budget.blocks, wanted, grant.mems) if wanted else ()
        whole = need.workload.containers and len(grant.cpus) == need.cpus
        containers = shared_out(budget, need, grant.cpus) if whole else ()
    except ValueError:
        return grant
    there = cpuset.EMPTY.union(*(block.nodes for block in blocks))
    return grant._replace(blocks=blocks, containers=containers) if there == (grant.mems or there) else grant


def why_broken(budget: NodeBudget, grant: Grant, need: t.Optional[ResourceRequirements], status: WorkloadStatus) -> str:
    """Why a grant cannot stay as it is; an empty string if the grant can stay."""
    if need is None:
        return why_lost(budget, grant)
    if grant.cpus and not need.cpus and grant.workload in status.alive and keeps_run(budget):
        return why_misplaced(budget, grant)
    if len(grant.cpus) != need.cpus:
        return f"{need.cpus or 'no'} CPUs of its own are declared, it has {len(grant.cpus) or 'none'}"
    # compared as mappings, since the checkpoint does not keep the order of containers
    declared = {container.name: count for container, count in need.containers if container.name}
    if {name: len(cpus) for name, cpus in grant.containers} != declared:
        return "its declared containers changed"
    if any(amount > dict(grant.requests).get(resource, 0) for resource, amount in need.requests):
        return "more is declared"
    wanted = memory_demand(budget.inputs, need)
    if (
        sorted((block.resource, block.size) for block in grant.blocks) != sorted(wanted.items())
        and sums(grant.blocks) != wanted
    ):
        return "other amounts of memory are declared"
    if (need.devices or grant.devices) and grant.workload not in status.unknown_runs:
        from . import device_placement

        running, starting = is_running(grant.workload, status), grant.workload in status.starting
        why = device_placement.why_broken(budget, grant, need, running=running, starting=starting)
        if why:
            return why
    return why_misplaced(budget, grant)


def keeps_run(budget: NodeBudget) -> bool:
    """Whether running workloads keep their exclusive CPUs without a request: the policy is no longer static."""
    cpu = budget.inputs.profile.cpu
    return cpu is None or cpu.policy != STATIC


def why_lost(budget: NodeBudget, grant: Grant) -> str:
    """Why a grant cannot have its CPUs, whatever the options of the profile are; an empty string if the grant can have its CPUs.

    The run of a workload that is no longer declared loses its CPUs for these reasons only.
    """
    lost = grant.cpus - budget.inputs.assignable
    if lost:
        online = budget.inputs.pools.online
        what = "reserved or isolated" if lost <= online else "offline"
        return f"CPUs {cpuset.format(lost)} are {what} now"
    taken = grant.cpus - budget.free
    if taken:
        return f"CPUs {cpuset.format(taken)} belong to another grant"
    return "" if budget.shared_without(grant.cpus) else "the shared pool would have no CPU"


def why_misplaced(budget: NodeBudget, grant: Grant) -> str:
    """Why a grant can no longer have its CPUs under the options of the profile; an empty string if the grant can have its CPUs."""
    lost = why_lost(budget, grant)
    if lost:
        return lost
    cpu = budget.inputs.profile.cpu
    split = grant.cpus and budget.inputs.topology.siblings_of(grant.cpus) - grant.cpus
    if split and cpu is not None and cpu.options.full_pcpus_only:
        return f"whole cores are asked for, and it lacks CPUs {cpuset.format(split)}"
    if not budget.may_keep(grant.cpus):
        return "the shared pool would be too small"
    return ""


def remaining_grant(
    budget: NodeBudget, need: ResourceRequirements, before: t.Optional[Grant], status: WorkloadStatus
) -> t.Optional[Grant]:
    """What a broken grant keeps until a new decision: its CPUs that still exist and are free, and its devices while the workload runs.

    A workload that is about to start keeps nothing, and does not start.
    """
    if before is None or need.workload.name in status.starting:
        return None
    devices = before.devices if is_running(need.workload.name, status) else ()
    left = before.cpus & budget.free if need.cpus else cpuset.EMPTY
    if left and budget.may_keep(left):
        return before._replace(cpus=left, containers=(), devices=devices)
    if not devices:
        return None
    from . import device_placement

    return device_placement.devices_only(before)


def taken_by_others(
    budget: NodeBudget,
    need: ResourceRequirements,
    before: Grant,
    rest: t.Optional[Grant],
    status: WorkloadStatus,
) -> bool:
    """Whether a refused workload would have kept more if this attempt had decided on the workload first."""
    if need.workload.name in status.starting or not need.cpus:
        return False
    taken = (before.cpus & budget.inputs.assignable) - budget.free
    # If other grants make the shared pool too small, the shared pool takes the CPUs that this workload would have kept.
    given_up = cpuset.EMPTY if rest and rest.cpus else before.cpus & budget.free
    return bool(taken | given_up) or (
        rest is not None and numa_memory.is_crowded(budget.inputs.memory, budget.blocks, rest.blocks)
    )


def admit(budget: NodeBudget, need: ResourceRequirements, before: t.Optional[Grant], status: WorkloadStatus) -> Grant:
    """A grant with what a workload needs, charged to the budget. Raises Refused."""
    run = status.unknown_runs.get(need.workload.name)
    if run:
        message = f"{run} runs with devices of a grant that is lost: stop {run}, and start it after the next tick"
        raise Refused("requests", None, message)
    if need.member is not None or need.barred:
        from ..tenants import tenant_admission  # A node without tenants does not load this module.

        tenant_admission.check(budget, need, before)
    budget.check_totals(need, before)
    name = need.workload.name
    running = before is not None and is_running(name, status)
    affinity, cpus, containers, devices = place(budget, need, before, running=running)
    if before is not None and running:
        # A running workload keeps all its devices, also for resources and containers that are no longer declared.
        devices = (*devices, *(device for device in before.devices if device not in devices))
    blocks: tuple[Block, ...] = ()
    wanted = memory_demand(budget.inputs, need)
    if wanted:
        try:
            blocks = numa_memory.allocate(
                budget.inputs.memory, budget.blocks, wanted, affinity.nodes, holders=budget.block_holders
            )
        except ValueError as error:
            raise Refused("requests.memory", shown(need, MEMORY), str(error)) from None
    mems = cpuset.EMPTY.union(*(block.nodes for block in blocks)) if blocks else None
    hold = need.workload.hold
    instance = instance_of(need, before, status)
    since = before.since if before else status.now
    grant = Grant(
        name,
        hold,
        instance,
        cpus,
        containers,
        mems,
        blocks,
        need.requests,
        need.limits,
        since,
        need.member,
        need.workload.unit,
        devices,
    )
    budget.reserve(grant)
    return grant


def admit_as_others(
    budget: NodeBudget,
    need: ResourceRequirements,
    before: t.Optional[Grant],
    status: WorkloadStatus,
    known: dict[t.Hashable, tuple[int, Refused]],
) -> Grant:
    """The result of admit(). While the budget is unchanged, a refused request of the same amounts is refused again without a search.

    So Corral decides quickly on a pattern with many units. ``known``: the refusals, each with the version of the budget.
    """
    if before is not None or need.devices or need.member is not None or budget.left:
        return admit(budget, need, before, status)  # The result depends on which workload asks.
    alike = need._replace(workload=need.workload._replace(name="", pattern=""))
    version, refused = known.get(alike, (-1, None))
    if refused is not None and version == budget.version:
        raise Refused(refused.key, refused.value, str(refused))
    try:
        return admit(budget, need, before, status)
    except Refused as error:
        known[alike] = (budget.version, error)
        raise


def refused_alone(inputs: AllocationInput, need: ResourceRequirements) -> t.Optional[Refusal]:
    """Why a workload cannot have what it requests even on a node without other workloads; None if nothing is in the way."""
    try:
        admit(NodeBudget(inputs), need, None, WorkloadStatus())
    except Refused as refused:
        return Refusal(need.workload.name, refused.key, refused.value, str(refused))
    return None


def sums(blocks: t.Iterable[Block]) -> dict[str, int]:
    """The sum of the bytes of each resource."""
    sizes: dict[str, int] = {}
    for block in blocks:
        sizes[block.resource] = sizes.get(block.resource, 0) + block.size
    return sizes
