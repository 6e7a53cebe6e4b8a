# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# This module is private to the collection corral.node.
"""The JSON that single commands print. Type checkers and a test read these shapes (see json_shapes.py); no code loads this file."""

from __future__ import annotations

import typing as t

from .json_shapes import GcFileSystem, GcRemoved, RenderedItem, RenderedPause, Tenant, Workload


class TopologyNode(t.TypedDict):
    """A NUMA node of the machine."""

    cpus: list[int]
    memory_kib: t.Optional[int]
    hugepages: dict[str, int]


# The key ``class`` is a keyword of Python, so the class syntax cannot be used.
PciDevice = t.TypedDict(
    "PciDevice",
    {
        "numa_node": int,
        "node_known": bool,
        "class": t.Optional[str],
        "vendor": t.Optional[str],
        "device": t.Optional[str],
        "local_cpus": t.Optional[list[int]],
    },
)


class CpuKind(t.TypedDict):
    """CPUs of one kind, on machines with several kinds of CPUs."""

    name: str
    cpus: list[int]


class Topology(t.TypedDict):
    """What ``corral topology --json`` prints; CPUs are numbers in ascending lists."""

    schema: int
    online: list[int]
    offline_present: list[int]
    isolated: t.Optional[list[int]]
    sockets: dict[str, list[int]]
    socket_ids_known: bool
    cores: list[list[int]]
    l3: list[list[int]]
    dies: t.Optional[list[list[int]]]
    clusters: t.Optional[list[list[int]]]
    books: t.Optional[list[list[int]]]
    drawers: t.Optional[list[list[int]]]
    numa: dict[str, TopologyNode]
    distances: t.Optional[list[list[int]]]
    distance_nodes: t.Optional[list[int]]
    machine_memory_kib: t.Optional[int]
    global_hugepages: t.Optional[dict[str, int]]
    pci_numa_node: dict[str, int]
    pci: dict[str, PciDevice]
    net: dict[str, t.Optional[str]]
    kinds: list[CpuKind]
    notes: list[str]


class ExplainedWorkload(Workload):
    """A workload with all its details."""

    match: dict[str, t.Optional[str]]
    run: t.Optional[str]
    containers: dict[str, str]
    memory: list[list[t.Any]]
    requests: dict[str, str]
    limits: dict[str, str]
    if_started: bool


class ExplainedWorkloads(t.TypedDict):
    """What ``corral explain --json`` prints."""

    schema: int
    workloads: list[ExplainedWorkload]
    explanation: list[str]


class Grant(t.TypedDict):
    """The grant of a workload."""

    workload: str
    hold: str
    instance: str
    cpus: str
    containers: dict[str, str]
    mems: t.Optional[str]
    blocks: list[list[t.Any]]
    requests: dict[str, int]
    limits: dict[str, int]
    since: int
    member: t.Optional[dict[str, t.Any]]
    unit: str


class Granted(t.TypedDict):
    """What ``corral admit --json`` and ``corral release --json`` print."""

    schema: int
    grant: t.Optional[Grant]
    changed: list[RenderedItem]


class GcPassImages(t.TypedDict):
    """The result of a pass of garbage collection over images that a command started."""

    file_systems: list[GcFileSystem]
    freed: int
    errors: list[str]
    unfinished: bool


class GcPassContainers(t.TypedDict):
    """The result of a pass of garbage collection over containers and pods that a command started."""

    dead: int
    removed: list[GcRemoved]
    refused: list[str]
    errors: list[str]
    unfinished: bool


class GcPass(t.TypedDict):
    """What ``corral gc --json`` prints."""

    schema: int
    time: int
    dry: t.Optional[str]
    error: t.Optional[str]
    images: t.Optional[GcPassImages]
    containers: t.Optional[GcPassContainers]


class Snapshot(t.TypedDict):
    """What ``corral snapshot --json`` prints."""

    schema: int
    file: str
    entries: int


class Difference(t.TypedDict):
    """A value that differs; ``before`` or ``after`` is null if that side does not have the value."""

    path: str
    before: t.Optional[str]
    after: t.Optional[str]


class Differences(t.TypedDict):
    """What ``corral diff --json`` prints."""

    schema: int
    before: str
    after: str
    differences: list[Difference]


class PauseBegun(t.TypedDict):
    """What ``corral pause --json`` prints."""

    schema: int
    paused: RenderedPause


class PauseEnded(t.TypedDict):
    """What ``corral resume --json`` prints."""

    schema: int
    ended: t.Optional[RenderedPause]


class Device(t.TypedDict):
    """A device of a resource in the profile."""

    id: str
    numa_node: int
    healthy: bool
    reason: t.Optional[str]
    in_use: bool
    driver: t.Optional[str]
    functions: list[str]
    interfaces: list[str]
    files: list[str]
    workload: t.Optional[str]
    containers: list[str]


class MissingDevice(t.TypedDict):
    """A granted device that the node does not have now."""

    id: str
    workload: str


class DeviceResource(t.TypedDict):
    """A resource that the profile declares."""

    name: str
    healthy: int
    granted: int
    devices: list[Device]
    missing: list[MissingDevice]


class Devices(t.TypedDict):
    """What ``corral devices --json`` prints."""

    schema: int
    resources: list[DeviceResource]
    problems: list[str]
    notes: list[str]


class Tenants(t.TypedDict):
    """What ``corral status --tenants --json`` prints."""

    schema: int
    tenants: list[Tenant]
