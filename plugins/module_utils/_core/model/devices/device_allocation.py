# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# This module is private to the collection corral.node.
"""The choice of a resource's devices for a container, and the demand for their NUMA nodes: the kubelet's device manager (1.36).

The kubelet takes the devices of each set in the random order of a Go map; Corral takes the devices in the order of their ids.
"""

from __future__ import annotations

import typing as t

from ..numa.node_sets import Demand
from .device import Device, GrantedDevice


class TooFew(ValueError):
    """Fewer devices are free than a container requests."""


def refreshed(granted: t.Iterable[GrantedDevice], by_id: t.Mapping[str, Device]) -> tuple[GrantedDevice, ...]:
    """The granted devices. A device that the node has now gets its present keys, since a reboot may change names, but not ids."""
    return tuple(one._replace(keys=tuple(sorted(by_id[one.id].keys))) if one.id in by_id else one for one in granted)


def choose(
    free: t.Iterable[Device],
    count: int,
    nodes: t.Optional[t.Collection[int]] = None,
    *,
    reusable: t.Collection[str] = (),
    kept: t.Collection[str] = (),
) -> tuple[Device, ...]:
    """``count`` of the free devices, sorted by id. Raises TooFew. ``reusable`` and ``kept`` are ids of free devices.

    First come the devices of ended init containers (``reusable``), then devices on the NUMA ``nodes`` of the workload, then devices on
    other nodes, then devices without a node. In each of these sets the workload's earlier devices (``kept``) come first, as a device plugin
    would choose. If ``nodes`` is None, the NUMA nodes do not count.
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
    """The demand for a resource, for the topology manager: by NUMA node, the number of all devices and of the ``free`` devices.

    None if no device has a node, so that no node is preferred. ``free`` has ids, also the ids of ``reusable`` devices. A device without a
    node, or on a node outside of ``nodes``, counts for no node, as in the kubelet. ``reusable`` devices must be on the chosen nodes.
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
