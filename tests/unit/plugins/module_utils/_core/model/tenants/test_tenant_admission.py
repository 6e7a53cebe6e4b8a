# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Admission with tenants: limits first, then quotas; what was granted stays, whatever a tenant says by now."""

from __future__ import annotations

import typing as t

import pytest
from _core.model.cpu import pools
from _core.model.profile import profile
from _core.model.tenants import tenant_admission
from _core.model.tenants.tenant import Member, declared_tenant, named
from _core.model.topology import cpu_topology
from _core.model.workload import admission, resource_requirements
from _core.model.workload.admission import AllocationResult, WorkloadStatus
from _core.model.workload.grants import Grant
from _core.model.workload.node_budget import AllocationInput
from _core.model.workload.resource_requirements import ResourceRequirements
from hypothesis import event, given
from hypothesis import strategies as st
from machines import machine

Row = dict[str, t.Any]
ACME = {"units": ["acme-*.service"], "pods": ["acme-*"]}


class Node:
    """A node in memory with 16 CPUs: its tenants and workloads, and what was granted."""

    def __init__(self, *tenants: Row) -> None:
        self.rows: dict[str, Row] = {}
        self.held: tuple[Grant, ...] = ()
        self.starting: dict[str, str] = {}
        self.pids: int | None = None
        self.offline: frozenset[int] = frozenset()
        self.tenants(*tenants)

    def tenants(self, *rows: Row) -> None:
        listed = [{"name": "acme", "members": ACME, **row} for row in rows]
        self.declared = profile.parse(
            {"name": "x", "cpu": {"policy": "static", "reserved": {"count": 2}}, "tenants": listed}
        )
        topology = machine(1, 16, 1, offline_present=self.offline)
        tables = {0: {"memory": 1 << 40}}
        self.machine = AllocationInput(
            self.declared, topology, cpu_topology.of(topology), pools.compute(self.declared, topology), tables, 1000
        )

    def needs(self) -> list[ResourceRequirements]:
        found = []
        for row in self.rows.values():
            workload = profile.parse_workloads([row])[0]
            name = declared_tenant(self.declared.tenants, workload.match, workload.pattern)
            member = Member(name) if name else None
            if member:
                tenant = named(self.declared.tenants, member.tenant)
                assert tenant is not None
                workload, member = tenant_admission.with_tenant(workload, tenant, member)
            found.append(resource_requirements.of(workload, "static", self.pids, member))
        return found

    def declare(self, name: str, **row: t.Any) -> AllocationResult:
        kind = "pod" if "containers" in row else "unit"
        self.rows[name] = {"name": name, "match": {kind: name if kind == "pod" else f"{name}.service"}, **row}
        return self.allocate()

    def allocate(self) -> AllocationResult:
        found = admission.allocate(self.machine, self.needs(), self.held, WorkloadStatus(starting=self.starting, now=7))
        self.held = found.grants
        return found

    def granted(self) -> list[str]:
        return [grant.workload for grant in self.held]

    def used(self) -> dict[str, int]:
        return {one.usage.resource: one.usage.used for one in tenant_admission.usages(self.declared.tenants, self.held)}


def said(found: AllocationResult) -> list[tuple[str, str, str]]:
    return [(one.key, one.value, one.message) for one in found.refusals]


def quota(**hard: t.Any) -> Row:
    names = {"cpu": "requests.cpu", "memory": "limits.memory", "pids": "limits.pids", "number": "count/workloads"}
    return {"quota": [{"name": "all", "hard": {names[key]: value for key, value in hard.items()}}]}


def test_the_refusal_names_tenant_resource_used_asked_hard_and_holders() -> None:
    node = Node(quota(cpu=4))
    assert not node.declare("acme-a", requests={"cpu": 3}).refusals
    assert said(node.declare("acme-b", requests={"cpu": "1500m"})) == [
        (
            "requests.cpu",
            "1500m",
            (
                "tenant acme, quota all: requests.cpu used 3, asked 1500m, hard 4 (acme-a has 3): ask for less, raise the "
                "quota, or release a workload of the tenant"
            ),
        )
    ]
    assert node.granted() == ["acme-a"]
    assert not node.declare("other", requests={"cpu": 8}).refusals[1:], "another's quota concerns no one else"
    assert node.granted() == ["acme-a", "other"]


@pytest.mark.parametrize("before", [[], [{"name": "old"}]])
def test_a_workload_that_comes_from_another_tenant_and_asks_for_more_is_decided_on(before: list[Row]) -> None:
    """A tenant that is renamed, or is split, or is there from now on: what was granted before does not open its quota."""
    node = Node(*before, {"name": "other", "members": {"units": ["other.service"]}})
    assert not node.declare("acme-a", requests={"cpu": "1500m"}).refusals
    node.tenants(quota(cpu=2))
    ((key, value, message),) = said(node.declare("acme-a", requests={"cpu": 5}))
    assert (key, value) == ("requests.cpu", "5")
    assert "tenant acme, quota all: requests.cpu used 0, asked 5, hard 2" in message
    assert node.used() == {"requests.cpu": 1500}, "it has what it had, and its tenant of now counts that"
    assert said(node.allocate()) == [(key, value, message)]
    assert not node.declare("acme-a", requests={"cpu": 2}).refusals
    assert node.used() == {"requests.cpu": 2000}


@pytest.mark.parametrize(
    ("scope", "first", "then", "asked"),
    [
        (
            {"scope_selector": [{"scope": "PriorityClass", "operator": "In", "values": ["high"]}]},
            {"requests": {"cpu": 3}, "priority": "low"},
            {"requests": {"cpu": 3}, "priority": "high"},
            {"requests.cpu": 2},
        ),
        ({"scopes": ["BestEffort"]}, {"requests": {"cpu": 3}}, {}, {"count/workloads": 0}),
    ],
)
def test_a_workload_that_comes_into_the_scope_of_a_quota_is_decided_on(
    scope: Row, first: Row, then: Row, asked: Row
) -> None:
    """Else one is admitted outside of it, and changed afterwards."""
    node = Node({"quota": [{"name": "part", "hard": asked, **scope}]})
    assert not node.declare("acme-a", **first).refusals
    (refusal,) = node.declare("acme-a", **then).refusals
    assert "tenant acme, quota part" in refusal.message
    assert set(node.used().values()) == {0}, "its grant stays as it was"
    assert not node.declare("acme-a", **first).refusals
    # A quota that comes to count it touches nothing.
    node.tenants({"quota": [{"name": "part", "hard": {"requests.cpu": 1}}]})
    assert (node.allocate().refusals, node.used()) == ((), {"requests.cpu": 3000})


def test_what_a_workload_brings_from_another_tenant_stays_above_the_quota() -> None:
    node = Node({"name": "old"})
    assert not node.declare("acme-a", requests={"cpu": 5}).refusals
    node.tenants(quota(cpu=2))
    assert (node.allocate().refusals, node.used()) == ((), {"requests.cpu": 5000})
    assert node.declare("acme-b", requests={"cpu": 1}).refusals


def test_a_tenant_that_forbids_a_shared_namespace_later_touches_nothing_that_is_granted() -> None:
    node, containers = Node({}), [{"name": "app", "limits": {"memory": "1Mi"}}]
    assert not node.declare("acme-a", containers=containers, share_process_namespace=True).refusals
    node.tenants({"share_process_namespace": False})
    assert (node.allocate().refusals, node.granted()) == ((), ["acme-a"])
    (refusal,) = node.declare("acme-b", containers=containers, share_process_namespace=True).refusals
    assert (refusal.key, refusal.value) == ("share_process_namespace", "true")
    assert "tenant acme forbids it" in refusal.message
    assert "CAP_SYS_PTRACE" in refusal.message
    assert node.granted() == ["acme-a"]


def test_the_profiles_own_limit_of_tasks_is_named_where_a_quota_counts_tasks() -> None:
    node = Node(quota(pids=100))
    assert [one.key for one in node.declare("acme-a", limits={"memory": "1Mi"}).refusals] == ["limits.pids"]
    node.pids = 64
    assert not node.allocate().refusals
    assert node.used() == {"limits.pids": 64}
    (refusal,) = node.declare("acme-b", limits={"memory": "1Mi"}).refusals
    assert "limits.pids used 64, asked 64, hard 100 (acme-a has 64)" in refusal.message


def test_cpus_of_its_own_count_as_well() -> None:
    node = Node(quota(cpu=4))
    assert not node.declare("acme-a", limits={"cpu": 3, "memory": "1Mi"}).refusals
    assert len(node.held[0].cpus) == 3
    assert [one.key for one in node.declare("acme-b", limits={"cpu": 2, "memory": "1Mi"}).refusals] == ["requests.cpu"]


def test_a_workload_without_resources_is_counted_and_has_a_grant() -> None:
    node = Node(quota(number=1))
    node.declare("acme-a")
    assert node.granted() == ["acme-a"]
    assert [one.key for one in node.declare("acme-b").refusals] == ["name"]


def test_defaults_come_before_limits_and_limits_before_quotas() -> None:
    limits = [{"type": "container", "max": {"memory": "1Gi"}, "default": {"memory": "512Mi"}}]
    node = Node({**quota(memory="1Gi"), "limits": limits})
    assert not node.declare("acme-a").refusals
    assert dict(node.held[0].limits) == {"memory": 512 << 20}
    found = node.declare("acme-b", limits={"memory": "2Gi"}).refusals
    assert [(one.key, "the most is 1Gi" in one.message) for one in found] == [("limits.memory", True)]
    found = node.declare("acme-b", limits={"memory": "1Gi"}).refusals
    assert ["used 512Mi, asked 1Gi, hard 1Gi" in one.message for one in found] == [True]


@pytest.mark.parametrize(
    ("row", "who"),
    [
        ({"requests": {"memory": "1Mi"}}, "the workload"),
        ({"containers": [{"name": "a", "limits": {"memory": "1Mi"}}, {"name": "b"}]}, "container b"),
    ],
)
def test_what_a_quota_counts_is_named_or_given_by_default(row: Row, who: str) -> None:
    node = Node(quota(memory="1Gi"))
    found = node.declare("acme-a", **row).refusals
    assert [(one.key, f"and {who} names none" in one.message) for one in found] == [("limits.memory", True)]
    node.tenants({**quota(memory="1Gi"), "limits": [{"type": "container", "default": {"memory": "1Mi"}}]})
    assert not node.allocate().refusals


def test_a_lower_quota_or_other_limits_touch_nothing_that_is_granted() -> None:
    node = Node(quota(cpu=4))
    node.declare("acme-a", requests={"cpu": 3}, limits={"cpu": 4})
    before = node.held
    node.tenants({**quota(cpu=1), "limits": [{"type": "container", "max": {"cpu": 1}}]})
    found = node.allocate()
    assert (found.grants, found.refusals, found.events) == (before, (), ())
    assert node.used() == {"requests.cpu": 3000}
    assert not node.declare("acme-a", requests={"cpu": 2}, limits={"cpu": 4}).refusals, "it may ask for less"
    assert node.used() == {"requests.cpu": 2000}
    assert [one.key for one in node.declare("acme-b", requests={"cpu": 1}, limits={"cpu": 1}).refusals] == [
        "requests.cpu"
    ]


def test_a_grant_that_has_to_move_is_not_asked_for_again() -> None:
    """Its tenant refuses by now what it was granted, and one of its CPUs goes offline."""
    node, limits = Node(quota(cpu=4)), {"cpu": 2, "memory": "1Mi"}
    app = [{"name": "app", "limits": limits}]
    node.declare("acme-a", limits=limits)
    node.declare("acme-b", containers=app, share_process_namespace=True)
    cpus = [grant.cpus for grant in node.held]
    node.offline = frozenset(min(found) for found in cpus)
    less = {
        **quota(cpu=1, pids=9),
        "limits": [{"type": "container", "max": {"cpu": 1}}],
        "share_process_namespace": False,
    }
    node.tenants(less)
    found = node.allocate()
    assert (found.refusals, node.granted()) == ((), ["acme-a", "acme-b"])
    for before, grant in zip(cpus, node.held):
        assert len(grant.cpus) == 2
        assert grant.cpus != before
        assert not grant.cpus & node.offline


def test_a_tenant_that_comes_later_counts_what_is_granted_and_touches_nothing() -> None:
    node = Node()
    node.declare("acme-a", requests={"cpu": 3})
    node.tenants(quota(cpu=1))
    found = node.allocate()
    assert not found.refusals
    assert found.grants[0].tenant == "acme"
    assert node.used() == {"requests.cpu": 3000}


@pytest.mark.parametrize(
    ("first", "more"),
    [
        ({"requests": {"cpu": 1}}, {"requests": {"cpu": 3}}),
        ({"limits": {"cpu": 1, "memory": "1Mi"}}, {"limits": {"cpu": 3, "memory": "1Mi"}}),
    ],
)
def test_who_is_refused_more_keeps_the_grant_as_it_was(first: Row, more: Row) -> None:
    node = Node(quota(cpu=4))
    node.declare("acme-a", **first)
    node.declare("acme-b", requests={"cpu": 2})
    before = node.held
    found = node.declare("acme-a", **more)
    assert [(one.workload, one.key) for one in found.refusals] == [("acme-a", "requests.cpu")]
    assert (found.grants, found.events) == (before, ())
    del node.rows["acme-b"]
    assert not node.allocate().refusals
    assert node.used() == {"requests.cpu": 3000}


def test_the_first_unit_of_a_resource_is_more() -> None:
    node = Node({})
    node.declare("acme-a", requests={"cpu": 1})
    node.tenants(quota(pids=0))
    assert [one.key for one in node.declare("acme-a", requests={"cpu": 1}, limits={"pids": 1}).refusals] == [
        "limits.pids"
    ]


def test_more_of_one_resource_is_not_refused_for_another_one_above_its_quota() -> None:
    node = Node(quota(cpu=4))
    node.declare("acme-a", requests={"cpu": 3, "memory": "1Mi"})
    node.tenants(quota(cpu=1))
    assert not node.declare("acme-a", requests={"cpu": 3, "memory": "2Mi"}).refusals
    assert dict(node.held[0].requests) == {"cpu": 3000, "memory": 2 << 20}


def test_a_limit_that_is_raised_or_dropped_is_asked_for() -> None:
    node = Node(quota(memory="2Gi"))
    node.declare("acme-a", requests={"memory": "1Mi"}, limits={"memory": "1Gi"})
    node.declare("acme-b", limits={"memory": "1Gi"})
    for more in ({"memory": "1025Mi"}, {}):
        found = node.declare("acme-a", requests={"memory": "1Mi"}, limits=more)
        assert [one.key for one in found.refusals] == ["limits.memory"]
        assert dict(node.held[0].limits) == {"memory": 1 << 30}


def test_the_node_refuses_more_as_well_and_the_grant_stays() -> None:
    node = Node(quota(cpu=100))
    node.declare("acme-a", requests={"cpu": 3})
    before = node.held
    found = node.declare("acme-a", requests={"cpu": 30})
    assert ["this node can give" in one.message for one in found.refusals] == [True]
    assert found.grants == before


def test_two_tenants_that_claim_a_unit_bar_it() -> None:
    node = Node()
    node.rows["acme-a"] = {"name": "acme-a", "match": {"unit": "acme-a.service"}, "requests": {"cpu": 1}}
    barred = [one._replace(barred="belongs to the tenants a and b") for one in node.needs()]
    found = admission.allocate(node.machine, barred, (), WorkloadStatus())
    assert said(found) == [("match", "acme-a.service", "belongs to the tenants a and b")]


MIB = {"256Mi": 256, "512Mi": 512, "1Gi": 1024}
rows = st.dictionaries(
    st.sampled_from([f"acme-{name}" for name in "abcdef"]),
    st.fixed_dictionaries({"cpu": st.integers(1, 3), "memory": st.sampled_from(sorted(MIB))}),
    min_size=1,
)


def those_that_fit(asked: t.Mapping[str, Row], order: t.Iterable[str], cpus: int, memory: int) -> set[str]:
    """Who is within a quota of CPUs and MiB of memory when all ask in this order."""
    found = set()
    for name in order:
        cpu, mib = asked[name]["cpu"], MIB[asked[name]["memory"]]
        if cpu <= cpus and mib <= memory:
            cpus, memory = cpus - cpu, memory - mib
            found.add(name)
    return found


@given(rows, st.randoms(), st.integers(0, 12), st.integers(0, 4096))
def test_the_order_of_admissions_decides_who_is_refused_and_changes_no_totals(
    asked: dict[str, Row], order: t.Any, cpus: int, memory: int
) -> None:
    names = sorted(asked)
    order.shuffle(names)
    node = Node(quota(cpu=cpus, memory=f"{memory}Mi"))
    refused: set[str] = set()
    for number, name in enumerate(names, 1):
        found = node.declare(name, limits=asked[name])
        fit = those_that_fit(asked, names[:number], cpus, memory)
        assert set(node.granted()) == fit
        refused = {one.workload for one in found.refusals}
        assert refused == set(names[:number]) - fit, "who was refused asks again, and is refused again"
        assert all("tenant acme, quota all" in one.message for one in found.refusals)
        own = [asked[one] for one in fit]
        totals = sum(one["cpu"] for one in own) * 1000, sum(MIB[one["memory"]] for one in own) << 20
        assert node.used() == {"requests.cpu": totals[0], "limits.memory": totals[1]}
    node.held = ()
    node.allocate()
    assert set(node.granted()) == fit, "as when all are declared at once"
    event("refused" if refused else "nothing refused")


@given(st.lists(st.tuples(st.sampled_from("abcd"), st.integers(0, 6)), max_size=12), st.integers(0, 9))
def test_whatever_comes_and_goes_usage_stays_within_the_quota(steps: list[tuple[str, int]], hard: int) -> None:
    node = Node(quota(cpu=hard, number=3))
    for name, cpus in steps:
        if cpus:
            node.declare(f"acme-{name}", requests={"cpu": cpus})
        else:
            node.rows.pop(f"acme-{name}", None)
            node.allocate()
        used = node.used()
        assert 0 <= used["requests.cpu"] <= hard * 1000
        assert used["requests.cpu"] == sum(dict(grant.requests)["cpu"] for grant in node.held)
        assert used["count/workloads"] == len(node.held) <= 3
        held = node.held
        assert node.allocate().grants == held, "what was decided is decided again"
