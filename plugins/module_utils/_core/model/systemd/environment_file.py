# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# This module is private to the collection corral.node.
"""The files of EnvironmentFile= as systemd reads them (systemd.exec(5), env-file.c), and the words of a variable on a command line."""

from __future__ import annotations

import re

WHITESPACE = " \t\n\r"
_BLANK = re.compile(f"[{WHITESPACE}]*")
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)
# The first systemd version in which a comment always ends with its line; earlier, a backslash at the end continues the comment.
COMMENTS_END = 254
_COMMENT, _LONG_COMMENT = re.compile(r"[^\n\r]*"), re.compile(r"(?:[^\\\n\r]|\\.?)*", re.DOTALL)
_KEY = re.compile(r"[^\n\r][^\n\r=]*")
# A part of a value: text in single or double quotes (the end of the file closes quotes as well), or plain text to the end of the line.
_PART = re.compile(r"""[ \t]*(?:'([^']*)'?|"((?:[^"\\]|\\.)*)\\?"?|((?:[^\\\n\r]|\\.)*\\?))""", re.DOTALL)
_ESCAPE = re.compile(r"\\(.?)", re.DOTALL)
_QUOTED_ESCAPE = re.compile(r'\\(?:\n|(["\\`$]))')
# A piece of a word; the character after a backslash is taken literally.
_PIECE = re.compile(r"""'((?:[^'\\]|\\.)*)\\?'?|"((?:[^"\\]|\\.)*)\\?"?|((?:[^ \t\n\r'"\\]|\\.?)+)""", re.DOTALL)


def parse(text: str, *, long_comments: bool = False) -> dict[str, str]:
    """The variables of a file. ``long_comments``: a backslash at the end of a comment continues the comment on the next line."""
    variables: dict[str, str] = {}
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
                    variables[name] = value
        at = end_of(_BLANK, text, at)
    return variables


def end_of(pattern: re.Pattern[str], text: str, at: int) -> int:
    """The end of a pattern's match at a position; the position itself without a match."""
    match = pattern.match(text, at)
    return match.end() if match else at


def value_at(text: str, at: int) -> tuple[str, int]:
    """The value that begins at the position ``at``, and the position of the value's end."""
    value = ""
    while True:
        match = _PART.match(text, at)
        if match is None:
            return value, at
        single, double, plain = match.groups()
        at = match.end()
        if plain is not None:
            # Blanks at the end belong to the value only if the blanks are escaped, or an escape follows the blanks.
            last = max((escape.end() for escape in _ESCAPE.finditer(plain)), default=0)
            plain = plain[:last] + plain[last:].rstrip(WHITESPACE)
            return value + _ESCAPE.sub(lambda escape: escape.group(1).strip("\n\r"), plain), at
        value += single if single is not None else _QUOTED_ESCAPE.sub(lambda escape: escape.group(1) or "", double)


def words(value: str) -> list[str]:
    """The words that ``$NAME`` expands to on a command line (systemd.service(5), "Command lines"), without quotes."""
    listed: list[str] = []
    at, is_new = 0, True
    while at < len(value):
        match = _PIECE.match(value, at)
        if match is None:  # a blank
            at, is_new = at + 1, True
            continue
        piece = _ESCAPE.sub(r"\1", next(group for group in match.groups() if group is not None))
        listed.append(piece if is_new else listed.pop() + piece)
        at, is_new = match.end(), False
    return listed
