# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Where the lab keeps things, and what it says."""

from __future__ import annotations

import contextlib
import fcntl
import os
import pathlib
import subprocess
import sys
import time
import typing as t

HERE = pathlib.Path(__file__).resolve().parent


class LabError(Exception):
    """What went wrong, and the way out."""


def cache() -> pathlib.Path:
    """Images and saved states: made once, used by every checkout of this user."""
    return pathlib.Path(os.environ.get("CORRAL_CACHE") or pathlib.Path.home() / ".cache" / "corral") / "lab"


def running() -> pathlib.Path:
    """One folder for each node that runs; it must be short, for the sockets in it."""
    base = os.environ.get("CORRAL_RUN") or os.environ.get("XDG_RUNTIME_DIR") or "/tmp"  # noqa: S108 - mode 0700 below
    folder = pathlib.Path(base) / f"corral-lab-{os.getuid()}"
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    state = folder.stat()
    if state.st_uid != os.getuid() or state.st_mode & 0o077:
        raise LabError(f"{folder}: belongs to somebody else or is open to others: set CORRAL_RUN to a folder of yours")
    return folder


def say(text: str) -> None:
    """Progress, for people."""
    print(f"lab: {text}", file=sys.stderr, flush=True)


@contextlib.contextmanager
def timed(text: str) -> t.Iterator[None]:
    """Say what begins, and how long it took."""
    say(f"{text} …")
    begin = time.monotonic()
    yield
    say(f"{text}: done in {time.monotonic() - begin:.1f} s")


@contextlib.contextmanager
def locked(path: pathlib.Path) -> t.Iterator[None]:
    """One at a time; the kernel frees the lock of a process that dies."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def run(*words: str, cwd: pathlib.Path | None = None, input_text: str | None = None, timeout: float = 600.0) -> str:
    """Run a command and return what it printed; its own words are in the error."""
    done = subprocess.run(
        words, cwd=cwd, input=input_text, capture_output=True, text=True, timeout=timeout,
        check=False, stdin=subprocess.DEVNULL if input_text is None else None,
    )  # fmt: skip
    if done.returncode != 0:
        words_said = "\n".join((done.stderr or done.stdout).strip().splitlines()[-8:])
        raise LabError(f"{' '.join(words[:6])} ended with {done.returncode}:\n{words_said}")
    return done.stdout
