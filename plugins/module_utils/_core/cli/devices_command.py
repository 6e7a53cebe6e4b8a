# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# This module is private to the collection corral.node.
"""The command devices: the devices of the profile's resources and their workloads; with --kubelet, devices that the kubelet assigned."""

from __future__ import annotations

import argparse

from ..constants import DIFFERS, IN_SYNC
from ..host import state, workload_files
from ..host.devices import checked_devices
from ..host.files import Host
from ..model.values.errors import refusal
from ..pipeline import run_device_checks
from ..reports import device_table
from . import command_output


def do_devices(host: Host, args: argparse.Namespace) -> int:
    """corral devices"""
    if args.tick:
        run_device_checks.tick(host)
        return IN_SYNC
    if args.kubelet:
        return of_kubelet(host, args)
    declared = command_output.the_profile(host, args.profile)
    if args.check:
        run_device_checks.check_unknown(host, declared, all_again=True)
    grants = workload_files.grants_in_force(host) if host.exists(state.STATE) else ()
    known = checked_devices.devices_to_give(host, declared.devices, grants)
    command_output.show(args, device_table.to_data(known, grants), device_table.lines(known, grants))
    return IN_SYNC if device_table.is_whole(known, grants) and not known.problems else DIFFERS


def of_kubelet(host: Host, args: argparse.Namespace) -> int:
    """corral devices --kubelet: the devices that the kubelet's device manager has given to containers."""
    from ..pipeline import kubelet_inspection  # Passes of device checks do not load the module.
    from ..reports import kubelet_report

    if args.profile:
        raise refusal(
            "names a profile, and the kubelet's devices are in no profile: leave the option out", path="--profile"
        )
    file, grants = kubelet_inspection.devices(host)
    entries = grants.entries if grants else ()
    command_output.show(
        args, kubelet_report.devices_data(file, entries), kubelet_report.devices_lines(file, entries), schema=False
    )
    return DIFFERS if file.refusal else IN_SYNC
