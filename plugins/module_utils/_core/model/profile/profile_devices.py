# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# This module is private to the collection corral.node.
"""The section ``devices`` of a profile: resources by name, and which devices of a node belong to each resource."""

from __future__ import annotations

import typing as t

from ..devices import device_delivery
from ..devices.device import Check, Match, Resource
from ..workload.resources import is_device
from .schema_quantities import COUNT, split_quota_resource
from .schema_reader import Reader, join

# A key of ALONE must be the only key of its match. Keys of OF_PCI describe a PCI function; a device must fit all of them.
ALONE = ("path", "cdi")
OF_PCI = ("address", "pci", "class", "driver", "interface", "iommu_group")


def check(reader: Reader, values: t.Mapping[str, t.Any], given: t.Mapping[str, t.Any]) -> None:
    """Refuse contradictions, and requests and quotas of resources that the section does not declare."""
    seen: dict[str, int] = {}
    variables: dict[str, str] = {}
    for index, row in enumerate(values.get("devices", [])):
        at = join("devices", index)
        name = row.get("name")
        if name in seen:
            reader.refuse(join(at, "name"), name, f"is devices[{seen[name]}] already: give each resource its own name")
        elif name is not None:
            seen[name] = index
            own = device_delivery.variable(name)
            if own in variables:
                other = f"{variables[own]} as devices[{seen[variables[own]]}]"
                reader.refuse(
                    join(at, "name"), name, f"gets the variables of {other} (…_{own}): change a letter or digit of it"
                )
            variables.setdefault(own, name)
        written = given["devices"][index]
        match = written.get("match") if isinstance(written, dict) else None
        if isinstance(match, dict):
            _check_match(reader, join(at, "match"), match, bool(row.get("require_link")))
            if row.get("bind") is not None:
                _check_bind(reader, at, match, row)
        own_check = written.get("check") if isinstance(written, dict) else None
        if isinstance(own_check, dict):
            reader.refuse_command(f"{at}.check", row.get("check"), own_check)
    for index, workload in enumerate(values.get("workloads", [])):
        at = join("workloads", index)
        _check_requests(reader, at, workload, seen)
        for number, container in enumerate(workload.get("containers", [])):
            _check_requests(reader, join(join(at, "containers"), number), container, seen)
    for index, tenant in enumerate(values.get("tenants", [])):
        for number, quota in enumerate(tenant.get("quota", [])):
            at = join(join(join("tenants", index), "quota"), number)
            _check_quota(reader, join(at, "hard"), quota.get("hard", {}), seen)


def _check_quota(reader: Reader, at: str, hard: t.Mapping[str, t.Any], declared: t.Collection[str]) -> None:
    for name, amount in hard.items():
        resource = split_quota_resource(name)[1]
        if name != COUNT and is_device(resource) and resource not in declared:
            said = f"is of a resource that is not declared, {listed(declared)}: declare it there, or leave it out of the quota"
            reader.refuse(join(at, name), amount.text, said)


def listed(declared: t.Collection[str]) -> str:
    """The declared resources, for a message."""
    return f"devices has {', '.join(sorted(declared))}" if declared else "devices has none"


def _check_requests(reader: Reader, at: str, row: t.Mapping[str, t.Any], declared: t.Collection[str]) -> None:
    for section in ("requests", "limits"):
        for resource, amount in row.get(section, {}).items():
            if is_device(resource) and resource not in declared:
                reader.refuse(
                    join(join(at, section), resource),
                    amount.text,
                    f"is of a resource that is not declared, {listed(declared)}: declare it there, or leave the request out",
                )


def _check_match(reader: Reader, path: str, given: t.Mapping[str, t.Any], require_link: bool) -> None:
    there = [key for key in (*ALONE, *OF_PCI) if given.get(key) is not None]
    alone = [key for key in there if key in ALONE]
    if not there and given.keys() <= {*ALONE, *OF_PCI}:  # an unknown key, the likely mistake, is refused elsewhere
        reader.refuse(
            path, None, f"matches everything: write one or more of {', '.join(OF_PCI)}, or {' or '.join(ALONE)}"
        )
    elif alone and len(there) > 1:
        reader.refuse(path, None, f"declares {' and '.join(there)} together: {alone[0]} must be alone, leave one out")
    elif str(given.get("cdi")).partition("=")[0] == device_delivery.KIND:
        reader.refuse(f"{path}.cdi", given["cdi"], "is what Corral makes of its grants: match the devices themselves")
    elif alone and require_link:
        reader.refuse(
            f"{path}.{alone[0]}", given[alone[0]], "has no link for require_link to check: leave require_link out"
        )


def _check_bind(reader: Reader, at: str, match: t.Mapping[str, t.Any], row: t.Mapping[str, t.Any]) -> None:
    """Refuse a match that no longer finds the same devices after Corral has bound them to another driver."""
    changing = [key for key in (*ALONE, "driver", "interface") if match.get(key) is not None]
    if changing:
        message = f"needs a match by address, pci, class or iommu_group, not by {changing[0]}"
        reader.refuse(f"{at}.bind", row["bind"], message)
    elif row.get("require_link"):
        reader.refuse(
            f"{at}.bind",
            row["bind"],
            "leaves no network interface for require_link to check: leave out bind or require_link",
        )


SHAPES = {"devices": Resource, "devices[].match": Match, "devices[].check": Check}
