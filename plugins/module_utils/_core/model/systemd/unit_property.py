# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# This module is private to the collection corral.node.
"""The files that set a unit's property: Corral's drop-in, systemd's files for set-property, and files that sort after Corral's."""

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
TRANSIENT = "/run/systemd/transient"  # the folder of systemd-run's units and of their drop-ins
DEVICE_ALLOW = "DeviceAllow"  # a step's value has an entry on each line; no kernel file shows the list
DROPINS = (PERSISTENT_CONTROL, RUNTIME_CONTROL, ETC)  # where set-property and Corral write drop-ins


class Setting(NamedTuple):
    """An assignment in a unit file or drop-in: the file and the value (empty: a reset)."""

    file: str
    value: str


def dropin(unit: str, owner: str) -> str:
    """The path of Corral's drop-in for a unit. The drop-in sorts before the 50-… files that systemd writes for set-property."""
    return f"{ETC}/{unit}.d/10-corral-{owner}.conf"


def unit_of_dropin(path: str, owner: str) -> str:
    """The slice or scope to which a drop-in of this owner belongs; an empty string for any other file."""
    unit = path.rpartition("/")[0][len(ETC) + 1 : -len(".d")]
    return unit if unit.endswith((".slice", ".scope")) and path == dropin(unit, owner) else ""


def control_file(unit: str, name: str, *, runtime: bool) -> str:
    """The path of the file that ``systemctl set-property`` writes for a property.

    For systemd init.scope is a transient unit, whose runtime files are in another folder (unit_drop_in_dir).
    """
    live = TRANSIENT if unit == "init.scope" else RUNTIME_CONTROL
    return f"{live if runtime else PERSISTENT_CONTROL}/{unit}.d/50-{name}.conf"


def key_of_file(path: str) -> str:
    """The key (property:UNIT:NAME) of the property in a file of a persistent set-property; an empty string for any other file."""
    folder, dummy, file = path.rpartition(".d/50-")
    if not folder.startswith(f"{PERSISTENT_CONTROL}/") or not file.endswith(".conf"):
        return ""
    return f"property:{folder[len(PERSISTENT_CONTROL) + 1 :]}:{file[: -len('.conf')]}"


def cpus_of_file(path: str, text: t.Optional[str]) -> frozenset[int]:
    """The CPUs of AllowedCPUs= in a file that systemd wrote for set-property; an empty set for any other file."""
    if not unit_of_cpus_file(path):
        return frozenset()
    cpus: frozenset[int] = frozenset()
    for line in (text or "").splitlines():
        name, equals, value = line.partition("=")
        if name.strip() == "AllowedCPUs" and equals:
            with contextlib.suppress(ValueError):  # systemd ignores an invalid line
                cpus = cpus | cpuset.parse(",".join(value.split())) if value.strip() else frozenset()
    return cpus


def persistent(settings: t.Iterable[Setting]) -> list[Setting]:
    """The assignments without the files of ``set-property --runtime``, which are lost at the next boot.

    For a transient unit systemd keeps these files beside the unit (unit_drop_in_dir).
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
    """The persistent assignments in order, together with the assignments of Corral's drop-in, even if the drop-in does not exist yet.

    systemd.unit(5): the unit's file comes first, then the drop-ins in the order of their names.
    """
    kept = persistent(settings)
    if any(item.file == ours for item in kept):
        return kept
    name = ours.rpartition("/")[2]
    place = next(
        (i for i, item in enumerate(kept) if ".d/" in item.file and item.file.rpartition("/")[2] > name), len(kept)
    )
    return [*kept[:place], *(Setting(ours, value) for value in values), *kept[place:]]


def set_by_hand(unit: str, name: str, settings: t.Iterable[Setting]) -> t.Optional[Setting]:
    """The assignment in the file of a persistent ``systemctl set-property``, which overrides Corral's drop-in; None without this file."""
    file = control_file(unit, name, runtime=False)
    return next((item for item in reversed(list(settings)) if item.file == file), None)


def is_live_file(kind: str, target: str) -> bool:
    """Whether the target of a step is a file in which systemd keeps a property that was set until the next boot.

    The original of the property includes this file, so the file has no original of its own.
    """
    return kind == "file" and (target.startswith(f"{RUNTIME_CONTROL}/") or is_transient(target))


def live_file_removal(unit: str, name: str, *, reload: bool = False) -> Step:
    """The step that removes systemd's file of a property set until the next boot, after the property was reset.

    The step comes after the removal of Corral's drop-in. In the other order a daemon-reload between the two would apply the drop-in.
    """
    return make_step.file(control_file(unit, name, runtime=True), None, FILES, 10, reload=reload)


def removal(
    unit: str, name: str, settings: t.Iterable[Setting], phase: int = FILES, order: int = 0
) -> tuple[Step, ...]:
    """The steps that remove the file of a persistent set-property and empty folders; no steps without such a file."""
    setting = set_by_hand(unit, name, settings)
    if setting is None:
        return ()
    folder = setting.file.rpartition("/")[0]
    return (
        make_step.file(setting.file, None, phase, order, reload=True),
        make_step.folder(folder, phase, order + 1),
        make_step.folder(PERSISTENT_CONTROL, phase, order + 2),
    )


def kept_by_others(
    ours: t.Optional[str], settings: t.Iterable[Setting], wanted: t.Callable[[list[Setting]], bool]
) -> bool:
    """Whether other files give a property the wanted value (``wanted``) at the next boot; False if Corral's drop-in exists (``ours``)."""
    others = outside_run(settings)
    return ours is None and bool(others) and wanted(others)


def last_value(settings: t.Sequence[Setting]) -> str:
    """The value of a property for which only the last assignment counts."""
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
    """The item for another file that sorts after Corral's drop-in and gives the property another value at the next reload.

    ``values`` are the drop-in's assignments (default: ``wanted``). ``meaning`` returns the value that results from several assignments. A
    file of set-property is removed: by this item, or by another item if the property ``differs_now``. Any other file is only named.
    """
    ours = ours or dropin(unit, manager)
    in_order = with_dropin(settings, ours, values or (wanted,))
    result = meaning(in_order)
    last = max((index for index, item in enumerate(in_order) if item.file == ours), default=None)
    later = in_order[last + 1 :] if last is not None else []
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
