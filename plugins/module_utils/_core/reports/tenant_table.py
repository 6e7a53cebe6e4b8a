# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# This module is private to the collection corral.node.
"""Tenants with their quotas (used and hard amounts), as text and as JSON data."""

from __future__ import annotations

import typing as t

from ..model.plan.context import Context
from ..model.tenants import tenant_admission
from ..model.tenants.tenant_quota import amount_text
from ..model.workload.grants import slice_of_tenant
from . import text_table

if t.TYPE_CHECKING:
    from ..model.status import json_shapes


def rows(context: Context) -> list[json_shapes.Tenant]:
    """Each tenant of the profile: its granted workloads, and the usage of its quotas."""
    found: list[json_shapes.Tenant] = []
    for tenant in context.profile.tenants:
        usages = tenant_admission.usages([tenant], context.grants)
        listed: list[json_shapes.TenantQuota] = [
            {"quota": one.quota, "resource": one.usage.resource, "used": one.usage.used, "hard": one.usage.hard}
            for one in usages
        ]
        found.append(
            {
                "name": tenant.name,
                "slice": slice_of_tenant(tenant.name),
                "workloads": [grant.workload for grant in context.grants if grant.tenant == tenant.name],
                "quota": listed,
                "text": line(tenant.name, listed),
            }
        )
    return found


def line(name: str, quotas: t.Iterable[json_shapes.TenantQuota]) -> str:
    """A tenant on one line: ``tenant acme: compute requests.cpu 3 of 4``."""
    parts = [f"{one['quota']} {one['resource']} {' of '.join(amounts(one))}" for one in quotas]
    return f"tenant {name}: {', '.join(parts) or 'no quota'}"


def amounts(one: json_shapes.TenantQuota) -> tuple[str, str]:
    """The used and the hard amount of a quota, in the notation of a profile."""
    return amount_text(one["resource"], one["used"]), amount_text(one["resource"], one["hard"])


def lines(found: t.Sequence[json_shapes.Tenant]) -> list[str]:
    """The table of ``corral status --tenants``."""
    table = [("tenant", "workloads", "quota", "resource", "used", "hard", "")]
    for tenant in found:
        head = (tenant["name"], str(len(tenant["workloads"])))
        if not tenant["quota"]:
            table.append((*head, "-", "-", "-", "-", ""))
        for one in tenant["quota"]:
            said = "exceeded" if one["used"] > one["hard"] else ""
            table.append((*head, one["quota"], one["resource"], *amounts(one), said))
            head = ("", "")
    return text_table.aligned(table)
