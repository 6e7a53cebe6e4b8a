# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# This module is private to the collection corral.node.
"""The devices that a unit may open (systemd.resource-control(5), DeviceAllow=) and see (systemd.exec(5), PrivateDevices=)."""

from __future__ import annotations

import re
import typing as t

from .unit_property import Setting

ALL = "rwm"
TRUE = ("yes", "true", "on", "1", "y", "t")  # systemd.syntax(7)
# An entry that systemd accepts over D-Bus (valid_device_allow_pattern in cgroup.c). Over D-Bus specifiers are not resolved.
ENTRY = r"(?:/dev/|/run/systemd/inaccessible/|char-|block-)[^\s%]+ r?w?m?"
NUMBERS = ("/dev/char/", "/dev/block/")
# Each list of devices that Corral writes has this entry, which marks the list as Corral's in systemd's files. The entry opens no device:
# systemd reads the entry as the number 0:0 (bpf_devices_allow_list_device in bpf-devices.c), which no driver has. A list without any entry
# would open all devices (DevicePolicy=auto).
MARK = "/run/systemd/inaccessible/chr rwm"
# The characters of device.FIT_PATH without the colon, which separates two paths. These characters have no special meaning in a unit file.
_CAN_BE_BOUND = re.compile(r"/dev/[A-Za-z0-9_.@+,=#/-]+")
_OWN = ("fd", "hugepages", "mqueue", "pts", "shm")
BINDS = ("BindPaths", "BindReadOnlyPaths")
_SPECIFIER = re.compile(r"%(.)")


def added_up(settings: t.Iterable[Setting], unit: str) -> tuple[str, ...]:
    """The entries that result from all assignments, as systemd writes them; an empty assignment resets the list."""
    entries: dict[str, None] = {}
    for item in settings:
        if item.value:
            entries[entry(item.value, unit)] = None
        else:
            entries.clear()
    return tuple(entries)


def entry(text: str, unit: str) -> str:
    """An entry as systemd writes the entry: with a mode (rwm if the text has no mode), and without specifiers of the unit's name."""
    stem = unit.rpartition(".")[0]
    prefix, dummy, instance = stem.partition("@")
    names = {"n": unit, "N": stem, "p": prefix, "i": instance, "%": "%"}
    path, dummy, mode = " ".join(text.split()).partition(" ")
    path = _SPECIFIER.sub(lambda match: names.get(match.group(1), match.group()), path)
    return f"{path} {''.join(char for char in ALL if char in (mode or ALL))}"


def shown(entries: t.Iterable[str]) -> str:
    """The entries of a list on one line, without MARK."""
    return ", ".join(line for line in entries if line != MARK)


def can_be_set(line: str) -> bool:
    """Whether set-property accepts an entry."""
    return re.fullmatch(ENTRY, line, re.ASCII) is not None


def is_private(private: t.Sequence[Setting]) -> bool:
    """Whether a unit has a private /dev; ``private`` are the unit's assignments of PrivateDevices=."""
    return bool(private) and private[-1].value.lower() in TRUE


def binds(paths: t.Iterable[str], private: t.Sequence[Setting], bound: t.Iterable[Setting]) -> list[str]:
    """The entries of BindPaths= that let a unit see these device files; ``bound`` are the present assignments.

    For a file in a folder below /dev the entry names the folder: then the list stays the same when the kernel makes and removes files
    there. With "-" systemd ignores an entry whose path does not exist at a start.
    """
    places = {
        folder if folder != "/dev" else path for path in hidden(paths, private, bound) for folder in [parent(path)]
    }
    return [f"-{place}" for place in sorted(places) if can_be_bound(place)]


def can_be_bound(place: str) -> bool:
    """Whether BindPaths= can bring a path in /dev to a unit; False for paths that every private /dev contains."""
    parts = place.split("/")[2:]
    return _CAN_BE_BOUND.fullmatch(place) is not None and ".." not in parts and parts[0] not in _OWN


def parent(path: str) -> str:
    """The folder of a file."""
    return path.rpartition("/")[0]


def hidden(paths: t.Iterable[str], private: t.Sequence[Setting], bound: t.Iterable[Setting]) -> list[str]:
    """The device files that a unit does not see: with PrivateDevices= all files except files that BindPaths= (``bound``) brings back."""
    if not is_private(private):
        return []
    sources: list[str] = []
    for item in bound:
        words = (word.lstrip("-").partition(":")[0] for word in item.value.split())
        sources = [*sources, *words] if item.value else []
    return [path for path in paths if not any(path == at or path.startswith(f"{at.rstrip('/')}/") for at in sources)]
