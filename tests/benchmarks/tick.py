# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What a converged tick of the agent costs, against an empty Python (`python3 -I -c pass`) in the same run, by turns.

On a node with the agent, as root, this file alone (and ../lab/count_tick.py for the count) measures what the timer's
unit starts. With --fake, in a checkout, the same on a made-up node of 8 CPUs in a folder. CPU time is user and system
time of the process as the kernel counted it when it ended (wait4(2)); memory is the most it had resident (VmHWM).
"""

from __future__ import annotations

import argparse
import datetime
import os
import platform
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
COUNT = HERE.parent / "lab" / "count_tick.py"
AGENT = "/usr/libexec/corral"
KEPT = "run/corral/inputs"
# A tick as the launcher runs it, on any root.
TICK = """\
import sys
sys.path.insert(0, {program!r})
from _core import agent
from _core.host.files import Host
code = agent.tick(Host({root!r}))
"""
PEAK = "print(next(line for line in open('/proc/self/status') if line.startswith('VmHWM')).split()[1])\n"


def spent(command: list[str]) -> float:
    """The CPU seconds of a process, user and system, its start included. Raises RuntimeError when it fails."""
    pid = os.posix_spawn(command[0], command, {**os.environ, "TRIGGER_UNIT": "corral-reconcile.timer"})
    dummy, status, usage = os.wait4(pid, 0)
    if os.waitstatus_to_exitcode(status) != 0:
        raise RuntimeError(
            f"{' '.join(command)!r} ended with {os.waitstatus_to_exitcode(status)}: is the node in sync?"
        )
    return usage.ru_utime + usage.ru_stime


def peak(python: str, options: list[str], code: str) -> str:
    """The most memory that this code had resident, in MB."""
    environment = {**os.environ, "TRIGGER_UNIT": "corral-reconcile.timer"}
    done = subprocess.run(
        [python, *options, "-c", code + PEAK], env=environment, capture_output=True, text=True, check=True
    )
    return f"{int(done.stdout) / 1024:.1f}"


def fake_node(folder: Path, python: str) -> tuple[str, str]:
    """A made-up node in sync, and this checkout's core compiled as on a node: (program, root)."""
    checkout = HERE.parents[1]
    sys.path[:0] = [str(checkout / "plugins/module_utils"), str(checkout / "tests/unit")]
    import node
    import runs
    import trees

    trees.build(folder / "machine", node.MACHINE)
    runs.converged(node.Node(folder / "root", folder / "machine"), with_agent=True)
    shutil.copytree(checkout / "plugins/module_utils/_core", folder / "program/_core")
    subprocess.run([python, "-I", "-m", "compileall", "-q", str(folder / "program")], check=True)
    return str(folder / "program"), str(folder / "root")


def measure(python: str, program: str, root: str, turns: int, command: list[str]) -> int:
    """Print the table, and the count of a tick's writes and processes. Exit code 1 when a tick did more than it may."""
    code = TICK.format(program=program, root=root)
    bare = [python, "-I", "-c", "pass"]
    tick = command or [python, "-I", "-S", "-c", code + "raise SystemExit(code)"]
    taken: dict[str, list[float]] = {name: [] for name in ("an empty Python", "a converged tick", "a look in full")}
    kept = Path(root, KEPT)
    spent(tick)
    time.sleep(1.1)  # A look of the same second as the one before is not kept.
    spent(tick)
    told = kept.read_bytes() if kept.exists() else b""
    for dummy in range(turns):
        empty, quiet = spent(bare), spent(tick)
        kept.unlink(missing_ok=True)
        full = spent(tick)
        if told:
            kept.write_bytes(told)
        for name, seconds in zip(taken, (empty, quiet, full)):
            taken[name].append(seconds)
    floor = statistics.median(taken["an empty Python"])
    quiet_peak = peak(python, ["-I", "-S"], code)
    kept.unlink(missing_ok=True)
    peaks = (peak(python, ["-I"], ""), quiet_peak, peak(python, ["-I", "-S"], code))
    print("| what | CPU ms: median (min–max) | × an empty Python | peak RSS, MB |\n| --- | ---: | ---: | ---: |")
    for (name, times), most in zip(taken.items(), peaks):
        middle = statistics.median(times)
        spread = f"{middle * 1e3:.1f} ({min(times) * 1e3:.1f}–{max(times) * 1e3:.1f})"
        print(f"| {name} | {spread} | {middle / floor:.2f} | {most} |")
    if not COUNT.is_file():
        return 0
    print("\nA look in full and the converged tick after it, by Python's audit hooks:", flush=True)
    return subprocess.run([python, "-I", "-B", str(COUNT), program, root], check=False).returncode


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--turns", type=int, default=20, help="how often each is run (default: 20)")
    parser.add_argument("--fake", action="store_true", help="on a made-up node in a folder")
    parser.add_argument("--python", default="/usr/bin/python3", help="what runs the agent (default: %(default)s)")
    asked = parser.parse_args()
    version = subprocess.run([asked.python, "-V"], capture_output=True, text=True, check=True).stdout.strip()
    today = datetime.datetime.now(datetime.timezone.utc).date()
    load = "/".join(f"{value:.1f}" for value in os.getloadavg())
    print(
        f"`{' '.join(['python3', os.path.relpath(__file__), *sys.argv[1:]])}`, {today}, {os.cpu_count()} CPUs, ", end=""
    )
    print(f"Linux {platform.release()}, {version}, load average {load}, {asked.turns} turns:\n")
    if not asked.fake:
        command = [asked.python, "-I", "-S", f"{AGENT}/corral", "reconcile", "--tick"]
        return measure(asked.python, AGENT, "/", asked.turns, command)
    with tempfile.TemporaryDirectory(prefix="corral-") as folder:
        program, root = fake_node(Path(folder), asked.python)
        return measure(asked.python, program, root, asked.turns, [])


if __name__ == "__main__":
    raise SystemExit(main())
