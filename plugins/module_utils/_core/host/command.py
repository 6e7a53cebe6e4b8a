# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# This module is private to the collection corral.node.
"""Runs commands of the machine. A converged tick starts no command and does not load this file."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import time
import typing as t

from ..model.values.printable_text import printable_fields, printable_lines
from ..model.values.records import NamedTuple

if t.TYPE_CHECKING:
    import subprocess


ENVIRONMENT = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL": "C", "SYSTEMD_COLORS": "0", "SYSTEMD_PAGER": ""}
TAIL = 16384  # the bytes that are kept from the end of a command's output
KILLED_SECONDS = 2.0
WAIT_SECONDS = 0.05  # between two checks whether a user's command has ended


@printable_fields("out", "err", escape=printable_lines)
class Command(NamedTuple):
    """The answer of a command: exit code (127: not there, 124: timed out), and both outputs as text with control characters escaped."""

    code: int
    out: str
    err: str


def run_command(argv: t.Sequence[str], timeout: float) -> Command:
    """Run ``argv`` without a shell, in the C locale, with no standard input and no terminal; never raises.

    A command that runs as another user must not have root's terminal: the command could type into the terminal (TIOCSTI).
    """
    import subprocess  # Imported here: an answer over systemd's connection is a Command too, and needs no process.

    try:
        done = subprocess.run(  # pylint: disable=ansible-bad-function  # the agent has no AnsibleModule
            list(argv),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=timeout,
            env=ENVIRONMENT,
            start_new_session=True,
            umask=0o022,  # With the agent's own umask other users could not read compiled files.
            check=False,
        )
    except FileNotFoundError:
        return Command(127, "", f"{argv[0]}: not installed")
    except subprocess.TimeoutExpired:
        return Command(124, "", f"{argv[0]}: no answer within {timeout:g} s")
    except OSError as error:
        return Command(126, "", f"{argv[0]}: {error.strerror}")
    return Command(done.returncode, done.stdout.decode(errors="replace"), done.stderr.decode(errors="replace"))


def run_foreign(argv: t.Sequence[str], timeout: float, variables: t.Mapping[str, str]) -> Command:
    """Run a user's command with these environment variables, otherwise as run_command() does; never raises.

    In the result, ``out`` is the end of both outputs. ``err`` says why there is no exit code, and is empty if the command gave an exit
    code. After ``timeout`` seconds the command and its process group are killed. A process that the command leaves behind is not waited
    for.
    """
    import subprocess

    try:
        process = subprocess.Popen(  # pylint: disable=ansible-bad-function,consider-using-with  # it ends here
            list(argv),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env={**ENVIRONMENT, **variables},
            start_new_session=True,
            umask=0o022,
        )
    except FileNotFoundError:
        return Command(127, "", f"{argv[0]}: not there, or a program that its first line names is not")
    except (OSError, ValueError) as error:  # ValueError: a NUL in a word
        return Command(126, "", f"{argv[0]}: {getattr(error, 'strerror', None) or error}")
    output = t.cast("t.IO[bytes]", process.stdout)
    try:
        tail, is_over = tail_of(process, output.fileno(), timeout)
        if not is_over:
            os.killpg(process.pid, signal.SIGKILL)  # Before wait() no other process group can get this number.
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(KILLED_SECONDS)  # A process that waits for its hardware does not end yet.
            return Command(124, "", f"{argv[0]}: no answer within {timeout:g} s")
        return Command(process.returncode, tail.decode(errors="replace"), "")
    finally:
        output.close()


def tail_of(process: subprocess.Popen[bytes], output: int, timeout: float) -> tuple[bytes, bool]:
    """The end of the output of a process, and whether the process ended in time."""
    deadline = time.monotonic() + timeout
    os.set_blocking(output, False)
    tail, is_open, is_over = b"", True, False
    while True:
        # poll() comes before the read: after the end of the process all its output can be read.
        is_over = process.poll() is not None
        while is_open:
            try:
                chunk = os.read(output, TAIL)
            except BlockingIOError:
                break
            tail, is_open = (tail + chunk)[-TAIL:], bool(chunk)
            if time.monotonic() >= deadline:
                break
        left = deadline - time.monotonic()
        if is_over or left <= 0:
            return tail, is_over
        if is_open:
            select.select([output], [], [], min(left, WAIT_SECONDS))
        else:
            time.sleep(min(left, WAIT_SECONDS))
