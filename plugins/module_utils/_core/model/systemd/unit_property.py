# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# This module is private to the collection corral.node.
"""A unit's property over time: our drop-in, systemd's own files for set-property, and files that sort after ours."""

from __future__ import annotations

import contextlib
import typing as t

from ..plan import make_step
from ..plan.plan import DRIFT, FILES, UNCHANGEABLE, Change, Step, unit_of_cpus_file
from ..values import cpuset
from ..values.records import NamedTuple

ETC = "/etc/systemd/system"
RUNTIME_CONTROL = "/run/systemd/system.control"
PERSISTENT_CONTROL = "/etc/systemd/system.control"
TRANSIENT = "/run/systemd/transient"  # units of systemd-run, and what is set of them
DEVICE_ALLOW = "DeviceAllow"  # a list, the entries of which are lines of a step's value; no kernel file shows it
DROPINS = (PERSISTENT_CONTROL, RUNTIME_CONTROL, ETC)  # where set-property and Corral write them


class Setting(NamedTuple):
    """One assignment: the file that makes it and its value (empty: a reset)."""

    file: str
    value: str


def dropin(unit: str, owner: str) -> str:
    """Corral's drop-in for a unit. It sorts before the 50-… files that systemd itself writes for set-property."""
    return f"{ETC}/{unit}.d/10-corral-{owner}.conf"


def unit_of_dropin(path: str, owner: str) -> str:
    """The slice or scope whose drop-in of this owner a file is; "" for any other file."""
    unit = path.rpartition("/")[0][len(ETC) + 1 : -len(".d")]
    return unit if unit.endswith((".slice", ".scope")) and path == dropin(unit, owner) else ""


def control_file(unit: str, name: str, *, runtime: bool) -> str:
    """The file that ``systemctl set-property`` writes for a property.

    init.scope is a transient unit for systemd, whose files have a place of their own, whatever is asked for (unit_drop_in_dir).
    """
    live = TRANSIENT if unit == "init.scope" else RUNTIME_CONTROL
    return f"{live if runtime else PERSISTENT_CONTROL}/{unit}.d/50-{name}.conf"


def key_of_file(path: str) -> str:
    """The key of the property of which a file is what a persistent set-property wrote; "" for any other file."""
    folder, dummy, file = path.rpartition(".d/50-")
    if not folder.startswith(f"{PERSISTENT_CONTROL}/") or not file.endswith(".conf"):
        return ""
    return f"property:{folder[len(PERSISTENT_CONTROL) + 1 :]}:{file[: -len('.conf')]}"


def cpus_of_file(path: str, text: t.Optional[str]) -> frozenset[int]:
    """The CPUs that a unit has by systemd's own file of its AllowedCPUs=, once systemd reads it; empty for any other file."""
    if not unit_of_cpus_file(path):
        return frozenset()
    found: frozenset[int] = frozenset()
    for line in (text or "").splitlines():
        name, equals, value = line.partition("=")
        if name.strip() == "AllowedCPUs" and equals:
            with contextlib.suppress(ValueError):  # systemd ignores such a line.
                found = found | cpuset.parse(",".join(value.split())) if value.strip() else frozenset()
    return found


def persistent(settings: t.Iterable[Setting]) -> list[Setting]:
    """The assignments that are still there once what was set until the next boot is taken back.

    Of a transient unit systemd keeps that beside the unit (unit_drop_in_dir).
    """
    return [
        item for item in settings if not item.file.startswith(f"{RUNTIME_CONTROL}/") and not is_transient(item.file)
    ]


def is_transient(file: str) -> bool:
    """Whether a file is a drop-in of a transient unit: set-property wrote it, and systemd removes it with the unit."""
    return file.startswith(f"{TRANSIENT}/") and ".d/" in file


def outside_run(settings: t.Iterable[Setting]) -> list[Setting]:
    """The assignments of files that survive a reboot."""
    return [item for item in settings if not item.file.startswith("/run/")]


def with_dropin(settings: t.Iterable[Setting], ours: str, values: t.Sequence[str]) -> list[Setting]:
    """The persistent assignments as they will be once our drop-in is there; unchanged where it is.

    systemd.unit(5): the unit's own file comes first, then the drop-ins in the order of their names.
    """
    found = persistent(settings)
    if any(item.file == ours for item in found):
        return found
    name = ours.rpartition("/")[2]
    place = next(
        (i for i, item in enumerate(found) if ".d/" in item.file and item.file.rpartition("/")[2] > name), len(found)
    )
    return [*found[:place], *(Setting(ours, value) for value in values), *found[place:]]


def set_by_hand(unit: str, name: str, settings: t.Iterable[Setting]) -> t.Optional[Setting]:
    """What a persistent ``systemctl set-property`` left; it would win over our drop-in."""
    file = control_file(unit, name, runtime=False)
    return next((item for item in reversed(list(settings)) if item.file == file), None)


def is_live_file(kind: str, target: str) -> bool:
    """Whether a step is about systemd's own file of a live property, which is no original: that of the property has its text."""
    return kind == "file" and (target.startswith(f"{RUNTIME_CONTROL}/") or is_transient(target))


def live_file_removal(unit: str, name: str, *, reload: bool = False) -> Step:
    """The step that removes the file which systemd keeps of a live property for as long as it runs; the property was reset before.

    The live file goes after Corral's drop-in. In the other order a daemon-reload between the two applies what the drop-in
    says.
    """
    return make_step.file(control_file(unit, name, runtime=True), None, FILES, 10, reload=reload)


def removal(
    unit: str, name: str, settings: t.Iterable[Setting], phase: int = FILES, order: int = 0
) -> tuple[Step, ...]:
    """The steps that remove what a persistent set-property left, if it left anything."""
    found = set_by_hand(unit, name, settings)
    if found is None:
        return ()
    folder = found.file.rpartition("/")[0]
    return (
        make_step.file(found.file, None, phase, order, reload=True),
        make_step.folder(folder, phase, order + 1),
        make_step.folder(PERSISTENT_CONTROL, phase, order + 2),
    )


def kept_by_others(
    ours: t.Optional[str], settings: t.Iterable[Setting], wanted: t.Callable[[list[Setting]], bool]
) -> bool:
    """Whether files of others set a property as ``wanted`` at the next boot, where our drop-in (its text) is not there."""
    others = outside_run(settings)
    return ours is None and bool(others) and wanted(others)


def last_value(settings: t.Sequence[Setting]) -> str:
    """The value of a property after these assignments, where the last one wins."""
    return settings[-1].value


def later_change(
    manager: str,
    unit: str,
    name: str,
    settings: t.Iterable[Setting],
    wanted: str,
    *,
    ours: str = "",
    values: t.Sequence[str] = (),
    meaning: t.Callable[[list[Setting]], str] = last_value,
    differs_now: bool = False,
    way_out: str = "",
) -> t.Optional[Change]:
    """A file of others that sorts after our drop-in, or the one we would write, and changes the property at the next reload.

    ``values`` are the drop-in's assignments (none: the one wanted), ``meaning`` what several assignments come to. What
    set-property left is removed, by the live item where the property ``differs_now``; any other file is its author's, and
    is named.
    """
    ours = ours or dropin(unit, manager)
    found = with_dropin(settings, ours, values or (wanted,))
    result = meaning(found)
    last = max((index for index, item in enumerate(found) if item.file == ours), default=None)
    later = found[last + 1 :] if last is not None else []
    if not later or result == wanted:
        return None
    culprit = later[-1].file
    steps = removal(unit, name, later)
    if steps and differs_now:
        return None
    reason = f"{culprit} sorts after {ours}"
    if not steps:
        reason += f": {way_out or f'remove it, or declare its {name} in the profile'}"
    verdict = DRIFT if steps else UNCHANGEABLE
    return Change(manager, unit, f"{name} at the next reload", result, wanted, reason, culprit, steps, verdict)
