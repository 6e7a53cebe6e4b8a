# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# This module is private to the collection corral.node.
"""A pass over images: observe, decide, remove an image, measure the freed bytes, and repeat until enough is free."""

from __future__ import annotations

import typing as t

from ..host.containers.podman_cli import Podman, PodmanError, Podmans
from ..host.files import Host
from ..model.containers.podman_json import ListedContainer, ListedImage, last_uses
from ..model.gc import gc_match, gc_records, image_gc
from ..model.gc.gc_records import Records
from ..model.gc.image_gc import Image
from ..model.gc.image_layers import Layers
from ..model.profile.profile_gc import ImageGC
from ..model.values import duration
from ..model.values.records import NamedTuple
from . import gc_outcome
from .deadline import Stop
from .gc_outcome import FileSystem, Images, Removed

# XFS and btrfs free the space a moment after a file is removed.
SPACE_SECONDS = 2.0
SPACE_STEP = 0.05
# A pass reads Podman's events since EVENTS_SLACK before the last pass, but at most the events of the last EVENTS_SECONDS.
EVENTS_SECONDS = 7 * 86400.0
EVENTS_SLACK = 60.0
MOST_OF_IT = 0.9  # the share of the expected bytes (sizes of layers) for which a removal waits


class Storage(NamedTuple):
    """The observed images and containers of a user."""

    podman: Podman
    root: str
    driver: str
    images: tuple[ListedImage, ...]
    containers: tuple[ListedContainer, ...]
    layers: t.Optional[Layers]
    space: tuple[int, int] = (0, 0)  # all bytes and the free bytes of the storage's file system


class ObservedStorages(NamedTuple):
    """The storages by file system (device), the errors, and the updated records."""

    by_device: dict[int, list[Storage]]
    errors: tuple[str, ...]
    records: Records


def observe(podmans: Podmans, users: t.Sequence[str], records: Records, now: float, stop: Stop) -> ObservedStorages:
    """Read every storage, and record the uses of images."""
    by_device: dict[int, list[Storage]] = {}
    errors: list[str] = []
    uses = dict(records.images)
    complete = True
    for user in users:
        try:
            stop.check(user)
            podman = podmans.of(user)
            events = podman.recent_uses(max(records.observed - EVENTS_SLACK, now - EVENTS_SECONDS))
            storage = read_storage(podman)
            space = podman.space(storage.root)
            if space is None or space[1] <= 0:
                raise PodmanError(
                    f"{storage.root}: the file system of {user}'s images reports no size: nothing is removed"
                )
        except PodmanError as error:
            errors.append(str(error))
            complete = False
            continue
        recent, complete = events or {}, complete and events is not None
        by_device.setdefault(space[0], []).append(storage._replace(space=space[1:]))
        used = last_uses(storage.containers, now)
        for image in storage.images:
            moments = [recent[name] for name in (image.id, *image.names) if name in recent]
            if moments:
                used[image.id] = max([*moments, used.get(image.id, 0.0)])
        uses[user] = gc_records.seen(uses.get(user, {}), (image.id for image in storage.images), used, now)
    known = {user: row for user, row in uses.items() if user in users}
    # Without a record of any image, the observation of uses begins now.
    since = records.since if any(records.images.values()) else now
    # Unreadable events are requested again by the next pass.
    until = now if complete else records.observed
    return ObservedStorages(by_device, tuple(errors), records._replace(images=known, since=since, observed=until))


def read_storage(podman: Podman) -> Storage:
    """The storage of one Podman. Raises PodmanError.

    Containers are read last, so that an image counts as used if a container starts during the reads.
    """
    images = tuple(podman.images())
    root, driver = podman.store(images)
    return Storage(podman, root, driver, images, tuple(podman.containers()), podman.layers(root, driver))


def too_old_by(observed: ObservedStorages, policy: ImageGC, moment: float) -> bool:
    """Whether an image will be too old at ``moment`` if it stays unused."""
    limits, watched = limits_of(policy), moment - observed.records.since
    passes = (images_of(storages, policy, observed.records) for storages in observed.by_device.values())
    return any(image_gc.too_old(image_gc.candidates(images), limits, moment, watched) for images in passes)


def limits_of(policy: ImageGC) -> image_gc.ImageLimits:
    """The limits that the profile declares."""
    return image_gc.ImageLimits(policy.high, policy.low, policy.min_age, policy.max_age)


def images_of(storages: t.Sequence[Storage], policy: ImageGC, records: Records) -> list[Image]:
    """The images of storages with their recorded uses. The id of each image in the result is USER/ID."""
    images = []
    for storage in storages:
        uses = records.images[storage.podman.user]
        busy = {container.image for container in storage.containers}
        for image in storage.images:
            pinned = image.read_only or gc_match.keeps_image(policy.keep, image) is not None
            use = uses[image.id]
            key = f"{storage.podman.user}/{image.id}"
            images.append(Image(key, image.size, image.id in busy, pinned, use.first, use.last))
    return images


def run(host: Host, policy: ImageGC, observed: ObservedStorages, now: float, stop: Stop, *, dry: bool) -> Images:
    """Remove the images that are due on each file system, or (``dry``) only list them."""
    errors, done, unfinished = list(observed.errors), [], False
    for storages in observed.by_device.values():
        disk = Pass(host, policy, storages, observed.records, now, stop)
        try:
            disk.run(dry=dry)
        except PodmanError as error:
            errors.append(str(error))
        done.append(disk.result())
        unfinished = unfinished or disk.unfinished
    return Images(tuple(done), tuple(errors), unfinished)


class Pass:
    """The pass over one file system with all its storages."""

    def __init__(
        self, host: Host, policy: ImageGC, storages: t.Sequence[Storage], records: Records, now: float, stop: Stop
    ) -> None:
        self.host, self.policy, self.storages, self.now, self.stop = host, policy, storages, now, stop
        self.limits = limits_of(policy)
        self.watched = now - records.since
        self.listed = {
            f"{storage.podman.user}/{image.id}": (storage, image) for storage in storages for image in storage.images
        }
        self.images = images_of(storages, policy, records)
        self.removed: list[Removed] = []
        self.refused: list[str] = []
        self.tried: set[str] = set()
        self.asked = self.gained = 0
        self.capacity, self.begun = storages[0].space
        self.available = self.begun
        self.unfinished = False

    def run(self, *, dry: bool) -> None:
        """Remove the images that are due, or (``dry``) only list them. Raises PodmanError if the free bytes cannot be measured."""
        if self.limits.off:
            return
        free = image_gc.candidates(self.images)
        for image in image_gc.too_old(free, self.limits, self.now, self.watched):
            self.remove(image, f"not used for {duration.text(self.policy.max_age)}", dry=dry)
        self.measure(dry=dry)
        free = [image for image in free if image.id not in self.tried]
        asked = image_gc.bytes_to_free(self.capacity, self.available, self.limits)
        if asked:
            self.asked, self.gained = asked, 0
            reason = f"the disk is {image_gc.used_percent(self.capacity, self.available)} % full"
            image_gc.free(free, asked, self.limits, self.now, lambda image: self.remove(image, reason, dry=dry))
        self.measure(dry=dry)

    def result(self) -> FileSystem:
        """The result of the pass, even if the pass ended early."""
        short = max(self.asked - self.gained, 0)
        return FileSystem(
            path=self.storages[0].root,
            users=tuple(storage.podman.user for storage in self.storages),
            capacity=self.capacity,
            available_before=self.begun,
            available=self.available,
            high=self.policy.high,
            low=self.policy.low,
            asked=self.asked,
            short=short,
            why=self.why_short() if short else "",
            images=len(self.images),
            removed=tuple(self.removed),
            refused=tuple(self.refused),
        )

    def space(self) -> int:
        """The free bytes of the file system. Raises PodmanError."""
        space = self.storages[0].podman.space(self.storages[0].root)
        if space is None or space[1] <= 0:
            raise PodmanError(f"{self.storages[0].root}: its file system cannot be measured: nothing more is removed")
        return space[2]

    def measure(self, *, dry: bool) -> None:
        """Record the free bytes; in a dry run, the bytes that would be free after the listed removals."""
        self.available = self.begun + sum(image.bytes for image in self.removed) if dry else self.space()

    def remove(self, image: Image, reason: str, *, dry: bool) -> t.Optional[int]:
        """Remove an image. Returns the freed bytes, or (``dry``) the bytes that a removal would free; None if the image stays."""
        if self.stop.now():
            self.unfinished = True
            return None
        self.tried.add(image.id)
        storage, listed = self.listed[image.id]
        user = storage.podman.user
        if storage.podman.removals < 1:
            return None
        storage.podman.removals -= 1
        promised = storage.layers.gain(listed.id) if storage.layers else None
        promised = listed.size if promised is None else promised
        gained = promised
        if not dry:
            before = self.space()
            refused = storage.podman.remove_image(listed)
            if refused:
                self.refused.append(gc_outcome.brief(user, refused))
                return None
            gained = 0
        try:
            if not dry:
                begun = self.host.uptime()
                gained = self.space_after_removal(before, promised) - before
                storage.podman.left -= self.host.uptime() - begun  # The wait counts as the user's time.
        finally:  # The image is removed, even if the freed bytes cannot be measured.
            self.removed.append(gc_outcome.removed_of(user, listed.id, listed.names, max(gained, 0), reason))
        if storage.layers:
            storage.layers.remove(listed.id)
        self.gained += gained
        return gained

    def space_after_removal(self, before: int, promised: int) -> int:
        """The free bytes after a removal. Waits until about the ``promised`` bytes are free, at most SPACE_SECONDS."""
        until = self.host.uptime() + SPACE_SECONDS
        while True:
            available = self.space()
            if available - before >= promised * MOST_OF_IT or self.host.uptime() >= until:
                return available
            self.stop.wait(SPACE_STEP)

    def why_short(self) -> str:
        """Why no more images can be removed."""
        young = [image for image in image_gc.candidates(self.images) if image_gc.is_young(image, self.limits, self.now)]
        parts = [
            (sum(image.in_use for image in self.images), "in use"),
            (sum(image.pinned and not image.in_use for image in self.images), "kept"),
            (len(young), f"younger than {duration.text(self.policy.min_age)}"),
            (len(self.refused), "refused"),
        ]
        said = ", ".join(f"{count} {what}" for count, what in parts if count)
        return f"of {len(self.images)} images {said or 'all that may be removed are removed'}"
