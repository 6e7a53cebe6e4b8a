# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The limits of a tenant's slice: what its quota leaves, and never less than what was admitted."""

from __future__ import annotations

import typing as t

import pytest
from _core.model.profile import profile
from _core.model.tenants import tenant_slice
from _core.model.tenants.tenant import Member, Tenant
from _core.model.workload.grants import Grant

MIB = 1 << 20


def tenant(**hard: t.Any) -> Tenant:
    quota = [{"name": "q", "hard": {name.replace("_", "."): value for name, value in hard.items()}}]
    row = {"name": "acme", "members": {"units": ["*.service"]}, "quota": quota if hard else []}
    return profile.parse({"name": "x", "cpu": {"reserved": {"count": 1}}, "tenants": [row]}).tenants[0]


def grant(name: str, *cpus: int, of: str = "acme", requests: dict[str, int] | None = None, **limits: int) -> Grant:
    found = Grant(name, cpus=frozenset(cpus))
    return found._replace(member=Member(of), limits=tuple(limits.items()), requests=tuple((requests or {}).items()))


@pytest.mark.parametrize(
    ("granted", "wanted"),
    [
        ([], 96 * MIB),
        ([grant("a", memory=64 * MIB)], 96 * MIB),
        ([grant("a", 4, 5, memory=32 * MIB)], 64 * MIB),
        ([grant("a", 4, 5, of="other", memory=32 * MIB)], 96 * MIB),
        # A lower quota ends nothing that was admitted, also where CPUs of their own take all of it.
        ([grant("a", memory=128 * MIB)], 128 * MIB),
        ([grant("a", 4, 5, memory=90 * MIB), grant("b", memory=32 * MIB)], 32 * MIB),
        ([grant("a", 4, 5, memory=96 * MIB)], 4096),
        # One that was admitted without a limit may have all.
        ([grant("a", memory=64 * MIB), grant("b")], None),
        ([grant("a", 4, 5)], 96 * MIB),
    ],
)
def test_memory_is_what_the_quota_leaves(granted: list[Grant], wanted: int | None) -> None:
    limits = tenant_slice.limits_in_force(tenant(limits_memory="96Mi"), granted)
    assert limits["MemoryMax"] == ("infinity" if wanted is None else str(wanted))
    assert limits["TasksMax"] == "infinity"


def test_a_quota_of_nothing_leaves_the_least_that_systemd_takes() -> None:
    none = tenant(limits_memory=0, limits_pids=0)
    assert tenant_slice.persistent_limits(none) == {"MemoryMax": "4096", "TasksMax": "1"}
    limits = tenant_slice.limits_in_force(none, [])
    assert (limits["MemoryMax"], limits["TasksMax"]) == ("4096", "1")


def test_a_drop_in_has_what_the_quota_alone_says() -> None:
    lines = tenant_slice.slice_text(tenant(limits_cpu=2, limits_memory="96Mi", limits_pids=9)).splitlines()
    assert lines[-5:] == ["", "[Slice]", "CPUWeight=79", f"MemoryMax={96 * MIB}", "TasksMax=9"]
    assert lines[lines.index("[Unit]") + 1] == "Description=Corral: tenant acme"
    assert "[Slice]" not in tenant_slice.slice_text(tenant())


def test_the_share_of_cpu_time_is_the_quotas_or_what_is_requested_in_the_slice() -> None:
    granted = [
        grant("a", requests={"cpu": 500}, cpu=1000),
        grant("b", 4, 5, requests={"cpu": 2000}, cpu=2000),
        grant("c", of="other", requests={"cpu": 4000}, cpu=4000),
    ]
    assert tenant_slice.cpu_share(tenant(), granted) == 500
    assert tenant_slice.cpu_share(tenant(limits_cpu=6), granted) == 4000
    assert tenant_slice.cpu_share(tenant(requests_cpu=6), granted) == 500, "quotas of requests limit no slice"
    assert tenant_slice.persistent_limits(tenant(requests_cpu=6, requests_memory="1Gi")) == {}
