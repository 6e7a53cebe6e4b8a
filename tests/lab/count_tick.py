# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Runs on a node whose agent is in sync: ticks as the timer would start them, with what they wrote and started counted.

Two ticks: a look in full, which keeps what it was told (nothing is kept when it begins), and the one after it, which
finds all of that unchanged. Counted twice: by the core's own counters, and by Python's audit hooks (PEP 578), which see
every file opened for writing, every change of a folder, every new process and every C library that this interpreter
loads, whatever the core says.
Exits 1 when a tick did anything but take its lock, write its status, keep what it was told in the first one, and write
its metrics where a minute has begun.

The program and the root of the machine are arguments: by default, the agent and the node. On a node the timer rests
meanwhile: a tick that finds another one at work leaves it the node, and writes nothing.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
import typing as t

PROGRAM = os.path.dirname(os.path.realpath("/usr/libexec/corral/corral"))  # the release that runs
TIMER, SERVICE = "corral-reconcile.timer", "corral-reconcile.service"
RUN, STATUS, KEPT = "/run/corral", "status.json", "inputs"
METRICS = "/var/lib/prometheus/node-exporter"
FULL_LOOK_SECONDS, LONGEST_PAIR = 600, 60
CHANGES = {"os.chmod", "os.chown", "os.link", "os.mkdir", "os.remove", "os.rename", "os.rmdir", "os.setxattr",
           "os.symlink", "os.truncate", "os.utime"}  # fmt: skip
PROCESSES = {"os.exec", "os.fork", "os.forkpty", "os.posix_spawn", "os.spawn", "os.system", "subprocess.Popen"}
LIBRARIES = {"ctypes.dlopen"}  # how the core reaches systemd without a process
WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND

seen: list[tuple[str, str]] = []
watching = False


def hook(event: str, words: tuple[t.Any, ...]) -> None:
    """Keep what changes something; a file opened through a descriptor was kept when that was opened."""
    if not watching or event not in {"open", *CHANGES, *PROCESSES, *LIBRARIES}:
        return
    if isinstance(words[0], int) or (event == "open" and not words[2] & WRITING):
        return
    seen.append((event, " ".join(str(word) for word in words)))


def counted(root: str, files: list[str]) -> bool:
    """One tick: whether it found the node in sync, wrote these files of /run/corral alone, and started nothing."""
    global watching  # noqa: PLW0603 - a script of one pass
    from _core.host.files import Host
    from _core.main import tick

    host = Host(root)
    seen.clear()
    watching = True
    code = tick(host)
    watching = False
    print(f"exit {code}, by its own count: writes {host.writes}, processes {host.commands}; as seen: {seen}")
    allowed = (
        *(f"{host.at(RUN)}/{name}" for name in ("lock ", ".", *files)),
        *(f"{host.at(METRICS)}/{name}" for name in (".corral.prom", "corral.prom")),
    )
    elsewhere = [words for event, words in seen if not words.startswith(allowed)]
    kept = [path for path in host.writes if path != f"{METRICS}/corral.prom"]
    said = (code, kept, host.commands, elsewhere)
    right = said == (0, [f"{RUN}/{name}" for name in files], [], []) and bool(seen)
    return right and len(host.writes) <= len(kept) + 1


def main(program: str = PROGRAM, root: str = "/") -> int:
    if root != "/":
        return count(program, root)
    # A tick that the timer did not start looks for the timer, and starts it again: none may be at work once it is stopped.
    # A service of one run has ended when its start returns.
    subprocess.run(["systemctl", "start", SERVICE], check=True)
    subprocess.run(["systemctl", "stop", TIMER], check=True)
    try:
        while starting():
            time.sleep(0.2)
        return count(program, root)
    finally:
        subprocess.run(["systemctl", "start", TIMER], check=True)


def starting() -> bool:
    """Whether a tick is at work: a service of one run is "activating" for as long as it runs."""
    shown = ["systemctl", "show", "--property=ActiveState", "--value", SERVICE]
    return subprocess.run(shown, capture_output=True, text=True, check=True).stdout.strip() == "activating"


def count(program: str, root: str) -> int:
    """Two ticks of this program on this machine, counted: 0, or 1 when one of them did too much."""
    sys.path.insert(0, program)
    sys.dont_write_bytecode = True
    os.environ["TRIGGER_UNIT"] = TIMER
    sys.addaudithook(hook)
    try:
        os.unlink(f"{root}{RUN}/{KEPT}")
    except FileNotFoundError:
        pass
    # Each ten minutes of the clock begin with a look in full, which is neither of ours.
    while time.time() % FULL_LOOK_SECONDS > FULL_LOOK_SECONDS - LONGEST_PAIR:
        time.sleep(1)
    time.sleep(1.1)  # Two ticks of one second would not be told apart: the first of them is not kept.
    results = [counted(root, [STATUS, KEPT]), counted(root, [STATUS])]
    return 0 if all(results) else 1


if __name__ == "__main__":
    raise SystemExit(main(*sys.argv[1:]))
