# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# This module is private to the collection corral.node.
"""The devices manager: it delivers granted devices to units and containers, and takes the devices back when the grant ends.

The grants are decided before (model/workload/device_placement.py). All files are in /run: a boot begins without these files, and
corral-boot.service delivers lasting grants again. While a device of a running workload is missing, nothing changes for the workload.
"""

from __future__ import annotations

import fnmatch
import re
import typing as t
from functools import partial

from ...host import cgroup, state, systemd
from ...host.devices import device_files, device_lists
from ...host.files import Host
from ...host.workload import workload_state
from ...model.devices import device_delivery
from ...model.devices.device import is_place
from ...model.devices.device_delivery import CDI_FOLDER, DRIVER_ENDING, FOLDER, flat
from ...model.plan import make_step
from ...model.plan.context import Context, Workloads
from ...model.plan.plan import TAKE, UNCHANGEABLE, Change, Part, Step
from ...model.profile.profile import Profile
from ...model.profile.profile_workloads import RUNNING
from ...model.systemd import device_allow
from ...model.systemd.unit_property import (
    DEVICE_ALLOW,
    Setting,
    control_file,
    dropin,
    live_file_removal,
    set_by_hand,
    with_dropin,
)
from ...model.values.records import NamedTuple
from ...model.workload import workload_units
from ...model.workload.grants import Grant
from ..manager import Manager
from . import device_drivers, device_specs
from .device_places import BOUND, ENDED, NAME, OPENED, TOLD, WRITES

if t.TYPE_CHECKING:
    from ...model.devices.device import Device
    from ...model.devices.device_delivery import Held
    from ...model.workload.resource_requirements import ResourceRequirements

AGENT = "agent"  # the manager of the program that hooks run
OWN_DROPIN = dropin("", workload_units.NAME).rpartition("/")[2]
LEFT_BEHIND = re.compile(r"\.(.*)\.corral")


class ObservedDevices(NamedTuple):
    """The delivered devices. ``files``: the environment files by path. ``lists``: DeviceAllow= by unit. ``specs``: the CDI specs by path.
    ``bound``: PCI functions that Corral bound. ``numbers``: device numbers of files, as below /sys/dev; None in a snapshot.
    """

    files: t.Mapping[str, t.Optional[str]]
    lists: t.Mapping[str, UnitDevices]
    specs: t.Mapping[str, t.Optional[str]]
    bound: tuple[str, ...] = ()
    numbers: t.Optional[t.Mapping[str, str]] = None


class UnitDevices(NamedTuple):
    """DeviceAllow= of a unit. ``own``: the entries that Corral did not write. ``now``: all entries. ``is_set``: systemd's live file of the
    property exists. ``left_out``: entries of others that cannot be set as a property. ``reset_by``: a file that sorts after the live file
    and empties the list. ``hidden_by``: a file that systemd reads in place of the live file. ``private``: settings of PrivateDevices=.
    ``bound``: settings of BindPaths=. ``there``: the unit exists.
    """

    own: tuple[str, ...]
    now: tuple[str, ...]
    is_set: bool
    left_out: tuple[str, ...]
    reset_by: str = ""
    hidden_by: str = ""
    there: bool = True
    private: tuple[Setting, ...] = ()
    bound: tuple[Setting, ...] = ()


def plan(host: Host, context: Context) -> Part:
    """The devices manager's part of the plan; an empty part on a node where no device was ever granted."""
    found = context.workloads
    ends = context.profile.cpu is None  # without ``cpu`` all grants end, even of running workloads
    granted = [grant for grant in context.grants if grant.devices and not ends]
    names = host.names(FOLDER)
    # Even if the environment file of an ended grant was removed by hand, the unit's device list is restored.
    before = [grant for grant in found.checkpoint.grants if grant.devices] if found is not None else []
    ended = {device_delivery.env_file(one.workload, one.unit) for one in before} | files_of_lists(host)
    runs = {} if ends else device_lists.without_grant(host, before)
    specs = device_specs.specs_of(host)
    hooks = {} if ends else device_specs.hooks_of_pods(host, context, specs)
    if not (granted or ended or names or specs or hooks) or ((granted or hooks) and not can_be_written(host)):
        return Part((), frozenset())
    seen = observe(host, granted, names, specs, ended)
    devices = found.devices.known if found is not None and found.devices is not None else {}
    notes = device_specs.conflicts(granted, devices)
    if host.answers:
        seen = seen._replace(numbers=numbers_of(host, granted, devices, seen.lists.values()))
    changes = decide(found, granted, seen, hooks, runs)
    if context.run == "timer":
        # A spec that cannot be written (for example if another program mounts its folder) must not hold up other changes.
        changes = [
            one._replace(steps=tuple(map(as_optional, one.steps))) if one.subject.startswith(CDI_FOLDER) else one
            for one in changes
        ]
    return Part(tuple(changes), frozenset(), manager=NAME, notes=tuple(notes))


def can_be_written(host: Host) -> bool:
    """Whether the workloads manager writes a checkpoint on this node: only devices of its grants are delivered."""
    return systemd.runs(host) and cgroup.unified(host)


def observe(
    host: Host,
    granted: t.Sequence[Grant],
    names: t.Iterable[str],
    specs: t.Mapping[str, t.Optional[str]],
    ended: t.Collection[str] = (),
) -> ObservedDevices:
    """The delivered devices as observed, of all units that have or get devices. ``ended``: environment files of ended grants."""
    # A temporary file that a killed writer left is removed with the file itself (Host.remove).
    names = dict.fromkeys(LEFT_BEHIND.sub(r"\1", name) for name in names)
    paths = [f"{FOLDER}/{name}" for name in names if name.endswith(device_delivery.ENDING)]
    there = frozenset(paths)
    paths += [path for path in ended if path not in there]
    units = {grant.unit for grant in granted} | {device_delivery.unit_of(path[len(FOLDER) + 1 :]) for path in paths}
    units -= {""}
    files = systemd.UnitFiles(host, [name for unit in units for name in workload_state.named(unit)])
    lists = {unit: listed(host, files, unit) for unit in sorted(units)}
    are_set = {unit for unit, one in lists.items() if one.is_set}
    paths = [path for path in paths if path in there or device_delivery.unit_of(path[len(FOLDER) + 1 :]) in are_set]
    bound = [name[: -len(DRIVER_ENDING)] for name in names if name.endswith(DRIVER_ENDING)]
    bound = [one for one in bound if device_delivery.PCI_ADDRESS.fullmatch(one)]
    return ObservedDevices({path: host.read(path, follow=False) for path in paths}, lists, specs, tuple(sorted(bound)))


def numbers_of(
    host: Host, granted: t.Iterable[Grant], devices: t.Mapping[str, tuple[Device, ...]], lists: t.Iterable[UnitDevices]
) -> dict[str, str]:
    """The device numbers of the files of granted devices, and of the files that units may open by their paths.

    If a granted device is no longer found, its file may still exist, for example after the removal of its link or spec.
    """
    held = {one.id: one for grant in granted for one in grant.devices}
    known = [one for several in devices.values() for one in several if one.id in held]
    lost = [device_delivery.not_seen(held[name]) for name in held.keys() - {one.id for one in known}]
    paths = device_delivery.names_of([*known, *lost])
    paths += [entry.split()[0] for one in lists for entry in one.now if entry.startswith("/dev/")]
    found = {path: host.device(path) for path in dict.fromkeys(paths)}
    for one in lost:
        # If a lost device's sysfs folder or PCI address is known, a file with another folder or address belongs to another device.
        places = set(filter(is_place, one.keys))
        for path in one.files if places else ():
            if path.startswith(device_delivery.VFIO_FOLDER):
                continue  # a VFIO file belongs to an IOMMU group, not to a function
            if device_files.device_file(host, path).location not in {"", *places}:
                found[path] = None
    return {path: number for path, number in found.items() if number is not None}


def as_optional(step: Step) -> Step:
    """The step as an optional step: a failure of the step is drift, which the next observation finds."""
    return step._replace(optional=True)


def listed(host: Host, files: systemd.UnitFiles, unit: str) -> UnitDevices:
    """DeviceAllow= of a unit, and the settings that may hide devices from the unit."""
    settings, control = files.settings(unit, DEVICE_ALLOW), control_file(unit, DEVICE_ALLOW, runtime=True)
    own = device_allow.added_up((item for item in settings if item.file != control), unit)
    by_hand = set_by_hand(unit, DEVICE_ALLOW, settings)
    return UnitDevices(
        tuple(filter(device_allow.can_be_set, own)),
        device_allow.added_up(settings, unit),
        any(item.file == control for item in settings) or (by_hand is not None and host.exists(control)),
        tuple(one for one in own if not device_allow.can_be_set(one)),
        next((item.file for item in settings if not item.value and sorts_after(item.file, control)), ""),
        by_hand.file if by_hand else "",
        workload_state.there(host, files, unit),
        tuple(files.settings(unit, "PrivateDevices")),
        tuple(item for name in device_allow.BINDS for item in files.settings(unit, name)),
    )


def sorts_after(file: str, control: str) -> bool:
    """Whether systemd reads a drop-in after its own file of a property."""
    return ".d/" in file and file.rpartition("/")[2] > control.rpartition("/")[2]


def decide(
    found: t.Optional[Workloads],
    granted: t.Sequence[Grant],
    seen: ObservedDevices,
    hooks: t.Mapping[str, t.Any],
    runs: t.Mapping[str, device_lists.Run],
) -> list[Change]:
    """The changes that deliver granted devices, take back devices whose grants have ended, and name the missing devices of grants.

    ``hooks``: the hooks of containers, by the names of CDI devices. ``runs``: the runs without a grant, by their environment files.
    """
    inventory = found.devices if found else None
    devices: t.Mapping[str, tuple[Device, ...]] = inventory.known if inventory else {}
    needs = {one.workload.name: one for one in found.needs} if found else {}
    changes: list[Change] = []
    kept: set[str] = set()
    delivered = of_files(granted, needs, devices)
    needed = numbers_of_starting(found, delivered.values(), seen)
    undeclared = {one.id: one for one in devices.get("", ())}
    for path, several in delivered.items():
        # If a step fails, a unit that is about to start does not start; for any other unit the next tick asks systemd again.
        starting = is_starting(found, several)
        for grant, held in several:
            changes += missing(grant, inventory.devices if inventory else {}, undeclared)
            changes += device_drivers.driver_changes(held, starting=starting)
        grant = several[0].grant
        bound = bound_then(grant, needs.get(grant.workload), seen, devices)
        as_read = device_delivery.env_file_as_read(path)
        kept.update((path, as_read))
        is_others = as_read != path and as_read in delivered
        paths = (path,) if is_others else tuple(dict.fromkeys((path, as_read)))
        changes += given(several, paths, seen, starting=starting, needed=needed, bound=bound)
        if is_others:
            changes.append(environment_of_another(grant, as_read))
    for path, run in runs.items():
        kept.update((path, device_delivery.env_file_as_read(path)))
        changes.append(lost_grant(run.name, path))
    for path in sorted(set(seen.files) - kept):
        changes += taken_back(path, seen)
    in_use = {key for grant in granted for one in grant.devices for key in one.keys}
    # While a run without a grant exists, no function is released: the run may use any function, even if it has no VFIO file open now.
    unused = [] if runs else [address for address in seen.bound if address not in in_use]
    changes += map(device_drivers.given_back, unused)
    rows = device_specs.wanted_rows(granted, devices, seen.specs, hooks)
    return [*changes, *device_specs.spec_changes(seen.specs, rows)]


def numbers_of_starting(
    found: t.Optional[Workloads], delivered: t.Iterable[t.Sequence[Holder]], seen: ObservedDevices
) -> set[t.Optional[str]]:
    """The device numbers that starting units get: such a unit does not start if systemd leaves one of its devices open to another unit."""
    numbers = seen.numbers or {}
    sole = (one for several in delivered if is_starting(found, several) for one in several)
    entries = (device_delivery.allowed(flat(one.held.devices), numbers, seen.bound) for one in sole)
    codes = {code_of(entry, numbers) for several in entries for entry in several}
    return codes - {None, numbers.get(device_delivery.VFIO_CONTROL)}


def is_starting(found: t.Optional[Workloads], several: t.Sequence[Holder]) -> bool:
    """Whether the unit with the grants ``several`` is about to start."""
    return found is not None and any(grant.workload in found.status.starting for grant, dummy in several)


def missing(
    grant: Grant, devices: t.Mapping[str, tuple[Device, ...]], undeclared: t.Mapping[str, Device]
) -> list[Change]:
    """The items of granted devices that are gone or unhealthy. The workload keeps such a device, and no other workload gets the device.

    ``undeclared``: the devices that no longer belong to a resource. A run keeps such a device until the run stops.
    """
    found = {}
    for one in grant.devices:
        if one.resource not in devices:
            continue  # The resource is no longer declared: the workload keeps the device until the workload stops.
        there = next((device for device in devices.get(one.resource, ()) if device.id == one.id), None)
        elsewhere, back = undeclared.get(one.id), "bring it back"
        if there is not None:
            why = there.unhealthy
        elif elsewhere is None:
            why = "gone"
        elif elsewhere.unhealthy or grant.hold == RUNNING:
            why = elsewhere.unhealthy
        else:
            why, back = f"not of {one.resource} any more", f"let {one.resource} match it again"
        if why:
            way_out = (
                f"stop and start {grant.workload} for another one"
                if grant.hold == RUNNING
                else f"take the request for it out of the profile and stop {grant.workload}"
            )
            reason = f"{grant.workload} has it: {back}, or {way_out}"
            found[one.id] = Change(
                NAME, f"{grant.workload} {one.id}", "health", why, "healthy", reason, one.id, (), UNCHANGEABLE
            )
    return list(found.values())


def bound_then(
    grant: Grant,
    need: t.Optional[ResourceRequirements],
    seen: ObservedDevices,
    devices: t.Mapping[str, tuple[Device, ...]],
) -> t.Sequence[Setting]:
    """BindPaths= of a unit, as if the unit had the workloads manager's drop-in: a missing drop-in is drift of the workloads manager."""
    there = seen.lists.get(grant.unit)
    if there is None or need is None or not device_allow.is_private(there.private):
        return there.bound if there else ()
    if need.workload.template and f"/{grant.unit}.d/" in there.private[-1].file:
        return there.bound  # the template's drop-in serves all instances
    own = dropin(need.workload.template or need.workload.pattern, workload_units.NAME)
    others = [item for item in there.bound if item.file != own]
    paths = device_delivery.paths_of(need.device_resources, devices, () if need.workload.template else grant.devices)
    return with_dropin(others, own, device_allow.binds(paths, there.private, others))


class Holder(NamedTuple):
    """A grant, and its devices as found on the node."""

    grant: Grant
    held: Held


def of_files(
    granted: t.Iterable[Grant], declared: t.Container[str], devices: t.Mapping[str, tuple[Device, ...]]
) -> dict[str, list[Holder]]:
    """The grants by their environment files.

    A unit that still runs under an earlier name of its workload has two grants. The grant of a workload in ``declared`` is first.
    """
    found: dict[str, list[Holder]] = {}
    for grant in sorted(granted, key=lambda one: one.workload not in declared):
        path = device_delivery.env_file(grant.workload, grant.unit)
        found.setdefault(path, []).append(Holder(grant, device_delivery.held(grant.devices, devices)))
    return found


def given(
    several: t.Sequence[Holder],
    files: t.Sequence[str],
    seen: ObservedDevices,
    *,
    starting: bool,
    needed: t.AbstractSet[t.Optional[str]],
    bound: t.Sequence[Setting],
) -> list[Change]:
    """The changes of a unit's environment ``files``, which name the devices of the first grant, and of its device list for all grants.

    ``needed``: the device numbers that starting units get. ``bound``: the unit's settings of BindPaths=.
    """
    grant, own = several[0]
    told = {file: environment_steps(file, own.devices, seen) for file in files}
    changes = [environment_change(grant, file, steps, seen) for file, steps in told.items() if steps]
    there = seen.lists.get(grant.unit)
    if there is None or not there.there:
        return changes
    devices = [device for one in several for device in flat(one.held.devices)]
    numbers = seen.numbers or {}
    wanted = wanted_list(there, device_delivery.allowed(devices, numbers, seen.bound))
    kept: t.Sequence[str] = there.now
    if seen.numbers is not None:
        kept = kept_in_list(there.now, wanted, numbers, device_delivery.to_be_made(devices))
    change = allow_change(grant.unit, there, kept, wanted) if seen.numbers is not None or not there.is_set else None
    if change is not None and change.steps and not starting:
        must = bool(needed & {code_of(entry, numbers) for entry in there.now if entry not in kept})
        changes, change = [optional_but_takes(one) for one in changes], optional_but_takes(change, must=must)
    changes += [change] if change is not None else []
    changes += [left_out_change(grant.unit, entry) for entry in there.left_out]
    # Links and files must both be visible to the unit: a link leads nowhere without its file.
    return changes + hidden_change(grant.unit, there, device_delivery.names_of(flat(own.devices)), bound)


def optional_but_takes(change: Change, *, must: bool = True) -> Change:
    """The change with optional steps, which may fail. With ``must`` the steps that take devices away stay required."""
    steps = (step if must and step.phase == TAKE else as_optional(step) for step in change.steps)
    return change._replace(steps=tuple(steps))


def kept_in_list(
    now: t.Sequence[str], wanted: t.Sequence[str], numbers: t.Mapping[str, str], to_make: t.Collection[str]
) -> t.Sequence[str]:
    """A unit's device list after the removals and before the additions: the entries of ``now`` that open only ``wanted`` devices.

    If no entry is removed, the result is ``now`` itself. Entries of the files ``to_make`` are left out: these files exist only later.
    """
    codes = {code_of(one, numbers) for one in wanted} | {None}
    later = {one for one in (*now, *wanted) if one.split(maxsplit=1)[0] in to_make}
    kept = [one for one in now if one not in later and (one in wanted or code_of(one, numbers) in codes)]
    if len(kept) == len(now):
        return now
    kept += [one for one in wanted if one not in kept and one not in later and code_of(one, numbers) is None]
    return kept or ([device_allow.MARK] if wanted else [])


def code_of(entry: str, numbers: t.Mapping[str, str]) -> t.Optional[str]:
    """The device number that an entry of a device list opens now, as below /sys/dev; None if the number is not known."""
    path = entry.split(maxsplit=1)[0]
    return path[len("/dev/") :] if path.startswith(device_allow.NUMBERS) else numbers.get(path)


def environment_steps(path: str, devices: t.Mapping[str, t.Sequence[Device]], seen: ObservedDevices) -> list[Step]:
    """The steps that write a workload's environment file: the variables for its devices."""
    now = seen.files.get(path)
    kept, text = device_delivery.kept_text(now, devices), device_delivery.env_text(devices)
    return make_step.take_and_give(partial(make_step.file, path, mode=0o644), now, kept, text, TOLD)


def environment_change(grant: Grant, path: str, steps: t.Iterable[Step], seen: ObservedDevices) -> Change:
    """The change of a workload's environment file, with ``steps``."""
    actual = None if seen.files.get(path) is None else "others, or changed by hand"
    reason = "its environment names what it was granted"
    return Change(NAME, path, "content", actual, shown(grant), reason, path, tuple(steps))


def environment_of_another(grant: Grant, path: str) -> Change:
    """The item of a unit with a backslash in its name: systemd reads the environment file of another unit with devices."""
    other = device_delivery.unit_of(path[len(FOLDER) + 1 :])
    reason = f"systemd reads the same environment file for {other}: rename one of the two"
    return Change(
        NAME, grant.unit, "environment", f"that of {other}", shown(grant), reason, path, (), UNCHANGEABLE, "next start"
    )


def wanted_list(seen: UnitDevices, granted: t.Iterable[str]) -> tuple[str, ...]:
    """DeviceAllow= of a unit: the entries that Corral did not write, and the entries for granted devices."""
    given = list(granted)
    return tuple(dict.fromkeys([*seen.own, *given, *([device_allow.MARK] if given else [])]))


def allow_change(unit: str, seen: UnitDevices, kept: t.Sequence[str], wanted: t.Sequence[str]) -> t.Optional[Change]:
    """The change of a unit's device list.

    An unchanged list is set again if ``kept`` has fewer entries: then systemd looks up the devices that were bound since.
    """
    if set(seen.now) == set(wanted) and kept is seen.now:
        return None
    location = control_file(unit, DEVICE_ALLOW, runtime=True)
    shown_now, shown_then = device_allow.shown(seen.now) or None, device_allow.shown(wanted)
    if set(seen.now) == set(wanted):
        shown_now = "set when a group was bound before"
    elif set(seen.now) ^ set(wanted) == {device_allow.MARK}:
        shown_now = "without the mark of Corral"  # set by an older version of Corral
    reason = ""
    if seen.hidden_by:
        reason = (
            f"{seen.hidden_by} hides {location} (systemctl set-property without --runtime): give that file another name"
        )
    elif seen.reset_by:
        reason = f"{seen.reset_by} sorts after {location} and empties the list: remove that line"
    if reason:
        file = seen.hidden_by or seen.reset_by
        return Change(NAME, unit, DEVICE_ALLOW, shown_now, shown_then, reason, file, (), UNCHANGEABLE, "next start")
    now, low, high = map("\n".join, (seen.now, kept, kept if set(kept) == set(wanted) else wanted))
    write = partial(make_step.unit_property, unit, DEVICE_ALLOW)
    steps = make_step.take_and_give(write, now, low, high, OPENED)
    reason = "the unit may open the devices that it was granted, from its next open on"
    return Change(NAME, unit, DEVICE_ALLOW, shown_now, shown_then, reason, location, tuple(steps))


def left_out_change(unit: str, entry: str) -> Change:
    """The item of an entry in the unit's own files that Corral's list cannot have. Corral's list replaces the unit's own list."""
    reason = "systemd takes the list as a whole and without specifiers: write this entry as a path in /dev, char-NAME or block-NAME"
    return Change(
        NAME, unit, f"{DEVICE_ALLOW} {entry}", "left out", entry, reason, unit, (), UNCHANGEABLE, "next start"
    )


def hidden_change(unit: str, seen: UnitDevices, paths: t.Sequence[str], bound: t.Sequence[Setting]) -> list[Change]:
    """The item of devices that a unit does not see in its private /dev; ``bound``: the unit's settings of BindPaths=."""
    hidden = ", ".join(device_allow.hidden(paths, seen.private, bound))
    if not hidden:
        return []
    file = seen.private[-1].file
    reason = f"PrivateDevices= in {file} hides them: add BindPaths= with their folder, or remove PrivateDevices="
    last = max((index for index, item in enumerate(bound) if item.file.endswith(OWN_DROPIN)), default=len(bound))
    emptied = [item.file for item in bound[last:] if not item.value]
    if emptied:
        file = emptied[-1]
        reason = f"{file} empties BindPaths=, which brings them into the unit's own /dev: remove that line"
    found = Change(NAME, unit, "PrivateDevices", "hidden", hidden, reason, file, (), UNCHANGEABLE, "next start")
    return [found._replace(disruption="service restart")]


def taken_back(path: str, seen: ObservedDevices) -> list[Change]:
    """The change that takes back all devices of an environment file's workload. A unit that starts meanwhile gets an empty environment."""
    unit = device_delivery.unit_of(path[len(FOLDER) + 1 :])
    there = seen.lists.get(unit)
    steps: list[Step] = []
    text = seen.files[path]
    if unit and device_delivery.given_ids(text):
        steps.append(make_step.file(path, device_delivery.env_text({}), TAKE, TOLD, mode=0o644))
    # A running unit may still have the list in the kernel after a reload, even if systemd's file of the list was removed by hand.
    if there is not None:
        own = "\n".join(there.own)
        steps.append(make_step.unit_property(unit, DEVICE_ALLOW, own, TAKE, OPENED, optional=True))
        removal = live_file_removal(unit, DEVICE_ALLOW)
        steps.append(removal._replace(phase=TAKE, order=BOUND))
        steps.append(make_step.folder(removal.target.rpartition("/")[0], TAKE, ENDED))
    steps += [make_step.file(path, None, TAKE, ENDED), make_step.folder(FOLDER, TAKE, ENDED + 1)]
    return [Change(NAME, path, "content", "devices", None, "no workload has them any more", path, tuple(steps))]


def lost_grant(name: str, path: str) -> Change:
    """The item of a run with a lost grant. Corral does not guess the run's devices, and grants no device that the run may have."""
    reason = f"it keeps what it has until it stops, and no other workload gets that: stop {name}, and start it after the next tick"
    return Change(
        NAME, name, "grant", "lost", "devices", reason, path, (), UNCHANGEABLE, "next start", "service restart"
    )


def shown(grant: Grant) -> str:
    """The devices of a grant on one line."""
    return ", ".join(dict.fromkeys(f"{one.resource} {one.id}" for one in grant.devices))


# The entry for the registry


def key_of(change: Change, declared: Profile) -> str:
    """The key of a change's workload, if the change's subject is the workload's name, its unit, or a file of its unit."""
    file = change.subject.rpartition("/")[2] if change.subject.startswith(FOLDER) else ""
    unit = device_delivery.unit_of(file) or change.subject
    name = (file.removesuffix(f".workload{device_delivery.ENDING}") or change.subject.partition(" ")[0]).partition(":")[
        0
    ]
    for index, one in enumerate(declared.workloads):
        if name == one.name or (one.is_unit and fnmatch.fnmatchcase(unit, one.pattern)):
            return f"workloads[{index}]"
    return "devices"


def on_removal(host: Host, removed: t.Container[str], dummy_back: bool) -> tuple[Change, ...]:
    """The changes that take back all devices. If the agent is removed without this manager: the changes that remove the agent's hooks."""
    if NAME not in removed:
        return device_specs.without_program(device_specs.specs_of(host)) if AGENT in removed else ()
    seen = observe(host, (), host.names(FOLDER), device_specs.specs_of(host), files_of_lists(host))
    back = [change for path in sorted(seen.files) for change in taken_back(path, seen)]
    back += [device_drivers.given_back(address) for address in seen.bound]
    return (*back, *device_specs.spec_changes(seen.specs, {}))


def files_of_lists(host: Host) -> set[str]:
    """The environment files of units with a device list that Corral set. An entry marks the list, even if file and checkpoint are gone."""
    return {device_delivery.env_file("", unit) for unit in device_lists.marked(host)}


def status_files(dummy_host: Host) -> tuple[str, ...]:
    """The files that ticks keep for the next boot."""
    return (state.PCI_USED,)


MANAGER = Manager(NAME, plan, WRITES, key_of=key_of, on_removal=on_removal, status_files=status_files)
