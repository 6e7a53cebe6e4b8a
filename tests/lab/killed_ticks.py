# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Runs on a node whose agent is in sync: kills the agent at POINTS places of a change, once for each place.

The profile goes forth and back between the declared one and another. Each time a tick of its own is killed right before one of
its acts (kill_at_act.py). Then the real service runs once, and the kernel must have what a whole tick gave it. Meanwhile
watch_overlap.py watches for overlaps, and no other tick may run (on_node.py).
"""

from __future__ import annotations

import glob
import json
import os
import signal
import subprocess
import sys
import typing as t

import kill_at_act
from cpu_list import cpus
from on_node import PATIENCE, STATUS, read

DECLARED = "/etc/corral/profile.json"
CGROUP = "/sys/fs/cgroup"
SERVICE = "corral-reconcile.service"


def one_tick(last: int) -> int:
    """A tick that is killed before its act number ``last``; 0 lets it live. Tells how many acts there were."""
    kill_at_act.import_program()
    from _core.host.files import Host
    from _core.main import tick

    acts = kill_at_act.watch(last)
    code = tick(Host())
    print(acts())
    return code


def tick(last: int) -> subprocess.CompletedProcess[str]:
    words = [sys.executable, "-E", "-s", os.path.abspath(__file__), "--tick", str(last)]
    return subprocess.run(words, capture_output=True, text=True, check=False, timeout=120 * PATIENCE)


def write(profile: dict[str, t.Any]) -> None:
    with open(DECLARED, "w", encoding="utf-8") as file:
        json.dump(profile, file, indent=2, sort_keys=True)
        file.write("\n")


def drift() -> tuple[int, str]:
    """What a look says that knows nothing of the last tick's."""
    done = subprocess.run(["corral", "drift"], capture_output=True, text=True, check=False, timeout=60 * PATIENCE)
    return done.returncode, done.stdout + done.stderr


def said_at() -> int:
    return os.stat(STATUS).st_mtime_ns


def differs(since: int) -> str:
    """What the tick after ``since`` found and did not mend, "" for nothing. It reads the whole node after it has changed it."""
    if said_at() == since:
        return "it said nothing"
    with open(STATUS, encoding="utf-8") as file:
        said = json.load(file)
    return "" if said["in_sync"] else json.dumps(said["items"])


def kernel() -> dict[str, str]:
    """What the kernel has of pools, limits, hugepages and mounts; of the pools that may lie elsewhere, how many CPUs.

    And the slices of which systemd has not read all files.
    """
    found = {path: read(path) for path in ("/proc/sys/kernel/pid_max", "/proc/sys/kernel/threads-max")}
    found.update({path: read(path) for path in glob.glob("/sys/devices/system/node/node*/hugepages/*/nr_hugepages")})
    with open("/proc/mounts", encoding="ascii") as file:
        found["mounts"] = "".join(sorted(line for line in file if " hugetlbfs " in line))
    units = [unit for unit in sorted(os.listdir(CGROUP)) if unit.endswith((".slice", ".scope"))]
    words = ["systemctl", "show", "--property=Id,NeedDaemonReload", "--", *units]
    shown = subprocess.run(words, capture_output=True, text=True, check=True, timeout=60 * PATIENCE).stdout
    found["not read"] = " ".join(one for one in shown.split("\n\n") if "NeedDaemonReload=yes" in one)
    for unit in units:
        names = ("cpuset.cpus.partition", "pids.max", "memory.max", "hugetlb.2MB.max")
        for path in (f"{CGROUP}/{unit}/{name}" for name in names):
            found[path] = read(path) if os.path.exists(path) else ""
        effective = read(f"{CGROUP}/{unit}/cpuset.cpus.effective")
        fixed = unit in ("system.slice", "user.slice", "init.scope", "corral_isolated.slice")
        found[f"CPUs of {unit}"] = effective if fixed else str(len(cpus(effective)))
    return found


def other(profile: dict[str, t.Any]) -> dict[str, t.Any]:
    """A profile that moves the isolated core, or a workload's, and changes pools, limits and the mount."""
    changed = json.loads(json.dumps(profile))
    if profile.get("workloads"):
        changed["cpu"]["isolated"] = {"cpus": "4-5"}
        for one in changed["workloads"]:
            for amounts in (one.get("requests", {}), one.get("limits", {})):
                amounts.update({"memory": "48Mi"} if "memory" in amounts else {})
        return t.cast("dict[str, t.Any]", changed)
    changed["cpu"]["isolated"] = {"cpus": "2-3"}
    changed["memory"]["hugepages"][0]["count"] = 16
    changed["memory"]["mounts"][0]["size"] = "32Mi"
    changed["pids"].update(pid_max=50000, reserved=4000)
    return changed


def main(points: int) -> int:
    with open(DECLARED, encoding="utf-8") as file:
        text = file.read()
    profiles = [json.loads(text), other(json.loads(text))]
    wrong, acts = [], []
    wanted = {}
    for way in (1, 0):
        write(profiles[way])
        since = said_at()
        done = tick(0)
        acts.append(int(done.stdout.split()[-1]))
        said = differs(since)
        wrong += [f"a whole tick: {done.stdout}{done.stderr}{said}"] if said else []
        wanted[way] = kernel()
    killed = 0
    for number in range(points):
        way = (number + 1) % 2
        # The acts of this way in even steps; the last ones are the tick's own status, and a tick that goes on from a
        # death has some less than a whole one.
        last = 1 + (2 * number + 1) * (acts[1 - way] * 9 // 10) // (2 * points)
        write(profiles[way])
        died = tick(last)
        killed += died.returncode == -signal.SIGKILL
        since = said_at()
        subprocess.run(["systemctl", "start", SERVICE], check=False, timeout=180 * PATIENCE)
        left = [
            f"{name}: {value}, wanted {wanted[way].get(name)}"
            for name, value in kernel().items()
            if value != wanted[way].get(name)
        ]
        said = differs(since) + "; ".join(left)
        if said:
            wrong.append(f"killed before act {last} of {acts[1 - way]}: after the next tick {said}")
    with open(DECLARED, "w", encoding="utf-8") as file:
        file.write(text)
    if points % 2:
        subprocess.run(["systemctl", "start", SERVICE], check=False, timeout=180 * PATIENCE)
    code, said = drift()
    wrong += [f"in the end: {said}"] if code else []
    wrong += [] if killed == points else [f"{killed} of {points} ticks were killed"]
    print(
        "\n".join(wrong) or f"{killed} ticks killed, of {acts} acts forth and back: the next tick converged each time"
    )
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(one_tick(int(sys.argv[2])) if sys.argv[1] == "--tick" else main(int(sys.argv[1])))
