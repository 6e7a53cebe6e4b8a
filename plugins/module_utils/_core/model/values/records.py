# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# This module is private to the collection corral.node.
"""``NamedTuple`` as in typing, but a class is made in a third of the time.

typing compiles the annotation of every field when a class is made, which took a quarter of the core's load time. No code reads the
annotations at run time; type checkers see the class of typing.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import NamedTuple

    __all__ = ("NamedTuple",)
else:
    from collections import namedtuple

    class Maker(type):
        """Makes a named tuple from a class statement: fields with their defaults, and methods."""

        def __new__(cls, name, bases, members):
            if not bases:
                return super().__new__(cls, name, bases, members)
            fields = members.pop("__annotations__", {})
            optional = [field for field in fields if field in members]
            if optional != list(fields)[len(fields) - len(optional) :]:
                raise TypeError(f"{name}: a field without a default follows one of {optional}")
            defaults = [members.pop(field) for field in optional]
            made = namedtuple(name, fields, defaults=defaults, module=members.pop("__module__"))
            for key, value in members.items():
                if key != "__qualname__":
                    setattr(made, key, value)
            return made

    class NamedTuple(metaclass=Maker):
        """A base class: a class statement with this base makes a named tuple, not a subclass."""
