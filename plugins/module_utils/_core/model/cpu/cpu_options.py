# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# This module is private to the collection corral.node.
"""The options of the kubelet's static CPU policy (cpuManagerPolicyOptions, 1.36)."""

from __future__ import annotations

from ..values.records import NamedTuple


class Options(NamedTuple):
    """The options. With ``strict_cpu_reservation`` no workload runs on reserved CPUs; the kubelet's default is off."""

    full_pcpus_only: bool = False
    distribute_cpus_across_numa: bool = False
    align_by_socket: bool = False
    distribute_cpus_across_cores: bool = False
    strict_cpu_reservation: bool = True
    prefer_align_cpus_by_uncorecache: bool = False


DEFAULT = Options()

# The field of each option, by the kubelet's name of the option.
NAMES = {field.replace("_", "-"): field for field in Options._fields}

FORBIDDEN = (
    ("full-pcpus-only", "distribute-cpus-across-cores"),
    ("distribute-cpus-across-numa", "distribute-cpus-across-cores"),
    ("prefer-align-cpus-by-uncorecache", "distribute-cpus-across-cores"),
    ("prefer-align-cpus-by-uncorecache", "distribute-cpus-across-numa"),
)


def forbidden(options: Options) -> list[tuple[str, str]]:
    """The pairs of options that are both set, and with which the kubelet refuses to start."""
    return [pair for pair in FORBIDDEN if all(getattr(options, NAMES[name]) for name in pair)]
