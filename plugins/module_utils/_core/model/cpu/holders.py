# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# This module is private to the collection corral.node.
"""An index of CPUs: the slices that have each CPU, and whether further slices can get it."""

from __future__ import annotations

import typing as t

Units = dict[bool, dict[int, set[str]]]  # the exclusive ones (True) and the others, by CPU


def no_units(cpus: t.Collection[int]) -> Units:
    """Some CPUs, without units."""
    return {exclusive: {cpu: set() for cpu in cpus} for exclusive in (True, False)}


class Holders:
    """The CPUs that each slice has.

    ``units`` are the slices that have a CPU. ``open`` has the CPUs that another exclusive slice can get (True: no slice has them), and
    those that another shared slice can get (False: no exclusive slice has them).
    """

    def __init__(self, cpus: t.Collection[int]) -> None:
        self.now: dict[str, frozenset[int]] = {}
        self.units = no_units(cpus)
        self.open = {True: set(cpus), False: set(cpus)}

    def put(self, unit: str, exclusive: bool, cpus: frozenset[int]) -> list[int]:
        """Give a slice exactly these CPUs. Returns the CPUs that it released and that other slices can get now."""
        before = self.now.get(unit, frozenset())
        self.now[unit] = cpus
        for cpu in cpus - before:
            self.units[exclusive][cpu].add(unit)
        self.open[True] -= cpus
        if exclusive:
            self.open[False] -= cpus
        return [cpu for cpu in sorted(before - cpus) if self.release(cpu, unit, exclusive)]

    def release(self, cpu: int, unit: str, exclusive: bool) -> bool:
        """Take a CPU from a slice. Returns whether another slice can get it now, or is now the only exclusive slice that has it."""
        self.units[exclusive][cpu].discard(unit)
        own, others = self.units[True][cpu], self.units[False][cpu]
        if own:
            return len(own) == 1
        if others and not exclusive:
            return False
        self.open[False].add(cpu)
        if not others:
            self.open[True].add(cpu)
        return True

    def has_alone(self, cpu: int, unit: str) -> bool:
        """Whether an exclusive slice has a CPU that no other slice has."""
        return self.units[True][cpu] == {unit} and not self.units[False][cpu]
