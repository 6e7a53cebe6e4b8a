# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# This module is private to the collection corral.node.
"""The limits of each container of a pod, derived as in the kubelet (1.36, kuberuntime_container_linux.go: generateLinuxContainerResources).

The limits apply to the container's own control group (cgroup-v2.rst) within the pod's slice.
"""

from __future__ import annotations

import typing as t
from fnmatch import fnmatchcase

from ..profile.profile_workloads import APP, SIDECAR
from ..systemd import unit_limits
from ..values import cpuset
from ..values.records import NamedTuple
from . import qos
from .grants import Grant
from .resource_requirements import ResourceRequirements
from .resources import MEMORY

SCORE = "oom_score_adj"


class ContainerLimits(NamedTuple):
    """The wanted limits of a container. ``files``: for each file of the container's control group, the value in the form of shown().
    ``score``: the oom_score_adj of the container's processes; None if the machine's memory is unknown.
    """

    files: t.Mapping[str, str]
    score: t.Optional[int]


def of_pod(need: ResourceRequirements, grant: Grant, capacity: t.Optional[int]) -> dict[str, ContainerLimits]:
    """The limits of a pod's declared containers by name; ``capacity`` is the machine's memory in bytes.

    A container with exclusive CPUs has no quota. In a pod on the shared pool no container has its own cpuset.
    """
    own = dict(grant.containers)
    mains = [dict(main.requests).get(MEMORY, 0) for main in need.workload.containers if main.role == APP]
    limits = {}
    for container in need.workload.containers:
        cpus = own.get(container.name)
        properties = unit_limits.of(
            need._replace(requests=container.requests, limits=container.limits), bool(cpus), None
        )
        if cpus:
            properties["AllowedCPUs"] = cpuset.format(cpus)
        files = {unit_limits.FILES[name]: unit_limits.kernel(name, value) for name, value in properties.items()}
        score = None
        if capacity is not None or need.qos != qos.BURSTABLE:
            smallest = min(mains, default=None) if container.role == SIDECAR else None
            request = dict(container.requests).get(MEMORY, 0)
            score = qos.oom_score_adj(need.qos, request, capacity or 1, main_request=smallest)
        limits[container.name] = ContainerLimits(files, score)
    return limits


def hook_words(limits: ContainerLimits) -> list[str]:
    """The limits as arguments of the hook (cli/container_hook.py): FILE=VALUE."""
    rows = [f"{file}={written(file, value)}" for file, value in limits.files.items()]
    return rows if limits.score is None else [*rows, f"{SCORE}={limits.score}"]


def shown(file: str, text: str) -> str:
    """The value in a control group's file, in a form that is the same for equal values."""
    name = next(name for name, one in unit_limits.FILES.items() if one == file)
    return unit_limits.meaning(name, text)


def is_no_limit(file: str, value: str) -> bool:
    """Whether a value is no limit, or the default weight."""
    return value == "max" or (file == unit_limits.FILES["CPUWeight"] and value == unit_limits.DEFAULT_WEIGHT)


def written(file: str, value: str) -> str:
    """The text that is written to a file for a value; the kernel then shows the same text."""
    return f"max {unit_limits.PERIOD}" if file == unit_limits.FILES["CPUQuota"] and value == "max" else value


def declared_name(container: str, pod: str, names: t.Iterable[str]) -> t.Optional[str]:
    """The declared name of a container of Podman; None if no declared name fits.

    ``container`` is Podman's name: the declared name, or POD-NAME after podman kube play. ``pod`` is the pattern of the pod's name.
    """
    candidates = [name for name in names if container == name or fnmatchcase(container, f"{pod}-{name}")]
    return max(candidates, key=len, default=None)
