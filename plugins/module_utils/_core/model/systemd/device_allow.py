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


def hidden(paths: t.Iterable[str], private: t.Sequence[Setting], bound: t.Iterable[Setting]) -> list[str]:
    """Which of these device files a unit does not see: all with PrivateDevices=, but for those that BindPaths= brings back."""
    if not private or private[-1].value.lower() not in TRUE:
        return []
    sources: list[str] = []
    for item in bound:
        words = (word.lstrip("-").partition(":")[0] for word in item.value.split())
        sources = [*sources, *words] if item.value else []
    return [path for path in paths if not any(path == one or path.startswith(f"{one.rstrip('/')}/") for one in sources)]
