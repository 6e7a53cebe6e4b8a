# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# This module is private to the collection corral.node.
"""Set the kubelet's shared CPUs again for containers that may also run on exclusive CPUs: corral kubelet --mend-shared.

The kubelet corrects such containers in each reconcile period, but not while it is stopped. No other run or tick of Corral corrects them.
"""

from __future__ import annotations

import posixpath

from ..host import cgroup, systemd
from ..host.files import Host
from ..host.kubelet import kubelet_node
from ..model.kubelet import pod_findings
from ..model.kubelet.inspected import Mended
from ..model.kubelet.pod_cgroups import Container
from ..model.values import cpuset
from . import kubelet_inspection


def mend(host: Host) -> list[Mended]:
    """Set the shared CPUs of the kubelet's state file for each container that may also run on exclusive CPUs. The caller holds the lock.

    Nothing is set if the kubelet would refuse to start with one of its state files. Raises CorralError if the node has no kubelet.
    """
    found = kubelet_inspection.inspect(host)
    if found.cpus is None or not all(one.starts for one in found.files) or not found.cpus.default:
        return []
    wanted = found.cpus.default
    listed = pod_findings.strayed(found.cpus, kubelet_node.containers(host))
    return [Mended(one, wanted, error_of(host, one, wanted)) for one in listed]


def error_of(host: Host, one: Container, wanted: frozenset[int]) -> str:
    """Set the CPUs of the container ``one`` to ``wanted``. Returns the error; an empty string on success.

    The CPUs of a scope are set through systemd, which would otherwise restore the scope's former CPUs. With cgroup v1 the CPUs are written
    directly: on v1 systemd accepts AllowedCPUs= and sets nothing.
    """
    text, unit = cpuset.format(wanted), posixpath.basename(one.path)
    if unit.endswith(".scope") and cgroup.unified(host):
        answer = systemd.set_property(host, unit, f"AllowedCPUs={text}")
        if answer.code:
            return systemd.complaint(answer.err, answer.out)
    else:
        try:
            host.write_value(f"{one.path}/cpuset.cpus", text)
        except OSError as error:
            return f"{one.path}/cpuset.cpus: {error.strerror}"
    now = cgroup.cpu_list(host.read(f"{one.path}/cpuset.cpus")) or frozenset()
    return "" if now == wanted else f"{text} was set, and the kernel has {cpuset.format(now) or 'none'}"
