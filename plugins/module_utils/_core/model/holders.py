# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# This module is private to the collection corral.node.
"""An index of CPUs: the slices that have each one, and who else can get it."""

from __future__ import annotations

import typing as t

Units = dict[bool, dict[int, set[str]]]  # the guarded ones (True) and the others, by CPU


def no_units(cpus: t.Collection[int]) -> Units:
    """Some CPUs, without units."""
    return {guarded: {cpu: set() for cpu in cpus} for guarded in (True, False)}


class Holders:
    """The CPUs that each slice has.

    ``units`` are the slices that have a CPU. ``open`` are the CPUs that one more guarded slice can get (True: no slice
    has them) and one more unguarded slice (False: no guarded slice has them).
    """

    def __init__(self, cpus: t.Collection[int]) -> None:
        self.now: dict[str, frozenset[int]] = {}
        self.units = no_units(cpus)
        self.open = {True: set(cpus), False: set(cpus)}

    def put(self, unit: str, guarded: bool, cpus: frozenset[int]) -> list[int]:
        """Give a slice these CPUs and no others; the released CPUs that other slices can get now."""
        before = self.now.get(unit, frozenset())
        self.now[unit] = cpus
        for cpu in cpus - before:
            self.units[guarded][cpu].add(unit)
        self.open[True] -= cpus
        if guarded:
            self.open[False] -= cpus
        return [cpu for cpu in sorted(before - cpus) if self.release(cpu, unit, guarded)]

    def release(self, cpu: int, unit: str, guarded: bool) -> bool:
        """Take a CPU from a slice; False if this changes nothing for the slices that cannot get it, or have it with others."""
        self.units[guarded][cpu].discard(unit)
        own, others = self.units[True][cpu], self.units[False][cpu]
        if own:
            return len(own) == 1 and not others
        if others and not guarded:
            return False
        self.open[False].add(cpu)
        if not others:
            self.open[True].add(cpu)
        return True

    def has_alone(self, cpu: int, unit: str) -> bool:
        """Whether a guarded slice has a CPU, and no other slice has it."""
        return self.units[True][cpu] == {unit} and not self.units[False][cpu]
