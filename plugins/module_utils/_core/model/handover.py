# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# This module is private to the collection corral.node.
"""The order in which pools hand over CPUs: givers shrink before takers grow, so that no instant overlaps.

A *home* is a slice (or scope) whose processes run on its CPUs. A guarded home (isolated, exclusive) shares its
CPUs with nobody. A *frame* (corral.slice, and within it corral-exclusive.slice) holds homes and no process; it only has
to span them at every step, because the kernel gives a child outside its parent the parent's CPUs without a word.
"""

from __future__ import annotations

import typing as t


class Home(t.NamedTuple):
    """Who runs where, now and soon. An empty ``now`` is a home that does not exist yet."""

    unit: str
    now: frozenset[int]
    wanted: frozenset[int]
    guarded: bool = False
    frames: tuple[str, ...] = ()  # those it lies in, the outermost first


class Stuck(Exception):
    """No order of writes avoids an overlap."""


def order(
    homes: t.Sequence[Home], frames: t.Mapping[str, tuple[frozenset[int], frozenset[int]]], refuge: frozenset[int]
) -> list[tuple[str, frozenset[int]]]:
    """The writes (unit, CPUs) that bring every home and frame to what is wanted.

    ``frames`` maps a frame to its CPUs (now, wanted). ``refuge`` is where an unguarded home may wait when homes swap
    their CPUs in a circle: the reserved pool, on which shared workloads do no harm; where a guarded home is still on
    it, any CPUs that no guarded home has or gets. Where that does not do, homes begin with a part of what they are to
    have, and whoever is in the way waits on a CPU that is free, or that somebody with two of them gives up meanwhile.
    Raises Stuck when there is no such way.
    """
    way = _Way(homes, frames, refuge)
    for home in homes:
        kept = home.now & home.wanted
        if kept and kept != home.now:
            way.put(home, kept)
    tries = 4 * len(way.everything)
    while True:
        pending = [home for home in homes if way.now[home.unit] != home.wanted]
        if not pending:
            return way.with_frames()
        if way.settle(pending) or way.park(pending):
            continue
        tries -= 1
        if tries < 0 or not (way.begin(pending) or way.step_aside(pending)):
            raise Stuck(", ".join(home.unit for home in pending))


class _Way:
    """The moves made so far, and who is where after them. Each way to go on says whether it made a move."""

    def __init__(
        self,
        homes: t.Sequence[Home],
        frames: t.Mapping[str, tuple[frozenset[int], frozenset[int]]],
        refuge: frozenset[int],
    ) -> None:
        self.homes, self.frames, self.refuge = homes, frames, refuge
        self.now = {home.unit: home.now for home in homes}
        self.spans = {frame: cpus for frame, (cpus, dummy) in frames.items()}
        self.moves: list[tuple[str, frozenset[int]]] = []
        self.parked: set[str] = set()
        ever = {home: home.now | home.wanted for home in homes}
        self.everything = refuge.union(*ever.values())
        guarded = frozenset[int]().union(*(cpus for home, cpus in ever.items() if home.guarded))
        self.open_cpus = frozenset[int]().union(*(cpus for home, cpus in ever.items() if not home.guarded)) - guarded

    def put(self, home: Home, cpus: frozenset[int]) -> None:
        """Move a home, with the frames around it made wide enough first."""
        for depth, frame in enumerate(home.frames):
            # A frame grows to all that it is to be, as far as the one around it reaches.
            wanted = self.frames[frame][1]
            around = self.spans[home.frames[depth - 1]] if depth else wanted
            if not cpus <= self.spans[frame]:
                self.spans[frame] |= cpus | (wanted & around)
                self.moves.append((frame, self.spans[frame]))
        self.moves.append((home.unit, cpus))
        self.now[home.unit] = cpus

    def with_frames(self) -> list[tuple[str, frozenset[int]]]:
        """All moves, with the frames made as narrow as they are to be."""
        # The inner ones first: one that is left wider than the frame around it would get that one's CPUs.
        for frame, (dummy, wanted) in reversed(list(self.frames.items())):
            if self.spans[frame] != wanted:
                self.moves.append((frame, wanted))
        return self.moves

    def rivals(self, home: Home, homes: t.Iterable[Home]) -> list[Home]:
        """Those with whom a home must not share a CPU."""
        return [other for other in homes if other.unit != home.unit and (home.guarded or other.guarded)]

    def free_for(self, home: Home, cpus: frozenset[int]) -> bool:
        """Whether a home may go there now."""
        gained = cpus - self.now[home.unit]
        return not any(gained & self.now[other.unit] for other in self.rivals(home, self.homes))

    def settle(self, pending: t.Sequence[Home]) -> bool:
        """Give somebody all that he is to have."""
        ready = next((home for home in pending if self.free_for(home, home.wanted)), None)
        if ready is not None:
            self.put(ready, ready.wanted)
        return ready is not None

    def park(self, pending: t.Sequence[Home]) -> bool:
        """Have somebody who shares wait where he does no harm, once."""
        for cpus in (self.refuge, self.open_cpus):
            for home in pending:
                waits = not home.guarded and home.unit not in self.parked
                if waits and cpus and self.free_for(home, cpus):
                    self.parked.add(home.unit)
                    self.put(home, cpus)
                    return True
        return False

    def begin(self, pending: t.Sequence[Home]) -> bool:
        """Give somebody a part of what he is to have, or more of it."""
        for home in pending:
            part = frozenset(cpu for cpu in home.wanted if self.free_for(home, frozenset({cpu})))
            if part - self.now[home.unit]:
                self.put(home, part)
                return True
        return False

    def step_aside(self, pending: t.Sequence[Home]) -> bool:
        """Have somebody leave CPUs that others are to have; who can do so without taking others' goes first."""
        for spare_of in (self.part_of, self.elsewhere, self.borrow):
            for home in pending:
                others = self.rivals(home, pending)
                asked = frozenset[int]().union(*(other.wanted - self.now[other.unit] for other in others))
                spare = spare_of(home, asked) if self.now[home.unit] & asked else frozenset[int]()
                if spare:
                    self.put(home, spare)
                    return True
        return False

    def part_of(self, home: Home, asked: frozenset[int]) -> frozenset[int]:
        """What a home can keep of its CPUs: those that nobody asks for, or else one."""
        mine = self.now[home.unit]
        return mine - asked or frozenset({min(mine)} if len(mine) > 1 else ())

    def elsewhere(self, home: Home, asked: frozenset[int]) -> frozenset[int]:
        """A CPU that nobody has and nobody asks for."""
        held = [self.now[other.unit] for other in self.homes if home.guarded or other.guarded]
        free = self.everything.difference(self.now[home.unit], asked, *held)
        return frozenset({min(free)} if free else ())

    def borrow(self, waiter: Home, asked: frozenset[int]) -> frozenset[int]:
        """A CPU that others give up for a while: open homes, which can share another one, or a guarded one with several."""
        opened = [home for home in self.homes if not home.guarded and home.unit != waiter.unit]
        theirs = frozenset[int]().union(*(self.now[home.unit] for home in opened))
        if waiter.guarded and len(theirs) > 1:
            spare = frozenset({max(theirs - asked - self.refuge or theirs - asked or theirs)})
            for home in opened:
                if spare & self.now[home.unit]:
                    self.put(home, self.now[home.unit] - spare or frozenset({min(theirs - spare)}))
            return spare
        for home in self.homes:
            if home.guarded and home.unit != waiter.unit and len(self.now[home.unit]) > 1:
                spare = frozenset({max(self.now[home.unit])})
                self.put(home, self.now[home.unit] - spare)
                return spare
        return frozenset()


def overlaps(now: t.Mapping[str, frozenset[int]], guarded: t.Container[str]) -> set[tuple[str, str, int]]:
    """Each (guarded home, other home, CPU) that two homes share."""
    found: set[tuple[str, str, int]] = set()
    for unit, cpus in now.items():
        if unit in guarded:
            for other, others in now.items():
                if other != unit and not cpus.isdisjoint(others):
                    found.update((unit, other, cpu) for cpu in cpus & others)
    return found


def new_overlap(
    homes: t.Sequence[Home], moves: t.Iterable[tuple[str, frozenset[int]]]
) -> t.Optional[tuple[str, str, int]]:
    """The validator: replay the writes and name the first overlap that was not there before, None if there is none.

    It shares nothing with ``order``, so that a fault there cannot hide here.
    """
    guarded = {home.unit for home in homes if home.guarded}
    now = {home.unit: home.now for home in homes}
    before = overlaps(now, guarded)
    for unit, cpus in moves:
        if unit in now:
            now[unit] = cpus
            fresh = overlaps(now, guarded) - before
            if fresh:
                return min(fresh)
    return None
