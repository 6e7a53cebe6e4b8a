# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# This module is private to the collection corral.node.
"""Run the commands of a profile that check devices: in passes of a timer, and before a run or a start that needs a result.

A tick is confined and runs no command: the tick reads the results that the timer's passes wrote. A separate lock keeps a command from
running twice at once; no command holds the node's lock.
"""

from __future__ import annotations

import json
import typing as t

from ..host import state
from ..host.agent import foreign_program
from ..host.devices import checked_devices, device_files
from ..host.lock import Lock
from ..model.devices import device_check_units, device_checks, inventory
from ..model.systemd.unit_property import ETC
from ..model.values import exit_text
from ..model.values.errors import refusal
from . import profile_in_force

if t.TYPE_CHECKING:
    from ..host.files import Host
    from ..model.devices.device import Check, Device, Inventory, Resource
    from ..model.profile.profile import Profile

Key = tuple[str, str, str]
# Seconds to wait for the lock of device checks. A pass or a run that has the lock ends each command in time.
LOCK_SECONDS = 120.0
# The output of a command need not say that the command lacked a right.
DYNAMIC = " (it ran as user: dynamic; where it needs root, set user: root)"
EARLY = 0.5  # a fraction of the time between two passes: systemd starts a pass a little early or late


def tick(host: Host) -> None:
    """One pass of the timer: check each device that is due, and keep each result at once. The pass waits while a start checks devices."""
    lock = Lock(host, state.DEVICE_CHECKS_LOCK)
    if not (wanted(host) and lock.take(LOCK_SECONDS)):
        return
    try:
        declared, dummy = profile_in_force.read(host)
        if declared is not None:
            check_due(host, declared.devices)
    finally:
        let_go(host, lock)


def check_due(host: Host, resources: t.Sequence[Resource]) -> None:
    """Check each device that is due, keep each result that differs, and forget devices that are gone."""
    node_devices = inventory.devices_of(resources, device_files.observe(host, resources))
    kept = device_checks.from_data(state.checked(host, state.DEVICE_CHECKS))
    last = last_checked(host)
    there = list(to_check(node_devices, resources))
    known = {key for key, *dummy in there}
    results = {key: reason for key, reason in kept.items() if key in known}
    last = {key: when for key, when in last.items() if key in known}
    if results != kept:
        save(host, results)
    checks = (check for dummy, check in device_checks.checked(resources))
    early = EARLY * device_check_units.period(checks) if there else 0
    for key, resource, check, device in there:
        began = host.uptime()
        before = last.get(key, float("inf"))  # If the uptime is smaller now, the node has booted since.
        if key in results and before <= began < before + check.interval - early:
            continue
        reason, ran = check_one(host, resource, check, device)
        if ran:
            last[key] = began
        elif key in results:
            continue  # The command did not run: the last result stays, and the next pass tries again.
        if results.get(key) != reason:
            results[key] = reason
            save(host, results)
    if wanted(host):
        rows = [[*key, when] for key, when in last.items()]
        host.write_file(state.DEVICES_CHECKED, json.dumps({"time": host.now(), "checked": rows}) + "\n", 0o600)


def check_unknown(host: Host, declared: Profile, *, all_again: bool = False, writes: bool = True) -> None:
    """Check the devices without a known result (``all_again``: all devices), and keep the results if the timer runs passes.

    Without ``writes``, as in check mode, not even the file of the lock is made.
    """
    resources = declared.devices
    if not device_checks.checked(resources) or not host.answers:
        return
    if not all_again and all_known(host, resources):
        return
    lock = Lock(host, state.DEVICE_CHECKS_LOCK)
    if (writes or state.there(host, state.DEVICE_CHECKS_LOCK)) and not lock.take(LOCK_SECONDS):
        if all_again:
            log = f"journalctl -u {device_check_units.SERVICE}"
            raise refusal(f"a pass of checks has run for {LOCK_SECONDS:g} s: see {log}")
        return  # The pass that has the lock writes its results, and a tick reads these results.
    new: dict[Key, str] = {}
    unheard: set[Key] = set()  # devices whose command did not run: they are unhealthy in this run only
    try:
        # A pass that had the lock may have results by now.
        known = {} if all_again else checked_devices.results(host, resources)
        node_devices = inventory.devices_of(resources, device_files.observe(host, resources))
        for key, resource, check, device in to_check(node_devices, resources):
            if key not in known:
                new[key], ran = check_one(host, resource, check, device)
                host.device_checks[key] = new[key]
                unheard |= set() if ran else {key}
        if writes and new.keys() - unheard:
            heard = {key: reason for key, reason in new.items() if key not in unheard}
            save(host, {**device_checks.from_data(state.checked(host, state.DEVICE_CHECKS)), **heard})
    finally:
        if writes:
            let_go(host, lock)
        lock.release()


def check_before_start(host: Host) -> None:
    """Before a start: check the devices without a known result."""
    declared, dummy = profile_in_force.read(host)
    if declared is not None:
        check_unknown(host, declared)


def all_known(host: Host, resources: t.Sequence[Resource]) -> bool:
    """Whether each device to check has a result."""
    known = checked_devices.results(host, resources)
    node_devices = inventory.devices_of(resources, device_files.observe(host, resources))
    return all(key in known for key, *dummy in to_check(node_devices, resources))


def to_check(
    node_devices: Inventory, resources: t.Sequence[Resource]
) -> t.Iterator[tuple[Key, Resource, Check, Device]]:
    """The devices to check. A device that is unhealthy for another reason is left out: no result would change that."""
    for resource, check in device_checks.checked(resources):
        for device in node_devices.devices.get(resource.name, ()):
            if not device.unhealthy:
                yield device_checks.key_of(resource.name, device.id, check), resource, check, device


def check_one(host: Host, resource: Resource, check: Check, device: Device) -> tuple[str, bool]:
    """Run the command for a device. Returns why the device is unhealthy ("": it is healthy), and whether the command ran."""
    variables = device_checks.variables(resource.name, device)
    as_root = check.user == "root"
    ended = foreign_program.run(host, [*check.command, device.id], check.timeout, variables, as_root=as_root)
    reason = exit_text.why_failed(check.command[0], ended.code, ended.out, ended.err)
    may_lack = ended.code > 0 and not (as_root or ended.err)
    return reason + DYNAMIC if may_lack else reason, ended.code != foreign_program.NOT_RUN


def last_checked(host: Host) -> dict[Key, float]:
    """When each device was last checked, in seconds since the boot."""
    data = state.read_json(host, state.DEVICES_CHECKED)
    rows = data.get("checked") if isinstance(data, dict) else None
    checked_at = {}
    for row in rows if isinstance(rows, list) else []:
        if isinstance(row, list) and len(row) == 4 and all(isinstance(one, str) for one in row[:3]):
            if isinstance(row[3], (int, float)) and abs(row[3]) < 1 << 63:
                checked_at[t.cast("Key", tuple(row[:3]))] = float(row[3])
    return checked_at


def let_go(host: Host, lock: Lock) -> None:
    """Release the lock, and keep its file only if the timer runs passes."""
    if not wanted(host):
        state.leave_nothing(host, state.DEVICE_CHECKS_LOCK)
        if state.there(host, state.DEVICE_CHECKS_LOCK):
            host.remove(state.DEVICE_CHECKS_LOCK)
    lock.release()


def save(host: Host, results: device_checks.Results) -> None:
    """Write the results to their file, unless the profile was removed meanwhile."""
    if wanted(host):
        host.write_file(state.DEVICE_CHECKS, state.checked_text(device_checks.to_data(results)), 0o600)


def wanted(host: Host) -> bool:
    """Whether the timer of the passes is installed: a removal of the profile deletes it."""
    return host.exists(f"{ETC}/{device_check_units.TIMER}")
