# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# This module is private to the collection corral.node.
"""The slice and the OOM score of a workload's unit or container. A part of the workloads manager."""

from __future__ import annotations

import fnmatch
import typing as t

from ...host import cgroup, process, systemd
from ...host.files import Host
from ...host.workload import workload_state
from ...model.containers import container_command
from ...model.devices import device_delivery
from ...model.pids import pid_sharing
from ...model.plan.context import Context
from ...model.plan.plan import UNCHANGEABLE, UNKNOWN, Change
from ...model.profile.profile_workloads import RUNNING
from ...model.profile.schema_types import is_own
from ...model.systemd import device_allow, unit_property
from ...model.systemd.unit_file import file_change
from ...model.systemd.unit_property import Setting, dropin
from ...model.values.printable_text import printable
from ...model.values.records import NamedTuple
from ...model.workload import grants, qos, workload_units
from ...model.workload.grants import Grant
from ...model.workload.match_kinds import MATCH_KINDS
from ...model.workload.resource_requirements import ResourceRequirements
from ...model.workload.resources import MEMORY
from ...model.workload.workload_units import NAME

# systemd's booleans (systemd.syntax(7))
NO = (["no"], ["false"], ["off"], ["0"], ["n"], ["f"])
YES = (["yes"], ["true"], ["on"], ["1"], ["y"], ["t"])


# Prefixes of the names of control groups of containers, of their monitors and of pods.
CONTAINERS = ("libpod", "docker-", "crio-", "cri-containerd-")
SPLIT = "libpod-payload-"  # a container inside its unit (podman run --cgroups=split, as Quadlet does)


class UnitState(NamedTuple):
    """A workload's unit as observed. ``there``: the unit exists. ``elsewhere``: the part of the unit's command that runs a container in
    another place. ``is_early``: the unit starts before all else at boot (DefaultDependencies=no). ``guests``: other control groups in
    its slice of exclusive CPUs, each with some processes. ``other_name``: the real name of a unit whose ``file`` is an alias.
    """

    there: bool
    dropin: t.Optional[str]
    slices: tuple[Setting, ...]
    quotas: tuple[Setting, ...]
    runs_in: t.Optional[str]
    elsewhere: str
    is_early: bool
    guests: tuple[tuple[str, tuple[str, ...]], ...] = ()
    file: str = ""
    other_name: str = ""


def observe_unit(host: Host, files: systemd.UnitFiles, need: ResourceRequirements, wanted: str) -> UnitState:
    """A workload's unit as observed; ``wanted``: the slice in which the unit is to run."""
    unit = need.workload.pattern
    own = place_file(need)
    settings = files.settings(unit, "Slice")
    before = [item.value for item in settings if item.file != own and item.value]
    usual = before[-1] if before else systemd.usual_slice(unit)
    slices = workload_state.places(need.workload.name, need.tenant)
    places = dict.fromkeys((wanted, usual, *slices))
    runs_in = next(
        (location for location in places if cgroup.populated_at(host, f"{cgroup.path_of(location)}/{unit}")), None
    )
    if runs_in is None and workload_state.runs_unit(host, unit):
        runs_in = workload_state.slice_that_holds(host, unit)
    quotas = files.settings(unit, "CPUQuota") if need.cpus else []
    there = workload_state.there(host, files, unit)
    commands: list[str] = []
    for item in files.settings(unit, "ExecStart"):
        commands = [*commands, item.value] if item.value else []  # an empty assignment resets the list
    elsewhere = container_command.run_elsewhere(commands, wanted)
    starts = container_command.starts_others(commands)
    if starts and runs_in == wanted and not holds_others(host, wanted, unit):
        elsewhere = starts
    is_early = [item.value.lower() for item in files.settings(unit, "DefaultDependencies")][-1:] in NO
    guests = guests_in(host, wanted, unit) if grants.is_exclusive(wanted) else ()
    file = files.fragment(unit) or ""
    other_name = workload_state.other_name(host, file) if file else ""
    return UnitState(
        there, files.text(own), tuple(settings), tuple(quotas), runs_in, elsewhere, is_early, guests, file, other_name
    )


def guests_in(host: Host, slice_name: str, unit: str) -> tuple[tuple[str, tuple[str, ...]], ...]:
    """The control groups in a unit's slice that belong to neither the unit nor a container: such groups may use the unit's CPUs."""
    path = cgroup.path_of(slice_name)
    names = [name for name in host.folders(path) if name != unit and not name.startswith(CONTAINERS)]
    there = [name for name in names if cgroup.populated_at(host, f"{path}/{name}")]
    return tuple((name, cgroup.processes_shown(host, f"{path}/{name}")) for name in there)


def holds_others(host: Host, slice_name: str, unit: str) -> bool:
    """Whether processes run in control groups beside or inside a unit's own control group; such processes belong to containers."""
    outer = cgroup.path_of(slice_name)
    inner = [f"{outer}/{name}" for name in host.folders(outer) if name != unit]
    inner += [f"{outer}/{unit}/{name}" for name in host.folders(f"{outer}/{unit}")]
    return any(cgroup.populated_at(host, path) for path in inner)


def place_file(need: ResourceRequirements) -> str:
    """The path of the drop-in that places a workload's unit: the drop-in is of the unit, or of its template."""
    return dropin(need.workload.template or need.workload.pattern, NAME)


# Units


def unit_changes(
    need: ResourceRequirements,
    slice_name: str,
    seen: UnitState,
    score: t.Optional[int],
    devices: t.Sequence[str] = (),
) -> list[Change]:
    """The changes of a workload's unit: its drop-in, and its slice while the unit runs. ``devices`` are lines for the drop-in."""
    unit = need.workload.pattern
    changes = []
    text = workload_units.unit_dropin(need, slice_name, score, exclusive=bool(need.cpus), devices=devices)
    change = file_change(NAME, dropin(unit, NAME), seen.dropin, text, reason=f"places {unit} in its slice")
    if change is not None and not need.workload.template:
        changes.append(change)
    changes += filter(None, [later_change(need, "CPUQuota", seen.quotas, "")] if need.cpus else [])
    if seen.other_name:
        reason = f"control groups and runs have that name: match {seen.other_name}"
        changes.append(
            Change(NAME, unit, "name", f"another name of {seen.other_name}", unit, reason, seen.file, (), UNCHANGEABLE)
        )
    later = later_change(need, "Slice", seen.slices, slice_name)
    if seen.runs_in is not None and seen.runs_in != slice_name:
        way_out = f"{later.reason}; then" if later else "a unit moves when it starts:"
        changes.append(
            Change(
                NAME, unit, "slice", seen.runs_in, slice_name, f"{way_out} systemctl restart {unit}",
                f"{cgroup.path_of(seen.runs_in)}/{unit}", (), UNCHANGEABLE, "next start", "service restart",
            )
        )  # fmt: skip
    elif later is not None:
        changes.append(later)
    for name, processes in [guest for guest in seen.guests if guest[0] != seen.other_name]:
        changes.append(
            Change(
                NAME, name, "slice", f"{slice_name} (PID {', '.join(processes)})", "another slice",
                f"it runs on the CPUs of {unit}, beside it: start it in a slice of the profile",
                f"{cgroup.path_of(slice_name)}/{name}", (), UNCHANGEABLE, "next start", "service restart",
            )
        )  # fmt: skip
    if seen.elsewhere:
        is_podman = seen.elsewhere.startswith("podman")
        hint = "add --cgroups=split, or use Quadlet" if is_podman else f"add --cgroup-parent={slice_name}"
        if not seen.elsewhere.endswith(" run"):
            hint = f"use Quadlet, or create it with --cgroup-parent={slice_name}"
        reason = f"{seen.elsewhere} gives the container a control group elsewhere: {hint}"
        location = f"{cgroup.path_of(slice_name)}/{unit}"
        changes.append(
            Change(
                NAME, unit, "container", "elsewhere", slice_name, reason, location, (), UNCHANGEABLE, "next start", "service restart"
            )
        )  # fmt: skip
    return changes


def strayed_changes(
    host: Host, files: systemd.UnitFiles, placed: t.Iterable[tuple[ResourceRequirements, str]]
) -> t.Iterator[Change]:
    """The items of running units with no process in their control groups: the processes were moved by hand out of all slices.

    systemd is asked for the processes. There is no item for a unit that stays active without processes (RemainAfterExit=).
    """
    units = {need.workload.pattern: place for need, place in placed if need.workload.is_unit}
    strayed = {
        unit: slice_name
        for unit, slice_name in units.items()
        if not cgroup.populated_at(host, f"{cgroup.path_of(slice_name)}/{unit}")
        and workload_state.runs_unit(host, unit)
        and workload_state.slice_that_holds(host, unit) is None
        and [item.value.lower() for item in files.settings(unit, "RemainAfterExit")][-1:] not in YES
    }
    pids = systemd.main_processes(host, strayed) if strayed and host.answers else {}
    for unit, slice_name in strayed.items():
        pid = pids.get(unit, "0") if pids is not None else ""
        location = f"/proc/{pid}/cgroup" if pid else f"{cgroup.path_of(slice_name)}/{unit}"
        if not pid:
            reason = "it runs, nothing is in its control group, and systemctl show does not say where its process is"
            yield Change(NAME, unit, "slice", None, slice_name, reason, location, (), UNKNOWN)
            continue
        group = (host.read(location) or "").strip()
        # The unit may have started again since: the process is in the unit's control group.
        if group.startswith("0::/") and unit not in group.split("/"):
            actual = f"{printable(group[len('0::/') :]) or 'the root'} (PID {pid} {process.name(host, pid)})"
            reason = f"it was moved there by hand since its start: systemctl restart {unit}"
            yield Change(
                NAME, unit, "slice", actual, slice_name, reason, location, (), UNCHANGEABLE, "next start", "service restart"
            )  # fmt: skip


def device_lines(
    need: ResourceRequirements, grant: t.Optional[Grant], context: Context, files: systemd.UnitFiles
) -> list[str]:
    """The lines for the drop-in of a unit with granted devices; if a resource has files, the unit can open no other devices.

    A unit with a private /dev also needs BindPaths= for every file that a grant may give. The unit can open only files of its grant.
    """
    if not need.devices:
        return []
    asked = need.device_resources
    closed = any(
        device_delivery.has_files(row.match) or row.bind for row in context.profile.devices if row.name in asked
    )
    unit, own = need.workload.template or need.workload.pattern, place_file(need)
    private = files.settings(unit, "PrivateDevices") if need.workload.is_unit else []
    binds: list[str] = []
    if device_allow.is_private(private):
        there = context.workloads.devices if context.workloads else None
        paths = device_delivery.paths_of(asked, there.devices if there else {}, grant.devices if grant else ())
        others = [item for name in device_allow.BINDS for item in files.settings(unit, name) if item.file != own]
        binds = device_allow.binds(paths, private, others)
        if context.run == "boot":
            # The present paths of BindPaths= stay at boot: the kernel may find more devices soon, and units start before the next tick.
            listed = [item.value for item in files.settings(unit, "BindPaths") if item.file == own]
            binds = sorted({*binds, *filter(None, listed)})
    return device_delivery.unit_lines(closed=closed, binds=binds)


def template_change(
    host: Host, need: ResourceRequirements, score: t.Optional[int], devices: t.Sequence[str] = ()
) -> t.Optional[Change]:
    """The change of a template's drop-in, which places every instance, even before its first run. ``devices``: lines for the drop-in."""
    unit = need.workload.template
    path = dropin(unit, NAME)
    slice_name = slice_for(need, None)
    text = workload_units.unit_dropin(need, slice_name, score, exclusive=bool(need.cpus), devices=devices)
    return file_change(NAME, path, host.read(path), text, reason=f"places instances of {unit} in their slices")


def earlier_name_change(host: Host, grant: Grant) -> t.Optional[Change]:
    """The change of the drop-in of a running unit whose grant has an earlier name of its workload."""
    path, text = dropin(grant.unit, workload_units.EARLIER_NAME), workload_units.earlier_name_text(grant.workload)
    reason = f"{grant.unit} keeps what it has as {grant.workload} until it stops"
    return file_change(NAME, path, host.read(path), text, reason=reason)


def later_change(
    need: ResourceRequirements, name: str, settings: t.Sequence[Setting], wanted: str
) -> t.Optional[Change]:
    """The item for a file of another author that sorts after Corral's drop-in and sets a property to another value."""
    # A name that sorts before Corral's drop-in is enough: no key of a profile sets this property, and Slice= may match a tenant's slice.
    way_out = f"take {name}= out of it, or rename it to sort before Corral's"
    return unit_property.later_change(
        NAME, need.workload.pattern, name, settings, wanted, ours=place_file(need), way_out=way_out
    )


def running_containers(host: Host, needs: t.Iterable[ResourceRequirements]) -> list[tuple[str, str]]:
    """Names and control groups of the running containers that may belong to workloads. Only Podman knows a container's pod and labels."""
    known = [need.workload for need in needs if not need.workload.is_unit]
    patterns = sorted({one.pattern if MATCH_KINDS[one.match].in_monitor else "*" for one in known})
    if not patterns:
        return []
    from ...host.containers import conmon

    return conmon.containers(host, cgroup.ROOT, tuple(patterns))


def container_change(
    need: ResourceRequirements, slice_name: str, running: t.Iterable[tuple[str, str]]
) -> t.Optional[Change]:
    """The item for a container of a workload that runs outside the workload's slice, on shared CPUs.

    The item is unknown if only Podman can tell whether a container belongs to the workload. A pod's infra container only waits: it may run
    anywhere.
    """
    kind, pattern = MATCH_KINDS[need.workload.match], need.workload.pattern
    inside = f"{cgroup.path_of(slice_name)}/"
    outside = [(name, location) for name, location in running if not f"{location}/".startswith(inside)]
    named = [row for row in outside if kind.in_monitor and fnmatch.fnmatchcase(row[0], pattern)]
    if named:
        name, location = named[0]
        hint = way_into(slice_name, location)
        actual = f"{name} in {slice_shown(location)}{'' if len(named) == 1 else f', and {len(named) - 1} more'}"
        verdict = UNCHANGEABLE
        return Change(
            NAME, need.workload.name, "slice", actual, slice_name, hint, location, (), verdict, "next start", "service restart"
        )  # fmt: skip
    maybe = [
        row
        for row in outside
        if not (kind.in_monitor and row[0]) and not in_own_slice(row[1]) and not row[0].endswith(pid_sharing.INFRA)
    ]
    if not maybe:
        return None
    name, location = maybe[0]
    who = f"{name or 'a container that has lost its monitor (conmon)'} runs in {slice_shown(location)}"
    hint = way_into(slice_name, location)
    reason = f"{who}, and only Podman knows whether it is one of {kind.key} {pattern}: if so, {hint}"
    return Change(NAME, need.workload.name, "slice", None, slice_name, reason, location, (), UNKNOWN)


def way_into(slice_name: str, location: str) -> str:
    """How to start a container in a slice. A container inside a unit needs Slice= of the unit: Podman refuses --cgroup-parent in a unit."""
    parent, dummy, own = location.rpartition("/")
    unit = parent.rpartition("/")[2]
    if own.startswith(SPLIT) and unit.endswith(".service"):
        return f"add Slice={slice_name} to [Service] of {unit} (of its Quadlet file, where it has one), and restart it"
    return f"start it with --cgroup-parent={slice_name}, or as a unit (Quadlet) that the workload matches"


def in_own_slice(location: str) -> bool:
    """Whether a control group is in one of Corral's slices."""
    return is_own(location[len(cgroup.ROOT) + 1 :].partition("/")[0])


def slice_shown(location: str) -> str:
    """The slice of a container's control group, for messages."""
    return location[len(cgroup.ROOT) + 1 :].partition("/libpod-")[0] or "the root"


# OOM scores


def score_of(need: ResourceRequirements, capacity: t.Optional[int]) -> t.Optional[int]:
    """oom_score_adj of a workload's processes; None if the score depends on the size of the memory, and the size is unknown."""
    if capacity is None and need.qos == qos.BURSTABLE:
        return None
    return qos.oom_score_adj(need.qos, dict(need.requests).get(MEMORY, 0), capacity or 1)


def scores_differ(need: ResourceRequirements) -> bool:
    """Whether each container of a pod has a different score: only in the class Burstable."""
    return bool(need.workload.containers) and need.qos == qos.BURSTABLE


def slice_for(need: ResourceRequirements, grant: t.Optional[Grant]) -> str:
    """The slice of a workload. A workload that was refused CPUs runs on the shared pool: a slice without a cpuset would have all CPUs.

    A workload with ``hold: running`` has its exclusive slice even without a grant: it does not start without a grant.
    """
    own = bool(grant.cpus) if grant else need.cpus > 0 and need.workload.hold == RUNNING
    return grants.slice_of(need.workload.name, exclusive=own, tenant=need.tenant)
