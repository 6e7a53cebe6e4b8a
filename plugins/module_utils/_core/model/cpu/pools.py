# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# This module is private to the collection corral.node.
"""The CPU pools of one node: a profile's pools compiled for this machine.

The reserved, isolated and shared pools are disjoint and together have all online CPUs; a declared pool is never empty. The same profile
gives the same pools on the same machine: of equal choices the choice with the lowest number is taken.
"""

from __future__ import annotations

import typing as t

from ..profile.profile import Cpu, Isolated, Profile
from ..topology.topology import Topology
from ..values import cpuset
from ..values.cpuset import CpuSet
from ..values.errors import CorralError, Problem
from ..values.records import NamedTuple
from . import allocation

POOLS = ("reserved", "shared", "isolated", "exclusive")

# A message names at most this number of split cores, interfaces or devices.
NAMED = 8


class Pools(NamedTuple):
    """The pools of a node; ``per_numa``: the pools by NUMA node. ``notes``: hints for the user, not errors."""

    online: CpuSet
    reserved: CpuSet
    shared: CpuSet
    isolated: CpuSet
    per_numa: dict[int, dict[str, CpuSet]]
    notes: tuple[str, ...]
    strict: bool
    exclusive: CpuSet = cpuset.EMPTY

    @property
    def allocatable(self) -> CpuSet:
        """The CPUs that workloads may use, shared or exclusively (kubelet: allocatable)."""
        return self.online - self.reserved - self.isolated


class _Findings(NamedTuple):
    """The problems and notes that compute() finds."""

    problems: list[Problem]
    notes: list[str]

    def refuse(self, path: str, value: object, message: str) -> CpuSet:
        self.problems.append(Problem(path, value, message))
        return cpuset.EMPTY


def compute(profile: Profile, topology: Topology) -> Pools:
    """The pools of this machine.

    Raises CorralError with all problems: CPUs that are not online, NUMA nodes or devices that do not exist, overlaps, an empty pool.
    """
    findings = _Findings([], [])
    cpu = profile.cpu
    if cpu is None:
        findings.notes.append("the profile has no cpu section: all CPUs are shared, and Corral leaves them alone")
        return _pools(topology, cpuset.EMPTY, cpuset.EMPTY, findings.notes, strict=True)
    if not topology.online:
        raise CorralError(Problem("cpu", None, "no CPU can be seen here: name a root that has sys/devices/system/cpu"))
    reserved = _reserved(cpu, topology, findings)
    isolated = _isolated(cpu, topology, reserved, findings)
    if not findings.problems and reserved | isolated == topology.online:
        _refuse_all_taken(cpu, topology, reserved, isolated, findings)
    if findings.problems:
        raise CorralError(*findings.problems)
    _note_oddities(topology, reserved, isolated, findings.notes)
    return _pools(topology, reserved, isolated, findings.notes, strict=cpu.strict)


def workload_cpus(pools: Pools) -> CpuSet:
    """The CPUs of workloads on the shared pool. As in the kubelet, reserved CPUs are included unless strict-cpu-reservation is on."""
    return pools.shared if pools.strict else pools.shared | pools.reserved


def with_exclusive(pools: Pools, exclusive: CpuSet) -> Pools:
    """The pools after the CPUs ``exclusive`` moved from the shared pool to the exclusive pool."""
    if not exclusive:
        return pools
    per_numa = {}
    for node, by in pools.per_numa.items():
        own = by["shared"] & exclusive
        per_numa[node] = {**by, "shared": by["shared"] - own, "exclusive": own}
    return pools._replace(shared=pools.shared - exclusive, exclusive=exclusive, per_numa=per_numa)


def within(pools: Pools, topology: Topology, reserve: CpuSet) -> Pools:
    """The pools on a node whose kubelet reserves the CPUs ``reserve``. Pods may have any other CPU: no other CPU is reserved or isolated.

    If the kubelet reserves no CPU or all CPUs, the pools stay as they are.
    """
    reserve &= pools.online
    if not reserve or reserve == pools.online:
        return pools
    isolated = pools.isolated & reserve
    reserved = pools.reserved & reserve or reserve - isolated or reserve
    return _pools(topology, reserved, isolated - reserved, [*pools.notes], strict=pools.strict)


def shown(pools: Pools) -> tuple[str, ...]:
    """The names of the pools to display; "exclusive" only if a workload has exclusive CPUs."""
    return POOLS if pools.exclusive else POOLS[:-1]


def _pools(topology: Topology, reserved: CpuSet, isolated: CpuSet, notes: list[str], *, strict: bool) -> Pools:
    sets = {
        "reserved": reserved,
        "shared": topology.online - reserved - isolated,
        "isolated": isolated,
        "exclusive": cpuset.EMPTY,
    }
    per_numa = {
        node: {name: cpus & own for name, cpus in sets.items()} for node, own in sorted(topology.node_cpus().items())
    }
    return Pools(topology.online, reserved, sets["shared"], isolated, per_numa, tuple(notes), strict)


def _cores(topology: Topology) -> list[CpuSet]:
    """The cores, without offline CPUs. A CPU counts as a core by itself if the kernel does not report the CPU's core."""
    known = [core & topology.online for core in topology.cores]
    alone = topology.online.difference(*known)
    return sorted([*(core for core in known if core), *(frozenset({cpu}) for cpu in alone)], key=min)


def _literal(path: str, cpus: CpuSet, hint: str, cpu: Cpu, topology: Topology, findings: _Findings) -> CpuSet:
    """The CPUs that the profile names. CPUs that are not online are refused, and split cores if the profile requires whole cores."""
    text = cpuset.format(cpus)
    if not cpus <= topology.online:
        offline = cpus & topology.offline_present
        also = (
            f" (and {cpuset.format(offline)}, which {'is' if len(offline) == 1 else 'are'} offline)" if offline else ""
        )
        return findings.refuse(path, text, f"this node has CPUs {cpuset.format(topology.online)}{also}; {hint}")
    siblings = topology.siblings_of(cpus) - cpus
    if cpu.whole_cores and siblings:
        whole = cpuset.format(cpus | siblings)
        findings.refuse(
            path,
            text,
            f"splits cores, {cpuset.format(siblings)} are siblings: write {whole}, or set cpu.whole_cores to false",
        )
    return cpus


def _reserved(cpu: Cpu, topology: Topology, findings: _Findings) -> CpuSet:
    intent = cpu.reserved
    if intent.cpus is not None:
        return _literal(
            "cpu.reserved.cpus", intent.cpus, "name CPUs among those, or use cores_per_numa", cpu, topology, findings
        )
    if intent.number is not None:
        return _reserved_number(intent.number, cpu, topology, findings)
    return _reserved_cores(intent.cores_per_numa or 0, topology, findings)


def _reserved_number(number: int, cpu: Cpu, topology: Topology, findings: _Findings) -> CpuSet:
    """The reserved CPUs for a declared number of CPUs: packed like the kubelet's choice, out of all online CPUs."""
    path, total = "cpu.reserved.count", len(topology.online)
    if number >= total:
        return findings.refuse(path, number, _too_many(total))
    chosen = allocation.take_packed(allocation.of(topology), topology.online, number)
    if not cpu.whole_cores:
        return chosen
    whole = topology.siblings_of(chosen)
    if len(whole) >= total:
        most = total - max(len(core) for core in _cores(topology))
        hint = f"reserve at most {most}" if most else "it has one core: set cpu.whole_cores to false"
        return findings.refuse(path, number, f"in whole cores that is all CPUs of this node: {hint}")
    if whole != chosen:
        findings.notes.append(f"cpu.reserved.count: {number} is {len(whole)} CPUs in whole cores")
    return whole


def _too_many(total: int) -> str:
    if total == 1:
        return "this node has a single CPU: it cannot be divided; leave the cpu section out"
    return f"this node has {total} CPUs: reserve at most {total - 1}, so that one is left to share"


def _reserved_cores(number: int, topology: Topology, findings: _Findings) -> CpuSet:
    path = "cpu.reserved.cores_per_numa"
    kernel = topology.isolated or cpuset.EMPTY
    reserved: set[int] = set()
    for node, own in sorted(_by_node(topology, _cores(topology)).items()):
        # A NUMA node without CPUs (only with memory: CXL, HBM) needs no reserved CPUs.
        if own and len(own) < number:
            findings.refuse(
                path, number, f"NUMA node {node} has {_cores_text(len(own))}: reserve at most that many, or name cpus"
            )
        own.sort(key=lambda core: (not core.isdisjoint(kernel), min(core)))
        reserved.update(*own[:number])
    return frozenset(reserved)


def _cores_text(number: int) -> str:
    return f"{number} core{'' if number == 1 else 's'}"


def _isolated(cpu: Cpu, topology: Topology, reserved: CpuSet, findings: _Findings) -> CpuSet:
    intent = cpu.isolated
    if intent is None:
        return cpuset.EMPTY
    if intent.cpus is not None:
        isolated = _literal(
            "cpu.isolated.cpus", intent.cpus, "name CPUs among those, or use cores", cpu, topology, findings
        )
        both = isolated & reserved
        if both:
            text = cpuset.format(both)
            findings.refuse(
                "cpu.isolated.cpus",
                cpuset.format(isolated),
                f"CPUs {text} are reserved on this node: name others, or use cores",
            )
        return isolated
    by_node = _free_cores(topology, reserved)
    node = _place(intent, topology, by_node, findings)
    if node is None:
        return cpuset.EMPTY
    if node >= 0:
        by_node = {node: by_node.get(node, [])}
    wanted, free = intent.cores or 0, sum(map(len, by_node.values()))
    if wanted > free:
        where = f"NUMA node {node}" if node >= 0 else "this node"
        after = " after those with reserved CPUs" if reserved else ""
        takes_all = topology.online - reserved == frozenset().union(
            *(core for cores in by_node.values() for core in cores)
        )
        most = free - 1 if takes_all else free
        hint = f"isolate at most {most}" if most > 0 else "leave cpu.isolated out, or reserve less"
        hint += ", so that one is left to share" if most > 0 and takes_all else ""
        hint += ", or take them from another NUMA node" if node >= 0 and len(topology.node_cpus()) > 1 else ""
        return findings.refuse("cpu.isolated.cores", wanted, f"{where} has {_cores_text(free)} left{after}: {hint}")
    return frozenset().union(*_choose(by_node, wanted, topology.isolated or cpuset.EMPTY))


def _free_cores(topology: Topology, reserved: CpuSet) -> dict[int, list[CpuSet]]:
    """The cores without a reserved CPU, of each NUMA node that has CPUs."""
    return _by_node(topology, [core for core in _cores(topology) if core.isdisjoint(reserved)])


def _by_node(topology: Topology, cores: t.Iterable[CpuSet]) -> dict[int, list[CpuSet]]:
    """The cores of each NUMA node that has CPUs; a core is on the node of its lowest CPU."""
    nodes = {node: cpus for node, cpus in topology.node_cpus().items() if cpus}
    node_of = {cpu: node for node, cpus in nodes.items() for cpu in cpus}
    cores_of: dict[int, list[CpuSet]] = {node: [] for node in nodes}
    for core in cores:
        cores_of[node_of[min(core)]].append(core)
    return cores_of


def _place(intent: Isolated, topology: Topology, by_node: dict[int, list[CpuSet]], findings: _Findings) -> int | None:
    """The NUMA node of the isolated cores, -1 for any node; None if the declared place was refused."""
    if intent.near is not None:
        from ..topology import numa_names  # most profiles do not need this module

        try:
            return numa_names.node_near(intent.near, topology)
        except ValueError as exc:
            findings.refuse("cpu.isolated.near", intent.near, str(exc))
            return None
    if intent.numa is None:
        return -1
    if intent.numa not in by_node:
        from ..topology import numa_names

        findings.refuse("cpu.isolated.numa", intent.numa, numa_names.no_such_node(intent.numa, topology))
        return None
    return intent.numa


def _choose(by_node: dict[int, list[CpuSet]], wanted: int, kernel: CpuSet) -> list[CpuSet]:
    """``wanted`` cores on as few NUMA nodes as possible: first the cores that the kernel isolates already, then by number."""

    def order(core: CpuSet) -> tuple[bool, int]:
        return not core <= kernel, min(core)

    def ready(node: int) -> int:
        return min(wanted, sum(core <= kernel for core in by_node[node]))

    holding = [node for node, cores in by_node.items() if len(cores) >= wanted]
    if holding:
        nodes = [min(holding, key=lambda node: (-ready(node), node))]
    else:
        nodes = sorted(by_node, key=lambda node: (-len(by_node[node]), node))
    return [core for node in nodes for core in sorted(by_node[node], key=order)][:wanted]


def _refuse_all_taken(cpu: Cpu, topology: Topology, reserved: CpuSet, isolated: CpuSet, findings: _Findings) -> None:
    online = cpuset.format(topology.online)
    if isolated:
        taken = f"reserved ({cpuset.format(reserved)}) and isolated ({cpuset.format(isolated)}) take all CPUs of this node ({online})"
        findings.refuse("cpu", None, f"{taken}, none is left to share: reserve or isolate fewer")
        return
    intent = cpu.reserved
    path, value = "cpu.reserved.cores_per_numa", t.cast(object, intent.cores_per_numa)
    if intent.cpus is not None:
        path, value = "cpu.reserved.cpus", cpuset.format(intent.cpus)
    elif intent.number is not None:
        path, value = "cpu.reserved.count", intent.number
    if len(topology.online) == 1:
        findings.refuse(path, value, _too_many(1))
    else:
        findings.refuse(
            path,
            value,
            f"takes all CPUs of this node ({online}), none is left to share: reserve fewer, by cpus or count",
        )


def _note_oddities(topology: Topology, reserved: CpuSet, isolated: CpuSet, notes: list[str]) -> None:
    shared = topology.online - reserved - isolated
    kernel = topology.isolated or cpuset.EMPTY
    for name, pool in (("reserved", reserved), ("shared", shared)):
        if pool & kernel:
            notes.append(
                f"the kernel isolates CPUs {cpuset.format(pool & kernel)} (isolcpus), which are {name}: it does not balance "
                "load onto them; they belong in cpu.isolated"
            )
    split = [
        core for core in _cores(topology) if sum(not core.isdisjoint(pool) for pool in (reserved, shared, isolated)) > 1
    ]
    if split:
        named = "; ".join(cpuset.format(core) for core in split[:NAMED]) + ("; …" if len(split) > NAMED else "")
        notes.append(
            f"{_cores_text(len(split))} in two pools at once, siblings disturb each other: {named} (cpu.whole_cores: true has "
            "this checked)"
        )
    if topology.offline_present:
        notes.append(f"offline CPUs are in no pool: {cpuset.format(topology.offline_present)}")
