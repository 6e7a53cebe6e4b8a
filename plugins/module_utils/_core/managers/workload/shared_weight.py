# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# This module is private to the collection corral.node.
"""The weight of the slice around all workloads on the shared pool: the sum of their requests.

A weight counts only among siblings: if the slice around the workloads had the default weight, they would get less CPU time than they
request, compared with system services. The kubelet sets the weight of its pods' cgroup the same way. A part of the workloads manager.
"""

from __future__ import annotations

import typing as t

from ...host import cgroup, state
from ...host.files import Host
from ...model.plan import make_step
from ...model.plan.plan import LIVE, Change
from ...model.profile.schema_types import CORRAL_SLICE
from ...model.systemd import unit_limits
from ...model.tenants.tenant import Tenant
from ...model.workload import qos
from ...model.workload.grants import Grant
from ...model.workload.resources import CPU
from ...model.workload.workload_units import NAME

WEIGHT = "CPUWeight"
KEY = f"property:{CORRAL_SLICE}:{WEIGHT}"


def wanted(host: Host, tenants: t.Sequence[Tenant], granted: t.Sequence[Grant]) -> t.Optional[str]:
    """CPUWeight= of the slice around workloads that share CPUs; None as long as the default weight is enough.

    Once Corral has raised the weight, Corral also lowers the weight by setting the property, since runs come and go. The original would be
    restored by removing a file, and systemd would have to read all its files again.
    """
    weight = requested(tenants, granted)
    if weight is None:
        before = (record.before for record in state.records(host)[0] if record.before.key == KEY)
        weight = next((original.value or unit_limits.DEFAULT_WEIGHT for original in before), None)
    return weight


def requested(tenants: t.Sequence[Tenant], granted: t.Sequence[Grant]) -> t.Optional[str]:
    """The sum of the workloads' requests as a weight; None if the default weight is enough.

    A tenant counts with the share of its slice, and a workload without a tenant with its request.
    """
    known = {tenant.name for tenant in tenants}
    milli = sum(dict(grant.requests).get(CPU, 0) for grant in granted if not grant.cpus and grant.tenant not in known)
    if tenants:
        from ...model.tenants import tenant_slice  # imported here: only nodes with tenants need the module

        milli += sum(tenant_slice.cpu_share(tenant, granted) for tenant in tenants)
    weight = qos.cpu_weight(qos.cpu_shares(milli))
    return str(weight) if weight > int(unit_limits.DEFAULT_WEIGHT) else None


def change(host: Host, weight: str) -> t.Optional[Change]:
    """The change that gives the slice this weight; None if the slice has the weight already."""
    location = f"{cgroup.path_of(CORRAL_SLICE)}/{unit_limits.FILES[WEIGHT]}"
    actual = host.read(location)
    if actual is not None and actual.strip() == weight:
        return None
    shown = None if actual is None else actual.strip()
    step = make_step.unit_property(CORRAL_SLICE, WEIGHT, weight, LIVE)
    reason = "what workloads on the shared pool request together"
    return Change(NAME, CORRAL_SLICE, WEIGHT, shown, weight, reason, location, (step,))
