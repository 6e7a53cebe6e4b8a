# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# This module is private to the collection corral.node.
"""The files below a folder that another user may have filled: links are not followed, devices not opened."""

from __future__ import annotations

import errno
import os
import stat

from ..files import READ_FLAGS, READ_LIMIT

DEPTH = 64  # the most folders inside each other; /sys has a dozen
MOST_OPEN = 128  # the most folders that stay open: a read of a file in such a folder costs no walk
AS_IT_IS = os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC  # opens a link itself, and opens no device


class FolderTree:
    """Files by real paths below the folder: "" is the folder itself, and no part of a path is a link, ".." or "."."""

    def __init__(self, root: str) -> None:
        self.open = {"": os.open(root, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)}

    def close(self) -> None:
        """Close the folders."""
        while self.open:
            os.close(self.open.popitem()[1])

    def look(self, path: str) -> os.stat_result:
        """The result of lstat(2) for a path."""
        if path in self.open:
            return os.fstat(self.open[path])
        folder, dummy, name = path.rpartition("/")
        return os.stat(name, dir_fd=self.folder(folder), follow_symlinks=False)

    def text(self, path: str) -> str:
        """The text of a link."""
        folder, dummy, name = path.rpartition("/")
        return os.readlink(name, dir_fd=self.folder(folder))

    def names(self, path: str) -> list[str]:
        """The names in a folder."""
        file = os.open(".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=self.folder(path))
        try:
            return os.listdir(file)
        finally:
            os.close(file)

    def data(self, path: str) -> bytes:
        """The bytes of a regular file of at most READ_LIMIT bytes."""
        folder, dummy, name = path.rpartition("/")
        # The file is first opened with O_PATH: so the checked file is read, even if another file has the name by then.
        place = os.open(name, AS_IT_IS, dir_fd=self.folder(folder))
        try:
            if not stat.S_ISREG(os.fstat(place).st_mode):
                raise OSError(errno.EPERM, os.strerror(errno.EPERM), path)
            file = os.open(f"/proc/self/fd/{place}", READ_FLAGS)
        finally:
            os.close(place)
        try:
            data = b""
            while len(data) <= READ_LIMIT:
                more = os.read(file, 1 << 20 if data else 65536)
                if not more:
                    return data
                data += more
            raise OSError(errno.EFBIG, os.strerror(errno.EFBIG), path)
        finally:
            os.close(file)

    def folder(self, path: str) -> int:
        """The descriptor of a folder, opened if need be."""
        if path in self.open:
            return self.open[path]
        names = path.split("/")[1:]
        if len(names) > DEPTH:
            raise OSError(errno.ENAMETOOLONG, os.strerror(errno.ENAMETOOLONG), path)
        if len(self.open) > MOST_OPEN:
            root = self.open.pop("")
            self.close()
            self.open[""] = root
        here = ""
        for name in names:
            inner = f"{here}/{name}"
            if inner not in self.open:
                self.open[inner] = os.open(name, AS_IT_IS | os.O_DIRECTORY, dir_fd=self.open[here])
            here = inner
        return self.open[here]
