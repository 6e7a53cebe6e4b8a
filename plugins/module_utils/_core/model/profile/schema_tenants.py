# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# This module is private to the collection corral.node.
"""The keys of the section ``tenants``: limits and quotas of groups of workloads."""

from __future__ import annotations

import re

from ..tenants import tenant
from . import schema_devices
from . import schema_quantities as quantities
from . import schema_types as types
from .schema_key import LIST, MAP, Key
from .schema_quantities import COUNT
from .schema_types import Type

LAST_UID = (1 << 32) - 2  # the next number means "no user" (systemd's UIDS-GIDS)
_SLICE_PART = r"(?:[A-Za-z0-9:_.]|\\x[0-9a-f]{2})+"
_SLICE = re.compile(rf"{_SLICE_PART}(?:-{_SLICE_PART})*\.slice")


def _quota_resource(value: object) -> str:
    """The name of a resource of a tenant's quota; a name without a section is a request, as in Kubernetes."""
    text = value if isinstance(value, str) and len(value) <= 600 else ""
    if text == COUNT:
        return text
    hint = (
        f"write requests.cpu, limits.memory, limits.pids, requests.hugepages-2Mi, requests.example.com/nic or {COUNT}"
    )
    if text == "pods" or text.startswith("count/"):
        raise ValueError(f"counts objects of an API server: write {COUNT}")
    if "storage" in text or text == "persistentvolumeclaims":
        raise ValueError(f"is storage, which Corral does not give: {hint}")
    section, resource = quantities.split_quota_resource(text)
    is_device = "/" in resource
    if is_device and section == "limits":
        raise ValueError(f"is a limit of devices, which have requests alone: write requests.{resource}")
    try:
        found = schema_devices.RESOURCE_NAME.read(resource) if is_device else quantities.RESOURCE.read(resource)
    except ValueError:
        raise ValueError(f"is not a resource that a quota limits: {hint}") from None
    return f"{section or 'requests'}.{found}"


def _slice(value: object) -> str:
    """The name of a slice for Slice=, at any depth."""
    text = types.read_text(value, such_as="acme.slice")
    hint = "name a slice such as acme.slice or apps-acme.slice"
    if types.is_own(text):
        raise ValueError(f"is Corral's own, in which no unit's files put it: {hint}")
    if text == "-.slice":
        raise ValueError(f"is the root of all slices: {hint}")
    if len(text) > 255 or not _SLICE.fullmatch(text):
        raise ValueError(f"is not the name of a slice: {hint}")
    return text


def _user(value: object) -> str:
    """The name or number of a user, in the form of User=."""
    if isinstance(value, int) and not isinstance(value, bool):
        value = str(value)
    text = types.read_text(value, such_as="acme")
    if text.isascii() and text.isdigit():
        if str(int(text[:12])) != text or int(text) > LAST_UID:
            raise ValueError(f"is not the number of a user: write a number such as 1000, at most {LAST_UID}")
        return text
    return str(types.ACCOUNT.read(text))


QUOTA_RESOURCE = Type("resource of a quota", _quota_resource)
SLICE = Type("slice", _slice, pattern=_SLICE.pattern)
USER = Type("user, by name or number", _user, bounds=(0, LAST_UID), pattern=rf"{types.ACCOUNT.pattern}|[0-9]{{1,10}}")

KEYS: tuple[Key, ...] = (
    Key(
        "tenants",
        None,
        "Groups of workloads: limits for each workload, and a quota for all of a group together ([tenants.md](tenants.md)). "
        "A workload has one tenant at most.",
        many=LIST,
    ),
    Key(
        "tenants[].name",
        types.LABEL,
        "The name of the tenant. No workload may have the same name.",
        example="acme",
        required=True,
    ),
    Key(
        "tenants[].members",
        None,
        "The workloads of the tenant: one of these patterns fits what a workload matches, or a setting of its unit.",
        required=True,
    ),
    Key(
        "tenants[].members.units", types.UNIT, "Services, `*` and `?` allowed.", example='["acme-*.service"]', many=LIST
    ),
    Key("tenants[].members.containers", types.CONTAINER, "Containers by name.", example='["acme-*"]', many=LIST),
    Key("tenants[].members.pods", types.CONTAINER, "Pods by name.", example='["acme-*"]', many=LIST),
    Key(
        "tenants[].members.labels",
        types.CONTAINER_LABEL,
        "Labels, `KEY` or `KEY=VALUE`, of workloads that match a label.",
        example='["tenant=acme"]',
        many=LIST,
    ),
    Key(
        "tenants[].members.slices",
        SLICE,
        "Services whose files set `Slice=` to this slice, or to one within it.",
        example="[acme.slice, apps-acme.slice]",
        many=LIST,
    ),
    Key(
        "tenants[].members.users",
        USER,
        "Services whose files set `User=` to this user, by name or number as it stands there.",
        example='[acme, "1000"]',
        many=LIST,
    ),
    Key(
        "tenants[].share_process_namespace",
        types.BOOLEAN,
        "Whether containers of a workload may share a PID namespace; false forbids it to all workloads of the tenant.",
        example="false",
        default=True,
        quiet=True,
    ),
    Key(
        "tenants[].limits",
        None,
        "What one workload may have: Kubernetes' LimitRange. They apply when a workload is admitted; what was granted before "
        "stays as it is.",
        many=LIST,
    ),
    Key(
        "tenants[].limits[].type",
        types.choice("container", "pod"),
        "What is limited: each container (a workload without containers is one itself), or each workload as a whole.",
        example="container",
        required=True,
        field="kind",
    ),
    *(
        Key(
            f"tenants[].limits[].{name}",
            quantities.QUANTITY,
            doc,
            example=example,
            many=MAP,
            keys=quantities.RESOURCE,
        )
        for name, doc, example in (
            ("min", "The least that it may request.", "{cpu: 100m, memory: 64Mi}"),
            ("max", "The most that it may have as its limit.", "{cpu: 2, memory: 1Gi}"),
            (
                "default",
                "The limit of a container that has none of its own; without a default it is `max`.",
                "{cpu: 500m, memory: 256Mi}",
            ),
            (
                "default_request",
                "The request of a container that has neither request nor limit; without one it is the default limit, else `min`.",
                "{cpu: 250m, memory: 128Mi}",
            ),
            ("max_limit_request_ratio", "How many times the request a limit may be at most.", "{memory: 2}"),
        )
    ),
    Key(
        "tenants[].quota",
        None,
        "What the workloads of the tenant may have together: Kubernetes' ResourceQuota. It applies when a workload is admitted; "
        "usage above it is reported, and nothing that runs is touched.",
        many=LIST,
        field="quotas",
    ),
    Key("tenants[].quota[].name", types.LABEL, "What the quota is called.", example="compute", required=True),
    Key(
        "tenants[].quota[].hard",
        quantities.QUANTITY,
        "The most of each resource: `requests.` and `limits.` of `cpu`, `memory` and hugepages by page size, `limits.pids`, "
        "`requests.` of a resource of devices (`requests.example.com/nic`), and `count/workloads`. "
        "Each workload must name what the quota limits of CPU, memory and tasks, or get it by default.",
        example="{requests.cpu: 4, limits.memory: 8Gi, count/workloads: 10}",
        many=MAP,
        keys=QUOTA_RESOURCE,
        required=True,
    ),
    Key(
        "tenants[].quota[].scopes",
        types.choice(*tenant.SCOPES, later=("CrossNamespacePodAffinity", "VolumeAttributesClass")),
        "Only workloads of these scopes are counted: by QoS class, by whether the unit has `RuntimeMaxSec=`, or whether they "
        "have a priority.",
        example="[NotBestEffort]",
        many=LIST,
    ),
    Key(
        "tenants[].quota[].scope_selector",
        None,
        "Only workloads that meet all these conditions are counted, beside `scopes`.",
        many=LIST,
        field="selectors",
    ),
    Key(
        "tenants[].quota[].scope_selector[].scope",
        types.choice(*tenant.SCOPES, later=("CrossNamespacePodAffinity", "VolumeAttributesClass")),
        "The scope.",
        example="PriorityClass",
        required=True,
    ),
    Key(
        "tenants[].quota[].scope_selector[].operator",
        types.choice(*tenant.OPERATORS),
        "How it is compared with `values`; scopes other than `PriorityClass` have only `Exists`.",
        example="In",
        required=True,
    ),
    Key(
        "tenants[].quota[].scope_selector[].values",
        types.LABEL,
        "Names of priorities (`workloads[].priority`), for `In` and `NotIn`.",
        example="[high]",
        many=LIST,
    ),
)
