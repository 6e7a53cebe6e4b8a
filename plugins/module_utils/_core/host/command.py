# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# This module is private to the collection corral.node.
"""Commands of the machine. A converged tick starts none, and does not load this file."""

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
TAIL = 16384  # bytes of the output of a command of the user's, the last ones
KILLED_SECONDS = 2.0
WAIT_SECONDS = 0.05  # from one look at such a command to the next


@printable_fields("out", "err", escape=printable_lines)
class Command(NamedTuple):
    """What a command answered: exit code (127: not there, 124: timed out) and its two outputs as text, control characters escaped."""

    code: int
    out: str
    err: str


def run_command(argv: t.Sequence[str], timeout: float) -> Command:
    """Run ``argv`` without a shell, in the C locale, with no standard input and no terminal; never raises.

    What runs as another user must not have root's terminal: it could type into it (TIOCSTI) once its user took it over.
    """
    import subprocess  # What systemd answers over its connection is a Command as well, and starts no process.

    try:
        done = subprocess.run(  # pylint: disable=ansible-bad-function  # the agent has no AnsibleModule
            list(argv),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=timeout,
            env=ENVIRONMENT,
            start_new_session=True,
            umask=0o022,  # the agent's own would keep others from reading what is compiled
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
    """Run a command of the user's with these variables, as run_command() does, whatever it prints and leaves behind; never raises.

    ``out`` is the end of both outputs; ``err`` says why there is no exit code, and is empty where there is one. When the time is up,
    the command is killed with the processes of its group. A process that it leaves behind is not waited for.
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
    except (OSError, ValueError) as error:  # ValueError: a character that no word can have
        return Command(126, "", f"{argv[0]}: {getattr(error, 'strerror', None) or error}")
    output = t.cast("t.IO[bytes]", process.stdout)
    try:
        tail, is_over = tail_of(process, output.fileno(), timeout)
        if not is_over:
            os.killpg(process.pid, signal.SIGKILL)  # It was not waited for, so the group is its own still.
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(KILLED_SECONDS)  # One that waits for its hardware does not end yet.
            return Command(124, "", f"{argv[0]}: no answer within {timeout:g} s")
        return Command(process.returncode, tail.decode(errors="replace"), "")
    finally:
        output.close()


def tail_of(process: subprocess.Popen[bytes], output: int, timeout: float) -> tuple[bytes, bool]:
    """The end of what a process prints, and whether it has ended in time."""
    deadline = time.monotonic() + timeout
    os.set_blocking(output, False)
    tail, is_open, is_over = b"", True, False
    while True:
        # What it printed before its end is there once it has ended.
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
