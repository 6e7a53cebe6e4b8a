# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What a tenant's process notices of another tenant's fork bomb and memory hog, on a virtual node.

How soon it answers: alone (the floor), beside them, and beside the same bomb as part of its own service. Reports Markdown.
"""

from __future__ import annotations

import argparse
import tempfile
import typing as t
from pathlib import Path

import bench
import lab_node

SCRIPT = bench.HERE / "tenants_node.py"
HEAD = (
    "milliseconds: median of the turns' (min–max)",
    "answer",
    "by its floor",
    "99th percentile",
    "by its floor",
    "awake",
)
ROWS = (
    ("alone", "nothing else on its CPU (the floor)"),
    ("beside", "another tenant's fork bomb and memory hog on its CPU"),
    ("inside", "the same bomb as part of its own service"),
    ("own", "CPUs of its own"),
    ("own_beside", "CPUs of its own, and another tenant's fork bomb and memory hog on a shared one"),
)


def answers(measured: t.Mapping[str, t.Any]) -> str:
    """The table."""

    def row(name: str, what: str) -> tuple[str, ...]:
        cells = [what]
        for part in ("", "_99"):
            cells += [
                bench.spread(measured[name + part], 1),
                bench.ratio(measured[name + part], measured[f"alone{part}"]),
            ]
        return (*cells, bench.spread(measured[f"{name}_late"], 1))

    return bench.table(HEAD, [row(name, what) for name, what in ROWS])


def counted(measured: t.Mapping[str, t.Any]) -> str:
    """What the kernel did meanwhile, in words."""
    bomb, inside, killed, spared = (measured[name] for name in ("bomb", "bomb_inside", "killed", "spared"))
    return (
        f"Processes of the bomb: {min(bomb)}–{max(bomb)}, in the process' own service {min(inside)}–{max(inside)}. In the other tenant's "
        f"slice processes were killed or refused {sum(killed)} times, in the process' own {sum(spared)} times.\n"
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--turns", type=int, default=5, help="how often each is measured (default: 5)")
    turns = parser.parse_args().turns
    bench.header("make bench-tenants")
    with tempfile.TemporaryDirectory(prefix="corral-") as folder, lab_node.node(Path(folder)) as inventory:
        lab_node.play(lab_node.tools(), inventory, "agent")
        code, measured = lab_node.script(SCRIPT, turns)
        bench.say(answers(measured))
        bench.say(counted(measured))
    bench.footer()
    return code


if __name__ == "__main__":
    raise SystemExit(main())
