# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# This module is private to the collection corral.node.
"""The grants that follow from a profile on a machine and from its existing grants.

A grant that still fits stays as it is, whatever else changed; only the others move. A workload that does not fit is refused
with what is missing, where, and which workloads have it. The grants are the only state between two calls.
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
    """Workloads as observed. ``alive`` are those whose run has not ended; ``starting`` has those that are about to start
    with a hold of their own, and which run that is. ``sharing`` are those without CPUs of their own declared that
    run, but not on the CPUs of their grant: on the shared pool, or in another slice with their devices. ``other_units`` has the
    names under which another unit still runs than is declared.
    ``unknown_runs`` has those that run with devices of a grant that is lost, each with its unit.
    ``evicted`` are those that run without a grant, since their CPUs were reserved or isolated.
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
    """Why a workload does not get what it requests. ``key`` is the key of the workload with the request."""

    workload: str
    key: str
    value: t.Optional[str]
    message: str


class AllocationEvent(NamedTuple):
    """How a grant changed and why. Without a grant before, or after, that side is None."""

    workload: str
    before: t.Optional[Grant]
    after: t.Optional[Grant]
    reason: str


class AllocationResult(NamedTuple):
    """The wanted grants, the refusals, and the changes."""

    grants: tuple[Grant, ...]
    refusals: tuple[Refusal, ...] = ()
    events: tuple[AllocationEvent, ...] = ()


def allocate(
    inputs: AllocationInput, needs: t.Sequence[ResourceRequirements], granted: t.Sequence[Grant], status: WorkloadStatus
) -> AllocationResult:
    """The grants for these needs, in the order in which they are declared. Decided again, it is the same.

    What one workload was refused may be free once a later one is refused too: as long as a decision changes grants and
    refuses some, the next one is made from it. Each makes more grants whole than the one before, so that it ends.
    """
    if any(grant.devices for grant in granted):
        from . import device_placement  # As in placement.py.

        running = status.alive.difference(status.starting)
        granted = device_placement.followed(granted, inputs.devices, inputs.undeclared, running)
    found = latest = decide(inputs, needs, granted, status)
    for dummy in needs:
        if not latest.refusals or not latest.events:
            break
        latest = decide(inputs, needs, latest.grants, status)
        # The first decision says why, in the order of the declaration.
        why = {one.workload: one for one in found.refusals}
        refusals = tuple(why.get(one.workload, one) for one in latest.refusals)
        found = AllocationResult(latest.grants, refusals, joined(found.events, latest.events))
    refused = {one.workload: f"; refused: {one.message}" for one in found.refusals}
    events = (one._replace(reason=one.reason + refused.get(one.workload, "")) for one in found.events)
    return found._replace(events=tuple(events))


def joined(first: t.Sequence[AllocationEvent], later: t.Sequence[AllocationEvent]) -> tuple[AllocationEvent, ...]:
    """What two decisions changed together, for the reasons of the first where there are some."""
    events = {one.workload: one for one in first}
    for one in later:
        earlier = events.pop(one.workload, None)
        if earlier is None:
            events[one.workload] = one
        elif earlier.before != one.after:
            events[one.workload] = earlier._replace(after=one.after)
    return tuple(events.values())


def decide(
    inputs: AllocationInput, needs: t.Sequence[ResourceRequirements], granted: t.Sequence[Grant], status: WorkloadStatus
) -> AllocationResult:
    """One decision.

    What a workload keeps of a grant that cannot be made whole is known when it is refused. Where another workload was given
    those CPUs or that memory before, the whole decision is made again with them reserved.
    """
    kept_first: dict[str, Refused] = {}
    while True:
        found, crowded = attempt(inputs, needs, granted, status, kept_first)
        if not crowded:
            return found
        kept_first.update(crowded)


def attempt(
    inputs: AllocationInput,
    needs: t.Sequence[ResourceRequirements],
    granted: t.Sequence[Grant],
    status: WorkloadStatus,
    kept_first: t.Mapping[str, Refused],
) -> tuple[AllocationResult, dict[str, Refused]]:
    """The grants, where these refused workloads keep what is left of theirs before others are given any.

    Also returns the refused workloads whose CPUs or memory others were given before.
    """
    budget = NodeBudget(inputs)
    by_name = {need.workload.name: need for need in needs}
    broken: dict[str, tuple[Grant, str]] = {}
    crowded: dict[str, Refused] = {}
    raised: dict[str, Grant] = {}
    events: list[AllocationEvent] = []
    refused_alike: dict[t.Hashable, tuple[int, Refused]] = {}
    for grant in granted:
        if grant.workload in status.other_units and not why_misplaced(budget, grant):
            budget.reserve(grant)
            continue
        ended = why_ended(grant, by_name.get(grant.workload), status)
        if ended:
            events.append(AllocationEvent(grant.workload, grant, left_while_running(budget, grant, status), ended))
            continue
        need = by_name.get(grant.workload)
        # After Restart= on the shared pool no process runs on the granted CPUs: they go back, all else of the grant stays.
        gives_up = grant.workload in status.sharing
        whole = completed(budget, grant._replace(cpus=cpuset.EMPTY, containers=()) if gives_up else grant, need)
        why = why_broken(budget, whole, need, status) or status.lost_memory.get(grant.workload, "")
        if need is not None and need.member is not None and raised_in_tenant(budget, whole, need, status):
            raised[grant.workload] = whole
            budget.reserve(whole)
            continue
        if why:
            broken[grant.workload] = (whole, why)
            budget.devices.give(grant.workload, whole.devices)  # Until it is decided on, no other workload gets them.
            if whole.cpus and is_running(grant.workload, status):
                budget.left[grant.workload] = whole.cpus
            continue
        kept = renewed(whole, need, status)
        budget.reserve(seen_again(budget, kept))
        if kept != grant:
            reason = "it does not run on its CPUs any more" if gives_up else why_redeclared(grant, kept)
            events.append(AllocationEvent(grant.workload, grant, kept, reason))
    for name, (grant, why) in broken.items():
        if name not in by_name:
            budget.devices.give(name, ())
            events.append(AllocationEvent(name, grant, left_while_running(budget, grant, status), why))
    refusals = []
    # Workloads that had a grant come before new ones.
    for need in sorted(
        needs, key=lambda need: (need.workload.name not in kept_first, need.workload.name not in broken)
    ):
        name = need.workload.name
        if name in status.other_units:
            unit = status.other_units[name]
            message = f"{unit} still runs under this name, in its slice: stop {unit} first, or take another name"
            refusals.append(Refusal(name, "match.unit", need.workload.pattern, message))
            continue
        if name in raised:
            more, refusal = raise_grant(budget, need, raised[name], status)
            refusals += [refusal] if refusal else []
            changes = more != raised[name] or not refusal
            events += [AllocationEvent(name, raised[name], more, why_redeclared(raised[name], more))] if changes else []
            continue
        before, reason = broken.get(name, (None, "granted"))
        wanted = (
            need.workload.hold == DECLARED or name in status.starting or (before is not None and name in status.alive)
        )
        if name in budget.grants or not wanted:
            continue
        try:
            if name in kept_first:
                raise kept_first[name]
            grant = admit_as_others(budget, need, before, status, refused_alike)
        except Refused as refused:
            refusals.append(Refusal(name, refused.key, refused.value, str(refused)))
            budget.devices.give(name, ())
            budget.left.pop(name, None)
            rest = remaining_grant(budget, need, before, status)
            if name not in kept_first and before is not None and taken_by_others(budget, need, before, rest, status):
                crowded[name] = refused
            if rest is not None:
                budget.reserve(rest)
            if before is not None and rest != before:
                events.append(AllocationEvent(name, before, rest, reason))
            continue
        events.append(AllocationEvent(name, before, grant, reason))
    order = {need.workload.name: index for index, need in enumerate(needs)}
    grants = sorted(budget.grants.values(), key=lambda grant: (order.get(grant.workload, len(order)), grant.workload))
    return AllocationResult(tuple(grants), tuple(refusals), tuple(events)), crowded


def raised_in_tenant(budget: NodeBudget, grant: Grant, need: ResourceRequirements, status: WorkloadStatus) -> bool:
    """Whether a grant that could go on as it is belongs to a workload that asks its tenant for more by now."""
    from ..tenants import tenant, tenant_admission  # A node without tenants does not load them.

    lost = grant.workload in status.lost_memory or why_misplaced(budget, grant)
    own = tenant.named(budget.inputs.profile.tenants, need.tenant)
    return not lost and tenant_admission.is_raised(grant, need, own)


def raise_grant(
    budget: NodeBudget, need: ResourceRequirements, before: Grant, status: WorkloadStatus
) -> tuple[Grant, t.Optional[Refusal]]:
    """A larger grant for a workload of a tenant; where it is refused, the grant stays as it was, and counts in that tenant."""
    budget.take_back(before)
    try:
        return admit(budget, need, before, status), None
    except Refused as refused:
        kept = before if before.tenant == need.tenant else before._replace(member=need.member)
        budget.reserve(kept)
        return kept, Refusal(need.workload.name, refused.key, refused.value, str(refused))


def why_ended(grant: Grant, need: t.Optional[ResourceRequirements], status: WorkloadStatus) -> str:
    """Why a grant is over; "" while it lasts. What was granted for a run lasts as long as that run."""
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
    """What stays of a grant that is over, charged to the budget: the devices of a workload that runs on, until it stops."""
    if not grant.devices or not is_running(grant.workload, status):
        return None
    from . import device_placement  # As in placement.py.

    rest = device_placement.devices_only(grant)._replace(hold=RUNNING)
    budget.reserve(rest)
    return rest


def is_running(workload: str, status: WorkloadStatus) -> bool:
    """Whether a workload runs and is not about to start."""
    return workload in status.alive and workload not in status.starting


def seen_again(budget: NodeBudget, grant: Grant) -> Grant:
    """A grant with the keys that its devices have now."""
    if not grant.devices:
        return grant
    from ..devices import device_allocation

    return grant._replace(devices=device_allocation.refreshed(grant.devices, budget.devices_by_id()))


def renewed(grant: Grant, need: t.Optional[ResourceRequirements], status: WorkloadStatus) -> Grant:
    """The grant as it goes on: for the run that asks, with what is declared now where that is no more to carve out."""
    if need is None:
        return grant
    grant = grant._replace(hold=need.workload.hold, requests=need.requests, limits=need.limits, member=need.member)
    return grant._replace(instance=instance_of(need, grant, status), unit=need.workload.unit)


def instance_of(need: ResourceRequirements, before: t.Optional[Grant], status: WorkloadStatus) -> str:
    """The run that a grant is for; none where it lasts as long as it is declared."""
    if need.workload.hold != RUNNING:
        return ""
    return status.starting.get(need.workload.name, before.instance if before is not None else "")


def completed(budget: NodeBudget, grant: Grant, need: t.Optional[ResourceRequirements]) -> Grant:
    """A grant that only the slices show, completed with its containers and its memory.

    A running workload stays where it is, whatever would be chosen for it now. One that keeps what is left of its CPUs has
    its memory as well: no other workload is given it.
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
    """Why a grant cannot go on as it is; "" when it can."""
    if need is None:
        return why_lost(budget, grant)
    if grant.cpus and not need.cpus and grant.workload in status.alive and keeps_run(budget):
        return why_misplaced(budget, grant)
    if len(grant.cpus) != need.cpus:
        return f"{need.cpus or 'no'} CPUs of its own are declared, it has {len(grant.cpus) or 'none'}"
    # Not their order: the checkpoint keeps none.
    if {name: len(cpus) for name, cpus in grant.containers} != {
        one.name: count for one, count in need.containers if one.name
    }:
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
    """Whether a run keeps the CPUs that it has although none are given out any more (policy static → none)."""
    cpu = budget.inputs.profile.cpu
    return cpu is None or cpu.policy != STATIC


def why_lost(budget: NodeBudget, grant: Grant) -> str:
    """Why its CPUs cannot belong to it, whatever the profile's options are: a run that is declared no longer keeps them till then."""
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
    """Why its CPUs or nodes can no longer belong to it."""
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
    """What an incomplete grant keeps for now: those of its CPUs that still exist and are free, and devices while it runs.

    A workload that is about to start has nothing to keep, and does not start.
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
    """Whether a refused workload would have kept more if it had been decided on first."""
    if need.workload.name in status.starting or not need.cpus:
        return False
    taken = (before.cpus & budget.inputs.assignable) - budget.free
    # What others were given is missing in the shared pool, which needs the CPUs that it would have kept.
    given_up = cpuset.EMPTY if rest and rest.cpus else before.cpus & budget.free
    return bool(taken | given_up) or (
        rest is not None and numa_memory.is_crowded(budget.inputs.memory, budget.blocks, rest.blocks)
    )


def admit(budget: NodeBudget, need: ResourceRequirements, before: t.Optional[Grant], status: WorkloadStatus) -> Grant:
    """Grant what a workload needs. Raises Refused."""
    run = status.unknown_runs.get(need.workload.name)
    if run:
        message = f"{run} runs with devices of a grant that is lost: stop {run}, and start it after the next tick"
        raise Refused("requests", None, message)
    if need.member is not None or need.barred:
        from ..tenants import tenant_admission  # A node without tenants does not load it.

        tenant_admission.check(budget, need, before)
    budget.check_totals(need, before)
    name = need.workload.name
    running = before is not None and is_running(name, status)
    affinity, cpus, containers, devices = place(budget, need, before, running=running)
    if before is not None and running:
        # A run loses no device, whatever is declared now: not one of a resource or a container that is not asked for any more.
        devices = (*devices, *(one for one in before.devices if one not in devices))
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
    """As admit(): of the units of one pattern those that come after a refusal are refused with the same words, as long as nothing was
    granted in between. ``known`` has these refusals and the budget's version.
    """
    if before is not None or need.devices or need.member is not None or budget.left:
        return admit(budget, need, before, status)  # It matters which workload asks.
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
    """Why a workload cannot be granted what it requests even while no other one has anything; None when it can."""
    try:
        admit(NodeBudget(inputs), need, None, WorkloadStatus())
    except Refused as refused:
        return Refusal(need.workload.name, refused.key, refused.value, str(refused))
    return None


def sums(blocks: t.Iterable[Block]) -> dict[str, int]:
    """Bytes by resource."""
    found: dict[str, int] = {}
    for block in blocks:
        found[block.resource] = found.get(block.resource, 0) + block.size
    return found
