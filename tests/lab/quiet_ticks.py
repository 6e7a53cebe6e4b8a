# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Runs on a node whose agent is in sync: reload systemd, wait for two ticks of the timer, and read the journal.

Exits 1 when the ticks do not come, find something or tell the journal something.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time

from on_node import PATIENCE, STATUS, status, systemd_version

TICKS = 2
QUIET_SINCE = 252


def run(*words: str) -> str:
    return subprocess.run(words, capture_output=True, text=True, check=True, timeout=60 * PATIENCE).stdout


def journal() -> list[str]:
    run("journalctl", "--sync")
    lines = run("journalctl", "--unit=corral-reconcile.service", "--quiet", "--no-pager").splitlines()
    # systemd 247 itself says of each tick that it begins and ends, whatever LogLevelMax= the unit has; 252 does not.
    return [line for line in lines if systemd_version() >= QUIET_SINCE or " systemd[1]: " not in line]


def main(limit: float = 90.0 * PATIENCE) -> int:
    before = journal()
    run("systemctl", "daemon-reload")
    begin, last, looks = time.monotonic(), os.stat(STATUS).st_mtime_ns, []
    while len(looks) < TICKS and time.monotonic() - begin < limit:
        time.sleep(0.5)
        now = os.stat(STATUS).st_mtime_ns
        if now != last:
            last = now
            looks.append(status()["in_sync"])
    lines = journal()[len(before) :]
    print(f"{len(looks)} ticks in {time.monotonic() - begin:.0f} s, in sync: {looks}, journal: {lines}")
    return 0 if looks == [True] * TICKS and not lines else 1


if __name__ == "__main__":
    sys.exit(main())
