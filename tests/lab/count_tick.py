# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Runs on a node whose agent is in sync: one tick as the timer would start it, with what it wrote and started counted.

Counted twice: by the core's own counters, and by Python's audit hooks (PEP 578), which see every file opened for
writing, every change of a folder and every new process of this interpreter whatever the core says. Exits 1 when the
tick did anything but take its lock and write its status.
"""

from __future__ import annotations

import os
import sys
import typing as t

RUN = "/run/corral"
CHANGES = {"os.chmod", "os.chown", "os.link", "os.mkdir", "os.remove", "os.rename", "os.rmdir", "os.setxattr",
           "os.symlink", "os.truncate", "os.utime"}  # fmt: skip
PROCESSES = {"os.exec", "os.fork", "os.forkpty", "os.posix_spawn", "os.spawn", "os.system", "subprocess.Popen"}
WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND

seen: list[tuple[str, str]] = []
watching = False


def hook(event: str, words: tuple[t.Any, ...]) -> None:
    """Keep what changes something; a file opened through a descriptor was kept when that was opened."""
    if not watching or event not in {"open", *CHANGES, *PROCESSES}:
        return
    if isinstance(words[0], int) or (event == "open" and not words[2] & WRITING):
        return
    seen.append((event, " ".join(str(word) for word in words)))


def main() -> int:
    global watching  # noqa: PLW0603 - a script of one pass
    sys.path.insert(0, "/usr/libexec/corral")
    sys.dont_write_bytecode = True
    os.environ["TRIGGER_UNIT"] = "corral-reconcile.timer"
    sys.addaudithook(hook)

    from _core import agent
    from _core.host.files import Host

    host = Host()
    watching = True
    code = agent.tick(host)
    watching = False
    print(f"exit {code}, by its own count: writes {host.writes}, processes {host.commands}; as seen: {seen}")
    elsewhere = [words for event, words in seen if not words.startswith((f"{RUN}/lock ", f"{RUN}/.", f"{RUN}/status"))]
    said = (code, host.writes, host.commands, elsewhere)
    return 0 if said == (0, [f"{RUN}/status.json"], [], []) and seen else 1


if __name__ == "__main__":
    raise SystemExit(main())
