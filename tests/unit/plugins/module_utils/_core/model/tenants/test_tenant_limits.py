# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Limits of a tenant: the examples of Kubernetes' documentation on LimitRange, and what it says nothing about."""

from __future__ import annotations

import typing as t

import pytest
from _core.model.profile import profile
from _core.model.profile.profile_workloads import Workload
from _core.model.tenants import tenant_limits
from _core.model.tenants.tenant import Tenant
from _core.model.workload.resources import amount_text

Row = dict[str, t.Any]


def tenant_with(*limits: Row) -> Tenant:
    row = {"name": "acme", "members": {"pods": ["*"]}, "limits": list(limits)}
    return profile.parse({"name": "x", "cpu": {"reserved": {"count": 1}}, "tenants": [row]}).tenants[0]


def workload(*containers: Row, **own: t.Any) -> Workload:
    listed = [{"name": f"c{number}", **one} for number, one in enumerate(containers, 1)]
    data = {"containers": listed} if listed else own
    return profile.parse_workloads([{"name": "web", "match": {"pod": "web"}, **data}])[0]


def filled(one: Workload, tenant: Tenant) -> Workload:
    return tenant_limits.with_defaults(one, tenant_limits.defaults_for(one, tenant))


def shown(one: Workload) -> list[tuple[dict[str, str], dict[str, str]]]:
    """Requests and limits of each container."""
    return [
        (
            {name: amount_text(name, amount) for name, amount in member.requests},
            {name: amount_text(name, amount) for name, amount in member.limits},
        )
        for member in tenant_limits.members_of(one)
    ]


def refused(one: Workload, tenant: Tenant) -> list[tuple[str, str]]:
    return [(found.key, found.value) for found in tenant_limits.violations(filled(one, tenant), tenant)]


CONTAINER, POD = {"type": "container"}, {"type": "pod"}
CPU_DEFAULTS = {**CONTAINER, "default": {"cpu": 1}, "default_request": {"cpu": 0.5}}
MEMORY_DEFAULTS = {**CONTAINER, "default": {"memory": "512Mi"}, "default_request": {"memory": "256Mi"}}
MEMORY_BOUNDS = {**CONTAINER, "max": {"memory": "1Gi"}, "min": {"memory": "500Mi"}}
CPU_BOUNDS = {**CONTAINER, "max": {"cpu": "800m"}, "min": {"cpu": "200m"}}
CONFLICT = {
    **CONTAINER,
    "default": {"cpu": "500m"},
    "default_request": {"cpu": "500m"},
    "max": {"cpu": 1},
    "min": {"cpu": "100m"},
}
# "limit-mem-cpu-per-container"
BOTH = {
    **CONTAINER,
    "max": {"cpu": "800m", "memory": "1Gi"},
    "min": {"cpu": "100m", "memory": "99Mi"},
    "default": {"cpu": "700m", "memory": "900Mi"},
    "default_request": {"cpu": "110m", "memory": "111Mi"},
}
# "busybox1", "busybox2": the same four containers
BUSYBOX = (
    {"requests": {"memory": "100Mi", "cpu": "100m"}, "limits": {"memory": "200Mi", "cpu": "500m"}},
    {"requests": {"memory": "100Mi", "cpu": "100m"}},
    {"limits": {"memory": "200Mi", "cpu": "500m"}},
    {},
)


@pytest.mark.parametrize(
    ("limits", "own", "requests", "most"),
    [
        (CPU_DEFAULTS, {}, {"cpu": "500m"}, {"cpu": "1"}),
        (CPU_DEFAULTS, {"limits": {"cpu": 1}}, {"cpu": "1"}, {"cpu": "1"}),
        (CPU_DEFAULTS, {"requests": {"cpu": "0.75"}}, {"cpu": "750m"}, {"cpu": "1"}),
        (MEMORY_DEFAULTS, {}, {"memory": "256Mi"}, {"memory": "512Mi"}),
        (MEMORY_DEFAULTS, {"limits": {"memory": "1Gi"}}, {"memory": "1Gi"}, {"memory": "1Gi"}),
        (MEMORY_DEFAULTS, {"requests": {"memory": "128Mi"}}, {"memory": "128Mi"}, {"memory": "512Mi"}),
        (MEMORY_BOUNDS, {}, {"memory": "1Gi"}, {"memory": "1Gi"}),
        (CPU_BOUNDS, {}, {"cpu": "800m"}, {"cpu": "800m"}),
        # A minimum alone is the default request (SetDefaults_LimitRangeItem).
        ({**CONTAINER, "min": {"cpu": "100m"}}, {}, {"cpu": "100m"}, {}),
        # Tasks are limited only.
        ({**CONTAINER, "max": {"pids": 64}}, {}, {}, {"pids": "64"}),
    ],
)
def test_defaults(limits: Row, own: Row, requests: Row, most: Row) -> None:
    assert shown(filled(workload(**own), tenant_with(limits))) == [(requests, most)]


def test_each_container_has_its_own_defaults() -> None:
    assert shown(filled(workload(*BUSYBOX), tenant_with(BOTH))) == [
        ({"cpu": "100m", "memory": "100Mi"}, {"cpu": "500m", "memory": "200Mi"}),
        ({"cpu": "100m", "memory": "100Mi"}, {"cpu": "700m", "memory": "900Mi"}),
        ({"cpu": "500m", "memory": "200Mi"}, {"cpu": "500m", "memory": "200Mi"}),
        ({"cpu": "110m", "memory": "111Mi"}, {"cpu": "700m", "memory": "900Mi"}),
    ]


PER_POD = {**POD, "max": {"cpu": 2, "memory": "2Gi"}}
RATIO = {**POD, "max_limit_request_ratio": {"memory": 2}}


@pytest.mark.parametrize(
    ("limits", "own", "said"),
    [
        (MEMORY_BOUNDS, {"limits": {"memory": "800Mi"}, "requests": {"memory": "600Mi"}}, []),
        (MEMORY_BOUNDS, {"limits": {"memory": "1.5Gi"}, "requests": {"memory": "800Mi"}}, [("limits.memory", "1536Mi")]),
        (MEMORY_BOUNDS, {"limits": {"memory": "800Mi"}, "requests": {"memory": "100Mi"}}, [("requests.memory", "100Mi")]),
        (CPU_BOUNDS, {"limits": {"cpu": "800m"}, "requests": {"cpu": "500m"}}, []),
        (CPU_BOUNDS, {"limits": {"cpu": "1.5"}, "requests": {"cpu": "500m"}}, [("limits.cpu", "1500m")]),
        (CPU_BOUNDS, {"limits": {"cpu": "800m"}, "requests": {"cpu": "100m"}}, [("requests.cpu", "100m")]),
        # "example-conflict-with-limitrange-cpu": its own request is more than the default limit.
        (CONFLICT, {"requests": {"cpu": "700m"}}, [("requests.cpu", "700m")]),
        (CONFLICT, {"requests": {"cpu": "700m"}, "limits": {"cpu": "700m"}}, []),
        (RATIO, {"requests": {"memory": "100Mi"}, "limits": {"memory": "300Mi"}}, [("limits.memory", "300Mi")]),
        (RATIO, {"requests": {"memory": "100Mi"}, "limits": {"memory": "200Mi"}}, []),
        # What is bounded must be there (minConstraint, maxConstraint, limitRequestRatioConstraint).
        (RATIO, {}, [("requests.memory", None)]),
        (RATIO, {"requests": {"memory": "100Mi"}}, [("limits.memory", None)]),
        (PER_POD, {}, [("limits.cpu", None), ("limits.memory", None)]),
        ({**POD, "min": {"cpu": 1}}, {}, [("requests.cpu", None)]),
        ({**POD, "min": {"pids": 8}}, {}, [("limits.pids", None)]),
        ({**POD, "min": {"pids": 8}}, {"limits": {"pids": 7}}, [("limits.pids", "7")]),
        ({**POD, "min": {"cpu": 1}}, {"requests": {"cpu": 1}}, []),
    ],
)  # fmt: skip
def test_bounds(limits: Row, own: Row, said: list[tuple[str, str]]) -> None:
    assert refused(workload(**own), tenant_with(limits)) == said


def test_bounds_of_each_container_and_of_the_pod() -> None:
    assert refused(workload(*BUSYBOX), tenant_with(BOTH)) == []
    # "maximum cpu usage per Pod is 2, but limit is 2400m; maximum memory usage per Pod is 2Gi, but limit is 2306867200"
    assert refused(workload(*BUSYBOX), tenant_with(BOTH, PER_POD)) == [
        ("limits.cpu", "2400m"),
        ("limits.memory", "2200Mi"),
    ]
    one = workload({"limits": {"cpu": "500m"}}, {"limits": {"cpu": 1}})
    assert refused(one, tenant_with(CPU_BOUNDS)) == [("containers[1].limits.cpu", "1")]


def test_an_init_container_counts_at_the_peak_alone() -> None:
    init = {"role": "init", "limits": {"cpu": 2, "memory": "1Mi"}}
    app = {"limits": {"cpu": 2, "memory": "1Mi"}}
    assert refused(workload(init, app), tenant_with(PER_POD)) == []
    assert refused(workload(init, app, app), tenant_with(PER_POD)) == [("limits.cpu", "4")]


def test_a_message_names_tenant_container_amount_and_bound() -> None:
    found = tenant_limits.violations(workload({"limits": {"cpu": 1}}), tenant_with(CPU_BOUNDS))
    assert [one.message for one in found] == [
        "tenant acme: container c1 has limits.cpu 1, the most is 800m (limits of type container): write less"
    ]
    found = tenant_limits.violations(workload(limits={"cpu": 1}), tenant_with(CPU_BOUNDS))
    assert found[0].message.startswith("tenant acme: the workload has limits.cpu 1, the most is 800m ")


def test_without_limits_nothing_is_given_or_refused() -> None:
    one = workload(limits={"cpu": 1})
    assert filled(one, tenant_with()) is one
    assert refused(one, tenant_with()) == []
