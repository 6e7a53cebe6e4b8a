# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# This module is private to the collection corral.node.
"""A single NUMA affinity out of the hints of several resources: the kubelet's topology manager (1.36).

The kubelet merges every permutation of the hints, one hint of each resource, and keeps the best result. The number of permutations is the
product of the numbers of hints. But a result is only a mask of nodes, preferred or not. So Corral passes the distinct masks from resource
to resource; on 8 nodes these masks are at most 255.
"""

from __future__ import annotations

import typing as t

from ..values.records import NamedTuple

NONE = "none"
BEST_EFFORT = "best-effort"
RESTRICTED = "restricted"
SINGLE_NUMA_NODE = "single-numa-node"
POLICIES = (NONE, BEST_EFFORT, RESTRICTED, SINGLE_NUMA_NODE)

CONTAINER = "container"
POD = "pod"

DEFAULT_MAX_NODES = 8  # max-allowable-numa-nodes; the kubelet allows no lower value

CAPACITY = "capacity"
FREE = "free"

Distances = t.Mapping[int, t.Mapping[int, int]]


class Policy(NamedTuple):
    """The topology manager's settings. The caller applies ``scope`` and ``max_nodes``.

    ``preferred_by``: a hint is preferred if fewer nodes could never satisfy the request (capacity, as in the kubelet), or if fewer nodes
    cannot satisfy the request now (free). By capacity, a request that now needs more nodes than on an empty machine has no preferred hint,
    and the policy restricted refuses the request (kubernetes#84597).
    """

    name: str
    scope: str = CONTAINER
    prefer_closest: bool = False
    max_nodes: int = DEFAULT_MAX_NODES
    preferred_by: str = CAPACITY


class Hint(NamedTuple):
    """NUMA nodes that can satisfy a request, as a bit mask (None: any nodes). ``preferred``: see Policy.preferred_by."""

    nodes: int | None
    preferred: bool


# The hints of one resource. None: the resource has no preference. An empty list: no nodes can satisfy the request.
Hints = t.Optional[t.Sequence[Hint]]

ANY = Hint(None, True)
UNSATISFIABLE = Hint(None, False)


def too_many_nodes(policy: str, count: int, allowed: int = DEFAULT_MAX_NODES) -> bool:
    """Whether the kubelet would refuse to start on this many nodes.

    Raises ValueError for an ``allowed`` that the kubelet refuses.
    """
    if allowed < DEFAULT_MAX_NODES:
        raise ValueError(f"max-allowable-numa-nodes is {allowed}; write {DEFAULT_MAX_NODES} or more")
    return policy != NONE and count > allowed


def admits(policy: str, hint: Hint) -> bool:
    """Whether a workload with this merged hint may start."""
    return policy in (NONE, BEST_EFFORT) or hint.preferred


def merge(
    policy: str,
    hints_by_resource: t.Iterable[Hints],
    nodes: t.Iterable[int],
    distances: Distances | None = None,
    *,
    prefer_closest: bool = False,
) -> Hint:
    """The best hint for all resources; with ``prefer_closest``, the nearest of several sets with equally many nodes."""
    if policy == NONE:
        return UNSATISFIABLE
    all_nodes = mask_of(nodes)
    resources = [_listed(hints) for hints in hints_by_resource]
    if policy == SINGLE_NUMA_NODE:
        resources = [single_numa(hints) for hints in resources]
    near = distances if prefer_closest and policy != SINGLE_NUMA_NODE else None
    merged = [Hint(mask, True) for mask in _agreed(resources, all_nodes)]
    best = narrowest(merged, 0, near)
    if best is None:
        # Permutations that are not preferred count only if no preferred permutation is left.
        merged = [Hint(mask, False) for mask in _common(resources, all_nodes)]
        best = narrowest(merged, max_of_min_counts(resources), near) or Hint(all_nodes, False)
    return Hint(None, best.preferred) if policy == SINGLE_NUMA_NODE and best.nodes == all_nodes else best


def mask_of(nodes: t.Iterable[int]) -> int:
    """The nodes as a bit mask."""
    mask = 0
    for node in nodes:
        mask |= 1 << node
    return mask


def nodes_of(mask: int) -> frozenset[int]:
    """The nodes of a bit mask."""
    return frozenset(node for node in range(mask.bit_length()) if mask >> node & 1)


def count(mask: int) -> int:
    """The number of nodes in a mask."""
    return bin(mask).count("1")


def distances_of(order: t.Sequence[int], rows: t.Sequence[t.Sequence[int]]) -> Distances:
    """Distances by node. ``order`` has the node of each row, and of each column, of the table ``rows``."""
    return {node: dict(zip(order, row)) for node, row in zip(order, rows)}


def total_distance(mask: int, distances: Distances) -> int:
    """The sum of the distances between all ordered pairs of nodes, which sorts masks of equal size like the kubelet's average distance."""
    nodes = nodes_of(mask)
    return sum(distances[node][other] for node in nodes for other in nodes)


def single_numa(hints: t.Iterable[Hint]) -> list[Hint]:
    """The hints that count for the policy single-numa-node: preferred hints with one node or no node."""
    return [hint for hint in hints if hint.preferred and (hint.nodes is None or count(hint.nodes) == 1)]


def max_of_min_counts(resources: t.Iterable[t.Iterable[Hint]]) -> int:
    """The number of nodes in the narrowest hint of the most demanding resource, as wanted for a hint that is not preferred."""
    counts = ((count(mask) for mask, dummy in hints if mask is not None) for hints in resources)
    return max((min(sizes, default=0) for sizes in counts), default=0)


def narrowest(hints: t.Iterable[Hint], best_count: int, distances: Distances | None = None) -> Hint | None:
    """The best hint of merged hints; None if no hint has a node.

    The order: preferred hints from the narrowest on, hints with ``best_count`` nodes, narrower hints from the widest on, wider hints from
    the narrowest on. Of hints with equally many nodes, the nearest and then the lowest come first.
    """

    def rank(hint: Hint) -> tuple[int, ...]:
        mask = hint.nodes or 0
        size = count(mask)
        far = total_distance(mask, distances) if distances is not None else 0
        if hint.preferred:
            return 0, size, far, mask
        if size == best_count:
            return 1, size, far, mask
        return (2, -size, far, mask) if size < best_count else (3, size, far, mask)

    return min((hint for hint in hints if hint.nodes), key=rank, default=None)


def _listed(hints: Hints) -> t.Sequence[Hint]:
    if hints is None:
        return [ANY]
    return hints or [UNSATISFIABLE]


def _agreed(resources: t.Iterable[t.Sequence[Hint]], all_nodes: int) -> set[int]:
    """The masks of preferred permutations: all hints are preferred, and all hints with nodes have the same nodes."""
    preferred = [{mask for mask, is_preferred in hints if is_preferred} for hints in resources]
    strict = [masks for masks in preferred if None not in masks]
    # If every resource has a preferred hint without nodes, each preferred hint with nodes is a result by itself.
    agreed = set.intersection(*strict) if strict else set().union({None}, *preferred)
    return {all_nodes if mask is None else mask & all_nodes for mask in agreed}


def _common(resources: t.Iterable[t.Sequence[Hint]], all_nodes: int) -> set[int]:
    """The masks of all permutations."""
    common = {all_nodes}
    for hints in resources:
        masks = {all_nodes if mask is None else mask for mask, dummy in hints}
        common = {first & other for first in common for other in masks}
    return common
