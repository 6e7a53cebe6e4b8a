# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# This module is private to the collection corral.node.
"""A key of the schema: its path, its type, its meaning, and its default."""

from __future__ import annotations

import typing as t

from ..values.records import NamedTuple
from . import schema_types as types

ONE = "one"
LIST = "list"
MAP = "map"


class Key(NamedTuple):
    """A key of a profile.

    ``path``: the key's place in a profile, with ``[]`` for an item of a list of mappings. ``type``: None for a section (the section's keys
    follow in the table). ``many``: whether the value is single, a list, or a mapping with keys of the type ``keys``. ``default``: the
    default as a profile would write it (None: no default). ``field``: the field of the section's tuple, if its name is not the key's.
    ``word``: the field for a word instead of a number. ``quiet``: the default is not written into a profile's data.
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
        """The name of the key's field in the tuple of its section."""
        return self.field or self.name.replace("-", "_")
