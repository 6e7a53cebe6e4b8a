# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# This module is private to the collection corral.node.
"""The QoS class of a workload and the values that follow from it: OOM score, CPU shares and weight, CPU quota (kubelet 1.36).

Requests and limits are plain integers by resource: ``cpu`` in thousandths of a CPU, all other resources in bytes.
"""

from __future__ import annotations

import typing as t

from .resources import CPU, MEMORY

GUARANTEED = "Guaranteed"
BURSTABLE = "Burstable"
BEST_EFFORT = "BestEffort"

COMPUTE = frozenset({CPU, MEMORY})  # only these resources determine the QoS class

GUARANTEED_OOM_SCORE_ADJ = -997
BESTEFFORT_OOM_SCORE_ADJ = 1000

MILLI_CPU_TO_CPU = 1000
SHARES_PER_CPU = 1024
MIN_SHARES = 2
MAX_SHARES = 262144
QUOTA_PERIOD = 100_000  # µs
MIN_QUOTA_PERIOD = 1000  # µs

Resources = t.Mapping[str, int]


def qos_class(containers: t.Iterable[tuple[Resources, Resources]]) -> str:
    """The QoS class of a workload; ``containers`` has the requests and the limits of each container.

    A workload is Guaranteed if every container has limits for CPU and memory, and requests equal to these limits. If only a limit is given,
    the API uses the limit as the request too; the caller must do the same. Pass the resources of a pod as a whole as one container.
    """
    requests, limits = dict.fromkeys(COMPUTE, 0), dict.fromkeys(COMPUTE, 0)
    all_limited = True
    for request, limit in containers:
        for resource in COMPUTE:
            requests[resource] += max(0, request.get(resource, 0))
            limits[resource] += max(0, limit.get(resource, 0))
            all_limited = all_limited and limit.get(resource, 0) > 0
    if not any(requests.values()) and not any(limits.values()):
        return BEST_EFFORT
    return GUARANTEED if all_limited and requests == limits else BURSTABLE


def oom_score_adj(
    qos: str,
    request: int,
    capacity: int,
    *,
    node_critical: bool = False,
    share: int = 0,
    main_request: int | None = None,
) -> int:
    """oom_score_adj of a container, from -1000 (never killed) to 1000. The kernel first kills the process with the highest score.

    ``request``: the container's memory request. ``capacity``: the machine's memory. ``share``: the part of the pod's own request that
    exceeds its containers' requests, divided by the number of containers. ``main_request``: for a sidecar, the smallest request of the main
    containers; the sidecar is to live at least as long as the main containers.
    """
    if node_critical or qos == GUARANTEED:
        return GUARANTEED_OOM_SCORE_ADJ
    if qos == BEST_EFFORT:
        return BESTEFFORT_OOM_SCORE_ADJ
    protected = max(request, request if main_request is None else main_request) + share
    # The score of a Burstable container is always between the scores of the other two classes.
    lowest, highest = BESTEFFORT_OOM_SCORE_ADJ + GUARANTEED_OOM_SCORE_ADJ, BESTEFFORT_OOM_SCORE_ADJ - 1
    return min(highest, max(lowest, 1000 - 1000 * protected // capacity))


def cpu_shares(milli: int) -> int:
    """The value of cpu.shares (cgroup v1) for a request."""
    return min(MAX_SHARES, max(MIN_SHARES, milli * SHARES_PER_CPU // MILLI_CPU_TO_CPU))


def cpu_weight(shares: int) -> int:
    """The value of cpu.weight (cgroup v2) for cpu.shares: 2…262144 become 1…10000."""
    return 1 + (min(MAX_SHARES, max(MIN_SHARES, shares)) - MIN_SHARES) * 9999 // (MAX_SHARES - MIN_SHARES)


def cpu_quota(milli: int, period_us: int = QUOTA_PERIOD) -> int | None:
    """The quota for a limit: µs of CPU time per period; None without a limit.

    The kernel refuses less than a millisecond. A workload with exclusive CPUs needs no quota (kubernetes#70585).
    """
    return None if milli <= 0 else max(MIN_QUOTA_PERIOD, milli * period_us // MILLI_CPU_TO_CPU)
