# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# This module is private to the collection corral.node.
"""The workloads manager: the checkpoint of grants, a slice with limits for each workload, and the slice of the workload's unit.

The cpu manager sets the CPUs of slices; grants are decided before (allocate_workloads.py).
"""

from __future__ import annotations

import re
import typing as t

from ...host import cgroup, state, systemd
from ...host.files import Host
from ...host.workload import workload_state
from ...model.pids import pid_sharing, task_budget
from ...model.plan import make_step
from ...model.plan.context import Context, Workloads
from ...model.plan.places import Place, dropins
from ...model.plan.plan import EMPTY_SLICES, UNCHANGEABLE, UNKNOWN, Change, Part
from ...model.profile import profile_workloads
from ...model.profile.profile import Profile
from ...model.profile.profile_workloads import RUNNING
from ...model.profile.schema_types import CORRAL_SLICE, EXCLUSIVE_PREFIX, SHARED_PREFIX
from ...model.systemd import unit_limits
from ...model.systemd.unit_file import file_change
from ...model.systemd.unit_property import ETC, dropin
from ...model.tenants.tenant import match_meets
from ...model.values import cpuset
from ...model.values.errors import Problem
from ...model.values.records import NamedTuple
from ...model.workload import grants, workload_units
from ...model.workload.admission import Refusal
from ...model.workload.grants import Grant
from ...model.workload.resource_requirements import ResourceRequirements
from ...model.workload.resources import PIDS
from ...model.workload.workload_units import NAME
from ..manager import Manager, agent_note
from . import checkpoint, shared_weight, workload_limits, workload_placement

_SLICE = rf"({EXCLUSIVE_PREFIX}|{SHARED_PREFIX})[^/]+\.slice"
_LIMITS = "|".join(name for name in unit_limits.FILES if name != "AllowedCPUs")
CONTAINER = r"libpod-(payload-)?[0-9a-f]{64}(\.scope)?(/container)?"
_OF_CONTAINERS = "|".join(re.escape(file) for name, file in unit_limits.FILES.items() if name != "AllowedMemoryNodes")
_CONTROL = r"cgroup\.subtree_control"
WRITES = (
    Place("file", rf"{re.escape(state.CHECKPOINT)}(\.previous|\.damaged)?", volatile=True),
    Place("file", rf"{re.escape(state.ADMITTED)}(\.previous)?", volatile=True),
    dropins(NAME),
    dropins(workload_units.EARLIER_NAME),
    Place("file", re.escape(workload_units.GRANT_UNIT)),
    Place("file", re.escape(workload_units.REGRANT_UNIT)),
    Place("file", rf"{re.escape(workload_units.GRANTED)}[^/]+", None, volatile=True),
    Place("unit", _SLICE, "stop", volatile=True),
    Place("unit", _SLICE, "start"),
    Place("property", _SLICE, f"({_LIMITS})=.*"),
    Place("property", re.escape(CORRAL_SLICE), f"{shared_weight.WEIGHT}=.*"),
    Place("property", r"[^/]+\.(service|scope|slice|socket|timer)", "CPUQuota="),
    Place("controller", f"{cgroup.ROOT}/{_CONTROL}", r"[+-]hugetlb"),
    Place(
        "controller",
        rf"{cgroup.ROOT}/{re.escape(CORRAL_SLICE)}/({SHARED_PREFIX}[^/]+\.slice/)?{_CONTROL}",
        r"[+-]hugetlb",
        volatile=True,
    ),
    Place(
        "value",
        rf"{cgroup.ROOT}/({re.escape(CORRAL_SLICE)}/({SHARED_PREFIX}[^/]+\.slice/)?{SHARED_PREFIX}|{EXCLUSIVE_PREFIX})[^/]+\.slice/hugetlb\.[0-9]+[KMGT]B\.max",
        volatile=True,
    ),
    Place("value", r"/proc/[0-9]+/oom_score_adj", volatile=True),
    # Podman makes a slice for each pod; a container inside a unit (--cgroups=split) has a control group below the unit's group.
    Place(
        "value",
        rf"{cgroup.ROOT}/({re.escape(CORRAL_SLICE)}/{SHARED_PREFIX}|{EXCLUSIVE_PREFIX})[^/]+\.slice/([^/]+/)*{CONTAINER}/({_OF_CONTAINERS})",
        volatile=True,
    ),
)


class ObservedWorkloads(NamedTuple):
    """The observations that the parts of all workloads share. ``sizes``: the sizes of declared hugepages in KiB. ``tasks``: the task limit
    of a workload with exclusive CPUs that declares no limit. ``memory``: the machine's memory in bytes. ``containers``: the running
    containers that may belong to workloads, with their control groups. ``by_hand``: slices with a file of set-property. ``of_tenants``:
    tenants' slices.
    """

    files: systemd.UnitFiles
    sizes: t.Sequence[int]
    tasks: t.Optional[int]
    memory: t.Optional[int]
    containers: t.Sequence[tuple[str, str]]
    by_hand: t.Container[str]
    of_tenants: t.Container[str] = ()


def plan(host: Host, context: Context) -> Part:
    """The workloads manager's part of the plan; empty without declared workloads and grants."""
    workloads = context.workloads
    if workloads is None:
        return Part((), frozenset())
    unfit = unfit_problem(host, context)
    if unfit is not None:
        return plan_unfit(host, context, workloads, unfit)
    seen = observe(host, context, workloads)
    by_name = {grant.workload: grant for grant in workloads.allocated.grants}
    granted = [(need, by_name.get(need.workload.name)) for need in workloads.needs]
    undeclared = grants.undeclared_runs(workloads.allocated.grants, workloads.needs)
    parts = [
        checkpoint_part(host, context, workloads),
        around_part(host, context, workloads, seen.by_hand),
        *(workload_part(host, context, need, grant, seen) for need, grant in granted),
        runs_part(host, undeclared, grants.renamed(undeclared, workloads.needs)),
        Part(tuple(namespace_changes(host, context, granted)), frozenset()),
        containers_part(host, context, granted, seen),
        strayed_part(host, granted, seen.files),
        Part(
            tuple(checkpoint.refused_change(row, by_name.get(row.workload)) for row in workloads.allocated.refusals),
            frozenset(),
        ),
    ]
    if undeclared or any(need.workload.hold == RUNNING for need in workloads.needs):
        parts.append(grant_unit_part(host, context))
    return Part(
        tuple(change for part in parts for change in part.changes),
        frozenset().union(*(part.owned for part in parts)),
        problems=tuple(problem for part in parts for problem in part.problems),
        manager=NAME,
        notes=tuple(note for part in parts for note in part.notes),
    )


def plan_unfit(host: Host, context: Context, workloads: Workloads, unfit: Problem) -> Part:
    """The part of a node on which no workload can have a grant. ``unfit``: the reason."""
    running = [grant for grant in workloads.allocated.grants if grant.cpus]
    owned: set[str] = set()
    if running and context.profile.cpu is None:
        kept = ", ".join(f"{grant.workload} (CPUs {cpuset.format(grant.cpus)})" for grant in running)
        unfit = Problem("cpu", None, f"{kept} runs and keeps its CPUs until it stops: stop it first, or keep cpu")
        # As long as workloads run with exclusive CPUs, no original of the pools is restored.
        owned = {record.before.key for record in state.records(host)[0] if record.manager in ("cpu", NAME)}
    if workloads.needs or running:
        change = Change(NAME, "workloads", "placement", None, None, unfit.message, state.CHECKPOINT, (), UNKNOWN)
        return Part((change,), frozenset(owned), problems=(unfit,), manager=NAME)
    ended = [checkpoint.given_up(host)] if context.profile.cpu is None else []
    return Part(tuple(change for change in ended if change.steps), frozenset(), manager=NAME)


def observe(host: Host, context: Context, workloads: Workloads) -> ObservedWorkloads:
    """The observations that the parts of all workloads share."""
    memory = context.topology.machine_memory_kib
    own_tasks = task_budget.exclusive_limits(context)
    return ObservedWorkloads(
        systemd.UnitFiles(host, workload_state.units_of(need.workload for need in workloads.needs)),
        sorted({row.size_kib for row in context.profile.memory.hugepages}),
        task_budget.share(context.profile.pids, context.profile.cpu, workloads.pids, own_tasks),
        None if memory is None else memory << 10,
        workload_placement.running_containers(host, workloads.needs),
        workload_limits.units_set_by_hand(host),
        frozenset(grants.slice_of_tenant(tenant.name) for tenant in context.profile.tenants),
    )


def checkpoint_part(host: Host, context: Context, workloads: Workloads) -> Part:
    """The part with the changes of the checkpoint, and with the problems that concern all declared workloads together."""
    problems = [problem_of(context, refusal) for refusal in workloads.allocated.refusals]
    return Part(
        (
            *checkpoint.admitted_changes(host, workloads, back=context.goes_back),
            *checkpoint.checkpoint_changes(host, workloads),
        ),
        frozenset({f"controller:{cgroup.ROOT}/cgroup.subtree_control"} if workloads.needs else ()),
        problems=(
            *problems,
            *twice_matched(workloads.needs),
            *met_by_admitted(context, workloads.needs),
            *named_as_tenants(context.profile, workloads.needs),
        ),
        notes=tuple(workloads.notes),
    )


def around_part(host: Host, context: Context, workloads: Workloads, by_hand: t.Container[str]) -> Part:
    """The part with the slices around workloads: the slices of tenants, and the weight of the slice around all shared workloads."""
    changes: list[Change] = []
    owned: set[str] = set()
    granted, tenants = workloads.allocated.grants, context.profile.tenants
    if tenants:
        from ..tenants import tenant_slices  # imported here: only nodes with tenants need the module

        for tenant in tenants:
            changes += tenant_slices.slice_changes(host, tenant, granted)
            if grants.slice_of_tenant(tenant.name) in by_hand:
                changes += tenant_slices.override_changes(host, tenant, granted)
            owned |= tenant_slices.owned_of(tenant)
        changes += tenant_slices.excess_changes(tenants, granted)
    weight = shared_weight.wanted(host, tenants, granted)
    if weight is not None and workloads.needs:
        changes += filter(None, [shared_weight.change(host, weight)])
        if CORRAL_SLICE in by_hand:
            changes += workload_limits.override_changes(host, CORRAL_SLICE, [shared_weight.WEIGHT])
        owned.add(shared_weight.KEY)
    return Part(tuple(changes), frozenset(owned))


def workload_part(
    host: Host, context: Context, need: ResourceRequirements, grant: t.Optional[Grant], common: ObservedWorkloads
) -> Part:
    """The part of one workload: its slice with limits, and the placement of its unit or container in the slice."""
    score = workload_placement.score_of(need, common.memory)
    if context.workloads is not None and need.workload.name in context.workloads.status.other_units:
        return part_beside(host, context, need, grant, common, score)
    lines = workload_placement.device_lines(need, grant, context, common.files)
    if need.workload.is_template:
        change = workload_placement.template_change(host, need, score, lines)
        return Part(tuple(filter(None, [change])), frozenset({f"file:{dropin(need.workload.template, NAME)}"}))
    problems: list[Problem] = []
    notes: list[str] = []
    unit = workload_placement.slice_for(need, grant)
    wanted = unit_limits.of(need, bool(need.cpus), grant.mems if grant else None)
    if PIDS not in dict(need.limits) and common.tasks is not None and grants.is_exclusive(unit):
        # A slice of exclusive CPUs is at the top level: no parent's limit keeps the task reserve of the system.
        wanted = {**wanted, "TasksMax": str(common.tasks)}
    seen = workload_limits.observe(host, common.files, need, unit, wanted, score, common.sizes)
    # A workload that still runs without a grant, because its CPUs were reserved or isolated, keeps its limits until it stops.
    limited = grant is not None or (seen.exists and cgroup.populated(host, seen.slice))
    is_own = unit not in common.of_tenants
    limited = limited and is_own
    changes = [in_slice_of_tenant(need, unit)]
    if is_own:
        changes = workload_limits.slice_changes(host, need, grant, wanted, seen, common.sizes, limited=limited)
    if limited and seen.slice in common.by_hand:
        changes += workload_limits.override_changes(host, seen.slice, wanted)
    owned = owned_of(seen.slice, wanted if limited else {}, files=is_own and not need.workload.template)
    if need.workload.is_unit:
        changes += workload_placement.unit_changes(need, seen.slice, seen.unit, score, lines) if seen.unit else []
        problems += unit_problems(context, need, seen)
        if not need.workload.template:
            owned.add(f"file:{dropin(need.workload.pattern, NAME)}")
        if seen.unit is not None and not seen.unit.there:
            notes.append(f"workload {need.workload.name}: this node has no unit {need.workload.pattern} yet")
    else:
        changes += filter(None, [workload_placement.container_change(need, seen.slice, common.containers)])
    if not need.cpus and is_own:
        changes += workload_limits.narrower_changes(host, need, wanted)
    if not workload_placement.scores_differ(need):  # otherwise each container has a score
        changes += workload_limits.score_changes(host, need, seen, score)
    return Part(tuple(changes), frozenset(owned), problems=tuple(problems), notes=tuple(notes))


def in_slice_of_tenant(need: ResourceRequirements, unit: str) -> Change:
    """The item of a workload that was admitted under the name of a tenant: workload and tenant have the same slice.

    The workload's limits are not set on this slice: such limits would apply to all workloads of the tenant.
    """
    name = need.workload.name
    reason = (
        f"has the name of a tenant, whose slice this is as well: corral release {name}, and admit it under another name"
    )
    return Change(NAME, name, "slice", unit, "one of its own", reason, cgroup.path_of(unit), (), UNCHANGEABLE)


def part_beside(
    host: Host,
    context: Context,
    need: ResourceRequirements,
    grant: t.Optional[Grant],
    common: ObservedWorkloads,
    score: t.Optional[int],
) -> Part:
    """The part of a workload while another unit still runs under the workload's name. The other unit keeps the slice unchanged. The
    workload's own unit starts in a slice on the shared pool, or does not start.
    """
    unit = grant.slice if grant else workload_placement.slice_for(need, None)
    owned = owned_of(unit, dict.fromkeys(unit_limits.FILES, ""), files=True)
    place = unit
    # With ``hold: running`` the workload's own unit does not start: its admission is refused while the other unit runs.
    if need.workload.hold != RUNNING and grants.is_exclusive(unit):
        place = grants.slice_of(need.workload.name, exclusive=False, tenant=need.tenant)
    if not need.workload.is_unit:
        change = workload_placement.container_change(need, place, common.containers)
        return Part(tuple(filter(None, [change])), frozenset(owned))
    lines = workload_placement.device_lines(need, None, context, common.files)
    seen = workload_placement.observe_unit(host, common.files, need, place)._replace(guests=())
    changes = workload_placement.unit_changes(need, place, seen, score, lines)
    return Part(tuple(changes), frozenset({*owned, f"file:{dropin(need.workload.pattern, NAME)}"}))


def runs_part(host: Host, undeclared: t.Sequence[Grant], renamed: t.Sequence[Grant]) -> Part:
    """The part of grants whose units still run, although the profile no longer declares the workloads, or has ``renamed`` the workloads."""
    changes = filter(None, (workload_placement.earlier_name_change(host, grant) for grant in renamed))
    files = {f"file:{dropin(grant.unit, workload_units.EARLIER_NAME)}" for grant in renamed}
    return Part(tuple(changes), frozenset(files | owned_for_runs(host, undeclared, renamed)))


def strayed_part(
    host: Host, granted: t.Iterable[tuple[ResourceRequirements, t.Optional[Grant]]], files: systemd.UnitFiles
) -> Part:
    """The part with the items of units with processes that were moved out of the units' slices."""
    placed = [(need, grant.slice) for need, grant in granted if grant is not None and not need.workload.is_template]
    return Part(tuple(workload_placement.strayed_changes(host, files, placed)), frozenset())


def namespace_changes(
    host: Host, context: Context, granted: t.Iterable[tuple[ResourceRequirements, t.Optional[Grant]]]
) -> list[Change]:
    """The items of workloads whose containers have other PID namespaces than the profile declares."""
    placed = [
        (need, workload_placement.slice_for(need, grant))
        for need, grant in granted
        if not need.workload.is_template
        and pid_sharing.wanted(need.workload, need.tenant, context.profile.tenants) is not None
    ]
    if not placed:
        return []
    from . import workload_namespaces  # imported here: only nodes that declare sharing need the module

    return list(workload_namespaces.changes(host, placed, context.profile.tenants))


def containers_part(
    host: Host,
    context: Context,
    granted: t.Iterable[tuple[ResourceRequirements, t.Optional[Grant]]],
    common: ObservedWorkloads,
) -> Part:
    """The part of the containers of pods: the changes of limits that differ from the profile."""
    others = context.workloads.status.other_units if context.workloads else {}
    pods = [(need, grant) for need, grant in granted if need.workload.containers and need.workload.name not in others]
    if not pods:
        return Part((), frozenset())
    from . import workload_containers  # imported here: only nodes with declared pods need the module

    having = [(need, grant) for need, grant in pods if grant is not None]
    lost = [need.workload.name for need, grant in pods if grant is None or not grant.cpus]
    items = workload_containers.changes(host, having, common.memory)
    items += workload_containers.released_changes(host, lost, context.topology.online)
    late = agent_note(host, context, "containers of pods start with what they were granted") if having else ()
    return Part(tuple(items), frozenset(), notes=late)


def grant_unit_part(host: Host, context: Context) -> Part:
    """The part of the unit files with which systemd admits a workload before its unit starts, and keeps the grant while the unit runs."""
    texts = {
        workload_units.GRANT_UNIT: workload_units.grant_unit_text(),
        workload_units.REGRANT_UNIT: workload_units.regrant_unit_text(),
    }
    reason = "admits workloads before they start"
    changes = (file_change(NAME, path, host.read(path), text, reason=reason) for path, text in texts.items())
    late = agent_note(host, context, "workloads with hold: running start")
    return Part(tuple(filter(None, changes)), frozenset(f"file:{path}" for path in texts), notes=late)


def unfit_problem(host: Host, context: Context) -> t.Optional[Problem]:
    """Why no workload can have a grant on this node; None if workloads can have grants."""
    if not systemd.runs(host):
        return Problem("workloads", None, "systemd does not run here, so workloads have no slices")
    if not cgroup.unified(host):
        message = "workloads with requests or limits need cgroup v2: boot with systemd.unified_cgroup_hierarchy=1, or leave these out"
        return Problem("workloads", None, message)
    if context.profile.cpu is None:
        message = "workloads were admitted at run time and need the pools of CPUs: release them first, or declare cpu.reserved"
        return Problem("cpu", None, message)
    return None


def empty_slices(host: Host) -> tuple[Change, ...]:
    """The changes that stop workloads' slices without a process, such as the slice of a unit that systemd refused to start.

    Only for a removal: in any other run a unit may be about to start in such a slice.
    """
    return tuple(
        Change(
            NAME, unit, "state", "active", "inactive", "no process runs in it any more", cgroup.path_of(unit),
            (make_step.unit(unit, "stop", EMPTY_SLICES, 80),),
        )
        for unit in workload_state.slices(host)
        if not cgroup.populated(host, unit)
    )  # fmt: skip


def owned_of(unit: str, wanted: t.Mapping[str, str], *, files: bool) -> set[str]:
    """The keys of a workload's slice: of its drop-in (with ``files``), its limits (``wanted``), and, if there are limits, its state."""
    owned = {f"file:{dropin(unit, NAME)}"} if files else set()
    return owned | {f"property:{unit}:{name}" for name in wanted} | ({f"unit:{unit}"} if wanted else set())


def owned_for_runs(host: Host, undeclared: t.Sequence[Grant], renamed: t.Container[Grant]) -> set[str]:
    """The keys of the drop-ins and slices that running units of undeclared workloads need until the units stop.

    The drop-in with Requires= of the grant's unit must stay: without the drop-in systemd would stop the grant's unit while the workload
    runs. For grants in ``renamed``, another drop-in has Requires=.
    """
    owned: set[str] = set()
    names = host.names(ETC) if undeclared else []
    paths = [f"{ETC}/{name}/10-corral-{NAME}.conf" for name in names if name.endswith(".service.d")]
    texts = {path: host.read(path) or "" for path in paths}
    templates = {path: text for path, text in texts.items() if "%i" in text}
    having: dict[str, list[str]] = {}
    for path, text in texts.items():
        for row in text.splitlines(keepends=True):
            having.setdefault(row, []).append(path)
    for grant in undeclared:
        instance = profile_workloads.slice_name(grant.workload).partition("\\x40")[2]
        # The drop-in is found by this line: the workload may have another slice by now (without the static policy new runs share CPUs).
        line = f"Requires={workload_units.grant_unit(grant.workload)}\n"
        files = {f"file:{path}" for path in having.get(line, ())}
        files |= {f"file:{path}" for path, text in templates.items() if line in text.replace("%i", instance)}
        owned |= set() if grant in renamed else files
        owned |= owned_of(grant.slice, dict.fromkeys(unit_limits.FILES, ""), files=True)
    return owned


def problem_of(context: Context, refusal: Refusal) -> Problem:
    """A refusal of a grant as a problem of the profile."""
    name = refusal.workload.partition(":")[0]
    index = next((i for i, workload in enumerate(context.profile.workloads) if workload.name == name), None)
    path = refusal.workload if index is None else f"workloads[{index}]"
    # If a quota of the number of workloads refuses, the refusal's value is the workload itself.
    named = "" if refusal.value == refusal.workload else f"{refusal.workload}: "
    return Problem(f"{path}.{refusal.key}", refusal.value, f"{named}{refusal.message}")


def named_as_tenants(declared: Profile, needs: t.Sequence[ResourceRequirements]) -> list[Problem]:
    """The problems of tenants that have the name of an admitted workload: tenant and workload would write limits to the same slice."""
    names = {profile_workloads.slice_name(need.workload.name): need.workload.name for need in needs}
    known = [(index, row.name, profile_workloads.slice_name(row.name)) for index, row in enumerate(declared.tenants)]
    return [
        Problem(
            f"tenants[{index}].name",
            name,
            f"is the name of a workload that was admitted at run time as well, and both would have one slice: corral release {names[own]} first",
        )
        for index, name, own in known
        if own in names
    ]


def twice_matched(needs: t.Sequence[ResourceRequirements]) -> list[Problem]:
    """The problems of units that two workloads match."""
    owners: dict[str, str] = {}
    problems = []
    for need in needs:
        if not need.workload.is_unit:
            continue
        unit, name = need.workload.pattern, need.workload.name
        if unit in owners:
            message = f"both {owners[unit]} and {name} match it: narrow the pattern of one"
            if owners[unit] == name:
                message = f"was admitted at run time under this name already: corral release {name} first"
            problems.append(Problem("workloads", unit, message))
        owners.setdefault(unit, name)
    return problems


def met_by_admitted(context: Context, needs: t.Sequence[ResourceRequirements]) -> list[Problem]:
    """The problems of a new profile's containers, pods and labels that also match a workload admitted at run time."""
    declared = {row.name: row for row in context.profile.workloads if row.has_resources and not row.is_unit}
    others = [need.workload for need in needs if need.workload.name not in declared] if context.fresh else []
    return [
        Problem(
            "workloads",
            workload.pattern,
            f"{other.name}, which was admitted at run time, matches it: corral release {other.name}",
        )
        for workload in declared.values()
        for other in others
        if other.match == workload.match and match_meets(workload.match, workload.pattern, other.pattern)
    ]


def unit_problems(context: Context, need: ResourceRequirements, seen: workload_limits.LimitsState) -> list[Problem]:
    """The problem of a unit that cannot run in its slice: the unit is an alias or starts before Corral, or another file sets Slice=."""
    unit = seen.unit
    if unit is not None and unit.other_name:
        message = f"is another name of {unit.other_name}: match that one"
        return [problem_of(context, Refusal(need.workload.name, "match.unit", need.workload.pattern, message))]
    if unit is not None and unit.is_early:
        message = "starts before all else at boot (DefaultDependencies=no), and what Corral grants is there later: match another unit"
        return [problem_of(context, Refusal(need.workload.name, "match.unit", need.workload.pattern, message))]
    change = workload_placement.later_change(need, "Slice", unit.slices, seen.slice) if unit else None
    if change is None:
        return []
    return [problem_of(context, Refusal(need.workload.name, "match.unit", need.workload.pattern, change.reason))]


# The entry for the registry


def key_of(change: Change, declared: Profile) -> str:
    """The key of the workload or tenant that a change's subject or location names."""
    names = [workload.name for workload in declared.workloads]
    tenants = [tenant.name for tenant in declared.tenants]
    for part in (change.subject, *change.location.split("/"), *change.subject.split("/")):
        name = (grants.workload_of(part.removesuffix(".d")) or part).partition(":")[0]
        if name in names:
            return f"workloads[{names.index(name)}]"
        if name in tenants:
            return f"tenants[{tenants.index(name)}]"
    return "workloads"


def on_removal(host: Host, removed: t.Container[str], dummy_back: bool) -> tuple[Change, ...]:
    """The changes that end all grants, and stop the slices without a process."""
    if NAME not in removed or not state.there(host, state.CHECKPOINT):
        return ()
    return (checkpoint.given_up(host), *empty_slices(host))


MANAGER = Manager(NAME, plan, WRITES, key_of=key_of, on_removal=on_removal)
