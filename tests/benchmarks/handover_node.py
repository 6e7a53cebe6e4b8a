# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Runs on the lab's node after a rollout of examples/edge.yml: moves the isolated core there and back TURNS times.

The reconciler's own units are off meanwhile. A process of its own reads the CPUs in force of every slice all the time. On
stdout: JSON with the times in seconds, each hand-over from the first property that is set to the end of the last one.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
import typing as t

sys.path.insert(0, os.path.dirname(os.path.realpath("/usr/libexec/corral/corral")))
sys.dont_write_bytecode = True

ROOT = "/sys/fs/cgroup"
POOLS = ("corral.slice", "corral_isolated.slice")
SLICES = [f"{ROOT}/{name}" for name in ("system.slice", "user.slice", "init.scope", "machine.slice", *POOLS)]
PLACES = ("2-3", "6-7")
LIMIT = 300.0  # s
RECONCILER = ("corral-reconcile.timer", "corral-reconcile.path")
THREADS = "import threading, time\nfor n in range(15): threading.Thread(target=time.sleep, args=(3600,)).start()\ntime.sleep(3600)"


def effective(path: str) -> str:
    try:
        with open(f"{path}/cpuset.cpus.effective", encoding="ascii") as file:
            return file.read().strip()
    except OSError:
        return ""


def cpus(text: str) -> set[int]:
    found: set[int] = set()
    for part in text.split(",") if text else []:
        first, dash, last = part.partition("-")
        found.update(range(int(first), int(last if dash else first) + 1))
    return found


def watch(out: t.TextIO) -> None:
    """Until SIGTERM: how many samples there were, how many with an overlap, and the isolated sets that were seen."""
    going = [True]
    signal.signal(signal.SIGTERM, lambda number, frame: going.clear())
    samples = overlaps = 0
    isolated: set[str] = set()
    while going:
        # The isolated set is read on both sides: what was read in between is compared with what held all along.
        before = effective(SLICES[-1])
        seen = [effective(one) for one in SLICES]
        samples += 1
        isolated.add(before)
        steady = cpus(before) & cpus(seen[-1])
        overlaps += any(steady & cpus(text) for text in seen[:-1])
    json.dump({"samples": samples, "overlaps": overlaps, "isolated": sorted(isolated)}, out)
    out.flush()


def watched(work: t.Callable[[], None]) -> dict[str, t.Any]:
    """Do the work beside a watcher; what it saw."""
    name = f"/run/corral-watched-{os.getpid()}"
    watcher = os.fork()
    if watcher == 0:
        with open(name, "w", encoding="utf-8") as out:
            watch(out)
        os._exit(0)
    try:
        work()
    finally:
        os.kill(watcher, signal.SIGTERM)
        os.waitpid(watcher, 0)
    with open(name, encoding="utf-8") as file:
        measured = json.load(file)
    os.unlink(name)
    return t.cast("dict[str, t.Any]", measured)


def systemctl(*words: str) -> None:
    subprocess.run(["systemctl", *words], check=True, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)


def busy(pool: str) -> str:
    """Start a unit of 16 threads in a pool's slice; its name."""
    unit = f"bench-{pool.partition('.')[0]}.service"
    words = ["systemd-run", "--quiet", f"--unit={unit}", f"--slice={pool}", "python3", "-c", THREADS]
    subprocess.run(words, check=True, stdin=subprocess.DEVNULL)
    return unit


def main(turns: int) -> int:
    from _core.host import systemd
    from _core.host.files import Host
    from _core.host.lock import Lock
    from _core.model.profile import profile
    from _core.pipeline import applying, declared_profile

    declared = declared_profile.read_declared(Host())
    if declared is None or declared.cpu is None:
        raise SystemExit("no profile is declared here")
    data = profile.to_data(declared)
    floors: dict[str, list[float]] = {"systemctl": [], "bus": []}
    runs: list[dict[str, t.Any]] = []
    calls: list[tuple[float, float]] = []

    set_property = systemd.set_property

    def timed(host: t.Any, unit: str, assignment: str) -> t.Any:
        """Notes when each property was set."""
        begin = time.monotonic()
        answer = set_property(host, unit, assignment)
        calls.append((begin, time.monotonic()))
        return answer

    systemd.set_property = timed

    def move(place: str) -> None:
        same = f"AllowedCPUs={effective(SLICES[0])}"
        begin = time.monotonic()
        systemctl("set-property", "--runtime", "system.slice", same)
        floors["systemctl"].append(time.monotonic() - begin)
        host = Host()
        set_property(host, "system.slice", same)  # It opens the connection.
        begin = time.monotonic()
        set_property(host, "system.slice", same)
        floors["bus"].append(time.monotonic() - begin)
        calls.clear()
        begin = time.monotonic()
        outcome = applying.declare(host, profile.parse({**data, "cpu": {**data["cpu"], "isolated": {"cpus": place}}}))
        end = time.monotonic()
        if outcome.error or outcome.remaining:
            raise SystemExit(outcome.error or "drift is left after the hand-over")
        runs.append({"whole": end - begin, "window": calls[-1][1] - calls[0][0], "calls": len(calls)})

    def there_and_back() -> None:
        for dummy in range(turns):
            for place in PLACES:
                move(place)

    systemctl("stop", *RECONCILER)
    # A tick that began before would move CPUs as well.
    lock = Lock(Host())
    if not lock.take(LIMIT):
        raise SystemExit(f"a tick runs for {LIMIT:.0f} s")
    units = [busy(pool) for pool in POOLS]
    try:
        measured = watched(there_and_back)
    finally:
        systemctl("stop", *units)
        lock.release()
        systemctl("start", *RECONCILER)
    json.dump({"floors": floors, "runs": runs, **measured}, sys.stdout)
    return 1 if measured["overlaps"] or not set(PLACES) <= set(measured["isolated"]) else 0


if __name__ == "__main__":
    raise SystemExit(main(int(sys.argv[1])))
