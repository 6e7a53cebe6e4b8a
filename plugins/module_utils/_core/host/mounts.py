# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# This module is private to the collection corral.node.
"""The mounts of the machine (proc_pid_mountinfo(5)), and the processes that use a mount."""

from __future__ import annotations

import typing as t

from ..model.values.records import NamedTuple
from . import process
from .files import Host, Unreadable

# PID 1's mounts: the hardened agent has its own mount namespace.
TABLE = "/proc/1/mountinfo"


class Mount(NamedTuple):
    """A mount: its path, file system type, device number ("0:42") and the super block's options."""

    path: str
    fstype: str
    device: str
    options: dict[str, str]


def readable(host: Host) -> bool:
    """Whether the table of mounts can be read: only root can."""
    return host.lines(TABLE, " / / ") is not None


def table(text: t.Optional[str]) -> list[Mount]:
    """The mounts in ``text`` (lines of the table), in the order of their creation."""
    mounts = []
    for line in (text or "").splitlines():
        fields = line.split(" ")
        try:
            dash = fields.index("-", 6)
            options = dict(option.partition("=")[::2] for option in fields[dash + 3].split(","))
            mounts.append(Mount(unescaped(fields[4]), fields[dash + 1], fields[2], options))
        except (ValueError, IndexError):
            continue
    return mounts


def at(host: Host, path: str) -> t.Optional[Mount]:
    """The topmost mount at exactly ``path`` (without blanks and backslashes); None without such a mount. Other lines of the table are not
    recorded: these lines change too often.
    """
    mounts = table(host.lines(TABLE, f" {path} "))
    return next((mount for mount in reversed(mounts) if mount.path == path), None)


def unescaped(text: str) -> str:
    """The path in a field of mountinfo, where space, tab, newline and backslash are octal numbers."""
    for code, char in (("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\")):
        text = text.replace(code, char)
    return text


def holders(host: Host, mount: Mount, limit: int = 5) -> list[str]:
    """At most ``limit`` processes that use the mount, as "name (pid)". An unreadable process counts as a user, and is shown with the error.

    The maps of a large process can be longer than READ_LIMIT, and any user can have such a process.
    """
    shown: list[str] = []
    for pid in filter(str.isdecimal, host.names("/proc")):
        said = ""
        try:
            used = uses(host, pid, f"{mount.path}/")
        except Unreadable as error:
            used, said = True, f", of which that is not known ({error})"
        if used:
            shown.append(f"{process.name(host, pid) or '?'} ({pid}){said}")
            if len(shown) == limit:
                break
    return shown


def uses(host: Host, pid: str, prefix: str) -> bool:
    """Whether a process has a mapped file, its root, its working directory or an open file below the path ``prefix``."""
    if any(line[-1:] and prefix in line for line in (host.read(f"/proc/{pid}/maps") or "").splitlines()):
        return True
    if any(((host.link(f"/proc/{pid}/{name}") or "") + "/").startswith(prefix) for name in ("cwd", "root")):
        return True
    return any((host.link(f"/proc/{pid}/fd/{name}") or "").startswith(prefix) for name in host.names(f"/proc/{pid}/fd"))
