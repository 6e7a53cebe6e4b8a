# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Runs on a node beside its workloads: does any process outside a workload ever have its exclusive CPUs in its mask?

Samples, until the file STOP appears or LIMIT seconds are over, the effective CPUs of the pools' slices and, each tenth
time (MASKS_EACH), the mask of every thread of the node. An exclusive slice counts while it has processes, with the CPUs that
it has before and after the others are read: while it is a partition, and when it is none but was one or asks for CPUs. Only
one that is found to ask for the very CPUs of corral.slice was given up: what it shared since it was a partition, it shared
on its way there. Prints "SAMPLES samples, THREADS masks, OVERLAPS overlaps"; exits 1 after an overlap, and when it has seen
no exclusive slice or none that changed.
"""

from __future__ import annotations

import contextlib
import os
import sys
import time

from cpu_list import cpus

ROOT = "/sys/fs/cgroup"
PROC = "/proc"
OTHERS = ["system.slice", "user.slice", "init.scope", "machine.slice", "corral.slice"]
MASKS_EACH = int(os.environ.get("MASKS_EACH", "10"))
# An emulated node's CPUs are one core of the host: for each second that the watcher looks it leaves the others seven.
LEAVE = 7


def read(path: str) -> str:
    try:
        with open(path, encoding="ascii", errors="replace") as file:
            return file.read()
    except OSError:
        return ""


Name = tuple[str, int]  # a slice, and its own directory's number: a slice of the same name later is another


class Slices:
    """The slices of workloads: which of them were partitions, and what those that are none now have shared since."""

    def __init__(self) -> None:
        self.partitions: set[Name] = set()
        self.pending: dict[Name, list[str]] = {}

    def exclusive(self) -> dict[Name, frozenset[int]]:
        """Those that have processes and were not given up, with the CPUs in force."""
        found = {}
        for name in (name for name in os.listdir(ROOT) if name.startswith("corral_") and name.endswith(".slice")):
            path = f"{ROOT}/{name}"
            with contextlib.suppress(FileNotFoundError):
                one = (name, os.stat(path).st_ino)
                asked = cpus(read(f"{path}/cpuset.cpus"))
                if read(f"{path}/cpuset.cpus.partition").strip() != "member":
                    self.partitions.add(one)
                elif asked == cpus(read(f"{ROOT}/corral.slice/cpuset.cpus")):
                    self.pending.pop(one, None)
                    self.partitions.discard(one)
                    continue
                elif not asked and one not in self.partitions:
                    continue  # It was never granted CPUs.
                if "populated 1" in read(f"{path}/cgroup.events"):
                    found[one] = cpus(read(f"{path}/cpuset.cpus.effective"))
        return found

    def judge(self, one: Name, overlaps: list[str]) -> list[str]:
        """Those of a slice's overlaps that are faults for sure; those of a slice that is no partition wait for what becomes of it."""
        if overlaps and read(f"{ROOT}/{one[0]}/cpuset.cpus.partition").strip() == "member":
            self.pending.setdefault(one, []).extend(overlaps)
            return []
        return overlaps

    def left(self) -> list[str]:
        """What is a fault in the end: nothing became of a slice that shared CPUs."""
        return [line for lines in self.pending.values() for line in lines]


def group_of(pid: str) -> str:
    """The control group of a process; its name may hold colons."""
    return read(f"{PROC}/{pid}/cgroup").strip().partition("::")[2]


def masks() -> list[tuple[str, str, frozenset[int]]]:
    """Each thread's process, control group and mask; kernel threads (in the root) cannot be placed."""
    found = []
    for pid in filter(str.isdecimal, os.listdir(PROC)):
        group = group_of(pid)
        if group in ("", "/"):
            continue
        try:
            threads = os.listdir(f"{PROC}/{pid}/task")
        except OSError:
            continue
        for thread in threads:
            line = next(
                (
                    line
                    for line in read(f"{PROC}/{pid}/task/{thread}/status").splitlines()
                    if line.startswith("Cpus_allowed_list:")
                ),
                "",
            )
            if line:
                found.append((pid, group, cpus(line.split()[1])))
    return found


def look(slices: Slices, with_masks: bool) -> tuple[list[str], int]:
    """The overlaps of one instant, and how many masks were read."""
    before = slices.exclusive()
    # No process runs in an empty slice, whatever CPUs it shows.
    populated = [other for other in OTHERS if "populated 1" in read(f"{ROOT}/{other}/cgroup.events")]
    others = {other: cpus(read(f"{ROOT}/{other}/cpuset.cpus.effective")) for other in populated}
    threads = masks() if with_masks else []
    after = slices.exclusive()
    steady = {name: held & after[name] for name, held in before.items() if name in after}
    found = []
    for one, held in steady.items():
        name = one[0]
        mine = [f"{name} and {other}: {sorted(held & theirs)}" for other, theirs in others.items() if held & theirs]
        mine += [
            f"{name} and {other[0]}: {sorted(held & own)}"
            for other, own in steady.items()
            if other != one and held & own
        ]
        for pid, group, mask in threads:
            inside = f"{group}/".startswith(f"/{name}/")
            # A thread is where its group was when that was read; who moved meanwhile is not counted.
            if not inside and mask & held and group_of(pid) == group:
                mine.append(f"{name} and process {pid} in {group}: {sorted(mask & held)}")
        found += slices.judge(one, mine)
    return found, len(threads)


def main(stop: str, limit: float = 7200.0) -> int:
    samples = read_masks = 0
    overlaps: list[str] = []
    seen = set()
    slices = Slices()
    deadline = time.monotonic() + limit
    while not os.path.exists(stop) and time.monotonic() < deadline:
        began = time.monotonic()
        found, count = look(slices, samples % MASKS_EACH == 0)
        samples += 1
        read_masks += count
        overlaps += found
        seen.add(tuple(sorted((one, tuple(sorted(held))) for one, held in slices.exclusive().items())))
        time.sleep(LEAVE * (time.monotonic() - began))
    slices.exclusive()
    overlaps += slices.left()
    print(
        f"{samples} samples, {read_masks} masks, {len(overlaps)} overlaps, {len(seen)} states of exclusive slices seen"
    )
    print("\n".join(overlaps[:20]))
    if not os.path.exists(stop):
        print(f"the limit of {limit:.0f} s was over before {stop} appeared")
        return 1
    return 1 if overlaps or samples < 10 or read_masks < 10 or len(seen) < 2 else 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1], *map(float, sys.argv[2:])))
