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

from . import cpuset, numa_memory
from .grants import Grant
from .ledger import Ledger, Machine, Refused
from .needs import STATIC, Need
from .numa_memory import Block
from .placement import place, promised, shared_out, shown
from .profile_workloads import DECLARED, RUNNING
from .resources import MEMORY


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
    ledger = Ledger(machine)
    by_name = {need.workload.name: need for need in needs}
    broken: dict[str, tuple[Grant, str]] = {}
    told: list[Told] = []
    for grant in held:
        ended = why_ended(grant, by_name.get(grant.workload), facts)
        if ended:
            told.append(Told(grant.workload, grant, None, ended))
            continue
        need = by_name.get(grant.workload)
        whole = completed(ledger, grant, need)
        why = why_broken(ledger, whole, need, facts) or facts.lost_memory.get(grant.workload, "")
        if why:
            broken[grant.workload] = (grant, why)
            continue
        kept = renewed(whole, need, facts)
        ledger.book(kept)
        if kept != grant:
            told.append(Told(grant.workload, grant, kept, "declared anew"))
    told += [Told(name, before, None, why) for name, (before, why) in broken.items() if name not in by_name]
    refusals = []
    # Who had something comes before who is new.
    for need in sorted(needs, key=lambda need: need.workload.name not in broken):
        name = need.workload.name
        before, reason = broken.get(name, (None, "granted"))
        wanted = need.workload.hold == DECLARED or name in facts.asked or (before is not None and name in facts.alive)
        if name in ledger.grants or not wanted:
            continue
        try:
            grant = admit(ledger, need, before, facts)
        except Refused as refused:
            refusals.append(Refusal(name, refused.key, refused.value, str(refused)))
            rest = remnant(ledger, need, before, facts)
            if rest is not None:
                ledger.book(rest)
            if before is not None and rest != before:
                told.append(Told(name, before, rest, f"{reason}; refused: {refused}"))
            continue
        told.append(Told(name, before, grant, reason))
    order = {need.workload.name: index for index, need in enumerate(needs)}
    grants = sorted(ledger.grants.values(), key=lambda grant: (order.get(grant.workload, len(order)), grant.workload))
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


def completed(ledger: Ledger, grant: Grant, need: t.Optional[Need]) -> Grant:
    """A grant that the slices alone tell of, with the containers and the memory that belong to it.

    Who runs stays where it is, whatever would be chosen for it now.
    """
    if need is None or len(grant.cpus) != need.cpus or grant.blocks or grant.containers:
        return grant
    wanted = promised(ledger.machine, need)
    if bool(wanted) != (grant.mems is not None):
        return grant
    try:
        blocks = numa_memory.allocate(ledger.machine.memory, ledger.blocks, wanted, grant.mems) if wanted else ()
        containers = shared_out(ledger, need, grant.cpus) if need.cpus and need.workload.containers else ()
    except ValueError:
        return grant
    there = cpuset.EMPTY.union(*(block.nodes for block in blocks))
    return grant._replace(blocks=blocks, containers=containers) if there == (grant.mems or there) else grant


def why_broken(ledger: Ledger, grant: Grant, need: t.Optional[Need], facts: Facts) -> str:
    """Why a grant cannot go on as it is; "" when it can."""
    if need is None:
        return why_misplaced(ledger, grant)
    if grant.cpus and not need.cpus and grant.workload in facts.alive and keeps_run(ledger, need):
        return why_misplaced(ledger, grant)
    if len(grant.cpus) != need.cpus:
        return f"{need.cpus or 'no'} CPUs of its own are declared, it has {len(grant.cpus) or 'none'}"
    if tuple(name for name, dummy in grant.containers) != tuple(one.name for one, dummy in need.containers if one.name):
        return "its containers are declared otherwise"
    if any(amount > dict(grant.requests).get(resource, 0) for resource, amount in need.requests):
        return "more is declared"
    wanted = promised(ledger.machine, need)
    if (
        sorted((block.resource, block.size) for block in grant.blocks) != sorted(wanted.items())
        and sums(grant.blocks) != wanted
    ):
        return "other amounts of memory are declared"
    return why_misplaced(ledger, grant)


def keeps_run(ledger: Ledger, need: Need) -> bool:
    """Whether a run keeps the CPUs that it has although none are given out any more (policy static → none)."""
    cpu = ledger.machine.profile.cpu
    return cpu is None or cpu.policy != STATIC


def why_misplaced(ledger: Ledger, grant: Grant) -> str:
    """Why its CPUs or nodes cannot be its own any more."""
    lost = grant.cpus - ledger.machine.assignable
    if lost:
        online = ledger.machine.pools.online
        what = "reserved or isolated" if lost <= online else "offline"
        return f"CPUs {cpuset.format(lost)} are {what} now"
    taken = grant.cpus - ledger.free
    if taken:
        return f"CPUs {cpuset.format(taken)} are somebody else's"
    cpu = ledger.machine.profile.cpu
    split = grant.cpus and ledger.machine.topology.siblings_of(grant.cpus) - grant.cpus
    if split and cpu is not None and cpu.options.full_pcpus_only:
        return f"whole cores are asked for, and it lacks CPUs {cpuset.format(split)}"
    if len(ledger.shared_without(grant.cpus)) < ledger.min_shared:
        return "the shared pool would be too small"
    return ""


def remnant(ledger: Ledger, need: Need, before: t.Optional[Grant], facts: Facts) -> t.Optional[Grant]:
    """What a grant that cannot be made whole keeps meanwhile: the CPUs that are still there, and nobody else's.

    Who is about to start has nothing to keep, and does not start.
    """
    if before is None or not need.cpus or need.workload.name in facts.asked:
        return None
    left = before.cpus & ledger.free
    if len(ledger.shared_without(left)) < ledger.min_shared:
        return None
    return before._replace(cpus=left, containers=()) if left else None


def admit(ledger: Ledger, need: Need, before: t.Optional[Grant], facts: Facts) -> Grant:
    """Grant what a workload needs. Raises Refused."""
    ledger.check_totals(need, before)
    name = need.workload.name
    affinity, cpus, containers = place(ledger, need, before)
    blocks: tuple[Block, ...] = ()
    wanted = promised(ledger.machine, need)
    if wanted:
        held = {grant.workload: grant.blocks for grant in ledger.grants.values() if grant.blocks}
        try:
            blocks = numa_memory.allocate(ledger.machine.memory, ledger.blocks, wanted, affinity.nodes, holders=held)
        except ValueError as error:
            raise Refused("requests.memory", shown(need, MEMORY), str(error)) from None
    mems = cpuset.EMPTY.union(*(block.nodes for block in blocks)) if blocks else None
    hold = need.workload.hold
    instance = facts.asked.get(name, before.instance if before and hold == RUNNING else "")
    since = before.since if before else facts.now
    grant = Grant(name, hold, instance, cpus, containers, mems, blocks, need.requests, need.limits, since)
    ledger.book(grant)
    return grant


def sums(blocks: t.Iterable[Block]) -> dict[str, int]:
    """Bytes by resource."""
    found: dict[str, int] = {}
    for block in blocks:
        found[block.resource] = found.get(block.resource, 0) + block.size
    return found
