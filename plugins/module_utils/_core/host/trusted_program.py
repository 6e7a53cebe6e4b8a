# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# This module is private to the collection corral.node.
"""Whether only root can change a program that root runs: the same check as in cron(8), sshd(8) and sudo(8)."""

from __future__ import annotations

import shlex
import stat
import typing as t

from ..model.values.printable_text import printable
from . import link_walk

if t.TYPE_CHECKING:
    from .files import Host

# With a POSIX ACL the group's bits are the ACL's mask, the most that any entry grants.
OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH
INTERPRETERS = 5  # the longest chain of interpreters of a script that the kernel runs (execve(2))


def why_not(host: Host, argv: t.Sequence[str]) -> tuple[str, str]:
    """The first word of ``argv`` whose file other users than root can change, and the reason with a remedy; two empty strings if there is
    no such word.

    A program may run files that its arguments name. So each word with a slash is checked, the part after = in a word, and the interpreters
    of a script. Relative paths start at the root, which is the unit's working directory. In a recorded tree no word is checked. The reads
    are not recorded as inputs of the tick, so a change to the files starts no full tick.
    """
    return host.unrecorded(lambda: first_found(host, argv)) if host.answers else ("", "")


def first_found(host: Host, argv: t.Sequence[str]) -> tuple[str, str]:
    """The first bad word of ``argv`` and the reason, as why_not() returns them. The caller turns the recording of the reads off."""
    if not argv[0].startswith("/"):
        return argv[0], "is not an absolute path: write the program's path, such as /usr/bin/curl"
    program, words = argv[0], list(argv)
    # A program is opened for its first line only after its path was checked: to open a device may have an effect.
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
    """Whether a word is checked as a path. A word without a slash names a file directly in the root folder, which belongs to root."""
    return "/" in word


def changed_by_others(host: Host, path: str) -> str:
    """Why other users than root could change a path's target, the folders above it or a link on the way; empty if only root can.

    The result is also empty for an absent path, which only root can make, and for a device file, which is no program.
    """
    try:
        for at, link in link_walk.steps(host, path):
            permissions = host.permissions(at or "/")
            if permissions is None:
                return ""
            mode, owner = permissions
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
