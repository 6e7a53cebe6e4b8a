# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# This module is private to the collection corral.node.
"""The section ``confirm`` of a profile: the command with which the node itself confirms a profile that its agent applied."""

from __future__ import annotations

import typing as t

from ..values.records import NamedTuple
from .schema_reader import Reader


class Confirm(NamedTuple):
    """The command (its path, then its arguments), and the seconds within which the command has to end with exit code 0."""

    command: tuple[str, ...]
    timeout: int


def check(reader: Reader, values: t.Mapping[str, t.Any], given: t.Mapping[str, t.Any]) -> None:
    """Refuse a command without an absolute path."""
    written = given.get("confirm")
    if isinstance(written, dict):
        reader.refuse_command("confirm", values.get("confirm"), written)


SHAPES = {"confirm": Confirm}
