# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What nodes of a release compiled (node_compiled.py), kept here and lent to the next ones on a disk."""

from __future__ import annotations

import contextlib
import os
import pathlib
import shlex
import shutil
import tempfile
import time
import typing as t

import lab_base
import lab_packages

ON_NODE = "/var/cache/lab-compiled"  # what this node compiled; below it, read-only, what was kept of others
NAME_LENGTH = 32  # of a digest; what is still being written has a longer name
KEPT_SECONDS = 2 * 86400  # Then it is compiled and kept again: what is not used any more goes.
# A saved state has a disk of this very size (bytes). What is not used of it takes no room on the host.
DISK_SIZE = 512 << 20
# The state may know the first blocks of another disk.
MOUNT = f"blockdev --flushbufs /dev/vdb && mount -o ro,noatime /dev/vdb {ON_NODE}/kept"


def folder(release: str) -> pathlib.Path:
    """Where the compiled files of a release are."""
    found = lab_base.cache() / "compiled" / release
    found.mkdir(parents=True, exist_ok=True)
    return found


def make_disk(release: str, disk: pathlib.Path) -> None:
    """Make the disk with what earlier nodes compiled: through SSH an emulated node would take ten seconds for it."""
    kept = folder(release)
    limit = time.time() - KEPT_SECONDS
    for path in kept.iterdir():
        with contextlib.suppress(FileNotFoundError):  # another lab removes the same
            if path.stat().st_mtime < limit:
                path.unlink()
    with disk.open("wb") as file:
        file.truncate(DISK_SIZE)
    # Files of a few KiB each.
    search = f"{os.environ.get('PATH', '')}:{lab_packages.SBIN}"
    words = ["mkfs.ext4", "-q", "-O", "^has_journal", "-N", "32768", "-b", "1024", "-d", str(kept), str(disk)]
    lab_base.run("env", f"PATH={search}", *words)


def collect(release: str, ssh: t.Sequence[str]) -> None:
    """Keep what a node compiled. Other labs may do the same."""
    kept = folder(release)
    new = f"cd {ON_NODE} && find . -maxdepth 1 -type f -print0 | tar --create --null --files-from -"
    work = pathlib.Path(tempfile.mkdtemp(dir=kept.parent))
    try:
        pipe(f"{shlex.join([*ssh, new])} | tar --extract --directory {shlex.quote(str(work))}")
        for path in work.iterdir():
            if len(path.name) == NAME_LENGTH:
                os.utime(path)
                path.replace(kept / path.name)
    finally:
        shutil.rmtree(work, ignore_errors=True)


def prune() -> None:
    """Remove all of it."""
    shutil.rmtree(lab_base.cache() / "compiled", ignore_errors=True)


def pipe(command: str) -> None:
    """Run a pipe of which each part must end well."""
    lab_base.run("bash", "-c", f"set -o pipefail; {command}", timeout=60)
