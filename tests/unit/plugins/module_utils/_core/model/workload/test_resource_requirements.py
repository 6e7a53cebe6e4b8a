# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a workload comes to: its class, the CPUs of its own, and what a pod needs at its peak."""

from __future__ import annotations

import pytest
from _core.model.profile.profile_workloads import APP, INIT, SIDECAR, Container, Workload
from _core.model.workload import resource_requirements
from _core.model.workload.resources import Amounts
from hypothesis import given
from hypothesis import strategies as st

MIB = 1 << 20


def amounts(**given: int) -> Amounts:
    return tuple(sorted(given.items()))


def alone(requests: Amounts, limits: Amounts = ()) -> Workload:
    return Workload("a", "unit", "a.service", requests=requests, limits=limits)


def pod(*containers: tuple[str, Amounts, Amounts]) -> Workload:
    listed = tuple(Container(f"c{number}", *one) for number, one in enumerate(containers))
    return Workload("a", "pod", "a", containers=listed)


def whole(cpu: int, memory: int = MIB) -> tuple[Amounts, Amounts]:
    return amounts(cpu=1000 * cpu, memory=memory), amounts(cpu=1000 * cpu, memory=memory)


@pytest.mark.parametrize(
    ("workload", "policy", "qos", "cpus", "note"),
    [
        (alone(*whole(4)), "static", "Guaranteed", 4, ""),
        (alone(*whole(4)), "none", "Guaranteed", 0, ""),
        (alone(amounts(cpu=1500, memory=MIB), amounts(cpu=1500, memory=MIB)), "static", "Guaranteed", 0,
         "not a whole number of CPUs: it runs on the shared pool, as in the kubelet"),
        (alone(amounts(cpu=500, memory=MIB), amounts(cpu=500, memory=MIB)), "static", "Guaranteed", 0, ""),
        (pod(*[(APP, amounts(cpu=500, memory=MIB), amounts(cpu=500, memory=MIB))] * 2), "static", "Guaranteed", 0, ""),
        (pod((APP, *whole(1)), (APP, amounts(cpu=500, memory=MIB), amounts(cpu=500, memory=MIB))), "static", "Guaranteed", 0,
         "a container of it asks for a part of a CPU: the whole pod runs on the shared pool"),
        (alone(amounts(cpu=1500, memory=MIB), amounts(cpu=1500, memory=MIB)), "none", "Guaranteed", 0, ""),
        (alone(amounts(cpu=4000), amounts(cpu=4000)), "static", "Burstable", 0,  # as in the kubelet
         "asks for 4 whole CPUs and limits no memory: it is Burstable and runs on the shared pool; add limits.memory"),
        (alone(amounts(cpu=4000), amounts(cpu=4000)), "none", "Burstable", 0, ""),
        (alone(amounts(cpu=1000), amounts(cpu=4000)), "static", "Burstable", 0, ""),
        (alone(amounts(cpu=2000, memory=MIB), amounts(cpu=4000, memory=MIB)), "static", "Burstable", 0, ""),
        (alone(amounts(memory=MIB)), "static", "Burstable", 0, ""),
        (alone((), amounts(pids=64)), "static", "BestEffort", 0, ""),
        (pod((APP, *whole(2)), (APP, *whole(1))), "static", "Guaranteed", 3, ""),
        (pod((APP, *whole(2)), (APP, amounts(cpu=500, memory=MIB), amounts(cpu=500, memory=MIB))), "static", "Guaranteed", 0,
         "a container of it asks for a part of a CPU: the whole pod runs on the shared pool"),
        (pod((APP, *whole(2)), (APP, (), ())), "static", "Burstable", 0, ""),
    ],
)  # fmt: skip
def test_who_has_cpus_of_its_own(workload: Workload, policy: str, qos: str, cpus: int, note: str) -> None:
    found = resource_requirements.of(workload, policy, None)
    assert (found.qos, found.cpus, found.note) == (qos, cpus, note)


def test_each_container_of_a_pod_has_its_own_part() -> None:
    found = resource_requirements.of(pod((INIT, *whole(4)), (APP, *whole(2)), (APP, *whole(1))), "static", None)
    assert [(container.name, count) for container, count in found.containers] == [("c0", 4), ("c1", 2), ("c2", 1)]
    assert found.cpus == 4, "the init container hands its own on"


# The kubelet's PodRequests (1.36): containers run together, with the sidecars; an init container runs alone, but for
# the sidecars that started before it.
PEAKS = [
    ([(APP, 2), (APP, 1)], 3),
    ([(INIT, 4), (APP, 1)], 4),
    ([(INIT, 1), (INIT, 2), (APP, 1)], 2),
    ([(INIT, 2), (APP, 3)], 3),
    ([(SIDECAR, 1), (APP, 2)], 3),
    ([(SIDECAR, 1), (INIT, 3), (APP, 2)], 4),
    ([(INIT, 3), (SIDECAR, 1), (APP, 2)], 3),
    ([(SIDECAR, 1), (INIT, 3), (SIDECAR, 2), (APP, 1)], 4),
    ([(SIDECAR, 1), (SIDECAR, 2), (INIT, 2), (APP, 1)], 5),
    ([(INIT, 5)], 5),
]


@pytest.mark.parametrize(("containers", "peak"), PEAKS)
def test_what_a_pod_needs_at_its_peak(containers: list[tuple[str, int]], peak: int) -> None:
    assert resource_requirements.amounts_of([(role, {"cpu": cpu}) for role, cpu in containers]) == {"cpu": peak}


@given(
    st.lists(
        st.tuples(st.sampled_from([APP, INIT, SIDECAR]), st.dictionaries(st.sampled_from("ab"), st.integers(0, 9))),
        max_size=6,
    )
)
def test_the_peak_is_the_most_that_ever_runs_at_once(containers: list[tuple[str, dict[str, int]]]) -> None:
    """By the story of a start: one after another, sidecars stay; then the apps all together."""
    for resource in "ab":
        moments, sidecars = [0], 0
        for role, one in containers:
            if role == INIT:
                moments.append(sidecars + one.get(resource, 0))
            elif role == SIDECAR:
                sidecars += one.get(resource, 0)
        moments.append(sidecars + sum(one.get(resource, 0) for role, one in containers if role == APP))
        assert resource_requirements.amounts_of(containers).get(resource, 0) == max(moments)


def test_a_pod_is_limited_where_all_of_its_containers_are() -> None:
    found = resource_requirements.of(
        pod((APP, (), amounts(cpu=1000, memory=MIB)), (APP, (), amounts(cpu=2000)), (INIT, (), amounts(cpu=9000))),
        "static",
        None,
    )
    assert found.limits == amounts(cpu=9000), "one without a limit may take what there is"


def test_hugepages_and_devices_of_one_container_limit_the_pod() -> None:
    """A container that names none has none, so that the pod has those of the others, and no more."""
    asked: Amounts = (("cpu", 1000), ("example.com/nic", 1), ("hugepages-2Mi", 4 * MIB))
    workload = pod((APP, asked, asked), (SIDECAR, amounts(cpu=1000), amounts(cpu=1000)), (APP, (), ()))
    assert resource_requirements.of(workload, "none", None).limits == asked[1:]


@pytest.mark.parametrize(("own", "wanted"), [(None, 4096), (64, 64)])
def test_tasks_are_limited_by_the_profiles_default_where_a_workload_says_nothing(own: int | None, wanted: int) -> None:
    found = resource_requirements.of(alone((), amounts(memory=MIB) if own is None else amounts(pids=own)), "none", 4096)
    assert dict(found.limits)["pids"] == wanted
    assert "pids" not in dict(resource_requirements.of(alone(amounts(cpu=1)), "none", None).limits)
