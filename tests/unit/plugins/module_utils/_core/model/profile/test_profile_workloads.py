# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Workloads with requests and limits as a profile declares them: what is read, what is refused, and in which words."""

from __future__ import annotations

import json
import typing as t

import pytest
from _core.model.profile import profile, profile_workloads
from _core.model.profile.profile_workloads import Container, Workload
from _core.model.values.errors import CorralError
from hypothesis import given
from hypothesis import strategies as st

MIB, GIB = 1 << 20, 1 << 30
CPU = {"reserved": {"count": 1}}


def parse(*rows: object, **sections: object) -> tuple[Workload, ...]:
    return profile.parse({"name": "x", "cpu": CPU, "workloads": list(rows), **sections}).workloads


def unit(**keys: object) -> dict[str, t.Any]:
    return {"name": "a", "match": {"unit": "a.service"}, **keys}


def pod(*containers: object, **keys: object) -> dict[str, t.Any]:
    return {"name": "a", "match": {"pod": "a"}, "containers": list(containers), **keys}


def limits(**amounts: object) -> dict[str, t.Any]:
    return unit(limits={name.replace("_", "-"): amount for name, amount in amounts.items()})


def test_amounts_are_whole_numbers_and_a_missing_request_is_its_limit() -> None:
    declared = unit(
        hold="running",
        requests={"cpu": "500m", "memory": "0.5Gi"},
        limits={"cpu": 1.5, "memory": "1Gi", "hugepages-2048Ki": "4Mi", "pids": 64},
    )
    assert parse(declared) == (
        Workload(
            "a", "unit", "a.service", "running",
            requests=(("cpu", 500), ("hugepages-2Mi", 4 * MIB), ("memory", GIB // 2)),
            limits=(("cpu", 1500), ("hugepages-2Mi", 4 * MIB), ("memory", GIB), ("pids", 64)),
        ),
    )  # fmt: skip


def test_a_request_needs_no_limit_and_a_workload_needs_neither() -> None:
    assert parse(unit(requests={"cpu": 2}))[0].requests == (("cpu", 2000),)
    bare = parse(unit())[0]
    assert bare == Workload("a", "unit", "a.service")
    assert not bare.has_resources


def test_a_pod_has_its_containers_in_order() -> None:
    found = parse(
        pod({"name": "init", "role": "init", "limits": {"cpu": 4}}, {"name": "app", "requests": {"memory": "1Mi"}})
    )
    assert found[0].containers == (
        Container("init", "init", (("cpu", 4000),), (("cpu", 4000),)),
        Container("app", "app", (("memory", MIB),), ()),
    )
    assert found[0].has_resources


def test_the_same_unit_may_be_named_twice_where_one_of_both_asks_for_nothing() -> None:
    assert len(parse(unit(), {**limits(cpu=1), "name": "b"})) == 2


NO_RESOURCE = (
    "the key is not a resource that Corral gives: write cpu, memory, pids or hugepages-2Mi (a page size), "
    "or a resource of devices such as example.com/nic"
)
AT_LIMITS = "workloads[0].limits"
QUANTITY = "not a quantity as Kubernetes writes it: write it as in 2, 500m or 1Gi"
REFUSED: list[tuple[dict[str, t.Any], str]] = [
    (limits(cpu=0), f"{AT_LIMITS}.cpu: 0: is not more than 0: leave it out"),
    (limits(cpu="-1"), f"{AT_LIMITS}.cpu: -1: is not more than 0: leave it out"),
    (limits(cpu="0.0001"), f"{AT_LIMITS}.cpu: 0.0001: is finer than a thousandth of a CPU: write it as 1500m or 2"),
    (limits(cpu="50%"), f"{AT_LIMITS}.cpu: 50%: is {QUANTITY}"),
    (limits(cpu=True), f"{AT_LIMITS}.cpu: true: is true or false, not a quantity: write it as in 2, 500m or 1Gi"),
    (limits(cpu="1e300"), f"{AT_LIMITS}.cpu: 1e300: is more than any machine has: write at most 1Ei"),
    (limits(memory="512m"), f"{AT_LIMITS}.memory: 512m: is not a whole number of bytes: write it as 512Mi"),
    (limits(memory=512), f"{AT_LIMITS}.memory: 512: is less than 1Mi: write it with its unit, such as 512Mi"),
    (limits(pids="1.5"), f"{AT_LIMITS}.pids: 1.5: is not a whole number: write it as 512"),
    (limits(hugepages_2Mi="3Mi"),
     f"{AT_LIMITS}.hugepages-2Mi: 3Mi: is not a whole number of pages: write a multiple of 2Mi"),
    (limits(hugepages_3Mi="3Mi"), f"{AT_LIMITS}.hugepages-3Mi: {NO_RESOURCE}"),
    (limits(gpu=1), f"{AT_LIMITS}.gpu: {NO_RESOURCE}"),
    (unit(limits=[1]),
     (f"{AT_LIMITS}: a list of 1: is a list, not a mapping: "
      "write it as in limits: {cpu: 4, memory: 2Gi, hugepages-2Mi: 512Mi, pids: 512}")),
    (unit(requests={"pids": 5}), "workloads[0].requests.pids: 5: tasks are limited only: write it in limits"),
    (unit(requests={"cpu": 4}, limits={"cpu": "3500m"}),
     "workloads[0].requests.cpu: 4: is more than its limit (3500m): write at most that, or raise the limit"),
    (unit(requests={"memory": "2Gi"}, limits={"memory": "1G"}),
     "workloads[0].requests.memory: 2Gi: is more than its limit (1G): write at most that, or raise the limit"),
    (unit(requests={"hugepages-2Mi": "2Mi"}),
     "workloads[0].requests.hugepages-2Mi: 2Mi: hugepages cannot be overcommitted, the limit is none: write both equal"),
    (unit(requests={"hugepages-2Mi": "2Mi"}, limits={"hugepages-2Mi": "4Mi"}),
     "workloads[0].requests.hugepages-2Mi: 2Mi: hugepages cannot be overcommitted, the limit is 4Mi: write both equal"),
    (unit(request={"cpu": 1}), "workloads[0].request: unknown key: did you mean workloads[0].requests?"),
    (unit(hold="ever"), "workloads[0].hold: ever: is not known: write declared or running"),
    ({"name": "a", "match": {"unit": "a.timer"}, "limits": {"cpu": 1}},
     "workloads[0].match.unit: a.timer: only services are given resources of their own: name a .service"),
    (unit(containers=[{"name": "c", "limits": {"cpu": 1}}]),
     "workloads[0].containers: belong to a pod: match a pod, or write requests and limits"),
    (pod({"name": "c", "limits": {"cpu": 1}}, limits={"cpu": 1}),
     "workloads[0]: declares containers and requests or limits of its own: write them at the containers alone"),
    (pod({"name": "c"}, {"name": "c", "limits": {"cpu": 1}}),
     "workloads[0].containers[1].name: c: is in this pod twice: give each its own name"),
    (pod({"name": "c", "role": "main"}),
     "workloads[0].containers[0].role: main: is not known: write app or init or sidecar"),
    (pod({"role": "init"}), "workloads[0].containers[0].name: is missing: write it as in name: app"),
    (pod({"name": "c*"}),
     "workloads[0].containers[0].name: c*: is not the name of a container, without * and ?: write it as in app"),
    (pod({"name": "c", "requests": {"cpu": 3}, "limits": {"cpu": 1}}),
     "workloads[0].containers[0].requests.cpu: 3: is more than its limit (1): write at most that, or raise the limit"),
]  # fmt: skip


@pytest.mark.parametrize(("row", "line"), REFUSED, ids=[line for dummy, line in REFUSED])
def test_it_is_refused_with_path_value_and_way_out(row: dict[str, t.Any], line: str) -> None:
    with pytest.raises(CorralError) as refused:
        parse(row)
    assert [problem.line() for problem in refused.value.problems] == [line]


def test_two_workloads_cannot_have_the_same_unit() -> None:
    with pytest.raises(CorralError, match=r"^workloads\[1\]\.match\.unit: a\.service: is what workloads\[0\] matches"):
        parse(limits(cpu=1), {**limits(cpu=1), "name": "b"})


def test_resources_need_the_pools_of_cpus() -> None:
    with pytest.raises(CorralError, match=r"^cpu: workloads with requests or limits need the pools"):
        profile.parse({"name": "x", "workloads": [limits(cpu=1)]})


def test_workloads_of_the_command_line_are_read_as_a_profiles() -> None:
    assert profile.parse_workloads([limits(cpu=1)]) == parse(limits(cpu=1))
    with pytest.raises(CorralError, match=r"^workloads\[0\]\.limits\.cpu"):
        profile.parse_workloads([limits(cpu=0)])


@pytest.mark.parametrize(
    ("resource", "amount", "text"),
    [
        ("cpu", 2000, "2"), ("cpu", 1500, "1500m"), ("cpu", 1, "1m"), ("memory", 512 * MIB, "512Mi"),
        ("memory", 1000, "1000"), ("pids", 1024, "1024"), ("hugepages-1Gi", 2 * GIB, "2Gi"),
    ],
)  # fmt: skip
def test_an_amount_is_written_as_a_profile_writes_it(resource: str, amount: int, text: str) -> None:
    assert profile_workloads.amount_text(resource, amount) == text


@pytest.mark.parametrize(
    ("name", "escaped"), [("web", "web"), ("data-plane", "data\\x2dplane"), ("batch:run@a", "batch:run\\x40a")]
)
def test_a_name_is_one_part_of_a_slices_name(name: str, escaped: str) -> None:
    assert profile_workloads.slice_name(name) == escaped


@st.composite
def claims(draw: st.DrawFn) -> dict[str, t.Any]:
    """Requests within limits, as amounts."""
    cpu, memory, pages = (draw(st.none() | st.integers(least, 1 << 30)) for least in (1, MIB, 1))
    found: dict[str, t.Any] = {"requests": {}, "limits": {}}
    for name, amount, least in (("cpu", cpu, 1), ("memory", memory, MIB)):
        if amount is not None:
            below = draw(st.none() | st.integers(least, amount))
            unit_of = "m" if name == "cpu" else ""
            found["limits"][name] = f"{amount}{unit_of}"
            if below is not None:
                found["requests"][name] = f"{below}{unit_of}"
    if pages is not None:
        found["limits"]["hugepages-2Mi"] = str(pages * 2 * MIB)
    if draw(st.booleans()):
        found["limits"]["pids"] = draw(st.integers(1, 1 << 20))
    return found


@st.composite
def rows(draw: st.DrawFn) -> list[dict[str, t.Any]]:
    found = []
    for number in range(draw(st.integers(1, 4))):
        name = f"w{number}"
        hold = draw(st.sampled_from(["declared", "running"]))
        if draw(st.booleans()):
            found.append({"name": name, "match": {"unit": f"{name}.service"}, "hold": hold, **draw(claims())})
            continue
        inner = [
            {"name": f"c{index}", "role": draw(st.sampled_from(["app", "init", "sidecar"])), **draw(claims())}
            for index in range(draw(st.integers(1, 3)))
        ]
        found.append({"name": name, "match": {"pod": name}, "hold": hold, "containers": inner})
    return found


@given(rows())
def test_what_is_read_is_written_and_read_again(declared: list[dict[str, t.Any]]) -> None:
    found = parse(*declared)
    data = json.loads(json.dumps(profile_workloads.to_data(found)))
    assert parse(*data) == found
    assert profile_workloads.to_data(parse(*data)) == data
