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

from ..model.values.errors import refusal
from .files import Host

LINK_LIMIT = 40  # as the kernel has it (MAXSYMLINKS)


def write(host: Host, target: str) -> int:
    """Write what ``host`` (made with ``record=True``) has read to a compressed tar; returns the number of entries."""
    links: dict[str, str] = {}
    reals = {resolved(host, path, links) for path in sorted(host.seen or ())}
    count = 0
    with tarfile.open(target, "w:gz") as archive:
        for path, text in sorted(links.items()):
            entry = tarfile.TarInfo(path.lstrip("/"))
            entry.type, entry.linkname = tarfile.SYMTYPE, text
            archive.addfile(entry)
            count += 1
        for path in sorted(real for real in reals if real and real not in links):
            entry = tarfile.TarInfo(path.lstrip("/"))
            if os.path.isdir(host.at(path)):
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
        try:
            text = os.readlink(host.at(here))
        except OSError:
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


def leaves(member: tarfile.TarInfo, links: t.Container[str]) -> bool:
    """Whether an entry names, or leads to, a place outside the folder it is unpacked in; through a link it might."""
    name = os.path.normpath(member.name)
    if name.startswith("/") or ".." in member.name.split("/"):
        return True
    parts = name.split("/")
    if any("/".join(parts[:depth]) in links for depth in range(1, len(parts))):
        return True
    target = os.path.normpath(os.path.join(os.path.dirname(name), member.linkname)) if member.issym() else name
    return target.startswith(("/", "../")) or target == ".."


def unpack(source: str, folder: str) -> str:
    """Unpack a snapshot into ``folder`` and return the root in it; refuses what would leave the folder."""
    try:
        with tarfile.open(source) as archive:
            members = [member for member in archive if member.isdir() or member.isfile() or member.issym()]
            links = {os.path.normpath(member.name) for member in members if member.issym()}
            for member in members:
                if leaves(member, links):
                    raise refusal(
                        "an entry leaves the snapshot: not made by corral snapshot", path=source, value=member.name
                    )
            archive.extraction_filter = getattr(tarfile, "data_filter", None)  # what 3.14 does by itself
            archive.extractall(folder, members=members)  # noqa: S202 - the members were looked at
    except (tarfile.TarError, OSError, EOFError) as error:
        # Beyond its first line a ReadError lists what each method of compression says.
        why = getattr(error, "strerror", None) or str(error).partition("\n")[0].rstrip(":")
        raise refusal(f"no readable snapshot ({why}): make one with corral snapshot", path=source) from None
    # A recorded tree may lie in a folder of its own.
    names = os.listdir(folder)
    return os.path.join(folder, names[0]) if len(names) == 1 and names[0] not in ("sys", "proc") else folder
