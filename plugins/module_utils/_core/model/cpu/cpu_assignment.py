# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# This module is private to the collection corral.node.
"""The pool and the workload that each CPU is assigned to: by the profile, and by the effective CPUs of slices."""

from __future__ import annotations

import typing as t

from ..values.records import NamedTuple
from .pools import Pools

if t.TYPE_CHECKING:
    from ..workload.grants import Grant

# From the first to the last: a CPU that slices of two pools have is shown in the first one.
KINDS = ("isolated", "exclusive", "reserved", "shared")


class Assignment(NamedTuple):
    """The pool of a CPU (one of KINDS), and the workload that has it exclusively ("" for none)."""

    pool: str
    owner: str = ""


def declared(pools: Pools, grants: t.Iterable[Grant]) -> dict[int, Assignment]:
    """The assignment of each CPU that is in a pool; ``pools`` are those with the granted CPUs taken out."""
    found = {cpu: Assignment(kind) for kind in reversed(KINDS) for cpu in getattr(pools, kind)}
    found.update((cpu, Assignment("exclusive", grant.workload)) for grant in grants for cpu in grant.cpus)
    return found


def in_force(slices: t.Mapping[str, Assignment], effective: t.Mapping[str, frozenset[int]]) -> dict[int, Assignment]:
    """The assignment of each CPU that a slice of the profile may use now.

    ``slices`` says what each of them is for, ``effective`` which CPUs it has.
    """
    found: dict[int, Assignment] = {}
    for unit, assignment in sorted(slices.items(), key=lambda one: (-KINDS.index(one[1].pool), one)):
        found.update(dict.fromkeys(effective.get(unit, ()), assignment))
    return found
