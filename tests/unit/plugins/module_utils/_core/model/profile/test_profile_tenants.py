# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Tenants as a profile declares them: what is read, what is refused, and in which words."""

from __future__ import annotations

import typing as t

import pytest
from _core.model.profile import profile
from _core.model.profile.profile import Profile
from _core.model.values.errors import CorralError

Row = dict[str, t.Any]
UNITS = {"units": ["acme-*.service"]}


def parse(*tenants: Row, **sections: t.Any) -> Profile:
    rows = [{"name": f"t{number}", "members": UNITS, **row} for number, row in enumerate(tenants)]
    return profile.parse({"name": "x", "cpu": {"reserved": {"count": 1}}, "tenants": rows, **sections})


def lines(*tenants: Row, **sections: t.Any) -> list[str]:
    with pytest.raises(CorralError) as caught:
        parse(*tenants, **sections)
    return str(caught.value).splitlines()


def limits(**row: t.Any) -> Row:
    return {"limits": [{"type": "container", **row}]}


def quota(hard: Row, **row: t.Any) -> Row:
    return {"quota": [{"name": "q", "hard": hard, **row}]}


def test_what_is_read_is_written() -> None:
    everything = {
        "share_process_namespace": False,
        "members": {**UNITS, "containers": ["a-*"], "pods": ["p"], "labels": ["k=v"], "slices": ["acme.slice"], "users": ["web"]},
        "limits": [
            {
                "type": "container",
                "min": {"cpu": "100m"},
                "max": {"cpu": 2, "hugepages-2Mi": "4Mi"},
                "default": {"pids": 64},
                "default_request": {"cpu": "0.5"},
                "max_limit_request_ratio": {"cpu": "1.5"},
            },
            {"type": "pod", "max": {"memory": "1Gi"}},
        ],
        "quota": [
            {"name": "a", "hard": {"cpu": "1500m", "limits.memory": "1Gi", "hugepages-2048Ki": "4Mi", "limits.pids": 9}},
            {
                "name": "b",
                "hard": {"count/workloads": 0},
                "scopes": ["BestEffort", "Terminating"],
                "scope_selector": [{"scope": "PriorityClass", "operator": "NotIn", "values": ["low", "high"]}],
            },
        ],
    }  # fmt: skip
    found = parse(everything)
    assert profile.parse(profile.to_data(found)) == found
    assert not found.tenants[0].share_process_namespace
    assert dict(found.tenants[0].quotas[0].hard) == {
        "requests.cpu": 1500,
        "limits.memory": 1 << 30,
        "requests.hugepages-2Mi": 4 << 20,
        "limits.pids": 9,
    }
    assert profile.to_data(found)["tenants"][0]["limits"][0]["max_limit_request_ratio"] == {"cpu": "1500m"}


def test_a_user_is_named_as_in_the_file_of_a_unit() -> None:
    found = parse({"members": {"users": ["john.doe", 1000, "1001", "CORP-svc$", "john@corp"]}})
    assert found.tenants[0].members.users == ("john.doe", "1000", "1001", "CORP-svc$", "john@corp")
    assert profile.parse(profile.to_data(found)) == found


def test_a_priority_is_a_name_of_a_workload() -> None:
    found = parse({}, workloads=[{"name": "a", "match": {"unit": "a.service"}, "priority": "high"}])
    assert found.workloads[0].priority == "high"
    assert profile.to_data(found)["workloads"][0]["priority"] == "high"


T0 = "tenants[0]"
SLICE = "is not the name of a slice: name a slice such as acme.slice or apps-acme.slice"
LIMITS, HARD = f"{T0}.limits[0]", f"{T0}.quota[0].hard"
ORDER = "the order is min, default_request, default, max"
WRITE = "write requests.cpu, limits.memory, limits.pids, requests.hugepages-2Mi, requests.example.com/nic or count/workloads"
REFUSED: list[tuple[Row, str]] = [
    ({"members": {}}, f"{T0}.members: names no workload: write one or more of units, containers, pods, labels, slices, users"),
    ({"members": {"units": ["a.timer"]}}, f"{T0}.members.units[0]: a.timer: is not a service, and only services are given resources: name a .service"),
    ({"members": {"labels": ["tenant=*"]}},
     f"{T0}.members.labels[0]: tenant=*: is compared as it is, * is no pattern in a label: write tenant for any value of it"),
    (limits(min={"cpu": 1}, container={}),
     f"{LIMITS}.container: unknown key: write one of type, min, max, default, default_request, max_limit_request_ratio"),
    ({"members": {"slices": ["init.scope"]}}, f"{T0}.members.slices[0]: init.scope: {SLICE}"),
    ({"members": {"slices": ["a--b.slice"]}}, f"{T0}.members.slices[0]: a--b.slice: {SLICE}"),
    ({"members": {"slices": ["corral-acme.slice"]}},
     (f"{T0}.members.slices[0]: corral-acme.slice: is Corral's own, in which no unit's files put it: "
      "name a slice such as acme.slice or apps-acme.slice")),
    ({"members": {"users": [".john"]}},
     f"{T0}.members.users[0]: .john: is not the name of an account: write letters, digits, _ . @ and -, not a digit first, such as qemu"),
    ({"members": {"users": [4294967295]}},
     f"{T0}.members.users[0]: 4294967295: is not the number of a user: write a number such as 1000, at most 4294967294"),
    ({"members": {"users": ["01000"]}},
     f"{T0}.members.users[0]: 01000: is not the number of a user: write a number such as 1000, at most 4294967294"),
    (limits(), f"{LIMITS}: limits nothing: write one or more of min, max, default, default_request, max_limit_request_ratio"),
    (limits(max={}), f"{LIMITS}: limits nothing: write one or more of min, max, default, default_request, max_limit_request_ratio"),
    (limits(maxx={}), f"{LIMITS}.maxx: unknown key: did you mean {LIMITS}.max?"),
    (limits(min={"cpu": 2}, max={"cpu": 1}), f"{LIMITS}.min.cpu: 2: is more than max (1): {ORDER}"),
    (limits(min={"cpu": 1.5}, max={"cpu": "0.5"}), f"{LIMITS}.min.cpu: 1.5: is more than max (0.5): {ORDER}"),
    (limits(min={"cpu": 2}, default={"cpu": 1}), f"{LIMITS}.min.cpu: 2: is more than default (1): {ORDER}"),
    (limits(min={"cpu": 2}, default_request={"cpu": 1}), f"{LIMITS}.min.cpu: 2: is more than default_request (1): {ORDER}"),
    (limits(default_request={"cpu": 2}, default={"cpu": 1}), f"{LIMITS}.default_request.cpu: 2: is more than default (1): {ORDER}"),
    (limits(default_request={"cpu": 2}, max={"cpu": 1}), f"{LIMITS}.default_request.cpu: 2: is more than max (1): {ORDER}"),
    (limits(default={"memory": "2Gi"}, max={"memory": "1Gi"}), f"{LIMITS}.default.memory: 2Gi: is more than max (1Gi): {ORDER}"),
    (limits(default={"hugepages-2Mi": "4Mi"}, default_request={"hugepages-2Mi": "2Mi"}),
     (f"{LIMITS}.default_request.hugepages-2Mi: 2Mi: hugepages cannot be overcommitted, the default limit is 4Mi: "
      "write both equal")),
    (limits(max={"hugepages-2048Ki": "3072Ki"}), f"{LIMITS}.max.hugepages-2048Ki: 3072Ki: is not a whole number of pages: write a multiple of 2Mi"),
    (limits(max={"hugepages-2Mi": "3Mi"}), f"{LIMITS}.max.hugepages-2Mi: 3Mi: is not a whole number of pages: write a multiple of 2Mi"),
    (limits(default_request={"pids": 1}), f"{LIMITS}.default_request.pids: 1: tasks are limited only: write min, max or default"),
    (limits(max_limit_request_ratio={"pids": 2}), f"{LIMITS}.max_limit_request_ratio.pids: 2: tasks are limited only: write min, max or default"),
    (limits(max_limit_request_ratio={"cpu": "0.5"}),
     (f"{LIMITS}.max_limit_request_ratio.cpu: 0.5: is less than 1, and no limit is below its request: "
      "write 1 or more")),
    (limits(max_limit_request_ratio={"cpu": "1.0001"}), f"{LIMITS}.max_limit_request_ratio.cpu: 1.0001: is finer than a thousandth: write it as in 1.5"),
    (limits(min={"cpu": 1}, max={"cpu": 2}, max_limit_request_ratio={"cpu": 3}),
     (f"{LIMITS}.max_limit_request_ratio.cpu: 3: is more than max / min (2 / 1), so it never counts: "
      "write less, or leave it out")),
    (limits(max={"ephemeral-storage": 1}),
     (f"{LIMITS}.max.ephemeral-storage: the key is storage, which Corral does not give: "
      "write cpu, memory, pids or hugepages-2Mi (a page size)")),
    ({"limits": [{"type": "pod", "default": {"cpu": 1}}]},
     (f"{LIMITS}.default: only containers have defaults (Kubernetes' rule): "
      "write it in the limits of type container")),
    ({"limits": [{"type": "pod", "max": {"cpu": 1}}, {"type": "pod", "min": {"cpu": 1}}]},
     f"{T0}.limits[1].type: pod: is in {T0}.limits[0] already: write both as one"),
    ({"limits": [{"type": "pod", "default_request": {"cpu": 1}}]},
     (f"{LIMITS}.default_request: only containers have defaults (Kubernetes' rule): "
      "write it in the limits of type container")),
    (quota({}), f"{HARD}: limits nothing: name a resource, as in {{requests.cpu: 4, count/workloads: 10}}"),
    (quota({"requests.storage": 1}), f'{HARD}["requests.storage"]: the key is storage, which Corral does not give: {WRITE}'),
    (quota({"persistentvolumeclaims": 1}), f"{HARD}.persistentvolumeclaims: the key is storage, which Corral does not give: {WRITE}"),
    (quota({"pods": 1}), f"{HARD}.pods: the key counts objects of an API server: write count/workloads"),
    (quota({"count/secrets": 1}), f'{HARD}["count/secrets"]: the key counts objects of an API server: write count/workloads'),
    (quota({"requests.example.com/nic": 1}),
     (f'{HARD}["requests.example.com/nic"]: 1: is of a resource that is not declared, devices has none: declare it there, or leave it out '
      "of the quota")),
    (quota({"limits.example.com/nic": 1}),
     f'{HARD}["limits.example.com/nic"]: the key is a limit of devices, which have requests alone: write requests.example.com/nic'),
    (quota({"requests.a b/nic": 1}), f'{HARD}["requests.a b/nic"]: the key is not a resource that a quota limits: {WRITE}'),
    (quota({"services": 1}), f"{HARD}.services: the key is not a resource that a quota limits: {WRITE}"),
    (quota({"requests.pids": 1}), f'{HARD}["requests.pids"]: 1: tasks are limited only: write limits.pids'),
    (quota({"cpu": -1}), f"{HARD}.cpu: -1: is negative: write 0 or more"),
    (quota({"count/workloads": "1.5"}), f'{HARD}["count/workloads"]: 1.5: is not a whole number: write it as 10'),
    (quota({"cpu": 1, "requests.cpu": 1}), f'{HARD}["requests.cpu"]: 1: is declared twice, in two spellings: leave one out'),
    (quota({"cpu": 1}, scopes=["BestEffort"]),
     (f"{HARD}.cpu: 1: a workload of class BestEffort has no requests or limits to count: "
      "write count/workloads alone")),
    (quota({"cpu": 1}, scopes=["Terminating", "NotTerminating"]),
     (f"{T0}.quota[0].scopes: NotTerminating and Terminating exclude each other, no workload has both: "
      "leave one out")),
    (quota({"cpu": 1}, scopes=["Terminating"], scope_selector=[{"scope": "NotTerminating", "operator": "Exists"}]),
     (f"{T0}.quota[0].scopes: NotTerminating and Terminating exclude each other, no workload has both: "
      "leave one out")),
    (quota({"count/workloads": 1}, scopes=["BestEffort", "NotBestEffort"]),
     (f"{T0}.quota[0].scopes: BestEffort and NotBestEffort exclude each other, no workload has both: "
      "leave one out")),
    (quota({"cpu": 1}, scopes=["CrossNamespacePodAffinity"]),
     (f"{T0}.quota[0].scopes[0]: CrossNamespacePodAffinity: not in this version of Corral: write BestEffort or NotBestEffort or "
      "Terminating or NotTerminating or PriorityClass")),
    (quota({"cpu": 1}, scope_selector=[{"scope": "PriorityClass", "operator": "In"}]),
     (f"{T0}.quota[0].scope_selector[0].values: In compares with values: "
      "write it as in values: [high]")),
    (quota({"cpu": 1}, scope_selector=[{"scope": "PriorityClass", "operator": "NotIn"}]),
     (f"{T0}.quota[0].scope_selector[0].values: NotIn compares with values: "
      "write it as in values: [high]")),
    (quota({"cpu": 1}, scope_selector=[{"scope": "PriorityClass", "operator": "DoesNotExist", "values": ["a"]}]),
     (f"{T0}.quota[0].scope_selector[0].values: DoesNotExist compares with nothing: "
      "leave values out")),
    (quota({"cpu": 1}, scope_selector=[{"scope": "PriorityClass", "operator": "Exists", "values": ["a"]}]),
     (f"{T0}.quota[0].scope_selector[0].values: Exists compares with nothing: "
      "leave values out")),
    (quota({"cpu": 1}, scope_selector=[{"scope": "Terminating", "operator": "In", "values": ["a"]}]),
     (f"{T0}.quota[0].scope_selector[0].operator: In: Terminating has no values: "
      "write Exists, or name it in scopes")),
    ({"quota": [{"name": "q", "hard": {"cpu": 1}}, {"name": "q", "hard": {"cpu": 1}}]},
     (f"{T0}.quota[1].name: q: is the name of {T0}.quota[0] already: "
      "give each its own")),
]  # fmt: skip


@pytest.mark.parametrize(("row", "line"), REFUSED, ids=[line for dummy, line in REFUSED])
def test_it_is_refused_with_path_value_and_way_out(row: Row, line: str) -> None:
    assert lines(row) == [line]


@pytest.mark.parametrize(
    "row",
    [
        limits(max_limit_request_ratio={"cpu": 1}),
        limits(min={"cpu": 1}, max={"cpu": 2}, max_limit_request_ratio={"cpu": 2}),
        limits(min={"cpu": 1}, max_limit_request_ratio={"cpu": 3}),
        limits(max={"cpu": 1}, max_limit_request_ratio={"cpu": 3}),
        limits(min={"cpu": 1}, default_request={"cpu": 1}, default={"cpu": 1}, max={"cpu": 1}),
        limits(default={"hugepages-2Mi": "4Mi"}, default_request={"hugepages-2Mi": "4Mi"}),
        limits(default_request={"hugepages-2Mi": "4Mi"}),
        limits(default={"cpu": 2}, default_request={"cpu": 1}),
        quota({"cpu": 0, "limits.pids": 0}, scopes=["PriorityClass", "NotBestEffort", "Terminating"]),
    ],
)
def test_what_lies_on_a_bound_is_read(row: Row) -> None:
    assert parse(row).tenants[0].name == "t0"


@pytest.mark.parametrize(
    "own",
    [{"requests": {"cpu": 1}}, {"limits": {"cpu": 1}}, {"containers": [{"name": "a"}]}],
    ids=lambda own: next(iter(own)),
)
def test_namespaces_are_looked_for_where_a_workload_has_a_slice(own: Row) -> None:
    row = {"name": "a", "match": {"pod": "a"}, "share_process_namespace": True}
    assert parse(workloads=[{**row, **own}]).workloads[0].share_process_namespace
    assert lines(workloads=[row]) == [
        "workloads[0].share_process_namespace: true: is looked for in the slice of the workload: write requests, limits or containers"
    ]


@pytest.mark.parametrize(
    ("first", "second", "where"),
    [
        ({"units": ["acme-*.service"]}, {"units": ["*-web.service"]}, "units[0]: *-web.service"),
        ({"labels": ["tenant"]}, {"labels": ["a", "tenant=b"]}, "labels[1]: tenant=b"),
        ({"slices": ["apps.slice"]}, {"slices": ["apps-acme.slice"]}, "slices[0]: apps-acme.slice"),
        ({"slices": ["acme.slice"]}, {"slices": ["acme.slice"]}, "slices[0]: acme.slice"),
    ],
)
def test_two_tenants_have_no_workload_together(first: Row, second: Row, where: str) -> None:
    own = where.partition("[")[0]
    assert lines({"members": first}, {"members": second}) == [
        f"tenants[1].members.{where}: may match what {first[own][0]} of tenants[0] matches: a workload has one tenant, narrow one"
    ]


def test_a_workload_lies_in_a_tenant_as_a_whole() -> None:
    workload = {"name": "a", "match": {"unit": "acme*.service"}}
    assert lines({}, workloads=[workload]) == [
        "workloads[0].match.unit: acme*.service: is in part what a tenant's acme-*.service matches: narrow it, or widen that one"
    ]
    assert parse({}, workloads=[{**workload, "match": {"unit": "acme-@*.service"}}])


def test_tenants_and_workloads_have_names_of_their_own() -> None:
    workloads = [{"name": "t1", "match": {"unit": "a.service"}}]
    other = {"members": {"pods": ["b"]}}
    assert lines({"name": "t0"}, {**other, "name": "t0"}) == [
        "tenants[1].name: t0: is the name of tenants[0] already: give each its own"
    ]
    assert lines({"name": "t1"}, workloads=workloads) == [
        "tenants[0].name: t1: is the name of workloads[0] as well, and both would have one slice: rename one of them"
    ]


def test_tenants_need_the_pools_of_cpus() -> None:
    assert lines({}, cpu=None) == ["cpu: the workloads of tenants need the pools of CPUs: declare cpu.reserved"]
