# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""One step of the tests: a name, and what runs and counts it."""

from __future__ import annotations

import pathlib
import subprocess
import typing as t

import setup
from tally import Tally

DOCS = ("lint-collection-docs", "--plugin-docs", "--validate-collection-refs=all", ".")  # texts, too, name what exists
LINT = ("--offline", "--nocolor", "--profile", "production")


class Step(t.NamedTuple):
    name: str
    run: t.Callable[[], Tally]


def tool(name: str) -> str:
    return str(setup.VENV / "bin" / name)


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
    return None


def one_test(passed: object, reason: str = "") -> Tally:
    """Passed unless it is None or False; then the reason is shown."""
    if passed is not None and passed is not False:
        return Tally(passed=1)
    if reason:
        print(f"ERROR: {reason}", flush=True)
    return Tally(failed=1)


def cannot(reason: str) -> Tally:
    """What cannot be tried here is said, and counted as skipped."""
    print(f"NOTICE: {reason}", flush=True)
    return Tally(skipped=1)
