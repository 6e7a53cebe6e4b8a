# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# This module is private to the collection corral.node.
"""The devices of each workload, and an index by the keys that only one workload can have."""

from __future__ import annotations

import typing as t

from .device import Device, GrantedDevice, around


class HeldDevices:
    """The devices of each workload. The id of a device and each of its last known keys belong to one workload."""

    def __init__(self) -> None:
        self.by_workload: dict[str, tuple[GrantedDevice, ...]] = {}
        self.holders: dict[str, set[str]] = {}  # by key, the workloads whose devices have the key
        self.around: dict[str, set[str]] = {}  # by folder in sysfs, the workloads with a device below the folder

    def give(self, workload: str, devices: tuple[GrantedDevice, ...]) -> None:
        """Give a workload these devices and no others."""
        for holders, keys in self.places(self.by_workload.pop(workload, ())):
            for key in keys:
                holders[key].discard(workload)
        if devices:
            self.by_workload[workload] = devices
        for holders, keys in self.places(devices):
            for key in keys:
                holders.setdefault(key, set()).add(workload)

    def places(self, devices: t.Iterable[GrantedDevice]) -> tuple[tuple[dict[str, set[str]], t.Iterable[str]], ...]:
        """The index ``holders`` with the keys of the devices, and the index ``around`` with the sysfs folders above the devices."""
        keys = frozenset(key for one in devices for key in (one.id, *one.keys))
        return (self.holders, keys), (self.around, around(key for key in keys if key.startswith("devices/")))

    def other_has(self, key: str, workload: str) -> bool:
        """Whether another workload has a device with this key."""
        return any(holder != workload for holder in self.holders.get(key, ()))

    def other_shares(self, device: Device, workload: str) -> bool:
        """Whether another workload has the device, a part of the device, or a device that contains the device."""
        own = device.keys | {device.id}
        if any(self.other_has(key, workload) for key in (*own, *device.within)):
            return True
        return any(holder != workload for key in own for holder in self.around.get(key, ()))
