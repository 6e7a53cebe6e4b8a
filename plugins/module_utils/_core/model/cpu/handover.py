# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# This module is private to the collection corral.node.
"""The order in which slices hand over CPUs: one slice releases a CPU before another one gets it.

An exclusive slice (of a grant, or of isolated CPUs) shares its CPUs with no other slice at any instant; shared slices
may share theirs with each other. An overlap that exists at the beginning may stay until the slices leave it; no write adds one.
"""

from __future__ import annotations

import contextlib
import typing as t

from .handover_planner import NoSafeOrder, Planner, Slice

__all__ = ["NoSafeOrder", "Slice", "order"]
# The arguments of Planner, one try after the other; without CPUs that a slice has unasked only the first and the last try differ.
WAYS: tuple[dict[str, bool], ...] = (
    {},
    {"alone": False},
    {"first_asker": True},
    {"first_asker": True, "alone": False},
    {"first_asker": True, "alone": False, "early": True},
    {"without_claim": True},
)


def order(
    slices: t.Sequence[Slice], spare: frozenset[int], avoided: frozenset[int] = frozenset()
) -> list[tuple[str, frozenset[int]]]:
    """The writes (unit, CPUs) that give every slice its wanted CPUs. ``avoided`` are CPUs that unmanaged control groups request: an
    exclusive slice that waits on free CPUs takes others, if any is free.

    Slices that have CPUs to release go first: a slice moves as soon as all of its wanted CPUs are available, in one
    write. When all of them wait for each other, one slice takes the part that is available, or moves to other CPUs for a while:
    a shared slice to ``spare`` (the reserved pool), an exclusive one to a free CPU. Slices that only get more CPUs, and
    new slices, go last: until then other slices may use their CPUs for a while. Raises NoSafeOrder when there is no such order.

    An exclusive slice that shares CPUs at the beginning has them exclusively after its write: the slices that it shares
    them with move first, if there is an order in which they can. Nor does a write request CPUs that the slice has
    without a request and that another slice has as well, if there is such an order; where such slices wait for each other,
    it does not request those that another slice requests. Where that has no order either, an exclusive slice of which no CPU is online
    keeps no other slice off the CPUs on which it runs meanwhile. Where even that has none, the validator judges the plan.
    """
    for way in WAYS if any(one.unasked for one in slices) else WAYS[:1]:
        with contextlib.suppress(NoSafeOrder):
            return moves(Planner(slices, spare, avoided, **way))
    return moves(Planner([one._replace(unasked=frozenset()) for one in slices], spare, avoided, alone=False))


def moves(planner: Planner) -> list[tuple[str, frozenset[int]]]:
    """All writes of a hand-over. Raises NoSafeOrder."""
    while planner.releasing:
        planner.move_all()
        if planner.releasing and not planner.move_to_part():
            planner.break_cycle()
    planner.grow()
    return planner.moves
