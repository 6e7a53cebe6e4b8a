# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What Ansible itself refuses of a module's options, before the module looks at the node."""

from __future__ import annotations

import json
import typing as t
from unittest import mock

import controller_plugins
import pytest

basic = pytest.importorskip("ansible.module_utils.basic")

REFUSED: list[tuple[str, dict[str, t.Any], str]] = [
    ("cpuset", {"reserved": {"count": 1, "cpus": "0"}}, "mutually exclusive: cpus|count|cores_per_numa found in reserved"),
    ("cpuset", {"reserved": {"slices": []}}, "required: cpus, count, cores_per_numa found in reserved"),
    *(
        ("cpuset", {"reserved": {"count": 1}, "isolated": isolated}, f"{said} found in isolated")
        for isolated, said in (
            ({"cpus": "2", "cores": 1}, "mutually exclusive: cpus|cores"),
            ({"cpus": "2", "numa": 1}, "mutually exclusive: cpus|numa"),
            ({"cpus": "2", "near": "ens1f0"}, "mutually exclusive: cpus|near"),
            ({"cores": 1, "numa": 1, "near": "ens1f0"}, "mutually exclusive: numa|near"),
            ({"numa": 1}, "required: cpus, cores"),
        )
    ),
    ("workload", {"name": "a", "match": {"unit": "a.service", "pod": "a"}},
     "mutually exclusive: unit|container|pod|label found in match"),
    ("workload", {"name": "a", "match": {}}, "required: unit, container, pod, label found in match"),
    ("hugetlbfs_mount", {"path": "/mnt", "pagesize": "2Mi", "user": "a", "uid": 1}, "mutually exclusive: user|uid"),
    ("hugetlbfs_mount", {"path": "/mnt", "pagesize": "2Mi", "group": "a", "gid": 1}, "mutually exclusive: group|gid"),
    ("profile", {"profile": {"name": "a"}, "layers": []}, "mutually exclusive: profile|layers"),
]  # fmt: skip


@pytest.mark.parametrize(("module", "options", "said"), REFUSED)
def test_one_of_several_is_asked_for_by_ansible_itself(
    module: str, options: dict[str, t.Any], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    sent = json.dumps({"ANSIBLE_MODULE_ARGS": {**options, "_ansible_check_mode": True}}).encode()
    wire = mock.patch.multiple(basic, _ANSIBLE_ARGS=sent, _ANSIBLE_PROFILE="legacy", create=True)
    with wire, pytest.raises(SystemExit):
        controller_plugins.load(f"modules.{module}").main()
    result = json.loads(capsys.readouterr().out)
    assert result["failed"] and result["msg"].endswith(said)
