# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# This module is private to the collection corral.node.
"""Compares the agent's program with the program that was installed: each file, and each file that Python compiled from a source.

Once a release is installed and compiled, the digests of its files are recorded in a file that only root can read. If root changes both the
program and the record, the change is not detected.
"""

from __future__ import annotations

import errno
import hashlib
import os
import typing as t

from ...constants import VERSION
from ...model.agent.agent_program import release_at, release_of
from ...model.agent.agent_units import LAUNCHER, RELEASES
from ...model.values.listing import listed
from ...model.values.records import NamedTuple
from .. import state
from ..files import Host, Unreadable

if t.TYPE_CHECKING:
    from ...model.status.json_shapes import InstalledProgram

ABSENT = "absent"
IMPORTED = (".py", ".pyc", ".so")  # files that Python imports. Links count too: a link may lead to a package.
DIGITS = 16  # A message shows this many digits of a digest; all digits are compared.


class Finding(NamedTuple):
    """A file or folder that differs from the installed file or folder; ``known`` is False for an unreadable file."""

    path: str
    property: str
    actual: str
    wanted: str
    reason: str
    known: bool = True


def record(host: Host, folder: str, names: t.Collection[str]) -> None:
    """Record the digests of the release in ``folder``: of its files ``names``, and of the files that Python compiled from these files.

    If ``names`` is empty (a tick compiled the program for another Python), the recorded digests of sources stay.
    """
    release = release_at(f"{folder}/")
    if not release:
        return
    known = records(host)
    kept = {name: row for name, row in known.items() if host.is_dir(f"{RELEASES}/{name}")}
    before = kept.get(release, {"version": VERSION, "files": {}})
    sources = {name: digest(host, f"{folder}/{name}") for name in names} or {
        name: known_digest for name, known_digest in before["files"].items() if not name.endswith(".pyc")
    }
    stems = {stem(name) for name in sources}
    compiled = {
        name: digest(host, f"{folder}/{name}")
        for name in files_in(host, folder)[0]
        if name.endswith(".pyc") and stem(name) in stems
    }
    version = VERSION if names else before["version"]
    kept[release] = {"version": version, "files": {name: row for name, row in {**sources, **compiled}.items() if row}}
    if kept != known:
        state.write_checked(host, state.PROGRAM, kept, spare=False)


def records(host: Host) -> dict[str, dict[str, t.Any]]:
    """The records by release: the collection's version, and the digests of files. Empty if the file of records cannot be read."""
    data = state.checked(host, state.PROGRAM)
    rows = data.items() if isinstance(data, dict) else ()
    return {
        name: row
        for name, row in rows
        if isinstance(row, dict) and isinstance(row.get("version"), str) and isinstance(row.get("files"), dict)
    }


def stem(name: str) -> str:
    """A source's path without its suffix: ``folder/main``, also for a compiled file (folder/__pycache__/main.cpython-311.pyc)."""
    folder, dummy, file = name.replace("__pycache__/", "").rpartition("/")
    return f"{folder}/{file.partition('.')[0]}"


def files_in(host: Host, top: str) -> tuple[list[str], list[str]]:
    """The relative paths of files and links below a folder, and the full paths of ``top`` and all folders below. No link is followed."""
    files: list[str] = []
    folders = [""]
    for inner in folders:  # the loop appends to the list
        below = host.folders(f"{top}/{inner}".rstrip("/"))
        folders += [f"{inner}{name}/" for name in below]
        files += [f"{inner}{name}" for name in host.names(f"{top}/{inner}".rstrip("/")) if name not in below]
    return files, [f"{top}/{inner}".rstrip("/") for inner in folders]


def digest(host: Host, path: str) -> t.Optional[str]:
    """SHA-256 of a file; None for a link or an absent file."""
    if host.link(path) is not None:
        return None
    data = host.read_bytes(path, follow=False)
    return None if data is None else hashlib.sha256(data).hexdigest()


def findings(host: Host, release: str) -> list[Finding]:
    """The differences between an installed release and its record."""
    return host.unrecorded(lambda: looked_at(host, release))  # A converged tick does not repeat these reads.


def looked_at(host: Host, release: str) -> list[Finding]:
    """The findings for each file and folder of a release, and for the folders above the release."""
    top = f"{RELEASES}/{release}"
    row = records(host).get(release)
    if row is None:
        why = "the release is not in it" if host.exists(state.PROGRAM) else os.strerror(errno.ENOENT)
        reason = f"{state.PROGRAM} does not say what was installed ({why})"
        return [Finding(top, "program", "", release, reason, known=False)]
    files, folders = files_in(host, top)
    found = [
        row for path in (*above(top), *folders, *(f"{top}/{name}" for name in files)) for row in changeable(host, path)
    ]
    for name in sorted({*files, *row["files"]}):
        path, wanted = f"{top}/{name}", row["files"].get(name)
        try:
            actual = digest(host, path) if name in files else ABSENT
        except Unreadable as error:
            found.append(Finding(path, "content", "", shown(wanted), f"cannot be read: {error.why}", known=False))
            continue
        if wanted is None and not (name.endswith(IMPORTED) or host.link(path) is not None):
            continue  # Python does not import a file of this name.
        if wanted is None:
            found.append(Finding(path, "file", "present", ABSENT, "is not part of the program, and may be run as root"))
        elif actual != wanted:
            said = "a link" if actual is None else actual if actual == ABSENT else shown(actual)
            found.append(Finding(path, "content", said, shown(wanted), "is not as it was installed"))
    return found


def above(path: str) -> list[str]:
    """The folders above a path, the outermost first."""
    parts = path.split("/")
    return ["/".join(parts[:depth]) or "/" for depth in range(1, len(parts))]


def running_release(host: Host) -> str:
    """The release to which the launcher's link leads; an empty string if the link leads to no release."""
    return release_of(host.unrecorded(lambda: host.link(LAUNCHER)))


def installed(host: Host) -> t.Optional[InstalledProgram]:
    """Whether the running program is as it was installed; None without an installed program."""
    release = running_release(host)
    if not release:
        return None
    try:
        differences = findings(host, release)
    except Unreadable:  # Only root can read the record.
        return {"release": release, "as_installed": None, "differing": []}
    known = all(finding.known for finding in differences)
    differing = list(dict.fromkeys(finding.path for finding in differences if finding.known))
    return {"release": release, "as_installed": False if differing else True if known else None, "differing": differing}


def sentence(program: InstalledProgram) -> str:
    """The state of the program on one line."""
    if program["as_installed"] is None:
        return f"program {program['release']}: not known whether it is as it was installed (root can look; else roll it out again)"
    return f"program {program['release']}: NOT as it was installed: {listed(program['differing'])}: roll the agent out again"


def changeable(host: Host, path: str) -> list[Finding]:
    """Findings about the owner and the mode of a file or folder that another user than root can change: root runs its content."""
    permissions, mode = host.permissions(path), host.mode(path)
    owner = permissions[1] if permissions else 0
    items = []
    if owner not in (0, os.geteuid()):
        items.append(Finding(path, "owner", f"user {owner}", "root", f"root runs what is there: chown root {path}"))
    if mode is not None and mode & 0o022 and host.link(path) is None:
        closed = f"{mode & ~0o022:04o}"
        items.append(Finding(path, "mode", f"{mode:04o}", closed, f"root runs what is there: chmod go-w {path}"))
    return items


def shown(digest_of_file: str) -> str:
    """A digest, shortened."""
    return f"sha256 {digest_of_file[:DIGITS]}"
