# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# This module is private to the collection corral.node.
"""The order in which slices hand over CPUs: a slice releases a CPU before another slice gets the CPU.

An exclusive slice (of a grant, or of isolated CPUs) shares its CPUs with no other slice at any instant; shared slices may share CPUs with
each other. An overlap that exists at the beginning may stay until a move ends it; no write adds an overlap.
"""

from __future__ import annotations

import contextlib
import typing as t
from bisect import insort
from collections import defaultdict, deque

from ..values import cpuset
from ..values.records import NamedTuple

Users = dict[bool, "defaultdict[int, set[str]]"]  # by CPU: exclusive slices (True), shared slices (False)
# The levels of an order, the strictest first. Without shared and unasked CPUs an order is of the level ALONE.
# ALONE: an exclusive slice gets only CPUs that no other slice has.
# FIRST: an exclusive slice may also keep a CPU that it shares, if it requests the CPU already or no rival requests it.
# BY_REQUEST: only requests count, not which slice has a CPU.
# A CPU is unasked if a slice has the CPU without a request: the slice has no AllowedCPUs=, or all CPUs that it requests are offline.
ALONE, FIRST, BY_REQUEST = range(3)


class Slice(NamedTuple):
    """The CPUs of a slice (or scope) before and after the hand-over.

    ``now`` is empty for a slice that does not exist yet. If ``wanted`` is empty the slice keeps its CPUs, because an empty cpuset is no
    limit to the kernel. ``unasked``: the CPUs in ``now`` that the slice does not request.
    """

    unit: str
    now: frozenset[int]
    wanted: frozenset[int]
    exclusive: bool = False
    unasked: frozenset[int] = frozenset()


class NoSafeOrder(Exception):
    """Raised if every order of writes has an overlap. The text names the slices that wait for each other."""


def order(
    slices: t.Sequence[Slice], spare: frozenset[int], avoided: frozenset[int] = frozenset()
) -> list[tuple[str, frozenset[int]]]:
    """The writes (unit, CPUs) that give every slice its wanted CPUs. ``avoided``: CPUs that unmanaged control groups request. An exclusive
    slice waits on these CPUs only if no other CPUs are free.

    Slices that have CPUs to release go first: a slice moves as soon as it may request all of its wanted CPUs, in one write. When all of
    these slices wait for each other, one slice takes the wanted CPUs that it may request, or waits on other CPUs. Slices that only get more
    CPUs, and new slices, go last. Raises NoSafeOrder if every order has an overlap.
    """
    for level in (ALONE, FIRST):
        with contextlib.suppress(NoSafeOrder):
            return Planner(slices, spare, avoided, level).all_moves()
    return Planner(slices, spare, avoided, BY_REQUEST).all_moves()


class Planner:
    """The writes so far, and the slices that have and request each CPU after these writes.

    The planning time grows with the number of CPUs that change hands. Indexes list the slices that use a CPU and the slices that wait for
    the CPU. Only the waiting slices are checked again when the CPU is released.
    """

    def __init__(self, slices: t.Sequence[Slice], spare: frozenset[int], avoided: frozenset[int], level: int) -> None:
        self.slices = {one.unit: one if one.wanted else one._replace(wanted=one.now) for one in slices}
        self.spare, self.avoided, self.level = spare, avoided, level
        self.now = {one.unit: one.now for one in slices}
        self.requested = {one.unit: one.now - one.unasked for one in slices}
        # By slice, the wanted CPUs that the slice has without a request. A slice that wants no CPUs keeps its CPUs, and requests none.
        self.to_request = {one.unit: one.unasked & one.wanted for one in slices}
        self.cpus = spare.union(*(one.now | one.wanted for one in slices))
        self.users, self.askers = users_of(slices, self.now), users_of(slices, self.requested)
        self.moves: list[tuple[str, frozenset[int]]] = []
        # The slices that still have CPUs to release. A slice that left this list is never added again.
        self.releasing = {one.unit: one for one in self.slices.values() if one.now - one.wanted}
        self.needed_by = users_of(slices, {unit: one.wanted for unit, one in self.releasing.items()})
        self.harmless = self.cpus.difference(*(one.wanted for one in self.slices.values() if one.exclusive))
        self.free: list[int] = []  # CPUs that no slice has, in the order in which exclusive slices wait on them
        self.waited: list[str] = []  # slices that were moved to CPUs to wait on; a slice is listed at most twice
        self.movable = deque(self.releasing)  # slices to check: such a slice may get all wanted CPUs now
        self.missing: dict[str, list[int]] = {}  # by slice: wanted CPUs found missing; the last is missing now
        self.waiting: dict[int, list[str]] = {}  # by CPU: the slices whose list in ``missing`` ends with it
        # Slices that may get some of the wanted CPUs now. The slice that exchanges most CPUs is last, and is tried first.
        self.rank = {one.unit: (len(one.now ^ one.wanted), one.unit) for one in self.releasing.values()}
        self.partial = sorted(self.rank.values())
        self.queued = set(self.rank)

    def all_moves(self) -> list[tuple[str, frozenset[int]]]:
        """All writes of the hand-over. Raises NoSafeOrder."""
        while self.releasing:
            self.move_all()
            if self.releasing and not (self.move_to_part() or self.wait_elsewhere()):
                names = {one.unit for one, dummy in self.cycle()} | {next(iter(self.releasing))}
                raise NoSafeOrder(", ".join(sorted(names)))
        self.grow()
        return self.moves

    def claims(self, one: Slice) -> Users:
        """The users that keep a slice off a CPU: slices that have the CPU, or that request it (for a shared slice, and at BY_REQUEST)."""
        return self.users if one.exclusive and self.level < BY_REQUEST else self.askers

    def may_keep(self, one: Slice, cpu: int) -> bool:
        """Whether a write may leave a CPU to a slice: the slice requests the CPU already, or has it and no rival requests it.

        With a second request two slices would share the CPU, or an exclusive slice could not be a partition.
        """
        if cpu in self.requested[one.unit]:
            return True
        return cpu in self.now[one.unit] and not has_rival(one, self.askers, cpu)

    def may_request(self, one: Slice, cpu: int) -> bool:
        """Whether a slice may get a CPU, or keep it for good."""
        if not has_rival(one, self.claims(one), cpu):
            return True
        return not (self.level == ALONE and one.exclusive) and self.may_keep(one, cpu)

    def kept(self, one: Slice) -> frozenset[int]:
        """The CPUs of a slice that a write may leave to the slice."""
        return frozenset(cpu for cpu in self.now[one.unit] if self.may_keep(one, cpu))

    def requestable(self, one: Slice, cpus: t.Iterable[int]) -> frozenset[int]:
        """The CPUs among ``cpus`` that a slice may request now."""
        return frozenset(cpu for cpu in cpus if self.may_request(one, cpu))

    def put(self, one: Slice, cpus: frozenset[int]) -> None:
        """Add a write of a slice's CPUs, and queue the slices that wait for released CPUs."""
        released = self.now[one.unit] - cpus
        self.moves.append((one.unit, cpus))
        for users, before in ((self.users, self.now), (self.askers, self.requested)):
            for cpu in before[one.unit] - cpus:
                users[one.exclusive][cpu].discard(one.unit)
            for cpu in cpus - before[one.unit]:
                users[one.exclusive][cpu].add(one.unit)
            before[one.unit] = cpus
        if cpus <= one.wanted and one.unit in self.releasing:
            del self.releasing[one.unit]
            for cpu in one.wanted:
                self.needed_by[one.exclusive][cpu].discard(one.unit)
        for cpu in sorted(released):
            self.movable.extend(self.waiting.pop(cpu, ()))
            self.may_get_part(self.needed_by[True][cpu] | self.needed_by[False][cpu])

    def may_get_part(self, units: t.Iterable[str]) -> None:
        """Queue slices that may request some of their wanted CPUs now."""
        for unit in units:
            if unit not in self.queued:
                self.queued.add(unit)
                insort(self.partial, self.rank[unit])

    def move_all(self) -> None:
        """Move each slice that may request all of its wanted CPUs, until no such slice is left."""
        while self.movable:
            one = self.releasing.get(self.movable.popleft())
            if one is not None and self.is_missing(one):
                self.waiting.setdefault(self.missing[one.unit][-1], []).append(one.unit)
            elif one is not None:
                self.put(one, one.wanted)

    def is_missing(self, one: Slice) -> bool:
        """Whether a slice wants a CPU that it may not request. All wanted CPUs are checked only if no CPU in ``missing`` is missing now."""
        left = self.missing.setdefault(one.unit, [])
        while left and self.may_request(one, left[-1]):
            left.pop()
        if not left:
            left += sorted(one.wanted - self.requestable(one, one.wanted))
        return bool(left)

    def move_to_part(self) -> bool:
        """Whether a slice that releases CPUs for other slices could get a part of its wanted CPUs. Adds the write."""
        while self.partial:
            unit = self.partial.pop()[1]
            self.queued.discard(unit)
            one = self.releasing.get(unit)
            if one is not None and self.needed(one, self.now[one.unit] - one.wanted):
                part = self.requestable(one, one.wanted)
                if part:
                    self.put(one, part)
                    return True
        return False

    def needed(self, one: Slice, cpus: t.Iterable[int]) -> frozenset[int]:
        """The CPUs among ``cpus`` that another slice wants. Only slices that have CPUs to release count as other slices."""
        return frozenset(cpu for cpu in cpus if has_rival(one, self.needed_by, cpu))

    def wait_elsewhere(self) -> bool:
        """Whether a slice could leave a CPU: in a cycle a CPU that another slice waits for, else any CPU. Adds the writes."""
        cycle = self.cycle()
        free = [cpu for cpu in self.cpus if not self.users[True][cpu] and not self.users[False][cpu]]
        free = [cpu for cpu in free if cpu not in self.avoided] or free
        self.free = sorted(free, key=lambda cpu: (cpu in self.spare, cpu))
        ways = ((self.unneeded, cycle), (self.unused, cycle), (self.rest, cycle), (self.rest, self.lenders()))
        return any(self.vacate(one, cpu, place) for place, pairs in ways for one, cpu in pairs)

    def vacate(self, one: Slice, cpu: int, place: t.Callable[[Slice, int], frozenset[int]]) -> bool:
        """Whether an exclusive slice, or all shared slices on a CPU, could wait on other CPUs (each at most twice). Adds the writes."""
        leaving = [one] if one.exclusive else [self.slices[unit] for unit in sorted(self.users[False][cpu])]
        found = [place(other, cpu) for other in leaving if self.waited.count(other.unit) < 2]
        if len(found) < len(leaving) or not all(map(self.may_wait_on, leaving, found)):
            return False
        for other, cpus in zip(leaving, found):
            self.waited.append(other.unit)
            self.put(other, cpus)
        return True

    def lenders(self) -> t.Iterator[tuple[Slice, int]]:
        """Each CPU in use, with a slice that has the CPU. CPUs outside ``spare`` come first, ordered by their number of shared slices."""
        for cpu in sorted(self.cpus, key=lambda cpu: (cpu in self.spare, len(self.users[False][cpu]), -cpu)):
            users = self.users[True][cpu] or self.users[False][cpu]
            if users:
                yield self.slices[min(users)], cpu

    def may_wait_on(self, one: Slice, cpus: frozenset[int]) -> bool:
        """Whether a slice may wait on ``cpus``. If it wants all of ``cpus``, it keeps them, and so it must be able to request them."""
        return bool(cpus) and (not cpus <= one.wanted or self.requestable(one, cpus) == cpus)

    def unneeded(self, one: Slice, cpu: int) -> frozenset[int]:
        """For an exclusive slice CPUs that no other slice needs; for a shared slice CPUs that no exclusive slice wants, its own first."""
        mine = self.kept(one)
        if one.exclusive:
            return mine - self.needed(one, mine)
        places = (mine, self.spare, self.cpus)
        return next(filter(None, (self.requestable(one, self.harmless & cpus) for cpus in places)), cpuset.EMPTY)

    def unused(self, one: Slice, cpu: int) -> frozenset[int]:
        """For an exclusive slice, CPUs that no slice has: at most as many as the exclusive slice has."""
        return frozenset(self.free[: len(self.now[one.unit])]) if one.exclusive else cpuset.EMPTY

    def rest(self, one: Slice, cpu: int) -> frozenset[int]:
        """The CPUs that a slice may keep without ``cpu``: all its other CPUs if the slice has no CPUs to release, else a single other CPU.

        A shared slice that may keep no CPU moves to any CPU that it may request.
        """
        mine = self.kept(one) - {cpu}
        if mine and one.unit not in self.releasing:
            return mine
        shared = () if one.exclusive else self.requestable(one, self.cpus - {cpu})
        return frozenset(sorted(mine or shared)[:1])

    def cycle(self) -> list[tuple[Slice, int]]:
        """A cycle of slices, each with the CPU for which the slice before it waits.

        If a slice waits for a slice that has nothing to release, the result is the chain that ends there, without its first slice.
        """
        one = next(iter(self.releasing.values()))
        path: dict[str, tuple[Slice, int]] = {}
        cpu = -1
        while one.unit not in path:
            path[one.unit] = one, cpu
            if one.unit not in self.releasing:
                return [*path.values()][1:]
            cpu = self.missing[one.unit][-1]
            exclusive, others = self.claims(one)[True][cpu], self.claims(one)[False][cpu]
            one = self.slices[min((exclusive - {one.unit}) or (others - {one.unit}))]
        units = list(path)
        return [*(path[unit] for unit in units[units.index(one.unit) + 1 :]), (one, cpu)]

    def grow(self) -> None:
        """Give the slices that have nothing to release their wanted CPUs.

        A slice that has wanted CPUs without a request gets a request: otherwise the slice would get more CPUs when a partition beside it
        ends.
        """
        for one in self.slices.values():
            is_open = all(self.may_request(one, cpu) for cpu in one.wanted)
            if self.now[one.unit] != one.wanted:
                if not is_open:
                    raise NoSafeOrder(one.unit)
                self.put(one, one.wanted)
            elif is_open and self.to_request[one.unit] - self.requested[one.unit]:
                self.put(one, one.wanted)


def users_of(slices: t.Iterable[Slice], cpus: t.Mapping[str, frozenset[int]]) -> Users:
    """For each CPU the slices that use the CPU in ``cpus``, which has the CPUs of each slice."""
    found: Users = {True: defaultdict(set), False: defaultdict(set)}
    for one in slices:
        for cpu in cpus.get(one.unit, ()):
            found[one.exclusive][cpu].add(one.unit)
    return found


def has_rival(one: Slice, users: Users, cpu: int) -> bool:
    """Whether a CPU has another user with which this slice must not share the CPU."""
    exclusive, shared = users[True][cpu], users[False][cpu]
    return len(exclusive) + len(shared) > (one.unit in exclusive) if one.exclusive else bool(exclusive)
