# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# This module is private to the collection corral.node.
"""Shared process namespaces: whether the containers of a workload share one PID namespace, as the kubelet's pods do.

Declared by ``share_process_namespace``: all containers in one namespace, or each in its own (pid_namespaces(7)). The node's
own namespace is neither: a container in it sees all processes.
"""

from __future__ import annotations

import typing as t

from ..profile.profile_workloads import Workload
from ..tenants.tenant import Tenant, named
from ..values.records import NamedTuple

INFRA = "-infra"  # Podman's name of the container that holds a pod's namespaces ends so


class ContainerProcess(NamedTuple):
    """The first process of a container: its PID, its PID namespace ("" where it cannot be read), the unit of its monitor
    ("" without one), and when it started, as people read it ("" where that is not known).
    """

    container: str
    pid: int
    namespace: str
    unit: str = ""
    started: str = ""


class Difference(NamedTuple):
    """How containers differ from what is declared; ``pid`` is of the first one named, and ``known`` whether it could be read."""

    actual: str
    reason: str
    pid: int
    known: bool = True


def wanted(workload: Workload, tenant: str, tenants: t.Iterable[Tenant]) -> t.Optional[bool]:
    """Whether the containers of a workload are to share a namespace (None: either is right), its tenant's word included."""
    own = named(tenants, tenant)
    return False if own is not None and not own.share_process_namespace else workload.share_process_namespace


def difference(shared: bool, found: t.Sequence[ContainerProcess], node: str) -> t.Optional[Difference]:
    """What differs; None where nothing does. ``node`` is the node's own namespace."""
    unread = [one for one in found if not one.namespace]
    if unread:
        names = ", ".join(one.container for one in unread)
        return Difference(names, f"the PID namespace of {names} cannot be read", unread[0].pid, known=False)
    of_node = [one for one in found if one.namespace == node]
    if of_node:
        said = "; ".join(f"{cause(one)} has the host's PID namespace" for one in of_node)
        return Difference("the host's", said, of_node[0].pid)
    groups: dict[str, list[ContainerProcess]] = {}
    for one in found:
        groups.setdefault(one.namespace, []).append(one)
    if shared and len(groups) > 1:
        kept = common(groups)
        apart = [one for space, members in groups.items() if space != kept for one in members]
        said = "; ".join(f"{cause(one)} does not share that of {groups[kept][0].container}" for one in apart)
        return Difference("shared in part" if len(groups) < len(found) else "separate", said, apart[0].pid)
    together = [members for members in groups.values() if len(members) > 1]
    if not shared and together:
        said = "; ".join(
            f"{cause(one)} shares that of {members[0].container}" for members in together for one in members[1:]
        )
        return Difference("shared" if len(groups) == 1 else "shared in part", said, together[0][1].pid)
    return None


def common(groups: t.Mapping[str, t.Sequence[ContainerProcess]]) -> str:
    """The namespace that all should have: that of the pod's infra container, else the one with the most containers."""
    infra = next((space for space, found in groups.items() if any(one.container.endswith(INFRA) for one in found)), "")
    return infra or max(groups, key=lambda space: len(groups[space]))


def cause(one: ContainerProcess) -> str:
    """A container with its process, and since when and by what it runs."""
    since = f", since {one.started}" if one.started else ""
    by = f"by {one.unit}" if one.unit.endswith(".service") else "by Podman, outside a service"
    return f"{one.container} (PID {one.pid}{since}, started {by})"
