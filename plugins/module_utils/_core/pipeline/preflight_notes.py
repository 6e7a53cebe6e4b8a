# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# This module is private to the collection corral.node.
"""Notes to read before a rollout, for the command line and the modules; the tick makes no notes.

The notes name other programs that manage the node, resources without a device, commands that Corral does not run, tenants without a
workload, and services that would have fewer CPUs.
"""

from __future__ import annotations

import typing as t

from ..host import cgroup, process
from ..host.agent import other_agents
from ..host.cpu import cpu_usage
from ..host.devices import checked_devices
from ..host.files import Host
from ..host.memory import hugepage_files
from ..model.cpu import busy_services, slices
from ..model.devices.device import Resource
from ..model.plan.context import Context
from ..model.status import conflicts
from ..model.values.errors import shown
from . import named_programs, unfit_affinity


def notes(host: Host, context: Context) -> tuple[str, ...]:
    """All notes. The notes on busy services come last."""
    programs = conflicts.notes(
        context.profile,
        context.pools,
        other_agents.tuned(host),
        other_agents.kubelet(host),
        other_agents.irqbalance(host),
        other_agents.numad(host),
        other_agents.hugepages_at_boot(host),
        hugepage_files.default_kib(host),
    )
    services = list(busy_notes(host, context))
    return (
        *programs,
        *device_notes(host, context.profile.devices),
        *named_programs.notes(host, context.declared),
        *tenant_notes(context),
        *unfit_affinity.notes(host, context),
        *services,
        *([busy_services.HINT] if services else []),
    )


def device_notes(host: Host, resources: t.Sequence[Resource]) -> tuple[str, ...]:
    """A line for each resource without a device on this node, each device that two resources match, each bad CDI spec, and each resource
    with unhealthy devices.
    """
    if not resources:
        return ()
    inventory = checked_devices.devices_of(host, resources)
    notes = list(inventory.problems)
    for name, devices in inventory.devices.items():
        bad = [one for one in devices if one.unhealthy]
        if bad:
            notes.append(
                f"devices: {name}: {len(bad)} of {len(devices)} are unhealthy: {shown(bad[0].id)}: {bad[0].unhealthy}"
            )
    return tuple(notes)


def tenant_notes(context: Context) -> t.Iterator[str]:
    """A line for each tenant without a workload, and each priority in a quota that no workload has: both may be misspelt."""
    workloads = context.workloads
    needs = workloads.needs if workloads is not None else ()
    having = {need.tenant for need in needs}
    priorities = sorted({need.workload.priority for need in needs if need.workload.priority})
    for index, tenant in enumerate(context.profile.tenants):
        if tenant.name not in having:
            yield f"tenants[{index}].members: no workload belongs to tenant {tenant.name} yet: compare its patterns with the workloads"
        for number, quota in enumerate(tenant.quotas):
            for name in sorted({value for one in quota.selectors for value in one.values} - set(priorities)):
                known = f"they have {', '.join(priorities)}" if priorities else "none has any"
                yield f"tenants[{index}].quota[{number}].scope_selector: {name}: no workload has this priority yet ({known})"


def busy_notes(host: Host, context: Context) -> t.Iterator[str]:
    """A line for each slice that runs on all CPUs and is to be confined to fewer CPUs."""
    declared = context.profile.cpu
    if declared is None or not cgroup.unified(host):
        return
    for unit, wanted in slices.wanted_cpus(declared, context.pools, context.grants).items():
        now = cgroup.cpus(host, unit)
        if slices.described(unit) or not cgroup.exists(host, unit) or now.requested or not now.effective:
            continue
        if wanted < now.effective:
            own = process.own_group(host)  # the control group of this program, which ends with the program
            others = [one for one in cpu_usage.of_unit(host, unit) if f"{unit}/{one.name}" != own]
            note = busy_services.note(unit, now.effective, wanted, others)
            if note is not None:
                yield note
