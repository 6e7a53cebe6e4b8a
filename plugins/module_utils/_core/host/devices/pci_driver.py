# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# This module is private to the collection corral.node.
"""Binds PCI functions to a driver for a workload, and binds them back to their previous driver.

The previous driver is recorded before the first write, and the record is removed after the last write that binds the function back: after
a crash the next run continues. A boot resets drivers, so the record is below /run.
Source: Documentation/ABI/testing/sysfs-bus-pci (driver_override, unbind, drivers_probe).
"""

from __future__ import annotations

import json
import posixpath
import typing as t

from ...model.devices.device import is_vfio
from ...model.devices.device_delivery import VFIO_FOLDER, driver_record
from ...model.values.records import NamedTuple
from .. import state
from ..files import Host
from ..topology.sysfs_reader import Reader
from . import device_files, pci_use
from .pci_use import DRIVERS

ANY = "*"  # stands for any driver that the kernel finds
PROBE = "/sys/bus/pci/drivers_probe"
NO_OVERRIDE = "(null)"
UNBIND_SECONDS = 20.0


class BindingRefused(Exception):
    """The kernel refuses a driver, or the driver must not be changed; the text says why."""


class Binding(NamedTuple):
    """The driver_override and the driver of a function; an empty string if a function has no override or no driver."""

    override: str
    driver: str


def binding(host: Host, folder: str) -> Binding:
    """The present driver_override and driver of a function."""
    override = (host.read(f"{folder}/driver_override") or "").strip()
    driver = posixpath.basename(host.link(f"{folder}/driver") or "")
    return Binding("" if override == NO_OVERRIDE else override, driver)


def recorded(host: Host, address: str) -> t.Optional[Binding]:
    """The binding that a function had before Corral bound it; None without a record. A damaged record stands for any driver."""
    path = driver_record(address)
    text = host.read(path, follow=False)
    if text is None:
        return None
    try:
        override, driver = json.loads(text)
    except (ValueError, TypeError, RecursionError):
        return Binding("", ANY)
    return Binding(override, driver) if isinstance(override, str) and isinstance(driver, str) else Binding("", ANY)


def bound_by_corral(host: Host, folder: str) -> t.Optional[str]:
    """The driver to which Corral has bound a function; None for a function with its previous driver, or bound by another program."""
    driver = binding(host, folder).driver
    is_ours = recorded(host, posixpath.basename(folder)) is not None
    return driver if is_ours and is_vfio(driver) else None


def bind(host: Host, folder: str, driver: str) -> None:
    """Bind a function to a driver. Raises BindingRefused or OSError. A function in use is refused before any write."""
    address = posixpath.basename(folder)
    function = device_files.functions(Reader(host)).get(address)
    if function is None:
        raise BindingRefused(f"{address}: the device is gone")
    now = binding(host, folder)
    if now.driver != driver:
        why = pci_use.why_used(host, function) or pci_use.why_claimed(host, function)
        if why:
            raise BindingRefused(f"{address}: {now.driver} keeps it: {why}")
    if host.read(driver_record(address), follow=False) is None:
        host.write_file(driver_record(address), json.dumps(list(now)) + "\n", state.PRIVATE)
    if now.override != driver:
        host.write_value(f"{folder}/driver_override", driver)
    if now.driver not in ("", driver):
        let_go(host, folder, now.driver)
    if now.driver != driver:
        host.write_value(PROBE, address)
    got = binding(host, folder).driver
    if got != driver:
        said = f"it has {got}" if got else "it has no driver now"
        raise BindingRefused(
            f"{address}: {driver} does not take it, {said}: is the module loaded? The kernel's log may say why (dmesg)"
        )


def let_go(host: Host, folder: str, driver: str) -> None:
    """Unbind a function from its driver."""
    address = posixpath.basename(folder)
    why = ""
    try:
        host.write_value_within(f"{DRIVERS}/{driver}/unbind", address, UNBIND_SECONDS)
    except OSError as error:
        why = f" ({error.strerror})"
    if binding(host, folder).driver == driver:
        hint = f"stop what uses it, or bind it at boot: driver_override, or {driver} in modprobe.d"
        raise BindingRefused(f"{address}: driver {driver} does not let go of it{why}: {hint}")


def give_back(host: Host, folder: str) -> None:
    """Bind a function to its previous driver. Raises BindingRefused or OSError; the record then stays for the next attempt."""
    address = posixpath.basename(folder)
    before = recorded(host, address)
    if before is not None and host.is_dir(folder):
        now = binding(host, folder)
        # A function that another program has bound meanwhile is no longer Corral's.
        goes_back = now.driver != before.driver and (not now.driver or is_vfio(now.driver))
        if goes_back and now.driver:
            refuse_open(host, folder)
        if goes_back:
            # Several drivers may know the function: the kernel asks only the driver in driver_override.
            named = before.override if before.driver in ("", ANY) else before.driver
            if now.override != named:
                host.write_value(f"{folder}/driver_override", named or "\n")
            if now.driver:
                let_go(host, folder, now.driver)
            if before.driver:
                host.write_value(PROBE, address)
            got = binding(host, folder).driver
            if got != before.driver and not (before.driver == ANY and got):
                raise BindingRefused(
                    f"{address}: its driver {before.driver} does not take it back: is the module loaded? (dmesg)"
                )
        if binding(host, folder).override != before.override:
            host.write_value(f"{folder}/driver_override", before.override or "\n")
    host.remove(driver_record(address))  # also removes the temporary file of a killed writer


def refuse_open(host: Host, folder: str) -> None:
    """Raise BindingRefused while a process has the IOMMU group open: unbinding would wait in the kernel without end."""
    file = VFIO_FOLDER + posixpath.basename(host.link(f"{folder}/iommu_group") or "")
    if host.exists(file) and host.is_claimed(file):
        raise BindingRefused(f"{posixpath.basename(folder)}: a process still has {file} open: end it (fuser {file})")
