# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# This module is private to the collection corral.node.
"""The choice of dead containers to remove: the kubelet's garbage collection (1.36, pkg/kubelet/kuberuntime/kuberuntime_gc.go)."""

from __future__ import annotations

import typing as t

from ..values.records import NamedTuple


class DeadLimits(NamedTuple):
    """The limits for dead containers: the least age in seconds, and the most containers ``per_unit`` and in ``total`` (-1: no limit)."""

    min_age: float = 0
    per_unit: int = 1
    total: int = -1


class Dead(NamedTuple):
    """A dead container, or a pod without a running container.

    ``unit``: a workload (in the kubelet: a container of a pod); the limit ``per_unit`` counts the items of one unit. ``since``: the item's
    age counts from this time (epoch seconds). ``left``: the workload left the profile, so all items of the unit are removed.
    """

    id: str
    unit: t.Hashable
    since: float
    left: bool = False


class Pod(NamedTuple):
    """A pod. ``active``: the pod runs, has containers, or may be about to start. ``left`` as in Dead."""

    id: str
    unit: t.Hashable
    since: float
    active: bool
    left: bool = False


def evict(dead: t.Iterable[Dead], limits: DeadLimits, now: float) -> list[Dead]:
    """The items of ``dead`` to remove, the oldest first."""
    old = [item for item in dead if item.since <= now - limits.min_age]
    going = [item for item in old if item.left]
    units: dict[t.Hashable, list[Dead]] = {}
    for item in newest_first(item for item in old if not item.left):
        units.setdefault(item.unit, []).append(item)
    if limits.per_unit >= 0:
        going += trim(units, limits.per_unit)
    count = sum(map(len, units.values()))
    if 0 <= limits.total < count:
        # First each unit keeps at most the same number of items, so that each unit keeps an item if ``total`` allows one per unit.
        going += trim(units, max(limits.total // len(units), 1))
        kept = newest_first(item for unit in units.values() for item in unit)
        going += kept[limits.total :]
    return newest_first(going)[::-1]


def trim(units: t.Mapping[t.Hashable, list[Dead]], most: int) -> list[Dead]:
    """Remove all items but the ``most`` newest from each unit. Returns the removed items."""
    taken = [item for unit in units.values() for item in unit[most:]]
    for unit in units.values():
        del unit[most:]
    return taken


def newest_first(dead: t.Iterable[Dead]) -> list[Dead]:
    """The items from the newest on; items of the same age keep their order."""
    return sorted(dead, key=lambda item: -item.since)


def evict_pods(pods: t.Iterable[Pod]) -> list[Pod]:
    """The empty pods that are removed: all pods of a unit whose workload left the profile, else all but the newest; never an active pod."""
    units: dict[t.Hashable, list[Pod]] = {}
    for pod in sorted(pods, key=lambda pod: -pod.since):
        units.setdefault(pod.unit, []).append(pod)
    going = [pod for unit in units.values() for pod in (unit if unit[0].left else unit[1:]) if not pod.active]
    return sorted(going, key=lambda pod: pod.since)
