# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# This module is private to the collection corral.node.
"""The keys of the section ``topology``: the topology manager."""

from __future__ import annotations

from ..numa.topology_manager import CAPACITY, CONTAINER, FREE, NONE, POD, POLICIES
from . import schema_types as types
from .schema_key import Key

KEYS: tuple[Key, ...] = (
    Key(
        "topology",
        None,
        "The topology manager: whether CPUs, memory and hugepages of a workload must be near each other.",
    ),
    Key(
        "topology.policy",
        types.choice(*POLICIES),
        "The kubelet's topology manager policy: `best-effort` prefers the fewest NUMA nodes, `restricted` refuses a "
        "workload that does not get them, `single-numa-node` one that does not fit on one node.",
        example="single-numa-node",
        default=NONE,
        field="name",
    ),
    Key(
        "topology.scope",
        types.choice(CONTAINER, POD),
        "Whether each container of a pod is placed by itself, or all of them on the same nodes.",
        example="pod",
        default=CONTAINER,
    ),
    Key(
        "topology.preferred_by",
        types.choice(CAPACITY, FREE),
        "What the fewest nodes are counted by: what nodes have (the kubelet's rule: a half-full machine refuses what "
        "would fit), or what is free on them.",
        example="free",
        default=CAPACITY,
    ),
    Key("topology.options", None, "The options of the topology manager, by the kubelet's names."),
    Key(
        "topology.options.prefer-closest-numa-nodes",
        types.BOOLEAN,
        "Of equally few nodes those with the smallest distances are taken.",
        example="true",
        default=False,
        field="prefer_closest",
    ),
    Key(
        "topology.options.max-allowable-numa-nodes",
        types.integer(8, types.NODE_LIMIT),
        "The most NUMA nodes of a machine with a policy other than `none`. The kubelet has 8 because its search grows with "
        "2^nodes; Corral's does not.",
        example="64",
        default=types.NODE_LIMIT,
        field="max_nodes",
    ),
)
