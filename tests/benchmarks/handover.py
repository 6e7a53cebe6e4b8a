# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""How long CPUs are on their way, on one virtual node: from pool to pool, and to a workload and back.

When the isolated core moves, against systemd's own time for as many properties, with a unit of 16 threads in each pool,
while another process looks for an instant at which an isolated CPU is in two pools. When a service with CPUs of its own
starts and stops, against the start of an equal service that Corral does not know, and of one that does no more before
its start than an empty Python.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import typing as t
from pathlib import Path

import bench
import lab_node

POOLS, ADMISSION = bench.HERE / "handover_node.py", bench.HERE / "admission_node.py"
SECONDS = ("what", "seconds: median (min–max)", "by systemctl", "by D-Bus")
STARTS = ("what", "milliseconds: median (min–max)", "by its floor", "by an empty Python's start")
STOPS = ("what", "milliseconds: median (min–max)", "by its floor")
STARTED = (
    ("plain", "systemctl start of a service without Corral (the floor)"),
    ("python", "systemctl start of an equal one with an empty Python as ExecStartPre="),
    (
        "held",
        "systemctl start of an equal one in a slice of its own, with a unit that it requires as its grant's, and that does nothing",
    ),
    ("kept", "systemctl start of an equal one whose two CPUs are always its own (hold: declared, the default)"),
    ("load", "an empty Python that loads what an admission needs"),
    ("start", "systemctl start of an equal one with two CPUs of its own while it runs (hold: running)"),
    ("admit", "of that, the admission: observe, plan, change, read back"),
    ("admit_steps", "of that, from the first write to the last read-back"),
    ("admit_cpus", "of that, the CPUs are on their way"),
)
STOPPED = (
    ("plain_stop", "systemctl stop of the one without Corral (the floor)"),
    ("kept_stop", "systemctl stop of the one whose CPUs are always its own"),
    ("back", "systemctl stop of the other, until its CPUs are shared again"),
    ("release", "of that, the release: observe, plan, change, read back"),
    ("release_steps", "of that, from the first write to the last read-back"),
    ("release_cpus", "of that, the CPUs are on their way"),
)


def pools(measured: dict[str, t.Any]) -> str:
    """The table of the isolated core that moves."""
    runs = measured["runs"]
    calls = statistics.median(run["calls"] for run in runs)
    floors = {name: [one * calls for one in times] for name, times in measured["floors"].items()}
    rows = [
        (f"{calls:g} properties set by systemctl, a process each", floors["systemctl"]),
        (f"{calls:g} properties set by D-Bus, one after the other", floors["bus"]),
        ("the hand-over, from the first to the last of them", [run["window"] for run in runs]),
        ("the whole run: observe, plan, change, observe again", [run["whole"] for run in runs]),
    ]
    return bench.table(
        SECONDS,
        [
            (what, bench.spread(times), *(bench.ratio(times, floor) for floor in floors.values()))
            for what, times in rows
        ],
    )


def admissions(measured: dict[str, t.Any]) -> str:
    """The tables of a service that starts, and of one that stops."""
    times = {name: [1e3 * one for one in taken] for name, taken in measured.items()}

    def rows(named: t.Sequence[tuple[str, str]], *floors: str) -> list[tuple[str, ...]]:
        return [
            (what, bench.spread(times[name], 0), *(bench.ratio(times[name], times[floor]) for floor in floors))
            for name, what in named
        ]

    starts = bench.table(STARTS, rows(STARTED, "plain", "python"))
    return f"{starts}\n{bench.table(STOPS, rows(STOPPED, 'plain_stop'))}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--turns", type=int, default=5, help="how often CPUs go there and back (default: 5)")
    turns = parser.parse_args().turns
    bench.header("make bench-handover")
    with tempfile.TemporaryDirectory(prefix="corral-") as folder, lab_node.node(Path(folder)) as inventory:
        lab_node.play(lab_node.tools(), inventory, "agent")
        code, moved = lab_node.script(POOLS, turns)
        bench.say(pools(moved))
        bench.say(f"{len(moved['runs'])} hand-overs, {moved['samples']} samples, {moved['overlaps']} overlaps.\n")
        failed, admitted = lab_node.script(ADMISSION, turns)
        bench.say(admissions(admitted))
    bench.footer()
    return code or failed


if __name__ == "__main__":
    raise SystemExit(main())
