# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Runs on the lab's node with the agent: how soon a tenant's process answers while another tenant's do their worst, TURNS times.

The process asks to be woken after 5 ms, and then adds up numbers for some milliseconds. It and the others are bound to one
CPU of the shared pool, so that it is the kernel's scheduler that says who runs there: an emulated machine has fewer real CPUs
than its own. By turns: ``alone``; ``beside`` a fork bomb whose processes never rest, and a memory hog that is killed at its
limit and starts again; ``inside``, the same bomb as part of the process' own service. And with two CPUs of its own:
``own`` and ``own_beside``. On stdout: JSON with lists of milliseconds, of each turn the median from the moment for which it
asked until the sum is there; ``…_99``, the 99th percentile; ``…_late``, the median until it is awake. ``bomb`` and
``bomb_inside`` are the processes of the bomb in each turn; ``killed``, how often a process of its tenant was killed or
refused, ``spared``, how often one of the other tenant was. The node keeps the profile.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import time
import typing as t

PROGRAM = os.path.dirname(os.path.realpath("/usr/libexec/corral/corral"))
sys.path.insert(0, PROGRAM)
sys.dont_write_bytecode = True

RECONCILER = ("corral-reconcile.timer", "corral-reconcile.path")
OUT, COUNT = "/run/corral-bench-answers", 150
LIMIT = 300.0  # s
SHARED = "/sys/fs/cgroup/corral.slice/cpuset.cpus.effective"
ACME, GLOBEX = (f"/sys/fs/cgroup/corral.slice/corral-{name}.slice" for name in ("acme", "globex"))
BOMB_TEXT = """
import os, time
def bomb():
    while True:
        try:
            if os.fork() == 0:
                while True:
                    pass
        except OSError:
            time.sleep(0.1)
"""
PROBE_TEXT = f"""
import json, os, sys, time
if sys.argv[1:] == ["inside"]:
    sys.path.insert(0, "/run")
    import corral_bench_bomb
    if os.fork() == 0:
        corral_bench_bomb.bomb()
    time.sleep(5)
late, answers = [], []
for dummy in range({COUNT}):
    wanted = time.monotonic() + 0.005
    time.sleep(0.005)
    late.append(1e3 * (time.monotonic() - wanted))
    sum(range(20000))
    answers.append(1e3 * (time.monotonic() - wanted))
with open("{OUT}.new", "w") as file:
    json.dump([late, answers], file)
os.rename("{OUT}.new", "{OUT}")
time.sleep(1e6)
"""
HOG_TEXT = "kept = [bytearray(1 << 20) for dummy in range(1000)]"
FILES = {"/run/corral_bench_bomb.py": BOMB_TEXT, "/run/corral_bench_probe.py": PROBE_TEXT}
SERVICE = "[Unit]\nStartLimitIntervalSec=0\n[Service]\nTimeoutStopSec=2\nExecStart=/usr/bin/python3 "
BOMB, HOG = "acme-bomb.service", "acme-hog.service"
PROBE, INSIDE, OWN = (f"globex-{name}.service" for name in ("probe", "inside", "own"))
UNITS = {
    BOMB: f"{SERVICE}-c 'import sys; sys.path.insert(0, \"/run\"); import corral_bench_bomb; corral_bench_bomb.bomb()'\n",
    HOG: f"{SERVICE}-c '{HOG_TEXT}'\nRestart=always\nRestartSec=100ms\n",
    PROBE: f"{SERVICE}/run/corral_bench_probe.py\n",
    INSIDE: f"{SERVICE}/run/corral_bench_probe.py inside\n",
    OWN: f"{SERVICE}/run/corral_bench_probe.py\n",
}
LIMITS = {
    BOMB: {"memory": "128Mi", "pids": 48},
    HOG: {"memory": "64Mi", "pids": 16},
    PROBE: {"memory": "64Mi", "pids": 16},
    INSIDE: {"memory": "128Mi", "pids": 48},
    OWN: {"cpu": 2, "memory": "64Mi", "pids": 16},
}
SECTIONS = {
    "cpu": {"reserved": {"cpus": "0-1"}, "policy": "static"},
    "tenants": [
        {"name": name, "members": {"units": [f"{name}-*.service"]},
         "quota": [{"name": "compute", "hard": {"limits.memory": "256Mi", "limits.pids": 128}}]}
        for name in ("acme", "globex")
    ],
    "workloads": [
        {"name": unit.partition(".")[0], "match": {"unit": unit}, "limits": limits} for unit, limits in LIMITS.items()
    ],
}  # fmt: skip


def systemctl(*words: str) -> None:
    subprocess.run(["systemctl", *words], check=True, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)


def events(slice_path: str) -> int:
    """How often a process was killed for its memory, or refused, in a tenant's slice."""
    found = 0
    for name, key in (("memory.events", "oom_kill"), ("pids.events", "max")):
        with open(f"{slice_path}/{name}", encoding="ascii") as file:
            found += {line.split()[0]: int(line.split()[1]) for line in file}[key]
    return found


def until(what: str, holds: t.Callable[[], bool]) -> None:
    deadline = time.monotonic() + LIMIT
    while not holds():
        if time.monotonic() > deadline:
            raise SystemExit(f"{LIMIT:.0f} s, and still not: {what}")
        time.sleep(0.05)


def processes(unit: str) -> int:
    place = subprocess.run(
        ["systemctl", "show", "-P", "ControlGroup", unit], check=True, capture_output=True, text=True
    )
    with open(f"/sys/fs/cgroup{place.stdout.strip()}/pids.current", encoding="ascii") as file:
        return int(file.read())


def main_pid(unit: str) -> int:
    return int(subprocess.run(["systemctl", "show", "-P", "MainPID", unit], check=True, capture_output=True).stdout)


def cpus_of(path: str) -> set[int]:
    """The CPUs of a file like 2,4-7."""
    with open(path, encoding="ascii") as file:
        ranges = [part.partition("-") for part in file.read().strip().split(",")]
    return {cpu for first, dummy, last in ranges for cpu in range(int(first), int(last or first) + 1)}


def measured(unit: str) -> tuple[list[float], list[float]]:
    """After how many milliseconds the process of a unit was awake each time, and had its sum."""
    if os.path.exists(OUT):
        os.unlink(OUT)
    systemctl("start", unit)
    until(f"{unit} is done", lambda: os.path.exists(OUT))
    with open(OUT, encoding="ascii") as file:
        late, answers = json.load(file)
    return late, answers


def main(turns: int) -> int:
    from _core.host.files import Host
    from _core.model.profile import profile
    from _core.pipeline import applying, declared_profile, locked_run

    host = Host()
    declared = declared_profile.read_declared(host)
    if declared is None:
        raise SystemExit("no profile is declared here")
    for path, text in FILES.items():
        host.write_file(path, text)
    systemctl("stop", *RECONCILER)
    found: dict[str, list[float]] = {"bomb": [], "killed": [], "spared": []}

    def add(name: str, unit: str) -> None:
        late, answers = measured(unit)
        found.setdefault(name, []).append(statistics.median(answers))
        found.setdefault(f"{name}_99", []).append(statistics.quantiles(answers, n=100)[98])
        found.setdefault(f"{name}_late", []).append(statistics.median(late))
        if unit == OWN and set(os.sched_getaffinity(main_pid(unit))) & cpus_of(SHARED):
            raise SystemExit(f"{unit} runs on CPUs of the shared pool")
        if name == "inside":
            found.setdefault("bomb_inside", []).append(processes(unit))
        systemctl("stop", unit)

    try:
        wanted = profile.parse({**profile.to_data(declared), **SECTIONS})
        # A tick may run that began before its timer was stopped.
        outcome = locked_run.locked(host, lambda: applying.declare(host, wanted), wait=LIMIT)
        if outcome.error or outcome.remaining:
            raise SystemExit(outcome.error or f"drift is left: {outcome.remaining}")
        cpu = max(cpus_of(SHARED))
        for unit, text in UNITS.items():
            bound = "" if unit == OWN else f"CPUAffinity={cpu}\n"
            host.write_file(f"/etc/systemd/system/{unit}", text + bound)
        systemctl("daemon-reload")
        for dummy in range(turns):
            add("alone", PROBE)
            add("own", OWN)
            systemctl("start", BOMB, HOG)
            until("the bomb has all its processes", lambda: processes(BOMB) == 48)
            killed = events(ACME)
            before = events(GLOBEX) if os.path.exists(GLOBEX) else 0
            add("beside", PROBE)
            add("own_beside", OWN)
            found["bomb"].append(processes(BOMB))
            found["killed"].append(events(ACME) - killed)
            found["spared"].append(events(GLOBEX) - before)
            systemctl("stop", BOMB, HOG)
            add("inside", INSIDE)
    finally:
        for unit in UNITS:
            if os.path.exists(f"/etc/systemd/system/{unit}"):
                systemctl("stop", unit)
                os.unlink(f"/etc/systemd/system/{unit}")
        systemctl("daemon-reload")
        systemctl("start", *RECONCILER)
    json.dump(found, sys.stdout)
    return 0


if __name__ == "__main__":
    raise SystemExit(main(int(sys.argv[1])))
