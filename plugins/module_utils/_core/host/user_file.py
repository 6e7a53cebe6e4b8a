# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# This module is private to the collection corral.node.
"""A file that a user names: a regular file, or a file that the caller's shell has opened; read up to a limit."""

from __future__ import annotations

import errno
import os
import re
import stat
import typing as t

from .files import READ_FLAGS

GIVEN = re.compile(r"/dev/(stdin|fd/[0-9]+)")  # opened by the caller's shell: < FILE, a pipe, <(COMMAND)


def regular_file(path: str) -> t.BinaryIO:
    """Open a regular file that the user names. A device or FIFO is refused, since to open it may block or have an effect."""
    file = os.open(path, READ_FLAGS | os.O_NOCTTY)
    if not stat.S_ISREG(os.fstat(file).st_mode):
        os.close(file)
        raise OSError(errno.EINVAL, "not a regular file", path)
    return os.fdopen(file, "rb")


def read(path: str, most: int) -> bytes:
    """The first ``most`` + 1 bytes of a file: the last byte shows that the file is too large. Raises OSError."""
    given = GIVEN.fullmatch(path)
    with os.fdopen(os.open(path, os.O_RDONLY | os.O_CLOEXEC), "rb") if given else regular_file(path) as file:
        return file.read(most + 1)
