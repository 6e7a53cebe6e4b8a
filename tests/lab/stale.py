# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Steps on a node whose agent is in sync: nobody looks at it any more, and every reader says so and why.

What is expected follows from what is done to systemd's units, to the process of a tick and to the clock.
"""

from __future__ import annotations

import contextlib
import glob
import json
import os
import shutil
import subprocess
import time
import typing as t

from on_node import PATIENCE, SERVICE, expect, in_sync, run, tick, wait, write

TIMER = "corral-reconcile.timer"
FACT = "/etc/ansible/facts.d/corral.fact"
ETC = "/etc/systemd/system"
DROPIN = f"/run/systemd/system/{SERVICE}.d"
PARTITION = "/sys/fs/cgroup/corral_isolated.slice/cpuset.cpus.partition"
LIMIT = 30  # three intervals
DIFFERS = 2
DAY = 86400
LIMITS = "[Service]\nTimeoutStartSec={}\nTimeoutStopSec=3600\nKillSignal=SIGWINCH\n"  # it does not end


def answer(*words: str) -> tuple[int, str]:
    """How a command ended, and what it said."""
    done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=180 * PATIENCE)
    return done.returncode, done.stdout


def stale_by_status() -> t.Optional[str]:
    """Why `corral status` calls the node stale; None where it says in sync. Exit code and field say the same."""
    code, text = answer("corral", "status", "--json")
    found = json.loads(text)
    expect("in sync where the exit code is 0", found["in_sync"], code == 0)
    expect("stale where it is not in sync", found["stale"] is not None, code == DIFFERS)
    return t.cast("t.Optional[str]", found["stale"])


def expect_stale(*parts: str) -> None:
    said = stale_by_status()
    print(f"  {said}", flush=True)
    expect(f"{parts} in what is said", [one for one in parts if one not in (said or "")], [])


def expect_stale_everywhere(part: str) -> None:
    """Every reader on the node says it."""
    expect_stale(part)
    code, text = answer("corral", "status")
    expect("the command", (code, part in text, "in sync: nothing differs" in text), (DIFFERS, True, False))
    code, text = answer("corral", "status", "--html")
    expect("the page", (code, part in text, "in sync: nothing differs" in text), (DIFFERS, True, False))
    code, text = answer(FACT)
    found = json.loads(text)
    expect("the fact", (code, found["in_sync"], part in found["stale"]), (0, False, True))


def reload() -> None:
    run("systemctl", "daemon-reload")


@contextlib.contextmanager
def with_dropin(text: str) -> t.Iterator[None]:
    """A drop-in of the service, until the end."""
    os.makedirs(DROPIN, exist_ok=True)
    write(f"{DROPIN}/stale.conf", text)
    reload()
    try:
        yield
    finally:
        shutil.rmtree(DROPIN, ignore_errors=True)
        reload()


@contextlib.contextmanager
def masked(unit: str) -> t.Iterator[None]:
    """A unit whose file is a link to /dev/null, as one that systemctl mask made where the unit came from a package."""
    aside = f"/root/{unit}"
    shutil.move(f"{ETC}/{unit}", aside)
    os.symlink("/dev/null", f"{ETC}/{unit}")
    reload()
    try:
        yield
    finally:
        os.unlink(f"{ETC}/{unit}")
        shutil.move(aside, f"{ETC}/{unit}")
        reload()


def nobody_looks() -> None:
    """The timer is stopped, the agent masked, its condition false, the clock set: stale, each time with the reason; then a tick."""
    in_sync()
    run("systemctl", "stop", TIMER)
    time.sleep(LIMIT + 1)
    expect_stale_everywhere(f"{TIMER} is inactive")
    for jump, way in ((DAY, "forward"), (-DAY, "back")):
        with clock_set_by(jump):
            expect_stale(f"{TIMER} is inactive", f"the clock was set {way} by")
    run("systemctl", "start", TIMER)
    with masked(SERVICE):
        expect_stale(f"{SERVICE} is masked")
    with with_dropin("[Unit]\nConditionPathExists=/nonexistent\n"):
        run("systemctl", "start", SERVICE)
        expect_stale(f"a condition of {SERVICE} is not met")
    in_sync()


@contextlib.contextmanager
def clock_set_by(seconds: float) -> t.Iterator[None]:
    """The clock goes wrong, until the end."""
    begin, monotonic = time.time(), time.monotonic()
    time.clock_settime(time.CLOCK_REALTIME, begin + seconds)
    try:
        yield
    finally:
        time.clock_settime(time.CLOCK_REALTIME, begin + time.monotonic() - monotonic)


def tick_that_hangs() -> None:
    """A tick that takes long is a look, whatever the clock says; beyond its time limit it is none, nor is one that was ended for that."""
    found: list[str] = []

    def runs() -> bool:
        found[:] = glob.glob(f"/sys/fs/cgroup/**/{SERVICE}/cgroup.freeze", recursive=True)
        return bool(found)

    with with_dropin(LIMITS.format(3600)):
        in_sync()
        run("systemctl", "start", "--no-block", SERVICE)
        wait("a tick runs", runs, pause=0.01)
        write(found[0], "1")
        try:
            time.sleep(LIMIT + 1)
            expect("stale while a tick takes long", stale_by_status(), None)
            for jump in (DAY, -DAY):
                with clock_set_by(jump):
                    expect("stale by a clock that was set", stale_by_status(), None)
            write(f"{DROPIN}/stale.conf", LIMITS.format(20))
            reload()
            expect_stale("a tick hangs for", "its TimeoutStartSec= is 20 s")
            run("systemctl", "kill", "--signal=KILL", SERVICE)
            wait("it is ended", lambda: answer("systemctl", "is-active", SERVICE)[1].strip() == "failed")
            expect_stale(f"{SERVICE} failed with the result timeout")
        finally:
            with contextlib.suppress(OSError):
                write(found[0], "0")
            run("systemctl", "reset-failed", SERVICE, code=None)
    in_sync()


def kernel_when_it_is_said() -> None:
    """A partition that was ended a moment ago is not said to be enforced by the kernel."""
    in_sync()
    write(PARTITION, "member")
    code, text = answer("corral", "status", "--json")
    found = json.loads(text)
    expect("the kernel's file is read", (code, found["in_sync"]), (DIFFERS, False))
    named = "but not corral_isolated.slice: cpuset.cpus.partition is member"
    expect("the slice is named", named in found["exclusive"], True)
    tick()
    in_sync()


STEPS = (nobody_looks, tick_that_hangs, kernel_when_it_is_said)
