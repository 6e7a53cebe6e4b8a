# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the README shows of a first look at three nodes is what its own profile gives."""

from __future__ import annotations

import re
import typing as t
from unittest import mock

import node
import pytest
import runs
import test_workload_module
import yaml
from shared_data import REPOSITORY

pytest.importorskip("ansible.module_utils.basic")
README = (REPOSITORY / "README.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```(\w+)\n(.*?)^```", README, re.MULTILINE | re.DOTALL)


def block(kind: str, beginning: str) -> str:
    (found,) = [text for one, text in BLOCKS if one == kind and text.startswith(beginning)]
    return found


def test_a_first_look_is_as_the_readme_shows_it(fake: node.Node) -> None:
    pytest.importorskip("jinja2")  # the report is made where Ansible runs, not on a node
    import test_fleet_report

    (pattern,) = yaml.safe_load(block("yaml", "edge:\n"))["edge"]["hosts"]
    hosts = [pattern.replace("[1:3]", str(number)) for number in (1, 2, 3)]
    module = test_workload_module.Module(
        check=True, profile=yaml.safe_load(block("yaml", "name: edge\n")), layers=None, adopt=None,
        during_pause="apply", confirm_timeout=0, force=False,
    )  # fmt: skip
    found: dict[str, t.Any] = test_workload_module.WORKLOAD._module.profile_task(module, fake.host())
    fake.put("/usr/bin/python3", "")
    modules = test_workload_module.WORKLOAD._module
    with mock.patch.object(modules._core_files, "program", lambda main: runs.PROGRAM):  # as Ansible would send it
        install = test_workload_module.Module(
            check=True, state="present", interval=None, python="/usr/bin/python3", metrics_dir=None
        )
        agent: dict[str, t.Any] = modules.agent_task(install, fake.host())
    said = f"Failed to connect to the host via ssh: ssh: connect to host {hosts[2]} port 22: Connection timed out"
    gone = {"unreachable": True, "msg": said}
    report = test_fleet_report.fleet_report(
        {hosts[0]: found, hosts[1]: found, hosts[2]: gone}, {**dict.fromkeys(hosts, agent), hosts[2]: {"skipped": True}}
    )
    release = agent["drift"][0]["wanted"]  # which changes with each change of the program
    lines = [line.replace(release, "0f3a5c7e9b21") for line in report["lines"]]
    shown = block("console", "$ ansible-playbook -i hosts.yml --check corral.node.drift").splitlines()[1:]
    assert [line for line in shown if line.strip() != "…" and line not in lines] == []
    assert len(shown) > 8
