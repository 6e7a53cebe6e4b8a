# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# This module is private to the collection corral.node.
"""The NUMA nodes that a workload gets, or why the workload gets no nodes.

On up to EXACT_NODES nodes Corral works like the kubelet: every set of nodes is judged for every resource, and the topology manager merges
the hints. On more nodes, where the kubelet refuses to start, a search finds the narrowest set that satisfies all demands. The kubelet's
rule decides whether this set is preferred.

A difference is intended: like CPUs, memory that fits on no nodes is refused here. The kubelet's memory manager gives no hint for such
memory, and fails after the admission of the workload.
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
    """The nodes (None: no preference), the kubelet's verdict on the nodes, and the reasons why the nodes are not preferred."""

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
        from . import affinity_reasons  # imported here: a workload with a preferred hint needs no reasons

        said = affinity_reasons.reasons(policy, providers)
    chosen = None if hint.nodes is None else manager.nodes_of(hint.nodes)
    return Affinity(chosen, hint.preferred, manager.admits(policy.name, hint), said)


# Up to EXACT_NODES nodes: every set of nodes, as in the kubelet.


def enumerated(
    policy: Policy, providers: t.Sequence[Provider], nodes: t.Sequence[int], distances: Distances | None = None
) -> Hint:
    """The merged hint, from a hint for every set of nodes. The number of sets doubles with each node."""
    hints: list[list[Hint]] = []
    for provider in providers:
        # A manager of the kubelet returns its hints once for each resource.
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
    """The preferred hint with the narrowest set that all providers prefer.

    If no such set exists, the hint is not preferred. It has the narrowest set that satisfies all providers, or all nodes if no set
    satisfies all providers; with single-numa-node it has no nodes.
    """
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
    """The narrowest set of at most ``widest`` nodes that every provider prefers; None without such a set."""
    shared = sorted(frozenset.intersection(*(frozenset(provider.nodes) for provider in providers)))
    sizes = {provider.size for provider in providers}
    aligned = [provider for provider in providers if provider.sockets]
    # With align-by-socket a provider may prefer several sizes; a provider without sockets prefers only its own size.
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
    """The best set of ``size`` nodes on the preferred number of sockets. The search may miss a preferred set if sockets differ in size."""
    by_socket: dict[int, list[int]] = {}
    for node in nodes:
        by_socket.setdefault(next(iter(provider.spanned([node]))), []).append(node)
    sets = []
    for chosen in itertools.combinations(by_socket.values(), provider.sockets):
        nearest = Sets(demands, sorted(itertools.chain(*chosen)), distances).of_size(size)
        if nearest is not None and provider.prefers(nearest):
            sets.append(nearest)
    return best(sets, distances)
