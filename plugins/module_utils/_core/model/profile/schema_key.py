# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# This module is private to the collection corral.node.
"""One key of the schema: its path, its type, its meaning, and what it is when it is left out."""

from __future__ import annotations

import typing as t

from ..values.records import NamedTuple
from . import schema_types as types

ONE = "one"
LIST = "list"
MAP = "map"


class Key(NamedTuple):
    """One key.

    ``path`` is where it stands, ``[]`` for an item of a list of mappings; ``type`` is None for a section (its keys
    follow in the table). ``many`` says whether the value is one, a list or a mapping (then ``keys`` is the type of
    its keys). ``default`` is written as in a profile and read like one; None: nothing is declared.
    ``field`` is the field of its section's tuple where it has another name, and ``word`` the one that a value has which is a word
    and no number. A ``quiet`` key is not written into a profile's data where it has its default.
    """

    path: str
    type: t.Optional[types.Type]
    doc: str
    example: str = ""
    default: object = None
    required: bool = False
    many: str = ONE
    keys: t.Optional[types.Type] = None
    later: bool = False
    since: str = "0.1.0"
    field: str = ""
    word: str = ""
    quiet: bool = False

    @property
    def name(self) -> str:
        """The last part of the path."""
        return self.path.rpartition(".")[2].replace("[]", "")

    @property
    def field_name(self) -> str:
        """The field of its section's tuple."""
        return self.field or self.name.replace("-", "_")
