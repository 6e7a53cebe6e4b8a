# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Runs on a node whose power is cut while CPUs move between workloads (molecule/powercut, tools/cut_power.py).

``prepare`` makes the units, ``begin`` starts the workloads and the first hand-overs. The power goes; at each boot,
before anything of Corral's, ``boot`` reads Corral's files as the cut left them, then ``go_on`` expects that the next ticks
converge and nothing is lost, and hands CPUs over again until the next cut. ``watch`` looks for overlaps by the kernel's masks
all the time. What comes of it is said on the console, a file of the host's.
"""

from __future__ import annotations

import glob
import json
import os
import sys
import time
import typing as t
import zlib

import watch_exclusive
from on_node import SERVICE, expect, read, run, wait, write
from workloads import CGROUP, ETC, SPIN, SPIN_TEXT, grants, sets, threads

DECLARED = "/etc/corral/profile.json"
STATE = "/var/lib/corral"
KEPT = "/root/kept.json"
BOOTED = "/run/power-cuts-boot"
WATCHED = "/run/power-cuts-watched"
OVERLAPS = "/root/overlaps"
CONSOLE = "/dev/ttyS0"
ISOLATED = ("2-3", "4-5")  # in turn: the workloads there have to go
LATER_ASKS = ("later", "--unit", "later.service", "--limits", "memory=16Mi")
LATER = "/root/later"  # what was last asked of it
ADMITTED = {"admitted": True, "released": False}
OWN = {"a": "a.service", "b": "b.service", "batch:batch@1": "batch@1.service"}
SERVICES = {
    "a.service": "ExecStart=/usr/local/bin/spin a",
    "b.service": "ExecStart=/usr/local/bin/spin b",
    "c.service": "ExecStart=/usr/local/bin/spin c",
    "batch@.service": "ExecStart=/usr/local/bin/spin batch-%i",
    "extra.service": "ExecStart=/usr/local/bin/spin extra",
    "later.service": "ExecStart=/usr/local/bin/spin later",
}
# The first service of its boot: Corral's own comes after it.
READER = """[Unit]
DefaultDependencies=no
After=local-fs.target
Before=corral-boot.service
[Service]
Type=oneshot
ExecStart=/usr/bin/python3 /root/lab/power_cuts.py boot
[Install]
WantedBy=sysinit.target
"""
AFTERWARDS = """[Service]
ExecStart=/usr/bin/python3 /root/lab/power_cuts.py {what}
Slice=system.slice
[Install]
WantedBy=multi-user.target
"""


def prepare() -> None:
    """The units, before any profile."""
    write(SPIN, SPIN_TEXT)
    os.chmod(SPIN, 0o755)
    for unit, line in SERVICES.items():
        write(f"{ETC}/{unit}", f"[Service]\n{line}\n[Install]\nWantedBy=multi-user.target\n")
    write(f"{ETC}/power-cuts-boot.service", READER)
    for unit, what in (("power-cuts-watch", "watch"), ("power-cuts", "go_on")):
        write(f"{ETC}/{unit}.service", AFTERWARDS.format(what=what))
    run("systemctl", "daemon-reload")


def begin() -> None:
    """The workloads run, one more is admitted, and the node is in sync; what Corral remembers then is kept."""
    run("corral", "admit", "extra", "--unit", "extra.service", "--limits", "memory=32Mi")
    units = ["a", "b", "c", "batch@1", "extra"]
    run("systemctl", "enable", "--quiet", "power-cuts-boot", "power-cuts-watch", "power-cuts", *units)
    run("systemctl", "start", "power-cuts-watch", *units)
    converge()
    write(KEPT, json.dumps({"before": records(), "grants": sorted(grants())}))
    os.sync()
    run("systemctl", "start", "power-cuts")


# Hand-overs


def go_on() -> None:
    """After a cut look at what is there; then hand over until the next one."""
    run("systemctl", "is-system-running", "--wait", code=None)
    try:
        if os.path.exists(BOOTED):
            say(f"checked: {check()}")
        move()
    except Exception as error:
        say(f"FAILED: {' '.join(str(error).split())}")
        raise


def move() -> None:
    """Declare one profile, then the other, and run a tick each time; admit and release a workload in between."""
    number = 0
    while True:
        number += 1
        began = time.monotonic()
        say(f"hand-over {number} begins")
        isolated = declare()
        wait(f"the move to {isolated}", lambda isolated=isolated: moved(isolated))
        say(f"hand-over {number} ended in {time.monotonic() - began:.2f} s")
        words = ["release", "later"] if "later" in grants() else ["admit", *LATER_ASKS]
        say(f"{words[0]} {number} begins")
        write(LATER, words[0])  # On the disk before the command begins; the line below once it has ended.
        os.sync()
        run("corral", *words)
        write(LATER, {"admit": "admitted", "release": "released"}[words[0]])
        os.sync()
        say(f"{words[0]} {number} ended")


def moved(isolated: str) -> bool:
    """Whether the isolated core is there after a tick; one that began before the profile changed does not see it."""
    run("systemctl", "start", SERVICE, code=None)
    return run_list("corral_isolated.slice") == isolated


def declare() -> str:
    """Move the isolated core in the declared profile, which is replaced as a whole; where it is to be."""
    profile = json.loads(read(DECLARED))
    at = ISOLATED.index(profile["cpu"]["isolated"]["cpus"])
    profile["cpu"]["isolated"]["cpus"] = ISOLATED[1 - at]
    for workload in profile["workloads"]:
        for amounts in (workload["requests"], workload["limits"]):
            amounts.update({"memory": ("48Mi", "64Mi")[at]} if "memory" in amounts else {})
    with open(f"{DECLARED}.new", "w", encoding="utf-8") as file:
        json.dump(profile, file, indent=2, sort_keys=True)
        file.write("\n")
        file.flush()
        os.fsync(file.fileno())
    os.rename(f"{DECLARED}.new", DECLARED)
    return ISOLATED[1 - at]


def say(text: str) -> None:
    """Say something on the console."""
    with open(CONSOLE, "w", encoding="ascii") as console:
        console.write(f"power_cuts: {text}\n")


# After a cut


def boot() -> None:
    """Read Corral's files as they are before Corral runs, and write down what is wrong with them."""
    wrong = []
    files = [*glob.glob(f"{STATE}/**/*.json", recursive=True), *glob.glob("/etc/corral/*.json")]
    for path in files:
        try:
            held = json.loads(read(path))
        except ValueError:
            wrong.append(f"{path} is not JSON: {read(path)[:80]!r}")
            continue
        data = held.get("data") if isinstance(held, dict) and "checksum" in held else None
        if data is not None and held["checksum"] != f"{zlib.crc32(json.dumps(data, sort_keys=True).encode()):08x}":
            wrong.append(f"{path} has another checksum")
    for name in ("checkpoint.json", "admitted.json", "applied.json", "journal/before.json"):
        if not os.path.exists(f"{STATE}/{name}"):
            wrong.append(f"{STATE}/{name} is gone")
    units = glob.glob(f"{ETC}/**/*corral*", recursive=True)
    wrong += [f"{path} is empty" for path in units if os.path.isfile(path) and not os.path.getsize(path)]
    write(BOOTED, json.dumps({"files": len(files) + len(units), "wrong": wrong}))


def check() -> str:
    """The files were whole, the next ticks converge, and nothing is lost or shared; what was looked at."""
    seen = json.loads(read(BOOTED))
    expect("Corral's files before its first run", seen["wrong"], [])
    mended = run("journalctl", "--boot", "--quiet", "--output=cat", "--unit=corral-boot.service").count("changed ")
    converge()
    kept = json.loads(read(KEPT))
    now = records()
    lost = {key for key, value in kept["before"].items() if now.get(key) != value}
    expect("values of before that are lost or others", lost, set())
    expect("grants", sorted(set(grants()) - {"later"}), kept["grants"])
    admitted = read(LATER) if os.path.exists(LATER) else "released"
    known = admitted in ADMITTED  # Else the power went while it was asked for, or taken back: either is right.
    if known:
        expect("later is admitted", "later" in grants(), ADMITTED[admitted])
    profile = json.loads(read(DECLARED))
    expect("the isolated CPUs", run_list("corral_isolated.slice"), profile["cpu"]["isolated"]["cpus"])
    for workload, unit in OWN.items():
        grant = grants()[workload]
        group = f"corral_{workload.replace('@', chr(92) + 'x40')}.slice"
        wait(f"{unit} runs", lambda unit=unit: run("systemctl", "is-active", unit, code=None).strip() == "active")
        expect(f"{group}", read(f"{CGROUP}/{group}/cpuset.cpus.partition"), "root")
        expect(f"{group}'s CPUs", run_list(group), grant["cpus"])
        expect(f"{unit}'s threads", set(threads(unit)), {sets(f"{CGROUP}/{group}")})
    expect("overlaps", read(OVERLAPS) if os.path.exists(OVERLAPS) else "", "")
    watched = read(WATCHED) if os.path.exists(WATCHED) else "nothing yet"
    declared = profile["cpu"]["isolated"]["cpus"]
    later = f"later {admitted} {'as asked' if known else 'or not'}"
    return f"{seen['files']} files whole, {mended} changes at the boot, isolated {declared}, {later}, in sync, watched {watched}"


def run_list(group: str) -> str:
    return read(f"{CGROUP}/{group}/cpuset.cpus.effective")


def converge() -> None:
    """Two ticks at most: the second is for what is admitted while the boot goes on."""
    for _turn in range(2):
        run("systemctl", "start", SERVICE, code=None)
    run("corral", "drift")


def records() -> dict[str, t.Any]:
    """The before-values by what they are of."""
    rows = json.loads(read(f"{STATE}/journal/before.json"))["data"]
    # Those of a run end with it; which record has the folders that were made changes hands (undo.handed_down).
    kept = [{**row["before"], "made": []} for row in rows if "corral_batch:" not in row["before"]["target"]]
    return {f"{one['kind']} {one['target']} {one['name']}": one for one in kept}


def watch() -> None:
    """Look for overlaps until the node ends; each is on the disk at once, the count is in /run and on the console."""
    samples = masks = 0
    slices = watch_exclusive.Slices()
    while True:
        began = time.monotonic()
        found, count = watch_exclusive.look(slices, True)
        samples, masks = samples + 1, masks + count
        if found:
            with open(OVERLAPS, "a", encoding="utf-8") as file:
                file.write("\n".join(found) + "\n")
                file.flush()
                os.fsync(file.fileno())
        write(WATCHED, f"{samples} samples, {masks} masks")
        if samples % 5 == 0:
            say(f"watched {samples} samples, {masks} masks")
        time.sleep(watch_exclusive.LEAVE * (time.monotonic() - began))


if __name__ == "__main__":
    {"prepare": prepare, "begin": begin, "boot": boot, "go_on": go_on, "watch": watch}[sys.argv[1]]()
