# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# This module is private to the collection corral.node.
"""The JSON that other programs read: the published files, the output of commands and modules, the fleet's report.

Type checkers compare the code with these shapes, and a test compares the written data and docs/json.md with them; nothing loads this file
at run time. ``schema`` is constants.SCHEMA, which is raised when a field is removed or changes its meaning, not for a new field.
"""

from __future__ import annotations

import typing as t

from ..values.vocabulary import Disruption, Mode, Verdict, When


class Item(t.TypedDict):
    """A change, or an item of drift: a change that was not applied."""

    manager: str
    subject: str
    property: str
    actual: t.Optional[str]
    wanted: t.Optional[str]
    reason: str
    location: str
    verdict: Verdict
    when: When
    disruption: Disruption


class RenderedItem(Item):
    """An item with a line of text for people."""

    text: str


class DriftItem(RenderedItem):
    """An item of drift with a line of text for people, and the time since when the drift exists."""

    since: t.Optional[int]


class StatusItem(Item):
    """An item in status.json."""

    since: int
    maintenance: bool
    logged: bool


class Pause(t.TypedDict):
    """A pause that is in force."""

    since: int
    until: int
    by: str
    uid: int
    reason: str


class RenderedPause(Pause):
    """A pause with a line of text for people."""

    text: str


class Unconfirmed(t.TypedDict):
    """A profile that waits for its confirmation; without a confirmation the node goes back to the earlier profile.

    ``failed``: a step failed, and Corral could not undo all steps before it; the profile cannot be confirmed. ``command``: the words of the
    command by which the node confirms the profile (`confirm.command`); empty if a run or a person confirms the profile.
    """

    name: str
    hash: str
    since: int
    until: int
    before: t.Optional[str]
    failed: bool
    command: list[str]


class RenderedUnconfirmed(Unconfirmed):
    """An unconfirmed profile with a line of text for people."""

    text: str


class KeptProfile(t.TypedDict):
    """A profile that was confirmed."""

    name: str
    hash: str


class Confirmed(t.TypedDict):
    """What ``corral confirm --json`` prints and the module ``confirm`` returns."""

    schema: int
    confirmed: t.Optional[KeptProfile]
    report: list[str]


class PoolSets(t.TypedDict):
    """The node's pools as CPU lists."""

    reserved: str
    shared: str
    isolated: str
    exclusive: str


class Pools(PoolSets):
    """The pools of a node."""

    online: str
    workloads: str
    strict: bool
    numa: dict[str, PoolSets]
    notes: list[str]


class PublishedPools(Pools):
    """/run/corral/pools.json, and what ``corral pools --json`` prints."""

    schema: int


class Hugepages(t.TypedDict):
    """A declared pool of hugepages."""

    size: str
    node: t.Optional[int]
    wanted: int
    actual: t.Optional[int]


class NumaNode(t.TypedDict):
    """A NUMA node of the machine."""

    node: int
    cpus: str
    memory_mib: t.Optional[int]
    hugepages: dict[str, int]


class Workload(t.TypedDict):
    """A workload in the status."""

    name: str
    state: t.Literal["granted", "refused", "waiting", "unknown"]
    reason: t.Optional[str]
    tenant: t.Optional[str]
    qos: t.Optional[str]
    hold: t.Optional[str]
    slice: t.Optional[str]
    cpus: str
    memory_nodes: t.Optional[str]
    devices: dict[str, list[str]]
    since: t.Optional[int]


class Budget(t.TypedDict):
    """A resource: what the node can grant, the sums of granted requests and limits, and the number of workloads without a limit."""

    allocatable: int
    requested: int
    limits: int
    unlimited: int


class TenantQuota(t.TypedDict):
    """A resource of a tenant's quota."""

    quota: str
    resource: str
    used: int
    hard: int


class Tenant(t.TypedDict):
    """A tenant with its quotas."""

    name: str
    slice: str
    workloads: list[str]
    quota: list[TenantQuota]
    text: str


class Verdicts(t.TypedDict):
    """For each verdict, the number of a manager's items with this verdict."""

    drift: int
    unchangeable: int
    unknown: int


class Totals(t.TypedDict):
    """The number of changes and of errors of the agent since the node started."""

    changes: int
    errors: int


class LastChanged(t.TypedDict):
    """The last run that changed the node, and its changes."""

    time: int
    changes: list[Item]


class Status(t.TypedDict):
    """/run/corral/status.json."""

    schema: int
    name: t.Optional[str]
    mode: t.Optional[Mode]
    time: int
    time_since_boot: int
    interval: t.Optional[int]
    in_sync: bool
    error: t.Optional[str]
    paused: t.Optional[RenderedPause]
    pause_error: t.Optional[str]
    metrics_error: t.Optional[str]
    unconfirmed: t.Optional[RenderedUnconfirmed]
    items: list[StatusItem]
    counts: t.Optional[dict[str, Verdicts]]
    totals: Totals
    last_changed: t.Optional[LastChanged]
    last_in_sync: t.Optional[int]
    pools: t.Optional[Pools]
    hugepages: t.Optional[list[Hugepages]]
    exclusive: t.Optional[str]
    partitions: t.Optional[dict[str, str]]
    workloads: t.Optional[list[Workload]]
    budget: t.Optional[dict[str, Budget]]
    tenants: t.Optional[list[Tenant]]


class InstalledProgram(t.TypedDict):
    """The agent's program, and whether its files are as they were installed."""

    release: str
    as_installed: t.Optional[bool]
    differing: list[str]


class StatusNow(Status):
    """The status at the time of the request, and why the status is stale; the local fact has this form."""

    stale: t.Optional[str]


class NodeStatus(StatusNow):
    """What ``corral status --json`` prints, and ``status`` of the module ``status_info``."""

    gc: t.Optional[GcStatus]
    program: t.Optional[InstalledProgram]


class Plan(t.TypedDict):
    """What ``corral plan --json`` and ``corral drift --json`` print."""

    schema: int
    changes: list[DriftItem]


class Key(t.TypedDict):
    """A key of the profile."""

    value: t.Any
    origin: t.Optional[str]


class AskedBy(t.TypedDict):
    """The profile's key that causes a change, and the origin of the key."""

    key: str
    origin: t.Optional[str]


class ExplainedItem(DriftItem):
    """A change, and the profile's key that causes the change."""

    asked_by: t.Optional[AskedBy]


class ExplainedPlan(t.TypedDict):
    """What ``corral plan`` and ``corral drift`` print with ``--json --explain``."""

    schema: int
    keys: dict[str, Key]
    effective_profile: dict[str, t.Any]
    changes: list[ExplainedItem]


class Run(t.TypedDict):
    """What ``corral reconcile --json`` and ``corral rollback --json`` print."""

    schema: int
    changed: list[RenderedItem]
    drift: list[DriftItem]
    error: t.Optional[str]
    undone: list[str]
    leftovers: list[str]


class ModuleResult(t.TypedDict):
    """What each module that changes a node returns, besides its own fields."""

    schema: int
    changed: bool
    changes: list[RenderedItem]
    drift: list[DriftItem]
    in_sync: bool
    report: list[str]


class EditedKey(t.TypedDict):
    """An edited key of the profile, or a section of a first profile, with the resulting changes on the node.

    ``kind``: ``edited``; ``first``; ``drift``: changes that the profile applied before would make as well; ``own``: changes of the texts of
    Corral's units after an upgrade of the collection.
    """

    kind: t.Literal["edited", "first", "drift", "own"]
    key: str
    before: t.Any
    after: t.Any
    origin: t.Optional[str]
    disruption: Disruption
    changes: list[str]


class AppliedProfile(t.TypedDict):
    """A profile that was applied on a node."""

    number: int
    hash: str
    name: str
    applied: t.Optional[int]
    state: t.Literal["in force", "kept"]


class History(t.TypedDict):
    """What ``corral history --json`` prints."""

    schema: int
    profiles: list[AppliedProfile]


class Problem(t.TypedDict):
    """A reason why Corral refuses a profile or an option."""

    path: str
    value: t.Optional[str]
    message: str
    origin: str


FleetVerdict = t.Literal["in_sync", "drift", "not_managed", "unknown", "refused", "failed", "unreachable"]


class GcRemoved(t.TypedDict):
    """An image, container or pod that garbage collection removed, or would remove (dry run)."""

    user: str
    id: str
    names: list[str]
    bytes: int
    reason: str


class GcFileSystem(t.TypedDict):
    """A file system that holds images."""

    path: str
    users: list[str]
    capacity: int
    available_before: int
    available: int
    used_percent: int
    high: int
    low: int
    asked: int
    short: int
    why: str
    images: int
    removed: list[GcRemoved]
    refused: list[str]


class GcImages(t.TypedDict):
    """The last pass of garbage collection over images."""

    time: int
    dry: t.Optional[str]
    file_systems: list[GcFileSystem]
    freed: int
    errors: list[str]
    unfinished: bool
    items: list[Item]


class GcContainers(t.TypedDict):
    """The last pass of garbage collection over containers and pods."""

    time: int
    dry: t.Optional[str]
    dead: int
    removed: list[GcRemoved]
    refused: list[str]
    errors: list[str]
    unfinished: bool
    items: list[Item]


class GcTotals(t.TypedDict):
    """The number of images, containers, bytes and errors of garbage collection since the node started."""

    images: int
    containers: int
    bytes: int
    errors: int


class GcStatus(t.TypedDict):
    """The last passes of garbage collection: ``/run/corral/gc.json``."""

    schema: int
    time: int
    dry: t.Optional[str]
    error: t.Optional[str]
    images: t.Optional[GcImages]
    containers: t.Optional[GcContainers]
    totals: GcTotals


class FleetHost(t.TypedDict):
    """A host in the fleet's report."""

    verdict: FleetVerdict
    items: list[DriftItem]
    problems: list[Problem]
    message: t.Optional[str]
    name: t.Optional[str]
    mode: t.Optional[Mode]
    pools: t.Optional[Pools]
    cpu_map: t.Optional[list[str]]
    cpu_map_now: t.Optional[list[str]]
    numa_nodes: t.Optional[list[NumaNode]]
    effective_profile: t.Optional[dict[str, t.Any]]
    workloads: t.Optional[list[Workload]]
    tenants: t.Optional[list[Tenant]]
    gc_report: t.Optional[list[str]]
    notes: t.Optional[list[str]]
    paused: t.Optional[RenderedPause]
    unconfirmed: t.Optional[RenderedUnconfirmed]


class FleetGroup(t.TypedDict):
    """The hosts with the same verdict, profile, CPUs and drift."""

    verdict: FleetVerdict
    hosts: list[str]
    since: list[t.Optional[int]]
    message: t.Optional[str]
    notes: list[str]


class Fleet(t.TypedDict):
    """The result of the filter ``fleet_report``, and the JSON file of the playbook ``drift``."""

    schema: int
    version: str
    time: int
    hosts: dict[str, FleetHost]
    groups: list[FleetGroup]
    summary: dict[FleetVerdict, int]
    lines: list[str]
