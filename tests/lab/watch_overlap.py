# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Runs on a node beside a change of its pools: does any instant have an isolated CPU in two pools?

Samples the effective CPUs of every pool's slices until the file STOP appears or LIMIT seconds are over, then prints
"SAMPLES samples, OVERLAPS overlaps"; after the first sample it prints that it watches. Exits 1 after an overlap, when it has
not seen the isolated pool move, and when it has not read the CPUs of system.slice and of the shared pool.
"""

from __future__ import annotations

import os
import sys
import time

from cpu_list import cpus

V2 = os.path.exists("/sys/fs/cgroup/cgroup.controllers")
ROOT = "/sys/fs/cgroup" if V2 else "/sys/fs/cgroup/cpuset"
FILE = "cpuset.cpus.effective" if V2 else "cpuset.effective_cpus"
ISOLATED = f"{ROOT}/corral_isolated.slice"
OTHERS = [f"{ROOT}/{name}" for name in ("system.slice", "user.slice", "init.scope", "machine.slice", "corral.slice")]
# These are there with every profile that has an isolated pool; the others may not be.
MUST_BE_READ = (f"{ROOT}/system.slice", f"{ROOT}/corral.slice")
# An emulated node's CPUs are one core of the host: for each second that the watcher looks it leaves the others three.
LEAVE = 3


def effective(path: str) -> frozenset[int]:
    try:
        with open(f"{path}/{FILE}", encoding="ascii") as file:
            return cpus(file.read())
    except OSError:
        return frozenset()


def main(stop: str, limit: float = 7200.0) -> int:
    samples, overlaps, seen = 0, 0, set()
    read: set[str] = set()
    deadline = time.monotonic() + limit
    while not os.path.exists(stop) and time.monotonic() < deadline:
        began = time.monotonic()
        # The isolated set is read on both sides: a slice that was read in between is compared with what held all along.
        before = effective(ISOLATED)
        others = [effective(path) for path in OTHERS]
        steady = before & effective(ISOLATED)
        samples += 1
        if samples == 1:
            print("watching", flush=True)
        read.update(path for path, other in zip(OTHERS, others) if other)
        seen.add(tuple(sorted(before)))
        overlaps += any(steady & other for other in others)
        time.sleep(LEAVE * (time.monotonic() - began))
    print(f"{samples} samples, {overlaps} overlaps, isolated sets seen: {sorted(seen)}")
    if not read.issuperset(MUST_BE_READ):
        print(f"never read: {', '.join(sorted(set(MUST_BE_READ) - read))}")
        return 1
    if not os.path.exists(stop):
        print(f"the limit of {limit:.0f} s was over before {stop} appeared")
        return 1
    return 1 if overlaps or samples < 10 or len(seen) < 2 else 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1], *map(float, sys.argv[2:])))
