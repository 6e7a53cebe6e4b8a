# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# This module is private to the collection corral.node.
"""The sysctl values of a manager: in force, in the manager's file in sysctl.d, and in later files that override this file at boot."""

from __future__ import annotations

import re
import typing as t

from ..host.files import Host
from ..host.pids import sysctl
from ..model.plan import make_step
from ..model.plan.places import Place
from ..model.plan.plan import UNCHANGEABLE, UNKNOWN, VALUES, Change
from ..model.systemd.unit_file import HEADER, file_change
from ..model.values.records import NamedTuple

Wanted = t.Mapping[str, int]  # a value by sysctl key


class SysctlState(NamedTuple):
    """Values by sysctl key. ``live``: in force. ``text``: the text of the manager's ``file``. ``later``: in files that sort after this
    file. ``persistent``: in all other files that last over a reboot; read only while the manager has no file.
    """

    file: str
    live: dict[str, t.Optional[int]]
    text: t.Optional[str]
    later: dict[str, sysctl.Entry]
    persistent: dict[str, sysctl.Entry]


def observe(host: Host, file: str, keys: t.Sequence[str]) -> SysctlState:
    """The sysctl values and the files as observed."""
    text = host.read(file)
    return SysctlState(
        file,
        {key: sysctl.live(host, key) for key in keys},
        text,
        sysctl.later_entries(host, keys, file),
        sysctl.persistent_entries(host, keys, file) if text is None else {},
    )


def places(file: str, keys: t.Sequence[str]) -> tuple[Place, Place]:
    """The places where a manager of the sysctl values ``keys`` writes: the files of the kernel, and ``file``."""
    return Place("value", "|".join(re.escape(sysctl.path_of(key)) for key in keys)), Place("file", re.escape(file))


def owned(seen: SysctlState, wanted: Wanted) -> set[str]:
    """The keys of the originals that the manager keeps."""
    return {f"value:{sysctl.path_of(key)}" for key in wanted} | ({f"file:{seen.file}"} if wanted else set())


def changes(manager: str, seen: SysctlState, wanted: Wanted, reason: str) -> list[Change]:
    """The changes that give the keys the wanted values; ``reason``: why the file changes."""
    found = [value_change(manager, key, value, seen) for key, value in wanted.items()]
    found += [file_of(manager, seen, wanted, reason)] if wanted else []
    found += [later_change(manager, key, value, seen) for key, value in wanted.items()]
    return [change for change in found if change is not None]


def value_change(manager: str, key: str, value: int, seen: SysctlState) -> t.Optional[Change]:
    """The change of a value in force."""
    actual, location = seen.live[key], sysctl.path_of(key)
    if actual == value:
        return None
    if actual is None:
        return Change(manager, key, "value", None, str(value), f"{location} cannot be read", location, (), UNKNOWN)
    steps = (make_step.value(location, str(value), VALUES),)
    return Change(manager, key, "value", str(actual), str(value), "the kernel's limit differs", location, steps)


def file_of(manager: str, seen: SysctlState, wanted: Wanted, reason: str) -> t.Optional[Change]:
    """The change of the manager's file; None while the file does not exist and other files set all wanted values at a boot."""
    persistent = {key: entry.value for key, entry in seen.persistent.items()}
    if seen.text is None and all(persistent.get(key) == str(value) for key, value in wanted.items()):
        return None
    text = HEADER + "".join(f"{key} = {value}\n" for key, value in wanted.items())
    return file_change(manager, seen.file, seen.text, text, reason=reason, reload=False)


def later_change(manager: str, key: str, value: int, seen: SysctlState) -> t.Optional[Change]:
    """The item of another file that overrides the manager's value at the next boot."""
    entry = seen.later.get(key)
    if entry is None or entry.value == str(value):
        return None
    reason = f"{entry.file} sorts after {seen.file}: remove the line, or declare {entry.value} in the profile"
    what = "value at the next boot"
    return Change(manager, key, what, entry.value, str(value), reason, entry.file, (), UNCHANGEABLE, "next boot")
