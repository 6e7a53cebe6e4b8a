# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Runs on a node with the agent: kills upgrades of it at several points, and sees that the timer's ticks go on.

The other release is the one that runs with a comment more in one of its files. Which one runs in the end is not looked at
here (test_agent_program.py does, after each act). Renames are seen by
Python's audit hooks (PEP 578), whatever the core says: each file is replaced by one, and so is the link.
"""

from __future__ import annotations

import glob
import os
import signal
import subprocess
import sys

from on_node import PATIENCE, SERVICE, STATUS, expect, run, status, wait

LAUNCHER = "/usr/libexec/corral/corral"
FOLDER = os.path.dirname(os.path.realpath(LAUNCHER))
CHANGED = "_core/constants.py"
BEFORE, AFTER = "before the link", "after the link"


def upgrade(point: str) -> None:
    """An upgrade that is killed right before its rename of that number, before that of the link or after it; "" for none."""
    sys.path.insert(0, FOLDER)
    sys.dont_write_bytecode = True
    from _core.host.files import Host
    from _core.managers.agent import agent_install
    from _core.pipeline import applying, locked_run, planning

    files = {}
    for path in glob.glob(f"{FOLDER}/_core/**/*.py", recursive=True):
        with open(path, encoding="utf-8") as file:
            files[path[len(FOLDER) + 1 :]] = file.read()
    files[CHANGED] += "# another release\n"
    host, count, last = Host(), 0, ""
    options = agent_install.installed(host)
    assert options is not None

    def hook(event: str, words: tuple[object, ...]) -> None:
        nonlocal count, last
        if point == AFTER and last == LAUNCHER and event != "os.kill":
            os.kill(os.getpid(), signal.SIGKILL)
        if event == "os.rename":
            count, last = count + 1, str(words[1])
            if point in (str(count), BEFORE if last == LAUNCHER else None):
                os.kill(os.getpid(), signal.SIGKILL)

    def plan() -> planning.Plan:
        return planning.plan_agent(host, options, files, tag=sys.implementation.cache_tag)

    sys.addaudithook(hook)
    outcome = locked_run.locked(host, lambda: applying.apply(host, plan(), plan))
    expect("the upgrade", (outcome.error, outcome.remaining), ("", ()))


def tried(point: str) -> subprocess.CompletedProcess[str]:
    words = [sys.executable, "-E", "-s", os.path.abspath(__file__), "--upgrade", point]
    return subprocess.run(words, capture_output=True, text=True, check=False, timeout=300 * PATIENCE)


def ticks_go_on(what: str) -> None:
    """A tick that the timer starts after now ends well, and finds the node in sync."""
    run("systemctl", "start", SERVICE, code=None)  # One that had begun before ends here.
    before = os.stat(STATUS).st_mtime_ns
    wait(f"a tick after {what}", lambda: os.stat(STATUS).st_mtime_ns != before)
    expect(f"in sync after {what}", status()["in_sync"], True)
    expect(f"ticks after {what}", run("systemctl", "show", "--value", "--property=Result", SERVICE).strip(), "success")


def main() -> int:
    files = len(glob.glob(f"{FOLDER}/_core/**/*.py", recursive=True))
    # An upgrade takes an emulated node half a minute. All points are in test_agent_program.py.
    more = ("1", "3", str(files // 2), BEFORE) if os.environ.get("CORRAL_LONG") else ()
    for point in (*more, AFTER):
        expect(f"an upgrade to be killed: {point}", tried(point).returncode, -signal.SIGKILL)
        runs = os.path.dirname(os.path.realpath(LAUNCHER))
        expect(f"the old program runs, killed: {point}", runs == FOLDER, point != AFTER)
        ticks_go_on(f"an upgrade that was killed: {point}")
        print(f"killed ({point}, {files} files): {runs} runs, and the timer's ticks go on", flush=True)
    done = tried("")
    expect("the upgrade after them", (done.returncode, done.stderr), (0, ""))
    ticks_go_on("the upgrade")
    return 0


if __name__ == "__main__":
    if sys.argv[1:]:
        upgrade(sys.argv[2])
    else:
        sys.exit(main())
