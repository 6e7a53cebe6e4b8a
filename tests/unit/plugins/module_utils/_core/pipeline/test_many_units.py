# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A pattern that matches many units: the work of a plan grows as their number does. Calls of functions are counted, not seconds."""

from __future__ import annotations

import json
import sys
import typing as t
from pathlib import Path

import node
import pytest
import runs
import trees
from _core.host import state
from _core.managers.workload import checkpoint
from _core.model.profile import profile
from _core.model.values.errors import CorralError
from _core.model.workload import workload_units
from _core.model.workload.grants import Grant
from _core.pipeline import planning

FEW, MANY = 100, 400
STATIC = {"memory": {"policy": "static", "reserved": {"0": "64Mi", "1": "64Mi"}}}
SMALL = {"requests": {"cpu": "1m", "memory": "1Mi"}, "limits": {"memory": "2Mi"}}


def with_units(root: Path, template: Path, count: int) -> node.Node:
    fake = node.Node(root, template)
    for number in range(count):
        fake.put(f"/etc/systemd/system/app{number}.service", "[Service]\nExecStart=/bin/app\n")
    return fake


def work(fake: node.Node, claim: dict[str, t.Any] | None, **sections: t.Any) -> tuple[int, str]:
    """How many functions a plan calls for a pattern that matches all units, and its refusal."""
    calls = [0]

    def count(dummy_frame: object, event: str, dummy_arg: object) -> None:
        calls[0] += event in ("call", "c_call")

    rows = [{"name": "app", "match": {"unit": "app*.service"}, **claim}] if claim else []
    declared = profile.parse(node.edge(workloads=rows, **sections))
    host, said = fake.host(), ""
    earlier = sys.getprofile()
    sys.setprofile(count)
    try:
        planning.plan_profile(host, planning.compile_profile(host, declared))
    except CorralError as error:
        said = str(error)
    finally:
        sys.setprofile(earlier)
    return calls[0], said


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("template")
    trees.build(folder, node.MACHINE)
    return folder


CLAIMS = {
    "all fit": (SMALL, {}),
    "hardly any fits": ({"requests": {"cpu": "100m"}}, {}),
    "CPUs of their own, and hardly any fits": ({"limits": {"cpu": "1", "memory": "1Mi"}}, {}),
    "tasks": ({"limits": {"pids": 1000}}, {}),
    "memory of nodes": ({"limits": {"cpu": "1m", "memory": "1Mi"}}, STATIC),
    "memory of nodes, and hardly any fits": ({"limits": {"cpu": "1m", "memory": "64Mi"}}, STATIC),
    "hold: running": ({"hold": "running", **SMALL}, {}),
}


@pytest.mark.parametrize("name", CLAIMS)
def test_four_times_as_many_units_are_four_times_as_much_work(name: str, tmp_path: Path, template: Path) -> None:
    claim, sections = CLAIMS[name]
    few, many = (
        work(with_units(tmp_path / str(count), template, count), claim, **sections)[0] for count in (FEW, MANY)
    )
    assert many < 4.5 * few


def test_runs_that_the_profile_no_longer_declares_are_linear_work_as_well(tmp_path: Path, template: Path) -> None:
    counts = []
    for number in (FEW, MANY):
        fake = with_units(tmp_path / str(number), template, number)
        host = fake.host()
        declared = profile.parse(
            node.edge(workloads=[{"name": "app", "match": {"unit": "app*.service"}, "hold": "running", **SMALL}])
        )
        found = planning.compile_profile(host, declared).workloads
        assert found is not None
        given = []
        for need in found.needs:
            unit = need.workload.pattern
            one = Grant(need.workload.name, "running", "ab" * 16, requests=need.requests, limits=need.limits, unit=unit)
            given.append(one)
            holder = workload_units.grant_unit(need.workload.name)
            link = fake.root / f"run/systemd/units/invocation:{holder}"
            link.parent.mkdir(parents=True, exist_ok=True)
            link.symlink_to("ab" * 16)
            fake.put(f"/etc/systemd/system/{unit}.d/10-corral-workloads.conf", f"[Unit]\nRequires={holder}\n")
        allocated = found.allocated._replace(grants=tuple(given))
        fake.put(state.CHECKPOINT, checkpoint.checkpoint_text(found._replace(allocated=allocated)))
        counts.append(work(fake, None)[0])
    assert counts[1] < 4.5 * counts[0]


def test_a_refusal_of_hundreds_is_short_and_says_how_many_there_are(tmp_path: Path, template: Path) -> None:
    said = work(with_units(tmp_path / "many", template, MANY), {"requests": {"cpu": "5m"}})[1]
    lines = said.splitlines()
    assert len(lines) <= 101 and len(said) < 100_000
    few = work(with_units(tmp_path / "few", template, 3), {"limits": {"cpu": "1", "memory": "1Mi"}})[1]
    assert "app:app0 has 1, app:app1 has 1" in few
    said = work(with_units(tmp_path / "own", template, MANY), {"requests": {"cpu": "100m"}})[1]
    assert " and 4 more: ask for less" in said
    assert said.splitlines()[-1] == "there are 280 problems more: correct these and check again"


def test_the_agents_tick_writes_a_status_of_bounded_size(tmp_path: Path, template: Path) -> None:
    fake = with_units(tmp_path / "node", template, MANY)
    assert not runs.declare(fake.host(), mode="audit").error
    claims = [{"name": "app", "match": {"unit": "app*.service"}, "requests": {"cpu": "100m"}}]
    fake.put(state.DECLARED, json.dumps(node.edge(mode="audit", workloads=claims)))
    runs.tick(fake.host())
    assert len(fake.get(state.STATUS)) < MANY * 3000
