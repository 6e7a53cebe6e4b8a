# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What a converged tick of the agent costs, against an empty Python in the same run, by turns.

On a node with the agent, as root, this file alone (and ../lab/count_tick.py, which checks what a tick writes) measures
what the timer's unit starts. With --fake, in a checkout, the same on made-up nodes in folders: the lab's machine without
workloads, and one of 256 CPUs with --workloads of them. CPU time is user and system time of the process as the kernel
counted it when it ended (wait4(2)); memory is the most it had resident (VmHWM).
"""

from __future__ import annotations

import argparse
import datetime
import json
import marshal
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
import typing as t
import zlib
from pathlib import Path

HERE = Path(__file__).resolve().parent
COUNT = HERE.parent / "lab" / "count_tick.py"
LAUNCHER = "/usr/libexec/corral/corral"
RECONCILER = ("corral-reconcile.timer", "corral-reconcile.path")
KEPT, STATUS = "run/corral/inputs", "run/corral/status.json"
OPTIONS = ("-I", "-S", "-B")  # as the unit has it
EMPTY = (("python3 -I -S -c pass", ("-I", "-S")), ("python3 -I -c pass", ("-I",)))
KUBELETS: dict[str, t.Optional[dict[str, t.Any]]] = {
    "without the section kubelet": None,
    "with it": {"max_pods": 50},
}
QUIET, CHANGED, FULL = "a converged tick", "something changed: a full check", "every ten minutes: a full check"
# A tick as the launcher runs it, on any root.
TICK = """\
import sys
sys.path.insert(0, {program!r})
from _core import main
from _core.host.files import Host
host = Host({root!r})
code = main.tick(host)
"""
PEAK = "peak = next(line for line in open('/proc/self/status') if line.startswith('VmHWM')).split()[1]\n"
# Host opens plain descriptors, which have no mode for the hook.
SEEN = """\
import sys
seen = {"open": 0, "os.listdir": 0}
def hook(event, words):
    if event == "os.listdir" or (event == "open" and words[1] is None and not words[2] & 3):
        seen[event] += 1
sys.addaudithook(hook)
"""
TOLD = "import json\nprint(json.dumps([int(peak), seen, host.writes, len(host.commands)]))\n"
HEAD = ("what", "CPU ms: median (min–max)", *(f"× {name}" for name, dummy in EMPTY))
HEAD += ("peak RSS, MB", "files read", "folders listed", "written", "processes")


class Seen(t.NamedTuple):
    """What one process had resident at most (MB), and what a tick in it asked, wrote and started."""

    peak: float
    read: int = 0
    listed: int = 0
    written: str = "-"
    processes: int = 0


def environment() -> dict[str, str]:
    """That of the timer's unit."""
    return {**os.environ, "TRIGGER_UNIT": "corral-reconcile.timer"}


def spent(command: list[str]) -> float:
    """The CPU seconds of a process, user and system, its start included. Raises RuntimeError when it fails."""
    pid = os.posix_spawn(command[0], command, environment())
    dummy, status, usage = os.wait4(pid, 0)
    if os.waitstatus_to_exitcode(status) != 0:
        raise RuntimeError(
            f"{' '.join(command)!r} ended with {os.waitstatus_to_exitcode(status)}: is the node in sync?"
        )
    return usage.ru_utime + usage.ru_stime


def progress(text: str) -> None:
    """A line for who waits; not part of the report."""
    print(f"==> {text}", file=sys.stderr, flush=True)


def output(python: str, options: t.Sequence[str], code: str) -> str:
    """What this code prints."""
    words = [python, *options, "-c", code]
    return subprocess.run(words, env=environment(), capture_output=True, text=True, check=True).stdout


def counted(python: str, tick: str) -> Seen:
    """One tick under an audit hook (PEP 578)."""
    peak, seen, written, processes = json.loads(output(python, OPTIONS, SEEN + tick + PEAK + TOLD))
    names = ", ".join(path.rpartition("/")[2] for path in written) or "-"
    return Seen(peak / 1024, seen["open"], seen["os.listdir"], names, processes)


def with_another_answer(kept: bytes) -> bytes:
    """What a tick kept, as if a file that it reads had other bytes by now (see host/recorded_inputs.py)."""
    known, files, (stamps, (below, (paths, read, lengths)), *others), texts = marshal.loads(
        zlib.decompress(bytes.fromhex(kept[8:].decode()))
    )
    facts = (stamps, (below, (paths, read + b"more", lengths)), *others)
    data = zlib.compress(marshal.dumps((known, files, facts, texts), 2), 1)
    return f"{zlib.crc32(data):08x}{data.hex()}".encode()


def measure(python: str, program: str, root: str, turns: int, command: list[str]) -> int:
    """Print the table. Exit code 1 when a tick did more than it may."""
    code = TICK.format(program=program, root=root)
    tick = command or [python, *OPTIONS, "-c", code + "raise SystemExit(code)"]
    kept, status = Path(root, KEPT), Path(root, STATUS)
    kept.unlink(missing_ok=True)
    spent(tick)
    time.sleep(2.5)  # A look of the same second as the one before is not kept, nor are times that are so young.
    spent(tick)
    inputs = kept.read_bytes() if kept.exists() else b""
    if not inputs:
        raise RuntimeError(f"the tick keeps nothing in {kept}: is the node in sync?")
    before: dict[str, t.Callable[[], object]] = {
        QUIET: lambda: kept.write_bytes(inputs),
        CHANGED: lambda: kept.write_bytes(with_another_answer(inputs)),
        FULL: kept.unlink,
    }
    taken: dict[str, list[float]] = {name: [] for name in (*dict(EMPTY), *before)}
    for turn in range(1, turns + 1):
        progress(f"turn {turn} of {turns}")
        for name, options in EMPTY:
            taken[name].append(spent([python, *options, "-c", "pass"]))
        for name, prepare in before.items():
            prepare()
            taken[name].append(spent(tick))
    seen = {name: Seen(int(output(python, options, PEAK + "print(peak)")) / 1024) for name, options in EMPTY}
    for name, prepare in before.items():
        prepare()
        time.sleep(1.1)
        seen[name] = counted(python, code)
    print("".join(f"| {' | '.join(row)} |\n" for row in rows(taken, seen)))
    print(
        f"{kept.name}: {len(inputs) / 1024:.0f} KiB, {status.name}: {status.stat().st_size / 1024:.1f} KiB.", flush=True
    )
    return checked(python, program, root)


def measure_node(python: str, turns: int) -> int:
    """The same on this node. Its own ticks rest meanwhile: one that finds another at work ends at once."""
    command = [python, *OPTIONS, LAUNCHER, "reconcile", "--tick"]
    # In this order, as in count_tick.py: a tick that no timer started starts the timer.
    subprocess.run(["systemctl", "start", "corral-reconcile.service"], check=True)
    subprocess.run(["systemctl", "stop", *RECONCILER], check=True)
    try:
        return measure(python, os.path.dirname(os.path.realpath(LAUNCHER)), "/", turns, command)
    finally:
        subprocess.run(["systemctl", "start", *RECONCILER], check=True)


def rows(taken: t.Mapping[str, t.Sequence[float]], seen: t.Mapping[str, Seen]) -> t.Iterator[list[str]]:
    """The rows of a Markdown table."""
    floors = [statistics.median(taken[name]) for name, dummy in EMPTY]
    yield list(HEAD)
    yield ["---", *("---:" for dummy in HEAD[1:])]
    for name, times in taken.items():
        middle, found = statistics.median(times), seen[name]
        spread = f"{middle * 1e3:.1f} ({min(times) * 1e3:.1f}–{max(times) * 1e3:.1f})"
        counts = [f"{found.peak:.1f}", str(found.read), str(found.listed), found.written, str(found.processes)]
        yield [name, spread, *(f"{middle / floor:.2f}" for floor in floors), *counts]


def checked(python: str, program: str, root: str) -> int:
    """Whether an audit hook sees a tick write no more than it may; the exit code. What it saw is printed if it was more."""
    if not COUNT.is_file():
        return 0
    words = [python, "-I", "-B", str(COUNT), program, root]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    if done.returncode:
        print(f"count_tick.py: {done.stdout}{done.stderr}", file=sys.stderr)
    return done.returncode


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--turns", type=int, default=20, help="how often each is run (default: 20)")
    parser.add_argument("--fake", action="store_true", help="on made-up nodes in folders")
    parser.add_argument(
        "--workloads", type=int, nargs="*", default=[0, 100, 500], help="how many on each (default: 0 100 500)"
    )
    parser.add_argument(
        "--devices", type=int, default=0, help="so many of the workloads have a device each (default: 0)"
    )
    parser.add_argument("--tenants", type=int, default=0, help="so many tenants have the workloads (default: 0)")
    parser.add_argument(
        "--kubelet", action="store_true", help="beside a kubelet as well, without and with the section kubelet"
    )
    parser.add_argument("--python", default="/usr/bin/python3", help="what runs the agent (default: %(default)s)")
    args = parser.parse_args()
    version = subprocess.run([args.python, "-V"], capture_output=True, text=True, check=True).stdout.strip()
    today = datetime.datetime.now(datetime.timezone.utc).date()
    load = "/".join(f"{value:.1f}" for value in os.getloadavg())
    print(
        f"`{' '.join(['python3', os.path.relpath(__file__), *sys.argv[1:]])}`, {today}, {os.cpu_count()} CPUs, ", end=""
    )
    print(f"Linux {platform.release()}, {version}, load average {load}, {args.turns} turns:\n")
    if not args.fake:
        return measure_node(args.python, args.turns)
    import tick_node

    worst = 0
    for workloads in args.workloads:
        devices, tenants = (min(number, workloads) for number in (args.devices, args.tenants))
        more = f", {devices} devices, {tenants} tenants" if devices or tenants else ""
        print(f"{workloads or 'No'} workloads{more}:\n", flush=True)
        progress("making a node")
        with tempfile.TemporaryDirectory(prefix="corral-") as folder:
            program, root = tick_node.make(Path(folder), args.python, workloads, devices, tenants)
            worst = max(worst, measure(args.python, program, root, args.turns, []))
        print()
    for what, section in KUBELETS.items() if args.kubelet else ():
        print(f"Beside a kubelet, {what}:\n", flush=True)
        progress("making a node")
        with tempfile.TemporaryDirectory(prefix="corral-") as folder:
            program, root = tick_node.make(Path(folder), args.python, 0, kubelet=section, beside=True)
            worst = max(worst, measure(args.python, program, root, args.turns, []))
        print()
    return worst


if __name__ == "__main__":
    raise SystemExit(main())
