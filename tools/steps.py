# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""One step of the tests: a name, and what runs and counts it."""

from __future__ import annotations

import collections
import pathlib
import subprocess
import threading
import traceback
import typing as t

import setup
from tally import Tally

DOCS = ("lint-collection-docs", "--plugin-docs", "--validate-collection-refs=all", ".")  # texts, too, name what exists
LINT = ("--offline", "--nocolor", "--profile", "production")


ENOUGH, WIDTH = 16, 1100  # lines that a failed step leaves for the end of the run, and their length
said: dict[int, list[str]] = collections.defaultdict(list)  # by each thread's step, since it began
complaints: list[str] = []  # of the steps that failed


class Step(t.NamedTuple):
    name: str
    run: t.Callable[[], Tally]


def tool(name: str) -> str:
    return str(setup.VENV / "bin" / name)


def remember(*lines: str) -> None:
    """What a step that fails is to repeat at the end of the run: there it is looked for."""
    said[threading.get_ident()] += lines


def judged(step: Step) -> Tally:
    """Run a step; what it said of a failure is kept for the end of the run. One that raises has failed, and the others go on."""
    lines = said[threading.get_ident()] = []
    try:
        tally = step.run()
    except Exception as error:
        traceback.print_exc()
        remember(f"{type(error).__name__}: {error}")
        tally = Tally(failed=1)
    if tally.failed:
        more = [f"… and {len(lines) - ENOUGH} more lines"] if len(lines) > ENOUGH else []
        complaints.extend([f"{step.name} failed:", *(f"    {line[:WIDTH]}" for line in lines[:ENOUGH] + more)])
    return tally


def linter(name: str, *command: str) -> Step:
    """A linter counts as one test."""
    return Step(name, lambda: one_test(answer([tool(command[0]), *command[1:]])))


def answer(
    command: t.Sequence[str], cwd: pathlib.Path = setup.CHECKOUT, env: t.Mapping[str, str] | None = None
) -> str | None:
    """What a command says; None when it fails, which shows what it said and what it complained of."""
    done = subprocess.run(
        command,
        cwd=cwd,
        env=env or setup.environment(),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        errors="replace",
        check=False,
    )
    if done.returncode == 0:
        return done.stdout
    print(done.stdout + done.stderr, flush=True)
    remember(*(done.stdout + done.stderr).splitlines()[-ENOUGH:])
    return None


def one_test(passed: object, reason: str = "") -> Tally:
    """Passed unless it is None or False; then the reason is shown."""
    if passed is not None and passed is not False:
        return Tally(passed=1)
    if reason:
        print(f"ERROR: {reason}", flush=True)
        remember(*reason.splitlines()[:ENOUGH])
    return Tally(failed=1)


def cannot(reason: str) -> Tally:
    """What cannot be tried here is said, and counted as skipped."""
    print(f"NOTICE: {reason}", flush=True)
    return Tally(skipped=1)
