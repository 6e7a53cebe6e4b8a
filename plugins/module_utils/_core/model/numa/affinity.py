# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# This module is private to the collection corral.node.
"""The NUMA nodes that a workload gets, or why it gets none.

On up to EXACT_NODES nodes this works as the kubelet does: every set of nodes is judged for every resource, and the topology manager merges
the hints. On more nodes, where the kubelet refuses to start, a search finds the narrowest set that satisfies all demands; this set is
preferred if the kubelet's rule would prefer it.

One difference is intended: memory that fits nowhere is refused here, as CPUs are. The kubelet's memory manager gives no hint in that case,
and fails after the workload was admitted.
"""

from __future__ import annotations

import itertools
import typing as t

from ..values.records import NamedTuple
from . import topology_manager as manager
from .node_sets import Demand, Nodes, Provider, Sets, best, narrowest, providers_of, satisfies
from .topology_manager import Distances, Hint, Policy

EXACT_NODES = 8


class Affinity(NamedTuple):
    """The nodes (None: no preference), the kubelet's verdict on them, and why they are not preferred."""

    nodes: Nodes | None
    preferred: bool
    admitted: bool
    reasons: tuple[str, ...] = ()


def decide(
    policy: Policy, demands: t.Iterable[Demand], nodes: t.Iterable[int], distances: Distances | None = None
) -> Affinity:
    """The affinity of a workload. The caller passes demands of CPUs and memory for Guaranteed workloads only."""
    if policy.name == manager.NONE:
        return Affinity(None, preferred=False, admitted=True)
    everywhere = sorted(nodes)
    providers = providers_of(policy, demands)
    way = enumerated if len(everywhere) <= EXACT_NODES else searched
    hint = way(policy, providers, everywhere, distances if policy.prefer_closest else None)
    said: tuple[str, ...] = ()
    if not hint.preferred:
        from . import affinity_reasons  # A workload that gets what it asks for does not wait for this import.

        said = affinity_reasons.reasons(policy, providers)
    chosen = None if hint.nodes is None else manager.nodes_of(hint.nodes)
    return Affinity(chosen, hint.preferred, manager.admits(policy.name, hint), said)


# Up to EXACT_NODES nodes, as the kubelet does: every set of nodes.


def enumerated(
    policy: Policy, providers: t.Sequence[Provider], nodes: t.Sequence[int], distances: Distances | None = None
) -> Hint:
    """The merged hint of all sets of nodes. The number of sets doubles with each node."""
    hints: list[list[Hint]] = []
    for provider in providers:
        # The manager gives its hints once for each resource.
        hints += [hints_of(provider)] * len(provider.demands)
    return manager.merge(policy.name, hints, nodes, distances, prefer_closest=distances is not None)


def hints_of(provider: Provider) -> list[Hint]:
    """A hint for each set of nodes that satisfies the provider's demands."""
    sets = (
        frozenset(nodes)
        for size in range(1, len(provider.nodes) + 1)
        for nodes in itertools.combinations(provider.nodes, size)
    )
    return [
        Hint(manager.mask_of(nodes), provider.prefers(nodes)) for nodes in sets if satisfies(provider.demands, nodes)
    ]


# On more nodes: a search.


def searched(
    policy: Policy, providers: t.Sequence[Provider], nodes: t.Sequence[int], distances: Distances | None = None
) -> Hint:
    """The narrowest set that all providers prefer; else, not preferred, the narrowest set that satisfies all providers; else all nodes."""
    single = policy.name == manager.SINGLE_NUMA_NODE
    demands = [demand for provider in providers for demand in provider.demands]
    if not demands:
        return manager.merge(policy.name, (), nodes)
    preferred = _preferred(providers, demands, 1 if single else len(nodes), None if single else distances)
    if preferred is not None:
        return Hint(None if single and preferred == frozenset(nodes) else manager.mask_of(preferred), True)
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
    # With align-by-socket a provider may prefer other sizes too; a provider without sockets may not.
    strict = {provider.size for provider in providers if not provider.sockets}
    for size in range(1, min(widest, len(shared)) + 1):
        if sizes == {size}:
            nodes = Sets(demands, shared, distances).of_size(size)
        elif aligned and strict <= {size}:
            nodes = _aligned(aligned[0], demands, shared, size, distances)
        else:
            continue
        if nodes is not None:
            return nodes
    return None


def _aligned(
    provider: Provider, demands: t.Sequence[Demand], nodes: t.Iterable[int], size: int, distances: Distances | None
) -> Nodes | None:
    """The best set of nodes on the preferred number of sockets; on sockets of unequal size, a preferred set may be missed."""
    by_socket: dict[int, list[int]] = {}
    for node in nodes:
        by_socket.setdefault(next(iter(provider.spanned([node]))), []).append(node)
    sets = []
    for chosen in itertools.combinations(by_socket.values(), provider.sockets):
        nearest = Sets(demands, sorted(itertools.chain(*chosen)), distances).of_size(size)
        if nearest is not None and provider.prefers(nearest):
            sets.append(nearest)
    return best(sets, distances)
