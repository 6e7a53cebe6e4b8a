# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Problems of one section do not hide those of another, at whichever step each of them is found."""

from __future__ import annotations

import json
import typing as t

import node
import pytest
import runs
from _core.model.values.errors import CorralError

READ = {"gc": {"images": {"high": 850}}}  # refused when the profile is read
COMPILED = {"cpu": {"reserved": {"cpus": "99"}}}  # on this node
PLANNED = {"memory": {"mounts": [{"path": "/etc/hostname", "pagesize": "2Mi"}]}}  # by what is there now
CLAIMS = {"workloads": [{"name": "db", "match": {"unit": "db.service"}, "limits": {"cpu": 2, "memory": "1Gi"}}]}
KUBELET = {"kubelet": {"cpu_manager_policy": "static", "max_pods": "many"}}
GC, CPU, MOUNT = "gc.images.high", "cpu.reserved.cpus", "memory.mounts[0].path"


@pytest.mark.parametrize(
    ("sections", "named"),
    [
        ((READ, COMPILED, PLANNED), {GC, CPU, MOUNT}),
        ((READ, COMPILED), {GC, CPU}),
        ((READ, PLANNED), {GC, MOUNT}),
        ((COMPILED, PLANNED), {CPU, MOUNT}),
        ((COMPILED, CLAIMS), {CPU}),  # what is built upon a wrong section is not judged
        ((KUBELET, PLANNED), {"kubelet.max_pods", MOUNT}),
        ((READ, {"name": "no name", "memry": {}}, COMPILED), {GC, "name", "memry", CPU}),
        (({"version": 99}, READ, COMPILED), {"version"}),  # its other keys may mean something else
    ],
)
def test_all_problems_are_named_at_once(
    fake: node.Node, sections: tuple[dict[str, t.Any], ...], named: set[str]
) -> None:
    fake.put("/etc/hostname", "a file\n")
    whole: dict[str, t.Any] = {"name": "x"}
    for section in sections:
        whole.update(section)
    file = fake.root / "profile.json"
    file.write_text(json.dumps(whole))
    host, before = fake.host(), fake.fingerprint()
    with pytest.raises(CorralError) as refused:
        runs.command(host, "plan", "--profile", str(file))
    assert {problem.path for problem in refused.value.problems} == named
    assert len({problem.line() for problem in refused.value.problems}) == len(refused.value.problems)
    assert (host.writes, fake.fingerprint()) == ([], before)
