# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# This module is private to the collection corral.node.
"""The state before a step, and the steps that restore this state.

A rollback, a removal, the undo of a refused apply, and a profile that no longer declares a target all use this module.
"""

from __future__ import annotations

import typing as t

from ..cpu.partitions import MEMBER, PROPERTY
from ..profile.schema_types import is_own
from ..systemd import unit_limits
from ..systemd.unit_property import DEVICE_ALLOW, control_file, key_of_file, live_file_removal
from ..values import cpuset
from ..values.records import NamedTuple
from ..workload.grants import is_exclusive, is_workloads
from . import make_step
from .plan import CPUS, EMPTY_SLICES, FILES, LIVE, RELEASE, START, STOP, VALUES, Step, key_of

if t.TYPE_CHECKING:
    from ..values.vocabulary import StepKind

SYSTEMD_FOLDERS = ("/etc/systemd/", "/run/systemd/")


class Original(NamedTuple):
    """The state of a target before a step. An original in the records is the state before Corral's first step on the target.

    ``kind`` and ``target`` are the step's. ``name``: the name of a property, the path of a mount, the unit with processes in a cpuset, or
    the files of a program, one a line. ``value``: the text of a file, or a kernel value. ``link``: the target of a link. ``runtime``: the
    text of systemd's own file for a live property. ``active``: whether the unit, its control group or the mount existed. ``made``: the
    missing folders that the step makes.
    """

    kind: StepKind
    target: str
    name: str = ""
    value: t.Optional[str] = None
    link: t.Optional[str] = None
    mode: int = 0o644
    runtime: t.Optional[str] = None
    active: bool = False
    made: tuple[str, ...] = ()

    @property
    def location(self) -> str:
        """The path for which ``made`` names the missing folders; an empty string for a kind of step that makes no folders."""
        if self.kind == "property":
            return control_file(self.target, self.name, runtime=True)
        if self.kind in ("file", "link", "compile"):
            return self.target
        return f"{self.name}/." if self.kind == "mount" else ""

    @property
    def key(self) -> str:
        """The key of the original and of its step."""
        return key_of(self.kind, self.target, self.name)


def from_data(data: t.Mapping[str, t.Any]) -> Original:
    """An original from its JSON form (``_asdict``). Raises TypeError for other data."""
    known = {field: data[field] for field in Original._fields if field in data}
    original = Original(**{**known, "made": tuple(known.get("made", ()))})
    texts = (original.kind, original.target, original.name, *original.made)
    optional = (one for one in (original.value, original.link, original.runtime) if one is not None)
    if not all(isinstance(one, str) for one in (*texts, *optional)) or not isinstance(original.mode, int):
        raise TypeError("not the JSON form of an original")
    if original.kind == "property" and original.name not in unit_limits.FILES and original.name != DEVICE_ALLOW:
        raise TypeError("no property that Corral sets")
    return original


def restore_recorded(before: Original, online: str, taken: frozenset[int] = cpuset.EMPTY) -> list[Step]:
    """The steps that restore a recorded original, for a removal or a target that is no longer declared.

    Three originals are not restored: AllowedCPUs= of a slice of Corral, a user's partition, and a unit's request for CPUs that exclusive
    slices have now (``taken``).
    """
    if before.kind == "partition":
        before = before._replace(value=MEMBER)
    if before.kind == "property" and before.name == "AllowedCPUs":
        if is_own(before.target) or (before.value and taken and clashes(before.value, taken)):
            before = before._replace(value=None, runtime=None)
    return restore(before, online)


def own_property(path: str) -> str:
    """The key of the property in a file that a persistent set-property on a slice of Corral wrote; an empty string for any other file."""
    key = key_of_file(path)
    return key if is_own(key.partition(":")[2].rpartition(":")[0]) else ""


def clashes(cpus: str, taken: frozenset[int]) -> bool:
    """Whether the recorded list ``cpus`` has a CPU of ``taken``, or is no list of CPUs."""
    try:
        return bool(cpuset.parse(cpus) & taken)
    except ValueError:
        return True


def restore(before: Original, online: str) -> list[Step]:
    """The steps that restore ``before``. ``online`` is the CPU list of the whole machine."""
    return KINDS[before.kind].restore(before, online)


def restore_file(before: Original, dummy: str) -> list[Step]:
    """The steps that restore a file or link, or remove a new file or link, and remove the empty folders that were made for the target."""
    target, reload = before.target, before.target.startswith(SYSTEMD_FOLDERS)
    if before.link is not None:
        return [make_step.link(target, before.link, FILES, reload=reload), *folders(before)]
    return [make_step.file(target, before.value, FILES, mode=before.mode, reload=reload), *folders(before)]


def restore_value(before: Original, dummy: str) -> list[Step]:
    """The steps that write a target's former value, else the value Kind.none; no steps for a target that existed before."""
    kind = KINDS[before.kind]
    value, optional = before.value or kind.none, kind.optional
    step = Step(before.kind, before.target, value, kind.phase, kind.order, name=before.name, optional=optional)
    return [] if before.active else [step, *folders(before)]


def restore_cpuset(before: Original, dummy: str) -> list[Step]:
    """The step that writes the former CPU list of a directory of cgroup v1, or removes the directory.

    Exclusive slices release CPUs before other slices get these CPUs. Inner directories are removed before outer directories, and all
    directories before slices stop.
    """
    order = -10 if is_exclusive(before.target.rpartition("/")[2]) else 20 - before.target.count("/")
    return [make_step.cpuset(before.target, before.name, before.value or None, RELEASE, order)]


def restore_unit(before: Original, dummy: str) -> list[Step]:
    """The step that stops a unit if the unit did not run before or belongs to a workload.

    A slice stops after the daemon-reload, when systemd knows no unit in the slice. Any other unit stops before its files are removed.
    """
    if not before.target or (before.active and not is_workloads(before.target)):
        return []
    phase = EMPTY_SLICES if before.target.endswith(".slice") else STOP
    return [make_step.unit(before.target, "stop", phase, 90, optional=is_workloads(before.target))]


def restore_program(before: Original, dummy: str) -> list[Step]:
    """The steps that remove a new program: its files, its compiled files, and then its empty folders."""
    paths = [f"{before.target}/{name}" for name in before.name.splitlines()]
    inside = {
        path[:end] for path in paths for end, char in enumerate(path) if char == "/" and end >= len(before.target)
    }
    return [
        make_step.program(before.target, "", "", STOP, 95),
        *(make_step.file(path, None, FILES) for path in paths),
        *folders(before._replace(made=(*before.made, *sorted(inside)))),
    ]


def folders(before: Original, phase: int = FILES) -> list[Step]:
    """The steps that remove the empty folders that were made for a target, the innermost folder first."""
    return [make_step.folder(path, phase, 80 - path.count("/")) for path in before.made]


def restore_property(before: Original, online: str) -> list[Step]:
    """The steps that restore the live value, and restore or remove systemd's own file.

    Clearing AllowedCPUs= leaves the kernel's value as it is (systemd 252, 257), so all CPUs are set first.
    """
    unit, name = before.target, before.name
    control = control_file(unit, name, runtime=True)
    if name == DEVICE_ALLOW:
        back = make_step.unit_property(unit, name, before.value or "", RELEASE)
        return [back] if before.runtime is not None else [back, live_file_removal(unit, name), *folders(before)]
    if before.runtime is not None:
        values = [line.partition("=")[2] for line in before.runtime.splitlines() if line.startswith(f"{name}=")]
        # The file is written as well: a slice that has stopped since then has no live value to set.
        return [
            make_step.unit_property(unit, name, values[-1] if values else "", RELEASE),
            make_step.file(control, before.runtime, RELEASE, 10, reload=True),
        ]
    if name == "AllowedCPUs":
        assignments = [before.value or online, ""]
    else:
        assignments = [unit_limits.property_value(name, before.value or "max")]
    # For a slice of Corral it is enough to clear the property: the slice stops, or keeps its CPUs while it has processes. A workload's
    # slice may have been active before: it starts with the workload's unit, perhaps before the workload got CPUs.
    ours = is_own(unit) and (not before.active or is_workloads(unit))
    if ours:
        assignments = [""]
    steps = [make_step.unit_property(unit, name, value, RELEASE, order) for order, value in enumerate(assignments)]
    return [*steps, live_file_removal(unit, name, reload=not ours), *folders(before)]


def handed_down(kept: t.Sequence[Original], gone: t.Iterable[Original]) -> list[Original]:
    """The records ``kept``, with the folders of the records ``gone``: each folder moves to a record inside, beside or above the folder."""
    made = [set(before.made) for before in kept]
    for folder in sorted({path for before in gone for path in before.made}):
        inside = [index for index, before in enumerate(kept) if before.location.startswith(f"{folder}/")]
        beside = [index for index, paths in enumerate(made) if folder.rpartition("/")[0] in paths]
        above = [
            index
            for index, before in enumerate(kept)
            if before.location and folder.startswith(f"{before.location.rpartition('/')[0]}/")
        ]
        for index in (inside or beside or above)[:1]:
            made[index].add(folder)
    return [before._replace(made=tuple(sorted(paths))) for before, paths in zip(kept, made)]


def inverse(before: Original, step: Step, online: str, shared: str = "") -> list[Step]:
    """The steps that undo a step that has just run, to run at once and in this order.

    A stopped unit or mount starts again. The mount starts in phase START: by then all files are restored, and systemd has read the files.
    If a slice of Corral requested no CPUs before, an empty setting would leave the slice the CPUs of the plan, and a grant may have these
    CPUs again. So the slice gets ``shared``: the CPUs that are shared after the undo (empty: unknown).
    """
    if step.kind == "hook":
        return [make_step.hook(step.target, "resume", START)] if step.value == "drain" else []
    if step.kind == "partition" and before.value == step.value:
        return []  # The step renewed a partition. Another write would end the partition first: see apply_step.set_partition().
    if step.kind == "unit" and before.active and step.value == "stop":
        return [make_step.unit(step.target, "start", STOP)]
    if step.kind == "mount" and before.active and step.value in ("stop", "restart"):
        return [make_step.mount(step.target, step.name, "start" if step.value == "stop" else "restart", START)]
    if step.kind == "property" and step.phase in (CPUS, LIVE) and step.name != DEVICE_ALLOW:
        # The hand-over sets several values in turn: each undo first restores the live value from before its step.
        value = unit_limits.property_value(before.name, before.value) if before.value else ""
        if not value and step.name == "AllowedCPUs" and before.runtime is None and is_own(step.target):
            value = shared
        if value:
            back = [make_step.unit_property(step.target, before.name, value, step.phase)]
            return back if before.runtime is not None else back + in_order(restore_property(before, online))
    return in_order(restore(before, online))


def in_order(steps: t.Iterable[Step]) -> list[Step]:
    """The steps in the order in which they run: a folder is removed after its content."""
    return sorted(steps, key=lambda step: (step.phase, step.order))


class Kind(NamedTuple):
    """How an original of one kind is restored. ``label``: the property in the change that restores the original.

    ``shown``: the change shows the restored value. The other fields are for the step of restore_value().
    """

    label: str
    restore: t.Callable[[Original, str], list[Step]] = restore_value
    shown: bool = False
    none: t.Optional[str] = None
    phase: int = VALUES
    order: int = 0
    optional: bool = False


KINDS: t.Mapping[StepKind, Kind] = {
    "file": Kind("content", restore_file),
    "link": Kind("link", restore_file),
    "folder": Kind("folder", lambda *dummy: []),
    "value": Kind("value", shown=True, none="0"),
    "pool": Kind("nr_hugepages", shown=True, none="0"),
    # The partition of a slice must end before the slice gets other CPUs or stops.
    "partition": Kind(PROPERTY, shown=True, none=MEMBER, phase=RELEASE, order=-10),
    "cpuset": Kind("cpuset.cpus", restore_cpuset, shown=True),
    "property": Kind("property", restore_property, shown=True),
    # If other control groups depend on the controller, the kernel refuses to remove the controller.
    "controller": Kind("controller", none="-", phase=EMPTY_SLICES, order=99, optional=True),
    "unit": Kind("state", restore_unit),
    "mount": Kind("mounted", none="stop", phase=STOP),
    "compile": Kind("program", restore_program),
    "hook": Kind("hook", lambda *dummy: []),
    "health": Kind("health", lambda *dummy: []),
    "driver": Kind("driver", phase=LIVE),
}
