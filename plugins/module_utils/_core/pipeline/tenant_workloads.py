# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# This module is private to the collection corral.node.
"""The tenant of each workload on this node, and the needs of each workload with the defaults of its tenant."""

from __future__ import annotations

import typing as t

from ..host import systemd
from ..host.files import Host
from ..host.workload import workload_state
from ..model.profile.profile import Profile
from ..model.profile.profile_workloads import Workload
from ..model.systemd.unit_property import Setting
from ..model.tenants import tenant_admission, tenant_limits
from ..model.tenants.tenant import NOT_TERMINATING, TERMINATING, Member, declared_tenant, named, tenants_of_unit
from ..model.workload import resource_requirements, workload_units
from ..model.workload.admission import AllocationResult
from ..model.workload.grants import Grant
from ..model.workload.resource_requirements import ResourceRequirements

OWN_DROPIN = f"/10-corral-{workload_units.NAME}.conf"


def needs(
    host: Host, declared: Profile, claims: t.Iterable[Workload], workloads: t.Sequence[Workload]
) -> list[ResourceRequirements]:
    """The needs of the workloads on this node, each with the defaults of its tenant.

    A workload without resources is included if it belongs to a tenant. ``claims`` are the workloads as declared, with their patterns.
    """
    units = UnitSettings(host, declared, workloads)
    patterns = {one.name: one for one in claims}
    listed = []
    for workload in workloads:
        whole = patterns[workload.name.partition(":")[0]]
        tenant, barred = tenant_of(declared, units, workload, whole.pattern)
        if not (tenant or workload.has_resources):
            continue
        member = Member(tenant, terminating=units.terminating(workload)) if tenant else None
        listed.append(need_of(declared, workload, member)._replace(barred=barred))
    return listed


def need_of(declared: Profile, workload: Workload, member: t.Optional[Member]) -> ResourceRequirements:
    """The needs of a workload with the present defaults of its tenant."""
    tenant = named(declared.tenants, member.tenant) if member else None
    if tenant is not None and member is not None:
        workload, member = tenant_admission.with_tenant(workload, tenant, member)
    policy = declared.cpu.policy if declared.cpu else "none"
    return resource_requirements.of(workload, policy, declared.pids.per_workload, member)


def tenant_of(declared: Profile, units: UnitSettings, workload: Workload, pattern: str) -> tuple[str, str]:
    """The tenant of a workload (empty: no tenant), and why the workload cannot be admitted if two tenants claim it (empty: it can)."""
    by_match = declared_tenant(declared.tenants, workload.match, pattern)
    by_unit = tenants_of_unit(declared.tenants, *units.membership(workload)) if units.decide else []
    tenants = list(dict.fromkeys([*([by_match] if by_match else []), *by_unit]))
    if len(tenants) > 1:
        said = (
            f"belongs to the tenants {' and '.join(tenants)}, by its match, Slice= or User=: narrow the members of one"
        )
        return tenants[0], said
    return (tenants[0] if tenants else ""), ""


class UnitSettings:
    """The settings of workloads' units that decide on members and quotas of tenants. If no tenant needs a setting, no file is read."""

    def __init__(self, host: Host, declared: Profile, workloads: t.Iterable[Workload]) -> None:
        tenants = declared.tenants
        self.decide = any(one.members.slices or one.members.users for one in tenants)
        scopes = {selector.scope for one in tenants for quota in one.quotas for selector in quota.selectors}
        self.limited = bool(scopes & {TERMINATING, NOT_TERMINATING})
        wanted = workload_state.units_of(workloads) if self.decide or self.limited else []
        self.files = systemd.UnitFiles(host, wanted) if wanted else None

    def setting(self, workload: Workload, name: str) -> str:
        """The value of a setting in the unit's files that are not Corral's; empty without a value."""
        if self.files is None or not workload.is_unit:
            return ""
        rows: list[Setting] = self.files.settings(workload.pattern, name)
        values = [one.value for one in rows if not one.file.endswith(OWN_DROPIN)]
        return values[-1] if values else ""

    def membership(self, workload: Workload) -> tuple[str, str]:
        """The slice and the user of a workload's unit."""
        return self.setting(workload, "Slice"), self.setting(workload, "User")

    def terminating(self, workload: Workload) -> bool:
        """Whether the time that a workload's unit may run is limited."""
        return self.limited and self.setting(workload, "RuntimeMaxSec") not in ("", "0", "infinity")


def as_granted(
    host: Host,
    declared: Profile,
    workloads: t.Iterable[Workload],
    listed: t.Sequence[ResourceRequirements],
    granted: t.Iterable[Grant],
    starting: t.Container[str],
) -> tuple[list[ResourceRequirements], list[str]]:
    """The needs, and a note on each running workload whose tenant has other defaults by now.

    Such a workload keeps the defaults of its admission: a changed limit of a tenant does not change a running workload.
    """
    known = {one.workload: one for one in granted}
    as_declared = {one.name: one for one in workloads}
    result, notes = [], []
    for need in listed:
        name, grant = need.workload.name, known.get(need.workload.name)
        if grant is not None and need.member is not None and name not in starting:
            before = grant.member.defaults if grant.member and grant.tenant == need.tenant else ()
            if need.member.defaults != before:
                earlier = with_earlier_defaults(declared, as_declared[name], need.member._replace(defaults=before))
                same = (earlier.requests, earlier.limits) == (grant.requests, grant.limits)
                if same and workload_state.populated(host, name, grant.tenant):
                    said = f"workload {name}: it runs with earlier defaults of tenant {need.tenant}, and gets new ones once it stops"
                    notes.append(said)
                    need = earlier._replace(barred=need.barred)
        result.append(need)
    return result, notes


def with_earlier_defaults(declared: Profile, workload: Workload, member: Member) -> ResourceRequirements:
    """The needs of a workload with the defaults of its admission."""
    policy = declared.cpu.policy if declared.cpu else "none"
    filled = tenant_limits.with_defaults(workload, member.defaults)
    return resource_requirements.of(filled, policy, declared.pids.per_workload, member)


def not_raised(listed: t.Iterable[ResourceRequirements], allocated: AllocationResult) -> list[ResourceRequirements]:
    """The needs. If the higher needs of a tenant's workload were refused, the needs of the workload's grant replace them."""
    refused = {one.workload for one in allocated.refusals}
    grants = {one.workload: one for one in allocated.grants if one.member and one.workload in refused}
    result = []
    for need in listed:
        grant = grants.get(need.workload.name) if need.member else None
        if grant is not None:
            need = need._replace(requests=grant.requests, limits=grant.limits, member=grant.member)
        result.append(need)
    return result
