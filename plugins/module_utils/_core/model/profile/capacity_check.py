# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# This module is private to the collection corral.node.
"""Whether a profile fits a machine: its CPUs, its NUMA nodes, its page sizes, and the memory of each node.

Memory in hugepages cannot be used for anything else. The kernel accepts any number of hugepages, and makes fewer if memory runs out
(hugetlbpage.rst). So the pools of a node are checked against the node's MemTotal minus the memory that the profile reserves.
"""

from __future__ import annotations

import typing as t

from ..cpu import pools
from ..topology import numa_names
from ..topology.topology import Topology
from ..values.errors import CorralError, Problem
from ..values.sizes import about_text, page_text, size_text
from .profile import Profile
from .profile_memory import Hugepages, Mount

# Hugepages should leave a sixteenth of the memory to everything else; 4 GiB are always enough.
ENOUGH = 4 << 30
# Page size in KiB and NUMA node (None: the whole machine).
Pool = tuple[int, t.Optional[int]]


def check_node(profile: Profile, topology: Topology, before: t.Optional[t.Mapping[Pool, int]] = None) -> list[Problem]:
    """All problems of a profile on a machine, including problems of CPU pools; an empty list if the profile fits.

    ``before`` has the pages that each pool had before Corral: a pool that the profile no longer declares gets these pages again.
    """
    problems: list[Problem] = []
    try:
        pools.compute(profile, topology)
    except CorralError as exc:
        problems += exc.problems
    return problems + memory_problems(profile, topology, before)


def memory_problems(
    profile: Profile, topology: Topology, before: t.Optional[t.Mapping[Pool, int]] = None
) -> list[Problem]:
    """The problems of reserved memory, of pools of hugepages and of mounts."""
    return [
        *_check_reserved(profile, topology),
        *pool_problems(profile, topology),
        *_check_mounts(profile, topology, before or {}),
    ]


def pool_problems(profile: Profile, topology: Topology) -> list[Problem]:
    """The problems of hugepage pools: page sizes and NUMA nodes that the machine lacks; without such problems, a lack of memory."""
    return list(_check_pools(profile, topology)) or _check_budget(profile, topology)


def notes(profile: Profile, topology: Topology) -> tuple[str, ...]:
    """Notes on memory: what could not be checked, and what the user should know."""
    return tuple(_notes(profile, topology))


def _notes(profile: Profile, topology: Topology) -> t.Iterator[str]:
    declared = {pool.size_kib for pool in profile.memory.hugepages}
    for node in sorted({pool.node for pool in profile.memory.hugepages if pool.node is not None}):
        memory = node_memory(node, topology)
        if node not in topology.numa:
            continue
        if memory is None:
            yield f"the kernel does not report the memory of NUMA node {node}: its hugepage budget is not checked"
            continue
        counts = topology.numa[node].hugepages.items()
        others = {size: count for size, count in counts if count and size not in declared}
        taken = sum((size << 10) * count for size, count in others.items())
        if taken and _asked(profile, node) + taken > memory - _reserved(profile, node):
            listed = ", ".join(f"{count} of {page_text(size)}" for size, count in sorted(others.items()))
            yield f"NUMA node {node} holds hugepages that the profile does not declare ({listed}): with them its budget is exceeded"
    if any(pool.node is None for pool in profile.memory.hugepages) and machine_memory(topology) is None:
        yield "the kernel does not report the machine's memory: the hugepage budget is not checked"
    yield from _little_left(profile, topology)
    for mount in profile.memory.mounts:
        pool = _pool_bytes(profile, topology, mount.pagesize_kib, {})
        if mount.size is not None and pool is not None and mount.size > pool:
            page, most = page_text(mount.pagesize_kib), size_text(pool)
            yield f"{mount.path} may hold {size_text(mount.size)}, the pool of {page} pages has {most}"


def _little_left(profile: Profile, topology: Topology) -> t.Iterator[str]:
    """A note if hugepages leave little memory and the profile reserves no memory: about the machine, else about each such NUMA node."""
    if profile.memory.reserved:
        return
    asked = sum(map(_bytes, profile.memory.hugepages))
    places = [("this node", asked, machine_memory(topology))]
    if len(topology.numa) > 1:  # Processes take their memory from NUMA nodes with CPUs.
        with_cpus = [node for node, numa in sorted(topology.numa.items()) if numa.cpus]
        places += [(f"NUMA node {node}", _asked(profile, node), node_memory(node, topology)) for node in with_cpus]
    for where, taken, memory in places:
        if taken and memory is not None and 0 <= memory - taken < min(memory // 16, ENOUGH):
            yield (
                f"hugepages take {about_text(taken)} of {about_text(memory)} on {where}, and leave {about_text(memory - taken)} to all else: "
                "declare fewer, or memory.reserved_per_numa"
            )
            if where == "this node":
                return


def _check_reserved(profile: Profile, topology: Topology) -> t.Iterator[Problem]:
    for node, size in profile.memory.reserved:
        path, text = f"memory.reserved.{node}", size_text(size)
        memory = node_memory(node, topology)
        if node not in topology.numa and not (node == 0 and not topology.numa):
            yield Problem(path, text, _no_node(topology))
        elif memory == 0:
            yield Problem(path, text, f"NUMA node {node} has no memory: leave it out")
        elif memory is not None and size >= memory:
            yield Problem(path, text, f"NUMA node {node} has {about_text(memory)}: reserve less")


def _check_pools(profile: Profile, topology: Topology) -> t.Iterator[Problem]:
    """The problems of hugepage pools whose page size or NUMA node this machine does not have."""
    for index, pool in enumerate(profile.memory.hugepages):
        path = f"memory.hugepages[{index}]"
        if pool.node is None:
            lacking = _lacking(pool.size_kib, _sizes(topology), "this node")
        elif pool.node not in topology.numa:
            yield Problem(f"{path}.node", pool.node, _no_node(topology))
            continue
        else:
            node, where = topology.numa[pool.node], f"NUMA node {pool.node}"
            if node.memory_kib == 0:
                yield Problem(f"{path}.node", pool.node, f"{where} has no memory: name another")
                continue
            if not node.hugepages and pool.size_kib in _sizes(topology):
                yield Problem(f"{path}.node", pool.node, f"{where} shows no pools of its own: leave node out")
                continue
            lacking = _lacking(pool.size_kib, frozenset(node.hugepages), where)
        if lacking:
            yield Problem(f"{path}.size", page_text(pool.size_kib), lacking)


def _check_budget(profile: Profile, topology: Topology) -> list[Problem]:
    """Problems of hugepages that exceed the memory of a NUMA node; otherwise of hugepages that exceed the machine's memory."""
    declared = profile.memory.hugepages
    problems: list[Problem] = []
    for node in sorted({pool.node for pool in declared if pool.node is not None}):
        memory = node_memory(node, topology)
        if memory is not None:
            own = [(index, pool) for index, pool in enumerate(declared) if pool.node == node]
            problems += _over(own, memory, _reserved(profile, node), f"NUMA node {node}")
    memory = machine_memory(topology)
    if not problems and memory is not None:
        kept = sum(size for dummy, size in profile.memory.reserved)
        problems += _over(list(enumerate(declared)), memory, kept, "this node")
    return problems


def _over(declared: list[tuple[int, Hugepages]], memory: int, kept: int, where: str) -> t.Iterator[Problem]:
    asked = sum(_bytes(pool) for dummy, pool in declared)
    room = max(0, memory - kept)
    if asked <= room:
        return
    has = f"{where} has {about_text(memory)}" + (f", {about_text(kept)} of it reserved" if kept else "")
    if len(declared) == 1:
        index, pool = declared[0]
        most = room // (pool.size_kib << 10)
        yield Problem(
            f"memory.hugepages[{index}].count", pool.pages,
            f"that is {size_text(asked)}, {has}: declare at most {most} pages of {page_text(pool.size_kib)}",
        )  # fmt: skip
    else:
        yield Problem(
            "memory.hugepages", size_text(asked), f"in all; {has}: declare at most {about_text(room)} together"
        )


def _check_mounts(profile: Profile, topology: Topology, before: t.Mapping[Pool, int]) -> list[Problem]:
    problems: list[Problem] = []
    for index, mount in enumerate(profile.memory.mounts):
        lacking = _lacking(mount.pagesize_kib, _sizes(topology), "this node")
        if lacking:
            problems.append(Problem(f"memory.mounts[{index}].pagesize", page_text(mount.pagesize_kib), lacking))
    if not problems:
        problems += _check_set_aside(profile, topology, before)
    return problems


def _check_set_aside(profile: Profile, topology: Topology, before: t.Mapping[Pool, int]) -> t.Iterator[Problem]:
    """The problems of mounts whose min_size exceeds what earlier mounts leave of the pool: such a mount fails (ENOMEM)."""
    left: dict[int, int | None] = {}
    for index, mount in enumerate(profile.memory.mounts):
        pool = left.setdefault(mount.pagesize_kib, _pool_bytes(profile, topology, mount.pagesize_kib, before))
        if mount.min_size is None or pool is None:
            continue
        if mount.min_size > pool:
            yield Problem(f"memory.mounts[{index}].min_size", size_text(mount.min_size), _too_little(mount, pool))
        left[mount.pagesize_kib] = max(0, pool - mount.min_size)


def _too_little(mount: Mount, pool: int) -> str:
    page = page_text(mount.pagesize_kib)
    return f"the pool of {page} pages has {size_text(pool)} for it: ask for less, or declare more pages in memory.hugepages"


def _pool_bytes(profile: Profile, topology: Topology, size_kib: int, before: t.Mapping[Pool, int]) -> int | None:
    """The bytes of all pools of a page size under this profile; None without such pools.

    A pool that is not declared counts with the pages that it had ``before`` Corral; without an entry in ``before``, with its present pages.
    """
    declared = [pool for pool in profile.memory.hugepages if pool.size_kib == size_kib]
    if any(pool.node is None for pool in declared):
        return sum(_bytes(pool) for pool in declared)
    counts = {pool.node: pool.pages for pool in declared if pool.node is not None}
    if not counts and (size_kib, None) in before:
        return (before[size_kib, None] * size_kib) << 10
    there = {node.id: node.hugepages[size_kib] for node in topology.numa.values() if size_kib in node.hugepages}
    there = {node: before.get((size_kib, node), pages) for node, pages in there.items()}
    if not there and topology.global_hugepages and not counts:
        return (topology.global_hugepages.get(size_kib, 0) * size_kib) << 10
    return (sum({**there, **counts}.values()) * size_kib) << 10 if there or counts else None


def _bytes(pool: Hugepages) -> int:
    return (pool.pages * pool.size_kib) << 10


def _asked(profile: Profile, node: int) -> int:
    return sum(_bytes(pool) for pool in profile.memory.hugepages if pool.node == node)


def _reserved(profile: Profile, node: int) -> int:
    return sum(size for other, size in profile.memory.reserved if other == node)


def node_memory(node: int, topology: Topology) -> int | None:
    """Bytes of a NUMA node; None if the kernel does not report the node's memory. A machine without NUMA counts as node 0."""
    if not topology.numa and node == 0:
        return machine_memory(topology)
    kib = topology.numa[node].memory_kib if node in topology.numa else None
    return None if kib is None else kib << 10


def machine_memory(topology: Topology) -> int | None:
    """Bytes of the whole machine; None if the kernel does not report the machine's memory."""
    if topology.machine_memory_kib is not None:
        return topology.machine_memory_kib << 10
    sizes = [node.memory_kib for node in topology.numa.values()]
    known = [size for size in sizes if size is not None]
    return sum(known) << 10 if known and len(known) == len(sizes) else None


def _sizes(topology: Topology) -> frozenset[int]:
    """The page sizes in KiB that the kernel shows, for the machine or for a NUMA node."""
    return frozenset(topology.global_hugepages or ()).union(*(node.hugepages for node in topology.numa.values()))


def _lacking(size_kib: int, sizes: frozenset[int], where: str) -> str:
    """Why a page size is not available; an empty string for an available page size."""
    if size_kib in sizes:
        return ""
    if not sizes:
        return f"{where} shows no hugepages (no folder /sys/…/hugepages): leave them out"
    return f"{where} has pages of {' and '.join(page_text(size) for size in sorted(sizes))}: write one of these"


def _no_node(topology: Topology) -> str:
    if not topology.numa:
        return "this node shows no NUMA nodes: leave the node out"
    return numa_names.numa_nodes([node for node, numa in topology.numa.items() if numa.memory_kib != 0], "with memory")
