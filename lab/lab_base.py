# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Folders, messages, locks, commands and time limits that all files of the lab use."""

from __future__ import annotations

import contextlib
import fcntl
import math
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import threading
import time
import typing as t

HERE = pathlib.Path(__file__).resolve().parent


class LabError(Exception):
    """An error for the user: what is wrong, and what to do."""


def cache() -> pathlib.Path:
    """Images and saved states: made once, used by every checkout of this user."""
    return pathlib.Path(os.environ.get("CORRAL_CACHE") or pathlib.Path.home() / ".cache" / "corral") / "lab"


def place() -> pathlib.Path:
    """Where the folders of running nodes are; it must be short, for the sockets in them."""
    base = os.environ.get("CORRAL_RUN") or os.environ.get("XDG_RUNTIME_DIR") or "/tmp"  # noqa: S108 - mode 0700 below
    return pathlib.Path(base) / f"corral-lab-{os.getuid()}"


def running() -> pathlib.Path:
    """The same folder, made if it is missing; raises LabError unless only this user can open it."""
    folder = place()
    while True:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        try:
            state = folder.stat()
            break
        except FileNotFoundError:  # another lab has just removed the empty folder
            continue
    if state.st_uid != os.getuid() or state.st_mode & 0o077:
        raise LabError(f"{folder}: belongs to another user or is open to others: set CORRAL_RUN to a folder of yours")
    return folder


def leave() -> None:
    """Remove the folder of running nodes when it is empty."""
    with contextlib.suppress(OSError):
        place().rmdir()


def say(text: str) -> None:
    """Progress, for people."""
    print(f"lab: {text}", file=sys.stderr, flush=True)


def patience() -> float:
    """By what factor this machine, now, is slower than a quiet one: each limit of time is multiplied by it.

    The suite measures it and hands it on in CORRAL_PATIENCE.
    """
    text = os.environ.get("CORRAL_PATIENCE") or "1"
    with contextlib.suppress(ValueError):
        if math.isfinite(factor := float(text)):
            return max(factor, 1.0)
    raise LabError(f"CORRAL_PATIENCE is {text!r}: write a number such as 2.5")


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
    ``wait`` is off. The file is removed with the lock, so a lock on a file that is gone by then is taken again."""
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


def keep_latest(folder: pathlib.Path, name: str, count: int = 2) -> None:
    """Remove what was made for other recipes: the last ones used stay, for two checkouts that take turns."""
    made = sorted((one.stat().st_mtime, one) for one in folder.glob(f"{name}-{'[0-9a-f]' * 12}") if one.is_dir())
    for dummy_time, old in made[:-count]:
        shutil.rmtree(old, ignore_errors=True)


def ignore_signals() -> None:
    """From here on only SIGKILL ends this process, so that it completes its clean-up."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)


@contextlib.contextmanager
def undisturbed() -> t.Iterator[None]:
    """A second Ctrl-C does not end a clean-up; only the main thread has signals to set."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    before = [signal.signal(number, signal.SIG_IGN) for number in numbers]
    try:
        yield
    finally:
        for number, handler in zip(numbers, before, strict=True):
            signal.signal(number, handler)


@contextlib.contextmanager
def run_if_killed(*words: str) -> t.Iterator[None]:
    """If this process is killed in between, a shell sees its pipe close and runs the command ``words``."""
    quiet = subprocess.DEVNULL
    script = ["sh", "-c", 'read -r answer || exec "$@"', "sh", *words]
    guard = subprocess.Popen(script, stdin=subprocess.PIPE, stdout=quiet, stderr=quiet, start_new_session=True)
    try:
        yield
    finally:
        guard.communicate(b"over\n")


def signal_group(group: int, number: int) -> None:
    """Signal a process group, also one that sudo started."""
    try:
        os.killpg(group, number)
    except ProcessLookupError:
        return
    except PermissionError:
        words = ["sudo", "-n", "kill", f"-{number}", "--", f"-{group}"]
        subprocess.run(words, stdin=subprocess.DEVNULL, capture_output=True, check=False)


def run(*words: str, timeout: float = 600.0, orphaned: t.Sequence[str] = ()) -> str:
    """Run a command and return what it printed; its own words are in the error.

    Should the lab be killed meanwhile, ``orphaned`` is run with the number of the command's process group.
    """
    timeout *= patience()
    # A session of its own: on every way out but success the whole family is ended, not the first process alone.
    process = subprocess.Popen(
        words,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        errors="replace",
        start_new_session=True,
    )
    try:
        with run_if_killed(*orphaned, str(process.pid)) if orphaned else contextlib.nullcontext():
            out, error = process.communicate(timeout=timeout)
    except BaseException as early:
        late = isinstance(early, subprocess.TimeoutExpired)
        if not late:  # the lab ends: a second Ctrl-C must not stop it here
            ignore_signals()
        for number in (signal.SIGTERM, signal.SIGKILL):
            signal_group(process.pid, number)
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.communicate(timeout=10)
        if late:
            raise LabError(f"{' '.join(words[:6])} did not end within {timeout:.0f} s") from None
        raise
    if process.returncode != 0:
        words_said = "\n".join((error or out).strip().splitlines()[-8:])
        raise LabError(f"{' '.join(words[:6])} ended with {process.returncode}:\n{words_said}")
    return out
