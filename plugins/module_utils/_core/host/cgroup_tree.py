# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# This module is private to the collection corral.node.
"""All control groups of a machine that may have their own CPUs (cgroup v2), as input of model/plan/kernel_cpusets.py."""

from __future__ import annotations

import typing as t

from ..model.plan import kernel_cpusets as oracle
from ..model.plan.kernel_cpusets import MEMBER, NONE, PARTITION, ROOT, Cgroup, CpuSet, Machine, parent
from ..model.plan.plan import Step
from ..model.profile.schema_types import EXCLUSIVE_PREFIX
from ..model.systemd.unit_group import group_of
from ..model.systemd.unit_property import control_file
from ..model.values.records import NamedTuple
from ..model.workload.grants import is_exclusive
from . import cgroup, systemd
from .files import Host


class Tree(NamedTuple):
    """The machine in the form of kernel_cpusets.py, and the paths of the control groups with processes."""

    machine: Machine
    populated: frozenset[str]


def observe(host: Host) -> Tree:
    """The tree of all control groups with a cpuset, and of the top-level groups without a cpuset.

    The tree also has the stopped exclusive slices with their configured CPUs: systemd may start such a slice at any moment. Below the top
    level, control groups without a cpuset are left out: such a group can only have CPUs of its parent.
    """
    rest = cgroup.rest(host)
    groups: dict[str, Cgroup] = {}
    effective: dict[str, CpuSet] = {}
    populated: set[str] = set()
    pending = [*host.folders(cgroup.ROOT)]
    for path in pending:  # the loop appends to the list
        directory = f"{cgroup.ROOT}/{path}"
        requested = cgroup.cpu_list(host.read(f"{directory}/cpuset.cpus"))
        text = (host.read(f"{directory}/cpuset.cpus.partition") or "").split() or [MEMBER]
        groups[path] = Cgroup(requested or NONE, text[0], len(text) == 1 and text[0] != MEMBER)
        exclusive = NONE if is_exclusive(path) else cgroup.exclusive(host, directory)
        if exclusive and groups[path].valid:
            groups[path] = groups[path]._replace(cpus=exclusive)
        elif exclusive:  # The control group is no partition yet, but can become a partition at any moment.
            groups[path] = Cgroup(exclusive | groups[path].cpus, PARTITION, None)
        effective[path] = cgroup.cpu_list(host.read(f"{directory}/cpuset.cpus.effective")) or NONE
        if cgroup.populated_at(host, directory):
            populated.add(path)
        if "cpuset" in cgroup.delegated(host, directory):
            pending += [f"{path}/{name}" for name in host.folders(directory)]
    for unit in filter(is_exclusive, systemd.slices_with_dropins(host, EXCLUSIVE_PREFIX)):
        runs = unit in groups and (groups[unit].cpus or unit in populated)
        settings = systemd.unit_settings(host, unit, "AllowedCPUs") if not runs else []
        cpus = systemd.cpus_at_start(unit, settings)
        if cpus:
            groups[unit] = Cgroup(cpus)
    online = cgroup.cpu_list(host.read("/sys/devices/system/cpu/online")) or rest
    given = given_out(groups)
    # The online CPUs that neither a partition nor the root has: the kernel keeps these CPUs from all control groups.
    lost = online - rest - given.get(ROOT, NONE)
    for path in doubtful(groups, effective, rest, online):
        groups[path] = groups[path]._replace(valid=None)
    way = oracle.way_of(host.read("/proc/sys/kernel/osrelease") or "")
    return Tree(Machine(groups, online, way, lost), frozenset(populated))


def at_start(host: Host, steps: t.Iterable[Step]) -> dict[str, CpuSet]:
    """The CPUs of each stopped slice that ``steps`` start, by the path of its control group: AllowedCPUs= of all files of the unit."""
    started = (step.target for step in steps if step.kind == "unit" and step.value == "start")
    stopped = [unit for unit in started if unit.endswith(".slice") and not runs(host, unit)]
    merged = {group_of(unit): systemd.merged_cpus(systemd.unit_settings(host, unit, "AllowedCPUs")) for unit in stopped}
    return {path: cpus for path, cpus in merged.items() if cpus}


def hiding(host: Host, units: t.Iterable[str]) -> list[str]:
    """The existing files in which a persistent ``systemctl set-property`` keeps AllowedCPUs= of these units."""
    return [file for file in (control_file(unit, "AllowedCPUs", runtime=False) for unit in units) if host.exists(file)]


def runs(host: Host, unit: str) -> bool:
    """Whether a slice runs. A control group alone is no proof: set-property makes a group without requested CPUs for a stopped slice."""
    return cgroup.populated(host, unit) or bool(cgroup.cpus(host, unit).requested)


def doubtful(
    groups: t.Mapping[str, Cgroup], effective: t.Mapping[str, CpuSet], rest: CpuSet, online: CpuSet
) -> list[str]:
    """The partitions that the kernel reports as valid, although a requested CPU is missing or other processes may run on the CPUs."""
    given = given_out(groups)
    users: dict[int, set[str]] = {cpu: {ROOT} for cpu in rest}
    for path, cpus in effective.items():
        top = path.partition("/")[0]
        for cpu in cpus:
            users.setdefault(cpu, set()).add(top)
    return [
        path
        for path, group in groups.items()
        if group.valid
        if ("/" not in path and any(user != path for cpu in group.cpus for user in users.get(cpu, ())))
        or not group.cpus & online
        or effective[path] != (group.cpus & online) - given.get(path, NONE)
    ]


def given_out(groups: t.Mapping[str, Cgroup]) -> dict[str, CpuSet]:
    """The CPUs of valid partitions, by the path of the partitions' parent."""
    given: dict[str, set[int]] = {}
    for path, group in groups.items():
        if group.valid:
            given.setdefault(parent(path), set()).update(group.cpus)
    return {path: frozenset(cpus) for path, cpus in given.items()}
