# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the program reads of a node, seen at its system calls; and a lasting error of the kernel for one of the paths."""

from __future__ import annotations

import errno
import os
import sys
import typing as t

import pytest
from _core.host.recorded_inputs import CGROUPS

CALLS = ("open", "stat", "lstat", "listdir", "scandir", "readlink", "statvfs")
# Parts of writing: a folder that is made to last, and what a write replaces.
WRITING = {
    "sync",
    "sync_folder",
    "make_folders",
    "write_file",
    "move_folder_away",
    "write_link",
    "remove",
    "remove_dir",
}


class Reads:
    """While it is installed: ``seen`` are the paths in the order in which they were read first; ``path`` fails with ``number``.

    What the fake node itself does to its folder is not the program's, and neither seen nor failed.
    """

    def __init__(self, root: str, patch: pytest.MonkeyPatch) -> None:
        self.root = root
        self.seen: dict[str, None] = {}
        self.path, self.number = "", 0
        self.hits = 0
        for name in CALLS:
            patch.setattr(os, name, self.watched(getattr(os, name)))

    def fail(self, path: str, number: int) -> None:
        self.path, self.number, self.hits = path, number, 0

    def watched(self, call: t.Callable[..., t.Any]) -> t.Callable[..., t.Any]:
        def ask(*words: t.Any, **more: t.Any) -> t.Any:
            caller = sys._getframe(1)
            path = words[0] if words else None
            if isinstance(path, str) and caller.f_globals["__name__"].startswith("_core."):
                self.note(path, words, more, caller.f_code.co_name)
            return call(*words, **more)

        return ask

    def note(self, path: str, words: tuple[t.Any, ...], more: dict[str, t.Any], caller: str) -> None:
        flags = words[1] if len(words) > 1 and isinstance(words[1], int) else 0
        if more.get("dir_fd") is not None:
            path = f"{self.root}{CGROUPS}{path}"
        if not path.startswith(f"{self.root}/") or flags & os.O_ACCMODE != os.O_RDONLY or caller in WRITING:
            return
        path = path[len(self.root) :].rstrip("/") or "/"
        self.seen.setdefault(path)
        if path == self.path:
            self.hits += 1
            raise OSError(self.number, os.strerror(self.number), path)


ERRORS = (errno.EIO, errno.EACCES, errno.ENOMEM, errno.EMFILE)
