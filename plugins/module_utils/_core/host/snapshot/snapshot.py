# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# This module is private to the collection corral.node.
"""A machine in a file: a tar of the files that were read, from which every decision can be replayed elsewhere (recorded_tree.py)."""

from __future__ import annotations

import errno
import gzip
import io
import os
import secrets
import stat
import tarfile
import typing as t

from .. import link_walk
from ..files import Host
from . import kept_in_snapshot


def write(host: Host, target: str) -> int:
    """Write all that ``host`` (made with ``record=True``) has read to a compressed tar; returns the number of entries.

    Only the owner can read the tar (0600). The complete tar replaces a regular file at ``target``; anything else there, such as a device
    or the link /dev/stdout, is refused. After an error no part of the tar is left. Raises OSError.
    """
    if os.path.lexists(target) and not stat.S_ISREG(os.lstat(target).st_mode):
        raise OSError(errno.EEXIST, "what is there is no regular file: name a new file", target)
    folder, name = os.path.split(target)
    temporary = os.path.join(folder, f".{os.fsdecode(os.fsencode(name)[:200])}.{secrets.token_hex(8)}")
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW
    with os.fdopen(os.open(temporary, flags, 0o600), "wb") as file:
        try:
            with gzip.GzipFile(filename="", fileobj=file, mode="wb", mtime=0) as packed:
                count = fill(host, packed)
            file.flush()
            os.rename(temporary, target)
        except BaseException:
            os.unlink(temporary)
            raise
    return count


def fill(host: Host, file: gzip.GzipFile) -> int:
    """Write the tar to ``file``; returns the number of entries."""
    with tarfile.open(fileobj=file, mode="w") as archive:
        return add(host, archive)


def add(host: Host, archive: tarfile.TarFile) -> int:
    """Add the files that ``host`` has read to the tar; returns the number of entries."""
    seen, host.recorded = sorted(host.seen), None
    links: dict[str, str] = {}
    reals = {resolved(host, path, links) for path in seen}
    count = 0
    for path, text in sorted(links.items()):
        entry = tarfile.TarInfo(path.lstrip("/"))
        entry.type, entry.linkname = tarfile.SYMTYPE, text
        archive.addfile(entry)
        count += 1
    for path in sorted(real for real in reals if real and real not in links):
        entry = tarfile.TarInfo(path.lstrip("/"))
        entry.mode = host.mode(path) or 0
        entry.mtime = int(host.modified(path) or 0)
        if host.is_dir(path):
            entry.type = tarfile.DIRTYPE
            archive.addfile(entry)
        else:
            data = host.read_bytes(path)
            if data is None:
                continue
            data = kept_in_snapshot.kept(path, data)
            entry.size = len(data)
            archive.addfile(entry, io.BytesIO(data))
        count += 1
    return count


def resolved(host: Host, path: str, links: dict[str, str]) -> t.Optional[str]:
    """The real path of a path; None for a circle of links. Adds each link on the way to ``links``, with a target relative to its folder."""
    real = ""
    try:
        for real, text in link_walk.steps(host, path):
            if text is not None:
                folder = os.path.dirname(real)
                links[real] = os.path.relpath(text, folder) if text.startswith("/") else text
    except OSError:
        return None
    return real or "/"
