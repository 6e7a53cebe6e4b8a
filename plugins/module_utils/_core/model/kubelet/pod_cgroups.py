# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# This module is private to the collection corral.node.
"""The pod and container of a control group, from the names that the kubelet's cgroup drivers and the runtimes use.

systemd: kubepods-burstable-podUID.slice/cri-containerd-ID.scope, the UID's dashes as underscores; cgroupfs: kubepods/burstable/podUID/ID
(pkg/kubelet/cm/cgroup_manager_linux.go; containerd, CRI-O, cri-dockerd).
"""

from __future__ import annotations

import re
import typing as t

from ..values.records import NamedTuple

ID = "[0-9a-f]{64}"
BY_SYSTEMD = re.compile(rf"(?:^|/)[^/]*kubepods(?:-[^/]+)?-pod([^/]+)\.slice/(?:[a-z-]+-)?({ID})(?:\.scope)?$")
BY_CGROUPFS = re.compile(rf"(?:^|/)kubepods(?:/burstable|/besteffort)?/pod([^/]+)/(?:crio-)?({ID})$")
LOG = re.compile(rf"(?P<pod>[^_]+)_(?P<namespace>[^_]+)_(?P<name>.+)-(?P<id>{ID})\.log$")
MONITORS = "conmon"


class Container(NamedTuple):
    """A container of a pod: the pod's UID, the container's id and CPUs. ``pod_name`` (namespace/name) and ``name`` are empty if unknown.

    ``path`` is the full path of the container's control group.
    """

    pod: str
    id: str
    cpus: frozenset[int] = frozenset()
    pod_name: str = ""
    name: str = ""
    path: str = ""


def container_of(path: str) -> t.Optional[Container]:
    """The container whose control group has this path; None for any other control group."""
    if MONITORS in path.rpartition("/")[2]:
        return None
    found = BY_SYSTEMD.search(path)
    if found:
        return Container(found.group(1).replace("_", "-"), found.group(2))
    found = BY_CGROUPFS.search(path)
    return Container(found.group(1), found.group(2)) if found else None


def named_by_log(name: str) -> t.Optional[Container]:
    """The container that a link in /var/log/containers names (POD_NAMESPACE_CONTAINER-ID.log); None for any other name."""
    found = LOG.match(name)
    if not found:
        return None
    return Container("", found["id"], pod_name=f"{found['namespace']}/{found['pod']}", name=found["name"])
