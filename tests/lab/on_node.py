# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What the scripts on a node share: commands, expectations, waits, ticks, and steps with their seconds.

With a command as argument, that command is run while the timer and the path unit of the agent start no tick.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import re
import shutil
import subprocess
import sys
import time
import traceback
import typing as t

SERVICE = "corral-reconcile.service"
STATUS = "/run/corral/status.json"
LOCK = "/run/corral/lock"
QUIET_SYSTEMD = 252
# A quiet emulated node takes so long (s) for LOOP rounds.
LOOP, LOOP_SECONDS = 300_000, 0.08

# Timer and path unit are active, as they must be, and do nothing.
QUIET = {
    "corral-reconcile.timer": "[Timer]\nOnBootSec=\nOnUnitInactiveSec=\nOnActiveSec=1d\n",
    "corral-reconcile.path": "[Path]\nPathChanged=\nPathChanged=/run/corral-quiet\n",
}


# Of each reload of systemd it is sent a message for each unit, which takes an emulated node half as long again as the reload. D-Bus
# starts it where a session begins.
LOGIND = "systemd-logind.service"


def measured() -> float:
    """By what factor this node, now, is slower than a quiet one; at least 1."""
    times = []
    for dummy in range(3):
        begin = time.monotonic()
        for _round in range(LOOP):
            pass
        times.append(time.monotonic() - begin)
    return max(*times, LOOP_SECONDS) / LOOP_SECONDS


# Each limit of time is multiplied by it, no expectation is.
PATIENCE = measured()


def run(*words: str, code: t.Optional[int] = 0, timeout: float = 180) -> str:
    """Run a command; AssertionError when it ends with another code."""
    done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=timeout * PATIENCE)
    if code is not None and done.returncode != code:
        raise AssertionError(f"{' '.join(words)}: exit {done.returncode}: {done.stdout}{done.stderr}")
    return done.stdout


def read(path: str) -> str:
    with open(path, encoding="utf-8") as file:
        return file.read().strip()


def write(path: str, text: str) -> None:
    with open(path, "w", encoding="utf-8") as file:
        file.write(text)


def expect(what: str, got: object, wanted: object) -> None:
    if got != wanted:
        raise AssertionError(f"{what}: got {got!r}, wanted {wanted!r}")


def exposed(unit: str, most: float) -> None:
    """What systemd says of a unit's exposure is at most this (systemd-analyze(1))."""
    said = run("systemd-analyze", "security", "--no-pager", unit)
    (level,) = re.findall(r"Overall exposure level for [^:]+: ([0-9.]+)", said)
    print(f"{unit}: exposure {level}")
    expect(f"the exposure of {unit} ({level}) is at most {most}", float(level) <= most, True)


def wait(what: str, done: t.Callable[[], bool], seconds: float = 60, pause: float = 0.2) -> None:
    """Wait until something is so; AssertionError when it is not within the limit.

    Other work may have come since this began: at the end of the limit the node is measured once more.
    """
    begin, limit = time.monotonic(), seconds * PATIENCE
    while not done():
        if time.monotonic() > begin + limit:
            if limit >= (now := seconds * measured()):
                raise AssertionError(f"{what}: not within {limit:.0f} s")
            limit = now
        time.sleep(pause)


# Ticks


def status() -> dict[str, t.Any]:
    return t.cast("dict[str, t.Any]", json.loads(read(STATUS)))


def systemd_version() -> int:
    """The number that begins what `systemctl --version` says."""
    return int(run("systemctl", "--version").split()[1])


def agent_journal() -> list[str]:
    """What the journal has of the ticks.

    systemd 247 itself says of each that it begins and ends, whatever LogLevelMax= the unit has, and 252 does not: that is left out there.
    """
    run("journalctl", "--sync")
    lines = run("journalctl", f"--unit={SERVICE}", "--quiet", "--no-pager", "--output=json").splitlines()
    rows = map(json.loads, lines)
    return [row["MESSAGE"] for row in rows if row["_PID"] != "1" or systemd_version() >= QUIET_SYSTEMD]


def tick() -> dict[str, t.Any]:
    """One real tick, and the status that it wrote; AssertionError where none comes.

    A start joins a tick that runs already, which may have written its status before, and a tick writes none while another run
    holds the lock, such as the release after a stop: then there is another tick. What that other run writes is not the tick's.
    """
    with open(LOCK, encoding="ascii") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        before = status_stamp()

    def has_written() -> bool:
        run("systemctl", "start", SERVICE, code=None)
        return status_stamp() != before

    try:
        wait("a tick writes a status", has_written, 30)
    except AssertionError as late:
        said = run("systemctl", "status", "--no-pager", SERVICE, code=None)
        raise AssertionError(f"{late}: {said}") from None
    return status()


def status_stamp() -> t.Optional[tuple[int, int]]:
    """What differs after each write of the status; None where there is none."""
    try:
        found = os.stat(STATUS)
    except FileNotFoundError:
        return None
    return found.st_ino, found.st_mtime_ns


def in_sync() -> None:
    """The node is in sync after one tick."""
    said = tick()
    if not said["in_sync"]:
        wrong = {name: said.get(name) for name in ("error", "items")}
        raise AssertionError(f"after one tick: {json.dumps(wrong)[:2000]}")


@contextlib.contextmanager
def without_timer() -> t.Iterator[None]:
    """No tick but ours, and no message to logind."""

    def renew() -> None:
        run("systemctl", "daemon-reload")
        run("systemctl", "restart", *QUIET)

    try:
        for unit, text in QUIET.items():
            os.makedirs(f"/run/systemd/system/{unit}.d", exist_ok=True)
            write(f"/run/systemd/system/{unit}.d/quiet.conf", text)
        renew()
        run("systemctl", "stop", LOGIND)
        # A tick that began before goes on: a second start waits for its end, and is the last that is not ours.
        run("systemctl", "start", SERVICE, code=None)
        yield
    finally:
        for unit in QUIET:
            shutil.rmtree(f"/run/systemd/system/{unit}.d", ignore_errors=True)
        renew()
        run("systemctl", "start", LOGIND)


# Steps


def run_step(step: t.Callable[[], None]) -> bool:
    """Run a step and print SCRIPT.STEP, how it ended, and its seconds on one line, for the suite's table."""
    name = f"{os.path.basename(sys.argv[0]).partition('.')[0]}.{step.__name__}"
    begin = time.monotonic()
    try:
        step()
    except Exception:
        print(traceback.format_exc())
        print(f"step {name}: FAILED after {time.monotonic() - begin:.1f} s", flush=True)
        return False
    print(f"step {name}: passed in {time.monotonic() - begin:.1f} s", flush=True)
    return True


def run_steps(steps: t.Iterable[t.Callable[[], None]]) -> int:
    """Run steps while the agent starts no tick of its own, until one fails: the script's exit code."""
    with without_timer():
        return 0 if all(map(run_step, steps)) else 1


def run_named(names: t.Sequence[str], steps: t.Sequence[t.Callable[[], None]], prepare: t.Callable[[], None]) -> int:
    """Run ``prepare`` alone for its name, else the steps of these names: the script's exit code."""
    if list(names) == ["prepare"]:
        prepare()
        return 0
    return run_steps(select_steps(steps, names))


def select_steps(steps: t.Sequence[t.Callable[[], None]], names: t.Sequence[str]) -> list[t.Callable[[], None]]:
    """The steps of these names, in their own order; all of them for no name. SystemExit for a name that is none."""
    unknown = set(names) - {step.__name__ for step in steps}
    if unknown:
        raise SystemExit(f"no such step: {', '.join(sorted(unknown))}")
    return [step for step in steps if not names or step.__name__ in names]


if __name__ == "__main__":
    with without_timer():
        sys.exit(subprocess.run(sys.argv[1:], check=False).returncode)
