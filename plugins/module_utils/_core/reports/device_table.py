# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# This module is private to the collection corral.node.
"""The devices of a node by resource, as a table and as JSON data."""

from __future__ import annotations

import typing as t

from ..model.devices.device import Device, Inventory
from ..model.values.errors import shown
from . import text_table

if t.TYPE_CHECKING:
    from ..model.status import command_shapes


def to_data(found: Inventory) -> dict[str, t.Any]:
    """The fields of command_shapes.Devices, but for ``schema``."""
    return {
        "resources": [
            {
                "name": name,
                "healthy": sum(not one.unhealthy for one in devices),
                "devices": [_data(one) for one in devices],
            }
            for name, devices in found.devices.items()
        ],
        "problems": list(found.problems),
        "notes": list(found.notes),
    }


def _data(one: Device) -> command_shapes.Device:
    return {
        "id": one.id,
        "numa_node": one.numa_node,
        "healthy": not one.unhealthy,
        "reason": one.unhealthy or None,
        "driver": one.driver,
        "functions": list(one.functions),
        "interfaces": list(one.interfaces),
        "files": list(one.files),
    }


def lines(found: Inventory) -> list[str]:
    """The table of ``corral devices``, and what it has to say beside it."""
    table = [("resource", "device", "numa", "driver", "state", "parts")]
    for name, devices in found.devices.items():
        head = name
        for one in devices:
            node = "-" if one.numa_node < 0 else str(one.numa_node)
            parts = [part for part in (*one.functions, *one.interfaces, *one.files) if part != one.id]
            state = f"unhealthy: {shown(one.unhealthy)}" if one.unhealthy else "healthy"
            table.append((head, shown(one.id), node, one.driver or "-", state, shown(" ".join(parts)) or "-"))
            head = ""
        if not devices:
            table.append((name, "-", "-", "-", "no device", "-"))
    said = text_table.aligned(table) if found.devices else ["the profile declares no devices"]
    problems = [f"problem: {text}" for text in found.problems]
    return [*said, *problems, *(f"note: {text}" for text in found.notes)]
