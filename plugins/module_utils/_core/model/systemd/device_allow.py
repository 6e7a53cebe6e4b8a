# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# This module is private to the collection corral.node.
"""DeviceAllow= of a unit (systemd.resource-control(5)): a list that adds up over the unit's files."""

from __future__ import annotations

import re
import typing as t

from .unit_property import Setting

ALL = "rwm"
# What systemd takes (valid_device_allow_pattern in its cgroup.c) over D-Bus, where no specifier is resolved.
ENTRY = r"(?:/dev/|/run/systemd/inaccessible/|char-|block-)[^\s%]+ r?w?m?"
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


def can_be_set(line: str) -> bool:
    """Whether set-property takes an entry."""
    return re.fullmatch(ENTRY, line, re.ASCII) is not None
