# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# This module is private to the collection corral.node.
"""The lists of devices that units have in systemd's own files: they tell of themselves when nothing else does any more."""

from __future__ import annotations

import typing as t

from ..model.devices import device_delivery
from ..model.profile.profile_workloads import RUNNING
from ..model.systemd import device_allow
from ..model.systemd.unit_property import DEVICE_ALLOW, RUNTIME_CONTROL, control_file
from ..model.workload.grants import Grant, workload_of
from . import systemd, workload_state
from .files import Host

if t.TYPE_CHECKING:
    from ..model.devices.device import Inventory


def marked(host: Host) -> dict[str, tuple[str, ...]]:
    """The services that have a list by Corral in systemd's own file of it, which is there until the next boot, and its entries."""
    found = {}
    for folder in host.names_like(RUNTIME_CONTROL, (("", ".service.d"),)):
        unit = folder[: -len(".d")]
        lines = (host.read(control_file(unit, DEVICE_ALLOW, runtime=True)) or "").splitlines()
        entries = [value for name, dummy, value in (line.partition("=") for line in lines) if name == DEVICE_ALLOW]
        if device_allow.MARK in entries:
            found[unit] = tuple(filter(None, entries))
    return found


def left(host: Host) -> dict[str, tuple[str, ...]]:
    """The entries of units that run and have only their list left to tell of their devices, less those of their own files."""
    told = {unit for unit, dummy in workload_state.delivered_devices(host).values()}
    found = {}
    for unit, entries in marked(host).items():
        if unit not in told and workload_state.runs_unit(host, unit):
            own = own_entries(host, unit)
            found[unit] = tuple(entry for entry in entries if entry not in own)
    return found


def with_devices(
    host: Host, granted: t.Sequence[Grant], declared: t.Iterable[str], there: Inventory
) -> tuple[Grant, ...]:
    """Grants as the slices show them, with the devices of units that run and have only their list left to tell of these.

    A run keeps them as well where the profile gives its workload none any more, or has no such workload (``declared``).
    """
    known = list(granted)
    lists = left(host)
    names = {*declared, *(grant.workload for grant in known)}
    for unit in sorted(lists.keys() - {grant.unit for grant in known}):
        name = workload_of(workload_state.slice_that_holds(host, unit) or "")
        name = unit.rpartition(".")[0] if name is None or name in names else name
        known += [Grant(name, RUNNING, unit=unit)] if name not in names else []
    taken = {one.id for grant in known for one in grant.devices}
    numbers = {path: host.device(path) for path in device_delivery.names_of(device_delivery.flat(there.devices))}
    found = []
    for grant in known:
        if grant.unit in lists and not grant.devices:
            entries = {entry.partition(" ")[0] for entry in lists[grant.unit]}
            opened = device_delivery.granted_by_list(entries, there.devices, numbers)
            grant = grant._replace(devices=tuple(one for one in opened if one.id not in taken))
            taken.update(one.id for one in grant.devices)
        found.append(grant)
    return tuple(grant for grant in found if grant.devices or grant in granted)


def own_entries(host: Host, unit: str) -> tuple[str, ...]:
    """What the other files of a unit let it open, which its list has as well: that was not granted."""
    control = control_file(unit, DEVICE_ALLOW, runtime=True)
    settings = systemd.UnitFiles(host, workload_state.named(unit)).settings(unit, DEVICE_ALLOW)
    return device_allow.added_up((item for item in settings if item.file != control), unit)
