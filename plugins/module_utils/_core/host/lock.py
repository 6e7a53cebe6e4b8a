# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# This module is private to the collection corral.node.
"""The lock of a node, and the lock's folder. A process holds the lock while it changes the node or writes the status."""

from __future__ import annotations

import errno
import fcntl
import os
import stat
import time

from .files import TRIES

TYPE_CHECKING = False
if TYPE_CHECKING:
    from .files import Host

RUN = "/run/corral"
LOCK = f"{RUN}/lock"
HELD: list[Lock] = []  # the locks that this process holds


class Lock:
    """A flock(2) on the file ``path``, by default the node's lock. The kernel releases the lock when the process dies."""

    def __init__(self, host: Host, path: str = LOCK) -> None:
        self.host = host
        self.path = path
        self.file = -1

    def take(self, wait: float = 0.0) -> bool:
        """Take the lock, waiting at most ``wait`` seconds. Returns False if another process still holds the lock."""
        deadline = time.monotonic() + wait
        while True:
            self.file = self.open_file()
            try:
                fcntl.flock(self.file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                # A removal may have deleted the file meanwhile: a lock on a deleted file excludes no other process.
                if os.fstat(self.file).st_nlink:
                    HELD.append(self)
                    return True
            except OSError as error:
                if error.errno not in (errno.EAGAIN, errno.EACCES):
                    raise
            self.release()
            if time.monotonic() >= deadline:
                return False
            time.sleep(0.1)

    def open_file(self) -> int:
        """Open the lock's file, or make it in Corral's folder. Returns the descriptor."""
        for dummy in range(TRIES):
            own_folder(self.host, RUN, 0o755)
            try:
                return os.open(self.host.at(self.path), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
            except FileNotFoundError:  # A removal deleted the folder meanwhile.
                pass
        raise OSError(errno.EBUSY, "other processes make and remove its folder again and again", self.path)

    def is_lost(self) -> bool:
        """Whether the lock's file was deleted or replaced after take(): another run may then hold a lock on the new file."""
        try:
            there = os.lstat(self.host.at(self.path))
        except OSError as error:
            self.host.absent(self.path, error)
            return True
        return not os.path.samestat(there, os.fstat(self.file))

    def release(self) -> None:
        """Release the lock."""
        if self in HELD:
            HELD.remove(self)
        if self.file >= 0:
            os.close(self.file)
            self.file = -1


def refuse_lost(host: Host) -> None:
    """Raise CorralError if a lock of this run no longer excludes other runs. The caller is about to run a step or write the status."""
    lost = next((lock.path for lock in HELD if lock.host is host and lock.is_lost()), "")
    if lost:
        from ..model.values.errors import refusal

        raise refusal(
            "was deleted while this run held it, and another run may have changed the node: run again", path=lost
        )


def own_folder(host: Host, path: str, mode: int) -> None:
    """Make a folder of Corral's own, or check a present folder, and reduce its permissions to ``mode``.

    The folder must be no link and must belong to this user. The check follows the attempt to make the folder, since another process may
    make the folder at the same time. Raises CorralError for a link, a file or another user's folder.
    """
    try:
        host.make_dir(path, mode)
    except FileExistsError:
        pass  # folder_problem() checks what is there.
    problem = folder_problem(host, path)
    if problem:
        from ..model.values.errors import refusal

        raise refusal(problem, path=path)
    try:
        if stat.S_IMODE(os.lstat(host.at(path)).st_mode) & ~mode:
            host.writes.append(path)
            os.chmod(host.at(path), mode)
    except FileNotFoundError:
        pass  # A removal deleted the folder meanwhile: opening a file there will fail.


def folder_problem(host: Host, path: str) -> str:
    """Why a path cannot be Corral's own folder; an empty string if the path is a proper folder or absent."""
    try:
        status = os.lstat(host.at(path))
    except OSError as error:
        if error.errno != errno.EROFS:  # EROFS: a recorded tree has no real path.
            host.absent(path, error)
        return ""
    if stat.S_ISLNK(status.st_mode):
        return "is a link, and Corral keeps its files in a folder of its own: remove it"
    if not stat.S_ISDIR(status.st_mode):
        return "is a file, and Corral keeps its files in a folder of its own: move it away"
    if status.st_uid != os.geteuid():
        if status.st_uid == 0:
            return "belongs to root: run this as root"
        return f"belongs to user {status.st_uid}: remove it, or give it to root"
    return ""
