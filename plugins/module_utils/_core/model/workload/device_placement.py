# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# This module is private to the collection corral.node.
"""The devices of a workload: which devices its containers get, and whether a grant can keep its devices.

A running workload keeps its devices even if a device is gone or unhealthy: an open device stays open, and the environment of a process or
the devices of a container can no longer be changed.
"""

from __future__ import annotations

import collections
import typing as t

from ..devices import device_allocation
from ..devices.device import Device, GrantedDevice, identity, is_same, is_still
from ..devices.device_delivery import PCI_ADDRESS
from ..numa.node_sets import Demand
from ..profile.profile_workloads import INIT
from .grants import Grant
from .node_budget import NodeBudget, Refused
from .resource_requirements import ResourceRequirements
from .resources import Amounts

LISTED = 8  # the most devices that a message names


class DevicePool:
    """The devices that a workload may get: the free devices, and the devices of its grant ``before``.

    Containers take devices from the pool in the order in which the containers start. A ``running`` workload keeps its devices.
    """

    def __init__(
        self, budget: NodeBudget, need: ResourceRequirements, before: t.Optional[Grant], *, running: bool
    ) -> None:
        """Raises Refused if there are too few devices for the workload as a whole."""
        self.budget = budget
        self.name = need.workload.name
        self.before = before.devices if before else ()
        self.running = running
        self.resources = need.device_resources
        own = {one.id for one in self.before} if running else set()
        self.free = {
            resource: [one for one in free_devices(budget, resource, need.workload.name) if one.id not in own]
            for resource in self.resources
        }
        self.reusable: dict[str, set[str]] = {}
        self.taken: list[GrantedDevice] = []
        asked = dict(need.requests)
        for resource in self.resources:
            had = {one.id for one in self.before if one.resource == resource} if running else set()
            able = had.union(one.id for one in self.free[resource])
            if asked[resource] > len(able):
                raise Refused(
                    key_of(resource), str(asked[resource]), self.why_few(resource, asked[resource], len(able))
                )

    def why_few(self, resource: str, asked: int, able: int) -> str:
        """A text: how many devices are missing, which workloads have devices, and which devices cannot be granted."""
        if resource not in self.budget.inputs.devices:
            return "no such resource is declared here: declare it in devices of the node's profile"
        devices = self.budget.inputs.devices[resource]
        notes = [
            f"{name} has {named(one.id for one in held if one.resource == resource)}"
            for name, held in self.budget.devices.by_workload.items()
            if name != self.name and any(one.resource == resource for one in held)
        ]
        unhealthy = [one.id for one in devices if one.unhealthy]
        notes += [f"unhealthy: {named(unhealthy)}"] if len(unhealthy) > LISTED else []
        why = (f"{one.id}{'' if one.bind else ':'} {one.unhealthy}" for one in devices if one.unhealthy)
        notes += list(why)[:LISTED]
        elsewhere = self.budget.inputs.devices_elsewhere.get(resource, ())
        notes += elsewhere[:LISTED]
        there = f"of {len(devices)} devices {able} can be given" if devices else "no device of this node matches"
        there = "all that match are in other resources" if elsewhere and not devices else there
        holders = f" ({'; '.join(notes)})" if notes else ""
        held = any(one.resource == resource for held in self.budget.devices.by_workload.values() for one in held)
        hint = "narrow one of the two matches" if elsewhere else "correct the match in devices"
        hint = "release one of them" if held else "repair one of them" if unhealthy else hint
        return f"{asked - able} missing: {there}{holders}: ask for fewer, or {hint} (corral devices)"

    def had(self, container: str, resource: str) -> set[str]:
        """The ids of the devices of a resource that the container ``container`` had in the grant before."""
        return {one.id for one in self.before if (one.container, one.resource) == (container, resource)}

    def whole(self, need: ResourceRequirements, nodes: t.Sequence[int]) -> list[Demand]:
        """The demands for devices of the workload as a whole."""
        asked = dict(need.requests)
        kept = {name: {row.id for row in self.before if row.resource == name} for name in self.resources}
        return [row for name in self.resources for row in self.demand(name, asked[name], kept[name], set(), nodes)]

    def of_container(self, container: str, amounts: Amounts, nodes: t.Sequence[int]) -> list[Demand]:
        """The demands for devices of the next container."""
        demands = []
        for resource, count in amounts:
            reusable = self.reusable.get(resource, set())
            demands += self.demand(resource, count, self.had(container, resource), reusable, nodes)
        return demands

    def demand(
        self, resource: str, count: int, had: t.Collection[str], reusable: t.Collection[str], nodes: t.Sequence[int]
    ) -> list[Demand]:
        """The demand for devices of a resource; empty if no device is needed. The demand of a running workload includes its devices."""
        devices = self.budget.inputs.devices.get(resource, ())
        free = {one.id for one in self.free[resource]} | set(reusable)
        pinned = set(reusable)
        if self.running and had:
            count = max(count, len(had))
            pinned = pinned.union(had)
            free |= pinned
            # A device that is gone needs no NUMA node.
            count -= len(pinned - {one.id for one in devices})
        demand = device_allocation.demand(resource, count, devices, free, nodes, pinned) if count > 0 else None
        return [demand] if demand is not None else []

    def take(self, container: str, role: str, amounts: Amounts, nodes: t.Optional[t.Collection[int]]) -> None:
        """Choose the devices of the next container. Raises Refused."""
        devices = self.budget.inputs.devices
        for resource, count in amounts:
            reusable, had = self.reusable.setdefault(resource, set()), self.had(container, resource)
            kept = tuple(one for one in self.before if (one.container, one.resource) == (container, resource))
            kept = kept if self.running else ()
            known = {one.id: one for one in devices.get(resource, ())}
            free = [*self.free[resource], *(known[name] for name in sorted(reusable) if name in known)]
            free = [one for one in free if one.id not in {row.id for row in kept}]
            try:
                more = device_allocation.choose(free, max(count - len(kept), 0), nodes, reusable=reusable, kept=had)
            except device_allocation.TooFew as error:
                raise Refused(key_of(resource), str(count), f"{error}: ask for fewer") from None
            own = [*kept, *(GrantedDevice(container, resource, one.id, tuple(sorted(one.keys))) for one in more)]
            self.taken += sorted(own)
            names = {one.id for one in own}
            self.free[resource] = [one for one in self.free[resource] if one.id not in names]
            self.reusable[resource] = reusable | names if role == INIT else reusable - names


def free_devices(budget: NodeBudget, resource: str, workload: str) -> list[Device]:
    """The devices of a resource that a workload can get: healthy devices that no other workload has."""
    devices = budget.inputs.devices.get(resource, ())
    return [one for one in devices if not one.unhealthy and not budget.devices.other_shares(one, workload)]


def followed(
    granted: t.Sequence[Grant],
    devices: t.Mapping[str, t.Iterable[Device]],
    undeclared: t.Iterable[Device] = (),
    running: t.Container[str] = (),
) -> list[Grant]:
    """The grants with the present ids of their devices.

    A grant is for a device, not for an id: a changed match may find the device under another id, and a new CDI spec may give the id to
    another device. Of the ``undeclared`` devices, which no resource matches any more, only devices of CDI specs are followed.
    """
    known = {device.id: device for device in undeclared if device.cdi}
    known.update((device.id, device) for several in devices.values() for device in several)
    names = DeviceIds(granted, known, running)
    return [
        grant._replace(devices=tuple(names.now(grant.workload, row) for row in grant.devices))
        if grant.devices
        else grant
        for grant in granted
    ]


class DeviceIds:
    """The present ids of granted devices, among the ``known`` devices of the node."""

    def __init__(self, granted: t.Sequence[Grant], known: t.Mapping[str, Device], running: t.Container[str]) -> None:
        self.known = known
        self.running = running
        self.rows = [(row, identity(row)) for grant in granted for row in grant.devices]
        self.owners = {
            row.id: grant.workload
            for grant in granted
            for row in grant.devices
            if row.id in known and is_still(identity(row), known[row.id])
        }
        self.files = {file for device in known.values() for file in device.files}

    def is_granted(self, device: Device, own: frozenset[str]) -> bool:
        """Whether ``device`` is granted under another identity than ``own``."""
        others = ((row, keys) for row, keys in self.rows if keys != own)
        return any(is_same(row, device) or not keys.isdisjoint(identity(device)) for row, keys in others)

    def now(self, workload: str, granted: GrantedDevice) -> GrantedDevice:
        """A granted device with its present id.

        A device that is not found keeps its id, with two exceptions: another granted device now has this id, or the workload runs and a CDI
        spec has given this id to another device (the process uses the files of the granted device). Then the id is the device's address or
        file.
        """
        own, device = identity(granted), self.known.get(granted.id)
        if device is not None and is_still(own, device):
            return granted
        same = next((other for other in self.known.values() if is_same(granted, other)), None)
        if same is not None and self.owners.setdefault(same.id, workload) == workload:
            return granted._replace(id=same.id, keys=tuple(sorted(same.keys)))
        if device is None or not own:
            return granted
        if not (device.cdi and workload in self.running) and not self.is_granted(device, own):
            return granted
        # Other devices may have the same file, such as a control file: such a file is the last choice for an id.
        name = min(own, key=lambda key: (not PCI_ADDRESS.fullmatch(key), key in self.files, key))
        return granted._replace(id=name, keys=tuple(key for key in granted.keys if key != granted.id))


def why_broken(budget: NodeBudget, grant: Grant, need: ResourceRequirements, *, running: bool, starting: bool) -> str:
    """Why a grant cannot keep its devices; an empty string if the grant can keep its devices.

    A workload that does not run also keeps gone or unhealthy devices, since a device may come back. No workload starts with such devices.
    """
    wanted = {(name, resource): count for name, dummy, amounts in need.devices for resource, count in amounts}
    have = collections.Counter((one.container, one.resource) for one in grant.devices)
    if any(have[place] < count for place, count in wanted.items()):
        return "more devices are declared"
    if running:
        return ""
    if have != wanted:
        return "other devices are declared"
    if starting:
        lost = [f"{one.id} is {why}" for one in grant.devices for why in filter(None, [why_lost(budget, one)])]
        if lost:
            return "; ".join(lost)
    taken = sorted(one.id for one in grant.devices if budget.devices.other_has(one.id, grant.workload))
    return f"{named(taken)} belongs to another grant" if taken else ""


def why_lost(budget: NodeBudget, device: GrantedDevice) -> str:
    """Why a granted device cannot be used; an empty string for a device that can be used."""
    seen = next((one for one in budget.inputs.devices.get(device.resource, ()) if one.id == device.id), None)
    return "gone" if seen is None else f"unhealthy ({seen.unhealthy})" if seen.unhealthy else ""


def devices_only(grant: Grant) -> Grant:
    """The rest of a grant that ends before its workload stops: the devices, which no other workload gets until the stop."""
    resources = {one.resource for one in grant.devices}
    amounts = tuple(row for row in grant.requests if row[0] in resources)
    return Grant(
        grant.workload,
        grant.hold,
        grant.instance,
        requests=amounts,
        limits=amounts,
        since=grant.since,
        member=grant.member,
        unit=grant.unit,
        devices=grant.devices,
    )


def key_of(resource: str) -> str:
    """The key of a workload with which the workload requests a resource."""
    return f'requests["{resource}"]'


def named(ids: t.Iterable[str]) -> str:
    """The ids as a list for a message; at most LISTED ids are named."""
    listed = sorted(set(ids))
    more = f" and {len(listed) - LISTED} more" if len(listed) > LISTED else ""
    return ", ".join(listed[:LISTED]) + more
