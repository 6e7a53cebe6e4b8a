# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# This module is private to the collection corral.node.
"""A machine in a file: a tar of what was read of it, from which every decision can be replayed elsewhere."""

from __future__ import annotations

import io
import os
import tarfile
import typing as t

from .files import Host
from .recorded_tree import LINK_LIMIT


def write(host: Host, target: str) -> int:
    """Write what ``host`` (made with ``record=True``) has read to a compressed tar; returns the number of entries."""
    seen, host.recorded = sorted(host.seen), None
    links: dict[str, str] = {}
    reals = {resolved(host, path, links) for path in seen}
    count = 0
    with tarfile.open(target, "w:gz") as archive:
        for path, text in sorted(links.items()):
            entry = tarfile.TarInfo(path.lstrip("/"))
            entry.type, entry.linkname = tarfile.SYMTYPE, text
            archive.addfile(entry)
            count += 1
        for path in sorted(real for real in reals if real and real not in links):
            entry = tarfile.TarInfo(path.lstrip("/"))
            if host.is_dir(path):
                entry.type, entry.mode = tarfile.DIRTYPE, 0o755
                archive.addfile(entry)
            else:
                data = host.read_bytes(path)
                if data is None:
                    continue
                entry.size = len(data)
                archive.addfile(entry, io.BytesIO(data))
            count += 1
    return count


def resolved(host: Host, path: str, links: dict[str, str]) -> t.Optional[str]:
    """Where a path really leads, every link on the way noted (relative to its own folder); None in a circle."""
    parts = [part for part in path.split("/") if part]
    real = ""
    followed = 0
    while parts:
        part = parts.pop(0)
        if part in (".", ".."):
            real = real.rpartition("/")[0] if part == ".." else real
            continue
        here = f"{real}/{part}"
        text = host.link(here)
        if text is None:
            real = here
            continue
        followed += 1
        if followed > LINK_LIMIT:
            return None
        links[here] = os.path.relpath(text, real or "/") if text.startswith("/") else text
        if text.startswith("/"):
            real = ""
        parts = [piece for piece in text.split("/") if piece] + parts
    return real or "/"
