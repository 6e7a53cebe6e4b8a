# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# This module is private to the collection corral.node.
"""The keys of the section ``workloads``."""

from __future__ import annotations

from . import schema_devices as devices
from . import schema_quantities as quantities
from . import schema_types as types
from .schema_key import LIST, MAP, Key

KEYS: tuple[Key, ...] = (
    Key(
        "workloads",
        None,
        "The node's workloads, by name. Each can have CPUs, memory and limits of its own ([workloads.md](workloads.md)), and garbage "
        "collection may remove its dead containers (`gc.containers.scope: declared`).",
        many=LIST,
    ),
    Key("workloads[].name", types.LABEL, "What the workload is called.", example="batch", required=True),
    Key(
        "workloads[].match",
        None,
        "What belongs to it. Exactly one of `unit`, `container`, `pod` and `label`; `*` and `?` are allowed, except in labels.",
        required=True,
        field="matched",
    ),
    Key(
        "workloads[].match.unit",
        types.UNIT,
        "The systemd unit that it is, or that starts its containers.",
        example="batch@*.service",
    ),
    Key("workloads[].match.container", types.CONTAINER, "The container's name.", example="batch-*"),
    Key("workloads[].match.pod", types.CONTAINER, "The pod's name.", example="web"),
    Key(
        "workloads[].match.label",
        types.CONTAINER_LABEL,
        "A label of the container or pod: `KEY`, or `KEY=VALUE`.",
        example="app=batch",
    ),
    Key(
        "workloads[].hold",
        types.choice("declared", "running"),
        "How long it keeps its grant: as long as it is declared, or from before each start until after its stop.",
        example="running",
        default="declared",
    ),
    Key(
        "workloads[].priority",
        types.LABEL,
        "The name of its priority, by which quotas of tenants tell workloads apart (`tenants[].quota[].scope_selector`).",
        example="high",
    ),
    Key(
        "workloads[].share_process_namespace",
        types.BOOLEAN_OR_ANY,
        "Whether the containers of a pod share one PID namespace, as `shareProcessNamespace` of Kubernetes: all of them, each has its "
        "own, or either is right. A difference is drift ([workloads.md](workloads.md#shared-process-namespaces)).",
        example="true",
        default="any",
    ),
    Key(
        "workloads[].requests",
        quantities.QUANTITY,
        "What the workload is to have: `cpu`, `memory`, hugepages by page size (`hugepages-2Mi`), as Kubernetes quantities, and a number "
        "of devices by the resource of `devices` (`example.com/nic`). A missing request equals its limit. Requests must equal limits "
        "for hugepages and devices.",
        example="{cpu: 4, memory: 2Gi, hugepages-2Mi: 512Mi}",
        many=MAP,
        keys=devices.WORKLOAD_RESOURCE,
    ),
    Key(
        "workloads[].limits",
        quantities.QUANTITY,
        "What the workload may have at most; also `pids`, the number of its tasks.",
        example="{cpu: 4, memory: 2Gi, hugepages-2Mi: 512Mi, pids: 512}",
        many=MAP,
        keys=devices.WORKLOAD_RESOURCE,
    ),
    Key(
        "workloads[].containers",
        None,
        "The containers of a pod, in the order in which they start, each with what it is to have; the pod has what they need "
        "together. An init container hands its CPUs to those that come after it.",
        many=LIST,
    ),
    Key("workloads[].containers[].name", types.CONTAINER_NAME, "The container's name.", example="app", required=True),
    Key(
        "workloads[].containers[].role",
        types.choice("app", "init", "sidecar"),
        "Its role: an `init` container ends before the next one starts, a `sidecar` starts among them and stays.",
        example="init",
        default="app",
    ),
    Key(
        "workloads[].containers[].requests",
        quantities.QUANTITY,
        "What the container is to have: `cpu`, `memory`, hugepages by page size (`hugepages-2Mi`), as Kubernetes quantities, and a number "
        "of devices by the resource of `devices` (`example.com/nic`). A missing request equals its limit. Requests must equal limits "
        "for hugepages and devices.",
        example="{cpu: 4, memory: 2Gi, hugepages-2Mi: 512Mi}",
        many=MAP,
        keys=devices.WORKLOAD_RESOURCE,
    ),
    Key(
        "workloads[].containers[].limits",
        quantities.QUANTITY,
        "What the container may have at most; also `pids`, the number of its tasks.",
        example="{cpu: 4, memory: 2Gi, hugepages-2Mi: 512Mi, pids: 512}",
        many=MAP,
        keys=devices.WORKLOAD_RESOURCE,
    ),
)
