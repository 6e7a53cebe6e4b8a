# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# This module is private to the collection corral.node.
"""The order in which slices hand over CPUs: one slice releases a CPU before another one gets it.

An exclusive slice (of a grant, or of isolated CPUs) shares its CPUs with no other slice at any instant; shared slices
may share theirs with each other. An overlap that exists at the beginning may stay until the slices leave it; no write adds one.
"""

from __future__ import annotations

import typing as t

from .handover_planner import NoSafeOrder, Planner, Slice

__all__ = ["NoSafeOrder", "Slice", "order"]


def order(slices: t.Sequence[Slice], spare: frozenset[int]) -> list[tuple[str, frozenset[int]]]:
    """The writes (unit, CPUs) that give every slice what it is to have.

    First go the slices that have CPUs to release: as soon as all of its wanted CPUs are available a slice moves, in one
    write. When all of them wait for each other, one begins with the part that is available, or waits elsewhere:
    a shared slice on ``spare`` (the reserved pool), an exclusive one on a free CPU. Slices that only get more CPUs, and
    new ones, go last: until then their CPUs are free for others to wait on. Raises NoSafeOrder when there is no such order.

    An exclusive slice that shares CPUs at the beginning has them for itself after its write: the slices that it shares
    them with move first, if there is an order in which they can. Nor does a write request what a slice has unasked and
    another one has too, if there is an order without; the validator judges the other one.
    """
    try:
        return moves(Planner(slices, spare))
    except NoSafeOrder:
        pass
    try:
        return moves(Planner(slices, spare, alone=False))
    except NoSafeOrder:
        if not any(one.unasked for one in slices):
            raise
    return moves(Planner([one._replace(unasked=frozenset()) for one in slices], spare, alone=False))


def moves(planner: Planner) -> list[tuple[str, frozenset[int]]]:
    """All writes of a hand-over. Raises NoSafeOrder."""
    while planner.releasing:
        planner.move_all()
        if planner.releasing and not planner.move_to_part():
            planner.break_cycle()
    planner.grow()
    return planner.moves
