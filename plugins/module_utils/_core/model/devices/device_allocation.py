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
    """Granted devices with their present keys, as far as they are seen: names change with a reboot, ids do not."""
    return tuple(one._replace(keys=tuple(sorted(by_id[one.id].keys))) if one.id in by_id else one for one in granted)


def choose(
    free: t.Iterable[Device],
    count: int,
    nodes: t.Optional[t.Collection[int]] = None,
    *,
    reusable: t.Collection[str] = (),
    kept: t.Collection[str] = (),
) -> tuple[Device, ...]:
    """``count`` of the free devices, sorted by id. Raises TooFew. The ids ``reusable`` and ``kept`` are of free devices.

    First come the devices of ended init containers (``reusable``), then those on the NUMA ``nodes`` of the workload, then those on other
    nodes, then those without a node. In each set the workload's earlier devices (``kept``) come first: a device plugin would prefer them.
    Without ``nodes`` all are one set.
    """
    candidates = list(free)
    if len(candidates) < count:
        raise TooFew(f"{count} asked, {len(candidates)} free")

    def rank(device: Device) -> tuple[t.Any, ...]:
        alignment = 0
        if nodes is not None and device.numa_node not in nodes:
            alignment = 1 if device.numa_node >= 0 else 2
        return device.id not in reusable, alignment, device.id not in kept, device.id

    return tuple(sorted(sorted(candidates, key=rank)[:count], key=lambda device: device.id))


def demand(
    resource: str,
    count: int,
    devices: t.Iterable[Device],
    free: t.Collection[str],
    nodes: t.Iterable[int],
    reusable: t.Collection[str] = (),
) -> t.Optional[Demand]:
    """The demand for a resource, for the topology manager: by NUMA node, how many devices there are, and how many are ``free``.

    None where no device has a node: then there is no preference. ``free`` has the ids, the ``reusable`` ones included. A device without a
    node, or on another node than these, counts on none, as in the kubelet. ``reusable`` devices must be on the chosen nodes.
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
