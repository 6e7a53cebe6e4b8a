# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# This module is private to the collection corral.node.
"""Which NUMA nodes a workload gets, and why not when it gets none.

Up to EXACT_NODES nodes this is the kubelet's way: every set of nodes is judged for every resource, and the topology
manager merges the hints. Beyond, where the kubelet refuses to start, a search finds the narrowest set that satisfies
everything; whether it is preferred is what the kubelet would say.

One result is kept from the kubelet on purpose: memory that fits nowhere is refused here as CPUs are. The kubelet's
memory manager then gives no hint at all, and fails after the workload was admitted.
"""

from __future__ import annotations

import itertools
import typing as t
from bisect import insort

from ..values import cpuset
from ..values.records import NamedTuple
from ..workload.resources import HUGEPAGES, MEMORY
from . import topology_manager as manager
from .topology_manager import Distances, Hint

EXACT_NODES = 8

# How many choices a search makes before it is content with a set that may not be the narrowest. Nodes that are alike
# cost nothing; only unlike nodes of which hardly any set is enough come near it.
STEPS = 20_000

CAPACITY = "capacity"
FREE = "free"

Nodes = frozenset[int]
_NO_NODES: Nodes = frozenset()


class Demand(NamedTuple):
    """An amount of one resource, and what each NUMA node has of it; the keys of ``capacity`` are its nodes.

    ``free`` includes what the workload may reuse; ``pinned`` nodes must be in the set (those of reusable CPUs).
    Demands with the same ``together`` are one manager's: its sets of nodes satisfy all of them.

    ``single`` and ``groups`` are the memory manager's: nodes with assignments of their own, and sets of nodes that
    share some. A node is never both. ``socket_of`` is for align-by-socket: the socket of each of its nodes.
    """

    resource: str
    amount: int
    capacity: t.Mapping[int, int]
    free: t.Mapping[int, int]
    pinned: Nodes = _NO_NODES
    single: Nodes = _NO_NODES
    groups: tuple[Nodes, ...] = ()
    socket_of: t.Mapping[int, int] | None = None
    together: str = ""


class Policy(NamedTuple):
    """The topology manager's settings. ``scope`` and ``max_nodes`` are for the caller, who knows what is started.

    ``preferred_by``: hints are preferred when no fewer nodes could ever satisfy them (capacity, as in the kubelet), or
    when no fewer nodes have enough now (free). By capacity a half full machine has no preferred hints left for what
    no longer fits on as few nodes, and restricted refuses it (kubernetes#84597).
    """

    name: str
    scope: str = manager.CONTAINER
    prefer_closest: bool = False
    max_nodes: int = manager.DEFAULT_MAX_NODES
    preferred_by: str = CAPACITY


class Affinity(NamedTuple):
    """The nodes (None: no preference), the kubelet's verdict, and for a person why they are not preferred."""

    nodes: Nodes | None
    preferred: bool
    admitted: bool
    reasons: tuple[str, ...] = ()


def decide(
    policy: Policy, demands: t.Iterable[Demand], nodes: t.Iterable[int], distances: Distances | None = None
) -> Affinity:
    """The affinity of a workload. CPUs and memory are demands of Guaranteed ones only; the caller knows."""
    if policy.name == manager.NONE:
        return Affinity(None, preferred=False, admitted=True)
    everywhere = sorted(nodes)
    providers = providers_of(policy, demands)
    way = enumerated if len(everywhere) <= EXACT_NODES else searched
    hint = way(policy, providers, everywhere, distances if policy.prefer_closest else None)
    return Affinity(
        None if hint.nodes is None else manager.nodes_of(hint.nodes),
        hint.preferred,
        manager.admits(policy.name, hint),
        () if hint.preferred else _reasons(policy, providers),
    )


def narrowest(demands: t.Sequence[Demand], nodes: t.Iterable[int], distances: Distances | None = None) -> Nodes | None:
    """The fewest nodes that satisfy all demands, the nearest or else the lowest of them; None if there are none."""
    sets = _Sets(demands, sorted(nodes), distances)
    for size in range(1, len(sets.nodes) + 1):
        found = sets.of_size(size)
        if found is not None:
            return found
        if sets.gave_up:
            return sets.without_search()
    return None


class Provider(NamedTuple):
    """The demands of one manager, the nodes that it knows, and how many of them it needs (minAffinitySize).

    With align-by-socket, ``sockets`` is the number of sockets that a preferred set spans; 0 without.
    """

    demands: tuple[Demand, ...]
    nodes: tuple[int, ...]
    size: int
    sockets: int

    @property
    def name(self) -> str:
        """Its resources, for a person."""
        return " and ".join(demand.resource for demand in self.demands)

    def prefers(self, nodes: t.Collection[int]) -> bool:
        """Whether a set of nodes that satisfies it is preferred."""
        return len(nodes) == self.size or (self.sockets > 0 and len(self.spanned(nodes)) == self.sockets)

    def spanned(self, nodes: t.Iterable[int]) -> set[int]:
        """The sockets of nodes."""
        socket_of = self.demands[0].socket_of or {}
        return {socket_of[node] for node in nodes}


def providers_of(policy: Policy, demands: t.Iterable[Demand]) -> list[Provider]:
    """The managers that have a say. A manager that is asked for nothing has no preference."""
    managers: dict[str, list[Demand]] = {}
    for demand in demands:
        if demand.amount > 0:
            managers.setdefault(demand.together or f"\0{len(managers)}", []).append(demand)
    return [_provider(policy, tuple(members)) for members in managers.values()]


def _provider(policy: Policy, demands: tuple[Demand, ...]) -> Provider:
    nodes = tuple(sorted({node for demand in demands for node in demand.capacity}))
    by_free = policy.preferred_by == FREE
    wants = [(demand.amount, demand.free if by_free else demand.capacity) for demand in demands]
    size = _fewest(wants, nodes)
    socket_of = demands[0].socket_of
    if not socket_of:
        return Provider(demands, nodes, size, 0)
    nodes_per_socket = max(1, len(nodes) // len(set(socket_of.values())))
    return Provider(demands, nodes, size, -(-size // nodes_per_socket))


# What the kubelet does: every set of nodes.


def enumerated(
    policy: Policy, providers: t.Sequence[Provider], nodes: t.Sequence[int], distances: Distances | None = None
) -> Hint:
    """The merged hint of all sets of nodes. Their number doubles with each node."""
    hints: list[list[Hint]] = []
    for provider in providers:
        # The manager gives its hints once for each resource.
        hints += [hints_of(provider)] * len(provider.demands)
    return manager.merge(policy.name, hints, nodes, distances, prefer_closest=distances is not None)


def hints_of(provider: Provider) -> list[Hint]:
    """A hint for each set of nodes that satisfies it."""
    sets = (
        frozenset(nodes)
        for size in range(1, len(provider.nodes) + 1)
        for nodes in itertools.combinations(provider.nodes, size)
    )
    return [
        Hint(manager.mask_of(nodes), provider.prefers(nodes)) for nodes in sets if satisfies(provider.demands, nodes)
    ]


def satisfies(demands: t.Iterable[Demand], nodes: Nodes) -> bool:
    """Whether the nodes have enough of everything and may be used together."""
    return all(
        sum(demand.free.get(node, 0) for node in nodes) >= demand.amount
        and demand.pinned <= nodes
        and may_share(demand, nodes)
        for demand in demands
    )


def may_share(demand: Demand, nodes: Nodes) -> bool:
    """The memory manager's rule: a node in a group is used with exactly this group, one used alone is used alone."""
    if len(nodes) == 1:
        return not any(nodes <= group for group in demand.groups)
    return nodes.isdisjoint(demand.single) and all(nodes == group or nodes.isdisjoint(group) for group in demand.groups)


# Beyond what can be enumerated.


def searched(
    policy: Policy, providers: t.Sequence[Provider], nodes: t.Sequence[int], distances: Distances | None = None
) -> Hint:
    """The narrowest set that all prefer; else, and not preferred, the narrowest that satisfies all; else all nodes."""
    single = policy.name == manager.SINGLE_NUMA_NODE
    demands = [demand for provider in providers for demand in provider.demands]
    if not demands:
        return manager.merge(policy.name, (), nodes)
    found = _preferred(providers, demands, 1 if single else len(nodes), None if single else distances)
    if found is not None:
        return Hint(None if single and found == frozenset(nodes) else manager.mask_of(found), True)
    if single:
        return Hint(None, False)
    return Hint(manager.mask_of(narrowest(demands, nodes, distances) or nodes), False)


def _preferred(
    providers: t.Sequence[Provider], demands: t.Sequence[Demand], widest: int, distances: Distances | None
) -> Nodes | None:
    """The narrowest set that every provider prefers."""
    shared = sorted(frozenset.intersection(*(frozenset(provider.nodes) for provider in providers)))
    sizes = {provider.size for provider in providers}
    aligned = [provider for provider in providers if provider.sockets]
    # With align-by-socket other sizes may be preferred, too, but for those who know no sockets.
    strict = {provider.size for provider in providers if not provider.sockets}
    for size in range(1, min(widest, len(shared)) + 1):
        if sizes == {size}:
            found = _Sets(demands, shared, distances).of_size(size)
        elif aligned and strict <= {size}:
            found = _aligned(aligned[0], demands, shared, size, distances)
        else:
            continue
        if found is not None:
            return found
    return None


def _aligned(
    provider: Provider, demands: t.Sequence[Demand], nodes: t.Iterable[int], size: int, distances: Distances | None
) -> Nodes | None:
    """The best set of nodes on as many sockets as are preferred; where sockets are uneven it may miss some."""
    by_socket: dict[int, list[int]] = {}
    for node in nodes:
        by_socket.setdefault(next(iter(provider.spanned([node]))), []).append(node)
    found = []
    for chosen in itertools.combinations(by_socket.values(), provider.sockets):
        best = _Sets(demands, sorted(itertools.chain(*chosen)), distances).of_size(size)
        if best is not None and provider.prefers(best):
            found.append(best)
    return _best(found, distances)


def _best(sets: t.Iterable[Nodes], distances: Distances | None) -> Nodes | None:
    """The narrowest, then the nearest, then the lowest."""
    hints = [Hint(manager.mask_of(nodes), True) for nodes in sets]
    best = manager.narrowest(hints, 0, distances)
    return None if best is None or best.nodes is None else manager.nodes_of(best.nodes)


class _Sets:
    """Sets of nodes that satisfy demands: single nodes, groups that exist, and new ones of nodes that are in no use."""

    def __init__(self, demands: t.Sequence[Demand], nodes: t.Sequence[int], distances: Distances | None) -> None:
        self.demands = demands
        self.nodes = nodes
        self.distances = distances
        self.gave_up = False
        self.pinned = _NO_NODES.union(*(demand.pinned for demand in demands))
        self.groups = {group for demand in demands for group in demand.groups if group.issubset(nodes)}
        used = _NO_NODES.union(*(demand.single.union(*demand.groups) for demand in demands))
        self.unused = [node for node in nodes if node not in used]
        self._lowest: _Search | None = None

    def of_size(self, size: int) -> Nodes | None:
        """The best set of so many nodes."""
        if size == 1:
            known = [frozenset([node]) for node in self.nodes]
        else:
            known = [group for group in self.groups if len(group) == size]
        found = [nodes for nodes in known if satisfies(self.demands, nodes)]
        if size > 1:
            found += self._new(size)
        return _best(found, self.distances)

    def without_search(self) -> Nodes | None:
        """A set of which no node can be left out, though a narrower one may exist; for when a search gave up."""
        found = [group for group in self.groups if satisfies(self.demands, group)]
        nodes = frozenset(self.unused)
        if satisfies(self.demands, nodes):
            for node in sorted(self.unused, key=lambda node: (self._worth(node), -node)):
                if satisfies(self.demands, nodes - {node}):
                    nodes -= {node}
            found.append(nodes)
        return _best(found, self.distances)

    def _worth(self, node: int) -> float:
        return sum(demand.free.get(node, 0) / demand.amount for demand in self.demands)

    def _new(self, size: int) -> list[Nodes]:
        """New groups: the lowest one, or the nearest around each node."""
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

    def _search(self, order: t.Sequence[int], steps: int) -> _Search:
        return _Search(order, [(demand.amount, demand.free) for demand in self.demands], self.pinned, steps)


def _fewest(wants: t.Sequence[tuple[int, t.Mapping[int, int]]], nodes: t.Sequence[int]) -> int:
    """How many nodes it takes to have enough; all of them when even these have not.

    Where the search gives up it is too few rather than too many: never is a set called preferred that is not.
    """
    search = _Search(nodes, wants, _NO_NODES, STEPS)
    for size in range(1, len(nodes)):
        if search.find(size) is not None or search.gave_up:
            return size
    return len(nodes)


class _Search:
    """Sets with enough of everything, ``pinned`` nodes included; of one size, that whose last node comes first."""

    def __init__(
        self, order: t.Sequence[int], wants: t.Sequence[tuple[int, t.Mapping[int, int]]], pinned: Nodes, steps: int
    ) -> None:
        self.pinned = pinned
        self.order = [node for node in order if node not in pinned]
        self.values = [[values.get(node, 0) for node in self.order] for dummy, values in wants]
        self.missing = tuple(max(0, amount - sum(values.get(node, 0) for node in pinned)) for amount, values in wants)
        self._first = [list(itertools.accumulate(values, initial=0)) for values in self.values]
        self._most = [_most(values) for values in self.values]
        self._hopeless: set[tuple[int, int, tuple[int, ...]]] = set()
        self._steps = steps

    @property
    def gave_up(self) -> bool:
        """Whether what was not found may exist."""
        return self._steps <= 0

    def find(self, size: int) -> Nodes | None:
        """The first set of so many nodes."""
        found = self._pick(len(self.order), size - len(self.pinned), self.missing)
        return None if found is None else self.pinned.union(found)

    def _pick(self, end: int, count: int, missing: tuple[int, ...]) -> list[int] | None:
        """``count`` of the nodes before ``end`` that have what is missing."""
        if not 0 <= count <= end or self.gave_up:
            return None
        if all(first[count] >= amount for first, amount in zip(self._first, missing)):
            return self.order[:count]
        # No choice has more of a resource than this; for a single resource it tells exactly what can be had.
        if any(most[end][count] < amount for most, amount in zip(self._most, missing)):
            return None
        state = (end, count, missing)
        if state in self._hopeless:
            return None
        self._steps -= 1
        found = self._pick(end - 1, count, missing)
        if found is None:
            left = tuple(max(0, amount - values[end - 1]) for values, amount in zip(self.values, missing))
            found = self._pick(end - 1, count - 1, left)
            found = None if found is None else [*found, self.order[end - 1]]
        if found is None:
            self._hopeless.add(state)
        return found


def _most(values: t.Iterable[int]) -> list[list[int]]:
    """By how many values there are from the start, and how many of them are taken: the largest sum."""
    largest: list[int] = []  # negative, so that insort puts the largest first
    sums = [[0]]
    for value in values:
        insort(largest, -value)
        sums.append([-total for total in itertools.accumulate(largest, initial=0)])
    return sums


# For a person.


def _reasons(policy: Policy, providers: t.Sequence[Provider]) -> tuple[str, ...]:
    """Why no set of nodes is preferred."""
    short = [reason for provider in providers for reason in _short(provider)]
    return tuple(short or [_at_odds(policy, providers)])


def _short(provider: Provider) -> list[str]:
    """What a provider has not enough of, or must not use."""
    short = [shortage(demand, provider.size) for demand in provider.demands]
    return [reason for reason in short if reason] or _unusable(provider)


def shortage(demand: Demand, size: int) -> str:
    """How the best ``size`` nodes fall short of a demand; empty if they do not."""
    free = {node: demand.free.get(node, 0) for node in demand.capacity}
    asked = f"{demand.resource}: {shown(demand.resource, demand.amount)} asked"
    total = sum(free.values())
    if total < demand.amount:
        missing = shown(demand.resource, demand.amount - total)
        return f"{asked}, {shown(demand.resource, total)} free in all ({_listed(demand.resource, free)}): {missing} missing"
    most = sum(sorted(free.values(), reverse=True)[:size])
    if most >= demand.amount:
        return ""
    sets = "NUMA node has" if size == 1 else f"{size} NUMA nodes have"
    return f"{asked}, no {sets} more than {shown(demand.resource, most)} free ({_listed(demand.resource, free)})"


def _unusable(provider: Provider) -> list[str]:
    """Why, with enough on so few nodes, other assignments or the workload's own stand against it."""
    demand = provider.demands[0]
    why = [f"{_named(group)} are one group" for group in demand.groups]
    if demand.single:
        why.append(f"{_named(demand.single)} {'is' if len(demand.single) == 1 else 'are'} used alone")
    if demand.pinned:
        why.append(f"{_named(demand.pinned)} must be among them")
    if not why:
        return []
    usable = narrowest(provider.demands, provider.nodes)
    if usable is not None and len(usable) == provider.size:
        return []
    return [f"{provider.name}: {_needs(provider.size)} would do, but {', '.join(why)}"]


def _at_odds(policy: Policy, providers: t.Sequence[Provider]) -> str:
    """Everyone could be satisfied, but not all by the same nodes."""
    sizes = {provider.size for provider in providers}
    if policy.name == manager.SINGLE_NUMA_NODE and max(sizes) > 1:
        wide = [f"{provider.name} needs {_needs(provider.size)}" for provider in providers if provider.size > 1]
        return f"{' and '.join(wide)}; {policy.name} allows 1"
    if len(sizes) > 1:
        first, *others = sorted(providers, key=lambda provider: -provider.size)
        rest = [f"{other.name} {other.size}" for other in others]
        return " and ".join([f"{first.name} needs {_needs(first.size)}", *rest])
    each = [f"{demand.resource}{_fitting(demand)}" for provider in providers for demand in provider.demands]
    return f"{_needs(max(sizes))} would do for each of {', '.join(each)}, but none for all"


def _fitting(demand: Demand) -> str:
    """Where it fits, as far as that is a single node."""
    fitting = [node for node in demand.capacity if satisfies([demand], frozenset([node]))]
    return f" ({_named(fitting)})" if fitting else ""


def _needs(size: int) -> str:
    return "1 NUMA node" if size == 1 else f"{size} NUMA nodes"


def _named(nodes: t.Iterable[int]) -> str:
    named = frozenset(nodes)
    return f"node{'' if len(named) == 1 else 's'} {cpuset.format(named)}"


LISTED = 8  # nodes that are named one by one


def _listed(resource: str, free: t.Mapping[int, int]) -> str:
    """What each node has; of many nodes those that have the most."""
    best = sorted(free, key=lambda node: (-free[node], node))
    named = ", ".join(f"node {node}: {shown(resource, free[node])}" for node in sorted(best[:LISTED]))
    others = best[LISTED:]
    return f"{named}, {len(others)} more with at most {shown(resource, free[others[0]])}" if others else named


def shown(resource: str, amount: int) -> str:
    """An amount for a person: bytes in Mi or Gi, two places at most, everything else as it is."""
    if resource != MEMORY and not resource.startswith(HUGEPAGES):
        return str(amount)
    for unit, size in (("Gi", 1 << 30), ("Mi", 1 << 20), ("Ki", 1 << 10)):
        if amount >= size:
            return f"{amount / size:.2f}".rstrip("0").rstrip(".") + unit
    return str(amount)
