# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Runs on a node without Corral: does the kernel give control groups the CPUs that kernel_cpusets.py says?

`compare_cpusets.py SEED...` does 60 random things from each seed to control groups of its own, at the top level and in
it: make, remove, ask for CPUs, become a partition or none, processes that come and go, CPUs off and on. After each it
compares every effective set, every partition's state, and the masks of the processes; and no control group or process
may have a CPU that the control group at the top level around it has not. `compare_cpusets.py random NUMBER` takes so
many random seeds, and prints them. Prints the operations that led to the first difference of each of three seeds, and
exits 1; else what was compared.
"""

from __future__ import annotations

import collections
import contextlib
import os
import random
import signal
import subprocess
import sys
import time
import typing as t

import kernel_cpusets as oracle
from cpu_list import cpus
from kernel_cpusets import ISOLATED, MEMBER, PARTITION, Machine
from on_node import PATIENCE

TOP = "/sys/fs/cgroup"
OURS = "compare"
PLAIN = "plain"  # a control group without a cpuset, in one of ours, as systemd's services are in slices
CPUS = range(8)
ALWAYS = 0  # online, and no partition's: the root must not be left without
DEPTH, WIDTH = 3, 4
# A process that sleeps on gets the mask of what its control group has at its next wake-up, if its CPUs are gone.
WAKES = "exec {held}<> <(:); while ! read -rt 0.1 -u $held; do :; done"
OPERATIONS = 60  # from each seed
# In that time on a quiet node the kernel gives back what a removed partition had, and a process has woken up.
SECONDS = 2.0


def path(name: str, file: str = "") -> str:
    return f"{TOP}/{name}/{file}".rstrip("/")


def read(name: str, file: str) -> str:
    with open(path(name, file), encoding="ascii") as held:
        return held.read().strip()


def write(name: str, file: str, text: str) -> bool:
    """Whether the kernel took it."""
    try:
        with open(path(name, file), "w", encoding="ascii") as held:
            held.write(text)
    except OSError:
        return False
    return True


def top(name: str) -> str:
    """The control group at the top level that another is in; it itself there."""
    return name.partition("/")[0]


def listed(members: t.Iterable[int]) -> str:
    return ",".join(map(str, sorted(members)))


class Comparison:
    """The control groups that were made, the processes in them, and what the oracle thinks of it all."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.tame = bool(seed % 2)  # no two want the same, and no partition loses a CPU: each set is as foretold
        self.machine = Machine({}, frozenset(CPUS), oracle.way_of(os.uname().release))
        self.processes: dict[str, subprocess.Popen[bytes]] = {}
        self.said: list[str] = []
        self.count: collections.Counter[str] = collections.Counter()  # of what was done
        self.compared: collections.Counter[str] = collections.Counter()  # at the last look, of control groups of ours

    # What is done

    def leaves(self) -> list[str]:
        return [name for name in self.machine.cgroups if not oracle.below(self.machine, name)]

    def some(self, name: str) -> frozenset[int]:
        """A few CPUs beside each other, so that control groups often want the same; where it is tame, none of siblings'."""
        first, size = self.random.randint(1, 7), self.random.choice((1, 1, 2, 2, 3, 5))
        found = frozenset(range(first, min(first + size, 8)))
        if self.tame and "/" not in name:
            others = [one.cpus for other, one in self.machine.cgroups.items() if other != name and "/" not in other]
            found = found.difference(*others) or self.machine.cgroups[name].cpus
        return found

    def operate(self) -> None:
        """One random operation, done by the kernel and by the oracle."""
        names = list(self.machine.cgroups)
        ways = {"make": 3, "remove": 1, "cpus": 6, "partition": 4, "enter": 2, "leave": 1, "cpu": 1}
        way = self.random.choices(list(ways), list(ways.values()))[0] if names else "make"
        getattr(self, way)(names)

    def make(self, names: list[str]) -> None:
        places = ["", *(name for name in names if name.count("/") + 1 < DEPTH and name not in self.processes)]
        around = self.random.choice(places)
        name = f"{around}/{OURS}-{self.random.randrange(WIDTH)}".strip("/")
        if name in self.machine.cgroups:
            return
        if around:
            write(around, "cgroup.subtree_control", "+cpuset")
        os.mkdir(path(name))
        self.machine = oracle.make(self.machine, name)
        self.tell("make", name, "", True)

    def remove(self, dummy: list[str]) -> None:
        empty = [name for name in self.leaves() if name not in self.processes]
        if empty:
            name = self.random.choice(empty)
            os.rmdir(path(name))
            self.machine = oracle.remove(self.machine, name)
            self.tell("remove", name, "", True)

    def cpus(self, names: list[str]) -> None:
        name = self.random.choice(names)
        # A partition that asks for nothing keeps its CPUs from every group on 6.1; this is not tried.
        nothing = self.machine.cgroups[name].partition == MEMBER and self.random.random() < 0.1
        asked = frozenset() if nothing else self.some(name)
        taken = write(name, "cpuset.cpus", listed(asked) or "\n")
        if taken:
            self.machine = oracle.set_cpus(self.machine, name, asked)
        self.tell("cpus", name, listed(asked), taken)

    def partition(self, names: list[str]) -> None:
        # At the top level alone, as Corral does: 6.1 has ended in an oops where CPUs of a partition in another one went.
        name = self.random.choice([name for name in names if "/" not in name])
        asked = self.random.choice((PARTITION, PARTITION, ISOLATED, MEMBER))
        if self.tame and not self.machine.cgroups[name].cpus & self.machine.online:
            return
        taken = write(name, "cpuset.cpus.partition", asked)
        if taken:
            self.machine = oracle.set_partition(self.machine, name, asked)
        self.tell("partition", name, asked, taken)

    def enter(self, dummy: list[str]) -> None:
        empty = [name for name in self.leaves() if name not in self.processes]
        if empty:
            name = self.random.choice(empty)
            process = subprocess.Popen(["bash", "-c", WAKES])
            place = f"{name}/{PLAIN}" if len(self.said) % 2 else name
            os.makedirs(path(place), exist_ok=True)
            taken = write(place, "cgroup.procs", str(process.pid))
            if taken:
                self.processes[name] = process
            else:
                end(process)
                remove(f"{name}/{PLAIN}")
            self.tell("enter", name, "", taken)

    def leave(self, dummy: list[str]) -> None:
        if self.processes:
            name = self.random.choice(list(self.processes))
            end(self.processes.pop(name))
            remove(f"{name}/{PLAIN}")
            self.tell("leave", name, "", True)

    def cpu(self, dummy: list[str]) -> None:
        offline = frozenset(CPUS) - self.machine.online
        number = min(offline) if offline else self.random.randint(1, 7)
        of_a_partition = any(number in one.cpus for one in self.machine.cgroups.values() if one.partition != MEMBER)
        if of_a_partition and self.tame:
            return
        online = self.machine.online ^ {number}
        taken = switch(number, number in online)
        if taken:
            self.machine = oracle.set_online(self.machine, online)
        self.tell("cpu", str(number), "online" if number in online else "offline", taken)

    def tell(self, what: str, name: str, value: str, taken: bool) -> None:
        self.said.append(f"{what} {name} {value}{'' if taken else ' (refused)'}")
        self.count[what if taken else f"{what} refused"] += 1

    # What is compared

    def differences(self) -> list[str]:
        """What the kernel has otherwise than the oracle thinks.

        Of partitions the oracle takes the kernel's word where it says invalid, as a look at a node does. Each set must lie
        within the oracle's bounds: where it is sure of all partitions, and of all CPUs, that is one set.
        """
        found = []
        self.compared.clear()
        shown = {name: read(name, "cpuset.cpus.partition").partition(" (")[0] for name in self.machine.cgroups}
        for name, one in self.machine.cgroups.items():
            valid = shown[name] in (PARTITION, ISOLATED)
            if shown[name].partition(" ")[0] != one.partition or (one.valid and not valid):
                found.append(f"/{name}: the kernel says {shown[name]!r}, the oracle {one}")
        if found:
            return found  # Looked at once more, it is judged by the same machine.
        self.machine = oracle.observed(
            self.machine, {name: text in (PARTITION, ISOLATED) for name, text in shown.items()}
        )
        self.compared["sure partitions"] += sum(bool(one.valid) for one in self.machine.cgroups.values())
        bounds = oracle.bounds(self.machine)
        held = {name: cpus(read(name, "cpuset.cpus.effective")) for name in ("", *self.machine.cgroups)}
        for name, has in held.items():
            least, most = bounds[name]
            if name:
                self.compared["sets" if least == most else "bounds"] += 1
            if not least <= has <= most:
                found.append(f"/{name}: the kernel has {listed(has)}, the oracle {listed(least)} to {listed(most)}")
            if name and not has <= held[top(name)]:
                found.append(f"/{name}: the kernel has {listed(has)}, but {listed(held[top(name)])} at the top level")
        for name, process in self.processes.items():
            mask = frozenset(os.sched_getaffinity(process.pid))
            self.compared["masks"] += 1
            most = bounds[name].most
            above = held[top(name)] or most  # A partition without a CPU has none to run on.
            if not mask <= most & above:
                said = f"the oracle says {listed(most)}, the top level {listed(above)}"
                found.append(f"/{name}: its process has {listed(mask)}, {said}")
        return found

    def end(self) -> None:
        """Nothing of it is left."""
        for number in frozenset(CPUS) - {ALWAYS}:
            switch(number, True)
        for process in self.processes.values():
            end(process)
        for name in sorted(self.machine.cgroups, key=lambda one: -one.count("/")):
            remove(f"{name}/{PLAIN}")
            remove(name)
        until = time.monotonic() + SECONDS  # What a removed partition had comes back in a moment, or not at all.
        while time.monotonic() < until and cpus(read("", "cpuset.cpus.effective")) != frozenset(CPUS):
            time.sleep(0.02)
        for number in sorted(frozenset(CPUS) - cpus(read("", "cpuset.cpus.effective"))):
            heal(number)


def switch(number: int, online: bool) -> bool:
    """Take a CPU offline, or back. 6.12 refuses one whose going would leave too little to deadline tasks."""
    try:
        with open(f"/sys/devices/system/cpu/cpu{number}/online", "w", encoding="ascii") as held:
            held.write(str(int(online)))
    except OSError:
        return False
    return True


def remove(name: str) -> None:
    """A control group goes, where it is there; a process that was killed leaves it in a moment."""
    while os.path.exists(path(name)):
        with contextlib.suppress(OSError):
            os.rmdir(path(name))


def heal(number: int) -> None:
    """A CPU that no control group has any more comes back once one has taken and returned it."""
    name = f"{OURS}-heal"
    os.mkdir(path(name))
    for file, text in (
        ("cpuset.cpus", str(number)),
        ("cpuset.cpus.partition", "root"),
        ("cpuset.cpus.partition", "member"),
    ):
        write(name, file, text)
    os.rmdir(path(name))


def end(process: subprocess.Popen[bytes]) -> None:
    process.send_signal(signal.SIGKILL)
    process.wait()


def compare(seed: int) -> tuple[list[str], collections.Counter[str]]:
    """Operations from a seed; the differences after the first of them that made any, and what was counted."""
    one = Comparison(seed)
    try:
        for dummy in range(OPERATIONS):
            one.operate()
            found = one.differences()
            until = time.monotonic() + SECONDS * PATIENCE
            while found and time.monotonic() < until:
                time.sleep(0.02)
                found = one.differences()
            if found:
                return [f"seed {seed}, after {len(one.said)} operations:", *one.said[-25:], *found], one.count
            one.count += one.compared
    finally:
        one.end()
    return [], one.count


def main(seeds: list[int]) -> int:
    write("", "cgroup.subtree_control", "+cpuset")
    total: collections.Counter[str] = collections.Counter()
    print("seeds:", *seeds, flush=True)
    wrong = 0
    for one in seeds:
        found, count = compare(one)
        total += count
        if found:
            wrong += 1
            if wrong <= 3:
                print("\n".join(found))
    done = sum(number for what, number in total.items() if what not in ("sets", "masks", "bounds", "sure partitions"))
    print(
        f"{os.uname().release}: {done} operations of {len(seeds)} seeds: {dict(total)}; {wrong} seeds with a difference"
    )
    # A run that compared little is no proof, nor is one whose oracle was sure of nothing.
    operations = OPERATIONS * len(seeds)
    enough = total["sets"] > operations // 2 and total["sure partitions"] > operations // 10
    if not enough:
        print("too little was compared for a verdict")
    return 0 if enough and not wrong else 1


if __name__ == "__main__":
    if sys.argv[1:2] == ["random"]:
        sys.exit(main([random.randrange(1 << 30) for dummy in range(int(sys.argv[2]))]))
    sys.exit(main([int(word) for word in sys.argv[1:]]))
