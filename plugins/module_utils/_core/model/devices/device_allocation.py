# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# This module is private to the collection corral.node.
"""Which devices of a resource a container gets, and on which NUMA nodes they are: the kubelet's device manager (1.36).

Inside each of its sets the kubelet follows the order of a Go map, which is random; here a set is in the order of its ids.
"""

from __future__ import annotations

import typing as t

from ..numa.node_sets import Demand
from .device import Device, GrantedDevice


class TooFew(ValueError):
    """Fewer devices are free than are asked for."""


def refreshed(granted: t.Iterable[GrantedDevice], by_id: t.Mapping[str, Device]) -> tuple[GrantedDevice, ...]:
    """Granted devices with the keys that they have now, as far as they are seen: names change with a reboot, ids do not."""
    return tuple(one._replace(keys=tuple(sorted(by_id[one.id].keys))) if one.id in by_id else one for one in granted)


def choose(
    free: t.Iterable[Device],
    count: int,
    nodes: t.Optional[t.Collection[int]] = None,
    *,
    reusable: t.Collection[str] = (),
    kept: t.Collection[str] = (),
) -> tuple[Device, ...]:
    """``count`` of the free devices, by id; those that the ids ``reusable`` and ``kept`` name are among the free ones.

    First come the devices of init containers that are over (``reusable``), then those on the NUMA ``nodes`` of the workload, then
    those on other nodes, then those without a node. Of each set those that the workload had before (``kept``) come first: they
    are what a device plugin would prefer. Without ``nodes`` all are one set. Raises TooFew.
    """
    found = list(free)
    if len(found) < count:
        raise TooFew(f"{count} asked, {len(found)} free")

    def rank(device: Device) -> tuple[t.Any, ...]:
        alignment = 0
        if nodes is not None and device.numa_node not in nodes:
            alignment = 1 if device.numa_node >= 0 else 2
        return device.id not in reusable, alignment, device.id not in kept, device.id

    return tuple(sorted(sorted(found, key=rank)[:count], key=lambda device: device.id))


def demand(
    resource: str,
    count: int,
    devices: t.Iterable[Device],
    free: t.Collection[str],
    nodes: t.Iterable[int],
    reusable: t.Collection[str] = (),
) -> t.Optional[Demand]:
    """What the topology manager merges for a resource: how many devices each NUMA node has, and how many of them are ``free`` (ids,
    the ``reusable`` ones included). None where no device has a node: then there is no preference.

    A device without a node, or on another one than these, counts on none, as in the kubelet; ``reusable`` devices must be on the nodes that are chosen.
    """
    capacity = dict.fromkeys(nodes, 0)
    with_node = [device for device in devices if device.numa_node in capacity]
    if not with_node:
        return None
    for device in with_node:
        capacity[device.numa_node] += 1
    left = dict.fromkeys(capacity, 0)
    for device in with_node:
        left[device.numa_node] += device.id in free
    pinned = frozenset(device.numa_node for device in with_node if device.id in reusable)
    return Demand(resource, count, capacity, left, pinned)
