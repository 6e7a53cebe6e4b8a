# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The module status_info as Ansible runs it."""

from __future__ import annotations

import importlib
import json
import re
import typing as t

import node
import pytest
import runs
import test_workload_module
import yaml
from _core.host import state
from _core.model.status import json_shapes
from shapes import misfits
from shared_data import REPOSITORY

pytest.importorskip("ansible.module_utils.basic")

SHELL = importlib.import_module(f"{test_workload_module.WORKLOAD.__package__}._status")
PID_MAX = "/proc/sys/kernel/pid_max"


def task(fake: node.Node) -> dict[str, t.Any]:
    """What the module returns; it changes nothing on the node."""
    before = fake.fingerprint()
    host = fake.host()
    found = t.cast("dict[str, t.Any]", SHELL.status_task(test_workload_module.Module(), host))
    assert (host.writes, fake.fingerprint(), found["changed"]) == ([], before, False)
    return found


def test_it_returns_what_the_command_prints(fake: node.Node) -> None:
    runs.declare(fake.host(), mode="audit")
    fake.put(PID_MAX, "70000\n")
    runs.tick(fake.host())
    fake.time += 60
    printed = json.loads(runs.printed(fake.host(), "status", "--json", code=None))
    lines = runs.printed(fake.host(), "status", code=None).splitlines()
    found = task(fake)
    assert (found["status"], found["report"]) == (printed, lines)
    assert misfits(found["status"], json_shapes.NodeStatus) == []
    assert [(item["subject"], item["since"]) for item in found["status"]["items"]] == [
        ("kernel.pid_max", int(fake.time) - 60)
    ]
    assert found["profile"] == json.loads(fake.get(state.DECLARED))


def test_a_node_without_corral_is_described_as_such(fake: node.Node) -> None:
    found = task(fake)
    assert (found["status"], found["profile"]) == (None, None)
    (said,) = found["report"]
    assert said.startswith(f"{state.STATUS}: there is none, since the agent is not installed: ")
    runs.install(fake.host())
    runs.tick(fake.host())
    assert task(fake)["report"][0] == f"{state.STATUS}: there is none, since no profile is declared: apply one"
    runs.declare(fake.host())
    fake.drop(state.STATUS)
    assert task(fake)["report"][0].startswith(f"{state.STATUS}: no readable status: is corral-reconcile.timer active?")


def test_a_declared_profile_that_was_damaged_is_named_beside_the_one_in_force(converged: node.Node) -> None:
    converged.put(state.DECLARED, "{")
    runs.tick(converged.host())
    found = task(converged)
    assert found["profile"]["name"] == "edge"
    assert [item["manager"] for item in found["status"]["items"]] == ["profile"]
    assert any("the profile applied last stays in force" in line for line in found["report"])
    converged.put(state.DECLARED, '{"none": 1}')
    found = task(converged)
    assert found["profile"] is None
    assert found["report"][-1].startswith("the declared profile cannot be read: ")


def test_the_documented_fields_are_those_of_the_status() -> None:
    text = (REPOSITORY / "plugins" / "modules" / "status_info.py").read_text(encoding="utf-8")
    found = re.search(r'RETURN = r"""\n(.*?)"""', text, re.DOTALL)
    assert found
    documented = yaml.safe_load(found.group(1))
    assert documented["status"]["contains"].keys() <= t.get_type_hints(json_shapes.NodeStatus).keys()
