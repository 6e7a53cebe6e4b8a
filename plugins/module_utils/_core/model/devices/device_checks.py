# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# This module is private to the collection corral.node.
"""The results of a profile's commands that check devices."""

from __future__ import annotations

import json
import typing as t
import zlib

from ..values.errors import shown
from .device import Check, Device, Inventory, Resource

# By key_of(), the reason why a device is unhealthy; an empty string for a healthy device.
Results = t.Mapping[tuple[str, str, str], str]


def checked(resources: t.Iterable[Resource]) -> list[tuple[Resource, Check]]:
    """The resources that have a check, each with its check."""
    return [(one, one.check) for one in resources if one.check is not None]


def key_of(resource: str, device: str, check: Check) -> tuple[str, str, str]:
    """The key of a result: the resource, the device's id, and a digest of the command and its user. A changed command has no result yet."""
    return resource, device, f"{zlib.crc32(json.dumps([check.command, check.user]).encode()):08x}"


def variables(resource: str, device: Device) -> dict[str, str]:
    """The environment variables for a check's command; a comma separates the items of a list. The last argument is the device's id."""
    lists = {"PCI": device.functions, "FILES": device.files, "INTERFACES": device.interfaces}
    joined = {f"CORRAL_{name}": ",".join(words) for name, words in lists.items()}
    return {"CORRAL_RESOURCE": resource, "CORRAL_DEVICE": device.id, **joined}


def with_results(inventory: Inventory, resources: t.Iterable[Resource], results: Results) -> Inventory:
    """The inventory with the results of the devices' checks. A device that is unhealthy for another reason keeps the other reason.

    A device that was not checked yet is healthy; a note counts such devices.
    """
    devices = dict(inventory.devices)
    notes = list(inventory.notes)
    for index, resource in enumerate(resources):
        check = resource.check
        if check is None:
            continue
        here = devices.get(resource.name, ())
        said = {one.id: results.get(key_of(resource.name, one.id, check)) for one in here}
        devices[resource.name] = tuple(
            device if device.unhealthy else device._replace(unhealthy=said[device.id] or "") for device in here
        )
        waiting = [one.id for one in here if not one.unhealthy and said[one.id] is None]
        if waiting:
            more = f" and {len(waiting) - 1} more" if len(waiting) > 1 else ""
            notes.append(shown(f"devices[{index}].check: {waiting[0]}{more}: not checked yet", limit=1000))
    return inventory._replace(devices=devices, notes=tuple(notes))


def to_data(results: Results) -> list[list[str]]:
    """Results as JSON data for a file."""
    return [[*key, said] for key, said in sorted(results.items())]


def from_data(data: object) -> dict[tuple[str, str, str], str]:
    """The results that to_data() wrote; a row of another form is left out."""
    rows = data if isinstance(data, list) else []
    texts = (
        row for row in rows if isinstance(row, list) and len(row) == 4 and all(isinstance(one, str) for one in row)
    )
    return {(resource, device, digits): said for resource, device, digits, said in texts}
