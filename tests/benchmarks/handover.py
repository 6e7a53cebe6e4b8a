# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""How long CPUs are on their way when the isolated core moves, against systemd's own time for as many properties.

On one virtual node with a unit of 16 threads in each pool, while another process looks for an instant at which an
isolated CPU is in two pools.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

import bench
import lab_node

SCRIPT = bench.HERE / "handover_node.py"
HEAD = ("what", "seconds: median (min–max)", "by its floor")
LIMIT = 900  # s


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--turns", type=int, default=5, help="how often the core goes there and back (default: 5)")
    turns = parser.parse_args().turns
    bench.header("make bench-handover")
    with tempfile.TemporaryDirectory(prefix="corral-") as folder, lab_node.node(Path(folder)) as inventory:
        lab_node.play(lab_node.tools(), inventory, "agent")
        words = [str(lab_node.LAB), "ssh", lab_node.NODE, "python3", "-", str(turns)]
        with SCRIPT.open() as script, tempfile.TemporaryFile("w+") as out:
            done = subprocess.run(words, stdin=script, stdout=out, timeout=LIMIT, check=False)
            out.seek(0)
            output = out.read()
    if done.returncode != 0 and not output.startswith("{"):
        print(f"the node's script ended with {done.returncode}: {output}", file=sys.stderr)
        return 1
    told = json.loads(output)
    runs = told["runs"]
    calls = statistics.median(run["calls"] for run in runs)
    floors = [one * calls for one in told["floor"]]
    window, whole = ([run[key] for run in runs] for key in ("window", "whole"))
    rows = [
        (f"{calls:g} properties set by systemctl (the floor)", bench.spread(floors), "1.0×"),
        ("the hand-over, from the first to the last of them", bench.spread(window), bench.ratio(window, floors)),
        ("the whole run: look, plan, change, look again", bench.spread(whole), bench.ratio(whole, floors)),
    ]
    bench.say(bench.table(HEAD, rows))
    bench.say(f"{len(runs)} hand-overs, {told['samples']} samples, {told['overlaps']} overlaps.")
    bench.footer()
    return done.returncode


if __name__ == "__main__":
    raise SystemExit(main())
