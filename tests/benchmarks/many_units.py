# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The CPU time of a plan, and of a tick that reports it, for a pattern that matches up to 10,000 units, against one for 1,000."""

from __future__ import annotations

import contextlib
import io
import json
import shutil
import tempfile
import time
import typing as t
from pathlib import Path

import bench
import node
import runs
import tick_node
import trees
from _core.host import state
from _core.model.profile import profile
from _core.model.values.errors import CorralError
from _core.pipeline import planning

NUMBERS = (1000, 10000)
CLAIMS: dict[str, dict[str, t.Any]] = {
    "all fit": {"requests": {"cpu": "1m", "memory": "1Mi"}, "limits": {"memory": "2Mi"}},
    "most are refused": {"limits": {"cpu": "1", "memory": "1Mi"}},
}


def seconds(folder: Path, number: int, claim: t.Mapping[str, t.Any]) -> tuple[float, float]:
    """Of a plan, and of a tick in audit mode, which plans and publishes."""
    trees.build(folder / "machine", tick_node.LARGE)
    fake = node.Node(folder / "root", folder / "machine", machine=tick_node.LARGE)
    fake.systemd.online = fake.systemd.possible = frozenset(range(trees.possible(tick_node.LARGE)))
    fake.systemd.sync()
    runs.converged(fake, with_agent=True)
    for index in range(number):
        fake.put(f"/etc/systemd/system/app{index}.service", "[Service]\nExecStart=/bin/app\n")
    data = node.edge(mode="audit", workloads=[{"name": "app", "match": {"unit": "app*.service"}, **claim}])
    host = fake.host()
    begin = time.process_time()
    with contextlib.suppress(CorralError):
        planning.plan_profile(host, planning.compile_profile(host, profile.parse(data)))
    planned = time.process_time()
    fake.put(state.DECLARED, json.dumps(data))
    with contextlib.redirect_stderr(io.StringIO()):
        runs.tick(fake.host())
    return planned - begin, time.process_time() - planned


def main() -> None:
    """Print a row for each claim."""
    bench.header("make bench-many-units")
    rows = []
    for name, claim in CLAIMS.items():
        found = []
        for number in NUMBERS:
            bench.progress(f"{name}: {number} units")
            folder = Path(tempfile.mkdtemp(prefix="corral-units-"))
            try:
                found.append(seconds(folder, number, claim))
            finally:
                shutil.rmtree(folder)
        (plan, tick), (plans, ticks) = found
        planned = (f"{plan:.2f}", f"{plans:.2f}", f"{plans / plan:.1f}×")
        rows.append((name, *planned, f"{tick:.2f}", f"{ticks:.2f}", f"{ticks / tick:.1f}×"))
    few, many = (f"{number:,}" for number in NUMBERS)
    head = (
        "units of one pattern",
        f"plan of {few}, s",
        f"of {many}",
        "ratio",
        f"tick of {few}, s",
        f"of {many}",
        "ratio",
    )
    bench.say(bench.table(head, rows))
    bench.footer()


if __name__ == "__main__":
    main()
