# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# This module is private to the collection corral.node.
"""A pass that asks Podman nothing, because Podman would report nothing to remove.

A pass that finds nothing due, now or within IDLE_SECONDS, keeps the stamps of the storages' files from before its reads. For IDLE_SECONDS,
while the files have these stamps and no disk is at ``high``, later passes have the same result without Podman; each later pass records the
images of running containers as used. In any doubt a pass asks Podman.
"""

from __future__ import annotations

import contextlib
import typing as t

from ..host import state
from ..host.containers.podman_cli import PodmanError, Podmans
from ..host.files import Host
from ..model.containers.podman_json import RUNNING, ListedContainer
from ..model.gc import gc_records, image_gc
from ..model.gc.gc_records import Records
from ..model.profile.profile import Profile
from ..model.profile.profile_gc import ContainerGC, ImageGC
from . import container_pass, image_pass
from .gc_outcome import Containers, FileSystem, Images

# The longest time without a question to Podman, and so the longest delay after a change that the stamps of a storage do not show.
IDLE_SECONDS = 3600.0
IMAGES, CONTAINERS = "images", "containers"
SCHEMA = 1  # the version of the kept data


class IdlePass:
    """The findings of earlier passes, read at the beginning of a pass, before Podman is asked.

    ``users``: the users whose storages the pass covers; without users each part of the pass asks Podman. ``now`` is in epoch seconds.
    """

    def __init__(self, podmans: Podmans, declared: Profile, users: t.Sequence[str], now: float) -> None:
        self.podmans, host = podmans, podmans.host
        self.host, self.now, self.up = host, now, host.uptime()
        kept = gc_records.mapping(state.checked(host, state.GC_IDLE))
        identity = {
            "schema": SCHEMA,
            "boot": host.boot_id(),
            "for": repr((declared.gc, declared.mode, declared.workloads)),
        }
        same = all(kept.get(key) == value for key, value in identity.items()) and is_sound(kept)
        self.kept: dict[str, t.Any] = dict(kept) if same else {**identity, "roots": {}}
        self.stamps = self.stamps_of(users)

    def stamps_of(self, users: t.Sequence[str]) -> t.Optional[dict[str, t.Any]]:
        """The stamps of all storages; None without storages, or if a storage is unknown or has no database."""
        stamps: dict[str, t.Any] = {}
        for user in users:
            root = gc_records.mapping(self.kept.get("roots")).get(user)
            try:
                stamps_of_user = self.podmans.of(user).stamps(*root) if root else None
            except PodmanError:
                stamps_of_user = None
            if stamps_of_user is None:
                return None
            stamps.update({f"{user} {path}": stamp for path, stamp in stamps_of_user.items()})
        return stamps or None

    def unchanged(self, part: str) -> t.Optional[dict[str, t.Any]]:
        """The findings of the last pass over a part (images or containers); None if this pass has to ask Podman."""
        last = self.kept.get(part)
        if not last or self.stamps is None or last["stamps"] != self.stamps:
            return None
        passed = self.up - last["up"]
        clock_was_set = abs(self.now - last["now"] - passed) > gc_records.SLEWED
        return None if clock_was_set or not 0 <= passed < IDLE_SECONDS else t.cast("dict[str, t.Any]", last)

    def containers(self) -> t.Optional[Containers]:
        """The result of a pass over containers that asks Podman nothing; None if the pass has to ask Podman."""
        last = self.unchanged(CONTAINERS)
        return None if last is None else Containers(last["dead"], (), (), (), False)

    def images(self, policy: ImageGC) -> t.Optional[Images]:
        """The result of a pass over images that asks Podman nothing; None if the pass has to ask Podman."""
        last = self.unchanged(IMAGES)
        if last is None:
            return None
        disks = []
        for disk in last["disks"]:
            try:
                space = self.podmans.of(disk["users"][0]).space(disk["path"])
            except PodmanError:
                space = None
            if space is None or space[0] != disk["device"] or space[1] <= 0 or is_full(policy, *space[1:]):
                return None
            disks.append(
                FileSystem(
                    path=disk["path"],
                    users=tuple(disk["users"]),
                    capacity=space[1],
                    available_before=space[2],
                    available=space[2],
                    high=policy.high,
                    low=policy.low,
                    asked=0,
                    short=0,
                    why="",
                    images=disk["images"],
                    removed=(),
                    refused=(),
                )
            )
        return Images(tuple(disks), (), False)

    def with_uses(self, part: str, records: Records) -> Records:
        """The records, with the present time as the last use of the running containers' images."""
        images = dict(records.images)
        for user, ids in self.kept[part]["running"].items():
            images[user] = gc_records.noted(images.get(user, {}), dict.fromkeys(ids, self.now), self.now)
        return records._replace(images=images)

    def keep_containers(
        self, observed: container_pass.ObservedContainers, policy: ContainerGC, result: Containers
    ) -> None:
        """Keep the findings of a pass over containers if later passes would have the same findings; else forget the findings."""
        if result.removed:
            self.kept.pop(IMAGES, None)  # A removed container's image may be unused now.
        later = container_pass.due(observed, policy, self.now + IDLE_SECONDS)
        acted = result.removed or result.refused or result.errors or result.unfinished
        if acted or later.going or later.dead != result.dead:
            self.kept.pop(CONTAINERS, None)
            return
        containers = [(row.podman.user, container) for row in observed.found for container in row.item.containers]
        self.keep(CONTAINERS, containers, dead=result.dead)

    def keep_images(self, observed: image_pass.ObservedStorages, policy: ImageGC, result: Images) -> None:
        """Keep the paths of the storages, and the findings of a pass over images if later passes would have the same findings."""
        storages = [storage for row in observed.by_device.values() for storage in row]
        self.kept["roots"] = {storage.podman.user: [storage.root, storage.driver] for storage in storages}
        acted = result.removed or result.errors or result.unfinished or observed.records.observed != self.now
        asked = any(disk.refused or disk.asked for disk in result.file_systems)
        if acted or asked or image_pass.too_old_by(observed, policy, self.now + IDLE_SECONDS):
            self.kept.pop(IMAGES, None)
            return
        self.keep(
            IMAGES,
            [(storage.podman.user, container) for storage in storages for container in storage.containers],
            disks=[
                {"path": disk.path, "users": list(disk.users), "device": device, "images": disk.images}
                for device, disk in zip(observed.by_device, result.file_systems)
            ],
        )

    def keep(self, part: str, containers: t.Iterable[tuple[str, ListedContainer]], **found: t.Any) -> None:
        """Keep the findings of a pass over a part, the stamps from before the pass, and the images of running containers by user."""
        self.kept.pop(part, None)
        if self.stamps is None:
            return
        images: dict[str, dict[str, None]] = {}
        for user, container in containers:
            if container.state in RUNNING:
                images.setdefault(user, {})[container.image] = None
        running = {user: list(row) for user, row in images.items()}
        self.kept[part] = {"up": self.up, "now": self.now, "stamps": self.stamps, "running": running, **found}


def is_sound(kept: t.Mapping[str, t.Any]) -> bool:
    """Whether the kept data has the form that write() writes."""
    roots, parts = kept.get("roots"), [kept[name] for name in (IMAGES, CONTAINERS) if name in kept]
    return (
        isinstance(roots, dict)
        and all(isinstance(root, list) and len(root) == 2 for root in roots.values())
        and all(isinstance(part, dict) and {"up", "now", "stamps", "running"} <= part.keys() for part in parts)
        and all({"dead", "disks"} & part.keys() for part in parts)
    )


def is_full(policy: ImageGC, capacity: int, available: int) -> bool:
    """Whether a file system is at ``high`` percent or more."""
    return image_gc.bytes_to_free(capacity, available, image_pass.limits_of(policy)) is not None


def write(host: Host, kept: t.Optional[t.Mapping[str, t.Any]]) -> None:
    """Write the findings for the next pass; None removes them."""
    with contextlib.suppress(OSError):  # Without the file the next pass asks Podman.
        if kept is None and state.there(host, state.GC_IDLE):
            host.remove(state.GC_IDLE)
        elif kept is not None and state.checked(host, state.GC_IDLE) != kept:
            state.write_checked(host, state.GC_IDLE, kept, spare=False)
