# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# This module is private to the collection corral.node.
"""The grants of workloads and their reasons, as text and as JSON data."""

from __future__ import annotations

import typing as t

from ..model.devices import device_delivery
from ..model.plan.context import Context, Workloads
from ..model.profile.profile_workloads import APP, RUNNING
from ..model.values import cpuset
from ..model.workload import qos
from ..model.workload.grants import Grant
from ..model.workload.node_budget import allocatable
from ..model.workload.resource_requirements import ResourceRequirements
from ..model.workload.resources import PIDS, Amounts, about, amount_text, is_device
from . import text_table

if t.TYPE_CHECKING:
    from ..model.devices.device import Device
    from ..model.status import json_shapes


EVICTED = "it runs without a grant, on shared CPUs and with its limits, until it is restarted (corral explain says what a start gets)"


def rows(found: Workloads) -> list[dict[str, t.Any]]:
    """Each workload with its grant, as JSON data; ``state`` is granted, refused, waiting (for its start) or unknown."""
    by_name = {grant.workload: grant for grant in found.allocated.grants}
    refused = dict.fromkeys(found.status.evicted, EVICTED)
    refused.update((one.workload, one.message) for one in found.allocated.refusals)
    listed = [
        row(need.workload.name, need, by_name.get(need.workload.name), refused)
        for need in found.needs
        if not need.workload.is_template
    ]
    declared = {need.workload.name for need in found.needs}
    return listed + [row(name, None, grant, refused) for name, grant in by_name.items() if name not in declared]


def row(
    name: str, need: t.Optional[ResourceRequirements], grant: t.Optional[Grant], refused: t.Mapping[str, str]
) -> dict[str, t.Any]:
    """A workload with its grant, as an entry of rows()."""
    waiting = "waiting" if need is None or need.workload.hold == RUNNING else "unknown"
    had = grant or Grant(name)
    asked = need or had
    return {
        "name": name,
        "state": "granted" if grant else "refused" if name in refused else waiting,
        "reason": refused.get(name),
        "tenant": asked.tenant or None,
        "match": dict([need.workload.matched]) if need else None,
        "qos": need.qos if need else None,
        "hold": need.workload.hold if need else had.hold,
        "run": had.instance or None,
        "slice": grant.slice if grant else None,
        "cpus": cpuset.format(had.cpus),
        "containers": {one: cpuset.format(cpus) for one, cpus in had.containers},
        "memory_nodes": None if had.mems is None else cpuset.format(had.mems),
        "devices": devices_of(had),
        "memory": [[cpuset.format(block.nodes), block.resource, block.size] for block in had.blocks],
        "requests": texts(asked.requests),
        "limits": texts(asked.limits),
        "since": grant.since if grant else None,
    }


def brief(one: t.Mapping[str, t.Any]) -> json_shapes.Workload:
    """The fields of a workload's row that status.json has."""
    return {
        "name": one["name"],
        "state": one["state"],
        "reason": one["reason"],
        "tenant": one["tenant"],
        "qos": one["qos"],
        "hold": one["hold"],
        "slice": one["slice"],
        "cpus": one["cpus"],
        "memory_nodes": one["memory_nodes"],
        "devices": one["devices"],
        "since": one["since"],
    }


def devices_of(grant: Grant) -> dict[str, list[str]]:
    """The devices of a grant by resource."""
    found: dict[str, list[str]] = {}
    for one in grant.devices:
        ids = found.setdefault(one.resource, [])
        if one.id not in ids:  # An app container of a pod may get the device of an init container.
            ids.append(one.id)
    return found


def texts(amounts: Amounts) -> dict[str, str]:
    """Amounts in the notation of a profile."""
    return {resource: amount_text(resource, amount) for resource, amount in amounts}


def lines(context: Context) -> list[str]:
    """The table of workloads in ``corral status``, and lines with how much of the node is granted."""
    found = context.workloads
    if found is None or not (found.needs or found.allocated.grants):
        return []
    table: list[tuple[str, ...]] = [("workload", "class", "hold", "CPUs", "memory on", "requests", "limits", "")]
    for one in rows(found):
        said = "" if one["state"] == "granted" else state_text(one)
        table.append((*cells(one), said))
    return [*text_table.aligned(table), *budget_lines(context)]


def cells(one: t.Mapping[str, t.Any]) -> tuple[str, ...]:
    """A row as text: name, class, hold, CPUs, NUMA nodes of its memory, requests, limits."""
    cpus = one["cpus"] or ("shared" if one["state"] == "granted" else "-")
    asked, limited = (
        ", ".join(f"{name} {text}" for name, text in one[key].items()) or "-" for key in ("requests", "limits")
    )
    return one["name"], one["qos"] or "-", one["hold"] or "-", cpus, one["memory_nodes"] or "-", asked, limited


def state_text(one: t.Mapping[str, t.Any]) -> str:
    """The state of a workload, and the reason if it has no grant."""
    return str(one["state"]) + (f": {one['reason']}" if one["reason"] else "")


def budget(context: Context) -> dict[str, json_shapes.Budget]:
    """By resource, the amount that the node can give (``allocatable``), the sum of the requests, and the sum of the limits.

    ``unlimited`` counts the workloads without a limit.
    """
    found = context.workloads
    if found is None:
        return {}
    total = allocatable(context.pools, found.totals)
    if found.pids is not None:
        total[PIDS] = found.pids
    if found.devices is not None:
        total.update({name: sum(not one.unhealthy for one in rows) for name, rows in found.devices.devices.items()})
    result: dict[str, json_shapes.Budget] = {}
    for resource, most in total.items():
        asked = [
            dict(grant.limits if resource == PIDS else grant.requests).get(resource, 0)
            for grant in found.allocated.grants
        ]
        # A workload without a limit may take any amount of a resource, but no device.
        default = 0 if is_device(resource) else None
        limited = [dict(grant.limits).get(resource, default) for grant in found.allocated.grants]
        result[resource] = {
            "allocatable": most,
            "requested": sum(asked),
            "limits": sum(one for one in limited if one is not None),
            "unlimited": sum(one is None for one in limited),
        }
    return result


def budget_lines(context: Context) -> list[str]:
    """The budget as text; limits may exceed the node's amount, and a line says by how much."""
    found = []
    for resource, one in budget(context).items():
        total, asked, limited = one["allocatable"], one["requested"], one["limits"]
        if not (asked or limited):
            continue
        over = f", {about(resource, limited - total)} over what there is" if limited > total else ""
        sides = [about(resource, amount) for amount in (asked, total, limited)]
        found.append(f"{resource}: {sides[0]} of {sides[1]} requested; limits {sides[2]}{over}")
    return found


def unstarted(one: t.Mapping[str, t.Any]) -> dict[str, t.Any]:
    """The row of a workload without a grant, from a context with its start: the state is waiting, not granted."""
    granted = one["state"] == "granted"
    return {**one, "state": "waiting" if granted else one["state"], "run": None, "since": None}


def explained(context: Context, name: str, enforced: t.Optional[str] = None, *, if_started: bool = False) -> list[str]:
    """Lines on why a workload has its grant or no grant, and what would help. ``enforced``: see status_file.enforcement().

    ``if_started``: the workload has no grant, and the context shows the node after its start.
    """
    found = context.workloads
    one = next((row for row in rows(found) if row["name"] == name), None) if found else None
    if found is None or one is None:
        return []
    need = next((need for need in found.needs if need.workload.name == name), None)
    would_be = if_started and one["state"] == "granted"
    said = [f"{name}: would be granted, if it started now" if would_be else f"{name}: {one['state']}"]
    if need is not None:
        said.append(f"class: {need.qos}, {why_class(need)}")
        said += tenant_lines(need)
        said.append(f"CPUs: {why_cpus(context, need, has_own=bool(one['cpus']))}")
    if one["state"] == "granted":
        said.append(f"{'would have' if would_be else 'has'}: {places_text(context, one)}, in {one['slice']}")
        said += [f"exclusive CPUs: {enforced}"] if enforced else []
        said += granted_lines(context, found, one)
        said += container_lines(need, one["containers"])
        said += [f"refused more: {refusal.message}" for refusal in found.allocated.refusals if refusal.workload == name]
    elif one["reason"]:
        said.append(f"refused: {one['reason']}")
    elif one["state"] == "waiting":
        said.append("it is granted what it asks for when it starts")
    return said


def places_text(context: Context, one: t.Mapping[str, t.Any]) -> str:
    """The CPUs of a workload by NUMA node, or the shared pool."""
    own = cpuset.parse(one["cpus"])
    by_node = {node: cpuset.format(cpus & own) for node, cpus in context.topology.node_cpus().items()}
    places = ", ".join(f"{cpus} on NUMA node {node}" for node, cpus in by_node.items() if cpus)
    return places or f"the shared pool {cpuset.format(context.pools.shared)}"


def granted_lines(context: Context, found: Workloads, one: t.Mapping[str, t.Any]) -> list[str]:
    """The memory and the devices of a workload, and the policy that chose their NUMA nodes."""
    said = [] if one["memory_nodes"] is None else [f"memory: bound to NUMA node {one['memory_nodes']}"]
    there = found.devices.devices if found.devices is not None else {}
    said += [
        f"devices: {resource} {', '.join(device_text(name, there.get(resource)) for name in ids)}"
        for resource, ids in one["devices"].items()
    ]
    topology = context.profile.topology
    if topology is not None and topology.name != "none":
        said.append(f"placed by: topology policy {topology.name}, scope {topology.scope}")
    return said


def device_text(name: str, devices: t.Optional[t.Sequence[Device]]) -> str:
    """The id of a granted device, and why the device is not healthy. ``devices``: all of its resource (None: no longer declared)."""
    if devices is None:
        return name
    device = next((one for one in devices if one.id == name), None)
    why = "gone" if device is None else device.unhealthy
    return f"{name} ({why})" if why else name


def container_lines(need: t.Optional[ResourceRequirements], own: t.Mapping[str, str]) -> list[str]:
    """A line for each container of a pod, in the order of the profile: the container's CPUs, and the CDI device that delivers its grant."""
    if need is None:
        return [f"container {name}: {cpus}" for name, cpus in own.items()]
    said = []
    for one in need.workload.containers:
        role = "" if one.role == APP else f" ({one.role})"
        cpus = own.get(one.name) or "the CPUs of the pod"
        device = f"{device_delivery.KIND}={device_delivery.cdi_name(need.workload.name, one.name)}"
        said.append(f"container {one.name}{role}: {cpus}, start it with --device {device}")
    return said


def tenant_lines(need: ResourceRequirements) -> list[str]:
    """A line with a workload's tenant and the defaults that the tenant gives it."""
    if need.member is None:
        return []
    given = [
        f"{f'{container} ' if container else ''}{section}.{resource} {amount_text(resource, amount)}"
        for container, section, resource, amount in need.member.defaults
    ]
    return [f"tenant: {need.tenant}{', by default ' + ', '.join(given) if given else ''}"]


def why_class(need: ResourceRequirements) -> str:
    """Why a workload has its QoS class."""
    if need.qos == qos.GUARANTEED:
        return "requests equal limits for CPU and memory"
    return (
        "no requests and no limits"
        if need.qos == qos.BEST_EFFORT
        else "requests below limits, or not for both CPU and memory"
    )


def why_cpus(context: Context, need: ResourceRequirements, *, has_own: bool) -> str:
    """Why a workload has exclusive CPUs, or shares CPUs. A run keeps exclusive CPUs that are no longer declared."""
    if need.cpus:
        return f"{need.cpus} of its own"
    if context.profile.cpu is None or context.profile.cpu.policy != "static":
        why = "cpu.policy is none"
    else:
        why = need.note or f"as every {need.qos} workload"
    return f"its own until it stops, then shared: {why}" if has_own else f"shared, {why}"
