# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# This module is private to the collection corral.node.
"""Messages that say why no set of NUMA nodes is preferred."""

from __future__ import annotations

import typing as t

from ..values import cpuset
from ..workload.resources import is_device, shown
from . import topology_manager as manager
from .node_sets import Demand, Provider, narrowest, satisfies
from .topology_manager import Policy

LISTED = 8  # the most nodes that a message names one by one


def reasons(policy: Policy, providers: t.Sequence[Provider]) -> tuple[str, ...]:
    """Why no set of nodes is preferred."""
    short = [reason for provider in providers for reason in _short(provider)]
    return tuple(short or [_at_odds(policy, providers)])


def _short(provider: Provider) -> list[str]:
    """Why the nodes of a provider have too little, or why the workload may not use the nodes that have enough."""
    short = [shortage(demand, provider.size) for demand in provider.demands]
    return [reason for reason in short if reason] or _unusable(provider)


def shortage(demand: Demand, size: int) -> str:
    """How much the best ``size`` nodes lack for a demand, as text; an empty string if these nodes have enough."""
    free = {node: demand.free.get(node, 0) for node in demand.capacity}
    asked = f"{demand.resource}: {shown(demand.resource, demand.amount)} asked"
    total = sum(free.values())
    if total < demand.amount:
        missing = shown(demand.resource, demand.amount - total)
        where = "on NUMA nodes" if is_device(demand.resource) else "in all"  # Devices without a NUMA node do not count.
        return f"{asked}, {shown(demand.resource, total)} free {where} ({_listed(demand.resource, free)}): {missing} missing"
    most = sum(sorted(free.values(), reverse=True)[:size])
    if most >= demand.amount:
        return ""
    sets = "NUMA node has" if size == 1 else f"{size} NUMA nodes have"
    return f"{asked}, no {sets} more than {shown(demand.resource, most)} free ({_listed(demand.resource, free)})"


def _unusable(provider: Provider) -> list[str]:
    """How assignments of this workload or of other workloads prevent the use of nodes that have enough."""
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
    """Why no set of nodes satisfies all providers together, although sets for each single provider exist."""
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
    """The nodes that each satisfy a demand alone, as text in parentheses; an empty string without such nodes."""
    fitting = [node for node in demand.capacity if satisfies([demand], frozenset([node]))]
    return f" ({_named(fitting)})" if fitting else ""


def _needs(size: int) -> str:
    return "1 NUMA node" if size == 1 else f"{size} NUMA nodes"


def _named(nodes: t.Iterable[int]) -> str:
    named = frozenset(nodes)
    return f"node{'' if len(named) == 1 else 's'} {cpuset.format(named)}"


def _listed(resource: str, free: t.Mapping[int, int]) -> str:
    """The free amount of each node, as text. Of many nodes, only the LISTED nodes with the largest amounts are named."""
    best = sorted(free, key=lambda node: (-free[node], node))
    named = ", ".join(f"node {node}: {shown(resource, free[node])}" for node in sorted(best[:LISTED]))
    others = best[LISTED:]
    return f"{named}, {len(others)} more with at most {shown(resource, free[others[0]])}" if others else named
