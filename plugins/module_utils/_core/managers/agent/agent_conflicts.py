# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# This module is private to the collection corral.node.
"""Programs other than Corral that set values of the profile: this manager names these programs, and does not change their settings."""

from __future__ import annotations

from ...host import cgroup
from ...host.files import Host
from ...model.plan.context import Context
from ...model.plan.plan import Part
from ..manager import Manager

NAME = "conflicts"
SERVICES = ("tuned.service", "kubelet.service")


def plan(host: Host, context: Context) -> Part:
    """The items for programs that set a declared value. If no such program runs, the plan costs a few reads and no import."""
    if not any(cgroup.service_runs(host, service) for service in SERVICES):
        return Part((), frozenset())
    from ...host.agent import other_agents
    from ...host.memory import hugepage_files
    from ...model.status import conflicts

    tuned, kubelet, size = other_agents.tuned(host), other_agents.kubelet(host), hugepage_files.default_kib(host)
    return Part(tuple(conflicts.changes(context.profile, context.pools, tuned, kubelet, size)), frozenset())


MANAGER = Manager(NAME, plan)
