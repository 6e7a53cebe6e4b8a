# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# This module is private to the collection corral.node.
"""The drivers of PCI functions: bound for the time of a grant, restored afterwards. A part of the devices manager."""

from __future__ import annotations

import typing as t

from ...model.devices.device_delivery import FOLDER, flat
from ...model.plan import make_step
from ...model.plan.plan import LIVE, TAKE, Change
from .device_places import BOUND, ENDED, NAME, PCI

if t.TYPE_CHECKING:
    from ...model.devices.device_delivery import Held


def driver_changes(held: Held, *, starting: bool) -> list[Change]:
    """The changes that bind PCI functions of granted devices to another driver before a unit may open a function."""
    changes = []
    for device in flat(held.devices):
        for address, driver in device.unbound if device.bind and not device.unhealthy else ():
            path = f"{PCI}/{address}"
            step = make_step.driver(path, device.bind, LIVE, -BOUND, optional=not starting)
            reason = f"a workload has {device.id}; it goes back to its driver when the workload gives it back"
            changes.append(Change(NAME, address, "driver", driver or None, device.bind, reason, path, (step,)))
    return changes


def given_back(address: str) -> Change:
    """The change that restores a PCI function's driver after the grant, once no unit may open the function."""
    step = make_step.driver(f"{PCI}/{address}", None, TAKE, BOUND, optional=True)
    reason = "no workload has it any more"
    folder = make_step.folder(FOLDER, TAKE, ENDED + 1)
    return Change(NAME, address, "driver", "bound by Corral", "as it was", reason, f"{PCI}/{address}", (step, folder))
