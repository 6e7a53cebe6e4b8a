# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Runs on a node whose agent is in sync: reload systemd, wait for two ticks of the timer, and read the journal.

Exits 1 when the ticks do not come, find something or tell the journal something.
"""

from __future__ import annotations

import os
import sys
import time

from on_node import PATIENCE, STATUS, agent_journal, run, status

TICKS = 2


def main(limit: float = 90.0 * PATIENCE) -> int:
    before = agent_journal()
    run("systemctl", "daemon-reload")
    begin, last, looks = time.monotonic(), os.stat(STATUS).st_mtime_ns, []
    while len(looks) < TICKS and time.monotonic() - begin < limit:
        time.sleep(0.5)
        now = os.stat(STATUS).st_mtime_ns
        if now != last:
            last = now
            looks.append(status()["in_sync"])
    lines = agent_journal()[len(before) :]
    print(f"{len(looks)} ticks in {time.monotonic() - begin:.0f} s, in sync: {looks}, journal: {lines}")
    return 0 if looks == [True] * TICKS and not lines else 1


if __name__ == "__main__":
    sys.exit(main())
