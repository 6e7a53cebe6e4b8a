# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# This module is private to the collection corral.node.
"""The originals that no part of a plan owns any more: which of these originals the plan restores, defers, or only names."""

from __future__ import annotations

import typing as t

from ..host import cgroup, mounts, state
from ..host.files import Host
from ..host.plan import apply_step
from ..host.state import Record
from ..managers import registry
from ..managers.registry import PROFILE
from ..model.plan import make_step, undo
from ..model.plan.context import Context
from ..model.plan.plan import RELEASE, UNCHANGEABLE, Change, Step
from ..model.profile.profile_workloads import RUNNING
from ..model.profile.schema_types import AGENT_SLICE, SHARED_PREFIX, is_own
from ..model.systemd import unit_property
from ..model.systemd.unit_group import unit_of_partition
from ..model.systemd.unit_property import control_file
from ..model.values import cpuset
from ..model.values.records import NamedTuple
from ..model.workload.grants import is_workloads

BUSY = "no longer declared, and it holds processes: it stops when the last one has ended"
STRAY = (
    f"the manager {{}} of another version recorded this original in {state.BEFORE}, and this version does not write here: "
    "restore it by hand, or remove Corral with that version"
)
WAITS = "{}: set before Corral, and restored once no workload has CPUs {} of it or may get them"
SET_AGAIN = "{}: set again since; what was there before Corral is not restored"


class Restoration(NamedTuple):
    """``changes`` restore originals, or name originals that stay. ``obsolete`` has the keys of the records that end with the plan."""

    changes: tuple[Change, ...] = ()
    obsolete: frozenset[str] = frozenset()
    notes: tuple[str, ...] = ()


class CpusLeft(NamedTuple):
    """The CPUs that decide what a unit gets back when its original is restored.

    ``online``: the CPU list for a unit that had no CPU list of its own. ``taken``: the CPUs of exclusive slices. ``soon``: the CPUs in
    ``taken``, and the CPUs that the start of a workload may give to an exclusive slice.
    """

    online: str
    taken: frozenset[int] = cpuset.EMPTY
    soon: frozenset[int] = cpuset.EMPTY


def cpus_left(host: Host, context: t.Optional[Context]) -> CpusLeft:
    """The CPUs that exclusive slices of a profile leave to other units; at a removal all CPUs, also offline CPUs."""
    # The kernel keeps a unit's last request: a unit that does not request the offline CPUs could not use these CPUs once they are online.
    online = (host.read(f"/sys/devices/system/cpu/{'present' if context is None else 'online'}") or "").strip()
    if context is None or context.profile.cpu is None:
        return CpusLeft(online)
    taken = context.pools.isolated | context.pools.exclusive
    needs = context.workloads.needs if context.workloads is not None else ()
    comes_and_goes = any(need.cpus and need.workload.hold == RUNNING for need in needs)
    # A unit that gets back no CPU list of its own gets the CPUs that exclusive slices leave.
    left = cpuset.format((cgroup.cpu_list(online) or frozenset()) - taken)
    return CpusLeft(left or online, taken, taken | context.pools.shared if comes_and_goes else taken)


def plan(
    host: Host, dropped: t.Sequence[Record], planned: t.Sequence[Change], context: t.Optional[Context]
) -> Restoration:
    """The restoration of the originals ``dropped``, which no part owns; ``planned`` are the changes of the parts. The plan of a profile
    stops no slice with processes.
    """
    cpus = cpus_left(host, context)
    known = {step.key for change in planned for step in change.steps if step.kind == "unit"}
    stays: list[Change] = []
    again: list[Record] = []
    notes: list[str] = []
    obsolete = set()
    for record in dropped:
        before, stray = record.before, is_stray(record, cpus.online)
        if stray and not is_restored(host, before):
            stays.append(stray_item(record))
        elif context is not None and is_busy(host, before):
            stays.append(restoring(host, record, cpus)._replace(steps=(), verdict=UNCHANGEABLE, reason=BUSY))
        elif waits := cpus.soon & unit_property.cpus_of_file(before.target, before.value):
            notes.append(WAITS.format(before.target, cpuset.format(waits)))
        else:
            obsolete.add(before.key)
            if is_set_again(host, before):
                notes.append(SET_AGAIN.format(before.target))
            elif not stray and before.key not in known and not is_as_before(host, before):
                again.append(record)
    files = {one.before.target: one.before.value for one in again if one.before.kind == "file"}
    restored = [by_its_file(host, restoring(host, one, cpus), one.before, files, cpus.taken) for one in reversed(again)]
    return Restoration((*stays, *restored), frozenset(obsolete), tuple(notes))


def is_set_again(host: Host, before: undo.Original) -> bool:
    """Whether the drop-in of ``systemctl set-property`` at an original's path differs from the recorded drop-in.

    Then an administrator has set the property again since Corral removed the recorded drop-in.
    """
    now = host.read(before.target) if unit_property.key_of_file(before.target) else None
    return now is not None and before.value is not None and now != before.value


def is_stray(record: Record, online: str) -> bool:
    """Whether no manager of this version may restore an original: with a step for such an original the validator refuses the whole plan."""
    from ..model.plan import validate  # A tick that restores no original does not load the module.

    if record.manager not in registry.names() or record.before.kind not in undo.KINDS:
        return True
    places = registry.manager(record.manager).writes
    steps = undo.restore_recorded(record.before, online)
    return any(validate.place_problems(record.manager, step, places) for step in steps)


def stray_item(record: Record) -> Change:
    """The item that names a stray record. If this version lacks the record's manager, the item belongs to the manager profile."""
    known, target = record.manager in registry.names(), record.before.target
    owner, reason = record.manager if known else PROFILE, STRAY.format(record.manager)
    return Change(owner, target, record.before.kind, "set by Corral", "as it was", reason, target, (), UNCHANGEABLE)


def is_restored(host: Host, before: undo.Original) -> bool:
    """Whether the target of a stray record is as recorded: then no item names the record."""
    from ..model.plan import validate

    step = Step(before.kind, before.target, "+" if before.kind == "controller" else None, RELEASE, name=before.name)
    if before.kind not in undo.KINDS or not validate.is_sound(step):
        return False
    return is_as_before(host, before) or apply_step.observe(host, step)._replace(made=before.made) == before


def is_busy(host: Host, before: undo.Original) -> bool:
    """Whether a slice that Corral made cannot be stopped yet: a stop would end the processes in the slice."""
    # The agent's slice does not count: a tick runs in this slice.
    is_slice = before.kind == "unit" and before.target.endswith(".slice") and before.target != AGENT_SLICE
    ours = is_slice and (not is_workloads(before.target) or is_tenants(host, before.target))
    return ours and not before.active and cgroup.populated(host, before.target)


def is_tenants(host: Host, unit: str) -> bool:
    """Whether a slice on the shared pool lies in the slice of a tenant, or is the slice of a tenant with slices below."""
    return unit.startswith(SHARED_PREFIX) and (unit.count("-") > 1 or bool(cgroup.slices_in(host, unit)))


def is_as_before(host: Host, before: undo.Original) -> bool:
    """Whether an original needs no step: its target is as recorded, or gone, or is systemd's own file of a property."""
    if unit_property.is_live_file(before.kind, before.target):
        return True
    if before.kind == "mount":
        return before.active and mounts.at(host, before.name) is not None
    if before.kind == "controller":
        return is_passed_on(host, before)
    if not undo.KINDS[before.kind].shown:
        return False
    if before.kind not in ("cpuset", "property"):  # A pool can be gone with its NUMA node.
        return (host.read(before.target) or "").strip() == before.value or not host.exists(before.target)
    now = apply_step.observe(host, Step(before.kind, before.target, None, RELEASE, name=before.name))
    if before.kind == "cpuset":
        return now.value == before.value
    if before.name == "AllowedCPUs" and is_own(before.target):
        before = before._replace(value=now.value and "", runtime=None)  # Corral's slices do not get earlier CPUs back.
    # This compares the missing folders (``made``) too: these folders are the same as in the record.
    return now == before


def is_passed_on(host: Host, before: undo.Original) -> bool:
    """Whether a child group that is not Corral's, such as a container engine's group, passes the controller on to its own children: the
    kernel does not switch off the controller above such a group.
    """
    path = before.target.rpartition("/")[0]
    others = (f"{path}/{name}" for name in host.folders(path) if not is_own(name))
    return any(before.name in cgroup.delegated(host, other) for other in others)


def not_yet_restored(host: Host, changes: t.Iterable[Change]) -> tuple[Change, ...]:
    """The changes of a removal that still have steps to do.

    A removal that is repeated plans all steps again, since systemd may not have read a file yet.
    """
    return tuple(
        one for one in changes if not one.steps or not all(has_nothing_to_do(host, step) for step in one.steps)
    )


def has_nothing_to_do(host: Host, step: Step) -> bool:
    """Whether the target of a removal's step already has the state that the step would set."""
    if step.kind == "folder":
        return not host.is_dir(step.target) or bool(host.names(step.target))
    if step.kind == "compile":
        return not host.exists(step.target)
    now = apply_step.observe(host, step)
    if step.kind == "file":
        return (now.value, now.link) == (step.value, None)
    if step.kind == "link":
        return now.link == step.value
    if step.kind in ("unit", "controller", "mount"):
        return not now.active
    if step.kind == "property":
        if now.runtime is not None:  # The file of set-property --runtime still exists and must be removed.
            return False
        if not now.active or apply_step.shows(host, step.target, step.name, step.value or ""):
            return True
        # In the kernel an unset limit has its default again, but unset CPUs and nodes keep their last value.
        return not step.value and not (step.name.startswith("Allowed") and now.value)
    return now.value == step.value or not host.exists(step.target)


def requests_cpus(host: Host, unit: str) -> bool:
    """Whether a unit requests CPUs, or will request CPUs at its start by a file of set-property --runtime."""
    return bool(cgroup.cpus(host, unit).requested) or host.exists(control_file(unit, "AllowedCPUs", runtime=True))


def requests_more(host: Host, unit: str) -> bool:
    """Whether a unit requests CPUs that are not among its effective CPUs: an administrator has set CPUs that another unit has."""
    cpus = cgroup.cpus(host, unit)
    return bool((cpus.requested or frozenset()) - (cpus.effective or frozenset()))


def by_its_file(
    host: Host, change: Change, before: undo.Original, files: t.Mapping[str, t.Optional[str]], taken: frozenset[int]
) -> Change:
    """The change that restores a unit's CPUs. If the unit then has a file of set-property, the change sets the CPUs of that file: systemd
    257 reads the file at a daemon-reload, but applies the file's CPUs only later. ``files`` are restored by the same plan.
    """
    file = control_file(before.target, "AllowedCPUs", runtime=False)
    if before.kind != "property" or before.name != "AllowedCPUs" or is_own(before.target):
        return change
    cpus = unit_property.cpus_of_file(file, files[file] if file in files else host.read(file))
    there = cgroup.cpu_list((host.read("/sys/devices/system/cpu/possible") or "").strip()) or cpus
    if not cpus or cpus & taken or not cpus <= there or not any(step.kind == "property" for step in change.steps):
        return change
    first = make_step.unit_property(before.target, "AllowedCPUs", cpuset.format(cpus), RELEASE)
    rest = (one for one in change.steps if one.kind != "property")  # Unsetting the property would undo the first step.
    return change._replace(wanted=cpuset.format(cpus), steps=(first, *rest))


def restoring(host: Host, record: Record, cpus: CpusLeft) -> Change:
    """The change that restores an original."""
    before = record.before
    kind = undo.KINDS[before.kind]
    steps = undo.restore_recorded(before, cpus.online, cpus.taken)
    if before.kind == "property" and before.name == "AllowedCPUs" and not requests_cpus(host, before.target):
        # The unit requests no CPUs since the boot or its start. A restore would make it request CPUs, and systemd cannot undo a request.
        steps = [step for step in steps if step.kind == "folder"]
    if before.kind == "partition" and requests_more(host, unit_of_partition(before.target)):
        # A partition that requests further CPUs ends first: from kernel 7.0 on, it would get these CPUs at the end of another partition.
        steps = [step._replace(order=step.order - 1) for step in steps]
    was = before.value if kind.shown else None
    return Change(
        record.manager,
        before.name if before.kind == "mount" else before.target,
        before.name if before.kind == "property" else kind.label,
        "set by Corral",
        was if was else ("as it was" if before.value or before.link or before.active else "absent"),
        "no longer declared: back to what was there before",
        before.target,
        tuple(steps),
    )
