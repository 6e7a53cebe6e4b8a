# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# This module is private to the collection corral.node.
"""The devices of a node by resource, with the workloads that have the devices, as a table and as JSON data."""

from __future__ import annotations

import typing as t

from ..model.devices.device import Device, Inventory
from ..model.values.errors import shown
from . import text_table

if t.TYPE_CHECKING:
    from ..model.status import command_shapes
    from ..model.workload.grants import Grant


def to_data(found: Inventory, grants: t.Sequence[Grant]) -> dict[str, t.Any]:
    """The fields of command_shapes.Devices without ``schema``: the declared resources, then other resources of granted devices."""
    held = holders(grants)
    return {
        "resources": [_resource(name, found.devices.get(name, ()), held.get(name, {})) for name in names(found, held)],
        "problems": list(found.problems),
        "notes": list(found.notes),
    }


Holders = t.Mapping[str, tuple[str, list[str]]]  # by device id: the workload and the containers that have the device


def holders(grants: t.Iterable[Grant]) -> dict[str, dict[str, tuple[str, list[str]]]]:
    """By resource, the workloads and containers that have its devices."""
    found: dict[str, dict[str, tuple[str, list[str]]]] = {}
    for grant in grants:
        for one in grant.devices:
            dummy, containers = found.setdefault(one.resource, {}).setdefault(one.id, (grant.workload, []))
            containers += [one.container] if one.container else []
    return found


def names(found: Inventory, held: t.Iterable[str]) -> list[str]:
    """The names of the resources to be shown: the declared resources, then other resources with granted devices."""
    return list(dict.fromkeys([*found.devices, *sorted(held)]))


def missing(devices: t.Iterable[Device], held: Holders) -> dict[str, str]:
    """The ids of devices that workloads have and the node lacks, with the workloads."""
    there = {one.id for one in devices}
    return {name: workload for name, (workload, dummy) in sorted(held.items()) if name not in there}


def is_whole(found: Inventory, grants: t.Sequence[Grant]) -> bool:
    """Whether all devices are healthy, and all granted devices exist. A device that the machine uses counts only if granted."""
    held = holders(grants)
    unhealthy = any(
        one.unhealthy and not (one.in_use and one.id not in held.get(name, ()))
        for name, devices in found.devices.items()
        for one in devices
    )
    return not (unhealthy or any(missing(found.devices.get(name, ()), ids) for name, ids in held.items()))


def _resource(name: str, devices: t.Sequence[Device], held: Holders) -> command_shapes.DeviceResource:
    gone = missing(devices, held)
    return {
        "name": name,
        "healthy": sum(not one.unhealthy for one in devices),
        "granted": len(held),
        "devices": [_data(one, held) for one in devices],
        "missing": [{"id": one, "workload": workload} for one, workload in gone.items()],
    }


def _data(one: Device, held: Holders) -> command_shapes.Device:
    workload, containers = held.get(one.id, (None, []))
    return {
        "id": one.id,
        "numa_node": one.numa_node,
        "healthy": not one.unhealthy,
        "reason": one.unhealthy or None,
        "in_use": one.in_use,
        "driver": one.driver,
        "functions": list(one.functions),
        "interfaces": list(one.interfaces),
        "files": list(one.files),
        "workload": workload,
        "containers": containers,
    }


def lines(found: Inventory, grants: t.Sequence[Grant]) -> list[str]:
    """The table of ``corral devices``, and lines for its problems and notes."""
    held = holders(grants)
    table = [("resource", "device", "numa", "driver", "state", "workload", "parts")]
    for name in names(found, held):
        head, devices, ids = name, found.devices.get(name, ()), held.get(name, {})
        for one in devices:
            node = "-" if one.numa_node < 0 else str(one.numa_node)
            parts = [part for part in (*one.functions, *one.interfaces, *one.files) if part != one.id]
            state = f"{'in use' if one.in_use else 'unhealthy'}: {shown(one.unhealthy)}" if one.unhealthy else "healthy"
            holder = holder_text(*ids[one.id]) if one.id in ids else "-"
            table.append((head, shown(one.id), node, one.driver or "-", state, holder, shown(" ".join(parts)) or "-"))
            head = ""
        for gone in missing(devices, ids):
            state = "gone" if name in found.devices else "not declared"
            table.append((head, shown(gone), "-", "-", state, holder_text(*ids[gone]), "-"))
            head = ""
        if head:
            table.append((name, "-", "-", "-", "no device", "-", "-"))
    said = text_table.aligned(table) if len(table) > 1 else ["the profile declares no devices"]
    problems = [f"problem: {text}" for text in found.problems]
    return [*said, *problems, *(f"note: {text}" for text in found.notes)]


def holder_text(workload: str, containers: t.Sequence[str]) -> str:
    """The name of a workload, with its containers that have a device."""
    return f"{workload} ({', '.join(containers)})" if containers else workload
