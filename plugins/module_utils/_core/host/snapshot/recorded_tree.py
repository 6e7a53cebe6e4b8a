# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# This module is private to the collection corral.node.
"""Another machine, read from a snapshot or folder of unknown origin. Nothing is written, and no link leads out of the tree.

This module resolves links inside the tree: ``/`` in a link is the tree's root, and ``..`` ends there. The kernel never gets a path of the
tree.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
import typing as t

from ...model.values.errors import refusal
from ..files import Host, device_number
from ..link_walk import LINK_LIMIT
from .archive_tree import ArchiveTree
from .folder_tree import FolderTree

STEPS = 1000  # the most parts of a path and its links; a real machine's paths have dozens
KNOWN = 4096  # the most folders whose real paths are kept

Tree = t.Union[ArchiveTree, FolderTree]


@contextlib.contextmanager
def opened(path: str) -> t.Iterator[Host]:
    """The machine at ``path``: this machine (/), a folder, or a snapshot. Raises CorralError."""
    if Host(path).live:
        yield Host()
        return
    tree: Tree = FolderTree(path) if os.path.isdir(path) else ArchiveTree(path)
    try:
        host = RecordedHost(path, tree)
        if isinstance(tree, FolderTree) and not (host.found("/sys") or host.found("/proc")):
            raise refusal(
                "holds neither sys nor proc: give the folder of a machine, which holds proc, sys and etc", path=path
            )
        yield host
    finally:
        tree.close()


class RecordedHost(Host):
    """A host with the files of a tree; every write is refused (EROFS)."""

    def __init__(self, root: str, tree: Tree) -> None:
        super().__init__(root)
        self.tree = tree
        self.known: dict[str, str] = {"": ""}  # the real path of each folder, by its path without a last slash

    @property
    def live(self) -> bool:
        """False, even if the tree is named by a link to /: the machine of a tree is not this machine."""
        return False

    def at(self, path: str) -> str:
        """Raise EROFS: every write asks for a path of this machine, and no such path leads to a file of the tree."""
        raise OSError(errno.EROFS, os.strerror(errno.EROFS), path)

    def look(self, path: str, follow: bool = True) -> tuple[str, t.Any]:
        """The real path in the tree, and the result of os.lstat() for this path. Raises OSError and ValueError."""
        folder, dummy, name = path.rpartition("/")
        if folder not in self.known:
            real, there = self.walk("", folder, True)
            if not stat.S_ISDIR(there.st_mode):
                raise error_of(errno.ENOTDIR, path)
            if len(self.known) >= KNOWN:
                self.known = {"": ""}
            self.known[folder] = real
        return self.walk(self.known[folder], name, follow)

    def walk(self, real: str, path: str, follow: bool) -> tuple[str, t.Any]:
        """The result of look() for a path that starts at the real folder ``real``."""
        rest = path.split("/")[::-1]
        there: t.Any = None
        links = 0
        for dummy in range(STEPS):
            if not rest:
                return real, self.tree.look(real) if there is None else there
            name = rest.pop()
            if name in ("", "."):
                continue
            if there is not None and not stat.S_ISDIR(there.st_mode):
                raise error_of(errno.ENOTDIR, path)
            if name == "..":
                real, there = real.rpartition("/")[0], None
                continue
            here = f"{real}/{name}"
            there = self.tree.look(here)
            if not stat.S_ISLNK(there.st_mode) or not (follow or rest):
                real = here
                continue
            links += 1
            if links > LINK_LIMIT:
                break
            text, there = self.tree.text(here), None
            if text.startswith("/"):
                real = ""
            rest += text.split("/")[::-1]
        raise error_of(errno.ELOOP, path)

    def found(self, path: str, follow: bool = True) -> t.Any:
        try:
            return self.look(path, follow)[1]
        except (OSError, ValueError) as error:
            return self.absent(path, error)

    # Reading, as in Host

    def _read(self, path: str, follow: bool) -> bytes:
        real, there = self.look(path, follow)
        if not stat.S_ISREG(there.st_mode):
            raise error_of(errno.EISDIR, path)  # A device or FIFO counts as no file, and is not opened.
        return self.tree.data(real)

    def _names(self, path: str) -> list[str]:
        return self._listed(path)[1]

    def _folders(self, path: str) -> list[str]:
        real, names = self._listed(path)
        return [name for name in names if stat.S_ISDIR(self.tree.look(f"{real}/{name}").st_mode)]

    def _listed(self, path: str) -> tuple[str, list[str]]:
        real, there = self.look(path)
        if not stat.S_ISDIR(there.st_mode):
            raise error_of(errno.ENOTDIR, path)
        return real, list(self.tree.names(real))

    def _link(self, path: str) -> str:
        real, there = self.look(path, follow=False)
        if not stat.S_ISLNK(there.st_mode):
            raise error_of(errno.EINVAL, path)
        return self.tree.text(real)

    def is_claimed(self, path: str) -> bool:
        """True for every device file. No device file is opened, since the kernel would open a device of this machine."""
        there = self.found(path)
        return self.tell(there is not None and device_number(there) is not None, "is_claimed", path)

    def first_line(self, path: str) -> str:
        """Always an empty string: no program of a tree is run."""
        return self.tell("", "first_line", path)

    def links(self, path: str) -> t.Optional[int]:
        return None if self.found(path) is None else 1

    def writable(self, path: str) -> bool:
        """Whether something is at the path, which the recorded machine's root may write; an immutable flag is not recorded."""
        return self.tell(self.found(path) is not None, "writable", path)

    def read_only(self, path: str) -> bool:
        return self.tell(False, "read_only", path)

    def space(self, path: str) -> None:
        """None: the size of a disk is not recorded."""


def error_of(number: int, path: str) -> OSError:
    """An OSError with the kernel's text."""
    return OSError(number, os.strerror(number), path)
