# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# This module is private to the collection corral.node.
"""The slices of workloads: their observed limits, and the changes that set limits live and in drop-ins."""

from __future__ import annotations

import typing as t

from ...host import cgroup, systemd
from ...host.files import Host
from ...host.memory import hugepage_files
from ...host.pids import oom_score
from ...model.plan import make_step
from ...model.plan.plan import CLAIM, CPUS, FILES, LIVE, START, UNCHANGEABLE, Change
from ...model.profile.profile_workloads import RUNNING
from ...model.profile.schema_types import CORRAL_SLICE
from ...model.systemd import unit_limits
from ...model.systemd.unit_file import file_change
from ...model.systemd.unit_property import PERSISTENT_CONTROL, Setting, control_file, dropin, removal
from ...model.values.records import NamedTuple
from ...model.workload import workload_units
from ...model.workload.grants import Grant
from ...model.workload.resource_requirements import ResourceRequirements
from ...model.workload.workload_units import NAME
from . import workload_placement
from .workload_placement import UnitState


class LimitsState(NamedTuple):
    """A workload as observed: the drop-in and kernel values of its slice (None: no slice), its unit, and the OOM scores of its processes
    that differ from the wanted score.
    """

    slice: str
    exists: bool
    dropin: t.Optional[str]
    values: dict[str, t.Optional[str]]
    hugetlb: dict[str, t.Optional[str]]
    unit: t.Optional[UnitState]
    scores: tuple[str, ...]


def observe(
    host: Host,
    files: systemd.UnitFiles,
    need: ResourceRequirements,
    unit: str,
    limits: t.Iterable[str],
    score: t.Optional[int],
    sizes: t.Sequence[int],
) -> LimitsState:
    """A workload as observed, with its slice ``unit`` and these ``limits`` of the slice: by files of the kernel and systemd."""
    path = cgroup.path_of(unit)
    exists = cgroup.exists(host, unit)
    values = {name: stripped(host.read(f"{path}/{unit_limits.FILES[name]}")) for name in limits if exists}
    hugetlb = (
        {name: stripped(host.read(f"{path}/{name}")) for name in unit_limits.hugetlb(need, sizes)} if exists else {}
    )
    service = workload_placement.observe_unit(host, files, need, unit) if need.workload.is_unit else None
    scores = oom_score.scores(host, path, str(score)) if exists and score is not None else ()
    return LimitsState(unit, exists, host.read(dropin(unit, NAME)), values, hugetlb, service, scores)


def stripped(text: t.Optional[str]) -> t.Optional[str]:
    """A kernel file's text without blanks around it."""
    return None if text is None else text.strip()


def slice_changes(
    host: Host,
    need: ResourceRequirements,
    grant: t.Optional[Grant],
    wanted: t.Mapping[str, str],
    seen: LimitsState,
    sizes: t.Sequence[int],
    *,
    limited: bool,
) -> list[Change]:
    """The changes of a workload's slice: its drop-in, its start, and (if the slice is ``limited``) its limits in force."""
    persistent = {
        name: value for name, value in wanted.items() if name != "AllowedMemoryNodes" or need.workload.hold != RUNNING
    }
    text = workload_units.slice_text(need, seen.slice, persistent)
    path = dropin(seen.slice, NAME)
    # A slice that does not run yet must find the drop-in at its start.
    phase = FILES if seen.exists else CLAIM
    change = file_change(NAME, path, seen.dropin, text, reason=f"limits of workload {need.workload.name}", phase=phase)
    # Instances of a template come and go: their limits are set at each start, without a file that systemd would have to read.
    changes = [change] if change and not need.workload.template else []
    if not seen.exists:
        if grant is not None and not grant.cpus:
            step = make_step.unit(seen.slice, "start", START)
            reason = "the workload's slice does not run yet"
            changes.append(
                Change(NAME, seen.slice, "state", "inactive", "active", reason, cgroup.path_of(seen.slice), (step,))
            )
        if grant is not None:
            changes += early_limits(need, seen, wanted)
            changes += hugetlb_changes(host, need, seen, sizes)
        return changes
    if limited:  # a workload that has not started yet has no grant
        changes += filter(None, (limit_change(seen, name, value) for name, value in wanted.items()))
        changes += hugetlb_changes(host, need, seen, sizes)
    return changes


def units_set_by_hand(host: Host) -> frozenset[str]:
    """The slices with a persistent ``systemctl set-property``, whose files hide the values that are set live."""
    return frozenset(name[: -len(".d")] for name in host.names(PERSISTENT_CONTROL) if name.endswith(".slice.d"))


def override_changes(host: Host, unit: str, wanted: t.Iterable[str]) -> list[Change]:
    """The changes that remove persistent settings of limits that Corral sets."""
    items = []
    for name in sorted(wanted):
        file = control_file(unit, name, runtime=False)
        text = host.read(file)
        if text is None:
            continue
        settings = systemd.assignments(file, text, name) or [Setting(file, "")]
        reason = "it wins over Corral's limit at each daemon-reload"
        actual = settings[-1].value or "set"
        steps = removal(unit, name, settings)
        items.append(Change(NAME, unit, f"{name} by set-property", actual, "absent", reason, file, steps))
    return items


def early_limits(need: ResourceRequirements, seen: LimitsState, wanted: t.Mapping[str, str]) -> list[Change]:
    """The changes of limits that are in no drop-in: for ``hold: running`` these limits are set right after the slice's start."""
    names = [name for name in wanted if need.workload.template or name == "AllowedMemoryNodes"]
    items = (limit_change(seen, name, wanted[name]) for name in names if need.workload.hold == RUNNING)
    return [change for change in items if change is not None]


def narrower_changes(host: Host, need: ResourceRequirements, wanted: t.Mapping[str, str]) -> list[Change]:
    """The items for limits that a workload on the shared pool cannot reach, since the slice around all these workloads has lower limits."""
    items = []
    for name in ("TasksMax", "MemoryMax", "CPUQuota"):
        location = f"{cgroup.path_of(CORRAL_SLICE)}/{unit_limits.FILES[name]}"
        own, around = unit_limits.kernel(name, wanted[name]), stripped(host.read(location)) or "max"
        around = unit_limits.meaning(name, around)
        if "max" in (own, around) or int(around.split()[0]) >= int(own.split()[0]):
            continue
        reason = f"{CORRAL_SLICE} is limited to less: raise that, or lower the limit of {need.workload.name}"
        subject = need.workload.name
        items.append(Change(NAME, subject, f"{name} in force", around, own, reason, location, (), UNCHANGEABLE))
    return items


def limit_change(seen: LimitsState, name: str, value: str) -> t.Optional[Change]:
    """The change of one limit in force."""
    actual, target = seen.values.get(name), unit_limits.kernel(name, value)
    shown = None if actual is None else unit_limits.meaning(name, actual)
    nothing_yet = actual is None and (target == "max" or (name == "CPUWeight" and target == unit_limits.DEFAULT_WEIGHT))
    if shown == target or nothing_yet:
        return None
    location = f"{cgroup.path_of(seen.slice)}/{unit_limits.FILES[name]}"
    # Memory nodes are set before the first process starts: with the CPUs, once the slice exists.
    phase, order = (CPUS, 1 << 30) if name == "AllowedMemoryNodes" else (LIVE, 0)
    step = make_step.unit_property(seen.slice, name, value, phase, order)
    return Change(NAME, seen.slice, name, actual, target, "the limit in force differs", location, (step,))


def hugetlb_changes(host: Host, need: ResourceRequirements, seen: LimitsState, sizes: t.Sequence[int]) -> list[Change]:
    """The changes of hugepage limits, for which systemd has no property: first the controller of each parent, then the limit's file."""
    changes = []
    path = cgroup.path_of(seen.slice)
    limits = unit_limits.hugetlb(need, [size for size in sizes if hugepage_files.pool(host, size, None) is not None])
    for file, limit in limits.items():
        actual = seen.hugetlb.get(file)
        if actual == str(limit) or not cgroup.offers(host, "hugetlb"):
            continue
        above = [location for location in cgroup.ancestors(path) if "hugetlb" not in cgroup.delegated(host, location)]
        steps = [
            make_step.controller(f"{location}/cgroup.subtree_control", "hugetlb", "+", START, 1) for location in above
        ]
        steps.append(make_step.value(f"{path}/{file}", str(limit), START, 2))
        changes.append(
            Change(
                NAME, seen.slice, file[: -len(".max")], actual, str(limit), "the limit in force differs", f"{path}/{file}", tuple(steps)
            )
        )  # fmt: skip
    return changes


def score_changes(host: Host, need: ResourceRequirements, seen: LimitsState, score: t.Optional[int]) -> list[Change]:
    """The change of processes whose OOM score differs from ``score``: OOMScoreAdjust= acts only at a unit's start."""
    if score is None or not seen.scores:
        return []
    others = oom_score.others(host, cgroup.path_of(seen.slice), str(score))
    steps = tuple(make_step.value(f"/proc/{pid}/oom_score_adj", str(score), LIVE, optional=True) for pid in others)
    if not steps:
        return []
    actual = ", ".join(seen.scores)
    location = f"/proc/{others[0]}/oom_score_adj"
    reason = "processes have another score"
    return [Change(NAME, need.workload.name, "oom_score_adj", actual, str(score), reason, location, steps)]
