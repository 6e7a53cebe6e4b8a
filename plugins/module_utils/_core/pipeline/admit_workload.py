# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# This module is private to the collection corral.node.
"""Admit and release workloads at run time. An admission or release executes only the steps that grants need; the next tick does the rest.

A workload is admitted in audit mode and on a paused node as well, since a start enforces nothing. The caller holds the node's lock.
"""

from __future__ import annotations

import fnmatch
import typing as t

from ..host import state, workload_files
from ..host.files import Host
from ..host.workload import workload_state
from ..model.plan import validate
from ..model.plan.context import Context
from ..model.plan.plan import CPUS, EMPTY_SLICES, FILES, LATER, RELEASE, Change, Outcome, Plan, Step
from ..model.profile import profile_tenants
from ..model.profile.profile import Profile
from ..model.profile.profile_workloads import RUNNING, Workload
from ..model.systemd.unit_file import unit_in
from ..model.values.errors import CorralError, Problem, refusal
from ..model.values.records import NamedTuple
from ..model.workload import grants
from ..model.workload.grants import Grant
from . import allocate_workloads, applying, overlap_check, planning, profile_in_force
from .allocate_workloads import BY_HAND, Request

if t.TYPE_CHECKING:
    from ..model.plan.context import Workloads


class Undeclared(CorralError):
    """No workload of this name is declared."""


class Admission(NamedTuple):
    """The result of an admission or release; ``grant`` is None after a release, or if there is nothing to grant."""

    outcome: Outcome
    grant: t.Optional[Grant]


def start(host: Host, name: str, run: str) -> Admission:
    """Grant a declared workload its resources before its first instruction. Raises CorralError."""
    return execute(host, Request(start={name: run or run_by_hand(host, name)}), name, refresh=False)


def run_by_hand(host: Host, name: str) -> str:
    """The run id for a grant that is made by hand: the id of the workload's present run, else a new id (allocate_workloads.by_hand)."""
    granted = (one for one in workload_files.grants_in_force(host) if one.workload == name and one.instance)
    return next(
        (one.instance for one in granted if allocate_workloads.runs(host, one)), ""
    ) or allocate_workloads.by_hand(host)


def stop(host: Host, name: str, run: str) -> Admission:
    """Take back the grant of a run ("" means the workload's present run). The grant of a later run stays."""
    if not run:
        granted = grant_named(host, name)
        run = granted.instance if granted else ""
    return execute(host, Request(stop={name: run}), "", refresh=False)


def still_runs(host: Host, name: str) -> bool:
    """Whether a workload's unit still runs with the workload's grant, while systemd stops the unit that holds the grant.

    At a daemon-reload systemd stops the unit that holds the grant if no drop-in requires that unit, for example after a removal by hand.
    """
    granted = grant_named(host, name)
    if granted is None or not workload_state.runs_unit(host, granted.unit or unit_by_name(host, name)):
        return False
    return workload_state.populated(host, name, granted.tenant)


def unit_by_name(host: Host, name: str) -> str:
    """The unit of the workload ``name``; empty without such a workload or unit. A grant that was read from a slice names no unit."""
    declared, dummy = profile_in_force.read(host)
    first, colon, unit = name.partition(":")
    known = (*(declared.workloads if declared is not None else ()), *workload_files.admitted(host))
    matching = (one for one in known if one.name == first)
    return next((f"{unit}.service" if colon else one.pattern for one in matching if one.is_unit), "")


def grant_named(host: Host, name: str) -> t.Optional[Grant]:
    """The grant of a workload in the checkpoint."""
    return next((one for one in workload_files.grants_in_force(host) if one.workload == name), None)


def admit(host: Host, workload: Workload) -> Admission:
    """Declare a workload on this node beside the profile's workloads, and grant the workload its requests. Raises CorralError."""
    request, name = admission(host, workload)
    return execute(host, request, name, with_files=True)


def admission(host: Host, workload: Workload) -> tuple[Request, str]:
    """The request to admit a workload, and the name of the workload that must have a grant afterwards (empty if no grant is needed).

    Raises CorralError. A second admission changes nothing while the workload's grant lasts, or if each start of the workload's unit gets a
    grant.
    """
    before = workload_files.admitted(host)
    refuse_admission(workload, profile_of(host), before)
    request = Request(admitted=tuple({**{one.name: one for one in before}, workload.name: workload}.values()))
    if workload.hold != RUNNING:
        return request, workload.name
    own = [one for one in workload_files.grants_in_force(host) if one.workload == workload.name]
    lasts = any(allocate_workloads.runs(host, one) or allocate_workloads.waits_to_start(host, one) for one in own)
    if workload in before and (lasts or workload.is_unit):
        return request, ""
    if any(allocate_workloads.runs(host, one) for one in own):
        # The request has no start, so the workload keeps the devices of its run, as after a change of the profile.
        return request, workload.name
    return request._replace(start={workload.name: run_by_hand(host, workload.name)}), workload.name


def refuse_admission(workload: Workload, declared: Profile, admitted: t.Sequence[Workload]) -> None:
    """Raise CorralError for a workload that requests nothing, matches several units, or matches a unit of another workload."""
    if workload.name in {one.name for one in declared.workloads}:
        message = "is declared in the node's profile: change it there, or admit it under another name"
        raise refusal(message, path="name", value=workload.name)
    tenant = False
    if declared.tenants:
        profile_tenants.refuse_workload(declared.tenants, workload)
        tenant = profile_tenants.is_member(declared.tenants, workload)
    if declared.cpu is None:
        raise refusal(f"needs pools of CPUs, and the profile {declared.name} has none: declare cpu.reserved in it")
    if not (workload.has_resources or tenant):
        raise refusal("asks for nothing: write requests, limits or containers", path="requests")
    path, pattern = f"match.{workload.match}", workload.pattern
    if workload.is_unit and workload.is_glob:
        message = "may mean several units: admit each by its name, or declare it in the profile"
        raise refusal(message, path=path, value=pattern)
    others = (*declared.workloads, *(one for one in admitted if one.name != workload.name))
    other = allocate_workloads.conflicting(workload, others)
    if other is not None:
        said = "is what" if fnmatch.fnmatchcase(pattern, other.pattern) else f"meets {other.pattern}, which"
        way = "change it in the node's profile" if other in declared.workloads else "release that one"
        message = f"{said} the workload {other.name} matches: {way}, or match something else"
        raise refusal(message, path=path, value=pattern)


def withdraw(host: Host, name: str) -> Admission:
    """End the admission of a workload, or release the grant of a declared workload with hold: running. Raises CorralError."""
    if name in {one.name for one in workload_files.admitted(host)}:
        return execute(host, withdrawal(host, name), "", with_files=True)
    declared = next((one for one in profile_of(host).workloads if one.name == name.partition(":")[0]), None)
    if declared is None:
        raise refusal("no such workload was admitted here: corral status lists them", path="name", value=name)
    if declared.hold != RUNNING:
        message = "holds what it has as long as the profile declares it: change the profile"
        raise refusal(message, path="name", value=name)
    granted = grant_named(host, name)
    if granted is None:
        runs = [one.workload for one in workload_files.grants_in_force(host) if one.workload.startswith(f"{name}:")]
        hint = f"release {' or '.join(runs)}" if runs else "corral status lists them"
        raise refusal(f"has no grant here: {hint}", path="name", value=name)
    # A running workload may lose its CPUs, since its processes continue on the shared CPUs, but it must not lose its devices.
    if granted.devices and allocate_workloads.runs(host, granted):
        message = "runs, and would share its devices with their next holder: stop it, which gives them back"
        raise refusal(message, path="name", value=name)
    released = stop(host, name, "")
    workload_state.ask_for_end(host, [granted])
    return released


def withdrawal(host: Host, name: str) -> Request:
    """The request to release an admitted workload."""
    return Request(admitted=tuple(one for one in workload_files.admitted(host) if one.name != name))


def next_start(workloads: Workloads, name: str) -> Request:
    """The request of a workload's next start. That start ends the grants that the workload's unit has under other names."""
    needs = [need for need in workloads.needs if need.workload.name == name]
    earlier = grants.renamed(grants.undeclared_runs(workloads.checkpoint.grants, workloads.needs), needs)
    return Request(start={name: "what-if"}, stop={one.workload: one.instance for one in earlier})


def what_if(host: Host, request: Request) -> Context:
    """The context of a run with this request. The node is not changed."""
    return planning.compile_profile(host, profile_of(host), "admission", request=request)


def planned(host: Host, request: Request, name: str, *, with_files: bool = False) -> Plan:
    """The plan of an admission or release; the workload ``name`` must have a grant afterwards. Raises CorralError."""
    plan = to_be_applied(host, request, name, with_files=with_files)
    overlap_check.refuse_overlaps(host, plan)
    return plan


def to_be_applied(host: Host, request: Request, name: str, *, with_files: bool) -> Plan:
    """The plan of planned(), not yet checked for overlaps. Raises CorralError."""
    context = what_if(host, request)
    refuse(context, name)
    # A start plans only grants. A release may also restore values of other managers.
    starts = bool(request.start) and not with_files
    plan = planning.plan_grants(host, context) if starts else planning.plan_profile(host, context)
    problems = [problem for part in plan.parts for problem in part.problems if problem.path.startswith(f"{name}.")]
    if problems:
        raise CorralError(*problems)
    return narrowed(plan, None if with_files else later(host))


def later(host: Host) -> tuple[int, ...]:
    """The phases that an admission leaves out. No slice is stopped while a daemon-reload is due: a running unit may be in the slice."""
    return (*LATER, EMPTY_SLICES) if state.there(host, state.RELOAD_DUE) else LATER


def execute(host: Host, request: Request, name: str, *, with_files: bool = False, refresh: bool = True) -> Admission:
    """Execute the plan of an admission or release. Raises CorralError.

    Each step reads its value back. Without ``refresh`` the outcome does not list the changes that are left: a start would wait for that
    list, and the next tick makes the list.
    """
    plan = to_be_applied(host, request, name, with_files=with_files)
    context = t.cast("Context", plan.context)

    def again() -> Plan:
        if not refresh:
            return plan._replace(changes=())
        left = planning.plan_profile(host, applying.refresh(host, context))
        return narrowed(left, None if with_files else later(host))

    outcome = applying.apply(host, plan, again)
    if outcome.error:
        from ..reports import change_text  # A granted start does not load the module.

        raise refusal(change_text.refused(outcome), path=name)
    return Admission(outcome, grant_of(context, name))


def refuse(context: Context, name: str) -> None:
    """Raise CorralError if the workload ``name`` would get no grant."""
    workloads = context.workloads
    # The grant of this name may belong to another unit that still runs.
    is_others = workloads is not None and name in workloads.status.other_units
    if not name or (workloads is not None and grant_of(context, name) is not None and not is_others):
        return
    if workloads is None or name not in {need.workload.name for need in workloads.needs}:
        raise Undeclared(
            Problem(name, None, "the profile declares no such workload with resources; corral status lists them")
        )
    said = [
        Problem(f"{refused.workload}.{refused.key}", refused.value, refused.message)
        for refused in workloads.allocated.refusals
        if refused.workload == name
    ]
    raise CorralError(*said)


def granted(plan: Plan, name: str) -> t.Optional[Grant]:
    """A workload's grant once a plan is executed."""
    return grant_of(plan.context, name) if plan.context is not None else None


def grant_of(context: Context, name: str) -> t.Optional[Grant]:
    """A workload's grant once the plan of this context is executed."""
    return next((grant for grant in context.grants if grant.workload == name), None)


def ending(host: Host, name: str, *, settled: bool = False) -> bool:
    """Whether the run of another workload has ended, so that its resources will be free in a moment.

    ``settled``: units without processes that systemd calls active do not count. Such a unit waits for its RestartSec=, and keeps its grant.
    """
    others = (one for one in workload_files.grants_in_force(host) if one.hold == RUNNING and one.workload != name)
    by_units = (one for one in others if not one.instance.startswith(BY_HAND))
    empty = (one for one in by_units if not workload_state.populated(host, one.workload, one.tenant))
    return any(
        not (settled and workload_state.runs_unit(host, grant.unit or unit_by_name(host, grant.workload)))
        for grant in empty
    )


def profile_of(host: Host) -> Profile:
    """The profile in force. Raises CorralError without a profile."""
    declared, broken = profile_in_force.read(host)
    if declared is None:
        raise broken or refusal("no profile is declared here: apply one first", path=state.DECLARED)
    return declared


def unit_of(step: Step) -> str:
    """The unit of a step: its target, or the unit whose drop-in or folder of drop-ins the step changes; empty for any other file."""
    if step.kind == "folder":
        return unit_in(f"{step.target}/.")
    return unit_in(step.target) if step.target.startswith("/") else step.target


def narrowed(plan: Plan, without: t.Optional[t.Sequence[int]]) -> Plan:
    """The part of a plan that grants need: moves of CPUs and limits, without files that systemd would have to read.

    A slice whose file waits for a rollout is not stopped and keeps its live CPUs. Otherwise the slice would get the CPUs of that file when
    systemd reads the file or a unit starts in the slice, and another slice may have these CPUs by then. ``without`` has the phases that are
    left out (None: the whole plan is kept).
    """
    steps = [step for change in plan.changes for step in change.steps]
    filed = {unit_of(step) for step in steps if without is not None and (step.phase in without or step.reload)} - {""}

    def at_once(step: Step) -> bool:
        if without is None:
            return True
        stays = step.phase in (RELEASE, FILES, EMPTY_SLICES) and unit_of(step) in filed
        return step.phase not in without and not step.reload and not stays

    def ours(changes: t.Iterable[Change]) -> tuple[Change, ...]:
        kept_changes = []
        for change in changes:
            steps = tuple(filter(at_once, change.steps))
            # All moves of CPUs are made at once. Other steps of the same change, such as the removal of a file, can wait.
            moves = any(validate.moves_cpus(step) and step.phase == CPUS for step in steps)
            if change.manager in planning.GRANTS and (moves or len(steps) == len(change.steps)):
                kept_changes.append(change._replace(steps=steps))
        return tuple(kept_changes)

    kept = ours(plan.changes)
    # The original that a left-out step would restore stays recorded, even if a hand-over now writes the same setting.
    now = {step for change in kept for step in change.steps}
    later = {step.key for step in steps if step not in now}
    return plan._replace(
        changes=kept,
        parts=tuple(part._replace(changes=ours(part.changes), baseline=()) for part in plan.parts),
        obsolete=plan.obsolete - later,
    )
