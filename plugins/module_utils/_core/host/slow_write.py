# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# This module is private to the collection corral.node.
"""A write to a kernel file that may never return, such as unbinding a device from its driver: no signal ends it."""

from __future__ import annotations

import errno
import os
import time

MOST_FILES = 65536
PAUSE_SECONDS = 0.01  # between two checks whether the child has ended


def write_within(path: str, text: str, seconds: float) -> None:
    """Write a kernel file with one write(2) in a child process. Raises OSError for the kernel's refusal, TimeoutError after ``seconds``.

    The child keeps no file of this process open: no lock, and no pipe whose reader waits for the end of the pipe.
    """
    child = os.fork()
    if child == 0:
        code = errno.EIO
        try:
            os.setsid()
            os.closerange(0, MOST_FILES)
            code = write_once(path, text)
        finally:
            os._exit(code)
    deadline = time.monotonic() + seconds
    ended, status = os.waitpid(child, os.WNOHANG)
    while not ended:
        if time.monotonic() > deadline:
            raise TimeoutError(errno.ETIMEDOUT, f"the kernel still waits after {seconds:g} s", path)
        time.sleep(PAUSE_SECONDS)
        ended, status = os.waitpid(child, os.WNOHANG)
    code = os.WEXITSTATUS(status) if os.WIFEXITED(status) else errno.EIO
    if code:
        raise OSError(code, os.strerror(code), path)


def write_once(path: str, text: str) -> int:
    """Write the file; returns the errno, 0 for success."""
    try:
        os.write(os.open(path, os.O_WRONLY | os.O_CLOEXEC | os.O_NOFOLLOW), text.encode())
    except OSError as error:
        return error.errno or errno.EIO
    return 0
