# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# This module is private to the collection corral.node.
"""The files of the cpu manager: drop-ins that keep the CPUs of units over a reboot, and start the slices at boot."""

from __future__ import annotations

import typing as t

from ..host import systemd
from ..model.cpu.slices import described
from ..model.plan.plan import Change
from ..model.profile.schema_types import AGENT_SLICE
from ..model.systemd import unit_property
from ..model.systemd.unit_file import file_change, section_of, unit_text
from ..model.systemd.unit_property import dropin
from ..model.values import cpuset
from .cpu_observed import NAME, TARGET, Observation


def assigned(cpus: frozenset[int]) -> tuple[str, str]:
    """What the drop-in assigns. Lists add up over drop-ins, so it begins with an empty assignment."""
    return "", cpuset.format(cpus)


def dropin_text(unit: str, cpus: frozenset[int]) -> str:
    """The drop-in of a unit."""
    description = [("Unit", [f"Description={described(unit)}"])] if described(unit) else []
    return unit_text(*description, (section_of(unit), [f"AllowedCPUs={value}" for value in assigned(cpus)]))


def kept_by_others(unit: str, cpus: frozenset[int], seen: Observation) -> bool:
    """Whether other files give a unit these CPUs at the next boot: Corral's drop-in is not needed then."""
    state = seen.units[unit]
    if described(unit):
        return False
    return unit_property.kept_by_others(
        state.dropin, state.settings, lambda others: systemd.merged_cpus(others) == cpus
    )


def dropin_change(unit: str, cpus: frozenset[int], seen: Observation) -> t.Optional[Change]:
    """The change of the drop-in that keeps the CPUs over a reboot."""
    path = dropin(unit, NAME)
    if kept_by_others(unit, cpus, seen):
        return None
    return file_change(
        NAME, path, seen.units[unit].dropin, dropin_text(unit, cpus), reason=f"keeps {unit}'s CPUs over a reboot"
    )


def override_change(
    unit: str, cpus: frozenset[int], now: t.Optional[frozenset[int]], seen: Observation
) -> t.Optional[Change]:
    """Another file that wins at the next reload over Corral's drop-in, or over the one that Corral would write.

    While the CPUs differ from those wanted ``now`` the live item names what set-property left, and removes it.
    """
    state = seen.units[unit]
    if state.dropin not in (None, dropin_text(unit, cpus)) or kept_by_others(unit, cpus, seen):
        return None
    return unit_property.later_change(
        NAME,
        unit,
        "AllowedCPUs",
        state.settings,
        cpuset.format(cpus),
        values=assigned(cpus),
        meaning=lambda coming: cpuset.format(systemd.merged_cpus(coming) or ()),
        differs_now=state.exists and state.cpus.requested != now,
    )


def target_change(wanted: t.Mapping[str, frozenset[int]], seen: Observation) -> t.Optional[Change]:
    """The change that starts the pools' slices at boot, before any unit needs them."""
    units = sorted(unit for unit in wanted if unit.endswith(".slice") and unit != AGENT_SLICE)
    text = unit_text(("Unit", [f"Wants={' '.join(units)}"]))
    return file_change(NAME, dropin(TARGET, NAME), seen.target, text, reason="starts the pools' slices at boot")
