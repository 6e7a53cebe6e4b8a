# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# This module is private to the collection corral.node.
"""A pass over dead containers and pods."""

from __future__ import annotations

import typing as t

from ..host.podman_cli import Podman, PodmanError, Podmans
from ..model.gc_policy import container_gc, gc_match, gc_records
from ..model.gc_policy.container_gc import Dead, DeadLimits, Pod
from ..model.gc_policy.gc_match import GcItem
from ..model.gc_policy.gc_records import Records
from ..model.gc_policy.podman_json import DEAD, NEVER_STARTED, last_uses
from ..model.profile.profile_gc import ALL, ContainerGC
from ..model.profile.profile_workloads import Workload
from ..model.values.errors import shown
from ..model.values.records import NamedTuple
from . import gc_outcome
from .deadline import Stop
from .gc_outcome import Containers, Removed

# A container or pod that was just made may be about to start.
NEVER_STARTED_SECONDS = 3600.0


class Found(NamedTuple):
    """An item and the user whose Podman has it; ``workload`` None: of no workload. ``left``: its workload left the profile."""

    podman: Podman
    item: GcItem
    workload: t.Optional[Workload]
    left: bool


class Observation(NamedTuple):
    """All items of all storages, what could not be read, and the records with the images that these containers used."""

    found: tuple[Found, ...]
    errors: tuple[str, ...]
    records: Records


def observe(
    podmans: Podmans, users: t.Sequence[str], declared: t.Sequence[Workload], records: Records, now: float, stop: Stop
) -> Observation:
    """Read every storage, and record the images in use before their containers are removed."""
    left = [workload for workload in records.workloads if workload not in declared]
    found: list[Found] = []
    errors: list[str] = []
    uses = dict(records.images)
    for user in users:
        try:
            stop.check(user)
            podman = podmans.of(user)
            # Containers are read last, so that none is missing from a listed pod.
            pods, containers = podman.pods(), podman.containers()
        except PodmanError as error:
            errors.append(str(error))
            continue
        uses[user] = gc_records.noted(uses.get(user, {}), last_uses(containers, now), now)
        for item in gc_match.items(containers, pods):
            own = next((one for one in declared if gc_match.belongs(item, one)), None)
            former = None if own else next((one for one in left if gc_match.belongs(item, one)), None)
            found.append(Found(podman, item, own or former, former is not None))
    # A workload that left the profile stays in the records as long as any of its items exists.
    present = {one.workload for one in found if one.left}
    known = (*declared, *(one for one in left if errors or one in present))
    return Observation(tuple(found), tuple(errors), records._replace(images=uses, workloads=known))


class Due(NamedTuple):
    """The items that go, the first to go first, and how many dead items and pods could."""

    going: tuple[Found, ...]
    dead: int


def due(observed: Observation, policy: ContainerGC, now: float) -> Due:
    """What goes at a time, which may be a later one than that of the observation: then if nothing changes until then.

    The limits are each user's: what a user's Podman says, of names and ages that may be invented, decides about that user's items alone.
    """
    users = dict.fromkeys(one.podman.user for one in observed.found)
    parts = [due_of([one for one in observed.found if one.podman.user == user], policy, now) for user in users]
    return Due(tuple(one for part in parts for one in part.going), sum(part.dead for part in parts))


def due_of(found: t.Sequence[Found], policy: ContainerGC, now: float) -> Due:
    """What goes of one user's items."""
    by_key = {one.item.id: one for one in found if in_scope(one, policy)}
    dead: list[Dead] = []
    pods: list[Pod] = []
    for key, one in by_key.items():
        unit = ("workload", one.workload.name) if one.workload else ("", gc_match.group_of(one.item))
        if one.item.pod is not None:
            # Of a workload's pods the newest stays, an empty one as well: those with containers count in that.
            created = one.item.pod.created
            active = any(of.state not in (*DEAD, *NEVER_STARTED) for of in one.item.containers)
            young = now - created < max(NEVER_STARTED_SECONDS, policy.min_age)
            pods.append(Pod(key, unit, created, bool(one.item.members) or active or young, one.left))
            if not one.item.members:
                continue
        since = dead_since(one.item, now)
        if since is not None:
            dead.append(Dead(key, unit, min(since, now), one.left))
    limits = DeadLimits(policy.min_age, policy.max_per_workload, policy.max_total)
    going = [one.id for one in container_gc.evict(dead, limits, now)]
    going += [pod.id for pod in container_gc.evict_pods(pods)]
    return Due(tuple(by_key[key] for key in going), len(dead) + sum(not pod.active for pod in pods))


def run(observed: Observation, policy: ContainerGC, now: float, stop: Stop, *, dry: bool) -> Containers:
    """Remove the items that are due, or (``dry``) only list them."""
    removed: list[Removed] = []
    refused: list[str] = []
    unfinished = False
    errors = list(observed.errors)
    sound: dict[str, bool] = {}
    going, count = due(observed, policy, now)
    for one in going:
        if stop.now():
            unfinished = True
            break
        if not dry and not is_sound(one.podman, sound, errors):
            continue
        if one.podman.removals < 1:
            continue
        one.podman.removals -= 1
        user = one.podman.user
        said = "" if dry else one.podman.remove_item(one.item, volumes=policy.volumes)
        if said:
            refused.append(gc_outcome.brief(user, said))
            continue
        what = "pod" if one.item.pod else "container"
        removed.append(gc_outcome.removed_of(user, one.item.id, (f"{what} {one.item.name}",), 0, why(one, policy)))
    return Containers(count, tuple(removed), tuple(refused), tuple(errors), unfinished)


def is_sound(podman: Podman, known: dict[str, bool], errors: list[str]) -> bool:
    """Whether a storage is reliable: Podman lists the containers of a broken one without an error."""
    if podman.user not in known:
        try:
            podman.images()
            known[podman.user] = True
        except PodmanError as error:
            known[podman.user] = False
            errors.append(str(error))
    return known[podman.user]


def in_scope(one: Found, policy: ContainerGC) -> bool:
    """Whether an item may be removed at all."""
    if gc_match.kept(one.item, policy.keep, policy.keep_labels):
        return False
    return one.workload is not None or policy.scope == ALL


def dead_since(item: GcItem, now: float) -> t.Optional[float]:
    """When the last part of an item stopped; None while something of it runs or is about to start."""
    moments = []
    for one in item.containers:
        if one.state in NEVER_STARTED:
            if not one.infra and now - one.created < NEVER_STARTED_SECONDS:
                return None
        elif one.state not in DEAD:
            return None
        moments.append(one.ended or one.created)
    return max(moments, default=None)


def why(one: Found, policy: ContainerGC) -> str:
    """Why an item is removed."""
    if one.left and one.workload:
        return f"the workload {one.workload.name} left the profile"
    if one.item.pod is not None and not one.item.members:
        return "an empty pod beside a newer one"
    owner = one.workload.name if one.workload else shown(gc_match.group_of(one.item))
    total = f", {policy.max_total} in all" if policy.max_total >= 0 else ""
    most = f"{policy.max_per_workload} dead ones of {owner} are kept" if policy.max_per_workload >= 0 else owner
    return f"{most}{total}"
