# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# This module is private to the collection corral.node.
"""The keys of the section ``memory``: reserved memory, hugepages and their mounts."""

from __future__ import annotations

from . import schema_quantities as quantities
from . import schema_types as types
from .schema_key import LIST, MAP, Key

KEYS: tuple[Key, ...] = (
    Key(
        "memory",
        None,
        "Memory that is kept for the system, hugepages and the places where they are mounted.",
        quiet=True,
    ),
    Key(
        "memory.policy",
        types.choice("none", "static"),
        "The kubelet's memory manager policy. With `static` the memory and the hugepages of a Guaranteed workload come "
        "from NUMA nodes that are chosen for it, and it is bound to them.",
        example="static",
        default="none",
        quiet=True,
    ),
    Key(
        "memory.reserved",
        quantities.MEMORY,
        "Memory of each NUMA node that hugepages must not take.",
        example='{"0": 1Gi, "1": 512Mi}',
        many=MAP,
        keys=types.NODE,
    ),
    Key(
        "memory.reserved_per_numa",
        quantities.MEMORY_OR_SHARE,
        "The same for each NUMA node that has CPUs and memory and is not in `memory.reserved`: a size, or a share of the NUMA node's "
        "memory.",
        example="10%",
    ),
    Key(
        "memory.hugepages",
        None,
        "Hugepage pools, made at run time. Together with `memory.reserved` they must fit into each node's memory; otherwise "
        "the profile is refused.",
        many=LIST,
    ),
    Key(
        "memory.hugepages[].size",
        quantities.PAGE_SIZE,
        "The size of a page. The node's kernel must have pages of this size.",
        example="2Mi",
        required=True,
        field="size_kib",
    ),
    Key(
        "memory.hugepages[].count",
        types.integer(0, 1 << 32),
        "The number of pages; 0 is an empty pool. Exactly one of `count` and `share`.",
        example="512",
        field="pages",
    ),
    Key(
        "memory.hugepages[].share",
        quantities.SHARE,
        "As many pages as this share of the memory has room for: of the NUMA node's memory, or of the machine's without a NUMA node.",
        example="25%",
    ),
    Key(
        "memory.hugepages[].node",
        types.NODES,
        "The NUMA node of the pool: its number, `first` or `last` for the first or last NUMA node that has CPUs and memory, or "
        "`each` for a pool on each of these that has no other pool of this size. On a machine without NUMA nodes a "
        "word means the whole machine. Without `node` and `near` the pool is the whole machine's and the kernel spreads the pages.",
        example="each",
        word="place",
    ),
    Key(
        "memory.hugepages[].near",
        types.NEAR,
        "Instead of `node`: the NUMA node of this device, a network interface or a PCI address.",
        example="ens1f0",
    ),
    Key(
        "memory.hugepages[].optional",
        types.BOOLEAN,
        "Whether a node that cannot have the pool (no pages of that size, no such NUMA node or device, too little memory) does "
        "without it. A note says so. When it is false the profile is refused there.",
        example="true",
        default=False,
        quiet=True,
    ),
    Key("memory.mounts", None, "hugetlbfs mounts, each a systemd mount unit.", many=LIST),
    Key("memory.mounts[].path", types.MOUNT_PATH, "Where it is mounted.", example="/dev/hugepages-2Mi", required=True),
    Key(
        "memory.mounts[].pagesize",
        quantities.PAGE_SIZE,
        "The size of its pages.",
        example="2Mi",
        required=True,
        field="pagesize_kib",
    ),
    Key(
        "memory.mounts[].optional",
        types.BOOLEAN,
        "Whether a node whose kernel has no pages of that size, or too few for `min_size`, does without the mount. A note says so. "
        "When it is false the profile is refused there.",
        example="true",
        default=False,
        quiet=True,
    ),
    Key(
        "memory.mounts[].size",
        quantities.SIZE,
        "The most that it may hold, a multiple of the page size. The kernel cannot change it on a live mount: a new size is a "
        "new mount.",
        example="512Mi",
    ),
    Key(
        "memory.mounts[].min_size",
        quantities.SIZE,
        "What is reserved for it in the pool when it is mounted, a multiple of the page size.",
        example="64Mi",
    ),
    Key(
        "memory.mounts[].mode",
        types.MODE,
        "Permission bits of its root directory, in quotes.",
        example='"0770"',
        default="0755",
    ),
    Key("memory.mounts[].uid", types.integer(0, (1 << 32) - 2), "The owner, as a number.", example="0"),
    Key("memory.mounts[].user", types.ACCOUNT, "The owner, by name. Root without `user` and `uid`.", example="qemu"),
    Key("memory.mounts[].gid", types.integer(0, (1 << 32) - 2), "The group, as a number.", example="64055"),
    Key(
        "memory.mounts[].group", types.ACCOUNT, "The group, by name. Root without `group` and `gid`.", example="hugetlb"
    ),
)
