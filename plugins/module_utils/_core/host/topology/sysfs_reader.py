# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# This module is private to the collection corral.node.
"""Reads kernel files of a host as values; an invalid text is left out and noted."""

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
    """Reads the values of a host's kernel files. Equal CPU lists and masks are parsed once, invalid texts are noted."""

    def __init__(self, host: Host) -> None:
        self.host = host
        self._notes: list[str] = []
        self._sets: dict[tuple[bool, str], CpuSet | None] = {}
        self._found: dict[tuple[str, ...], str] = {}

    def note(self, text: str) -> None:
        """Add a remark to the topology's notes."""
        self._notes.append(text)

    def notes(self) -> list[str]:
        """The remarks so far, each once, at most NOTE_LIMIT."""
        notes = list(dict.fromkeys(self._notes))
        left = len(notes) - NOTE_LIMIT
        return [*notes[:NOTE_LIMIT], f"and {left} more of the kind"] if left > 0 else notes

    def value(self, path: str, parse: t.Callable[[str], T | None], what: str, word: str = "") -> T | None:
        """The result of ``parse`` for a file's text, or for its lines with ``word``; None without the file, and for an invalid text."""
        text = self.host.lines(path, word) if word else self.host.read(path)
        if text is None:
            return None
        value = parse(text)
        if value is None:
            self._odd(path, text, what)
        return value

    def integer(self, path: str) -> int | None:
        """The integer in a file; None without the file, and for another text."""
        return self.value(path, kernel_text.integer, "an integer")

    def cpus(self, folder: str, names: tuple[str, ...]) -> CpuSet | None:
        """The CPUs in the first of the files ``names`` that has CPUs; empty if no readable file has CPUs; None without a readable file.

        The file name that had CPUs is tried first for the next folder, which usually has the same files.
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


# Names of files that hold lists, beside the names that end in "list".
LISTS = ("online", "present", "possible", "isolated", "cpus")
