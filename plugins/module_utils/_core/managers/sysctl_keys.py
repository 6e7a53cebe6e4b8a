# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# This module is private to the collection corral.node.
"""Kernel values that a manager keeps: in force, over a reboot by a file in sysctl.d, and against files that win at the next boot."""

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

Wanted = t.Mapping[str, int]  # by sysctl key


class SysctlState(NamedTuple):
    """The values by their sysctl keys: in force, in the manager's ``file`` (its ``text``), in files that sort ``later``, and in others'
    files that are there after a boot (``persistent``, read while the manager has no file).
    """

    file: str
    live: dict[str, t.Optional[int]]
    text: t.Optional[str]
    later: dict[str, sysctl.Entry]
    persistent: dict[str, sysctl.Entry]


def observe(host: Host, file: str, keys: t.Sequence[str]) -> SysctlState:
    """Read the values and the files."""
    text = host.read(file)
    return SysctlState(
        file,
        {key: sysctl.live(host, key) for key in keys},
        text,
        sysctl.later_entries(host, keys, file),
        sysctl.persistent_entries(host, keys, file) if text is None else {},
    )


def places(file: str, keys: t.Sequence[str]) -> tuple[Place, Place]:
    """Where a manager of these values writes."""
    return Place("value", "|".join(re.escape(sysctl.path_of(key)) for key in keys)), Place("file", re.escape(file))


def owned(seen: SysctlState, wanted: Wanted) -> set[str]:
    """The keys of the originals that the manager keeps."""
    return {f"value:{sysctl.path_of(key)}" for key in wanted} | ({f"file:{seen.file}"} if wanted else set())


def changes(manager: str, seen: SysctlState, wanted: Wanted, reason: str) -> list[Change]:
    """The changes that make the values as wanted; ``reason`` is that of the file."""
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
    """The change of the file that keeps the values over a reboot; not needed while others' files give all of them."""
    persistent = {key: entry.value for key, entry in seen.persistent.items()}
    if seen.text is None and all(persistent.get(key) == str(value) for key, value in wanted.items()):
        return None
    text = HEADER + "".join(f"{key} = {value}\n" for key, value in wanted.items())
    return file_change(manager, seen.file, seen.text, text, reason=reason, reload=False)


def later_change(manager: str, key: str, value: int, seen: SysctlState) -> t.Optional[Change]:
    """Another file that wins at the next boot."""
    entry = seen.later.get(key)
    if entry is None or entry.value == str(value):
        return None
    reason = f"{entry.file} sorts after {seen.file}: remove the line, or declare {entry.value} in the profile"
    what = "value at the next boot"
    return Change(manager, key, what, entry.value, str(value), reason, entry.file, (), UNCHANGEABLE, "next boot")
