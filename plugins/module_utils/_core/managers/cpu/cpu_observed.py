# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# This module is private to the collection corral.node.
"""The observed slice tree, and the wanted CPUs of the tree."""

from __future__ import annotations

import typing as t

from ...host import cgroup, systemd
from ...host.files import Host
from ...host.workload import workload_state
from ...model.cpu import partitions, slices
from ...model.cpu.partitions import MEMBER
from ...model.cpu.unmanaged_groups import Unmanaged
from ...model.profile.schema_types import EXCLUSIVE_PREFIX, is_own
from ...model.systemd import unit_property
from ...model.systemd.unit_group import group_of
from ...model.systemd.unit_property import Setting, dropin
from ...model.values import cpuset
from ...model.values.records import NamedTuple
from ...model.workload.grants import is_exclusive, workload_of

NAME = slices.MANAGER
TARGET = "slices.target"
IN_BOOT = "StartupAllowedCPUs"
CPUSET = "cpuset"  # the name of the controller


class UnitState(NamedTuple):
    """One slice or scope as observed."""

    exists: bool
    cpus: cgroup.Cpus
    partition: t.Optional[str]  # None if the kernel has no such file
    dropin: t.Optional[str]  # the text of Corral's drop-in
    settings: tuple[Setting, ...]  # the values that files assign to AllowedCPUs=
    populated: bool = True  # read only for slices with exclusive CPUs
    by_systemd: tuple[Setting, ...] = ()  # the values that files assign to CPUSetPartition=
    mask: str = ""  # the file that masks the unit
    in_boot: tuple[Setting, ...] = ()  # the values that files assign to StartupAllowedCPUs=
    # The following fields are read only for exclusive slices that are no longer wanted.
    processes: tuple[str, ...] = ()  # some of the slice's processes
    awaited: bool = False  # whether a unit that runs elsewhere is to start in the slice
    has_holder: bool = False  # whether the unit for the grant of the slice's workload is active, or about to be

    def now(self) -> t.Optional[frozenset[int]]:
        """The CPUs of the unit's processes; None if the unit does not exist, or is empty and requests no CPUs."""
        if not self.exists:
            return None
        if self.populated or self.cpus.requested or self.partition not in (None, MEMBER):
            return self.cpus.effective or frozenset()
        return None

    @property
    def runs(self) -> bool:
        """Whether the unit runs. An empty control group without requested CPUs is no proof: set-property makes such a group."""
        return self.exists and (self.populated or bool(self.cpus.requested))

    def at_start(self, unit: str) -> frozenset[int]:
        """The CPUs that set-property and Corral's drop-in give the unit at its start; empty if the unit runs."""
        return cpuset.EMPTY if self.runs else systemd.cpus_at_start(unit, self.settings)


class Observation(NamedTuple):
    """The slice tree as observed. ``rest``: the CPUs that the kernel leaves to control groups without a cpuset. ``foreign``: the CPUs of
    partitions that are not Corral's. ``target``: Corral's drop-in of slices.target. ``stopped``: unmanaged units that do not run and
    would start with CPUs that Corral set earlier. ``without_cpusets``: slices with Corral's drop-ins have no cpuset (controller off).
    """

    units: dict[str, UnitState]
    unmanaged: tuple[Unmanaged, ...]
    rest: frozenset[int]
    foreign: frozenset[int]
    target: t.Optional[str]
    stopped: t.Mapping[str, frozenset[int]]
    without_cpusets: bool = False


class Wanted(NamedTuple):
    """The CPUs of each unit: ``now`` in force, and ``persistent`` in files. Only ``now`` has the CPUs of workloads with ``hold: running``.

    ``partitions``: the kind of each slice that is to be a partition. ``confine``: whether unmanaged units get the shared CPUs. ``at_boot``:
    the CPUs of isolcpus=. ``by_run``: whether a workload has ``hold: running``, so that ``now`` may differ from the files.
    """

    now: dict[str, frozenset[int]]
    persistent: dict[str, frozenset[int]]
    reserved: frozenset[int]
    partitions: dict[str, str]
    online: frozenset[int]
    confine: bool = False
    at_boot: frozenset[int] = cpuset.EMPTY
    by_run: bool = False

    @property
    def exclusive(self) -> dict[str, frozenset[int]]:
        """The CPUs that the exclusive slices are to have in force."""
        return {unit: cpus for unit, cpus in self.now.items() if is_exclusive(unit)}


def observe(host: Host, wanted: Wanted, changed: t.Iterable[str]) -> Observation:
    """The slice tree as observed: by files of the kernel and systemd, without a command. ``changed``: the units that Corral gave CPUs."""
    top = cgroup.top_level(host)
    left = slices.left_over(wanted.now, dict.fromkeys((*top, *systemd.slices_with_dropins(host, EXCLUSIVE_PREFIX))))
    observed = list(dict.fromkeys((*wanted.now, *wanted.persistent, *left)))
    files = systemd.UnitFiles(host, observed)
    units = {
        unit: UnitState(
            cgroup.exists(host, unit),
            cgroup.cpus(host, unit),
            cgroup.partition(host, unit),
            files.text(dropin(unit, NAME)),
            tuple(files.settings(unit, "AllowedCPUs")),
            not is_exclusive(unit) or cgroup.populated(host, unit),
            tuple(files.settings(unit, partitions.SYSTEMD_PROPERTY)),
            "" if is_own(unit) or cgroup.exists(host, unit) else files.mask(unit),
            () if is_own(unit) else tuple(files.settings(unit, IN_BOOT)),
            cgroup.processes_shown(host, cgroup.path_of(unit)) if unit in left else (),
            unit in left and bool(workload_state.unit_to_be_in(host, unit)),
            unit in left and workload_state.run_of(host, workload_of(unit) or "") is not None,
        )
        for unit in observed
    }
    rest = cgroup.rest(host)
    unmanaged = tuple(unmanaged_group(host, name) for name in top if name not in units)
    foreign = cgroup.foreign_partitions(host, units)
    # An empty control group that requests no CPUs does not show that its unit runs (see UnitState.runs).
    running = {*units, *(one.name for one in unmanaged if one.populated or one.requested)}
    stopped = {unit: cpus_set_live(host, unit) for unit in changed if unit not in running and group_of(unit) == unit}
    stopped = {unit: cpus for unit, cpus in stopped.items() if cpus}
    # systemd switches the controller on for the first unit with AllowedCPUs=, and does not check later whether the controller is on.
    lacking = any(one.exists and one.dropin is not None and one.cpus.requested is None for one in units.values())
    lacking = lacking and cgroup.offers(host, CPUSET) and CPUSET not in cgroup.delegated(host, cgroup.ROOT)
    return Observation(units, unmanaged, rest, foreign, host.read(dropin(TARGET, NAME)), stopped, lacking)


def cpus_set_live(host: Host, unit: str) -> frozenset[int]:
    """The CPUs in systemd's live file of a unit, with which the unit starts again. systemd removes the live file of a transient unit."""
    live = unit_property.control_file(unit, "AllowedCPUs", runtime=True)
    return unit_property.cpus_of_file(live, host.read(live))


def unmanaged_group(host: Host, name: str) -> Unmanaged:
    """A top-level control group that the profile does not name."""
    path = f"{cgroup.ROOT}/{name}"
    cpus, populated = cgroup.cpus_at(host, path), cgroup.populated_at(host, path)
    requested, exclusive = cpus.requested or frozenset(), cgroup.exclusive(host, path)
    shown = cgroup.processes_shown(host, path) if populated else ()
    settings = systemd.unit_settings(host, name, "AllowedCPUs") if requested else []
    # If the unit was in the profile before, this plan removes Corral's own drop-in.
    persistent = [item for item in unit_property.persistent(settings) if item.file != dropin(name, NAME)]
    file = persistent[-1].file if persistent and persistent[-1].value else ""
    partition = (host.read(f"{path}/{partitions.PROPERTY}") or "").strip() if requested or exclusive else ""
    is_partition = partition in (partitions.ROOT, partitions.UNBALANCED)
    requested = exclusive or requested if is_partition else exclusive | requested
    return Unmanaged(name, cpus.effective or frozenset(), requested, populated, shown, file, is_partition, exclusive)
