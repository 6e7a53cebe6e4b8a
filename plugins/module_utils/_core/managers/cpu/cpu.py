# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# This module is private to the collection corral.node.
"""The cpu manager: the tree of slices that gives each pool its CPUs (cgroup v2, systemd.resource-control(5)).

Drop-ins keep the CPUs over a reboot, properties set them live, and partitions of the kernel (cgroup-v2.rst, cpuset.cpus.partition) make
them exclusive. The manager compares drop-ins, the kernel's effective CPUs and partitions with the wanted CPUs. The code for cgroup v1 is in
cpu_v1.py.
"""

from __future__ import annotations

import typing as t

from ...host import cgroup, systemd
from ...host.files import Host
from ...model.cpu import partitions, pools, slices, unmanaged_groups
from ...model.cpu.partitions import MEMBER
from ...model.plan import make_step
from ...model.plan.context import Context
from ...model.plan.places import Place, dropins
from ...model.plan.plan import CPUS, EMPTY_SLICES, FILES, RELEASE, UNCHANGEABLE, Change, Part, Step
from ...model.profile.profile import Cpu, Profile
from ...model.profile.profile_workloads import RUNNING
from ...model.profile.schema_types import AGENT_SLICE, CORRAL_SLICE, EXCLUSIVE_PREFIX, SHARED_PREFIX
from ...model.systemd import unit_property
from ...model.systemd.unit_file import unit_in
from ...model.systemd.unit_property import control_file, dropin
from ...model.values import cpuset
from ...model.workload import grants
from ...model.workload.grants import ISOLATED_SLICE, is_exclusive, workload_of
from ..manager import Manager
from . import cpu_moves
from .cpu_dropins import (
    dropin_change,
    in_boot_change,
    kept_by_others,
    next_start_change,
    override_change,
    target_change,
)
from .cpu_moves import CONTROLLER, Moves
from .cpu_observed import CPUSET, NAME, TARGET, Observation, UnitState, Wanted, observe

if t.TYPE_CHECKING:
    from ...model.profile.node_as_profile import ProfileFragment
    from ...model.topology.topology import Topology

SUBTREE_CONTROL = f"{cgroup.ROOT}/cgroup.subtree_control"
WRITES = (
    dropins(NAME),
    Place("property", r"[^/]+\.(slice|scope|service)", "AllowedCPUs=.*"),
    Place("unit", rf"({EXCLUSIVE_PREFIX}(?!isolated\.)|{SHARED_PREFIX})[^/]+\.slice", "stop", volatile=True),
    Place("unit", r"[^/]+\.slice", "start|stop"),
    Place(
        "partition", rf"{cgroup.ROOT}/{EXCLUSIVE_PREFIX}[^/]+\.slice/cpuset\.cpus\.partition", "member|root|isolated"
    ),
    # A shared or reserved slice may be a partition that was made by hand. No original: the partition ends with its control group.
    Place("partition", rf"{cgroup.ROOT}/[^/]+\.(slice|scope)/cpuset\.cpus\.partition", MEMBER, volatile=True),
    # No original: systemd itself also switches this controller on for slices with AllowedCPUs=.
    Place("controller", SUBTREE_CONTROL, r"\+cpuset", volatile=True),
    Place("cpuset", rf"{cgroup.CPUSETS}/(init\.scope|[^/]+\.slice)"),
)


def plan(host: Host, context: Context) -> Part:
    """The cpu manager's part of the plan; empty for a profile without ``cpu``."""
    cpu = context.profile.cpu
    if cpu is None:
        return Part((), frozenset())
    if not systemd.runs(host):
        return slices.unreadable("systemd does not run here, so no slice has CPUs of its own", cgroup.ROOT)
    now = slices.wanted_cpus(cpu, context.pools, context.grants)
    now = slices.with_agent(now, context.pools, cgroup.exists(host, AGENT_SLICE))
    if cgroup.unified(host):
        persistent = slices.wanted_cpus(cpu, context.persistent_pools, grants.persistent(context.grants))
        persistent = slices.with_agent(persistent, context.persistent_pools)
        at_boot = context.topology.isolated or cpuset.EMPTY
        kinds = partitions.wanted(cpu, now, at_boot)
        confine = cpu.unmanaged == "confine"
        needs = context.workloads.needs if context.workloads is not None else ()
        differs = any(now.get(unit, cpus) != cpus for unit, cpus in persistent.items())
        by_run = differs or any(need.cpus and need.workload.hold == RUNNING for need in needs)
        wanted = Wanted(now, persistent, context.pools.reserved, kinds, context.pools.online, confine, at_boot, by_run)
        part = decide(wanted, observe(host, wanted, context.original_cpus), context)
        small = small_pool(cpu, context)
        return part._replace(changes=(*part.changes, small)) if small else part
    from . import cpu_v1  # imported here: only nodes with cgroup v1 need the module

    return cpu_v1.plan(host, context, now)


def small_pool(cpu: Cpu, context: Context) -> t.Optional[Change]:
    """The item of a shared pool that is too small because CPUs went offline. Workloads keep their exclusive CPUs."""
    shared = pools.workload_cpus(context.pools)
    if not context.pools.exclusive or len(shared) >= cpu.min_shared:
        return None
    offline = cpuset.format(context.topology.offline_present)
    return Change(
        NAME, CORRAL_SLICE, "cpu.shared.min_cpus", f"{len(shared)} CPUs ({cpuset.format(shared)})", f"{cpu.min_shared} CPUs",
        f"CPUs {offline} are offline: bring them online, or stop a workload. Grants stay, and no start gets CPUs of its own",
        f"{cgroup.path_of(CORRAL_SLICE)}/cpuset.cpus", (), UNCHANGEABLE,
    )  # fmt: skip


def refused_for_boot(host: Host, context: Context) -> dict[str, str]:
    """The slices that cannot be partitions because of isolcpus=, each with the reason."""
    cpu = context.profile.cpu
    at_boot = context.topology.isolated or cpuset.EMPTY
    if cpu is None or not at_boot:
        return {}
    units = slices.wanted_cpus(cpu, context.pools, context.grants)
    found = {}
    for unit, kind in partitions.wanted(cpu, units, at_boot).items():
        state = partitions.PartitionState(True, cgroup.partition(host, unit), units[unit], frozenset())
        found[unit] = partitions.housekeeping_conflict(kind, state, at_boot)
    return {unit: reason for unit, reason in found.items() if reason}


def decide(wanted: Wanted, seen: Observation, context: Context) -> Part:
    """The changes that give the slice tree the wanted CPUs."""
    profile, seen = wanted, with_neighbours(wanted, seen, context)
    wanted = without_masked(without_foreign(wanted, seen.foreign & wanted.online), seen)
    moves = cpu_moves.plan_moves(wanted, seen, context)
    changes = [controller_change()] if seen.without_cpusets else []
    changes += slice_changes(wanted, seen)
    changes += partition_changes(wanted, seen, context, moves)
    changes += partitions_by_systemd(wanted, seen)
    ended = ended_changes(wanted, seen, context, moves)
    changes += ended
    changes += filter(None, [target_change(profile.persistent, seen)])
    changes += unmanaged_changes(wanted, seen, moves)
    ending = (step for change in ended if change.subject in moves.stopped for step in change.steps)
    baseline = [
        make_step.unit_property(unit, "AllowedCPUs", "", RELEASE)
        for unit in wanted.persistent
        if kept_by_others(unit, wanted, seen)
    ]
    return Part(
        cpu_moves.with_moves(changes, moves.writes, moves.starting, seen, wanted),
        owned_by(profile, seen, moves.placed),
        manager=NAME,
        baseline=tuple(baseline),
        gone=frozenset(step.key for step in ending if step.kind != "folder"),
    )


def with_neighbours(wanted: Wanted, seen: Observation, context: Context) -> Observation:
    """The observation with only those unmanaged groups that can meet exclusive CPUs.

    Such a group has processes, requests CPUs, or may start on CPUs of an exclusive slice that is not protected as a partition.
    """
    open_to_all = cpuset.EMPTY.union(
        *(cpus for unit, cpus in wanted.exclusive.items() if not kept_by_kernel(unit, wanted, seen))
    )
    others = (one for one in seen.unmanaged if not unmanaged_groups.is_the_kubelets(one.name, context.profile))
    found = (one for one in others if one.populated or one.requested or unmanaged_groups.may_start_on(one, open_to_all))
    # A foreign partition has all CPUs that it requests; its effective CPUs lack the CPUs of partitions below it.
    foreign = seen.foreign & wanted.online
    taken = (one._replace(cpus=one.requested & foreign) if one.is_partition else one for one in found)
    return seen._replace(unmanaged=tuple(taken))


def slice_changes(wanted: Wanted, seen: Observation) -> list[Change]:
    """The changes of the slices' CPUs, in force and in files."""
    found: list[t.Optional[Change]] = [masked_change(unit, state) for unit, state in seen.units.items() if state.mask]
    for unit, cpus in wanted.now.items():
        found.append(live_change(unit, cpus, seen) or next_start_change(unit, wanted, seen))
    for unit in wanted.persistent:
        found += [change(unit, wanted, seen) for change in (dropin_change, override_change, in_boot_change)]
    return list(filter(None, found))


def partitions_by_systemd(wanted: Wanted, seen: Observation) -> t.Iterator[Change]:
    """The items of slices for which files of systemd set another kind of partition."""
    for unit in wanted.now:
        kind = wanted.partitions.get(unit, MEMBER)
        for found in seen.units[unit].by_systemd[-1:]:
            if found.value not in ("", kind):
                yield partitions.foreign_change(unit, kind, found.value, found.file)


def ended_changes(wanted: Wanted, seen: Observation, context: Context, moves: Moves) -> list[Change]:
    """The items of slices whose workloads no longer have exclusive CPUs, and of foreign files that assign CPUs to such slices."""
    left = slices.left_over(wanted.now, seen.units)
    settled = {grant.workload for grant in context.grants}
    if context.workloads is not None:
        settled |= {grant.workload for grant in context.workloads.checkpoint.grants} | context.workloads.released
    there = [unit for unit in left if seen.units[unit].exists or unit in moves.stopped]
    found = [left_change(unit, seen) for unit in there if not is_waiting(unit, seen.units[unit], settled)]
    return found + [foreign_file(unit, seen) for unit in left if has_foreign_file(unit, seen)]


def unmanaged_changes(wanted: Wanted, seen: Observation, moves: Moves) -> list[Change]:
    """The items of the control groups that the profile does not name."""
    own, shared = wanted.exclusive, wanted.now[CORRAL_SLICE]
    shown = unmanaged_groups.reported(seen.unmanaged, own, shared, moves.confined)
    refused = [one.name for one in shown if wanted.confine and one.name not in moves.confined]
    following = {name: one.wanted for name, one in moves.placed.items() if name not in moves.confined}
    return unmanaged_groups.changes_of(shown, own, shared, moves.confined, refused, following)


def kept_by_kernel(unit: str, wanted: Wanted, seen: Observation) -> bool:
    """Whether a slice is to be a partition that isolcpus= does not prevent: the kernel keeps other processes off a partition's CPUs."""
    kind, state = wanted.partitions.get(unit), seen.units[unit]
    if kind is None:
        return False
    found = partitions.PartitionState(state.exists, state.partition, state.cpus.requested, seen.rest)
    return not partitions.housekeeping_conflict(kind, found, wanted.at_boot)


def without_foreign(wanted: Wanted, foreign: frozenset[int]) -> Wanted:
    """The wanted CPUs; shared and reserved slices do not get the CPUs of foreign partitions, which are possible from kernel 7.0 on.

    A request for CPUs of a foreign partition changes nothing, and would fail every plan until the partition is gone. If a pool has no CPU
    left, its slices get the CPUs that are left to all shared and reserved slices.
    """
    if not foreign:
        return wanted
    rest = cpuset.EMPTY.union(*(cpus for unit, cpus in wanted.now.items() if not is_exclusive(unit))) - foreign
    now = {unit: cpus if is_exclusive(unit) else (cpus - foreign) or rest or cpus for unit, cpus in wanted.now.items()}
    return wanted._replace(now=now)


def without_masked(wanted: Wanted, seen: Observation) -> Wanted:
    """The wanted CPUs without masked slices: systemd refuses every change of a masked slice, and nothing starts in such a slice."""
    masked = {unit for unit, state in seen.units.items() if state.mask}
    if not masked:
        return wanted
    now, persistent = (
        {unit: cpus for unit, cpus in units.items() if unit not in masked} for units in (wanted.now, wanted.persistent)
    )
    return wanted._replace(now=now, persistent=persistent)


def controller_change() -> Change:
    """The item of the root control group, for a cpuset controller that another program has switched off."""
    step = make_step.controller(SUBTREE_CONTROL, CPUSET, "+", CPUS, CONTROLLER)
    reason = "the kernel gives no control group CPUs of its own: a program has switched the controller off, and systemd does not look again"
    return Change(NAME, SUBTREE_CONTROL, CPUSET, "off", "on", reason, SUBTREE_CONTROL, (step,))


def masked_change(unit: str, state: UnitState) -> Change:
    """The item of a slice that is masked and does not run."""
    reason = f"nothing starts in it, and it gets no CPUs: systemctl unmask {unit}, or take it out of the profile"
    return Change(NAME, unit, "state", "masked", "active", reason, state.mask, (), UNCHANGEABLE)


def is_waiting(unit: str, state: UnitState, settled: t.Container[t.Optional[str]]) -> bool:
    """Whether an empty slice has to stay for a unit that is to start in the slice. This unit may still run elsewhere: systemd would stop it
    together with the slice. Or the unit is about to start, and its workload has no grant yet.
    """
    starts = state.has_holder and workload_of(unit) not in settled
    return (state.awaited or starts) and not state.populated


def left_change(unit: str, seen: Observation) -> Change:
    """The item of a slice whose workload lost its CPUs. An empty slice is stopped; a populated slice shares CPUs until it is stopped."""
    state = seen.units[unit]
    if not state.populated:
        stop = make_step.unit(unit, "stop", EMPTY_SLICES, 80, optional=True)
        reason = "no workload has CPUs of its own in this slice any more"
        if not state.exists or state.at_start(unit):
            actual = f"would start with CPUs {cpuset.format(state.at_start(unit))}"
            steps = (*taken_back(unit, state), stop)
            return Change(NAME, unit, "state", actual, "inactive", reason, state.settings[-1].file, steps)
        return Change(NAME, unit, "state", "active", "inactive", reason, cgroup.path_of(unit), (stop,))
    return Change(
        NAME, unit, "placement", unmanaged_groups.shown_running(state.cpus.effective or cpuset.EMPTY, state.processes), "stopped",
        "no workload of this name has CPUs of its own, so it runs on the shared pool: stop it, then start it "
        "(corral explain says what a start gets)",
        cgroup.path_of(unit), (), UNCHANGEABLE, "next start", "service restart",
    )  # fmt: skip


def taken_back(unit: str, state: UnitState) -> tuple[Step, ...]:
    """The steps that remove all settings of a slice's CPUs, even settings without a recorded original."""
    live = unit_property.live_file_removal(unit, "AllowedCPUs")
    files = [dropin(unit, NAME)] if state.dropin is not None else []
    return (
        make_step.unit_property(unit, "AllowedCPUs", "", RELEASE),
        *unit_property.removal(unit, "AllowedCPUs", state.settings),
        *(make_step.file(path, None, FILES, reload=True) for path in files),
        *(make_step.folder(path.rpartition("/")[0], FILES, 1) for path in files),
        live,
        make_step.folder(live.target.rpartition("/")[0], FILES, live.order + 1),
    )


def has_foreign_file(unit: str, seen: Observation) -> bool:
    """Whether a file that neither Corral nor set-property wrote assigns CPUs to an exclusive slice that no workload has."""
    state = seen.units[unit]
    return bool(systemd.merged_cpus(state.settings)) and not systemd.cpus_at_start(unit, state.settings)


def foreign_file(unit: str, seen: Observation) -> Change:
    """The item of the file that has_foreign_file() finds."""
    settings = seen.units[unit].settings
    cpus = cpuset.format(systemd.merged_cpus(settings) or ())
    reason = "a slice of this name gets its CPUs from Corral alone: remove this file, then systemctl daemon-reload"
    return Change(NAME, unit, "AllowedCPUs at its start", cpus, None, reason, settings[-1].file, (), UNCHANGEABLE)


def live_change(unit: str, cpus: frozenset[int], seen: Observation) -> t.Optional[Change]:
    """The change of a unit's CPUs in force, without steps: cpu_moves.with_moves() adds the steps."""
    state = seen.units[unit]
    location = f"{cgroup.path_of(unit)}/cpuset.cpus"
    if not state.exists:
        return Change(
            NAME, unit, "AllowedCPUs", None, cpuset.format(cpus), "the pool's slice does not run yet", location
        )
    requested, effective = state.cpus
    if requested == cpus and effective == cpus:
        return None
    if requested == cpus:
        return Change(
            NAME, unit, "cpuset.cpus.effective", cpuset.format(effective or ()), cpuset.format(cpus),
            "the CPUs in force are not those that the slice requests", f"{cgroup.path_of(unit)}/cpuset.cpus.effective",
        )  # fmt: skip
    shown = cpuset.format(requested) if requested else f"all ({cpuset.format(effective or ())})"
    return Change(NAME, unit, "AllowedCPUs", shown, cpuset.format(cpus), reason_of(unit, state, cpus), location)


def partition_changes(wanted: Wanted, seen: Observation, context: Context, moves: Moves) -> list[Change]:
    """The changes of slices that are to become partitions, and of partitions that are to end."""
    changes, moving = [], moves.units
    for unit, state in seen.units.items():
        kind = wanted.partitions.get(unit, MEMBER)
        if kind == MEMBER and state.partition in (None, MEMBER):
            continue
        target = cgroup.partition_file(unit)
        requested = state.cpus.requested
        offline = unit in moving and requested is not None and not requested & wanted.online
        found = partitions.PartitionState(state.exists, state.partition, requested, seen.rest, offline)
        attempt = context.attempts.get(target)
        if state.cpus.requested == wanted.now.get(unit) and partitions.housekeeping_conflict(
            kind, found, wanted.at_boot
        ):
            continue
        change = partitions.change(unit, target, kind, found, moves.rivals)
        if change is None:
            continue
        if attempt is not None and unit not in moving and partitions.too_soon(attempt, context):
            change = change._replace(steps=(), verdict=UNCHANGEABLE)
        changes.append(change)
    return changes


def reason_of(unit: str, state: UnitState, cpus: frozenset[int]) -> str:
    """Why a unit has other CPUs than wanted: the file of a set-property if this file assigns other CPUs, else only the difference."""
    by_hand = unit_property.set_by_hand(unit, "AllowedCPUs", state.settings)
    if by_hand is not None and systemd.merged_cpus(state.settings) != cpus:
        return f"{by_hand.file} sets {by_hand.value or 'nothing'} (systemctl set-property)"
    return "its CPUs are not the pool's"


def owned_by(wanted: Wanted, seen: Observation, placed: t.Iterable[str]) -> frozenset[str]:
    """The keys of all settings that this manager keeps for the profile, including the CPUs of the unmanaged units in ``placed``.

    The slice of a workload that lost its CPUs is included until the slice is empty; then the slice is stopped.
    """
    owned = {f"file:{dropin(TARGET, NAME)}"}
    for unit in wanted.persistent:
        owned |= {f"file:{dropin(unit, NAME)}", f"file:{control_file(unit, 'AllowedCPUs', runtime=False)}"}
    left = [unit for unit in slices.left_over(wanted.now, seen.units) if seen.units[unit].populated]
    for unit in (*wanted.now, *left, AGENT_SLICE):
        owned |= {
            f"property:{unit}:AllowedCPUs",
            f"unit:{unit}",
            f"cpuset:{cgroup.path_of(unit, cgroup.CPUSETS)}",  # an original from an earlier boot with v1
        }
    owned |= {f"partition:{cgroup.partition_file(unit)}" for unit in (*wanted.exclusive, *left)}
    unmanaged = [one.name for one in seen.unmanaged] if wanted.confine else placed
    owned |= {f"property:{name}:AllowedCPUs" for name in unmanaged}
    return frozenset(owned)


# The entry for the registry


def key_of(change: Change, declared: Profile) -> str:
    """The profile's key from which a change follows; the section, if the change follows from several keys."""
    unit = unit_in(change.subject)
    if declared.cpu is not None and unit in (*declared.cpu.reserved.slices, AGENT_SLICE):
        return "cpu.reserved"
    return "cpu.isolated" if unit == ISOLATED_SLICE else "cpu"


def describe(host: Host, topology: Topology) -> t.Sequence[ProfileFragment]:
    """The profile's CPU pools that match the present CPUs of slices."""
    from . import cpu_described  # imported here: no plan needs the module

    return cpu_described.describe(host, topology)


MANAGER = Manager(NAME, plan, WRITES, live="AllowedCPUs", key_of=key_of, describe=describe)
