# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# This module is private to the collection corral.node.
"""Planning a hand-over: which slice moves next, and which one moves to other CPUs for a while when all wait for each other.

The time grows with the number of CPUs that change hands: an index has the slices that use a CPU and those that wait for it, and only
those are compared again when the CPU is released.
"""

from __future__ import annotations

import typing as t
from bisect import insort
from collections import deque

from ..values.records import NamedTuple
from .holders import Holders, no_units


class Slice(NamedTuple):
    """The CPUs of a slice (or scope), now and soon.

    ``now`` is empty for a slice that does not exist yet. A slice whose ``wanted`` is empty keeps what it has, because an
    empty cpuset is no limit to the kernel. ``unasked`` are those of ``now`` that the slice has without requesting them.
    """

    unit: str
    now: frozenset[int]
    wanted: frozenset[int]
    exclusive: bool = False
    unasked: frozenset[int] = frozenset()


class NoSafeOrder(Exception):
    """Every order of writes has an overlap. The text names the slices that wait for each other."""


class Planner:
    """The writes so far, and which slices have each CPU after them.

    ``alone`` is whether an exclusive slice gets no CPU for itself that others have, also where it has shared that CPU
    until now. ``avoided`` are CPUs that unmanaged control groups request: see handover.order().
    ``first_asker`` is whether a slice may request a CPU that it has without a request when others have that one
    as well, but none of them requests it, ``early`` whether exclusive slices do so before any move.
    ``without_claim`` is whether an exclusive slice that requests none of the CPUs that it has, because its own are offline, keeps no other
    slice off them; it moves as soon as it can.
    """

    def __init__(
        self,
        slices: t.Sequence[Slice],
        spare: frozenset[int],
        avoided: frozenset[int] = frozenset(),
        *,
        alone: bool = True,
        first_asker: bool = False,
        early: bool = False,
        without_claim: bool = False,
    ) -> None:
        self.alone, self.first_asker = alone, first_asker
        self.requested = {one.unit: one.now - one.unasked for one in slices}
        self.slices = {one.unit: one if one.wanted else one._replace(wanted=one.now) for one in slices}
        self.spare, self.avoided = spare, avoided
        # Wanted CPUs that a slice has without a request. One that wants none, and keeps what it has, requests none.
        self.to_request = {one.unit: one.unasked & one.wanted for one in slices}
        self.moves: list[tuple[str, frozenset[int]]] = []
        cpus = spare.union(*(one.now | one.wanted for one in slices))
        self.holders = Holders(cpus)
        fallen = {one.unit for one in slices if without_claim and one.exclusive and one.now == one.unasked}
        for one in slices:
            self.holders.put(one.unit, one.exclusive, frozenset() if one.unit in fallen else one.now)
        self.now, self.open = self.holders.now, self.holders.open
        # The slices that still have CPUs to release. A slice that left this list is never added again.
        self.releasing = {one.unit: one for one in self.slices.values() if one.now - one.wanted}
        self.needed_by = no_units(cpus)
        for one in self.releasing.values():
            for cpu in one.wanted:
                self.needed_by[one.exclusive][cpu].add(one.unit)
        self.harmless = cpus.difference(*(one.wanted for one in self.slices.values() if one.exclusive))
        self.movable = deque(
            sorted(self.releasing, key=lambda unit: unit not in fallen)
        )  # may have all wanted CPUs available
        self.missing: dict[str, list[int]] = {}  # wanted CPUs that were not available; the last one still is not
        self.waiting: dict[int, list[str]] = {}  # the slices of which it is the last one
        # May have a part of the wanted CPUs available. The slice that exchanges most CPUs is last, and goes first.
        self.rank = {one.unit: (len(one.now ^ one.wanted), one.unit) for one in self.releasing.values()}
        self.partial = sorted(self.rank.values())
        self.queued = set(self.rank)
        if early:
            self.request_first()

    def put(self, one: Slice, cpus: frozenset[int]) -> None:
        """Write the CPUs of a slice, and check the slices that can get what it releases."""
        self.moves.append((one.unit, cpus))
        self.requested[one.unit] = cpus
        if cpus <= one.wanted and one.unit in self.releasing:
            del self.releasing[one.unit]
            for cpu in one.wanted:
                self.needed_by[one.exclusive][cpu].discard(one.unit)
        for cpu in self.holders.put(one.unit, one.exclusive, cpus):
            self.movable.extend(self.waiting.pop(cpu, ()))
            self.may_get_part(self.needed_by[True][cpu] | self.needed_by[False][cpu])
        if self.first_asker:
            # Each request changes what others may request, also of CPUs that no slice releases.
            self.missing.clear()
            self.movable.extend(self.releasing)
            self.may_get_part(self.releasing)

    def may_get_part(self, units: t.Iterable[str]) -> None:
        """Slices that may have a part of their wanted CPUs available now."""
        for unit in units:
            if unit not in self.queued:
                self.queued.add(unit)
                insort(self.partial, self.rank[unit])

    def available(self, one: Slice, cpus: t.AbstractSet[int]) -> frozenset[int]:
        """Those of ``cpus`` that a slice has or can get now.

        A CPU that other slices have too does not count as one that an exclusive slice has.
        """
        mine = self.kept(one) & cpus
        if one.exclusive and self.alone:
            mine = frozenset(cpu for cpu in mine if self.holders.has_alone(cpu, one.unit))
        return mine | (cpus & self.open[one.exclusive])

    def has_wanted_alone(self, one: Slice, cpus: t.AbstractSet[int]) -> bool:
        """Whether a slice that gets ``cpus``, and no others than it wants, shares none of them: it does not leave them again.

        With some that it does not want it still is on its way, and may share them as it has shared them until now.
        """
        final = one.exclusive and self.alone and cpus <= one.wanted
        return not final or all(self.holders.has_alone(cpu, one.unit) for cpu in cpus)

    def kept(self, one: Slice) -> frozenset[int]:
        """The CPUs of a slice that a write may leave it: not those that it has unasked, and another slice has too.

        The request would be what has them share the CPU, or what keeps an exclusive slice from being a partition.
        """
        mine = self.now[one.unit]
        unasked = (mine & one.unasked) - self.requested[one.unit]
        return mine - {cpu for cpu in unasked if self.is_others(one, cpu)}

    def is_others(self, one: Slice, cpu: int) -> bool:
        """Whether another slice, which may not share a CPU with this one, has it or, with ``first_asker``, requests it."""
        units = self.holders.units
        others = (unit for which in ((True, False) if one.exclusive else (True,)) for unit in units[which][cpu])
        return any(unit != one.unit and (not self.first_asker or cpu in self.requested[unit]) for unit in others)

    def request_first(self) -> None:
        """Have each exclusive slice that requests none of its CPUs request some that no other slice requests, before others do.

        Those of its wanted CPUs, or else one, which no exclusive slice wants if there is such a one.
        """
        waiting = [one for one in self.releasing.values() if one.exclusive and not self.requested[one.unit]]
        for one in sorted(waiting, key=lambda one: bool(self.kept(one) & one.wanted)):
            kept = self.kept(one)
            cpus = kept & one.wanted or frozenset(sorted(kept & self.harmless or kept)[:1])
            if cpus:
                self.put(one, cpus)

    def move_all(self) -> None:
        """Move each slice that can have all of its wanted CPUs, until there is none."""
        while self.movable:
            one = self.releasing.get(self.movable.popleft())
            if one is not None and self.is_missing(one):
                self.waiting.setdefault(self.missing[one.unit][-1], []).append(one.unit)
            elif one is not None:
                self.put(one, one.wanted)

    def is_missing(self, one: Slice) -> bool:
        """Whether a wanted CPU of a slice is not available. A CPU is checked again only when all others are available."""
        left = self.missing.setdefault(one.unit, [])
        while left and self.available(one, {left[-1]}):
            left.pop()
        if not left:
            left += sorted(one.wanted - self.available(one, one.wanted))
        return bool(left)

    def move_to_part(self) -> bool:
        """Give one slice the part of its wanted CPUs that is available, if it releases CPUs that others need."""
        while self.partial:
            unit = self.partial.pop()[1]
            self.queued.discard(unit)
            one = self.releasing.get(unit)
            if one is not None and self.needed(one, self.now[one.unit] - one.wanted):
                part = self.available(one, one.wanted)
                if part:
                    self.put(one, part)
                    return True
        return False

    def needed(self, one: Slice, cpus: t.Iterable[int]) -> frozenset[int]:
        """Those CPUs of a slice that another slice needs before it can release its own."""
        others = self.needed_by
        return frozenset(cpu for cpu in cpus if others[True][cpu] or (one.exclusive and others[False][cpu]))

    def break_cycle(self) -> None:
        """Make a slice release CPUs that another one waits for; it uses other CPUs until its own are available."""
        cycle = self.cycle()
        ways = (
            self.move_shared_to_fallback,
            self.shrink_to_unneeded,
            self.move_to_free_cpus,
            self.shrink_to_one,
            self.shrink_to_kept,
            self.borrow_cpu,
        )
        if not any(way(cycle) for way in ways):
            raise NoSafeOrder(", ".join(sorted(one.unit for one, dummy in cycle)))

    def cycle(self) -> list[tuple[Slice, int]]:
        """A cycle of slices: each waits for a CPU of the next one. With each slice comes its CPU that the slice before it waits for."""
        one = next(iter(self.releasing.values()))
        path: dict[str, tuple[Slice, int]] = {}
        cpu = -1
        while one.unit not in path:
            path[one.unit] = one, cpu
            cpu = self.missing[one.unit][-1]
            exclusive, others = self.holders.units[True][cpu], self.holders.units[False][cpu]
            holder = min((exclusive - {one.unit}) or (others - {one.unit}))
            if holder not in self.releasing:
                raise NoSafeOrder(f"{one.unit}, {holder}")  # The holder keeps this CPU.
            one = self.slices[holder]
        units = list(path)
        return [*(path[unit] for unit in units[units.index(one.unit) + 1 :]), (one, cpu)]

    def move_shared_to_fallback(self, cycle: t.Sequence[tuple[Slice, int]]) -> bool:
        """Move the shared slices off a CPU of the cycle."""
        for one, cpu in cycle:
            others = [] if one.exclusive else [self.slices[unit] for unit in sorted(self.holders.units[False][cpu])]
            fallbacks = [self.fallback_cpus(other, cpu) for other in others]
            if others and all(fallbacks):
                for other, fallback_cpus in zip(others, fallbacks):
                    self.put(other, fallback_cpus)
                return True
        return False

    def fallback_cpus(self, one: Slice, cpu: int) -> frozenset[int]:
        """Where a shared slice can wait without this CPU; empty if nowhere.

        On those of its CPUs that no exclusive slice needs, or spare ones, or any such ones, or else on a single CPU.
        """
        mine = self.available(one, self.now[one.unit])
        for cpus in (mine, self.spare, self.open[False]):
            fallback_cpus = self.harmless & self.open[False] & cpus
            if fallback_cpus:
                return fallback_cpus
        rest = (mine & self.open[False]) - {cpu} or mine - {cpu} or self.open[False] - {cpu}
        return frozenset({min(rest)} if rest else ())

    def shrink_to_unneeded(self, cycle: t.Sequence[tuple[Slice, int]]) -> bool:
        """Reduce an exclusive slice to the CPUs that no other slice needs."""
        for one, dummy in cycle:
            kept = self.kept(one) - self.needed(one, self.now[one.unit])
            if one.exclusive and kept and self.has_wanted_alone(one, kept):
                self.put(one, kept)
                return True
        return False

    def move_to_free_cpus(self, cycle: t.Sequence[tuple[Slice, int]]) -> bool:
        """Move an exclusive slice to free CPUs, to at most as many as it has."""
        one = min((one for one, dummy in cycle if one.exclusive), key=self.count)
        free = sorted(self.open[True] - self.avoided or self.open[True], key=lambda cpu: (cpu in self.spare, cpu))
        free = free[: self.count(one)]
        if free:
            self.put(one, frozenset(free))
        return bool(free)

    def shrink_to_one(self, cycle: t.Sequence[tuple[Slice, int]]) -> bool:
        """Reduce an exclusive slice to one of its CPUs, that with most CPUs first."""
        for one, cpu in sorted(
            (member for member in cycle if member[0].exclusive), key=lambda member: -self.count(member[0])
        ):
            for kept in sorted(self.kept(one) - {cpu}):
                if self.has_wanted_alone(one, {kept}):
                    self.put(one, frozenset({kept}))
                    return True
        return False

    def shrink_to_kept(self, cycle: t.Sequence[tuple[Slice, int]]) -> bool:
        """Reduce a slice to what a write may leave it, where that is less than it has."""
        for one, dummy in cycle:
            kept = self.kept(one)
            if kept and kept != self.now[one.unit] and self.has_wanted_alone(one, kept):
                self.put(one, kept)
                return True
        return False

    def borrow_cpu(self, dummy: object) -> bool:
        """Make slices outside the cycle release a CPU: shared slices, which can run on another CPU, or one exclusive slice."""
        exclusive, holders = self.holders.units[True], self.holders.units[False]
        shared = sorted(cpu for cpu in self.open[False] if holders[cpu])
        if len(shared) > 1:
            borrowed = min(shared, key=lambda cpu: (cpu in self.spare, len(holders[cpu]), -cpu))
            rest = frozenset({next(cpu for cpu in shared if cpu != borrowed)})
            for unit in sorted(holders[borrowed]):
                self.put(self.slices[unit], self.available(self.slices[unit], self.now[unit]) - {borrowed} or rest)
            return True
        for one in self.slices.values():
            mine = self.kept(one)
            alone = [cpu for cpu in mine if len(exclusive[cpu]) == 1 and not holders[cpu]]
            if one.exclusive and alone and len(mine) > 1:
                self.put(one, mine - {max(alone)})
                return True
        return False

    def count(self, one: Slice) -> int:
        """How many CPUs a slice has."""
        return len(self.now[one.unit])

    def grow(self) -> None:
        """Give the slices that have nothing to release their wanted CPUs.

        A slice that has them without a request requests them: else it gets more CPUs when a partition beside it ends.
        """
        for one in self.slices.values():
            if self.now[one.unit] != one.wanted:
                if self.available(one, one.wanted) != one.wanted:
                    raise NoSafeOrder(one.unit)
                self.put(one, one.wanted)
            elif self.to_request[one.unit] - self.requested[one.unit] and self.available(one, one.wanted) == one.wanted:
                self.put(one, one.wanted)
