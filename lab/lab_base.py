# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Where the lab keeps things, and what it says."""

from __future__ import annotations

import contextlib
import fcntl
import os
import pathlib
import signal
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


def leave() -> None:
    """Remove the folder of running nodes when it is empty."""
    with contextlib.suppress(OSError):
        running().rmdir()


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
def locked(path: pathlib.Path, *, wait: bool = True) -> t.Iterator[bool]:
    """One at a time; the kernel frees the lock of a process that dies. Yields False when others hold it and
    ``wait`` is off. The file goes with the lock, so a lock on a file that is gone by then is taken anew."""
    while True:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        try:
            file = path.open("w")
        except FileNotFoundError:  # another lab has just removed the empty folder
            continue
        with file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
            except BlockingIOError:
                yield False
                return
            try:
                if not os.path.samestat(os.fstat(file.fileno()), path.stat()):
                    continue
            except FileNotFoundError:
                continue
            try:
                yield True
            finally:
                path.unlink(missing_ok=True)
            return


def deaf() -> None:
    """From here on only SIGKILL ends this process: a clean-up is not left half-way."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)


def run(*words: str, timeout: float = 600.0) -> str:
    """Run a command and return what it printed; its own words are in the error."""
    # A session of its own: on every way out but success the whole family is ended, not the first process alone.
    process = subprocess.Popen(
        words,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        out, error = process.communicate(timeout=timeout)
    except BaseException:
        for number in (signal.SIGTERM, signal.SIGKILL):
            with contextlib.suppress(ProcessLookupError, PermissionError, subprocess.TimeoutExpired):
                os.killpg(process.pid, number)
                process.communicate(timeout=10)
        raise
    if process.returncode != 0:
        words_said = "\n".join((error or out).strip().splitlines()[-8:])
        raise LabError(f"{' '.join(words[:6])} ended with {process.returncode}:\n{words_said}")
    return out
