# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# This module is private to the collection corral.node.
"""The devices of a node with the last results of the profile's health checks.

Only pipeline/run_device_checks.py runs these checks.
"""

from __future__ import annotations

import typing as t

from ...model.devices import device_checks, device_delivery, inventory
from .. import state
from . import device_files, device_lists

if t.TYPE_CHECKING:
    from ...model.devices.device import GrantedDevice, Inventory, Resource
    from ...model.workload.grants import Grant
    from ..files import Host


def devices_to_give(host: Host, resources: t.Sequence[Resource], granted: t.Sequence[Grant]) -> Inventory:
    """The devices of each resource. A device that a run without a grant may have open is unhealthy for all workloads."""
    held = [device for grant in granted for device in grant.devices]
    devices = devices_of(host, resources, held)
    runs = device_lists.without_grant(host, granted)
    names = device_delivery.names_of(device_delivery.flat(devices.devices)) if runs else ()
    devices = inventory.held_back(devices, held, dict(runs.values()), {path: host.device(path) for path in names})
    return devices._replace(runs={path: run.name for path, run in runs.items()})


def devices_of(host: Host, resources: t.Sequence[Resource], granted: t.Sequence[GrantedDevice] = ()) -> Inventory:
    """The devices of each resource with their health, and the ``granted`` devices that no resource matches any more."""
    seen = device_files.observe(host, resources)
    devices = inventory.devices_of(resources, seen)
    left = inventory.unknown(granted, devices)
    if left:
        seen = device_files.with_granted(host, seen, [device.id for device in left])
        devices = devices._replace(undeclared=inventory.granted_elsewhere(left, devices, seen))
    return device_checks.with_results(devices, resources, results(host, resources))


def results(host: Host, resources: t.Iterable[Resource]) -> dict[tuple[str, str, str], str]:
    """The last results of the checks; a result of this run replaces a recorded result. A file that Corral did not write counts as empty."""
    if not device_checks.checked(resources):
        return {}
    return {**device_checks.from_data(state.checked(host, state.DEVICE_CHECKS)), **host.device_checks}
