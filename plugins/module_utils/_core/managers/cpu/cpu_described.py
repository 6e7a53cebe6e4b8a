# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# This module is private to the collection corral.node.
"""The CPUs of a node's slices as a profile declares them. A part of the cpu manager."""

from __future__ import annotations

import typing as t

from ...host import cgroup, systemd
from ...host.files import Host
from ...model.cpu import slices_as_profile
from ...model.cpu.slices_as_profile import SeenSlice
from ...model.profile.node_as_profile import ProfileFragment
from ...model.systemd import unit_property
from ...model.topology.topology import Topology


def describe(host: Host, topology: Topology) -> t.Sequence[ProfileFragment]:
    """The profile's CPU pools that match the present CPUs of slices."""
    rows = [slice_of(host, unit) for unit in systemd.top_level_units(host)]
    section = slices_as_profile.cpu_section(topology.online, rows)
    return [ProfileFragment(("cpu",), section, "the CPU pools")] if section else []


def slice_of(host: Host, unit: str) -> SeenSlice:
    """A slice with the CPUs that it requests, or with the CPUs in its files if the slice does not run."""
    if cgroup.exists(host, unit):
        confined = cgroup.cpus(host, unit).requested
    else:
        confined = systemd.merged_cpus(unit_property.outside_run(systemd.unit_settings(host, unit, "AllowedCPUs")))
    return SeenSlice(unit, confined or None, cgroup.populated(host, unit))
