# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# This module is private to the collection corral.node.
"""Whether only root can change a program that root runs, as cron(8), sshd(8) and sudo(8) ask before they use a file."""

from __future__ import annotations

import shlex
import stat
import typing as t

from ..model.values.printable_text import printable
from . import link_walk

if t.TYPE_CHECKING:
    from .files import Host

# With a POSIX ACL the bits of the group are its mask, the most that an entry gives.
OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH
INTERPRETERS = 5  # of a script, one of the other, as the kernel runs them (execve(2))


def why_not(host: Host, argv: t.Sequence[str]) -> tuple[str, str]:
    """The word of a command that others than root could change, and why with the command that mends it; twice "" without one.

    Each word with a slash in it counts, from the root on, which is the working directory of the command's unit, what follows the = in a
    word, and the interpreters of a script: a program may run what its arguments name. On a tree nothing can be said. What is asked here
    does not decide whether a tick looks again.
    """
    return host.unrecorded(lambda: first_found(host, argv)) if host.answers else ("", "")


def first_found(host: Host, argv: t.Sequence[str]) -> tuple[str, str]:
    """The first word that why_not() looks for."""
    if not argv[0].startswith("/"):
        return argv[0], "is not an absolute path: write the program's path, such as /usr/bin/curl"
    program, words = argv[0], list(argv)
    # A program is opened for its first line once only root can say what its path leads to: open(2) of a device may do something.
    for dummy in range(1 + INTERPRETERS):
        for word in words:
            for path in filter(is_path, (word, word.partition("=")[2])):
                said = changed_by_others(host, path)
                if said:
                    return word, said
        words = host.first_line(program).split()
        if not words:
            break
        program = f"/{words[0]}"
    return "", ""


def is_path(word: str) -> bool:
    """Whether a word can lead to a file in a folder that is not the root itself, which is root's."""
    return "/" in word


def changed_by_others(host: Host, path: str) -> str:
    """Why others than root could change what a path leads to, over the folders above it and each link on the way; "" where only root can.

    Where nothing is, only root can put something. A device file has its own permissions: it is no program.
    """
    try:
        for at, link in link_walk.steps(host, path):
            found = host.permissions(at or "/")
            if found is None:
                return ""
            mode, owner = found
            if link is None and (owner or mode & OTHERS_WRITE) and not (stat.S_ISCHR(mode) or stat.S_ISBLK(mode)):
                return complaint(at or "/", mode, owner)
    except OSError:
        return f"{printable(path)} leads over more than {link_walk.LINK_LIMIT} links: name the program itself"
    return ""


def complaint(path: str, mode: int, owner: int) -> str:
    """What is wrong with a file or folder, and the command that mends it."""
    place = printable(shlex.quote(path))
    said = f"others than root can change {place} (owner {owner}, mode {stat.S_IMODE(mode):04o})"
    if stat.S_ISDIR(mode) and mode & stat.S_ISVTX and mode & stat.S_IWOTH:
        return f"{said}: move the program to a folder of root's, such as /usr/local/sbin"
    commands = [f"chown root: {place}"] if owner else []
    commands += [f"chmod go-w {place}"] if mode & OTHERS_WRITE else []
    return f"{said}: {' && '.join(commands)}"
