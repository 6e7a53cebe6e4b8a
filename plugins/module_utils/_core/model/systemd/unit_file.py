# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# This module is private to the collection corral.node.
"""The texts of the files that Corral writes for systemd and sysctl, and the change of a file to the wanted text."""

from __future__ import annotations

import re
import typing as t

from ..plan import make_step
from ..plan.plan import FILES, Change

HEADER = "# Corral (corral.node) keeps this file as /etc/corral/profile.json declares; a change by hand is drift.\n"

_SLICE_OR_SCOPE = re.compile(r"(?:^|/)([^/]+\.(?:slice|scope))(?:\.d/|$)")


def unit_text(*sections: tuple[str, t.Sequence[str]]) -> str:
    """A unit file or drop-in: sections with their lines, in order."""
    return HEADER + "\n".join(f"[{name}]\n" + "".join(f"{line}\n" for line in lines) for name, lines in sections)


def section_of(unit: str) -> str:
    """The section of a unit file that has the settings for the unit's type: "system.slice" → "Slice"."""
    return unit.rpartition(".")[2].capitalize()


def unit_in(subject: str) -> str:
    """The slice or scope of a change's subject (a unit or a drop-in); an empty string for any other subject."""
    match = _SLICE_OR_SCOPE.search(subject)
    return match.group(1) if match else ""


def escaped_path(path: str) -> str:
    """A path as a unit name (systemd-escape --path): "/dev/huge-1G" → "dev-huge\\x2d1G"."""
    trimmed = "/".join(filter(None, path.split("/")))
    if not trimmed:
        return "-"
    escaped = []
    for index, byte in enumerate(trimmed.encode("utf-8", "surrogateescape")):
        char = chr(byte)
        if char == "/":
            escaped.append("-")
        elif (char.isascii() and (char.isalnum() or char in ":_")) or (char == "." and index > 0):
            escaped.append(char)
        else:
            escaped.append(f"\\x{byte:02x}")
    return "".join(escaped)


def file_change(
    manager: str,
    path: str,
    actual: t.Optional[str],
    wanted: str,
    *,
    reason: str,
    mode: int = 0o644,
    phase: int = FILES,
    reload: bool = True,
) -> t.Optional[Change]:
    """The change that gives a file the wanted text; None if the file has the wanted text."""
    if actual == wanted:
        return None
    shown = None if actual is None else settings(actual)
    return Change(
        manager,
        path,
        "content",
        "the same settings, other comments or blanks" if shown == settings(wanted) else shown,
        settings(wanted),
        reason if actual is None else f"{reason}: was changed by hand, or belongs to an earlier profile or release",
        path,
        (make_step.file(path, wanted, phase, mode=mode, reload=reload),),
    )


def settings(text: str) -> str:
    """The settings of a file's text on one line, without comments and blanks, for comparison."""
    lines = (line.strip() for line in text.splitlines())
    return "; ".join(line for line in lines if line and not line.startswith(("#", ";")))
