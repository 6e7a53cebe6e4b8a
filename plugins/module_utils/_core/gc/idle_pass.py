# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# This module is private to the collection corral.node.
"""A pass that asks Podman nothing, since it would find nothing to do.

A pass that finds that nothing goes, and that nothing would go within IDLE_SECONDS if nothing changes, keeps the stamps that
the storages' files had before it read them. Until then, while the files have these stamps and no disk is at ``high``, later
passes have the same result: images of containers that run are in use at each of them. Whatever is not known, or not as it
was, makes a pass ask Podman.
"""

from __future__ import annotations

import contextlib
import typing as t

from ..host import state
from ..host.files import Host
from ..host.podman_cli import PodmanError, Podmans
from ..model.gc_policy import gc_records, image_gc
from ..model.gc_policy.gc_records import Records
from ..model.gc_policy.podman_json import RUNNING, ListedContainer
from ..model.profile.profile import Profile
from ..model.profile.profile_gc import ContainerGC, ImageGC
from . import container_pass, image_pass
from .gc_outcome import Containers, FileSystem, Images

# For so long at most. It limits what an unknown way to change a storage can delay.
IDLE_SECONDS = 3600.0
IMAGES, CONTAINERS = "images", "containers"
SCHEMA = 1  # of what is kept


class IdlePass:
    """What earlier passes found, read when a pass begins, before anything asks Podman.

    ``users`` are those whose storages it covers; without any, each part has to ask Podman. ``now`` is in epoch seconds.
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
        """The stamps of all storages; None where there is none, one is not known yet, or one has no database."""
        found: dict[str, t.Any] = {}
        for user in users:
            root = gc_records.mapping(self.kept.get("roots")).get(user)
            try:
                one = self.podmans.of(user).stamps(*root) if root else None
            except PodmanError:
                one = None
            if one is None:
                return None
            found.update({f"{user} {path}": stamp for path, stamp in one.items()})
        return found or None

    def unchanged(self, part: str) -> t.Optional[dict[str, t.Any]]:
        """What the last pass over a part found; None where this one has to ask Podman."""
        last = self.kept.get(part)
        if not last or self.stamps is None or last["stamps"] != self.stamps:
            return None
        passed = self.up - last["up"]
        clock_was_set = abs(self.now - last["now"] - passed) > gc_records.SLEWED
        return None if clock_was_set or not 0 <= passed < IDLE_SECONDS else t.cast("dict[str, t.Any]", last)

    def containers(self) -> t.Optional[Containers]:
        """The result of a pass over containers that asks nothing; None where it has to ask."""
        last = self.unchanged(CONTAINERS)
        return None if last is None else Containers(last["dead"], (), (), (), False)

    def images(self, policy: ImageGC) -> t.Optional[Images]:
        """The result of a pass over images that asks nothing; None where it has to ask."""
        last = self.unchanged(IMAGES)
        if last is None:
            return None
        found = []
        for disk in last["disks"]:
            try:
                space = self.podmans.of(disk["users"][0]).space(disk["path"])
            except PodmanError:
                space = None
            if space is None or space[0] != disk["device"] or space[1] <= 0 or is_full(policy, *space[1:]):
                return None
            found.append(
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
        return Images(tuple(found), (), False)

    def with_uses(self, part: str, records: Records) -> Records:
        """The records, with the images of running containers used now."""
        images = dict(records.images)
        for user, ids in self.kept[part]["running"].items():
            images[user] = gc_records.noted(images.get(user, {}), dict.fromkeys(ids, self.now), self.now)
        return records._replace(images=images)

    def keep_containers(self, observed: container_pass.Observation, policy: ContainerGC, result: Containers) -> None:
        """Keep what a pass over containers found, if later ones would find the same."""
        if result.removed:
            self.kept.pop(IMAGES, None)  # One that was in use may be free now.
        later = container_pass.due(observed, policy, self.now + IDLE_SECONDS)
        acted = result.removed or result.refused or result.errors or result.unfinished
        if acted or later.going or later.dead != result.dead:
            self.kept.pop(CONTAINERS, None)
            return
        containers = [(one.podman.user, container) for one in observed.found for container in one.item.containers]
        self.keep(CONTAINERS, containers, dead=result.dead)

    def keep_images(self, observed: image_pass.Observation, policy: ImageGC, result: Images) -> None:
        """Keep where the storages are, and what a pass over images found, if later ones would find the same."""
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
        """Keep what a pass over a part found, with the stamps of before it, and by user the images of containers that run."""
        self.kept.pop(part, None)
        if self.stamps is None:
            return
        images: dict[str, dict[str, None]] = {}
        for user, one in containers:
            if one.state in RUNNING:
                images.setdefault(user, {})[one.image] = None
        running = {user: list(row) for user, row in images.items()}
        self.kept[part] = {"up": self.up, "now": self.now, "stamps": self.stamps, "running": running, **found}


def is_sound(kept: t.Mapping[str, t.Any]) -> bool:
    """Whether what was kept has the form in which it was written."""
    roots, parts = kept.get("roots"), [kept[name] for name in (IMAGES, CONTAINERS) if name in kept]
    return (
        isinstance(roots, dict)
        and all(isinstance(one, list) and len(one) == 2 for one in roots.values())
        and all(isinstance(one, dict) and {"up", "now", "stamps", "running"} <= one.keys() for one in parts)
        and all({"dead", "disks"} & one.keys() for one in parts)
    )


def is_full(policy: ImageGC, capacity: int, available: int) -> bool:
    """Whether a file system is at ``high`` percent or more."""
    return image_gc.bytes_to_free(capacity, available, image_pass.limits_of(policy)) is not None


def write(host: Host, kept: t.Optional[t.Mapping[str, t.Any]]) -> None:
    """Keep what passes found for the next one; None: nothing is known."""
    with contextlib.suppress(OSError):  # The pass is done, and the next one asks.
        if kept is None and state.there(host, state.GC_IDLE):
            host.remove(state.GC_IDLE)
        elif kept is not None and state.checked(host, state.GC_IDLE) != kept:
            state.write_checked(host, state.GC_IDLE, kept, spare=False)
