# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the README shows of a first look at three nodes is what its own profile gives."""

from __future__ import annotations

import typing as t
from unittest import mock

import node
import pytest
import runs
import yaml
from documented import commands, differences, shows


@shows(
    "README.md",
    "edge:",
    "name: edge",
    "$ ansible-playbook -i hosts.yml --check corral.node.drift -e corral_profile_file=edge.yml",
)
def test_a_first_look_is_as_the_readme_shows_it(shown: list[str], fake: node.Node) -> None:
    pytest.importorskip("ansible.inventory.manager")
    pytest.importorskip("jinja2")  # the report is made where Ansible runs, not on a node
    import test_documented_playbooks
    import test_fleet_report
    import test_workload_module

    hosts = test_documented_playbooks.hosts_of(shown[0])
    module = test_workload_module.Module(
        check=True, profile=yaml.safe_load(shown[1]), layers=None, adopt=None,
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
    (look,) = commands(shown[2])
    test_documented_playbooks.check_playbook(look.words.split()[1:])
    assert differences(look.output, report["lines"]) == []
    assert len(look.output) > 8
