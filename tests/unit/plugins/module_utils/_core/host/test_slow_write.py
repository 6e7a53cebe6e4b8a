# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A write in a process of its own: what it writes, what is refused, and what never ends."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

import pytest
from _core.host.files import Host
from _core.host.slow_write import write_within


def test_it_is_written_and_what_is_refused_is_an_error(tmp_path: Path) -> None:
    file = tmp_path / "unbind"
    file.write_text("")
    Host().write_value_within(str(file), "0000:5e:00.0", 5)
    assert file.read_text() == "0000:5e:00.0"
    with pytest.raises(FileNotFoundError):
        write_within(str(tmp_path / "missing"), "", 5)
    (tmp_path / "link").symlink_to(file)
    with pytest.raises(OSError, match="symbolic links"):
        write_within(str(tmp_path / "link"), "", 5)


def test_one_that_never_ends_holds_no_lock_and_no_pipe(tmp_path: Path) -> None:
    waits, lock = tmp_path / "unbind", tmp_path / "lock"
    os.mkfifo(waits)  # to be opened, it waits for a reader
    out, end = os.pipe()
    with lock.open("w") as first, lock.open("w") as second:
        fcntl.flock(first, fcntl.LOCK_EX)
        with pytest.raises(TimeoutError, match=r"still waits after 0\.2 s"):
            write_within(str(waits), "0000:5e:00.0", 0.2)
        fcntl.flock(first, fcntl.LOCK_UN)
        fcntl.flock(second, fcntl.LOCK_EX | fcntl.LOCK_NB)
    os.close(end)
    assert os.read(out, 1) == b"", "the process that still waits has the other end"
    os.close(out)
    reader = os.open(waits, os.O_RDONLY)  # so that it ends
    assert os.read(reader, 100) == b"0000:5e:00.0"
    os.close(reader)
    assert os.wait()[1] == 0
