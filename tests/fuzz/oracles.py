# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What no input may do, whatever it is: print a control character, forge a line, write elsewhere, start a program."""

from __future__ import annotations

import contextlib
import os
import sys
import typing as t
import unicodedata

import mutation

WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC
# The events of sys.addaudithook whose first words are paths that change.
CHANGES = {
    "os.mkdir": 1, "os.rmdir": 1, "os.remove": 1, "os.truncate": 1, "os.chmod": 1, "os.chown": 1, "os.rename": 2, "os.link": 2,
    "os.symlink": 2, "os.mknod": 1, "os.setxattr": 1,
}  # fmt: skip
STARTS = ("subprocess.Popen", "os.system", "os.exec", "os.posix_spawn", "os.fork", "socket.connect")
BIDIRECTIONAL = frozenset("\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")


class Outside(BaseException):
    """An input made the program write outside of the folder that it was given, or start a program."""


class Guard:
    """Refuses writes outside of ``allowed`` while it is on. There is one of it in a process: a hook stays for ever."""

    def __init__(self) -> None:
        self.allowed: tuple[str, ...] | None = None
        self.seen: list[str] = []
        sys.addaudithook(self.hook)

    @contextlib.contextmanager
    def on(self, *folders: str) -> t.Iterator[None]:
        self.seen.clear()
        self.allowed = tuple(os.path.realpath(folder) for folder in folders)
        try:
            yield
        finally:
            self.allowed = None

    def hook(self, event: str, words: tuple[t.Any, ...]) -> None:
        if self.allowed is None:
            return
        if event == "open":
            if isinstance(words[2], int) and words[2] & WRITES and not isinstance(words[0], int):
                self.check(event, words[0], -1)
        elif event in CHANGES:
            folder = next((one for one in words[::-1] if isinstance(one, int)), -1)
            for path in words[1 if event == "os.symlink" else 0 : CHANGES[event]]:
                self.check(event, path, folder)
        elif event in STARTS:
            self.refuse(f"{event} {words[:2]!r}"[:300])

    def check(self, event: str, path: t.Any, folder: int) -> None:
        allowed, self.allowed = self.allowed, None
        try:
            if isinstance(path, int):
                return
            text = os.fsdecode(path)
            if folder >= 0 and not text.startswith("/"):
                text = os.path.join(os.readlink(f"/proc/self/fd/{folder}"), text)
            real = os.path.join(os.path.realpath(os.path.dirname(text) or "."), os.path.basename(text))
            if event in ("open", "os.truncate", "os.chmod"):
                real = os.path.realpath(text)
        finally:
            self.allowed = allowed
        if real != "/dev/null" and not any(f"{real}/".startswith(f"{one}/") for one in allowed or ()):
            self.refuse(f"{event} {real}")

    def refuse(self, what: str) -> None:
        self.seen.append(what)
        raise Outside(what)


def control_character(text: str) -> str:
    """The first character that a terminal, a log or a reader could take for more than text, with what is around it; "" if none."""
    if text.isascii() and text.replace("\n", "").isprintable():
        return ""
    for place, char in enumerate(text):
        kind = unicodedata.category(char)
        if (kind == "Cc" and char != "\n") or kind in ("Zl", "Zp", "Cs") or char in BIDIRECTIONAL:
            return repr(text[max(0, place - 60) : place + 20])
    return ""


def forged_line(text: str) -> str:
    """A line that foreign text began; "" if none."""
    place = text.find(f"{mutation.BEFORE_FORGED}\n{mutation.FORGED}")
    return "" if place < 0 else repr(text[max(0, place - 60) : place + 40])


def texts_in(value: t.Any) -> t.Iterator[str]:
    """All texts in some data, keys included."""
    todo = [value]
    while todo:
        one = todo.pop()
        if isinstance(one, str):
            yield one
        elif isinstance(one, dict):
            todo += [*one, *one.values()]
        elif isinstance(one, (list, tuple)):
            todo += one


def unprintable(said: t.Iterable[str]) -> tuple[str, str]:
    """(kind of finding, where) of the first text that must not be shown; ("", "") if none."""
    for text in said:
        for kind, found in (("control character", control_character(text)), ("forged line", forged_line(text))):
            if found:
                return kind, found
    return "", ""
