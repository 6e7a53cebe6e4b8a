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
    everything = refuge.union(*(home.now | home.wanted for home in homes))
    guarded_cpus = frozenset[int]().union(*(home.now | home.wanted for home in homes if home.guarded))
    open_cpus = frozenset[int]().union(*(home.now | home.wanted for home in homes if not home.guarded)) - guarded_cpus
    now = {home.unit: home.now for home in homes}
    guarded = {home.unit for home in homes if home.guarded}
    moves: list[tuple[str, frozenset[int]]] = []
    spans = {frame: cpus for frame, (cpus, dummy) in frames.items()}

    def put(home: Home, cpus: frozenset[int]) -> None:
        for depth, frame in enumerate(home.frames):
            # A frame grows to all that it is to be, as far as the one around it reaches.
            around = spans[home.frames[depth - 1]] if depth else frames[frame][1]
            if not cpus <= spans[frame]:
                spans[frame] |= cpus | (frames[frame][1] & around)
                moves.append((frame, spans[frame]))
        moves.append((home.unit, cpus))
        now[home.unit] = cpus

    def free_for(home: Home, cpus: frozenset[int]) -> bool:
        gained = cpus - now[home.unit]
        return not any(
            gained & now[other.unit]
            for other in homes
            if other.unit != home.unit and (home.unit in guarded or other.unit in guarded)
        )

    def begun(pending: t.Sequence[Home]) -> bool:
        """Whether a home could go to a part of what it is to have, or to more of it."""
        for home in pending:
            part = frozenset(cpu for cpu in home.wanted if free_for(home, frozenset({cpu})))
            if part - now[home.unit]:
                put(home, part)
                return True
        return False

    def out_of_the_way(pending: t.Sequence[Home]) -> bool:
        """Whether one that is on others' CPUs could leave them."""
        for home in pending:
            mine = now[home.unit]
            alone = home.unit in guarded
            others = [other for other in pending if other.unit != home.unit and (alone or other.unit in guarded)]
            asked = frozenset[int]().union(*(other.wanted - now[other.unit] for other in others))
            if not mine & asked:
                continue
            held = [now[other.unit] for other in homes if alone or other.unit in guarded]
            spare = mine - asked or frozenset({min(mine)} if len(mine) > 1 else ())
            spare = spare or everything.difference(mine, asked, *held) or lent(home, asked)
            if spare:
                put(home, spare if spare < mine else frozenset({min(spare)}))
                return True
        return False

    def lent(waiter: Home, asked: frozenset[int]) -> frozenset[int]:
        """A CPU that others gave up: open homes, which can share another one, or a guarded one with several."""
        opened = [home for home in homes if home.unit not in guarded and home.unit != waiter.unit]
        theirs = frozenset[int]().union(*(now[home.unit] for home in opened))
        if waiter.unit in guarded and len(theirs) > 1:
            spare = frozenset({max(theirs - asked - refuge or theirs - asked or theirs)})
            for home in opened:
                if spare & now[home.unit]:
                    put(home, now[home.unit] - spare or frozenset({min(theirs - spare)}))
            return spare
        for home in homes:
            if home.unit in guarded and home.unit != waiter.unit and len(now[home.unit]) > 1:
                spare = frozenset({max(now[home.unit])})
                put(home, now[home.unit] - spare)
                return spare
        return frozenset()

    for home in homes:
        kept = home.now & home.wanted
        if kept and kept != home.now:
            put(home, kept)
    waiting: set[str] = set()
    tries = 0
    while True:
        pending = [home for home in homes if now[home.unit] != home.wanted]
        if not pending:
            break
        ready = next((home for home in pending if free_for(home, home.wanted)), None)
        if ready is not None:
            put(ready, ready.wanted)
            continue
        idle = [home for home in pending if home.unit not in waiting]
        parked = next(
            (
                (home, cpus)
                for cpus in (refuge, open_cpus)
                for home in idle
                if home.unit not in guarded and cpus and free_for(home, cpus)
            ),
            None,
        )
        if parked is None:
            tries += 1
            if tries > 4 * len(everything) or not (begun(pending) or out_of_the_way(pending)):
                raise Stuck(", ".join(home.unit for home in pending))
            continue
        waiting.add(parked[0].unit)
        put(*parked)
    # The inner frames first: one that is left wider than the frame around it would get that one's CPUs.
    for frame, (dummy, wanted) in reversed(list(frames.items())):
        if spans[frame] != wanted:
            moves.append((frame, wanted))
    return moves


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
