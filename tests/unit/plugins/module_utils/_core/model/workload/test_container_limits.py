# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The limits of a pod's containers: what a machine of unknown memory leaves out, and the scores of each role."""

from __future__ import annotations

import typing as t

import pytest
from _core.model.profile import profile
from _core.model.workload import container_limits, grants, resource_requirements
from _core.model.workload.container_limits import ContainerLimits

GIB = 1 << 30


def scores(capacity: int | None, *containers: dict[str, t.Any]) -> list[int | None]:
    data = {
        "name": "x",
        "cpu": {"reserved": {"count": 1}},
        "workloads": [{"name": "web", "match": {"pod": "web"}, "containers": containers}],
    }
    (workload,) = profile.parse(data).workloads
    need = resource_requirements.of(workload, "none", 8, None)
    found = container_limits.of_pod(need, grants.Grant("web", "corral-web.slice"), capacity)
    return [found[one["name"]].score for one in containers]


def burstable(name: str, role: str, memory: str | None) -> dict[str, t.Any]:
    return {"name": name, "role": role, "requests": {"cpu": "100m", **({"memory": memory} if memory else {})}}


POD = (
    burstable("load", "init", "2Gi"),
    burstable("log", "sidecar", "512Mi"),
    burstable("app", "app", "1Gi"),
    burstable("web", "app", "2Gi"),
)


def test_each_container_is_scored_by_its_own_request_and_a_sidecar_by_that_of_the_smallest_app() -> None:
    assert scores(8 * GIB, *POD) == [750, 875, 875, 750]
    assert scores(8 * GIB, burstable("log", "sidecar", "4Gi"), burstable("app", "app", None)) == [500, 999]
    assert scores(8 * GIB, burstable("load", "init", "256Mi"), burstable("app", "app", "1Gi")) == [969, 875]


def test_without_the_machines_memory_only_classes_have_scores() -> None:
    assert scores(None, *POD) == [None] * 4
    limits = {"cpu": 1, "memory": "1Gi"}
    assert scores(None, {"name": "a", "limits": limits}, {"name": "b", "limits": limits}) == [-997, -997]
    assert scores(None, {"name": "a"}) == [1000]


@pytest.mark.parametrize(
    ("file", "value", "text"),
    [("cpu.max", "max", "max 100000"), ("memory.max", "max", "max"), ("cpu.max", "5000 100000", "5000 100000")],
)
def test_what_is_written_reads_back_as_it_is(file: str, value: str, text: str) -> None:
    assert container_limits.written(file, value) == text
    assert container_limits.shown(file, text) == value


def test_a_hook_is_told_no_score_that_is_not_known() -> None:
    files = {"memory.max": "max", "cpu.max": "max"}
    words = ["memory.max=max", "cpu.max=max 100000"]
    assert container_limits.hook_words(ContainerLimits(files, None)) == words
    assert container_limits.hook_words(ContainerLimits(files, 0)) == [*words, "oom_score_adj=0"]


@pytest.mark.parametrize(
    ("file", "value", "none"),
    [
        ("memory.max", "max", True),
        ("cpu.max", "max", True),
        ("cpu.weight", "100", True),
        ("cpu.weight", "39", False),
        ("pids.max", "100", False),
    ],
)
def test_what_the_kernel_does_without_a_file(file: str, value: str, none: bool) -> None:
    assert container_limits.is_no_limit(file, value) == none
