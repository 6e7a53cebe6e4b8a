# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# This module is private to the collection corral.node.
"""What a person should know before a rollout: who else cares for the node, and which services would have less.

Asked by the command line and the modules alone, never by the tick.
"""

from __future__ import annotations

import typing as t

from .host import cgroup, hugepages, owners, usage
from .host.files import Host
from .model import busy, slices
from .model import owners as decision
from .model.context import Context


def notes(host: Host, context: Context) -> tuple[str, ...]:
    """All notes, the busy services last."""
    found = decision.notes(
        context.profile,
        context.pools,
        owners.tuned(host),
        owners.kubelet(host),
        owners.irqbalance(host),
        owners.numad(host),
        owners.hugepages_at_boot(host),
        hugepages.default_kib(host),
    )
    services = list(busy_notes(host, context))
    return (*found, *services, *([busy.HINT] if services else []))


def busy_notes(host: Host, context: Context) -> t.Iterator[str]:
    """A line for each slice that runs on all CPUs and is to be confined to fewer."""
    declared = context.profile.cpu
    if declared is None or not cgroup.unified(host):
        return
    for unit, wanted in slices.wanted_cpus(declared, context.pools, context.grants).items():
        now = cgroup.cpus(host, unit)
        if slices.described(unit) or not cgroup.exists(host, unit) or now.requested or not now.effective:
            continue
        if wanted < now.effective:
            note = busy.note(unit, now.effective, wanted, usage.of_unit(host, unit))
            if note is not None:
                yield note
