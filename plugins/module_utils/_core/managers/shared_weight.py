# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# This module is private to the collection corral.node.
"""The weight of the slice around all workloads on the shared pool: what they request together.

A weight counts among siblings alone: in a slice of the usual weight several requests are worth less than each says,
beside services of the system. The kubelet does the same with its cgroup around pods. A part of the workloads manager.
"""

from __future__ import annotations

import typing as t

from ..host import cgroup, state
from ..host.files import Host
from ..model.plan import make_step
from ..model.plan.plan import LIVE, Change
from ..model.profile.schema_types import CORRAL_SLICE
from ..model.systemd import unit_limits
from ..model.systemd.workload_units import NAME
from ..model.tenants.tenant import Tenant
from ..model.workload import qos
from ..model.workload.grants import Grant
from ..model.workload.resources import CPU

WEIGHT = "CPUWeight"
KEY = f"property:{CORRAL_SLICE}:{WEIGHT}"


def wanted(host: Host, tenants: t.Sequence[Tenant], granted: t.Sequence[Grant]) -> t.Optional[str]:
    """CPUWeight= of the slice around workloads that share CPUs; None where it was never more than what was there before.

    Runs come and go: once it was raised, it is lowered as a property as well. What goes back with the profile is systemd's
    file, and for that systemd reads all its files again.
    """
    weight = requested(tenants, granted)
    if weight is None:
        before = (record.before for record in state.records(host)[0] if record.before.key == KEY)
        weight = next((one.value or unit_limits.DEFAULT_WEIGHT for one in before), None)
    return weight


def requested(tenants: t.Sequence[Tenant], granted: t.Sequence[Grant]) -> t.Optional[str]:
    """What the workloads request together, as a weight; None where the usual weight is enough for them.

    A tenant counts with what its slice has, others with what they request.
    """
    known = {tenant.name for tenant in tenants}
    milli = sum(dict(one.requests).get(CPU, 0) for one in granted if not one.cpus and one.tenant not in known)
    if tenants:
        from ..model.tenants import tenant_slice  # A node without tenants does not load it.

        milli += sum(tenant_slice.cpu_share(tenant, granted) for tenant in tenants)
    weight = qos.cpu_weight(qos.cpu_shares(milli))
    return str(weight) if weight > int(unit_limits.DEFAULT_WEIGHT) else None


def change(host: Host, weight: str) -> t.Optional[Change]:
    """The change that gives the slice this weight; None where it has it."""
    location = f"{cgroup.path_of(CORRAL_SLICE)}/{unit_limits.FILES[WEIGHT]}"
    actual = host.read(location)
    if actual is not None and actual.strip() == weight:
        return None
    shown = None if actual is None else actual.strip()
    step = make_step.unit_property(CORRAL_SLICE, WEIGHT, weight, LIVE)
    reason = "what workloads on the shared pool request together"
    return Change(NAME, CORRAL_SLICE, WEIGHT, shown, weight, reason, location, (step,))
