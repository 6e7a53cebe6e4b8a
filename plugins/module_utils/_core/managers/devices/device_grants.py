# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# This module is private to the collection corral.node.
"""The devices manager: what workloads were granted reaches their units and containers, and leaves them when the grant ends.

Which devices each has was decided before (model/workload/device_placement.py). All of it is in /run: a boot begins without any, and
corral-boot.service brings back what lasts. What a running workload was given stays as it is while one of its devices is away.
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
    """What was delivered: the files for environments by path, the lists of units that have such a file, the CDI specs by path, and the
    PCI functions that Corral has bound to a driver. ``numbers`` are those of device files, as below /sys/dev; None in a snapshot, which
    has no device files.
    """

    files: t.Mapping[str, t.Optional[str]]
    lists: t.Mapping[str, UnitDevices]
    specs: t.Mapping[str, t.Optional[str]]
    bound: tuple[str, ...] = ()
    numbers: t.Optional[t.Mapping[str, str]] = None


class UnitDevices(NamedTuple):
    """DeviceAllow= of a unit: as others than Corral wrote it, as it is now, and whether systemd's file of it is there. ``left_out``
    are entries of others that cannot be set, ``reset_by`` is a file that empties the list after systemd's own, ``hidden_by`` one
    that systemd reads in its place. ``there``: the unit exists. ``private`` and ``bound`` are its settings of PrivateDevices= and
    BindPaths=.
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
    """The devices manager's part of the plan; nothing on a node where no device was ever granted."""
    found = context.workloads
    ends = context.profile.cpu is None  # All grants end then (see the workloads manager), those of what runs too.
    granted = [grant for grant in context.grants if grant.devices and not ends]
    names = host.names(FOLDER)
    # The file of a grant that ends may have been removed by hand: its list is taken back all the same.
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
        # A spec that cannot be written, such as in a folder that another program mounts, is to hold up nothing else.
        changes = [
            one._replace(steps=tuple(map(as_optional, one.steps))) if one.subject.startswith(CDI_FOLDER) else one
            for one in changes
        ]
    return Part(tuple(changes), frozenset(), manager=NAME, notes=tuple(notes))


def can_be_written(host: Host) -> bool:
    """Whether a checkpoint of grants is written here: nothing is given that it does not have (see the workloads manager)."""
    return systemd.runs(host) and cgroup.unified(host)


def observe(
    host: Host,
    granted: t.Sequence[Grant],
    names: t.Iterable[str],
    specs: t.Mapping[str, t.Optional[str]],
    ended: t.Collection[str] = (),
) -> ObservedDevices:
    """Look at what was delivered, and at the units that it was for or is to be for; ``ended`` are files that may be there no longer."""
    # What a killed writer left beside a file is removed with it (Host.remove).
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
    """The numbers of the files of granted devices, and of those that units may open by their paths.

    A granted device that is not found any more may still have its file, for example after the removal of its link or
    spec.
    """
    held = {one.id: one for grant in granted for one in grant.devices}
    known = [one for several in devices.values() for one in several if one.id in held]
    lost = [device_delivery.not_seen(held[name]) for name in held.keys() - {one.id for one in known}]
    paths = device_delivery.names_of([*known, *lost])
    paths += [entry.split()[0] for one in lists for entry in one.now if entry.startswith("/dev/")]
    found = {path: host.device(path) for path in dict.fromkeys(paths)}
    for one in lost:
        # Its place, where it is known, tells whether another device has its name by now.
        places = set(filter(is_place, one.keys))
        for path in one.files if places else ():
            if path.startswith(device_delivery.VFIO_FOLDER):
                continue  # The file of an IOMMU group, whose places are PCI functions.
            if device_files.device_file(host, path).location not in {"", *places}:
                found[path] = None
    return {path: number for path, number in found.items() if number is not None}


def as_optional(step: Step) -> Step:
    """A step whose failure is drift, found by the next observation."""
    return step._replace(optional=True)


def listed(host: Host, files: systemd.UnitFiles, unit: str) -> UnitDevices:
    """DeviceAllow= of a unit, and which devices its settings hide from it."""
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
    """Whether a drop-in is read after systemd's own file of a property."""
    return ".d/" in file and file.rpartition("/")[2] > control.rpartition("/")[2]


def decide(
    found: t.Optional[Workloads],
    granted: t.Sequence[Grant],
    seen: ObservedDevices,
    hooks: t.Mapping[str, t.Any],
    runs: t.Mapping[str, device_lists.Run],
) -> list[Change]:
    """The changes that deliver what is granted, take back what no longer is, and name what a holder misses.

    ``hooks`` are those of containers, by the names of their devices, ``runs`` those without a grant, by their files.
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
        # A unit that is about to start does not start without its list; any other one is asked again by the next tick.
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
    # Which functions a run without a grant has is not known, nor does it have their group open at each moment.
    unused = [] if runs else [address for address in seen.bound if address not in in_use]
    changes += map(device_drivers.given_back, unused)
    rows = device_specs.wanted_rows(granted, devices, seen.specs, hooks)
    return [*changes, *device_specs.spec_changes(seen.specs, rows)]


def numbers_of_starting(
    found: t.Optional[Workloads], delivered: t.Iterable[t.Sequence[Holder]], seen: ObservedDevices
) -> set[t.Optional[str]]:
    """The numbers of what a unit gets that is about to start: it does not start where systemd leaves that open to another one."""
    numbers = seen.numbers or {}
    sole = (one for several in delivered if is_starting(found, several) for one in several)
    entries = (device_delivery.allowed(flat(one.held.devices), numbers, seen.bound) for one in sole)
    codes = {code_of(entry, numbers) for several in entries for entry in several}
    return codes - {None, numbers.get(device_delivery.VFIO_CONTROL)}


def is_starting(found: t.Optional[Workloads], several: t.Sequence[Holder]) -> bool:
    """Whether the unit of these grants is about to start."""
    return found is not None and any(grant.workload in found.status.starting for grant, dummy in several)


def missing(
    grant: Grant, devices: t.Mapping[str, tuple[Device, ...]], undeclared: t.Mapping[str, Device]
) -> list[Change]:
    """A granted device that is gone or unhealthy. Nothing is taken from the workload, and no other one is given it.

    A run keeps what its resource does not have any more (``undeclared``) until it stops.
    """
    found = {}
    for one in grant.devices:
        if one.resource not in devices:
            continue  # The resource is no longer declared: the workload keeps the device until it stops.
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
    """BindPaths= of a unit once the workloads manager has written its drop-in, which is drift of its own where it is not there."""
    there = seen.lists.get(grant.unit)
    if there is None or need is None or not device_allow.is_private(there.private):
        return there.bound if there else ()
    if need.workload.template and f"/{grant.unit}.d/" in there.private[-1].file:
        return there.bound  # The drop-in is that of all instances.
    own = dropin(need.workload.template or need.workload.pattern, workload_units.NAME)
    others = [item for item in there.bound if item.file != own]
    paths = device_delivery.paths_of(need.device_resources, devices, () if need.workload.template else grant.devices)
    return with_dropin(others, own, device_allow.binds(paths, there.private, others))


class Holder(NamedTuple):
    """A grant, and what is known of its devices."""

    grant: Grant
    held: Held


def of_files(
    granted: t.Iterable[Grant], declared: t.Container[str], devices: t.Mapping[str, tuple[Device, ...]]
) -> dict[str, list[Holder]]:
    """The grants by the files with their environment.

    A unit has several while it still runs under an earlier name of its workload: that of its next start, which is ``declared``, is the
    first one.
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
    """The environment of a workload in its ``files``, which is for its next start, and what its unit may open, which has the devices of
    all its grants. ``needed`` are the numbers of what a unit gets that is about to start. ``bound`` is what it sees beside its own /dev.
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
    # A link leads nowhere without the file.
    return changes + hidden_change(grant.unit, there, device_delivery.names_of(flat(own.devices)), bound)


def optional_but_takes(change: Change, *, must: bool = True) -> Change:
    """A change whose steps may fail. With ``must``, the steps that take something away may not fail."""
    steps = (step if must and step.phase == TAKE else as_optional(step) for step in change.steps)
    return change._replace(steps=tuple(steps))


def kept_in_list(
    now: t.Sequence[str], wanted: t.Sequence[str], numbers: t.Mapping[str, str], to_make: t.Collection[str]
) -> t.Sequence[str]:
    """The list with which a unit opens what it opens ``now`` and is to open: ``now`` itself where that is all. The files ``to_make`` are
    there only later.
    """
    codes = {code_of(one, numbers) for one in wanted} | {None}
    later = {one for one in (*now, *wanted) if one.split(maxsplit=1)[0] in to_make}
    kept = [one for one in now if one not in later and (one in wanted or code_of(one, numbers) in codes)]
    if len(kept) == len(now):
        return now
    kept += [one for one in wanted if one not in kept and one not in later and code_of(one, numbers) is None]
    return kept or ([device_allow.MARK] if wanted else [])


def code_of(entry: str, numbers: t.Mapping[str, str]) -> t.Optional[str]:
    """The number that an entry of a list opens now, as below /sys/dev; None where it is not known."""
    path = entry.split(maxsplit=1)[0]
    return path[len("/dev/") :] if path.startswith(device_allow.NUMBERS) else numbers.get(path)


def environment_steps(path: str, devices: t.Mapping[str, t.Sequence[Device]], seen: ObservedDevices) -> list[Step]:
    """The writes of a file with the environment of a workload: the variables for its devices."""
    now = seen.files.get(path)
    kept, text = device_delivery.kept_text(now, devices), device_delivery.env_text(devices)
    return make_step.take_and_give(partial(make_step.file, path, mode=0o644), now, kept, text, TOLD)


def environment_change(grant: Grant, path: str, steps: t.Iterable[Step], seen: ObservedDevices) -> Change:
    """The file with the environment of a workload."""
    actual = None if seen.files.get(path) is None else "others, or changed by hand"
    reason = "its environment names what it was granted"
    return Change(NAME, path, "content", actual, shown(grant), reason, path, tuple(steps))


def environment_of_another(grant: Grant, path: str) -> Change:
    """The file that systemd reads for a unit with a backslash in its name, and that another unit with devices has."""
    other = device_delivery.unit_of(path[len(FOLDER) + 1 :])
    reason = f"systemd reads the same environment file for {other}: rename one of the two"
    return Change(
        NAME, grant.unit, "environment", f"that of {other}", shown(grant), reason, path, (), UNCHANGEABLE, "next start"
    )


def wanted_list(seen: UnitDevices, granted: t.Iterable[str]) -> tuple[str, ...]:
    """DeviceAllow= of a unit: what its own files say and what it was granted."""
    given = list(granted)
    return tuple(dict.fromkeys([*seen.own, *given, *([device_allow.MARK] if given else [])]))


def allow_change(unit: str, seen: UnitDevices, kept: t.Sequence[str], wanted: t.Sequence[str]) -> t.Optional[Change]:
    """What a unit may open: what its own files say and what it was granted.

    A list that is the same is set again where less is ``kept`` meanwhile: systemd looks up then what is bound.
    """
    if set(seen.now) == set(wanted) and kept is seen.now:
        return None
    location = control_file(unit, DEVICE_ALLOW, runtime=True)
    shown_now, shown_then = device_allow.shown(seen.now) or None, device_allow.shown(wanted)
    if set(seen.now) == set(wanted):
        shown_now = "set when a group was bound before"
    elif set(seen.now) ^ set(wanted) == {device_allow.MARK}:
        shown_now = "without the mark of Corral"  # As an older version set it.
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
    """An entry of others that Corral's list, which takes the place of theirs, cannot have."""
    reason = "systemd takes the list as a whole and without specifiers: write this entry as a path in /dev, char-NAME or block-NAME"
    return Change(
        NAME, unit, f"{DEVICE_ALLOW} {entry}", "left out", entry, reason, unit, (), UNCHANGEABLE, "next start"
    )


def hidden_change(unit: str, seen: UnitDevices, paths: t.Sequence[str], bound: t.Sequence[Setting]) -> list[Change]:
    """Devices that the unit does not see in its own /dev, with what is ``bound`` there."""
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
    """The end of what was delivered to a workload. A unit that starts meanwhile is told of nothing."""
    unit = device_delivery.unit_of(path[len(FOLDER) + 1 :])
    there = seen.lists.get(unit)
    steps: list[Step] = []
    text = seen.files[path]
    if unit and device_delivery.given_ids(text):
        steps.append(make_step.file(path, device_delivery.env_text({}), TAKE, TOLD, mode=0o644))
    # Also where a change by hand took it from systemd's files: a reload may leave what the kernel was told of a unit that runs.
    if there is not None:
        own = "\n".join(there.own)
        steps.append(make_step.unit_property(unit, DEVICE_ALLOW, own, TAKE, OPENED, optional=True))
        removal = live_file_removal(unit, DEVICE_ALLOW)
        steps.append(removal._replace(phase=TAKE, order=BOUND))
        steps.append(make_step.folder(removal.target.rpartition("/")[0], TAKE, ENDED))
    steps += [make_step.file(path, None, TAKE, ENDED), make_step.folder(FOLDER, TAKE, ENDED + 1)]
    return [Change(NAME, path, "content", "devices", None, "no workload has them any more", path, tuple(steps))]


def lost_grant(name: str, path: str) -> Change:
    """A run whose grant is lost: which devices it has is not made up, and no other workload gets what it may have."""
    reason = f"it keeps what it has until it stops, and no other workload gets that: stop {name}, and start it after the next tick"
    return Change(
        NAME, name, "grant", "lost", "devices", reason, path, (), UNCHANGEABLE, "next start", "service restart"
    )


def shown(grant: Grant) -> str:
    """The devices of a grant on one line."""
    return ", ".join(dict.fromkeys(f"{one.resource} {one.id}" for one in grant.devices))


# Its entry for the registry


def key_of(change: Change, declared: Profile) -> str:
    """The key of the workload that a change is about, as far as its subject shows it: a unit, the file of one, or a workload."""
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
    """Everything that was delivered is taken back; with the agent alone what its program does at the start of a container."""
    if NAME not in removed:
        return device_specs.without_program(device_specs.specs_of(host)) if AGENT in removed else ()
    seen = observe(host, (), host.names(FOLDER), device_specs.specs_of(host), files_of_lists(host))
    back = [change for path in sorted(seen.files) for change in taken_back(path, seen)]
    back += [device_drivers.given_back(address) for address in seen.bound]
    return (*back, *device_specs.spec_changes(seen.specs, {}))


def files_of_lists(host: Host) -> set[str]:
    """The files of the units that have a list by Corral: it tells of itself when the file and the checkpoint are gone."""
    return {device_delivery.env_file("", unit) for unit in device_lists.marked(host)}


def status_files(dummy_host: Host) -> tuple[str, ...]:
    """What ticks keep for the next boot."""
    return (state.PCI_USED,)


MANAGER = Manager(NAME, plan, WRITES, key_of=key_of, on_removal=on_removal, status_files=status_files)
