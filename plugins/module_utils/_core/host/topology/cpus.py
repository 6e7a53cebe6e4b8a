# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# This module is private to the collection corral.node.
"""The CPUs of a machine, and the cores, caches, dies and sockets that CPUs share.

Sources: Documentation/admin-guide/cputopology.rst, Documentation/ABI/stable/sysfs-devices-system-cpu. File names changed over the years
(core_siblings is package_cpus since 5.3), and lists came after masks. A recorded tree may have any of these files: the first file with a
value counts.
"""

from __future__ import annotations

import re
import typing as t

from ...model.topology.topology import Groups, ordered
from ...model.values import cpuset
from ...model.values.cpuset import CpuSet
from .. import kernel_text
from .sysfs_reader import Reader

CPU = "/sys/devices/system/cpu"

# Masks come first, since every kernel has masks. Among the masks, and among the lists, the newer name comes first.
CORE = ("core_cpus", "thread_siblings", "core_cpus_list", "thread_siblings_list")
PACKAGE = ("package_cpus", "core_siblings", "package_cpus_list", "core_siblings_list")
DIE = ("die_cpus", "die_cpus_list")
CLUSTER = ("cluster_cpus", "cluster_cpus_list")
BOOK = ("book_siblings", "book_siblings_list")
DRAWER = ("drawer_siblings", "drawer_siblings_list")
CACHE = ("shared_cpu_map", "shared_cpu_list")

# "No id": the kernel's -1, and -1 cut to 16 bits (ACPI tables without a PPTT, some hypervisors).
NO_ID = (-1, 65535)


class Cpus:
    """The CPUs of a host. ``online`` and ``offline`` (present, not online) are read at once, all other data on demand."""

    def __init__(self, reader: Reader) -> None:
        self._reader = reader
        self._cpuinfo: dict[int, dict[str, int]] | None = None
        folders = frozenset(kernel_text.numbered(reader.host.names(CPU), "cpu"))
        self._folders = frozenset(cpu for cpu in folders if cpu < kernel_text.CPU_LIMIT)
        self.online = self._online()
        present = reader.cpus(CPU, ("present",))
        self.offline = (self._folders if present is None else present) - self.online
        self._ids: dict[str, dict[int, int]] = {}

    def isolated(self) -> CpuSet | None:
        """The CPUs that the kernel keeps out of load balancing (isolcpus=); None before Linux 4.2."""
        return self._reader.cpus(CPU, ("isolated",))

    def cores(self) -> Groups:
        """The SMT siblings of each core."""
        shared = self._shared(CORE)
        alone = self.online.difference(shared)
        if alone:
            shared.update(self._by_ids(alone, ("physical_package_id", "physical id"), ("core_id", "core id")))
        return self._partition("core", shared)

    def sockets(self) -> tuple[dict[str, CpuSet], bool]:
        """The CPUs of each package by the package's id, and whether the ids are known."""
        shared = self._shared(PACKAGE)
        alone = self.online.difference(shared)
        if alone:
            known = self._by_ids(alone, ("physical_package_id", "physical id"))
            if len(known) < len(alone):
                self._reader.note(f"nothing reports the socket of CPUs {cpuset.format(alone - known.keys())}")
            rest = alone.difference(known)
            shared.update({**known, **dict.fromkeys(rest, rest)})
        groups = self._partition("socket", shared)
        ids = [self._socket_id(group) for group in groups]
        if None not in ids and len(set(ids)) == len(ids):
            return {str(socket): group for socket, group in zip(ids, groups)}, True
        return {f"?{index}": group for index, group in enumerate(groups)}, False

    def dies(self) -> Groups | None:
        """The CPUs of each die; None if the kernel does not report dies."""
        return self._level("die", DIE, "die_id")

    def clusters(self) -> Groups | None:
        """The CPUs of each cluster: shared L2 on x86, shared L3 tags on Arm; None if the kernel does not report clusters."""
        return self._level("cluster", CLUSTER, "cluster_id")

    def books(self) -> Groups | None:
        """The CPUs of each book (s390); None if the kernel does not report books."""
        return self._level("book", BOOK, "book_id")

    def drawers(self) -> Groups | None:
        """The CPUs of each drawer (s390); None if the kernel does not report drawers."""
        return self._level("drawer", DRAWER, "drawer_id")

    def l3(self) -> Groups:
        """The CPUs that share each level-3 cache; a cache whose mask is empty (Itanium) is left out."""
        groups: set[CpuSet] = set()
        for cpu in self._listed():
            cache = f"{CPU}/cpu{cpu}/cache"
            for name in kernel_text.numbered(self._reader.host.names(cache), "index").values():
                folder = f"{cache}/{name}"
                if self._reader.integer(f"{folder}/level") != 3:
                    continue
                if (self._reader.host.read(f"{folder}/type") or "").strip() == "Instruction":
                    continue
                groups.add(self._reader.cpus(folder, CACHE) or cpuset.EMPTY)
        return ordered(group & self.online for group in groups)

    def kinds(self) -> tuple[tuple[str, CpuSet], ...]:
        """The kinds of CPUs of a hybrid machine: Intel's PMU folders (cpu_core, cpu_atom…), else Arm's cpu_capacity."""
        kinds_found: dict[str, CpuSet] = {}
        for name in self._reader.host.names("/sys/devices"):
            if name.startswith("cpu_"):
                cpus = self._reader.cpus(f"/sys/devices/{name}", ("cpus",)) or cpuset.EMPTY
                kinds_found[name[len("cpu_") :]] = cpus & self.online
        if not kinds_found:
            for cpu in self._listed():
                capacity = self._reader.integer(f"{CPU}/cpu{cpu}/cpu_capacity")
                if capacity is None:
                    break
                name = f"capacity-{capacity}"
                kinds_found[name] = kinds_found.get(name, cpuset.EMPTY) | {cpu}
        kinds = sorted(((name, cpus) for name, cpus in kinds_found.items() if cpus), key=lambda kind: sorted(kind[1]))
        return tuple(kinds) if len(kinds) > 1 else ()

    # Presence

    def _online(self) -> CpuSet:
        online = self._reader.cpus(CPU, ("online",))
        if online:
            return online
        # Before 2.6.28 only the files of single CPUs show which CPUs are online; a CPU that cannot go offline has no such file.
        if self._folders:
            return frozenset(
                cpu for cpu in self._folders if self._reader.integer(f"{CPU}/cpu{cpu}/online") in (None, 1)
            )
        self._reader.note(f"{CPU} shows no CPU; read from /proc/cpuinfo")
        return frozenset(self._processors())

    def _listed(self) -> list[int]:
        """The online CPUs that have a folder."""
        return sorted(self.online & self._folders)

    def _processors(self) -> dict[int, dict[str, int]]:
        if self._cpuinfo is None:
            self._cpuinfo = processors(self._reader.host.read("/proc/cpuinfo") or "")
        return self._cpuinfo

    # Groups

    def _shared(self, names: tuple[str, ...]) -> dict[int, CpuSet]:
        """For each CPU, the CPUs in the first readable file of ``names`` in its topology folder; CPUs without such a file are left out."""
        shared: dict[int, CpuSet] = {}
        # The reader returns equal masks as one object with a cached hash: each distinct mask is cut to online CPUs only once.
        cut: dict[CpuSet, CpuSet] = {}
        for cpu in self._listed():
            folder = f"{CPU}/cpu{cpu}/topology"
            cpus = self._reader.cpus(folder, names)
            if cpus is None:
                continue
            if cpu not in cpus:
                self._reader.note(f"{folder}/{names[0]}: leaves out CPU {cpu} itself; added")
                cpus |= {cpu}
            if cpus not in cut:
                cut[cpus] = cpus & self.online
            shared[cpu] = cut[cpus]
        return shared

    def _partition(self, what: str, shared: t.Mapping[int, CpuSet]) -> Groups:
        """Disjoint groups of all online CPUs. Contradicting masks are merged: grouping too many CPUs is safe, separating siblings is not."""
        groups = ordered(shared.values())
        if sum(map(len, groups)) != len(frozenset().union(*groups)):
            self._reader.note(
                f"the {what} masks of CPUs contradict each other; overlapping ones are taken as one {what}"
            )
            groups = _merged(groups)
        return ordered([*groups, *(frozenset({cpu}) for cpu in self.online.difference(*groups))])

    def _level(self, what: str, names: tuple[str, ...], id_name: str) -> Groups | None:
        shared = self._shared(names)
        if not shared:
            return None
        ids = self._numbers(id_name)
        if ids and all(ids.get(cpu) in NO_ID for cpu in shared):
            return None
        return self._partition(what, shared)

    # Ids

    def _numbers(self, name: str) -> dict[int, int]:
        """The number in file ``name`` of each CPU's topology folder; CPUs without the file are left out."""
        if name not in self._ids:
            read = ((cpu, self._reader.integer(f"{CPU}/cpu{cpu}/topology/{name}")) for cpu in self._listed())
            self._ids[name] = {cpu: number for cpu, number in read if number is not None}
        return self._ids[name]

    def _by_ids(self, cpus: CpuSet, *keys: tuple[str, str]) -> dict[int, CpuSet]:
        """For each CPU with all ids, the CPUs with the same ids. Each of ``keys`` is a pair: a sysfs file, and a field of /proc/cpuinfo."""
        groups: dict[tuple[int, ...], set[int]] = {}
        for cpu in cpus:
            numbers = [self._id(cpu, *key) for key in keys]
            if None not in numbers:
                groups.setdefault(tuple(number for number in numbers if number is not None), set()).add(cpu)
        return {cpu: frozenset(group) for group in groups.values() for cpu in group}

    def _id(self, cpu: int, file: str, field: str) -> int | None:
        number = self._numbers(file).get(cpu)
        if number is None:
            number = self._processors().get(cpu, {}).get(field)
        return None if number is None or number < 0 or number in NO_ID else number

    def _socket_id(self, group: CpuSet) -> int | None:
        ids = {self._id(cpu, "physical_package_id", "physical id") for cpu in group} - {None}
        return ids.pop() if len(ids) == 1 else None


def _merged(groups: t.Iterable[CpuSet]) -> Groups:
    """The groups, with overlapping groups united."""
    merged: list[CpuSet] = []
    for group in groups:
        apart = [other for other in merged if other.isdisjoint(group)]
        merged = [*apart, group.union(*(other for other in merged if not other.isdisjoint(group)))]
    return ordered(merged)


# The first line of a CPU: x86 and most others ("processor : 3"), s390 ("processor 3: version = 00, …"), sparc64 ("CPU3: online").
_PROCESSOR = re.compile(
    r"processor\s*:\s*([0-9]{1,5})|processor ([0-9]{1,5}):.*|CPU([0-9]{1,5})\s*:\s*online", re.ASCII
)
_FIELD = re.compile(r"(physical id|core id)\s*:\s*([0-9]{1,9})", re.ASCII)


def processors(text: str) -> dict[int, dict[str, int]]:
    """The CPUs of /proc/cpuinfo, each with ``physical id`` and ``core id`` if the file has these fields."""
    rows: dict[int, dict[str, int]] = {}
    current: dict[str, int] = {}
    for line in text.splitlines():
        line = line.strip()
        processor = _PROCESSOR.fullmatch(line)
        if processor:
            current = rows.setdefault(int(next(filter(None, processor.groups()))), {})
            continue
        field = _FIELD.fullmatch(line)
        if field:
            current[field.group(1)] = int(field.group(2))
    return rows
