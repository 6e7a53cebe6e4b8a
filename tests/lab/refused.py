# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Runs on a node with examples/edge.yml: invalid profiles are declared by hand, and refused with their path.

Each is put in the declared profile's place, as an editor of the file would; `corral reconcile` refuses it by the
path of its key, and nothing of the node changes but the status that says so. At the end the node is in sync.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import typing as t

from on_node import PATIENCE, expect, in_sync, read, run, run_step, without_timer

DECLARED = "/etc/corral/profile.json"
FINGERPRINT = ("python3", f"{os.path.dirname(os.path.abspath(__file__))}/fingerprint.py", "--without-status")
HUGE: dict[str, t.Any] = {"size": "2Mi", "count": 5000, "node": 0}
TAKEN: dict[str, t.Any] = {"path": "/dev/hugepages", "pagesize": "2Mi", "size": "64Mi"}
CASES: tuple[tuple[str, dict[str, t.Any]], ...] = (
    ("cpu.reserved.cpus: 9-15", {"cpu": {"reserved": {"cpus": "9-15"}}}),
    ("memory.hugepages[0]", {"memory": {"hugepages": [HUGE]}}),
    ("memory.hugepages[0].size", {"memory": {"hugepages": [{"size": "16Mi", "count": 1}]}}),
    ("memory.mounts[0].path: /dev/hugepages", {"memory": {"mounts": [TAKEN]}}),
    ("memory.mounts[0].group: nobody-knows",
     {"memory": {"mounts": [{"path": "/dev/pages", "pagesize": "2Mi", "group": "nobody-knows"}]}}),
    ("pids.pid_max", {"pids": {"pid_max": 320}}),
    ("not in this version", {"irq": {}}),
    ("a profile of a newer version", {"version": 99}),
)  # fmt: skip


def seen() -> dict[str, str]:
    """The node's fingerprint without the profile that was put there."""
    found = json.loads(run(*FINGERPRINT))
    return {path: state for path, state in found.items() if not path.startswith(DECLARED)}


def each_is_refused_by_its_path() -> None:
    """Eight profiles, of which each is refused in words that name the key, and none leaves a trace."""
    before = seen()
    for says, sections in CASES:
        with open(f"{DECLARED}.new", "w", encoding="utf-8") as file:
            json.dump({"name": "trouble", **sections}, file)
        os.rename(f"{DECLARED}.new", DECLARED)
        done = subprocess.run(
            ["corral", "reconcile"], capture_output=True, text=True, check=False, timeout=120 * PATIENCE
        )
        expect(f"{says}: refused", (done.returncode, says in done.stderr), (1, True))
    expect("the node", {*before.items()} ^ {*seen().items()}, set())


def main() -> int:
    declared = read(DECLARED)
    many = "import threading, time; [threading.Thread(target=time.sleep, args=(900,)).start() for one in range(300)]"
    run("systemd-run", "--quiet", "--unit=many", "python3", "-c", many)
    with without_timer():
        passed = run_step(each_is_refused_by_its_path)
        with open(DECLARED, "w", encoding="utf-8") as file:
            file.write(declared + "\n")
        run("systemctl", "stop", "many")
        in_sync()
    return 0 if passed else 1


if __name__ == "__main__":
    sys.exit(main())
