# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# This module is private to the collection corral.node.
"""The result of a pass of garbage collection: as values, as JSON, and as the drift that is left."""

from __future__ import annotations

import typing as t

from ..model.gc_policy import image_gc
from ..model.plan.plan import DRIFT, UNCHANGEABLE, UNKNOWN, Change
from ..model.values.errors import shown
from ..model.values.records import NamedTuple
from ..model.values.sizes import about_text

if t.TYPE_CHECKING:
    from ..model.values.vocabulary import Verdict

NAME = "gc"


class Removed(NamedTuple):
    """An image, container or pod that was removed, or would be: its user, its names, the bytes freed, and why."""

    user: str
    id: str
    names: tuple[str, ...]
    bytes: int
    reason: str


MOST_NAMES, LONGEST = 3, 200  # of what is a user's: names of an item, and characters of a text


def removed_of(user: str, id: str, names: t.Sequence[str], bytes: int, reason: str) -> Removed:
    """The same of any user: a result is read again, so what users' Podmans say of their items takes a limited part of it."""
    if user == "root":
        return Removed(user, id, tuple(names), bytes, reason)
    return Removed(user, id, tuple(brief(user, name) for name in names[:MOST_NAMES]), bytes, brief(user, reason))


def brief(user: str, text: str) -> str:
    """A text of a user's Podman, of limited size as JSON; root's as it is."""
    return text if user == "root" else (text if text.isascii() else ascii(text)[1:-1])[:LONGEST]


class FileSystem(NamedTuple):
    """One file system with images: bytes before and after, the bytes that the pass had to free and how many it did not."""

    path: str
    users: tuple[str, ...]
    capacity: int
    available_before: int
    available: int
    high: int
    low: int
    asked: int
    short: int
    why: str
    images: int
    removed: tuple[Removed, ...]
    refused: tuple[str, ...]

    @property
    def used(self) -> int:
        """How full it is, in percent."""
        return image_gc.used_percent(self.capacity, self.available)


class Images(NamedTuple):
    """A pass over images: each file system that holds some, and what could not be read."""

    file_systems: tuple[FileSystem, ...]
    errors: tuple[str, ...]
    unfinished: bool

    @property
    def removed(self) -> tuple[Removed, ...]:
        """All images that were removed."""
        return tuple(one for disk in self.file_systems for one in disk.removed)


class Containers(NamedTuple):
    """A pass over containers: how many dead ones could be removed, those that were, and those that Podman refused to remove."""

    dead: int
    removed: tuple[Removed, ...]
    refused: tuple[str, ...]
    errors: tuple[str, ...]
    unfinished: bool


class Result(NamedTuple):
    """A pass. ``dry`` says why it removed nothing, "" when it could; a part is None when it was not due.

    ``error`` is why nothing at all was read. ``idle`` is what the next pass may go by without asking Podman (idle_pass.py).
    """

    time: int
    dry: str = ""
    images: t.Optional[Images] = None
    containers: t.Optional[Containers] = None
    error: str = ""
    idle: t.Optional[t.Mapping[str, t.Any]] = None

    @property
    def removed(self) -> tuple[Removed, ...]:
        """Everything that was removed."""
        return tuple(one for part in (self.images, self.containers) if part for one in part.removed)

    @property
    def freed(self) -> int:
        """The bytes that removed images freed."""
        return sum(one.bytes for one in self.removed)

    @property
    def drift(self) -> tuple[Change, ...]:
        """What is left undone, or (dry) would be done."""
        found = images_drift(self.images, self.dry) if self.images else []
        return (*found, *(containers_drift(self.containers, self.dry) if self.containers else ()))

    @property
    def errors(self) -> tuple[str, ...]:
        """Everything that could not be read."""
        own = (self.error,) if self.error else ()
        parts = [error for part in (self.images, self.containers) if part for error in part.errors]
        return tuple(dict.fromkeys((*own, *parts)))  # both parts read the same storage


def diff(result: Result) -> dict[str, str]:
    """Ansible's diff of a pass: what was removed."""
    images = [f"image {name_of(one)}\n" for one in (result.images.removed if result.images else ())]
    others = [f"{name_of(one)}\n" for one in (result.containers.removed if result.containers else ())]
    headers = {"before_header": "images and containers as they are", "after_header": "after garbage collection"}
    return {**headers, "before": "".join((*images, *others)), "after": ""}


def result_data(result: Result) -> dict[str, t.Any]:
    """A pass as JSON."""
    return {
        "time": result.time,
        "dry": result.dry or None,
        "error": result.error or None,
        "images": images_data(result.images) if result.images else None,
        "containers": containers_data(result.containers) if result.containers else None,
    }


def images_data(part: Images) -> dict[str, t.Any]:
    """A pass over images as JSON."""
    rows = [
        {**disk._asdict(), "used_percent": disk.used, "removed": [one._asdict() for one in disk.removed]}
        for disk in part.file_systems
    ]
    return {**part._asdict(), "file_systems": rows, "freed": sum(one.bytes for one in part.removed)}


def containers_data(part: Containers) -> dict[str, t.Any]:
    """A pass over containers as JSON."""
    return {**part._asdict(), "removed": [one._asdict() for one in part.removed]}


def images_drift(part: Images, dry: str) -> list[Change]:
    """What a pass over images left undone, or (dry) would do."""
    found = [change("images", "pass", None, None, error, "", UNKNOWN) for error in part.errors]
    for disk in part.file_systems:
        if dry and disk.removed:
            freed = sum(one.bytes for one in disk.removed)
            reason = f"would free about {about_text(freed)} ({dry}): {names(disk.removed)}"
            found.append(change(disk.path, "images", f"{len(disk.removed)} to go", "0 to go", reason, disk.path))
        if disk.short and not part.unfinished:
            reason = f"freed {about_text(max(disk.asked - disk.short, 0))} of {about_text(disk.asked)}: {disk.why}"
            wanted = f"at most {disk.low} %"
            found.append(change(disk.path, "disk use", f"{disk.used} %", wanted, reason, disk.path, UNCHANGEABLE))
        elif disk.refused:
            found.append(change(disk.path, "images", "kept", "removed", disk.refused[0], disk.path, UNCHANGEABLE))
    return found


def containers_drift(part: Containers, dry: str) -> list[Change]:
    """What a pass over containers left undone, or (dry) would do."""
    found = [change("containers", "pass", None, None, error, "", UNKNOWN) for error in part.errors]
    if dry and part.removed:
        reason = f"{dry}: {names(part.removed)}"
        found.append(change("containers", "dead", f"{len(part.removed)} to go", "0 to go", reason, ""))
    if part.refused:
        found.append(change("containers", "dead", "kept", "removed", part.refused[0], "", UNCHANGEABLE))
    return found


def change(
    subject: str, name: str, actual: t.Optional[str], wanted: t.Optional[str], reason: str, location: str,
    verdict: Verdict = DRIFT,
) -> Change:  # fmt: skip
    """A drift item of garbage collection; it never has steps, because the pass itself removes."""
    return Change(NAME, subject, name, actual, wanted, reason, location, (), verdict)


def names(removed: t.Sequence[Removed], most: int = 5) -> str:
    """A few names for a reason."""
    said = [shown(one.names[0] if one.names else one.id[:12]) for one in removed]
    return ", ".join(said[:most]) + (f" and {len(said) - most} more" if len(said) > most else "")


def lines(result: Result) -> list[str]:
    """A pass as text."""
    verb = "would go" if result.dry else "removed"
    rows = []
    for disk in result.images.file_systems if result.images else ():
        users = "" if disk.users == ("root",) else f" ({', '.join(disk.users)})"
        rows.append(
            f"{disk.path}{users}: {disk.used} % of {about_text(disk.capacity)} used{' then' if result.dry else ''}; "
            f"images go from {disk.high} % down to {disk.low} %"
        )
        rows += [f"- image {name_of(one)} {verb}: {about_text(one.bytes)} ({one.reason})" for one in disk.removed]
        rows += [f"! {said}" for said in disk.refused]
        if disk.short:
            rows.append(f"! {about_text(disk.short)} short of {about_text(disk.asked)}: {disk.why}")
    if result.containers is not None:
        part = result.containers
        rows += [f"- {name_of(one)} {verb} ({one.reason})" for one in part.removed]
        rows += [f"! {said}" for said in part.refused]
        rows.append(f"dead containers and pods: {len(part.removed)} {verb}, {part.dead - len(part.removed)} kept")
    rows += [f"? {error}" for error in result.errors]
    if any(part.unfinished for part in (result.images, result.containers) if part):
        rows.append("the pass reached its time limit: the next one continues")
    count = len(result.removed)
    freed = f", about {about_text(result.freed)}" if result.freed else ""
    return [*rows, f"{count} {verb}{freed}" if count else "nothing to collect"]


def name_of(one: Removed) -> str:
    """Its names, else its id."""
    of = "" if one.user == "root" else f" of {one.user}"
    return shown(", ".join(one.names) or one.id[:12], limit=300) + of
