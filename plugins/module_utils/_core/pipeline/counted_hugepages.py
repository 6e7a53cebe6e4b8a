# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# This module is private to the collection corral.node.
"""Hugepage pools that a kubelet has counted. A tick does not change such a pool: no tick restarts a kubelet or moves its state files."""

from __future__ import annotations

import typing as t

from ..host.files import Host
from ..host.kubelet import kubelet_state
from ..host.memory import hugepage_files
from ..model.plan.plan import UNCHANGEABLE, Change, Step
from ..model.values.sizes import page_text


def left_to_runs(host: Host, changes: t.Sequence[Change]) -> tuple[list[Change], frozenset[str]]:
    """The changes of a tick without the steps after which the kubelet would refuse its state file, and the keys of the left-out steps.

    The caller keeps the originals of these keys.
    """
    path, counted = kubelet_state.counted(host)
    unfit = {step for change in changes for step in change.steps if counted and makes_unfit(host, step, counted)}
    why = f"the kubelet would not start with {path} once it has: a tick leaves this to a rollout, or corral reconcile"
    left = [
        change._replace(steps=(), verdict=UNCHANGEABLE, reason=f"{change.reason}; {why}")
        if unfit.intersection(change.steps)
        else change
        for change in changes
    ]
    return left, frozenset(step.key for step in unfit)


def makes_unfit(host: Host, step: Step, counted: t.Mapping[int, t.Mapping[str, int]]) -> bool:
    """Whether a pool has as many pages as the kubelet counted, and the step would change this number."""
    size, node = hugepage_files.pool_of(step.target) or (0, None)
    if step.kind != "pool" or not size or not (step.value or "").isdecimal():
        return False
    nodes = counted if node is None else [node]  # A pool of the whole machine is the sum of its NUMA nodes' pools.
    there = sum(counted.get(one, {}).get(f"hugepages-{page_text(size)}", 0) for one in nodes)
    now = hugepage_files.pool(host, size, node)
    return now is not None and now * (size << 10) == there != int(step.value or 0) * (size << 10)
