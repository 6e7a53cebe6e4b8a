# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# This module is private to the collection corral.node.
"""Sets of NUMA nodes that satisfy all demands, and the search for the narrowest set.

A provider has the demands of one manager, as in the kubelet's topology manager.
"""

from __future__ import annotations

import itertools
import typing as t
from bisect import insort

from ..values.records import NamedTuple
from . import topology_manager as manager
from .topology_manager import FREE, Distances, Hint, Policy

# The number of choices after which a search stops, so that a narrower set may exist. Only a search among unlike nodes comes near this
# number: a search among equal nodes makes no choices.
STEPS = 20_000

Nodes = frozenset[int]
NO_NODES: Nodes = frozenset()


class Demand(NamedTuple):
    """The wanted amount of a resource, and the ``capacity`` and ``free`` amounts of each NUMA node. The keys of ``capacity`` are the nodes.

    ``free`` includes amounts that the workload may reuse. ``pinned`` nodes must be in the set (the nodes of reusable CPUs). Demands with
    the same ``together`` belong to one manager: a set of nodes has to satisfy all these demands. For the memory manager, ``single`` has the
    nodes that are used alone, and ``groups`` the disjoint sets of other nodes that are used together. ``socket_of``: with align-by-socket,
    the socket of each node.
    """

    resource: str
    amount: int
    capacity: t.Mapping[int, int]
    free: t.Mapping[int, int]
    pinned: Nodes = NO_NODES
    single: Nodes = NO_NODES
    groups: tuple[Nodes, ...] = ()
    socket_of: t.Mapping[int, int] | None = None
    together: str = ""


class Provider(NamedTuple):
    """The demands of one manager.

    ``nodes``: the NUMA nodes that the demands name. ``size``: the least number of nodes with enough for the demands (minAffinitySize).
    ``sockets``: with align-by-socket the number of sockets that a preferred set spans, else 0.
    """

    demands: tuple[Demand, ...]
    nodes: tuple[int, ...]
    size: int
    sockets: int

    @property
    def name(self) -> str:
        """The names of the demanded resources, as text."""
        return " and ".join(demand.resource for demand in self.demands)

    def prefers(self, nodes: t.Collection[int]) -> bool:
        """Whether a set of nodes that satisfies the demands is preferred."""
        return len(nodes) == self.size or (self.sockets > 0 and len(self.spanned(nodes)) == self.sockets)

    def spanned(self, nodes: t.Iterable[int]) -> set[int]:
        """The sockets to which ``nodes`` belong."""
        socket_of = self.demands[0].socket_of or {}
        return {socket_of[node] for node in nodes}


def providers_of(policy: Policy, demands: t.Iterable[Demand]) -> list[Provider]:
    """A provider for each manager with demands. A manager without a demand has no preference."""
    managers: dict[str, list[Demand]] = {}
    for demand in demands:
        if demand.amount > 0:
            managers.setdefault(demand.together or f"\0{len(managers)}", []).append(demand)
    return [provider_of(policy, tuple(members)) for members in managers.values()]


def provider_of(policy: Policy, demands: tuple[Demand, ...]) -> Provider:
    nodes = tuple(sorted({node for demand in demands for node in demand.capacity}))
    by_free = policy.preferred_by == FREE
    wants = [(demand.amount, demand.free if by_free else demand.capacity) for demand in demands]
    size = fewest(wants, nodes)
    socket_of = demands[0].socket_of
    if not socket_of:
        return Provider(demands, nodes, size, 0)
    nodes_per_socket = max(1, len(nodes) // len(set(socket_of.values())))
    return Provider(demands, nodes, size, -(-size // nodes_per_socket))


def satisfies(demands: t.Iterable[Demand], nodes: Nodes) -> bool:
    """Whether the nodes have enough for each demand and may be used together."""
    return all(
        sum(demand.free.get(node, 0) for node in nodes) >= demand.amount
        and demand.pinned <= nodes
        and may_share(demand, nodes)
        for demand in demands
    )


def may_share(demand: Demand, nodes: Nodes) -> bool:
    """Whether the memory manager allows the set ``nodes``: nodes of a group are used as exactly this group, single nodes only alone."""
    if len(nodes) == 1:
        return not any(nodes <= group for group in demand.groups)
    return nodes.isdisjoint(demand.single) and all(nodes == group or nodes.isdisjoint(group) for group in demand.groups)


def narrowest(demands: t.Sequence[Demand], nodes: t.Iterable[int], distances: Distances | None = None) -> Nodes | None:
    """The smallest set of nodes that satisfies all demands; of equally small sets the nearest, then the lowest. None without a set."""
    sets = Sets(demands, sorted(nodes), distances)
    for size in range(1, len(sets.nodes) + 1):
        nodes_found = sets.of_size(size)
        if nodes_found is not None:
            return nodes_found
        if sets.gave_up:
            return sets.without_search()
    return None


def best(sets: t.Iterable[Nodes], distances: Distances | None) -> Nodes | None:
    """The narrowest set of ``sets``; of equally narrow sets the nearest, then the lowest. None without a set."""
    hints = [Hint(manager.mask_of(nodes), True) for nodes in sets]
    hint = manager.narrowest(hints, 0, distances)
    return None if hint is None or hint.nodes is None else manager.nodes_of(hint.nodes)


class Sets:
    """Sets of nodes that satisfy demands: single nodes, existing groups, and new groups of unused nodes."""

    def __init__(self, demands: t.Sequence[Demand], nodes: t.Sequence[int], distances: Distances | None) -> None:
        self.demands = demands
        self.nodes = nodes
        self.distances = distances
        self.gave_up = False
        self.pinned = NO_NODES.union(*(demand.pinned for demand in demands))
        self.groups = {group for demand in demands for group in demand.groups if group.issubset(nodes)}
        used = NO_NODES.union(*(demand.single.union(*demand.groups) for demand in demands))
        self.unused = [node for node in nodes if node not in used]
        self._lowest: Search | None = None

    def of_size(self, size: int) -> Nodes | None:
        """The best set of ``size`` nodes; None without a set of this size."""
        if size == 1:
            known = [frozenset([node]) for node in self.nodes]
        else:
            known = [group for group in self.groups if len(group) == size]
        sets = [nodes for nodes in known if satisfies(self.demands, nodes)]
        if size > 1:
            sets += self._new(size)
        return best(sets, self.distances)

    def without_search(self) -> Nodes | None:
        """A set of which every node is needed, after a search that reached its limit; a narrower set may exist."""
        sets = [group for group in self.groups if satisfies(self.demands, group)]
        nodes = frozenset(self.unused)
        if satisfies(self.demands, nodes):
            for node in sorted(self.unused, key=lambda node: (self._worth(node), -node)):
                if satisfies(self.demands, nodes - {node}):
                    nodes -= {node}
            sets.append(nodes)
        return best(sets, self.distances)

    def _worth(self, node: int) -> float:
        return sum(demand.free.get(node, 0) / demand.amount for demand in self.demands)

    def _new(self, size: int) -> list[Nodes]:
        """New groups of ``size`` nodes: the lowest group and, with distances, the nearest group around each node."""
        if not self.pinned.issubset(self.unused):
            return []
        self._lowest = self._lowest or self._search(self.unused, STEPS)
        lowest = self._lowest.find(size)
        self.gave_up = self._lowest.gave_up
        if lowest is None or self.distances is None:
            return [] if lowest is None else [lowest]
        steps = STEPS // len(self.unused)
        near = (self._search(self._around(node), steps).find(size) for node in self.unused)
        return [lowest, *(nodes for nodes in near if nodes is not None)]

    def _around(self, seed: int) -> list[int]:
        distance = (self.distances or {})[seed]
        return sorted(self.unused, key=lambda node: (node != seed, distance[node], node))

    def _search(self, order: t.Sequence[int], steps: int) -> Search:
        return Search(order, [(demand.amount, demand.free) for demand in self.demands], self.pinned, steps)


def fewest(wants: t.Sequence[tuple[int, t.Mapping[int, int]]], nodes: t.Sequence[int]) -> int:
    """The least number of nodes with enough for ``wants``; the number of all nodes if even all nodes have too little.

    If the search reaches its limit, the number may be too low but never too high, so that no set is wrongly preferred.
    """
    search = Search(nodes, wants, NO_NODES, STEPS)
    for size in range(1, len(nodes)):
        if search.find(size) is not None or search.gave_up:
            return size
    return len(nodes)


class Search:
    """A search for sets of nodes that have enough of each resource and contain the ``pinned`` nodes.

    Of all sets of one size the search finds the set whose last node comes first in ``order``.
    """

    def __init__(
        self, order: t.Sequence[int], wants: t.Sequence[tuple[int, t.Mapping[int, int]]], pinned: Nodes, steps: int
    ) -> None:
        self.pinned = pinned
        self.order = [node for node in order if node not in pinned]
        self.values = [[values.get(node, 0) for node in self.order] for dummy, values in wants]
        self.missing = tuple(max(0, amount - sum(values.get(node, 0) for node in pinned)) for amount, values in wants)
        self._first = [list(itertools.accumulate(values, initial=0)) for values in self.values]
        self._most = [most(values) for values in self.values]
        self._hopeless: set[tuple[int, int, tuple[int, ...]]] = set()
        self._steps = steps

    @property
    def gave_up(self) -> bool:
        """Whether the search reached its limit. Then the search may have missed a set."""
        return self._steps <= 0

    def find(self, size: int) -> Nodes | None:
        """The set of ``size`` nodes that this search finds first; None if the search finds no set."""
        others = self._pick(len(self.order), size - len(self.pinned), self.missing)
        return None if others is None else self.pinned.union(others)

    def _pick(self, end: int, count: int, missing: tuple[int, ...]) -> list[int] | None:
        """A choice of ``count`` nodes before the index ``end`` that together have the ``missing`` amounts; None without a choice."""
        if not 0 <= count <= end or self.gave_up:
            return None
        if all(first[count] >= amount for first, amount in zip(self._first, missing)):
            return self.order[:count]
        # Not even the nodes with the most of a resource have enough.
        if any(most[end][count] < amount for most, amount in zip(self._most, missing)):
            return None
        state = (end, count, missing)
        if state in self._hopeless:
            return None
        self._steps -= 1
        picked = self._pick(end - 1, count, missing)
        if picked is None:
            left = tuple(max(0, amount - values[end - 1]) for values, amount in zip(self.values, missing))
            picked = self._pick(end - 1, count - 1, left)
            picked = None if picked is None else [*picked, self.order[end - 1]]
        if picked is None:
            self._hopeless.add(state)
        return picked


def most(values: t.Iterable[int]) -> list[list[int]]:
    """The table ``sums``: ``sums[n][k]`` is the largest sum of k values among the first n values."""
    largest: list[int] = []  # negative, so that insort puts the largest first
    sums = [[0]]
    for value in values:
        insort(largest, -value)
        sums.append([-total for total in itertools.accumulate(largest, initial=0)])
    return sums
