# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""No word of a profile adds a line, a specifier of systemd or an expansion of a shell to a file that Corral writes."""

from __future__ import annotations

import contextlib
import typing as t

import pytest
from _core.model.profile import schema
from _core.model.profile import schema_types as types

# What they end with: a line, a specifier (systemd.unit(5)), expansions, quotes, a continued line, terminal commands.
HOSTILE = (
    "\n[Service]\nExecStart=/x", "\n", "\r", "\0", "%n", "$HOME", "$(id)", "`id`", "\"", "'", ";id", "\\\n", "\x1b[2J",
    "\u202e", "\x9b", "\udc80", "\u2028",
)  # fmt: skip
# An account may end with a $ (systemd.exec(5)), and an escaped name of a unit has backslashes.
WORDS = {
    name: one
    for key in schema.KEYS
    for name, one in ((key.path, key.type), (f"{key.path} (its keys)", key.keys))
    if one is not None
}
FREE = {types.COMMAND_WORD, types.CONTAINER_LABEL}  # which no unit file and no file of variables has


def read(one: types.Type, text: str) -> t.Any:
    with contextlib.suppress(ValueError):
        return one.read(text)
    return None


@pytest.mark.parametrize("name", WORDS)
def test_each_text_is_printable_and_expands_to_nothing(name: str) -> None:
    one = WORDS[name]
    key = next(key for key in schema.KEYS if key.path == name.partition(" ")[0])
    for begin in ("a", "0", "/a", "a.service", "a.slice", str(key.example), "a=b", "a/b", "1Gi"):
        for end in HOSTILE:
            for text in (f"{begin}{end}", f"{end}{begin}"):
                found = read(one, text)
                if isinstance(found, str):
                    assert found.isprintable()
                    assert one in FREE or not any(
                        word in found for word in ("%", "$HOME", "$(", "`", '"', "'", ";", " ")
                    )
