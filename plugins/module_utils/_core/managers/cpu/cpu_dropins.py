# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# This module is private to the collection corral.node.
"""The files of the cpu manager: drop-ins that keep the CPUs of units over a reboot, and start the slices at boot."""

from __future__ import annotations

import typing as t

from ...host import systemd
from ...model.cpu.slices import described
from ...model.plan.plan import UNCHANGEABLE, Change
from ...model.profile.schema_types import AGENT_SLICE
from ...model.systemd import unit_property
from ...model.systemd.unit_file import file_change, section_of, unit_text
from ...model.systemd.unit_property import Setting, control_file, dropin
from ...model.values import cpuset
from ...model.workload.grants import is_exclusive
from .cpu_observed import IN_BOOT, NAME, TARGET, Observation, Wanted

NEXT_START = "AllowedCPUs at its next start"


def assigned(cpus: frozenset[int]) -> tuple[str, str]:
    """The two values of AllowedCPUs= in a drop-in. Values add up over drop-ins: the empty value clears the values of earlier files."""
    return "", cpuset.format(cpus)


def dropin_text(unit: str, cpus: frozenset[int]) -> str:
    """The drop-in of a unit."""
    description = [("Unit", [f"Description={described(unit)}"])] if described(unit) else []
    return unit_text(*description, (section_of(unit), [f"AllowedCPUs={value}" for value in assigned(cpus)]))


def kept_by_others(unit: str, wanted: Wanted, seen: Observation) -> bool:
    """Whether other files give a unit the wanted CPUs at the next boot, so that Corral's drop-in is not needed.

    If a workload has ``hold: running``, the file of a persistent set-property does not count: it would hide the CPUs that are set live.
    """
    state, cpus = seen.units[unit], wanted.persistent.get(unit, wanted.now.get(unit))
    if described(unit) or (wanted.by_run and unit_property.set_by_hand(unit, "AllowedCPUs", state.settings)):
        return False
    return unit_property.kept_by_others(
        state.dropin, state.settings, lambda others: systemd.merged_cpus(others) == cpus
    )


def dropin_change(unit: str, wanted: Wanted, seen: Observation) -> t.Optional[Change]:
    """The change of the drop-in that keeps the CPUs over a reboot."""
    path, cpus = dropin(unit, NAME), wanted.persistent[unit]
    if kept_by_others(unit, wanted, seen):
        return None
    return file_change(
        NAME, path, seen.units[unit].dropin, dropin_text(unit, cpus), reason=f"keeps {unit}'s CPUs over a reboot"
    )


def override_change(unit: str, wanted: Wanted, seen: Observation) -> t.Optional[Change]:
    """The item of another file that overrides Corral's drop-in at the next reload, even if the drop-in does not exist yet.

    While the CPUs in force differ from the CPUs wanted ``now``, live_change() names the file of a set-property instead.
    """
    state, cpus, now = seen.units[unit], wanted.persistent[unit], wanted.now.get(unit)
    by_hand = unit_property.set_by_hand(unit, "AllowedCPUs", state.settings)
    if wanted.by_run and by_hand is not None and now == cpus and state.cpus.requested == now:
        reason = "it hides what is set live while a workload holds CPUs for a run"
        steps = unit_property.removal(unit, "AllowedCPUs", state.settings)
        shown = by_hand.value or "none"
        return Change(NAME, unit, "AllowedCPUs by set-property", shown, "Corral's drop-in", reason, by_hand.file, steps)
    if state.dropin not in (None, dropin_text(unit, cpus)) or kept_by_others(unit, wanted, seen):
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


def after_reload(
    unit: str, live: frozenset[int], settings: t.Sequence[Setting]
) -> tuple[t.Optional[frozenset[int]], str]:
    """The CPUs of a unit after a daemon-reload if the CPUs ``live`` are set live, and the last file that assigns CPUs.

    The file of a persistent set-property counts as removed: it would hide the file of the same name in which systemd keeps the live CPUs.
    """
    control = control_file(unit, "AllowedCPUs", runtime=True)
    hidden = (control, control_file(unit, "AllowedCPUs", runtime=False))
    others = [item for item in settings if item.file not in hidden]
    name = control.rpartition("/")[2]
    later = [item for item in others if ".d/" in item.file and item.file.rpartition("/")[2] > name]
    earlier = [item for item in others if item not in later]
    found = [*earlier, Setting(control, ""), Setting(control, cpuset.format(live)), *later]
    return systemd.merged_cpus(found), found[-1].file


def next_start_change(unit: str, wanted: Wanted, seen: Observation) -> t.Optional[Change]:
    """The change of a unit with the right CPUs in force, if files would give the unit other CPUs at its next start or daemon-reload.

    The files have the CPUs that the unit gets while no workload with ``hold: running`` has a grant. While such a grant exists, the right
    CPUs are in systemd's live file. A boot removes the live file, and no other change writes the live file of a unit whose CPUs in force
    are right.
    """
    persistent, cpus = wanted.persistent.get(unit), wanted.now[unit]
    if persistent == cpus or (persistent is None and not is_exclusive(unit)):
        return None
    settings = seen.units[unit].settings
    control = control_file(unit, "AllowedCPUs", runtime=True)
    live = systemd.merged_cpus(item for item in settings if item.file == control)
    coming, last = after_reload(unit, cpus, settings)
    if coming != cpus:
        reason = f"has the wanted CPUs only while a workload runs, and {last} overrides them: remove that file"
        actual = cpuset.format(coming or ())
        return Change(NAME, unit, NEXT_START, actual, cpuset.format(cpus), reason, last, (), UNCHANGEABLE)
    if live == cpus:
        return None
    reason = "has the wanted CPUs only while a workload runs"
    return Change(NAME, unit, NEXT_START, cpuset.format(live or persistent or ()), cpuset.format(cpus), reason, control)


def in_boot_change(unit: str, wanted: Wanted, seen: Observation) -> t.Optional[Change]:
    """The item of a file whose StartupAllowedCPUs= overrides a unit's CPUs until a boot is complete (systemd.resource-control(5))."""
    settings, cpus = seen.units[unit].in_boot, wanted.persistent[unit]
    coming = systemd.merged_cpus(settings)
    if not settings or coming in (cpus, cpuset.EMPTY):
        return None
    file = settings[-1].file
    reason = f"overrides AllowedCPUs= until a boot is complete: remove StartupAllowedCPUs= from {file}"
    return Change(NAME, unit, IN_BOOT, cpuset.format(coming or ()), cpuset.format(cpus), reason, file, (), UNCHANGEABLE)


def target_change(wanted: t.Mapping[str, frozenset[int]], seen: Observation) -> t.Optional[Change]:
    """The change that starts the pools' slices at boot, before a unit needs a slice."""
    units = sorted(unit for unit in wanted if unit.endswith(".slice") and unit != AGENT_SLICE)
    text = unit_text(("Unit", [f"Wants={' '.join(units)}"]))
    return file_change(NAME, dropin(TARGET, NAME), seen.target, text, reason="starts the pools' slices at boot")
