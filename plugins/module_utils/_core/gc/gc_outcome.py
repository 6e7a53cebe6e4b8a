# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# This module is private to the collection corral.node.
"""The result of a pass of garbage collection: as values, as JSON, and as drift."""

from __future__ import annotations

import typing as t

from ..model.gc import image_gc
from ..model.plan.plan import DRIFT, UNCHANGEABLE, UNKNOWN, Change
from ..model.values.errors import shown
from ..model.values.records import NamedTuple
from ..model.values.sizes import about_text

if t.TYPE_CHECKING:
    from ..model.values.vocabulary import Verdict

NAME = "gc"


class Removed(NamedTuple):
    """An image, container or pod that was or would be removed: its user, its names, the freed bytes, and the reason."""

    user: str
    id: str
    names: tuple[str, ...]
    bytes: int
    reason: str


MOST_NAMES, LONGEST = 3, 200  # for users other than root: the most names of an item, and the most characters of a text


def removed_of(user: str, id: str, names: t.Sequence[str], bytes: int, reason: str) -> Removed:
    """A Removed. For users other than root the texts are limited: Corral stores results, and a user's Podman may return any text."""
    if user == "root":
        return Removed(user, id, tuple(names), bytes, reason)
    return Removed(user, id, tuple(brief(user, name) for name in names[:MOST_NAMES]), bytes, brief(user, reason))


def brief(user: str, text: str) -> str:
    """A text of a user's Podman, cut to LONGEST ASCII characters; a text of root's Podman stays unchanged."""
    return text if user == "root" else (text if text.isascii() else ascii(text)[1:-1])[:LONGEST]


class FileSystem(NamedTuple):
    """A file system with images: the available bytes before and after the pass, the bytes to free (``asked``) and not freed (``short``)."""

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
        """The percentage of the file system in use."""
        return image_gc.used_percent(self.capacity, self.available)


class Images(NamedTuple):
    """The result of a pass over images: each file system with images, and the errors."""

    file_systems: tuple[FileSystem, ...]
    errors: tuple[str, ...]
    unfinished: bool

    @property
    def removed(self) -> tuple[Removed, ...]:
        """All images that were removed."""
        return tuple(image for disk in self.file_systems for image in disk.removed)


class Containers(NamedTuple):
    """The result of a pass over containers: the number of dead containers, the removed items, and Podman's refusals to remove an item."""

    dead: int
    removed: tuple[Removed, ...]
    refused: tuple[str, ...]
    errors: tuple[str, ...]
    unfinished: bool


class Result(NamedTuple):
    """The result of a pass. ``dry``: why the pass must not remove anything (empty: removals are allowed). A part that was not due is None.

    ``error``: why the pass ended early, or why its files were not written. ``idle``: the findings for the next passes (idle_pass.py).
    """

    time: int
    dry: str = ""
    images: t.Optional[Images] = None
    containers: t.Optional[Containers] = None
    error: str = ""
    idle: t.Optional[t.Mapping[str, t.Any]] = None

    @property
    def removed(self) -> tuple[Removed, ...]:
        """All removed images, containers and pods."""
        return tuple(item for part in (self.images, self.containers) if part for item in part.removed)

    @property
    def freed(self) -> int:
        """The bytes freed by removed images."""
        return sum(item.bytes for item in self.removed)

    @property
    def drift(self) -> tuple[Change, ...]:
        """The drift that the pass left or, in a dry run, the drift that a pass would correct."""
        items = images_drift(self.images, self.dry) if self.images else []
        return (*items, *(containers_drift(self.containers, self.dry) if self.containers else ()))

    @property
    def errors(self) -> tuple[str, ...]:
        """The errors of the pass and of all reads, each error once."""
        own = (self.error,) if self.error else ()
        parts = [error for part in (self.images, self.containers) if part for error in part.errors]
        return tuple(dict.fromkeys((*own, *parts)))  # Images and containers are read from the same storages.


def diff(result: Result) -> dict[str, str]:
    """Ansible's diff of a pass: the removed items."""
    images = [f"image {name_of(image)}\n" for image in (result.images.removed if result.images else ())]
    others = [f"{name_of(container)}\n" for container in (result.containers.removed if result.containers else ())]
    headers = {"before_header": "images and containers as they are", "after_header": "after garbage collection"}
    return {**headers, "before": "".join((*images, *others)), "after": ""}


def result_data(result: Result) -> dict[str, t.Any]:
    """The result of a pass as JSON data."""
    return {
        "time": result.time,
        "dry": result.dry or None,
        "error": result.error or None,
        "images": images_data(result.images) if result.images else None,
        "containers": containers_data(result.containers) if result.containers else None,
    }


def images_data(part: Images) -> dict[str, t.Any]:
    """The result of a pass over images as JSON data."""
    rows = [
        {**disk._asdict(), "used_percent": disk.used, "removed": [image._asdict() for image in disk.removed]}
        for disk in part.file_systems
    ]
    return {**part._asdict(), "file_systems": rows, "freed": sum(image.bytes for image in part.removed)}


def containers_data(part: Containers) -> dict[str, t.Any]:
    """The result of a pass over containers as JSON data."""
    return {**part._asdict(), "removed": [row._asdict() for row in part.removed]}


def images_drift(part: Images, dry: str) -> list[Change]:
    """The drift that a pass over images left or, in a dry run, the drift that a pass would correct."""
    items = [change("images", "pass", None, None, error, "", UNKNOWN) for error in part.errors]
    for disk in part.file_systems:
        if dry and disk.removed:
            freed = sum(image.bytes for image in disk.removed)
            reason = f"would free about {about_text(freed)} ({dry}): {names(disk.removed)}"
            items.append(change(disk.path, "images", f"{len(disk.removed)} to go", "0 to go", reason, disk.path))
        if disk.short and not part.unfinished:
            reason = f"freed {about_text(max(disk.asked - disk.short, 0))} of {about_text(disk.asked)}: {disk.why}"
            wanted = f"at most {disk.low} %"
            items.append(change(disk.path, "disk use", f"{disk.used} %", wanted, reason, disk.path, UNCHANGEABLE))
        elif disk.refused:
            items.append(change(disk.path, "images", "kept", "removed", disk.refused[0], disk.path, UNCHANGEABLE))
    return items


def containers_drift(part: Containers, dry: str) -> list[Change]:
    """The drift that a pass over containers left or, in a dry run, the drift that a pass would correct."""
    items = [change("containers", "pass", None, None, error, "", UNKNOWN) for error in part.errors]
    if dry and part.removed:
        reason = f"{dry}: {names(part.removed)}"
        items.append(change("containers", "dead", f"{len(part.removed)} to go", "0 to go", reason, ""))
    if part.refused:
        items.append(change("containers", "dead", "kept", "removed", part.refused[0], "", UNCHANGEABLE))
    return items


def change(
    subject: str, name: str, actual: t.Optional[str], wanted: t.Optional[str], reason: str, location: str,
    verdict: Verdict = DRIFT,
) -> Change:  # fmt: skip
    """A drift item of garbage collection, which has no steps: only passes remove items."""
    return Change(NAME, subject, name, actual, wanted, reason, location, (), verdict)


def names(removed: t.Sequence[Removed], most: int = 5) -> str:
    """The names of the first removed items and the number of further items, as part of a reason."""
    said = [shown(item.names[0] if item.names else item.id[:12]) for item in removed]
    return ", ".join(said[:most]) + (f" and {len(said) - most} more" if len(said) > most else "")


def lines(result: Result) -> list[str]:
    """The result of a pass as lines of text."""
    verb = "would go" if result.dry else "removed"
    rows = []
    for disk in result.images.file_systems if result.images else ():
        users = "" if disk.users == ("root",) else f" ({', '.join(disk.users)})"
        rows.append(
            f"{disk.path}{users}: {disk.used} % of {about_text(disk.capacity)} used{' then' if result.dry else ''}; "
            f"images go from {disk.high} % down to {disk.low} %"
        )
        rows += [f"- image {name_of(row)} {verb}: {about_text(row.bytes)} ({row.reason})" for row in disk.removed]
        rows += [f"! {said}" for said in disk.refused]
        if disk.short:
            rows.append(f"! {about_text(disk.short)} short of {about_text(disk.asked)}: {disk.why}")
    if result.containers is not None:
        part = result.containers
        rows += [f"- {name_of(item)} {verb} ({item.reason})" for item in part.removed]
        rows += [f"! {said}" for said in part.refused]
        rows.append(f"dead containers and pods: {len(part.removed)} {verb}, {part.dead - len(part.removed)} kept")
    rows += [f"? {error}" for error in result.errors]
    if any(part.unfinished for part in (result.images, result.containers) if part):
        rows.append("the pass reached its time limit: the next one continues")
    count = len(result.removed)
    freed = f", about {about_text(result.freed)}" if result.freed else ""
    return [*rows, f"{count} {verb}{freed}" if count else "nothing to collect"]


def name_of(item: Removed) -> str:
    """The names of an item, or its id without names, followed by its user unless the user is root."""
    of = "" if item.user == "root" else f" of {item.user}"
    return shown(", ".join(item.names) or item.id[:12], limit=300) + of
