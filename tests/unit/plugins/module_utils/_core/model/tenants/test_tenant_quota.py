# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Quotas of a tenant: the examples of Kubernetes' documentation on ResourceQuota, and the arithmetic."""

from __future__ import annotations

import typing as t

import pytest
from _core.model.profile import profile
from _core.model.tenants import tenant_quota
from _core.model.tenants.tenant import BEST_EFFORT, Member, Quota, ScopeSelector, Tenant
from _core.model.tenants.tenant_quota import Charge
from hypothesis import given
from hypothesis import strategies as st

MIB, GIB = 1 << 20, 1 << 30


def tenant_with(*quotas: dict[str, t.Any]) -> Tenant:
    row = {"name": "acme", "members": {"units": ["*.service"]}, "quota": list(quotas)}
    return profile.parse({"name": "x", "cpu": {"reserved": {"count": 1}}, "tenants": [row]}).tenants[0]


def charge(
    name: str, requests: dict[str, int] | None = None, limits: dict[str, int] | None = None, **member: t.Any
) -> Charge:
    qos = member.pop("qos", "Burstable" if requests or limits else BEST_EFFORT)
    return Charge(name, Member("acme", qos, **member), tuple((requests or {}).items()), tuple((limits or {}).items()))


def usage(tenant: Tenant, *charges: Charge) -> dict[str, dict[str, int]]:
    return {
        quota.name: {one.resource: one.used for one in tenant_quota.usage(quota, charges)} for quota in tenant.quotas
    }


MEM_CPU = {"requests.cpu": 1, "requests.memory": "1Gi", "limits.cpu": 2, "limits.memory": "2Gi"}


def test_the_second_pod_asks_for_more_memory_than_is_left() -> None:
    """Configure Memory and CPU Quotas for a Namespace."""
    tenant = tenant_with({"name": "mem-cpu-demo", "hard": MEM_CPU})
    first = charge("one", {"cpu": 400, "memory": 600 * MIB}, {"cpu": 800, "memory": 800 * MIB})
    second = charge("two", {"cpu": 400, "memory": 700 * MIB}, {"cpu": 800, "memory": GIB})
    assert tenant_quota.exceeded(tenant, [], first, None) == []
    found = tenant_quota.exceeded(tenant, [first], second, None)
    assert [(one.resource, one.used, one.asked, one.hard, one.parts) for one in found] == [
        ("requests.memory", 600 * MIB, 700 * MIB, GIB, (("one", 600 * MIB),))
    ]


def test_the_third_of_two_pods_is_refused() -> None:
    """Configure a Pod Quota for a Namespace."""
    tenant = tenant_with({"name": "pod-demo", "hard": {"count/workloads": 2}})
    there = [charge("one"), charge("two", {"cpu": 1})]
    assert tenant_quota.exceeded(tenant, there[:1], there[1], None) == []
    assert [one.resource for one in tenant_quota.exceeded(tenant, there, charge("three"), None)] == ["count/workloads"]


SCOPED = tenant_with(
    {"name": "best-effort", "hard": {"count/workloads": 10}, "scopes": ["BestEffort"]},
    {"name": "not-best-effort", "hard": {"count/workloads": 4, **MEM_CPU}, "scopes": ["NotBestEffort"]},
    {"name": "terminating", "hard": {"count/workloads": 2, "limits.cpu": 1}, "scopes": ["Terminating"]},
    {"name": "not-terminating", "hard": {"count/workloads": 4}, "scopes": ["NotTerminating"]},
    {"name": "both", "hard": {"count/workloads": 4}, "scopes": ["NotBestEffort", "Terminating"]},
)
HIGH_IN = {"scope": "PriorityClass", "operator": "In", "values": ["high"]}
PRIORITIES = tenant_with(
    {"name": "pods-high", "hard": {"cpu": 1000, "memory": "200Gi", "count/workloads": 10}, "scope_selector": [HIGH_IN]},
    {"name": "pods-medium", "hard": {"count/workloads": 10}, "scope_selector": [{**HIGH_IN, "values": ["medium"]}]},
    {"name": "others", "hard": {"count/workloads": 10}, "scope_selector": [{**HIGH_IN, "operator": "NotIn"}]},
    {"name": "some", "hard": {"count/workloads": 10}, "scopes": ["PriorityClass"]},
    {
        "name": "none",
        "hard": {"count/workloads": 10},
        "scope_selector": [{"scope": "PriorityClass", "operator": "DoesNotExist"}],
    },
)  # fmt: skip


@pytest.mark.parametrize(
    ("tenant", "one", "counted_by"),
    [
        (SCOPED, charge("a"), ["best-effort", "not-terminating"]),
        (SCOPED, charge("a", {"cpu": 500}), ["not-best-effort", "not-terminating"]),
        (SCOPED, charge("a", {"cpu": 500}, terminating=True), ["not-best-effort", "terminating", "both"]),
        (SCOPED, charge("a", terminating=True), ["best-effort", "terminating"]),
        (PRIORITIES, charge("a", {"cpu": 500, "memory": 10 * GIB}, priority="high"), ["pods-high", "some"]),
        (PRIORITIES, charge("a", priority="medium"), ["pods-medium", "others", "some"]),
        # A label that is not there meets NotIn (labels.Requirement).
        (PRIORITIES, charge("a"), ["others", "none"]),
    ],
)
def test_which_quota_counts_a_workload(tenant: Tenant, one: Charge, counted_by: list[str]) -> None:
    assert [name for name, used in usage(tenant, one).items() if used["count/workloads"]] == counted_by


def test_a_resource_without_a_section_is_requested() -> None:
    high = charge("high", {"cpu": 500, "memory": 10 * GIB}, {"cpu": 500, "memory": 10 * GIB}, priority="high")
    assert usage(PRIORITIES, high)["pods-high"] == {
        "requests.cpu": 500,
        "requests.memory": 10 * GIB,
        "count/workloads": 1,
    }


def test_what_a_quota_counts_has_to_be_named_where_it_counts() -> None:
    assert tenant_quota.to_be_named(SCOPED, charge("a").member) == []
    terminating = charge("a", {"cpu": 1}, terminating=True).member
    assert dict(tenant_quota.to_be_named(SCOPED, terminating)) == {
        "limits.cpu": "not-best-effort",
        "limits.memory": "not-best-effort",
        "requests.cpu": "not-best-effort",
        "requests.memory": "not-best-effort",
    }
    others = tenant_with(
        {"name": "q", "hard": {"requests.hugepages-2Mi": "4Mi", "limits.pids": 9, "count/workloads": 1}}
    )
    assert tenant_quota.to_be_named(others, charge("a").member) == [("limits.pids", "q")]


def test_what_was_granted_is_kept_under_a_lower_quota() -> None:
    tenant = tenant_with({"name": "q", "hard": {"requests.cpu": 1}})
    before = charge("a", {"cpu": 3000})
    assert tenant_quota.exceeded(tenant, [charge("b", {"cpu": 900})], before, before) == []
    assert tenant_quota.exceeded(tenant, [], charge("a", {"cpu": 2000}), before) == []
    assert len(tenant_quota.exceeded(tenant, [], charge("a", {"cpu": 3001}), before)) == 1


def test_what_a_quota_did_not_count_before_is_more_of_it_now() -> None:
    """A workload that comes into the scope of a full quota takes its place in it with all that it has."""
    scope = {"scope": "PriorityClass", "operator": "In", "values": ["high"]}
    tenant = tenant_with({"name": "q", "hard": {"count/workloads": 1, "requests.cpu": 4}, "scope_selector": [scope]})
    there = [charge("a", {"cpu": 3000}, priority="high")]
    before, now = charge("b", {"cpu": 2000}), charge("b", {"cpu": 2000}, priority="high")
    found = tenant_quota.exceeded(tenant, there, now, before)
    assert {one.resource for one in found} == {"count/workloads", "requests.cpu"}
    assert tenant_quota.exceeded(tenant, there, now, now) == []


def test_who_uses_nothing_of_a_resource_is_not_named() -> None:
    tenant = tenant_with({"name": "q", "hard": {"requests.cpu": 4}})
    (found,) = tenant_quota.usage(tenant.quotas[0], [charge("a", {"cpu": 0}), charge("b", {"cpu": 1000}), charge("c")])
    assert (found.used, found.parts) == (1000, (("b", 1000),))


def test_a_workload_that_asks_for_nothing_of_it_is_admitted_above_a_quota() -> None:
    tenant = tenant_with({"name": "q", "hard": {"requests.hugepages-2Mi": 0}})
    there = [charge("a", {"hugepages-2Mi": 4 * MIB})]
    assert tenant_quota.exceeded(tenant, there, charge("b", {"cpu": 1}), None) == []


def test_the_least_of_the_quotas_that_count_all_is_the_tenants_limit() -> None:
    tenant = tenant_with(
        {"name": "a", "hard": {"limits.memory": "2Gi"}},
        {"name": "b", "hard": {"limits.memory": "1Gi"}},
        {"name": "c", "hard": {"limits.memory": "1Mi"}, "scopes": ["Terminating"]},
    )
    assert tenant_quota.hard_limit(tenant, "limits.memory") == GIB
    assert tenant_quota.hard_limit(tenant, "limits.pids") is None


def test_a_resource_with_a_slash_is_counted_as_it_is() -> None:
    quota = Quota("q", (("requests.example.com/nic", 2),))
    tenant = Tenant("acme", tenant_with().members, quotas=(quota,))
    there = [charge("a", {"example.com/nic": 2048})]
    assert tenant_quota.usage(quota, there)[0].used == 2048
    assert tenant_quota.amount_text("requests.example.com/nic", 2048) == "2048"
    assert tenant_quota.amount_text("count/workloads", 2048) == "2048"
    assert len(tenant_quota.exceeded(tenant, there, charge("b", {"example.com/nic": 1}), None)) == 1


resources = st.sampled_from(["cpu", "memory", "hugepages-2Mi", "example.com/nic"])
amounts = st.dictionaries(resources, st.integers(0, 1 << 40), max_size=3)
members = st.builds(
    Member, st.just("acme"), st.sampled_from([BEST_EFFORT, "Burstable"]), st.sampled_from(["", "high"]), st.booleans()
)
charges = st.lists(
    st.builds(lambda member, asked, most: Charge("", member, tuple(asked.items()), tuple(most.items())), members, amounts, amounts),
    max_size=8,
).map(lambda found: [one._replace(workload=f"w{number}") for number, one in enumerate(found)])  # fmt: skip
selectors = st.sampled_from(
    [
        (),
        (ScopeSelector("BestEffort"),),
        (ScopeSelector("Terminating"), ScopeSelector("NotBestEffort")),
        (ScopeSelector("PriorityClass", "NotIn", ("high",)),),
    ]
)
HARD = st.dictionaries(
    st.sampled_from(["requests.cpu", "limits.memory", "requests.example.com/nic", "count/workloads"]),
    st.integers(0, 1 << 41),
    min_size=1,
)
quotas = st.builds(lambda hard, which: Quota("q", tuple(hard.items()), which), HARD, selectors)


@given(quotas, charges, st.randoms())
def test_usage_is_the_sum_of_its_parts_in_any_order(quota: Quota, found: list[Charge], order: t.Any) -> None:
    first = tenant_quota.usage(quota, found)
    order.shuffle(found)
    for one, again in zip(first, tenant_quota.usage(quota, found)):
        assert one.used >= 0
        assert one.used == sum(amount for dummy, amount in one.parts) == again.used
        assert dict(one.parts) == dict(again.parts)
        assert all(amount > 0 for dummy, amount in one.parts)


@given(quotas, charges)
def test_what_is_admitted_one_by_one_stays_within_the_quota(quota: Quota, found: list[Charge]) -> None:
    tenant = Tenant("acme", tenant_with().members, quotas=(quota,))
    admitted: list[Charge] = []
    for one in found:
        excess = tenant_quota.exceeded(tenant, admitted, one, None)
        assert all(less.used + less.asked > less.hard for less in excess)
        if not excess:
            admitted.append(one)
    assert all(one.used <= one.hard for one in tenant_quota.usage(quota, admitted))


@given(quotas, charges)
def test_scopes_that_exclude_each_other_count_everything_once(quota: Quota, found: list[Charge]) -> None:
    whole = tenant_quota.usage(quota._replace(selectors=()), found)
    for pair in (("BestEffort", "NotBestEffort"), ("Terminating", "NotTerminating")):
        halves = [tenant_quota.usage(quota._replace(selectors=(ScopeSelector(scope),)), found) for scope in pair]
        assert [one.used for one in whole] == [first.used + second.used for first, second in zip(*halves)]
