# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# This module is private to the collection corral.node.
"""All control groups of a machine that may have CPUs of their own (cgroup v2), as input of the validator's oracle."""

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
    """The machine as input of the oracle, and the control groups in it that hold processes."""

    machine: Machine
    populated: frozenset[str]


def observe(host: Host) -> Tree:
    """Every control group that has a cpuset, and those at the top without one.

    An exclusive slice that does not run is among them with the CPUs that were set for it: systemd may start it at any moment.
    Where a control group gives its children no cpuset, none of them can have CPUs that it lacks.
    """
    rest = cgroup.rest(host)
    found: dict[str, Cgroup] = {}
    effective: dict[str, CpuSet] = {}
    populated: set[str] = set()
    pending = [*host.folders(cgroup.ROOT)]
    for path in pending:  # The list grows in the loop.
        directory = f"{cgroup.ROOT}/{path}"
        requested = cgroup.cpu_list(host.read(f"{directory}/cpuset.cpus"))
        text = (host.read(f"{directory}/cpuset.cpus.partition") or "").split() or [MEMBER]
        found[path] = Cgroup(requested or NONE, text[0], len(text) == 1 and text[0] != MEMBER)
        exclusive = NONE if is_exclusive(path) else cgroup.exclusive(host, directory)
        if exclusive and found[path].valid:
            found[path] = found[path]._replace(cpus=exclusive)
        elif exclusive:  # No sibling is a partition with these; it may become one at any moment.
            found[path] = Cgroup(exclusive | found[path].cpus, PARTITION, None)
        effective[path] = cgroup.cpu_list(host.read(f"{directory}/cpuset.cpus.effective")) or NONE
        if cgroup.populated_at(host, directory):
            populated.add(path)
        if "cpuset" in cgroup.delegated(host, directory):
            pending += [f"{path}/{name}" for name in host.folders(directory)]
    for unit in filter(is_exclusive, systemd.slices_with_dropins(host, EXCLUSIVE_PREFIX)):
        runs = unit in found and (found[unit].cpus or unit in populated)
        settings = systemd.unit_settings(host, unit, "AllowedCPUs") if not runs else []
        cpus = systemd.cpus_at_start(unit, settings)
        if cpus:
            found[unit] = Cgroup(cpus)
    online = cgroup.cpu_list(host.read("/sys/devices/system/cpu/online")) or rest
    given = given_out(found)
    # Neither a partition nor the root has these: the kernel keeps them from all control groups.
    lost = online - rest - given.get(ROOT, NONE)
    for path in doubtful(found, effective, rest, online):
        found[path] = found[path]._replace(valid=None)
    way = oracle.way_of(host.read("/proc/sys/kernel/osrelease") or "")
    return Tree(Machine(found, online, way, lost), frozenset(populated))


def at_start(host: Host, steps: t.Iterable[Step]) -> dict[str, CpuSet]:
    """By path, the CPUs of stopped slices that the steps start, as their files have them, those of other authors as well."""
    started = (step.target for step in steps if step.kind == "unit" and step.value == "start")
    stopped = [unit for unit in started if unit.endswith(".slice") and not runs(host, unit)]
    found = {group_of(unit): systemd.merged_cpus(systemd.unit_settings(host, unit, "AllowedCPUs")) for unit in stopped}
    return {path: cpus for path, cpus in found.items() if cpus}


def hiding(host: Host, units: t.Iterable[str]) -> list[str]:
    """The files of a persistent set-property of these units' CPUs, as far as they exist."""
    return [file for file in (control_file(unit, "AllowedCPUs", runtime=False) for unit in units) if host.exists(file)]


def runs(host: Host, unit: str) -> bool:
    """Whether a slice runs, as far as its control group shows: set-property makes one for a slice that does not, which requests nothing."""
    return cgroup.populated(host, unit) or bool(cgroup.cpus(host, unit).requested)


def doubtful(
    found: t.Mapping[str, Cgroup], effective: t.Mapping[str, CpuSet], rest: CpuSet, online: CpuSet
) -> list[str]:
    """The partitions that the kernel reports as valid, although other processes may run on their CPUs or they lack CPUs that they request."""
    given = given_out(found)
    users: dict[int, set[str]] = {cpu: {ROOT} for cpu in rest}
    for path, cpus in effective.items():
        top = path.partition("/")[0]
        for cpu in cpus:
            users.setdefault(cpu, set()).add(top)
    return [
        path
        for path, one in found.items()
        if one.valid
        if ("/" not in path and any(user != path for cpu in one.cpus for user in users.get(cpu, ())))
        or not one.cpus & online
        or effective[path] != (one.cpus & online) - given.get(path, NONE)
    ]


def given_out(found: t.Mapping[str, Cgroup]) -> dict[str, CpuSet]:
    """The CPUs that the partitions directly in a control group took, as the kernel says."""
    given: dict[str, set[int]] = {}
    for path, one in found.items():
        if one.valid:
            given.setdefault(parent(path), set()).update(one.cpus)
    return {path: frozenset(cpus) for path, cpus in given.items()}
