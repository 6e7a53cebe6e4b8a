# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# This module is private to the collection corral.node.
"""A pass over dead containers and pods."""

from __future__ import annotations

import typing as t

from ..host.containers.podman_cli import Podman, PodmanError, Podmans
from ..model.containers.podman_json import DEAD, NEVER_STARTED, last_uses
from ..model.gc import container_gc, gc_match, gc_records
from ..model.gc.container_gc import Dead, DeadLimits, Pod
from ..model.gc.gc_match import GcItem
from ..model.gc.gc_records import Records
from ..model.profile.profile_gc import ALL, ContainerGC
from ..model.profile.profile_workloads import Workload
from ..model.values.errors import shown
from ..model.values.records import NamedTuple
from . import gc_outcome
from .deadline import Stop
from .gc_outcome import Containers, Removed

# A container or pod that never started may still start until this age (seconds).
NEVER_STARTED_SECONDS = 3600.0


class Found(NamedTuple):
    """An item with its user's Podman. ``workload``: None for an item of no workload. ``left``: its workload left the profile."""

    podman: Podman
    item: GcItem
    workload: t.Optional[Workload]
    left: bool


class ObservedContainers(NamedTuple):
    """All items of all storages, the errors of unreadable storages, and the records with the images that the containers used."""

    found: tuple[Found, ...]
    errors: tuple[str, ...]
    records: Records


def observe(
    podmans: Podmans, users: t.Sequence[str], declared: t.Sequence[Workload], records: Records, now: float, stop: Stop
) -> ObservedContainers:
    """Read every storage, and record the images in use before a pass removes their containers."""
    left = [workload for workload in records.workloads if workload not in declared]
    items: list[Found] = []
    errors: list[str] = []
    uses = dict(records.images)
    for user in users:
        try:
            stop.check(user)
            podman = podmans.of(user)
            # Containers are read last, so that no listed pod misses one of its containers.
            pods, containers = podman.pods(), podman.containers()
        except PodmanError as error:
            errors.append(str(error))
            continue
        uses[user] = gc_records.noted(uses.get(user, {}), last_uses(containers, now), now)
        for item in gc_match.items(containers, pods):
            own = next((workload for workload in declared if gc_match.belongs(item, workload)), None)
            former = None if own else next((workload for workload in left if gc_match.belongs(item, workload)), None)
            items.append(Found(podman, item, own or former, former is not None))
    # A workload that left the profile stays in the records as long as any of its items exists.
    present = {row.workload for row in items if row.left}
    known = (*declared, *(workload for workload in left if errors or workload in present))
    return ObservedContainers(tuple(items), tuple(errors), records._replace(images=uses, workloads=known))


class Due(NamedTuple):
    """The items to remove, in the order of removal; ``dead``: the number of all dead items and empty pods."""

    going: tuple[Found, ...]
    dead: int


def due(observed: ObservedContainers, policy: ContainerGC, now: float) -> Due:
    """The items that are due at ``now``. For a future ``now``: the items that will be due at that time if nothing changes.

    Limits count per user: the names and ages that a user's Podman invents affect only the items of the same user.
    """
    users = dict.fromkeys(row.podman.user for row in observed.found)
    parts = [due_of([row for row in observed.found if row.podman.user == user], policy, now) for user in users]
    return Due(tuple(row for part in parts for row in part.going), sum(part.dead for part in parts))


def due_of(rows: t.Sequence[Found], policy: ContainerGC, now: float) -> Due:
    """The items of one user that are due."""
    by_key = {row.item.id: row for row in rows if in_scope(row, policy)}
    dead: list[Dead] = []
    pods: list[Pod] = []
    for key, row in by_key.items():
        unit = ("workload", row.workload.name) if row.workload else ("", gc_match.group_of(row.item))
        if row.item.pod is not None:
            # The newest pod of a workload stays, even if it is empty. A pod with containers may be the newest pod, too.
            created = row.item.pod.created
            active = any(container.state not in (*DEAD, *NEVER_STARTED) for container in row.item.containers)
            young = now - created < max(NEVER_STARTED_SECONDS, policy.min_age)
            pods.append(Pod(key, unit, created, bool(row.item.members) or active or young, row.left))
            if not row.item.members:
                continue
        since = dead_since(row.item, now)
        if since is not None:
            dead.append(Dead(key, unit, min(since, now), row.left))
    limits = DeadLimits(policy.min_age, policy.max_per_workload, policy.max_total)
    going = [item.id for item in container_gc.evict(dead, limits, now)]
    going += [pod.id for pod in container_gc.evict_pods(pods)]
    return Due(tuple(by_key[key] for key in going), len(dead) + sum(not pod.active for pod in pods))


def run(observed: ObservedContainers, policy: ContainerGC, now: float, stop: Stop, *, dry: bool) -> Containers:
    """Remove the items that are due, or (``dry``) only list them."""
    removed: list[Removed] = []
    refused: list[str] = []
    unfinished = False
    errors = list(observed.errors)
    sound: dict[str, bool] = {}
    going, count = due(observed, policy, now)
    for row in going:
        if stop.now():
            unfinished = True
            break
        if not dry and not is_sound(row.podman, sound, errors):
            continue
        if row.podman.removals < 1:
            continue
        row.podman.removals -= 1
        user = row.podman.user
        said = "" if dry else row.podman.remove_item(row.item, volumes=policy.volumes)
        if said:
            refused.append(gc_outcome.brief(user, said))
            continue
        what = "pod" if row.item.pod else "container"
        removed.append(gc_outcome.removed_of(user, row.item.id, (f"{what} {row.item.name}",), 0, why(row, policy)))
    return Containers(count, tuple(removed), tuple(refused), tuple(errors), unfinished)


def is_sound(podman: Podman, known: dict[str, bool], errors: list[str]) -> bool:
    """Whether a storage is sound, so that Podman can list images: Podman lists the containers of a broken storage without an error."""
    if podman.user not in known:
        try:
            podman.images()
            known[podman.user] = True
        except PodmanError as error:
            known[podman.user] = False
            errors.append(str(error))
    return known[podman.user]


def in_scope(row: Found, policy: ContainerGC) -> bool:
    """Whether the keep-lists and the scope of the policy allow the removal of an item."""
    if gc_match.kept(row.item, policy.keep, policy.keep_labels):
        return False
    return row.workload is not None or policy.scope == ALL


def dead_since(item: GcItem, now: float) -> t.Optional[float]:
    """When the last part of an item stopped; None while a part of it runs or may be about to start."""
    moments = []
    for container in item.containers:
        if container.state in NEVER_STARTED:
            if not container.infra and now - container.created < NEVER_STARTED_SECONDS:
                return None
        elif container.state not in DEAD:
            return None
        moments.append(container.ended or container.created)
    return max(moments, default=None)


def why(row: Found, policy: ContainerGC) -> str:
    """Why an item is removed."""
    if row.left and row.workload:
        return f"the workload {row.workload.name} left the profile"
    if row.item.pod is not None and not row.item.members:
        return "an empty pod beside a newer one"
    owner = row.workload.name if row.workload else shown(gc_match.group_of(row.item))
    total = f", {policy.max_total} in all" if policy.max_total >= 0 else ""
    most = f"{policy.max_per_workload} dead ones of {owner} are kept" if policy.max_per_workload >= 0 else owner
    return f"{most}{total}"
