# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Runs on a node that is paused for an hour and was tampered with (pid_max): the pause holds, then a short one ends.

The tick leaves the node as it is and says so, a clock set forth ends nothing, a command refuses to change the node, and
a pause of some seconds ends by itself, after which one tick mends: timer and path unit start none meanwhile, which could have
looked before the end. Exits 1 and prints what is not so.
"""

from __future__ import annotations

import subprocess
import sys
import time

from on_node import PATIENCE, status, without_timer

PID_MAX = "/proc/sys/kernel/pid_max"
TICK = ("systemctl", "start", "corral-reconcile.service")
DAYS = 2 * 86400

failures: list[str] = []


def expect(what: str, got: object, wanted: object) -> None:
    if got != wanted:
        failures.append(f"{what}: got {got!r}, wanted {wanted!r}")


def run(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(words, capture_output=True, text=True, check=False, timeout=120 * PATIENCE)


def pid_max() -> str:
    with open(PID_MAX, encoding="ascii") as file:
        return file.read().strip()


def journal() -> list[str]:
    run("journalctl", "--sync")
    words = ("journalctl", "--unit=corral-reconcile.service", "--output=cat", "--quiet", "--no-pager")
    return run(*words).stdout.splitlines()


def held(what: str) -> None:
    """The node is left as it is, and its status says why."""
    told = status()
    paused = told["paused"] or {}
    expect(f"{what}: paused", (paused.get("by"), paused.get("reason")), ("root", "exchanging a disk"))
    expect(
        f"{what}: items", [(item["subject"], item["maintenance"]) for item in told["items"]], [("kernel.pid_max", True)]
    )
    expect(f"{what}: pid_max", pid_max(), "100000")


def main() -> int:
    with without_timer():
        pauses()
    print("\n".join(failures) or "the pause held, and a short one ended by itself")
    return 1 if failures else 0


def pauses() -> None:
    """The pause that there is, and a short one."""
    held("after a tick")
    told = run("corral", "status")
    expect(
        "corral status",
        (told.returncode, "paused until" in told.stdout, "under maintenance" in told.stdout),
        (2, True, True),
    )
    refused = run("corral", "reconcile")
    expect("corral reconcile", (refused.returncode, "corral resume" in refused.stderr), (1, True))
    time.clock_settime(time.CLOCK_REALTIME, time.time() + DAYS)
    try:
        run(*TICK)
        held("after the clock was set forth")
    finally:
        time.clock_settime(time.CLOCK_REALTIME, time.time() - DAYS)

    begin = len(journal())
    # The command has a tick look, which must see the pause before it ends.
    seconds = f"--for={int(10 * PATIENCE)}s"
    words = ("env", "SUDO_USER=alice", "SUDO_UID=1000", "corral", "pause", seconds, "--reason=short")
    expect("corral pause", run(*words).returncode, 0)
    told = status()["paused"] or {}
    expect("its pause is told", told.get("reason"), "short")
    while time.time() <= told.get("until", 0):
        time.sleep(0.1)
    run(*TICK)
    expect("pid_max after the end", pid_max(), "65536")
    expect("status after the end", (status()["paused"], status()["in_sync"]), (None, True))
    lines = [line for line in journal()[begin:] if "pause" in line]
    expect(
        "journal", [line.partition(" until ")[0] for line in lines], ["paused", "the pause by alice has ended: short"]
    )


if __name__ == "__main__":
    sys.exit(main())
