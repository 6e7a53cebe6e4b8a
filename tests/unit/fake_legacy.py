# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""systemd on cgroup v1, and the kernel's cpuset hierarchy, in a folder.

What it does was tried on Debian 12 with the legacy hierarchy: systemd never touches cpusets, what it starts begins where
PID 1 is, AllowedCPUs= answers 0 and does nothing; a parent under its child is EBUSY, a child over its parent EACCES, a
process in a directory without CPUs or memory nodes ENOSPC, a CPU that goes offline leaves every directory for good.
"""

from __future__ import annotations

import errno
import os
import shutil
import typing as t
from pathlib import Path

from fake_cpusets import Release, read_list, shown_list, within
from fake_systemd import CGROUP, Cgroup, Cpus, FakeSystemd

CPUSETS = f"{CGROUP}/cpuset"
ISOLATED = "corral_isolated.slice"
KERNEL_THREAD = 2


class Process(t.NamedTuple):
    """Where a process is: its unit's control group and its cpuset, both below their roots."""

    unit: str
    cpuset: str


class Directory(t.NamedTuple):
    cpus: Cpus
    mems: str


class LegacySystemd(FakeSystemd):
    """PID 1 and the kernel. How many processes a control group has is said as on v2 (``procs``)."""

    def __init__(
        self, root: Path, online: Cpus, *, reload_applies: bool = True, release: Release | None = None
    ) -> None:
        self.directories = {"": Directory(online, "0-1")}
        self.processes = {KERNEL_THREAD: Process("", "")}
        self.last_pid = KERNEL_THREAD
        self.ending: set[int] = set()  # processes that are on their way out
        super().__init__(root, online, reload_applies=reload_applies, release=release)

    # What is seen

    def mount_cgroups(self) -> None:
        self.write(f"{CGROUP}/systemd/cgroup.procs", str(KERNEL_THREAD))

    def show_groups(self) -> None:
        self.count()
        for path in self.folders - set(self.cgroups):
            self.folders.discard(path)
            for hierarchy in ("systemd", "pids"):
                self.forget(f"{CGROUP}/{hierarchy}/{path}")
        for path, group in self.cgroups.items():
            if path:
                self.folders.add(path)
                inside = [pid for pid, one in self.processes.items() if one.unit == path]
                self.show(f"{CGROUP}/systemd/{path}/cgroup.procs", lines(inside))
                self.show(f"{CGROUP}/systemd/{path}/tasks", lines(inside))
                self.show(f"{CGROUP}/pids/{path}/pids.max", group.pids)
        for path, directory in self.directories.items():
            folder = f"{CPUSETS}/{path}".rstrip("/")
            for name in ("cpuset.cpus", "cpuset.effective_cpus"):
                self.show(f"{folder}/{name}", shown_list(directory.cpus))
            for name in ("cpuset.mems", "cpuset.effective_mems"):
                self.show(f"{folder}/{name}", directory.mems)
            inside = [pid for pid, one in self.processes.items() if one.cpuset == path and pid not in self.ending]
            self.show(f"{folder}/cgroup.procs", lines(inside))
        for pid, process in self.processes.items():
            where = "" if pid in self.ending else process.cpuset  # proc_cgroup_show(): whoever ends shows the root
            self.show(f"proc/{pid}/cgroup", f"11:cpuset:/{where}\n9:cpu,cpuacct:/\n1:name=systemd:/{process.unit}")
            flags = 0x400104 if pid in self.ending else 0x400100
            self.show(f"proc/{pid}/stat", f"{pid} (a b) c) S 1 {pid} {pid} 0 -1 {flags} 0 0 0 0 0 0 0 0 20 0 1 0 5 0 0")

    def forget(self, folder: str) -> None:
        self.shown = {file: text for file, text in self.shown.items() if not file.startswith(f"{folder}/")}
        shutil.rmtree(self.root / folder, ignore_errors=True)

    def count(self) -> None:
        """Start and end processes until each control group has as many as it says."""
        for pid in [pid for pid, one in self.processes.items() if one.unit and one.unit not in self.cgroups]:
            self.end(pid)
        for path, group in self.cgroups.items():
            inside = [pid for pid, one in self.processes.items() if path and one.unit == path]
            for pid in inside[group.procs :]:
                self.end(pid)
            for dummy in range(group.procs - len(inside)):
                first = 1 not in self.processes and path == "init.scope"
                self.last_pid += not first
                self.processes[1 if first else self.last_pid] = Process(path, "" if first else self.of_pid_1())

    def of_pid_1(self) -> str:
        """The cpuset in which whatever systemd starts begins."""
        return self.processes[1].cpuset if 1 in self.processes else ""

    def end(self, pid: int) -> None:
        del self.processes[pid]
        for name in ("cgroup", "stat"):
            self.shown.pop(f"proc/{pid}/{name}", None)
        shutil.rmtree(self.root / f"proc/{pid}", ignore_errors=True)

    # systemd

    def occupy(self, unit: str, count: int = 1) -> None:
        self.cgroups[self.place(unit)].procs = count
        self.sync()

    def realise(self, name: str) -> None:
        self.cgroups[self.place(name)].pids = self.units[name].tasks
        self.sync()

    def effective(self, path: str) -> Cpus:
        """The CPUs on which the processes of a control group may run, else those that its directory has."""
        inside = [one for one in self.processes.values() if f"{one.unit}/".startswith(f"{path}/")]
        cpus = Cpus().union(*(self.directories[one.cpuset].cpus for one in inside))
        return cpus or self.directories.get(path, self.directories[""]).cpus

    def overlaps(self) -> frozenset[t.Any]:
        held = any(within(one.cpuset, ISOLATED) for one in self.processes.values())
        if ISOLATED not in self.directories or not (held or self.empty_too):
            return frozenset()
        own = self.directories[ISOLATED].cpus
        shared = [
            (f"process {pid} of {one.unit}", ISOLATED, cpu)
            for pid, one in self.processes.items()
            if one.unit and not within(one.unit, ISOLATED)
            for cpu in own & self.directories[one.cpuset].cpus
        ]
        others = [path for path in self.directories if path and not path.startswith(ISOLATED)]
        shared += [(path, ISOLATED, cpu) for path in others for cpu in own & self.directories[path].cpus]
        return frozenset(shared)

    def tamper(self, unit: str, cpus: str) -> None:
        self.write_cpuset(f"/{CPUSETS}/{self.place(unit)}/cpuset.cpus", cpus)

    # The kernel

    def made(self, path: str) -> None:
        """A directory was made."""
        if path.startswith(f"/{CPUSETS}/"):
            self.directories[path[len(CPUSETS) + 2 :]] = Directory(Cpus(), "")
            self.sync()

    def removed(self, path: str) -> None:
        """A directory is about to be removed."""
        name = path[len(CPUSETS) + 2 :]
        if not path.startswith(f"/{CPUSETS}/") or name not in self.directories:
            return
        if self.below(name) or any(one.cpuset == name for one in self.processes.values()):
            raise refused(errno.EBUSY, path)
        del self.directories[name]
        self.forget(path.lstrip("/"))
        os.mkdir(self.root / path.lstrip("/"))  # The caller removes that.
        self.sync()

    def below(self, name: str) -> list[str]:
        return [other for other in self.directories if other and other.rpartition("/")[0] == name and other != name]

    def write_cpuset(self, path: str, text: str) -> None:
        folder, dummy, file = path.rpartition("/")
        name = folder[len(CPUSETS) + 2 :]
        if file == "cgroup.procs":
            self.attach(int(text), name, path)
        elif file == "cpuset.mems":
            self.directories[name] = self.directories[name]._replace(mems=text)
        else:
            self.set_cpus(name, read_list(text), path)
        self.sync()

    def attach(self, pid: int, name: str, path: str) -> None:
        if pid not in self.processes:
            raise refused(errno.ESRCH, path)
        if pid == KERNEL_THREAD:
            raise refused(errno.EINVAL, path)
        if not self.directories[name].cpus or not self.directories[name].mems:
            raise refused(errno.ENOSPC, path)
        self.processes[pid] = self.processes[pid]._replace(cpuset=name)

    def set_cpus(self, name: str, cpus: Cpus, path: str) -> None:
        if not cpus <= self.online:
            raise refused(errno.EINVAL, path)
        if not cpus <= self.directories[name.rpartition("/")[0]].cpus:
            raise refused(errno.EACCES, path)
        if any(not self.directories[inner].cpus <= cpus for inner in self.below(name)):
            raise refused(errno.EBUSY, path)
        if not cpus and any(one.cpuset == name for one in self.processes.values()):
            raise refused(errno.ENOSPC, path)
        self.directories[name] = self.directories[name]._replace(cpus=cpus)

    def off_and_on(self, *cpus: int) -> None:
        """CPUs go offline and come back; processes of a directory that is left without any go to the one above."""
        for name, directory in self.directories.items():
            if name:
                self.directories[name] = directory._replace(cpus=directory.cpus - set(cpus))
        for pid, process in self.processes.items():
            where = process.cpuset
            while not self.directories[where].cpus:
                where = where.rpartition("/")[0]
            self.processes[pid] = process._replace(cpuset=where)
        self.sync()

    def container(self, unit: str, cpus: str = "") -> int:
        """What crun does: a scope, and a directory below its slice's with what that one has; returns the process."""
        path = f"{self.place(unit)}/libpod-{self.last_pid}.scope"
        self.cgroups[path] = Cgroup()
        self.cgroups[path].procs = 1
        self.count()
        for name in (self.place(unit), path, f"{path}/container"):
            if name not in self.directories:
                os.makedirs(self.root / CPUSETS / name, exist_ok=True)
                self.directories[name] = self.directories[name.rpartition("/")[0]]
        if cpus:
            self.set_cpus(f"{path}/container", read_list(cpus), path)
        pid = self.last_pid
        self.processes[pid] = self.processes[pid]._replace(cpuset=f"{path}/container")
        self.sync()
        return pid

    def cpus_of(self, pid: int) -> Cpus:
        return self.directories[self.processes[pid].cpuset].cpus


def lines(pids: t.Iterable[int]) -> str:
    return "\n".join(str(pid) for pid in sorted(pids))


def refused(number: int, path: str) -> OSError:
    return OSError(number, os.strerror(number), path)
