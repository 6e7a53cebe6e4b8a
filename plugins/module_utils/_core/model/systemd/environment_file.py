# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# This module is private to the collection corral.node.
"""The files of EnvironmentFile= as systemd reads them (systemd.exec(5), env-file.c), and the words that a variable of one stands for."""

from __future__ import annotations

import re

WHITESPACE = " \t\n\r"
_BLANK = re.compile(f"[{WHITESPACE}]*")
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)
# Before systemd 254 a backslash at the end of a comment takes the next line into it.
COMMENTS_END = 254
_COMMENT, _LONG_COMMENT = re.compile(r"[^\n\r]*"), re.compile(r"(?:[^\\\n\r]|\\.?)*", re.DOTALL)
_KEY = re.compile(r"[^\n\r][^\n\r=]*")  # One that begins with = is none.
# The parts of a value: in either quotes, which the end of the file closes as well, or plain text to the end of the line.
_PART = re.compile(r"""[ \t]*(?:'([^']*)'?|"((?:[^"\\]|\\.)*)\\?"?|((?:[^\\\n\r]|\\.)*\\?))""", re.DOTALL)
_ESCAPE = re.compile(r"\\(.?)", re.DOTALL)
_QUOTED_ESCAPE = re.compile(r'\\(?:\n|(["\\`$]))')
# A piece of a word, where a backslash takes the next character as it is.
_PIECE = re.compile(r"""'((?:[^'\\]|\\.)*)\\?'?|"((?:[^"\\]|\\.)*)\\?"?|((?:[^ \t\n\r'"\\]|\\.?)+)""", re.DOTALL)


def parse(text: str, *, long_comments: bool = False) -> dict[str, str]:
    """The variables of a file. ``long_comments``: a comment goes on where its line ends in a backslash."""
    found: dict[str, str] = {}
    comment = _LONG_COMMENT if long_comments else _COMMENT
    at = end_of(_BLANK, text, 0)
    while at < len(text):
        if text[at] in "#;":
            at = end_of(comment, text, at)
        else:
            end = end_of(_KEY, text, at)
            name, at = text[at:end].rstrip(WHITESPACE), end
            if text[end : end + 1] == "=":
                value, at = value_at(text, end + 1)
                if _NAME.fullmatch(name):
                    found[name] = value
        at = end_of(_BLANK, text, at)
    return found


def end_of(pattern: re.Pattern[str], text: str, at: int) -> int:
    """Where what a pattern matches from here on ends."""
    match = pattern.match(text, at)
    return match.end() if match else at


def value_at(text: str, at: int) -> tuple[str, int]:
    """The value that begins here, and where it ends."""
    value = ""
    while True:
        match = _PART.match(text, at)
        if match is None:
            return value, at
        single, double, plain = match.groups()
        at = match.end()
        if plain is not None:
            # Blanks at the end are no part of it, but one that is escaped, and those before an escaped end of line.
            last = max((one.end() for one in _ESCAPE.finditer(plain)), default=0)
            plain = plain[:last] + plain[last:].rstrip(WHITESPACE)
            return value + _ESCAPE.sub(lambda one: one.group(1).strip("\n\r"), plain), at
        value += single if single is not None else _QUOTED_ESCAPE.sub(lambda one: one.group(1) or "", double)


def words(value: str) -> list[str]:
    """The words that ``$NAME`` stands for on a command line (systemd.service(5), "Command lines"): quotes are taken off."""
    found: list[str] = []
    at, is_new = 0, True
    while at < len(value):
        match = _PIECE.match(value, at)
        if match is None:  # a blank
            at, is_new = at + 1, True
            continue
        piece = _ESCAPE.sub(r"\1", next(one for one in match.groups() if one is not None))
        found.append(piece if is_new else found.pop() + piece)
        at, is_new = match.end(), False
    return found
