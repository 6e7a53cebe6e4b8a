# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# This module is private to the collection corral.node.
"""All control groups of a machine that may have CPUs of their own (cgroup v2), as the validator's oracle takes them."""

from __future__ import annotations

from ..model.plan import kernel_cpusets as oracle
from ..model.plan.kernel_cpusets import MEMBER, NONE, ROOT, Cgroup, CpuSet, Machine, parent
from ..model.values.records import NamedTuple
from . import cgroup
from .files import Host


class Tree(NamedTuple):
    """The machine as the oracle takes it, and the control groups in it that hold processes."""

    machine: Machine
    populated: frozenset[str]


def look(host: Host) -> Tree:
    """Every control group that has a cpuset, and those at the top without one.

    Where a control group gives the ones in it no cpuset, none of them can have CPUs that it has not.
    """
    rest = cgroup.rest(host)
    found: dict[str, Cgroup] = {}
    effective: dict[str, CpuSet] = {}
    populated: set[str] = set()
    pending = host.folders(cgroup.ROOT)
    while pending:
        path = pending.pop(0)
        directory = f"{cgroup.ROOT}/{path}"
        asked = cgroup.cpu_list(host.read(f"{directory}/cpuset.cpus"))
        text = (host.read(f"{directory}/cpuset.cpus.partition") or MEMBER).split()
        found[path] = Cgroup(asked or NONE, text[0], len(text) == 1 and text[0] != MEMBER)
        effective[path] = cgroup.cpu_list(host.read(f"{directory}/cpuset.cpus.effective")) or NONE
        if cgroup.populated_at(host, directory):
            populated.add(path)
        if "cpuset" in cgroup.delegated(host, directory):
            pending += [f"{path}/{name}" for name in host.folders(directory)]
    online = cgroup.cpu_list(host.read("/sys/devices/system/cpu/online")) or rest
    valid = {path: one.cpus for path, one in found.items() if one.valid}
    given: dict[str, CpuSet] = {}
    for path, cpus in valid.items():
        given[parent(path)] = given.get(parent(path), NONE) | cpus
    # No partition has these, and the root has not either: the kernel keeps them from all control groups.
    lost = online - rest - given.get(ROOT, NONE)
    for path, cpus in valid.items():
        others = (other for name, other in effective.items() if not f"{name}/".startswith(f"{path}/"))
        shared = "/" not in path and cpus & rest.union(*others)
        own = cpus & online
        if shared or not own or effective[path] != own - given.get(path, NONE):
            # The kernel says so, and others run there all the same, or it has not what it asks for.
            found[path] = found[path]._replace(valid=None)
    way = oracle.way_of(host.read("/proc/sys/kernel/osrelease") or "")
    return Tree(Machine(found, online, way, lost), frozenset(populated))
