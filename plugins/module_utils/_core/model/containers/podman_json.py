# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# This module is private to the collection corral.node.
"""The answers of Podman's API (4.3 and later) as values. An answer of another form raises ValueError."""

from __future__ import annotations

import calendar
import re
import typing as t

from ..values.printable_text import printable
from ..values.records import NamedTuple

# The keys that Corral reads, for each kind of item.
IMAGE = ("Id", "Digest", "RepoDigests", "Names", "Size", "ReadOnly", "readOnly")
CONTAINER = ("Id", "Names", "State", "Created", "StartedAt", "ExitedAt", "ImageID", "Image", "Pod", "IsInfra", "Labels")
POD = ("Id", "Name", "Created", "Labels")
REFUSAL = ("Err", "Errors", "ExitCode")
Rows = t.Iterable[t.Mapping[str, t.Any]]
LONGEST = 4096  # the most characters of a text other than a label
LONGEST_PLACE = 512  # the most characters of a storage's path, since results show the path

RUNNING = ("running", "paused", "stopping", "restarting", "initialized")
# A container with a state of NEVER_STARTED may still start. If its start failed, the container stays forever.
NEVER_STARTED = ("created", "configured")
DEAD = ("exited", "stopped", "dead")
YEAR_2000 = 946684800  # an earlier time means "never" (Go's zero time)
_TIME = re.compile(r"(\d{4})-(\d\d)-(\d\d)T(\d\d):(\d\d):(\d\d)(?:\.\d+)?(Z|[+-]\d\d:\d\d)", re.ASCII)


class ListedImage(NamedTuple):
    """An image: ``names`` as repository:tag, ``digests`` with or without a repository before the digest."""

    id: str
    names: tuple[str, ...]
    digests: tuple[str, ...]
    size: int
    read_only: bool


class ListedContainer(NamedTuple):
    """A container. ``pod`` is empty for a container outside of pods; ``infra`` is True for a pod's infra container."""

    id: str
    name: str
    image: str
    image_name: str
    state: str
    created: float
    ended: t.Optional[float]
    pod: str
    infra: bool
    labels: dict[str, str]
    external: bool


class ListedPod(NamedTuple):
    """A pod of Podman."""

    id: str
    name: str
    created: float
    labels: dict[str, str]


def images(data: Rows) -> list[ListedImage]:
    """The images that ``GET /libpod/images/json?all=true`` or ``podman images --all --format json`` lists."""
    listed = {}
    for row in data:  # Podman lists an image with two names twice.
        digests = [text(row, "Digest"), *texts(row, "RepoDigests")]
        names = tuple(name for name in texts(row, "Names") if not name.startswith("<none>"))
        image = ListedImage(identity(row), names, tuple(filter(None, digests)), integer(row, "Size"), read_only(row))
        listed[image.id] = image
    return list(listed.values())


def containers(data: Rows, booted: float = 0.0) -> list[ListedContainer]:
    """The containers of ``GET /libpod/containers/json?all=true&external=true``; ``booted``: when the node booted (epoch seconds).

    If a container ran when the node went down, Podman records no end and lists the container as "created" (4.3) or "exited" (5.4). The
    boot counts as the end of such a container.
    """
    listed = []
    for row in data:
        own, names = identity(row), texts(row, "Names")
        state = text(row, "State").lower()
        ended, created = integer(row, "ExitedAt"), moment(row.get("Created"))
        lost = ended < YEAR_2000 <= integer(row, "StartedAt") and state in (*NEVER_STARTED, *DEAD)
        if lost:
            state, ended = "exited", int(max(created, booted, YEAR_2000))
        listed.append(
            ListedContainer(
                own,
                names[0] if names else own[:12],
                reference(row, "ImageID"),
                text(row, "Image"),
                state,
                created,
                float(ended) if ended >= YEAR_2000 and state not in RUNNING else None,
                reference(row, "Pod"),
                bool(row.get("IsInfra")),
                labels(row),
                state in ("storage", "unknown", ""),  # The container is buildah's, or unknown to Podman.
            )
        )
    return listed


def pods(data: Rows) -> list[ListedPod]:
    """The pods of ``GET /libpod/pods/json``."""
    return [ListedPod(identity(row), text(row, "Name"), moment(row.get("Created")), labels(row)) for row in data]


def read_only(row: t.Mapping[str, t.Any]) -> bool:
    """Whether an image is in a read-only storage (additionalimagestores in storage.conf)."""
    return row.get("ReadOnly") is True or row.get("readOnly") is True


def named_rows(rows: t.Sequence[t.Sequence[t.Any]], keys: t.Sequence[str]) -> list[dict[str, t.Any]]:
    """Each row of values as a dict with ``keys``. Raises ValueError for a row of another length."""
    if not all(len(row) == len(keys) for row in rows):
        raise ValueError("a row of another length")
    return [dict(zip(keys, row)) for row in rows]


def identity(row: t.Mapping[str, t.Any]) -> str:
    """The id of an item. Raises ValueError for an item without an id."""
    value = row.get("Id")
    if not isinstance(value, str) or not re.fullmatch(r"(?:sha256:)?[0-9a-f]{12,64}", value):
        raise ValueError(f"an item without an id: {printable(str(value)[:80])}")
    return value.rpartition(":")[2]


def reference(row: t.Mapping[str, t.Any], key: str) -> str:
    """The id in the field ``key``, for example the id of a container's image; an empty string without an id."""
    value = text(row, key)
    if value and not re.fullmatch(r"(?:sha256:)?[0-9a-f]{12,64}", value):
        raise ValueError(f"{key} is no id: {value[:80]}")
    return value


def text(row: t.Mapping[str, t.Any], key: str) -> str:
    """The text of the field ``key`` in printable form; an empty string for null or a missing key."""
    value = row.get(key) or ""
    if not isinstance(value, str) or len(value) > LONGEST:
        raise ValueError(f"{key} is not text")
    return printable(value)


def texts(row: t.Mapping[str, t.Any], key: str) -> list[str]:
    """The list of texts in the field ``key``, in printable form; an empty list for null or a missing key."""
    value = row.get(key) or []
    if not isinstance(value, list) or not all(isinstance(item, str) and len(item) <= LONGEST for item in value):
        raise ValueError(f"{key} is not a list of texts")
    return [printable(item) for item in value]


def integer(row: t.Mapping[str, t.Any], key: str) -> int:
    """The number of the field ``key``, as a whole number; 0 for null or a missing key."""
    value = row.get(key) or 0
    if not is_number(value):
        raise ValueError(f"{key} is not a number")
    return int(value)


def is_number(value: t.Any) -> bool:
    """Whether a value is a number that fits into Go's int64."""
    return isinstance(value, (int, float)) and not isinstance(value, bool) and abs(value) < 1 << 63


def labels(row: t.Mapping[str, t.Any]) -> dict[str, str]:
    """The labels of an item in printable form; an empty mapping for null or a missing key."""
    value = row.get("Labels") or {}
    if not isinstance(value, dict):
        raise ValueError("Labels is not a mapping")
    return {printable(str(key)): printable(str(item)) for key, item in value.items()}


def moment(value: t.Any) -> float:
    """A time in epoch seconds. ``value`` is a number of seconds, or a text as in RFC 3339."""
    if is_number(value):
        return float(value)
    match = _TIME.fullmatch(value) if isinstance(value, str) else None
    if match is None:
        raise ValueError(f"no time: {printable(str(value)[:80])}")
    seconds, zone = calendar.timegm(tuple(map(int, match.groups()[:6]))), match.group(7)
    if zone != "Z":
        offset = int(zone[1:3]) * 3600 + int(zone[4:6]) * 60
        seconds -= offset if zone[0] == "+" else -offset
    return float(seconds)


def store(data: object) -> tuple[str, str]:
    """The path of Podman's storage and the storage's driver, from ``GET /libpod/info``."""
    store = data.get("store") if isinstance(data, dict) else None
    if not isinstance(store, dict):
        raise ValueError("no store")
    root, driver = text(store, "graphRoot"), text(store, "graphDriverName")
    if not root.startswith("/") or len(root) > LONGEST_PLACE or not re.fullmatch(r"[a-z0-9]{1,32}", driver):
        raise ValueError("no place of the storage")
    return root, driver


def store_of_image(data: object) -> t.Optional[tuple[str, str]]:
    """The path and driver of an image's storage, from ``GET /libpod/images/ID/json``; None if the answer lacks the path or driver."""
    driver = data.get("GraphDriver") if isinstance(data, dict) else None
    folders = driver.get("Data") if isinstance(driver, dict) else None
    upper = folders.get("UpperDir") if isinstance(folders, dict) else None
    if (
        not isinstance(upper, str)
        or not upper.isprintable()
        or len(upper) > LONGEST_PLACE
        or driver is None
        or driver.get("Name") != "overlay"
    ):
        return None
    match = re.fullmatch(r"(/.*[^/])/overlay/[^/]+/diff", upper)
    return (match[1], "overlay") if match else None


def refusal(data: Rows) -> str:
    """Why a removal is incomplete although Podman answered without an error; an empty string for a complete removal."""
    for row in data:
        said = row.get("Err") or row.get("Errors")
        if said:
            return str(said[0] if isinstance(said, list) else said)
        if row.get("ExitCode"):
            return f"exit code {row['ExitCode']}"
    return ""


def last_uses(listed: t.Iterable[ListedContainer], now: float) -> dict[str, float]:
    """The time when each image was last used: ``now`` if a container of the image runs, else the end of its last container.

    (For the kubelet a dead container uses its image until the container is removed.)
    """
    uses: dict[str, float] = {}
    for container in listed:
        moment = now if container.state in RUNNING else container.ended or container.created
        uses[container.image] = max(uses.get(container.image, 0.0), moment)
    return uses


def event_uses(rows: t.Iterable[t.Sequence[t.Any]]) -> dict[str, float]:
    """When a container of each image last began or ended, by the image's name.

    Each row is an event of ``GET /libpod/events``: an image's name and a time. A row of another form is left out.
    """
    uses: dict[str, float] = {}
    for row in rows:
        try:
            name, when = row[0], moment(row[1])
        except (ValueError, IndexError):
            continue
        if isinstance(name, str):
            name = printable(name)  # printable, as ListedContainer.image_name
            uses[name] = max(uses.get(name, 0.0), when)
    return uses
