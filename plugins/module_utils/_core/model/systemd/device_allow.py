# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# This module is private to the collection corral.node.
"""Which devices a unit may open (systemd.resource-control(5), DeviceAllow=), and which ones it sees (systemd.exec(5), PrivateDevices=)."""

from __future__ import annotations

import re
import typing as t

from .unit_property import Setting

ALL = "rwm"
TRUE = ("yes", "true", "on", "1", "y", "t")  # systemd.syntax(7)
# What systemd takes (valid_device_allow_pattern in its cgroup.c) over D-Bus, where no specifier is resolved.
ENTRY = r"(?:/dev/|/run/systemd/inaccessible/|char-|block-)[^\s%]+ r?w?m?"
NUMBERS = ("/dev/char/", "/dev/block/")
# In each list with devices that Corral gave, so that systemd's own file tells whose it is when nothing else does. systemd takes it for the
# number 0:0 (bpf_devices_allow_list_device in its bpf-devices.c), which no driver has. With DevicePolicy=auto an empty list opens all
# devices, this one none.
MARK = "/run/systemd/inaccessible/chr rwm"
# A colon would begin the path in the unit; what stands for itself in a unit file (device.FIT_PATH) but for that.
_CAN_BE_BOUND = re.compile(r"/dev/[A-Za-z0-9_.@+,=#/-]+")
_OWN = ("fd", "hugepages", "mqueue", "pts", "shm")
BINDS = ("BindPaths", "BindReadOnlyPaths")
_SPECIFIER = re.compile(r"%(.)")


def added_up(settings: t.Iterable[Setting], unit: str) -> tuple[str, ...]:
    """The entries that result from all assignments, as systemd writes them; an empty one resets the list."""
    found: dict[str, None] = {}
    for item in settings:
        if item.value:
            found[entry(item.value, unit)] = None
        else:
            found.clear()
    return tuple(found)


def entry(text: str, unit: str) -> str:
    """One entry as systemd writes it: without a mode it is for all, and specifiers that only need the unit's name are resolved."""
    stem = unit.rpartition(".")[0]
    prefix, dummy, instance = stem.partition("@")
    names = {"n": unit, "N": stem, "p": prefix, "i": instance, "%": "%"}
    path, dummy, mode = " ".join(text.split()).partition(" ")
    path = _SPECIFIER.sub(lambda match: names.get(match.group(1), match.group()), path)
    return f"{path} {''.join(char for char in ALL if char in (mode or ALL))}"


def shown(entries: t.Iterable[str]) -> str:
    """A list on one line, without the entry that opens nothing."""
    return ", ".join(one for one in entries if one != MARK)


def can_be_set(line: str) -> bool:
    """Whether set-property takes an entry."""
    return re.fullmatch(ENTRY, line, re.ASCII) is not None


def is_private(private: t.Sequence[Setting]) -> bool:
    """Whether a unit has a /dev of its own by these settings of PrivateDevices=."""
    return bool(private) and private[-1].value.lower() in TRUE


def binds(paths: t.Iterable[str], private: t.Sequence[Setting], bound: t.Iterable[Setting]) -> list[str]:
    """What BindPaths= of a unit has to list so that it sees these device files; ``bound`` are the lists of others.

    A file in a folder of its own below /dev is there with that folder, in which the kernel makes and removes files: such a list stays the
    same from start to start. What is not there at a start is passed over ("-").
    """
    places = {
        folder if folder != "/dev" else path for path in hidden(paths, private, bound) for folder in [parent(path)]
    }
    return [f"-{place}" for place in sorted(places) if can_be_bound(place)]


def can_be_bound(place: str) -> bool:
    """Whether BindPaths= can bring a place in /dev to a unit; not what each unit with a /dev of its own has of its own."""
    parts = place.split("/")[2:]
    return _CAN_BE_BOUND.fullmatch(place) is not None and ".." not in parts and parts[0] not in _OWN


def parent(path: str) -> str:
    """The folder of a file."""
    return path.rpartition("/")[0]


def hidden(paths: t.Iterable[str], private: t.Sequence[Setting], bound: t.Iterable[Setting]) -> list[str]:
    """Which of these device files a unit does not see: all with PrivateDevices=, but for those that BindPaths= brings back."""
    if not is_private(private):
        return []
    sources: list[str] = []
    for item in bound:
        words = (word.lstrip("-").partition(":")[0] for word in item.value.split())
        sources = [*sources, *words] if item.value else []
    return [path for path in paths if not any(path == one or path.startswith(f"{one.rstrip('/')}/") for one in sources)]
