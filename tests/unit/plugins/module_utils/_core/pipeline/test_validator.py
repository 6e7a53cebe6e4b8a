# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A plan outside Corral's own places, or with more pages than a node has memory, is refused before the first write."""

from __future__ import annotations

import typing as t

import node
import pytest
import runs
from _core.managers.pids import pids
from _core.model.plan import make_step
from _core.model.plan.plan import VALUES, Change, Part, Step
from _core.model.values.errors import CorralError

FAULTY: dict[str, tuple[Step, str]] = {
    "a file": (Step("file", "/etc/passwd", "root::0:0::/:/bin/sh\n", VALUES), "/etc/passwd"),
    "a kernel value": (Step("value", "/proc/sys/kernel/core_pattern", "|/bin/sh", VALUES), "core_pattern"),
    "a unit": (Step("unit", "sshd.socket", "stop", VALUES), "sshd.socket"),
    "another manager's": (
        make_step.unit_property("system.slice", "AllowedCPUs", "0", VALUES),
        "the manager pids must not",
    ),
    "a newline in a path": (
        Step("file", "/etc/systemd/system/a\n.d/10-corral-pids.conf", "", VALUES),
        "10-corral-pids",
    ),
    "another script's digit": (Step("pool", node.pool_file(1).replace("node1", "node\u0661"), "1", VALUES), "must not"),
    "pages": (Step("pool", node.pool_file(1), "999999", VALUES), "NUMA node 1 has"),
}


@pytest.mark.parametrize("name", FAULTY)
@pytest.mark.parametrize("converged", [False, True])
def test_a_manager_that_plans_too_much_writes_nothing(
    name: str, converged: bool, fake: node.Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    step, said = FAULTY[name]
    if converged:
        runs.converged(fake, with_agent=True)
    sound = pids.plan

    def faulty(*words: t.Any, **options: t.Any) -> Part:
        part = sound(*words, **options)
        owner = "memory" if step.kind == "pool" else "pids"
        change = Change(owner, step.target, "value", "a", "b", "a fault", step.target, (step,))
        return part._replace(changes=(*part.changes, change))

    monkeypatch.setattr(pids, "MANAGER", pids.MANAGER._replace(plan=faulty))
    before, host = fake.fingerprint("run/corral"), fake.host()
    with pytest.raises(CorralError, match=said):
        runs.declare(host)
    assert (host.writes, host.commands) == ([], [])
    if converged:
        host = fake.host()
        assert runs.tick(host, by_timer=False) == 1
        assert host.acts == ["write_file /run/corral/status.json"]
    assert node.different(before, fake.fingerprint("run/corral")) == []
