# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a target of the fuzzer is, and how it runs commands."""

from __future__ import annotations

import abc
import contextlib
import io
import random
import typing as t
from pathlib import Path

from _core import main
from _core.host.files import Unreadable
from _core.model.values.errors import CorralError

Input = t.Any  # a literal of Python: it is saved as text


class Outcome(t.NamedTuple):
    """How far an input got, and what was said about it. ``wrong``: what this target itself forbids."""

    depth: str
    said: tuple[str, ...] = ()
    wrong: str = ""


class Target(abc.ABC):
    """Makes inputs by chance, and runs them. Each worker makes one, in a folder of its own, outside of which nothing may be written."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.prepare()

    def prepare(self) -> None:  # noqa: B027 - most targets need nothing
        """What is needed for all inputs."""

    @abc.abstractmethod
    def make(self, chance: random.Random) -> Input:
        """An input."""

    @abc.abstractmethod
    def run(self, data: Input) -> Outcome:
        """What became of it."""


class Shown(t.NamedTuple):
    """What a command printed, and its exit code; None: a refusal."""

    code: int | None
    out: str
    err: str


@contextlib.contextmanager
def captured() -> t.Iterator[t.Callable[[], tuple[str, str]]]:
    """What is printed meanwhile, as a terminal in UTF-8 gets it."""
    out = io.TextIOWrapper(io.BytesIO(), "utf-8", newline="\n")
    err = io.TextIOWrapper(io.BytesIO(), "utf-8", "backslashreplace", newline="\n")

    def both() -> tuple[str, str]:
        for one in (out, err):
            one.flush()
        shown = [one.buffer.getvalue().decode("utf-8") for one in (out, err)]  # type: ignore[attr-defined]
        return shown[0], shown[1]

    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        yield both


def command(*words: str) -> Shown:
    """A command as the program runs it."""
    with captured() as both:
        code = main.main(words)
    return Shown(code, *both())


def called(function: t.Callable[[], int]) -> Shown:
    """The same of a function of a command; a refusal is printed as main() prints it."""
    with captured() as both:
        try:
            code: int | None = function()
        except (CorralError, Unreadable) as error:
            return Shown(None, both()[0], str(error))
        except OSError as error:
            return Shown(None, both()[0], f"{error.filename or 'the node'}: {error.strerror or error}")
    return Shown(code, *both())


def foreign_element(words: t.Sequence[str], page: str) -> str:
    """What is wrong with a page or a drawing into which foreign text brought an element; "" if nothing is, or if it is no page."""
    is_page = "--html" in words or "--svg" in words
    return "an element of foreign text" if is_page and ("<script>alert" in page or "<img src=x>" in page) else ""
