# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# This module is private to the collection corral.node.
"""Which dead containers go: the kubelet's container garbage collection (1.36, pkg/kubelet/kuberuntime/kuberuntime_gc.go)."""

from __future__ import annotations

import typing as t

from ..values.records import NamedTuple


class Limits(NamedTuple):
    """``min_age`` in seconds; the most dead ones per unit and in all, -1: no limit."""

    min_age: float = 0
    per_unit: int = 1
    total: int = -1


class Dead(NamedTuple):
    """A dead container, or a pod of which nothing runs any more.

    ``unit`` is what it counts with: its workload (the kubelet: pod and container name). ``since`` is its age's begin in
    epoch seconds. ``left`` says that its workload left the profile: then all of the unit go.
    """

    id: str
    unit: t.Hashable
    since: float
    left: bool = False


class Pod(NamedTuple):
    """A pod without containers of its own; an ``active`` one runs, or has some. ``left`` as above."""

    id: str
    unit: t.Hashable
    since: float
    active: bool
    left: bool = False


def evict(dead: t.Iterable[Dead], limits: Limits, now: float) -> list[Dead]:
    """Those that go, the oldest first."""
    old = [one for one in dead if one.since <= now - limits.min_age]
    going = [one for one in old if one.left]
    units: dict[t.Hashable, list[Dead]] = {}
    for one in newest_first(one for one in old if not one.left):
        units.setdefault(one.unit, []).append(one)
    if limits.per_unit >= 0:
        going += trim(units, limits.per_unit)
    count = sum(map(len, units.values()))
    if 0 <= limits.total < count:
        # Something is left of every unit as long as there is room for that.
        going += trim(units, max(limits.total // len(units), 1))
        kept = newest_first(one for unit in units.values() for one in unit)
        going += kept[limits.total :]
    return newest_first(going)[::-1]


def trim(units: t.Mapping[t.Hashable, list[Dead]], most: int) -> list[Dead]:
    """Take all but the ``most`` newest out of each unit."""
    taken = [one for unit in units.values() for one in unit[most:]]
    for unit in units.values():
        del unit[most:]
    return taken


def newest_first(dead: t.Iterable[Dead]) -> list[Dead]:
    """By age; of the same age as they come."""
    return sorted(dead, key=lambda one: -one.since)


def evict_pods(pods: t.Iterable[Pod]) -> list[Pod]:
    """The empty pods that go: all of a unit that left, else all but its newest; never an active one."""
    units: dict[t.Hashable, list[Pod]] = {}
    for pod in sorted(pods, key=lambda pod: -pod.since):
        units.setdefault(pod.unit, []).append(pod)
    going = [pod for unit in units.values() for pod in (unit if unit[0].left else unit[1:]) if not pod.active]
    return sorted(going, key=lambda pod: pod.since)
