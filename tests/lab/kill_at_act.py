# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Kills the program of Corral in this process with SIGKILL right before one of its acts.

An act is a file opened for writing, a rename, a removal, a command, a call to systemd. Python's audit hooks (PEP 578) see
those whatever the core says; of a call to systemd the core tells them itself. Right before an act is right after the one before it.
"""

from __future__ import annotations

import os
import signal
import sys
import typing as t

ACTS = {"os.mkdir", "os.remove", "os.rename", "os.rmdir", "os.symlink", "os.chmod", "subprocess.Popen",
        "corral.systemd"}  # fmt: skip
WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND


def watch(last: int) -> t.Callable[[], int]:
    """From now on this process is killed before its act number ``last``; 0 lets it live. Tells how many acts there were."""
    count = 0

    def each(dummy: str) -> None:
        nonlocal count
        count += 1
        if count == last:
            os.kill(os.getpid(), signal.SIGKILL)

    before_each(each)
    return lambda: count


def before_each(look: t.Callable[[str], None]) -> None:
    """Call this right before each act from now on, with the act in words: ``os.rename /new/path``, ``command systemctl stop box``."""

    def hook(event: str, words: tuple[t.Any, ...]) -> None:
        opened = event == "open" and not isinstance(words[0], int) and words[2] & WRITING
        if opened or event in ACTS:
            look(act(event, words))

    sys.addaudithook(hook)


def act(event: str, words: tuple[t.Any, ...]) -> str:
    """An act in words."""
    if event in ("corral.systemd", "subprocess.Popen"):
        argv = words if event == "corral.systemd" else words[1]
        return " ".join(("command", *map(str, argv)))
    return f"{event} {words[1 if event in ('os.rename', 'os.symlink') else 0]}"


def import_program() -> None:
    """Let this process import the installed program as _core."""
    sys.path.insert(0, os.path.dirname(os.path.realpath("/usr/libexec/corral/corral")))
    sys.dont_write_bytecode = True
