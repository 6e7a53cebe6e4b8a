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

from ..values.records import NamedTuple
from . import topology_manager as manager
from .node_sets import Demand, Nodes, Provider, Sets, best, narrowest, providers_of, satisfies
from .topology_manager import Distances, Hint, Policy

EXACT_NODES = 8


class Affinity(NamedTuple):
    """The nodes (None: no preference), the kubelet's verdict, and a text that says why they are not preferred."""

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
    said: tuple[str, ...] = ()
    if not hint.preferred:
        from . import affinity_reasons  # A start that gets what it asks for does not wait for them.

        said = affinity_reasons.reasons(policy, providers)
    found = None if hint.nodes is None else manager.nodes_of(hint.nodes)
    return Affinity(found, hint.preferred, manager.admits(policy.name, hint), said)


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
    # With align-by-socket other sizes may be preferred, too, except for providers without sockets.
    strict = {provider.size for provider in providers if not provider.sockets}
    for size in range(1, min(widest, len(shared)) + 1):
        if sizes == {size}:
            found = Sets(demands, shared, distances).of_size(size)
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
        nearest = Sets(demands, sorted(itertools.chain(*chosen)), distances).of_size(size)
        if nearest is not None and provider.prefers(nearest):
            found.append(nearest)
    return best(found, distances)
