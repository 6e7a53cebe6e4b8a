# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# This module is private to the collection corral.node.
"""The pids manager: the task limits of the machine and of each pool (task_budget.py)."""

from __future__ import annotations

import re
import typing as t

from ...host import cgroup, kernel_text, systemd
from ...host.files import Host
from ...host.pids import sysctl
from ...model.pids import task_budget
from ...model.pids.task_budget import LIMITS, PID_MAX, THREADS_MAX, Own
from ...model.plan import make_step
from ...model.plan.context import Context
from ...model.plan.places import Place, dropins
from ...model.plan.plan import LIVE, RELEASE, UNCHANGEABLE, UNKNOWN, Change, Part, Step
from ...model.profile.profile import Cpu, Pids, Profile
from ...model.profile.schema_reader import join
from ...model.profile.schema_types import CORRAL_SLICE
from ...model.systemd import unit_property
from ...model.systemd.unit_file import file_change, section_of, unit_in, unit_text
from ...model.systemd.unit_property import Setting, control_file, dropin
from ...model.values.errors import Problem
from ...model.values.records import NamedTuple
from ...model.workload.grants import is_exclusive
from .. import sysctl_keys
from ..manager import Manager
from ..sysctl_keys import SysctlState

if t.TYPE_CHECKING:
    from ...model.profile.node_as_profile import ProfileFragment
    from ...model.topology.topology import Topology
    from ...model.workload.limits_as_profile import Limit

NAME = "pids"
MANAGER_CONF = "/etc/systemd/system.conf.d/10-corral.conf"
SYSCTL_FILE = "/etc/sysctl.d/90-corral.conf"
WRITES = (
    *sysctl_keys.places(SYSCTL_FILE, LIMITS),
    Place("file", re.escape(MANAGER_CONF)),
    dropins(NAME),
    Place("property", r"[^/]+\.(slice|scope)", "TasksMax=.*"),
)
DISTRIBUTION = "/usr/lib/sysctl.d"  # the distribution's values, which were not set by an administrator
KEYS = {PID_MAX: "pids.pid_max", THREADS_MAX: "pids.threads_max", "DefaultTasksMax": "pids.default_tasks_max"}


class SliceState(NamedTuple):
    """One slice as observed: the ``limit`` in force ("max", a number; None: no control group), its files, and its number of ``tasks``."""

    limit: t.Optional[str]
    dropin: t.Optional[str]
    settings: tuple[Setting, ...]
    location: str = ""
    tasks: t.Optional[int] = None


class ObservedPids(NamedTuple):
    """The limits of the machine and the pools as observed; ``starting`` are the slices that the profile starts."""

    sysctls: SysctlState
    live: dict[str, t.Optional[int]]
    running: t.Optional[int]
    slices: dict[str, SliceState]
    manager_conf: t.Optional[str]
    default_settings: tuple[Setting, ...]
    systemd_runs: bool
    starting: frozenset[str] = frozenset()


def plan(host: Host, context: Context) -> Part:
    """The pids manager's part of the plan; empty for a profile without ``pids``."""
    pids, cpu = context.profile.pids, context.profile.cpu
    seen = observe(host, pids, task_budget.slices_of_profile(cpu))
    if context.fresh:  # numbers of running tasks change all the time: needed only for a new profile
        tasks = {row.slice: cgroup.pids_current(host, row.slice) for row in pids.slices}
        slices = {unit: one._replace(tasks=tasks.get(unit)) for unit, one in seen.slices.items()}
        seen = seen._replace(running=sysctl.running_tasks(host), slices=slices)
    starts = cpu is not None and seen.systemd_runs and cgroup.unified(host)
    starting = frozenset((*cpu.reserved.slices, *cpu.shared_slices, CORRAL_SLICE) if cpu and starts else ())
    seen = seen._replace(live=sysctl.task_limits(host, pids, context.before), starting=starting)
    return decide(pids, cpu, seen, task_budget.exclusive_limits(context))


def observe(host: Host, pids: Pids, pool_slices: t.Sequence[str]) -> ObservedPids:
    """The limits as observed: by files of the kernel and systemd, without a command."""
    slices = dict.fromkeys([*(row.slice for row in pids.slices), *(pool_slices if pids.reserved is not None else ())])
    files, sysctls = systemd.UnitFiles(host, slices), sysctl_keys.observe(host, SYSCTL_FILE, LIMITS)
    return ObservedPids(
        sysctls,
        sysctls.live,
        None,
        {
            unit: SliceState(
                cgroup.pids_max(host, unit),
                files.text(dropin(unit, NAME)),
                tuple(files.settings(unit, "TasksMax")),
                cgroup.pids_file(host, unit),
            )
            for unit in slices
        },
        host.read(MANAGER_CONF),
        tuple(systemd.system_settings(host, "DefaultTasksMax")),
        systemd.runs(host),
    )


def limits_of(pids: Pids, cpu: t.Optional[Cpu], total: t.Optional[int], own: t.Sequence[Own]) -> dict[str, int]:
    """TasksMax of each slice: the declared limit; the other slices of workloads share the tasks that reserve and declared limits leave."""
    limits = {row.slice: row.tasks_max for row in pids.slices}
    part = task_budget.share(pids, cpu, None if total is None else total - (pids.reserved or 0), own)
    if part is not None:
        limits.update({unit: part for unit in task_budget.sharers(pids, cpu, own) if unit})
    return limits


def problems(pids: Pids, cpu: t.Optional[Cpu], seen: ObservedPids, own: t.Sequence[Own]) -> list[Problem]:
    """The problems of limits that the present tasks reach or exceed, or that together exceed the limit of the machine."""
    found = []
    for path, key, value in (
        ("pids.pid_max", PID_MAX, pids.pid_max),
        ("pids.threads_max", THREADS_MAX, pids.threads_max),
    ):
        if value is not None and seen.running is not None and value <= seen.running:
            message = f"{seen.running} tasks run now: {key} must be larger; name a number with room to grow"
            found.append(Problem(path, value, message))
    for row in pids.slices:
        tasks = seen.slices[row.slice].tasks
        if tasks is not None and row.tasks_max <= tasks:
            message = f"{tasks} tasks run in it now, and it could start no other one: name a number with room to grow"
            found.append(Problem(join("pids.slices", row.slice), row.tasks_max, message))
    total = task_budget.capacity(pids, seen.live)
    asked = task_budget.asked(pids, own)
    slices = task_budget.asked(pids, ())
    needed = asked + (pids.reserved or 0)
    if total is not None and needed > total:
        exclusive = f" and workloads' with CPUs of their own {asked - slices}" if asked > slices else ""
        message = (
            f"reserved {pids.reserved or 0} and the slices' {slices}{exclusive} exceed the {total} tasks that this machine may "
            "have (pid_max, threads-max): lower one of them"
        )
        found.append(Problem("pids.reserved" if pids.reserved else "pids.slices", needed, message))
    sharers = task_budget.sharers(pids, cpu, own)
    if pids.reserved is not None and total is not None and needed <= total < needed + len(sharers):
        who = ", ".join(unit or "workloads with CPUs of their own" for unit in dict.fromkeys(sharers))
        message = f"nothing is left for {who}: lower it, or raise pids.pid_max and pids.threads_max"
        found.append(Problem("pids.reserved", pids.reserved, message))
    return found


def decide(pids: Pids, cpu: t.Optional[Cpu], seen: ObservedPids, own: t.Sequence[Own]) -> Part:
    """The changes that give the machine and the slices the wanted limits."""
    sysctls = {key: value for key, value in ((PID_MAX, pids.pid_max), (THREADS_MAX, pids.threads_max)) if value}
    changes: list[t.Optional[Change]] = []
    changes += sysctl_keys.changes(NAME, seen.sysctls, sysctls, "keeps the limits over a reboot")
    owned = sysctl_keys.owned(seen.sysctls, sysctls)
    limits = limits_of(pids, cpu, task_budget.capacity(pids, seen.live), own)
    if limits and not seen.systemd_runs:
        changes.append(
            Change(NAME, "slices", "TasksMax", None, None, "systemd does not run here", cgroup.ROOT, (), UNKNOWN)
        )
    elif limits:
        for unit, limit in limits.items():
            owned |= {f"file:{dropin(unit, NAME)}", f"property:{unit}:TasksMax"}
            owned.add(f"file:{control_file(unit, 'TasksMax', runtime=False)}")
            changes += [
                live_change(unit, limit, seen),
                dropin_change(unit, limit, seen),
                later_limit(unit, limit, seen),
            ]
    if pids.default_tasks_max is not None and seen.systemd_runs:
        owned.add(f"file:{MANAGER_CONF}")
        text = unit_text(("Manager", [f"DefaultTasksMax={pids.default_tasks_max}"]))
        others = [row for row in seen.default_settings if row.file != MANAGER_CONF]
        if seen.manager_conf is not None or not others or others[-1].value != str(pids.default_tasks_max):
            changes.append(file_change(NAME, MANAGER_CONF, seen.manager_conf, text, reason="the default of all units"))
        changes.append(default_override(pids.default_tasks_max, seen, text))
    kept = [unit for unit, limit in limits.items() if seen.systemd_runs and kept_by_others(unit, limit, seen)]
    return Part(
        tuple(filter(None, changes)),
        frozenset(owned),
        problems=tuple(problems(pids, cpu, seen, own)),
        manager=NAME,
        baseline=tuple(make_step.unit_property(unit, "TasksMax", "", RELEASE) for unit in kept),
    )


def live_change(unit: str, limit: int, seen: ObservedPids) -> t.Optional[Change]:
    """The change of a slice's limit in force.

    A slice that does not run gets the limit from its drop-in at its start. If this plan starts the slice, the limit is also set live:
    systemd may not have read the drop-in yet.
    """
    actual = seen.slices[unit].limit
    if actual == str(limit) or (actual is None and unit not in seen.starting):
        return None
    if actual is None:
        step = make_step.unit_property(unit, "TasksMax", str(limit), LIVE)
        return Change(
            NAME, unit, "TasksMax", None, str(limit), "the slice does not run yet", seen.slices[unit].location, (step,)
        )
    by_hand = unit_property.set_by_hand(unit, "TasksMax", seen.slices[unit].settings)
    said = f"{by_hand.file} sets {by_hand.value} (systemctl set-property)" if by_hand else "the slice's limit differs"
    steps: tuple[Step, ...] = (make_step.unit_property(unit, "TasksMax", str(limit), LIVE),)
    if not kept_by_others(unit, limit, seen):
        steps += unit_property.removal(unit, "TasksMax", seen.slices[unit].settings)
    return Change(NAME, unit, "TasksMax", actual, str(limit), said, seen.slices[unit].location, steps)


def later_limit(unit: str, limit: int, seen: ObservedPids) -> t.Optional[Change]:
    """The item of another file that overrides Corral's drop-in at the next reload, even if the drop-in does not exist yet.

    While the limit in force differs, live_change() names and removes the file of a set-property instead.
    """
    state = seen.slices[unit]
    differs = state.limit not in (None, str(limit))
    return unit_property.later_change(NAME, unit, "TasksMax", state.settings, str(limit), differs_now=differs)


def kept_by_others(unit: str, limit: int, seen: ObservedPids) -> bool:
    """Whether other files give a slice this limit at the next boot, so that Corral's drop-in is not needed."""
    state = seen.slices[unit]
    return unit_property.kept_by_others(
        state.dropin, state.settings, lambda others: unit_property.last_value(others) == str(limit)
    )


def dropin_change(unit: str, limit: int, seen: ObservedPids) -> t.Optional[Change]:
    """The change of the drop-in that keeps the limit over a reboot."""
    path = dropin(unit, NAME)
    if kept_by_others(unit, limit, seen):
        return None
    text = unit_text((section_of(unit), [f"TasksMax={limit}"]))
    return file_change(NAME, path, seen.slices[unit].dropin, text, reason=f"keeps {unit}'s limit over a reboot")


def default_override(wanted: int, seen: ObservedPids, text: str) -> t.Optional[Change]:
    """The item of a file that sets DefaultTasksMax to another value and sorts after Corral's file."""
    if seen.manager_conf != text or not seen.default_settings:
        return None
    last = seen.default_settings[-1]
    if last.file == MANAGER_CONF or last.value == str(wanted):
        return None
    reason = f"{last.file} sorts after {MANAGER_CONF}: remove the line, or declare {last.value} in the profile"
    return Change(NAME, "DefaultTasksMax", "value", last.value, str(wanted), reason, last.file, (), UNCHANGEABLE)


# The entry for the registry


def key_of(change: Change, dummy_declared: Profile) -> str:
    """The profile's key from which a change follows; the section, for files that hold several limits."""
    unit = unit_in(change.subject)
    return join("pids.slices", unit) if unit else KEYS.get(change.subject, "pids")


def describe(host: Host, topology: Topology) -> t.Sequence[ProfileFragment]:
    """The limits that are set: of the machine, and of top-level slices."""
    from ...model.profile.node_as_profile import ProfileFragment  # imported here: no plan needs the module

    limits = {name: limit.chosen for name, limit in machine_limits(host, topology).items()}
    defaults = systemd.system_settings(host, "DefaultTasksMax")
    limits["default_tasks_max"] = number(defaults[-1].value) if defaults else None
    found = [
        ProfileFragment(("pids", name), limit, f"pids.{name}") for name, limit in limits.items() if limit is not None
    ]
    for unit in systemd.top_level_units(host):
        # A scope without TasksMax= has systemd's default; a slice has no default.
        limit = tasks_max(host, unit) if unit.endswith(".slice") and not is_exclusive(unit) else None
        if limit is not None:
            found.append(ProfileFragment(("pids", "slices", unit), limit, f"TasksMax of {unit}"))
    return found


def machine_limits(host: Host, topology: Topology) -> dict[str, Limit]:
    """The kernel's limits by key of the profile, each with its default."""
    from ...model.workload import limits_as_profile

    elsewhere = [folder for folder in sysctl.FOLDERS if folder != DISTRIBUTION]
    given = {
        key: number(entry.value)
        for key, entry in sysctl.persistent_entries(host, LIMITS, SYSCTL_FILE, (DISTRIBUTION,)).items()
    }
    said = {
        key: number(entry.value)
        for key, entry in sysctl.entries(host, LIMITS, sysctl.files_in_order(host, elsewhere)).items()
    }
    possible = cgroup.cpu_list(host.read("/sys/devices/system/cpu/possible")) or topology.online
    usual = {
        PID_MAX: limits_as_profile.usual_pid_max(len(possible), given.get(PID_MAX)),
        THREADS_MAX: limits_as_profile.usual_threads_max(topology.machine_memory_kib, given.get(THREADS_MAX)),
    }
    return {
        KEYS[key].rpartition(".")[2]: limits_as_profile.Limit(sysctl.live(host, key), said.get(key), spans)
        for key, spans in usual.items()
    }


def tasks_max(host: Host, unit: str) -> t.Optional[int]:
    """A slice's limit in force, or the limit in its files if the slice does not run; None if the slice has no limit."""
    if cgroup.exists(host, unit):
        return number(cgroup.pids_max(host, unit) or "")
    tasks = unit_property.outside_run(systemd.unit_settings(host, unit, "TasksMax"))
    return number(tasks[-1].value) if tasks else None


def number(text: str) -> t.Optional[int]:
    """A limit as a number; None for a text that is no number, such as "max"."""
    return kernel_text.count(text)


MANAGER = Manager(NAME, plan, WRITES, live="TasksMax", key_of=key_of, describe=describe)
