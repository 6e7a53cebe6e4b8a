# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# This module is private to the collection corral.node.
"""Shared process namespaces: whether the containers of a workload share a PID namespace, as in a pod of the kubelet.

With ``share_process_namespace`` all containers are in the same namespace, else each container has its own namespace (pid_namespaces(7)).
The node's namespace is always wrong: a container in the node's namespace sees all processes.
"""

from __future__ import annotations

import typing as t

from ..profile.profile_workloads import Workload
from ..tenants.tenant import Tenant, named
from ..values.records import NamedTuple

INFRA = "-infra"  # the ending of the name that Podman gives the container with a pod's namespaces


class ContainerProcess(NamedTuple):
    """The first process of a container. ``namespace``: its PID namespace (empty: unreadable). ``unit``: the unit of the container's monitor
    (empty: no unit). ``started``: the start time of the process, as text (empty: unknown).
    """

    container: str
    pid: int
    namespace: str
    unit: str = ""
    started: str = ""


class Difference(NamedTuple):
    """How containers differ from the declaration. ``pid``: of the first container in ``reason``. ``known``: Corral read all namespaces."""

    actual: str
    reason: str
    pid: int
    known: bool = True


def wanted(workload: Workload, tenant: str, tenants: t.Iterable[Tenant]) -> t.Optional[bool]:
    """Whether the containers of a workload have to share a PID namespace (None: both are right). A tenant can forbid a shared namespace."""
    own = named(tenants, tenant)
    return False if own is not None and not own.share_process_namespace else workload.share_process_namespace


def difference(shared: bool, processes: t.Sequence[ContainerProcess], node: str) -> t.Optional[Difference]:
    """How the processes differ from the declared ``shared``; None without a difference. ``node`` is the node's PID namespace."""
    unread = [process for process in processes if not process.namespace]
    if unread:
        names = ", ".join(process.container for process in unread)
        return Difference(names, f"the PID namespace of {names} cannot be read", unread[0].pid, known=False)
    of_node = [process for process in processes if process.namespace == node]
    if of_node:
        said = "; ".join(f"{cause(process)} has the host's PID namespace" for process in of_node)
        return Difference("the host's", said, of_node[0].pid)
    groups: dict[str, list[ContainerProcess]] = {}
    for process in processes:
        groups.setdefault(process.namespace, []).append(process)
    if shared and len(groups) > 1:
        kept = common(groups)
        apart = [process for space, members in groups.items() if space != kept for process in members]
        said = "; ".join(f"{cause(process)} does not share that of {groups[kept][0].container}" for process in apart)
        return Difference("shared in part" if len(groups) < len(processes) else "separate", said, apart[0].pid)
    together = [members for members in groups.values() if len(members) > 1]
    if not shared and together:
        said = "; ".join(
            f"{cause(process)} shares that of {members[0].container}" for members in together for process in members[1:]
        )
        return Difference("shared" if len(groups) == 1 else "shared in part", said, together[0][1].pid)
    return None


def common(groups: t.Mapping[str, t.Sequence[ContainerProcess]]) -> str:
    """The namespace that all containers should have: the infra container's, else the namespace with the most containers."""
    for space, members in groups.items():
        if any(process.container.endswith(INFRA) for process in members):
            return space
    return max(groups, key=lambda space: len(groups[space]))


def cause(process: ContainerProcess) -> str:
    """A container as text for a message: its process, when the process started, and what started it."""
    since = f", since {process.started}" if process.started else ""
    by = f"by {process.unit}" if process.unit.endswith(".service") else "by Podman, outside a service"
    return f"{process.container} (PID {process.pid}{since}, started {by})"
