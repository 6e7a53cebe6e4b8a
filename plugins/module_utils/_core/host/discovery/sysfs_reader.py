# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# This module is private to the collection corral.node.
"""Reads kernel files of a host as values; text that is no valid value is left out and noted."""

from __future__ import annotations

import typing as t

from ...model.values.cpuset import CpuSet
from ...model.values.errors import shown
from .. import kernel_text

if t.TYPE_CHECKING:
    from ..files import Host

NOTE_LIMIT = 40

T = t.TypeVar("T")


class Reader:
    """One pass over a host: equal texts are parsed once, invalid ones noted."""

    def __init__(self, host: Host) -> None:
        self.host = host
        self._notes: list[str] = []
        self._sets: dict[tuple[bool, str], CpuSet | None] = {}
        self._found: dict[tuple[str, ...], str] = {}

    def note(self, text: str) -> None:
        """Keep a remark for the topology's notes."""
        self._notes.append(text)

    def notes(self) -> list[str]:
        """The remarks so far, each once, cut to a readable number."""
        notes = list(dict.fromkeys(self._notes))
        left = len(notes) - NOTE_LIMIT
        return [*notes[:NOTE_LIMIT], f"and {left} more of the kind"] if left > 0 else notes

    def value(self, path: str, parse: t.Callable[[str], T | None], what: str, word: str = "") -> T | None:
        """``parse`` of the file's text, or of its lines with ``word``; None when it is absent, noted when not ``what``."""
        text = self.host.lines(path, word) if word else self.host.read(path)
        if text is None:
            return None
        value = parse(text)
        if value is None:
            self._odd(path, text, what)
        return value

    def integer(self, path: str) -> int | None:
        """A file that holds one integer."""
        return self.value(path, kernel_text.integer, "an integer")

    def cpus(self, folder: str, names: tuple[str, ...]) -> CpuSet | None:
        """The CPUs in the first file of ``names`` that has some.

        Empty when all readable files were empty, None when none could be read. A file that had CPUs is tried first
        the next time: it will be the same one for the next CPU.
        """
        favourite = self._found.get(names)
        if favourite is not None:
            cpus = self._cpus(f"{folder}/{favourite}", favourite)
            if cpus:
                return cpus
        best: CpuSet | None = None
        for name in names:
            cpus = self._cpus(f"{folder}/{name}", name)
            if cpus:
                self._found[names] = name
                return cpus
            if cpus is not None:
                best = cpus
        return best

    def _cpus(self, path: str, name: str) -> CpuSet | None:
        text = self.host.read(path)
        if text is None:
            return None
        is_list = name.endswith("list") or name in LISTS
        key = (is_list, text)
        if key not in self._sets:
            self._sets[key] = kernel_text.cpu_list(text) if is_list else kernel_text.cpu_mask(text)
        cpus = self._sets[key]
        if cpus is None:
            self._odd(path, text, "a CPU list" if is_list else "a CPU mask")
        return cpus

    def _odd(self, path: str, text: str, what: str) -> None:
        self.note(f"{path}: {shown(repr(text[:40]))} is not {what}; left out")


# Files that hold lists although their names do not end in _list.
LISTS = ("online", "present", "possible", "isolated", "cpus")
