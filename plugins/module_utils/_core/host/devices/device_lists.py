# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# This module is private to the collection corral.node.
"""The runs that have devices, by DeviceAllow= of units in systemd's own files, and by the environment files of workloads."""

from __future__ import annotations

import typing as t

from ...model.devices.device_delivery import ENDING, FOLDER, env_file, env_file_as_read, given_ids, unit_of
from ...model.systemd import device_allow
from ...model.systemd.unit_property import DEVICE_ALLOW, RUNTIME_CONTROL, control_file
from ...model.values.records import NamedTuple
from ...model.workload.grants import Grant, workload_of
from .. import cgroup, systemd
from ..files import Host
from ..workload import workload_state


class Run(NamedTuple):
    """A unit, or a workload without a unit, that runs with devices of an unknown grant.

    ``opened``: the devices (numbers, or paths in /dev) in Corral's DeviceAllow= list for the unit, without the devices in the unit's other
    files; None if Corral set no list, for example for a container.
    """

    name: str
    opened: t.Optional[frozenset[str]]


def marked(host: Host, known: t.Container[str] = ()) -> dict[str, tuple[str, ...]]:
    """By service, the DeviceAllow= entries that Corral set, without ``known`` services; systemd's own files keep entries until a boot."""
    lists = {}
    for folder in host.names_like(RUNTIME_CONTROL, (("", ".service.d"),)):
        unit = folder[: -len(".d")]
        if unit in known:
            continue
        lines = (host.read(control_file(unit, DEVICE_ALLOW, runtime=True)) or "").splitlines()
        entries = [value for name, dummy, value in (line.partition("=") for line in lines) if name == DEVICE_ALLOW]
        if device_allow.MARK in entries:
            lists[unit] = tuple(filter(None, entries))
    return lists


def without_grant(host: Host, granted: t.Iterable[Grant]) -> dict[str, Run]:
    """The runs with devices that no grant in ``granted`` has, by the path of the environment file (the file may be gone).

    Such a run keeps its devices until it stops, and no other workload gets them.
    """
    granted = [grant for grant in granted if grant.devices]
    lists = marked(host, {grant.unit for grant in granted})
    names = [name[: -len(ENDING)] for name in host.names(FOLDER) if name.endswith(ENDING)]
    known = {env_file(grant.workload, grant.unit) for grant in granted}
    known.update(map(env_file_as_read, tuple(known)))
    running = {}
    for name in sorted({*names, *lists}):
        path, unit = env_file("", name), unit_of(f"{name}{ENDING}")
        if path in known:
            continue
        # Without a list, and without an id in the file, the unit has no devices: a run of Corral was killed before it removed the file.
        told = unit in lists or bool(unit and given_ids(host.read(path, follow=False)))
        if told and workload_state.runs_unit(host, unit):
            own = own_entries(host, unit)
            opened = frozenset(entry.partition(" ")[0] for entry in lists.get(unit, ()) if entry not in own)
            running[path] = Run(unit, opened if unit in lists else None)
        workload = "" if unit else name[: -len(".workload")]
        slices = workload_state.slices(host) if workload else ()
        if any(workload_of(one) == workload and cgroup.populated(host, one) for one in slices):
            running[path] = Run(workload, None)
    return running


def own_entries(host: Host, unit: str) -> tuple[str, ...]:
    """The entries of a unit's other files: Corral's list repeats these entries, but no grant has them."""
    control = control_file(unit, DEVICE_ALLOW, runtime=True)
    settings = systemd.UnitFiles(host, workload_state.named(unit)).settings(unit, DEVICE_ALLOW)
    return device_allow.added_up((item for item in settings if item.file != control), unit)
