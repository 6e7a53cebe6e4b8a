# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# This module is private to the collection corral.node.
"""The CPUs that the node's kubelet keeps off pods, and why its files may name other CPUs."""

from __future__ import annotations

import typing as t

from ...model.kubelet import pod_findings, state_files
from ...model.kubelet.state_files import StateRefused
from ...model.values import cpuset
from ...model.values.records import NamedTuple
from .. import cgroup, state
from ..agent import other_agents
from ..files import Host
from . import kubelet_node, kubelet_state


class Bound(NamedTuple):
    """The CPUs that the kubelet of kubelet.service keeps off pods, whether or not the kubelet runs.

    ``reserved``: the CPUs that the kubelet's files reserve, without ``pods``. ``pods``: the CPUs that the kubelet's state file has for pods
    (None: the state file does not say). ``is_strict``: the files let no pod run on reserved CPUs; ``pods`` then has the CPUs of all pods,
    else only the CPUs that a single pod has alone. ``unread``: why the files cannot be read. ``doubt``: why the kubelet may reserve other
    CPUs until its next start; ``file`` shows the reason. ``newer``: the files that the running kubelet has not read.
    """

    reserved: frozenset[int]
    pods: t.Optional[frozenset[int]]
    is_strict: bool
    unread: str = ""
    doubt: str = ""
    file: str = ""
    newer: tuple[str, ...] = ()


def bound(host: Host) -> Bound:
    """The CPUs that the kubelet keeps off pods, by its files and by its state file.

    The files alone are no proof: the running kubelet may have read a file that is gone by now, and no file's time shows such a loss.
    """
    config = other_agents.configured_kubelet(host)
    is_strict = config.policy == "static" and config.strict
    file = kubelet_state.cpu_file(kubelet_node.files(host, kubelet_node.of_unit(host)).root_dir)
    pods = of_pods(host, file, is_strict=is_strict)
    reserved = config.reserved - (pods or cpuset.EMPTY)
    found = Bound(reserved, pods, is_strict, config.unread, file=file, newer=config.newer)
    if config.newer:
        return found._replace(
            doubt=f"{config.newer[0]} was changed after the running kubelet began", file=config.newer[0]
        )
    if pods is None and is_strict and host.exists(file):
        return found._replace(doubt=f"{file} does not say which CPUs it gives to pods")
    theirs = config.reserved - reserved
    return found._replace(doubt=f"{file} has CPUs {cpuset.format(theirs)} for pods") if theirs else found


def of_pods(host: Host, file: str, *, is_strict: bool) -> t.Optional[frozenset[int]]:
    """The CPUs that the state file of a kubelet has for pods (Bound.pods); None if the file does not say.

    With the policy static the kubelet cannot reserve these CPUs.
    """
    text = host.read(file)
    if not text:
        return None
    try:
        found = state_files.restore_cpus(text, "static", pod_level=True)
    except StateRefused:
        return None
    return (found.default if is_strict else cpuset.EMPTY).union(*pod_findings.exclusive_of(found).values())


def for_pools(host: Host, wanted: frozenset[int]) -> frozenset[int]:
    """The CPUs that the pools may have; any other CPU could be a pod's own. ``wanted`` are the CPUs of the profile's pools.

    The pools may have the CPUs that the files reserve. If the files leave a doubt, the pools may have the reserved CPUs in published(), or
    all CPUs of published() if no reserved CPU is there. If neither the files nor published() have a CPU, the pools may have ``wanted``
    without the pods' CPUs.
    """
    found = bound(host)
    pods = found.pods or cpuset.EMPTY
    known = published(host) - pods if found.unread or found.doubt else cpuset.EMPTY
    return (known & found.reserved) or known or found.reserved or wanted - pods


def published(host: Host) -> frozenset[int]:
    """The CPUs that were kept off pods when the pools were published last; if this file is lost, the CPUs of the pools' slices."""
    known = state.read_json(host, state.PUBLISHED[1])
    data = known if isinstance(known, dict) else {}
    texts = [str(data.get(name) or "") for name in ("reserved", "isolated")]
    if not any(texts):
        from ...model.workload.grants import ISOLATED_SLICE

        texts = [host.read(f"{cgroup.path_of(unit)}/cpuset.cpus") or "" for unit in ("system.slice", ISOLATED_SLICE)]
    return frozenset[int]().union(*(cgroup.cpu_list(text) or () for text in texts))
