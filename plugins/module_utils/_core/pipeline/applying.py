# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# This module is private to the collection corral.node.
"""Applying a plan, all or nothing: record the originals, run the steps, undo them if a step is refused, observe again."""

from __future__ import annotations

import typing as t

from ..host import cgroup, lock, state, systemd
from ..host.files import Host, Unreadable
from ..host.plan import apply_step, attempts, preflight
from ..host.plan.apply_step import StepFailed
from ..host.workload import workload_state
from ..managers import registry
from ..managers.registry import PROFILE
from ..model.plan import make_step, undo
from ..model.plan.context import Context
from ..model.plan.plan import EMPTY_SLICES, RELOAD, START, UNKNOWN, Change, Outcome, Plan, Step, key_of, steps_in_order
from ..model.profile import profile
from ..model.profile.profile import Profile
from ..model.profile.schema_types import AGENT_SLICE, CORRAL_SLICE
from ..model.values import cpuset
from ..model.values.errors import CorralError
from . import declared_profile, planning

if t.TYPE_CHECKING:
    from ..host.cpu.thread_masks import Masks
    from ..model.values.vocabulary import Run

Narrow = t.Callable[["Plan"], "Plan"]  # a function that selects a task's changes: section_tasks.py


def everything(plan: Plan) -> Plan:
    """The whole plan."""
    return plan


def declare(
    host: Host,
    declared: Profile,
    origins: t.Optional[t.Mapping[str, str]] = None,
    *,
    narrow: Narrow = everything,
    before_steps: t.Optional[t.Callable[[], None]] = None,
) -> Outcome:
    """Apply a profile and declare it on this node; the caller holds the lock. ``before_steps``: see carry_out()."""
    context = planning.compile_profile(host, declared, fresh=not declared_profile.applied_already(host, declared))
    context = context._replace(origins=origins or {})

    def again() -> Plan:
        return narrow(planning.plan_profile(host, refresh(host, context), declare=True))

    plan = narrow(planning.plan_profile(host, context, declare=True))
    outcome = apply(host, plan, again, before_steps=before_steps)
    if not outcome.error:
        state.record_profile(host, profile.to_data(declared))
        write_effective_profile(host, plan.context or context)
    return outcome


def refresh(host: Host, context: Context) -> Context:
    """The context for the observation after an apply, with the last attempts (attempts.py) and the grants that were made."""
    if context.workloads is not None:
        again = planning.compile_profile(host, context.declared, context.run, topology=context.topology)
        context = again._replace(origins=context.origins)
    run: Run = "tick" if context.run == "timer" else context.run
    back = declared_profile.goes_back_to(host, context.declared)
    return context._replace(run=run, goes_back=back, now=host.now(), attempts=attempts.read(host), fresh=False)


def write_effective_profile(host: Host, context: Context) -> None:
    """Write the effective profile of this node to its file if the profile changed: the next run shows its diff to this file."""
    from ..model.profile import effective_profile

    text = effective_profile.text_of(context.profile, context.persistent_pools)
    if state.read_text(host, state.EFFECTIVE_PROFILE) != text:
        state.state_folder(host, state.STATE)
        host.write_file(state.EFFECTIVE_PROFILE, text, state.PRIVATE)


def remove(host: Host, managers: t.Sequence[str], *, narrow: Narrow = everything, goes_back: bool = False) -> Outcome:
    """Restore the originals of ``managers``; the caller holds the lock.

    Corral's own state is removed with the last original; files for boot and for other programs are removed with the profile.
    ``goes_back``: the node goes back from an unconfirmed profile; the caller removes the record of that profile.
    """

    def plan() -> Plan:
        return narrow(planning.plan_removal(host, managers))

    def begin() -> None:
        if waits:
            from ..host.agent import unconfirmed_file

            unconfirmed_file.stop_timer(host)  # A timer that runs while its unit file is removed stays failed.
        if PROFILE in managers and not first.lost:
            # If this file stayed, a tick after a killed removal would report that the profile is lost.
            host.remove(state.APPLIED)

    waits = not goes_back and state.there(host, state.UNCONFIRMED)
    first = plan()
    applied = state.read_text(host, state.APPLIED)
    outcome = apply(host, first, plan, before_steps=begin)
    if first.lost:
        return outcome
    if outcome.error and applied is not None:
        host.write_file(state.APPLIED, applied, state.PRIVATE)
    if outcome.leftovers:
        from . import restoring_originals

        outcome = outcome._replace(remaining=restoring_originals.not_yet_restored(host, outcome.remaining))
    if not outcome.error and PROFILE in managers:
        state.delete_with_profile(host, state.REJECTED if goes_back else "")
        for path in [path for one in registry.every() for path in one.status_files(host)]:
            if state.there(host, path):
                host.remove(path)
    if not outcome.error and waits and state.there(host, state.UNCONFIRMED):
        from ..host.agent import unconfirmed_file

        unconfirmed_file.forget(host)  # Nothing can go back: the profile is gone, or the agent is gone.
    # A node whose originals were lost may still have a declared profile.
    needed = (state.DECLARED, state.APPLIED, state.UNREADABLE, *state.WORKLOADS)
    if not outcome.error and not state.records(host)[0] and not any(state.there(host, path) for path in needed):
        state.forget(host)
    return outcome


def apply(
    host: Host, plan: Plan, replan: t.Callable[[], Plan], *, before_steps: t.Optional[t.Callable[[], None]] = None
) -> Outcome:
    """Execute a plan, all or nothing, and observe again. ``before_steps``: see carry_out().

    Raises CorralError before the first write. If a step is refused later, the steps before it are undone in reverse order.
    """
    steps = steps_in_order(plan.changes)
    if not steps and not plan.obsolete:
        return Outcome(plan, (), plan.changes)
    refuse(host, plan, steps)
    try:
        return carry_out(host, plan, steps, replan, before_steps)
    finally:
        systemd.close_connection(host)  # One connection to systemd serves the whole plan.


def refuse(host: Host, plan: Plan, steps: t.Sequence[Step]) -> None:
    """Raise CorralError with every reason not to begin a plan; check mode calls this as well as a run."""
    preflight.refuse_node(host)
    preflight.refuse_steps(host, steps, keep_going=plan.keep_going)
    from ..model.plan import validate  # A tick that changes nothing does not load these modules.
    from . import overlap_check

    problems = validate.problems(
        plan.changes, plan.context.topology if plan.context else None, registry.writes(plan.changes)
    )
    problems += overlap_check.overlaps(host, plan, steps)
    if problems:
        raise CorralError(*problems)


def planned(host: Host, plan: Plan, *, locks: bool = False) -> Outcome:
    """The outcome of a run in check mode: no step is executed, and the plan is drift. ``error`` is the error of a real run.

    ``locks``: the run would take the node's lock even without a step.
    """
    from ..managers.profile import declaration

    steps = steps_in_order(plan.changes)
    error = ""
    if locks or steps or plan.obsolete:
        try:
            preflight.refuse_node(host)
            if steps or plan.obsolete:
                refuse(host, plan, steps)
        except CorralError as refused:
            error = str(refused)
    # The agent's own slice does not count as in use: no tick works in the slice while a run has the lock.
    stopped = [step for step in steps if step.target != AGENT_SLICE] if plan.keep_going and not error else []
    left = [apply_step.in_use(host, step) for step in stopped]
    drift = tuple(filter(declaration.is_drift, plan.changes))
    return Outcome(plan, (), drift, error, leftovers=tuple(filter(None, left)))


def carry_out(
    host: Host,
    plan: Plan,
    steps: t.Sequence[Step],
    replan: t.Callable[[], Plan],
    before_steps: t.Optional[t.Callable[[], None]],
) -> Outcome:
    """Record the originals, run the steps, and observe again.

    ``before_steps`` is called right before the first step: if the function raises or was not called, the node is unchanged.
    """
    lock.refuse_lost(host)
    online = cpus_of_others(host)
    from . import recording_originals  # A tick that changes nothing does not load the module.

    kept, dummy = state.records(host)
    new = recording_originals.new_records(host, plan, kept)
    untouched = not host.names(state.STATE)
    recording_originals.note_reload(host, steps)
    if new:
        recording_originals.keep_records(host, [*kept, *new])
        # Both copies of the records are current now, so the steps that would mend a copy are left out.
        steps = [step for step in steps if step.target not in state.rest_of(state.BEFORE)]
    if before_steps is not None:
        try:
            before_steps()
        except (CorralError, Unreadable):
            if new:
                recording_originals.forget_records(host, kept, untouched)
            raise
    error, undone, leftovers, refused = execute(host, plan, steps, online)
    lock.refuse_lost(host)
    # After an undo, only units whose CPUs were refused count as attempts. Later runs repeat an attempt after ten minutes.
    attempts.save(host, () if error else steps, tuple(refused))
    if error:
        if not leftovers and new:
            leftovers = recording_originals.forget_records(host, kept, untouched)
        return Outcome(plan, (), still_differing(plan, replan), error, undone, leftovers)
    end_grant_units(host, [step.target for step in steps if step.kind == "file" and step.value is None])
    if (new and refused) or (plan.obsolete and not leftovers):
        recording_originals.settle_records(
            host, kept, new, {step.key for step in refused}, frozenset() if leftovers else plan.obsolete
        )
    try:
        remaining = replan().changes
    except Unreadable as unread:
        remaining = (unreadable(unread),)
    made = (change for change in plan.changes if any(step not in refused for step in change.steps))
    return Outcome(plan, tuple(with_drain_refused(made, refused)), remaining, leftovers=leftovers)


def cpus_of_others(host: Host) -> str:
    """The CPUs of a unit without a cpuset: the CPUs in no partition, or with cgroup v1 the online CPUs."""
    online = (host.read("/sys/devices/system/cpu/online") or "").strip()
    return (cgroup.unified(host) and cpuset.format(cgroup.rest(host))) or online


def end_grant_units(host: Host, removed: t.Sequence[str]) -> None:
    """End the units that hold grants if their unit files were ``removed``."""
    from ..model.workload import workload_units

    if workload_units.GRANT_UNIT in removed:
        # If a drop-in could not be removed, the workload's unit still requires the unit that holds the grant, and would stop with it.
        unneeded = not any(map(host.exists, removed))
        systemd.end_units(host, workload_units.GRANT_UNITS, workload_units.REGRANT_UNITS, stop=unneeded)


def unreadable(error: Unreadable) -> Change:
    """The item of drift for a path that could not be read: without this path the state of the node is unknown."""
    return Change(
        PROFILE, error.path, "read", None, None, f"cannot be read: {error.advice}", error.path, verdict=UNKNOWN
    )  # fmt: skip


def with_drain_refused(changes: t.Iterable[Change], refused: t.Mapping[Step, str]) -> t.Iterator[Change]:
    """The changes. If the node was not drained for a change, the reason of the change says why: no later observation shows this."""
    for change in changes:
        hooks = (step for step in change.steps if step in refused and step.kind == "hook" and step.value == "drain")
        said = [f"; not drained: {refused[step]}" for step in hooks]
        yield change._replace(reason="".join([change.reason, *said[:1]]))


def still_differing(plan: Plan, replan: t.Callable[[], Plan]) -> tuple[Change, ...]:
    """The changes that an observation after an undo finds. If the observation fails, the changes of the undone ``plan``: that failure must
    not hide why the run was undone.
    """
    try:
        return replan().changes
    except (CorralError, Unreadable):
        return plan.changes


def execute(
    host: Host, plan: Plan, steps: t.Sequence[Step], online: str
) -> tuple[str, tuple[str, ...], tuple[str, ...], dict[Step, str]]:
    """Run the steps. Returns the error, the undone steps, the leftovers, and the refused optional steps with the reasons."""
    from . import overlap_check  # This import reads no file: refuse() has loaded the module before.

    done: list[tuple[undo.Original, Step]] = []
    leftovers: list[str] = []
    refused: dict[Step, str] = {}
    masks: Masks = {}
    for step in steps:
        # The validation assumed that each step succeeds: after a refused step this step may have become unsafe.
        try:
            lock.refuse_lost(host)  # A lost lock ends this run like a crash: the run that has the lock now continues.
            kept = overlap_check.cpus_still_requested(host, plan, step, refused) if refused else ""
        except Unreadable as error:
            kept = str(error)
        if kept:
            undone, left = undo_steps(host, plan, done, online, masks)
            return "; ".join([*refused.values(), kept]), undone, left, refused
        blocked = conflict_with(host, plan, step) if leftovers else ""
        if blocked:
            leftovers.append(blocked)
            continue
        if refused and records_refused(plan, step, refused):
            refused[step] = f"{step.target}: not written"
            continue
        try:
            done.append((apply_step.observe(host, step), step))
            apply_step.perform(host, step, masks)
        except (StepFailed, OSError, Unreadable) as error:
            said = sentence(step, error)
            if step.optional and not plan.keep_going and not isinstance(error, Unreadable):
                refused[step] = said
                done.pop()
                continue
            if plan.keep_going and not must_drain(step):
                leftovers.append(said)
                continue
            undone, left = undo_steps(host, plan, done, online, masks)
            return said, undone, left, refused
    return "", (), tuple(leftovers), refused


def must_drain(step: Step) -> bool:
    """Whether a step must drain the node, since later steps take resources from pods. If such a drain fails, a removal stops too."""
    return step.kind == "hook" and step.value == "drain" and not step.optional


def records_refused(plan: Plan, step: Step, refused: t.Mapping[Step, str]) -> bool:
    """Whether an optional step writes a file in a change with a refused step: the file would record the refused change."""
    if step.kind != "file" or not step.optional:
        return False
    return any(step in one.steps and not refused.keys().isdisjoint(one.steps) for one in plan.changes)


def undo_steps(
    host: Host, plan: Plan, done: t.Sequence[tuple[undo.Original, Step]], online: str, masks: Masks
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Undo the steps ``done``, the last step first. Returns a line for each undone step, and for each step that could not be undone."""
    try:
        return undo_readable(host, plan, done, online, masks)
    except Unreadable as error:
        return (), tuple(f"{step.target}: left as it is, since {error}" for dummy, step in done)


def undo_readable(
    host: Host, plan: Plan, done: t.Sequence[tuple[undo.Original, Step]], online: str, masks: Masks
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The result of undo_steps(). Raises Unreadable."""
    from . import overlap_check

    undone: list[str] = []
    leftovers: list[str] = []
    late: list[Step] = []
    blocked: list[Step] = []  # Steps that conflict with a slice which stops later: they run after that stop.
    records: list[Step] = []  # Steps for the files of the checkpoint: run only if all CPUs could be taken back.
    why_kept = ""  # why CPUs could not be taken back
    reloaded = any(step.value == "daemon-reload" for dummy, step in done)
    exclusive_before = overlap_check.exclusive_before(host, done)
    shared = shared_before(host, done)
    for before, step in reversed(done):
        if step.kind in ("file", "link") and apply_step.observe(host, step) == before:
            continue  # The step was refused, and changed nothing.
        inverse = undo.inverse(before, step, online, shared)
        said = []
        for back in inverse:
            if runs_on(host, before, back):
                continue
            if is_late(host, back, reloaded=reloaded):
                late.append(back)
            elif (blocked or why_kept) and back.target in state.rest_of(state.CHECKPOINT):
                records.append(back)
            elif conflict_with(host, plan, back, exclusive_before):
                blocked.append(back)
            else:
                said.append(attempt(host, back, masks))
                why_kept = said[-1] if said[-1] and step.name == "AllowedCPUs" else why_kept
        leftovers += filter(None, said)
        if inverse and not any(said):
            undone.append(f"{step.kind} {step.target}")
    if reloaded or any(step.reload for dummy, step in done):
        late.append(make_step.unit("", "daemon-reload", RELOAD))
    for back in (*undo.in_order(late), *blocked, *records):
        if back in records and why_kept:
            leftovers.append(f"{back.target}: left as it is, since its grants are not taken back: {why_kept}")
            continue
        why = conflict_with(host, plan, back, exclusive_before) or attempt(host, back, masks)
        why_kept = why if back in blocked and why else why_kept
        leftovers += filter(None, [why])
    return tuple(undone), tuple(leftovers)


def runs_on(host: Host, before: undo.Original, back: Step) -> bool:
    """Whether a step of an undo would stop a unit that was active before the run and has processes."""
    return back.kind == "unit" and back.value == "stop" and before.active and cgroup.populated(host, back.target)


def shared_before(host: Host, done: t.Sequence[tuple[undo.Original, Step]]) -> str:
    """The CPUs that the shared slice requested before the steps ``done``; an empty string if the slice requested no CPUs."""
    key = key_of("property", CORRAL_SLICE, "AllowedCPUs")
    first = next((before for before, dummy in done if before.key == key), None)
    if first is not None:
        return first.value or ""
    return cpuset.format(cgroup.cpus(host, CORRAL_SLICE).requested or frozenset())


def is_late(host: Host, back: Step, *, reloaded: bool) -> bool:
    """Whether a step of an undo has to wait until all files are restored and systemd has read these files. A start has to wait. The stop of
    a slice has to wait if systemd may have a running unit in the slice by now: the unit would stop with the slice.
    """
    if back.phase == EMPTY_SLICES and back.kind == "unit":
        return reloaded or bool(workload_state.unit_to_be_in(host, back.target))
    return back.phase == START


def conflict_with(host: Host, plan: Plan, step: Step, exclusive_before: t.Optional[t.Container[str]] = None) -> str:
    """Why a step would cause an overlap of CPUs after an earlier step was refused or undone; an empty string without an overlap.

    ``exclusive_before``: see overlap_check.overlaps().
    """
    from . import overlap_check

    try:
        found = overlap_check.overlaps(host, plan, [step], exclusive_before)
    except Unreadable as error:
        return f"{step.target}: left as it is, since an overlap cannot be ruled out: {error}"
    said = found[0].message.partition(": ")[0] if found else ""
    return f"{step.target}: left as it is, since {said}" if said else ""


def attempt(host: Host, step: Step, masks: Masks) -> str:
    """Execute a step of an undo. Returns the error; an empty string on success."""
    try:
        apply_step.perform(host, step, masks)
    except (StepFailed, OSError, Unreadable) as error:
        return sentence(step, error)
    return ""


def sentence(step: Step, error: Exception) -> str:
    """The refused step and the reason, on one line."""
    if isinstance(error, OSError):
        return f"{step.target if step.target.startswith('/') else error.filename}: {error.strerror or error}"
    return str(error)
