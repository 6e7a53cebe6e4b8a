# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# This module is private to the collection corral.node.
"""The pool and the workload to which each CPU is assigned: by the profile, and by the effective CPUs of slices."""

from __future__ import annotations

import typing as t

from ..values.records import NamedTuple
from .pools import Pools

if t.TYPE_CHECKING:
    from ..workload.grants import Grant

# A CPU that slices of two pools have is shown in the first of these pools.
KINDS = ("isolated", "exclusive", "reserved", "shared")


class Assignment(NamedTuple):
    """The pool of a CPU (a pool of KINDS), and the workload that has the CPU exclusively ("": no workload)."""

    pool: str
    owner: str = ""


def declared(pools: Pools, grants: t.Iterable[Grant]) -> dict[int, Assignment]:
    """The assignment of each CPU that is in a pool. In ``pools`` the granted CPUs are not in the shared pool."""
    assignments = {cpu: Assignment(kind) for kind in reversed(KINDS) for cpu in getattr(pools, kind)}
    assignments.update((cpu, Assignment("exclusive", grant.workload)) for grant in grants for cpu in grant.cpus)
    return assignments


def in_force(slices: t.Mapping[str, Assignment], effective: t.Mapping[str, frozenset[int]]) -> dict[int, Assignment]:
    """The assignment of each CPU that a slice of the profile may use now.

    ``slices``: the assignment of each slice. ``effective``: the CPUs of each slice.
    """
    assignments: dict[int, Assignment] = {}
    for unit, assignment in sorted(slices.items(), key=lambda row: (-KINDS.index(row[1].pool), row)):
        assignments.update(dict.fromkeys(effective.get(unit, ()), assignment))
    return assignments
