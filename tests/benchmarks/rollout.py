# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""How long a run of the module corral.node.profile takes, against a playbook that sets the same with stock modules.

On one virtual node, by turns: first runs, each on the node as its saved state has it, then converged runs. Both sides
are run by the same ansible-core with the checkout's ansible.cfg (pipelining, ControlPersist) and gather no facts.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import typing as t
from pathlib import Path

import bench
from lab_node import Failed, Play, node, play, tools

STOCK, CORRAL, FLOOR = "stock", "corral", "ping"
LABELS = {STOCK: "stock modules", CORRAL: "corral.node.profile", FLOOR: "a ping"}
HEAD = ("run", "playbook", "tasks", "commands over SSH", "seconds: median (min–max)", "by Corral's")


def converged(venv: Path, inventory: Path, name: str) -> Play:
    """A run that must change nothing."""
    one = play(venv, inventory, name)
    if one.changed:
        raise Failed(f"{name}.yml changed something on a converged node:\n{one.output}")
    return one


def commands(venv: Path, inventory: Path, name: str) -> int:
    """How many commands a converged run sends over SSH."""
    return play(venv, inventory, name, "-vvv").output.count("SSH: EXEC")


def first_runs(venv: Path, folder: Path, turns: int) -> dict[str, list[Play]]:
    """Each side on a node that neither has seen."""
    plays: dict[str, list[Play]] = {STOCK: [], CORRAL: []}
    with node(folder):
        pass  # The first start may boot it and save its state; from here on all are restored.
    for dummy in range(turns):
        for name, runs in plays.items():
            with node(folder) as inventory:
                runs.append(play(venv, inventory, name))
    return plays


def converged_runs(venv: Path, folder: Path, turns: int) -> tuple[dict[str, list[Play]], dict[str, int]]:
    """Both sides, and the floor, by turns on one node that both have converged; and the commands of one run of each."""
    plays: dict[str, list[Play]] = {FLOOR: [], STOCK: [], CORRAL: []}
    with node(folder) as inventory:
        for name in (STOCK, CORRAL):
            play(venv, inventory, name)
        sent = {name: commands(venv, inventory, name) for name in plays}
        for dummy in range(turns):
            for name, runs in plays.items():
                runs.append(converged(venv, inventory, name))
    return plays, sent


def rows(title: str, plays: dict[str, list[Play]], sent: t.Mapping[str, int]) -> t.Iterator[tuple[object, ...]]:
    """The table's rows of one kind of run."""
    times = {name: [one.seconds for one in runs] for name, runs in plays.items()}
    for name, runs in plays.items():
        tasks = "/".join(str(count) for count in sorted({one.tasks for one in runs}))
        yield (
            title, LABELS[name], tasks, sent.get(name, "-"), bench.spread(times[name], 1),
            bench.ratio(times[name], times[CORRAL]),
        )  # fmt: skip


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--first", type=int, default=3, help="first runs of each side (default: 3)")
    parser.add_argument("--turns", type=int, default=5, help="converged runs of each side (default: 5)")
    args = parser.parse_args()
    venv = tools()
    bench.header("make bench-rollout")
    try:
        with tempfile.TemporaryDirectory(prefix="corral-") as folder:
            first = first_runs(venv, Path(folder), args.first)
            again, sent = converged_runs(venv, Path(folder), args.turns)
    except Failed as error:
        print(error, file=sys.stderr)
        return 1
    bench.say(bench.table(HEAD, [*rows("first", first, {}), *rows("converged", again, sent)]))
    bench.footer()
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
