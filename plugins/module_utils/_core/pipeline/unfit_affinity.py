# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# This module is private to the collection corral.node.
"""Services whose CPUAffinity= has no CPU of their pool: the kernel refuses the mask at their next start (sched_setaffinity(2))."""

from __future__ import annotations

import typing as t

from ..host import systemd
from ..model.cpu import slices
from ..model.values import cpuset
from ..model.values.errors import shown

if t.TYPE_CHECKING:
    from ..host.files import Host
    from ..model.plan.context import Context

SETTING = "CPUAffinity"
FAILS = "does not start again (status 215/CPUAFFINITY)"


def notes(host: Host, context: Context) -> t.Iterator[str]:
    """A line for each service whose CPUAffinity= has no CPU of its pool, and a line if systemd's default has none."""
    if context.profile.cpu is None:
        return
    wanted = slices.wanted_cpus(context.profile.cpu, context.pools, context.grants)
    workloads = [need.workload for need in context.workloads.needs] if context.workloads else []
    placed = {name for one in workloads for name in (one.pattern, one.template)}  # units that get slices of their own
    ends = (("", ".service"), ("", ".service.d"))
    units = {name.removesuffix(".d") for base in systemd.LOAD_PATH for name in host.names_like(base, ends)}
    files = systemd.UnitFiles(host, units)
    rows = [(unit, files.settings(unit, SETTING), unit) for unit in sorted(units - placed)]
    # systemd's default applies to each service without CPUAffinity=.
    rows.append(("a service without CPUAffinity= of its own", systemd.system_settings(host, SETTING), "any.service"))
    for who, settings, unit in rows:
        cpus = systemd.merged_cpus(settings) if settings else None
        own = [one.value for one in files.settings(unit, "Slice") if one.value] if unit in units else []
        inside = (own or [systemd.usual_slice(unit)])[-1]
        pool = wanted.get(inside) or wanted.get(f"{inside.partition('-')[0].removesuffix('.slice')}.slice")
        if cpus and pool and not cpus & pool:
            said = f"{who}: {SETTING}={cpuset.format(cpus)} ({settings[-1].file}) has no CPU of {inside}, which are {cpuset.format(pool)}"
            yield shown(f"{said}: it {FAILS}; name CPUs of these, or put the service into another slice", limit=1000)
