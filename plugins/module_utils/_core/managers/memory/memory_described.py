# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# This module is private to the collection corral.node.
"""The hugepages and hugetlbfs mounts of a node as a profile declares them. A part of the memory manager."""

from __future__ import annotations

import typing as t

from ...host import mounts, state
from ...host.files import Host
from ...host.memory import hugepage_files
from ...model.profile.node_as_profile import ProfileFragment
from ...model.topology.topology import Topology
from ...model.values.mount_options import bytes_of, number
from ...model.values.sizes import mode_text, page_text, size_text


def describe(host: Host, topology: Topology) -> t.Sequence[ProfileFragment]:
    """The pools that are not empty, and the hugetlbfs mounts."""
    found = []
    for size, node, count in read_pools(host, topology):
        value = {"size": page_text(size), "count": count, **({} if node is None else {"node": node})}
        where = "" if node is None else f" of NUMA node {node}"
        name = f"hugepages of {page_text(size)}{where}"
        found.append(ProfileFragment(("memory", "hugepages"), value, name, item=True))
    for mount in read_mounts(host):
        value = mount_section(mount.path, mount.options)
        found.append(ProfileFragment(("memory", "mounts"), value, f"the mount {mount.path}", item=True))
    return found


def mount_section(path: str, options: t.Mapping[str, str]) -> dict[str, t.Any]:
    """A hugetlbfs mount as the profile declares it; ``options`` lack the defaults, which the kernel does not show."""
    page = bytes_of(options.get("pagesize")) or 0
    data: dict[str, t.Any] = {"path": path, "pagesize": size_text(page)}
    for name in ("size", "min_size"):
        size = bytes_of(options.get(name))
        if size:
            data[name] = size_text(size)
    mode = number(options.get("mode", "755"), 8)
    data["mode"] = mode_text(0o755 if mode is None else mode)
    for name in ("uid", "gid"):
        owner = number(options.get(name, "0"))
        if owner:
            data[name] = owner
    return data


def read_pools(host: Host, topology: Topology) -> t.Iterator[tuple[int, t.Optional[int], int]]:
    """Page size, NUMA node (None: the whole machine) and number of pages of each pool that is not empty.

    If NUMA nodes have pools, the result has these pools instead of the machine's pool. A pool that Corral has set is as
    the profile declared the pool: for the whole machine, or empty.
    """
    records = state.records(host)[0]
    set_by_us = {record.before.target for record in records if record.before.kind == "pool"}
    whole_sizes = topology.global_hugepages or {}
    for size, count in sorted(whole_sizes.items()):
        per_node: list[tuple[t.Optional[int], int]]
        per_node = [(node.id, node.hugepages[size]) for node in topology.numa.values() if size in node.hugepages]
        if not per_node or f"{hugepage_files.folder(size, None)}/nr_hugepages" in set_by_us:
            per_node = [(None, count)]
        for node, pages in per_node:
            if pages or f"{hugepage_files.folder(size, node)}/nr_hugepages" in set_by_us:
                yield size, node, pages


def read_mounts(host: Host) -> list[mounts.Mount]:
    """The visible hugetlbfs mounts, the topmost of each path. Sorted by path: units mount in any order at boot."""
    found = {mount.path: mount for mount in mounts.table(host.lines(mounts.TABLE, " - hugetlbfs "))}
    return [mount for dummy, mount in sorted(found.items()) if mounts.at(host, mount.path) == mount]
