# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# This module is private to the collection corral.node.
"""The pipeline: observe, plan, validate, apply, look again. Drift is the plan that was not executed."""

from __future__ import annotations

import json
import typing as t

from .host import actions, cgroup, hugepages, lock, mounts, state, sysfs
from .host.actions import StepFailed
from .host.files import Host
from .host.state import Record
from .host.thread_masks import Masks
from .managers import cpu
from .model import cpuset, fit, partitions, pools, profile, replay, replay_v1, undo, unitproperty, validate
from .model.context import Attempt, Context
from .model.errors import CorralError, Problem, refusal
from .model.grants import ISOLATED, is_exclusive, is_workloads
from .model.handover import Stuck
from .model.plan import DECLARE, RELEASE, START, UNCHANGEABLE, VALUES, Change, Part, Step, steps_in_order
from .model.profile import Profile
from .model.schema_types import CORRAL_SLICE, EXCLUSIVE_PREFIX
from .model.topology import Topology

# The managers by name, in the order in which they plan: see every_manager(). What a start waits for loads few of them.
MANAGERS = ("cpu", "memory", "pids", "gc", "owners")
WORKLOADS = "workloads"  # a node without workloads does not load their manager
PROFILE = "profile"  # the manager of the declaration itself
PROFILE_MANAGERS = (PROFILE, *MANAGERS, WORKLOADS)
ALL_MANAGERS = (*PROFILE_MANAGERS, "agent")
BUSY = "no longer declared, and it holds processes: it stops when the last one has ended"
NEVER_RECORDED = ("daemon-reload", "restart")
VALUE_KEYS = ("value:", "pool:")
VOLATILE = (f"{state.STATE}/", f"{cgroup.ROOT}/{CORRAL_SLICE}/", f"{cgroup.ROOT}/{EXCLUSIVE_PREFIX}")
if t.TYPE_CHECKING:
    from types import ModuleType

    from .model.agent_units import Options
    from .settling import Asked

Narrow = t.Callable[["Plan"], "Plan"]  # Takes of a plan what one task is to do: see parts.py.


class Plan(t.NamedTuple):
    """What would be changed. ``context`` is None for a plan that concerns no profile (the agent, a removal)."""

    context: t.Optional[Context]
    changes: tuple[Change, ...]
    parts: tuple[Part, ...]
    obsolete: frozenset[str]
    notes: tuple[str, ...] = ()


class Outcome(t.NamedTuple):
    """What came of a run. ``remaining`` is the drift that is left: in check mode all of it.

    ``error`` says what was refused in the middle, ``undone`` what became of it; both empty when all went well.
    """

    plan: Plan
    applied: tuple[Change, ...]
    remaining: tuple[Change, ...]
    error: str = ""
    undone: tuple[str, ...] = ()
    leftovers: tuple[str, ...] = ()


# Planning


def every_manager() -> tuple[ModuleType, ...]:
    """The managers of what a profile declares, in the order of MANAGERS."""
    from .managers import gc, memory, owners, pids

    return cpu, memory, pids, gc, owners


def compile_profile(
    host: Host,
    declared: Profile,
    *,
    fresh: bool = False,
    topology: t.Optional[Topology] = None,
    asked: t.Optional[Asked] = None,
) -> Context:
    """The profile on this machine, or on that ``topology`` of it; ``asked`` has the workloads that start or stop now.

    Raises CorralError with every problem at once.
    """
    topology = sysfs.watched(host) if topology is None else topology
    befores = [record.before for record in state.records(host)[0]]
    pages = {hugepages.pool_of(one.target): one.value or "" for one in befores if one.kind == "pool"}
    problems = fit.check_node(declared, topology, {pool: int(n) for pool, n in pages.items() if pool and n.isdecimal()})
    if problems:
        raise CorralError(*problems)
    computed = pools.compute(declared, topology)
    before = {one.target: one.value for one in befores if one.kind == "value" and one.value}
    context = Context(declared, topology, computed, host.now(), load_attempts(host), fresh, before)
    if not (asked or declared.workloads or any(state.written_before(host, path) for path in state.WORKLOADS)):
        return context
    from . import settling

    if not (asked or settling.concerns(host, declared)):
        return context
    left, settled = settling.settle(
        host, declared, topology, computed, asked or settling.NOTHING, fresh=fresh, before=before
    )
    return context._replace(pools=left, workloads=settled)


def plan_grants(host: Host, context: Context) -> Plan:
    """The plan that makes the profile true, or as much of it as grants need: what the managers of CPUs and workloads plan.

    Raises CorralError, as plan_profile() does. What another manager plans is left out where it has no say: on a node where
    this profile is applied, and where nothing goes back to what it was before Corral.
    """
    if applied_already(host, context.profile):
        plan = plan_profile(host, context, managers=(cpu,))
        if not plan.obsolete:
            return plan
    return plan_profile(host, context)


def plan_profile(
    host: Host, context: Context, *, declare: bool = False, managers: t.Optional[t.Sequence[ModuleType]] = None
) -> Plan:
    """The plan that makes the profile true, as far as ``managers`` (None: all of them) and that of workloads plan it.

    ``declare`` also makes it the node's declared profile.

    Raises CorralError when the profile cannot begin on this node (a mount's path is taken, a PID budget is exceeded);
    a profile that is already applied is not refused but reported.
    """
    planning = every_manager() if managers is None else managers
    try:
        parts = [manager.plan(host, context) for manager in planning]
        if context.workloads is not None:
            from .managers import workloads

            parts.append(workloads.plan(host, context))
    except Stuck as stuck:
        problem = f"no order of steps hands the CPUs of {stuck} over without an overlap: go by a profile in between"
        raise CorralError(Problem("cpu", None, problem)) from None
    problems = [problem for part in parts for problem in part.problems]
    if problems and not applied_already(host, context.profile):
        raise CorralError(*problems)
    if declare:
        parts.append(declaration(host, context))
    names = (PROFILE,) if declare else ()
    plan = finish(host, context, parts, (*names, *(manager.NAME for manager in planning), WORKLOADS))
    plan = plan._replace(notes=(*plan.notes, *fit.notes(context.profile, context.topology)))
    if managers is None:
        from .managers import gc

        plan = plan._replace(changes=plan.changes + gc.stale(host, context))
    if not applied_already(host, context.profile):
        refuse_overlaps(host, plan)
    return plan


def plan_agent(
    host: Host,
    options: Options,
    program: t.Optional[t.Mapping[str, str]] = None,
    *,
    tag: t.Optional[str] = None,
    trigger: str = "",
) -> Plan:
    """The plan that installs the agent, or keeps it installed (see managers/agent.py)."""
    from .managers import agent as agent_manager

    part = agent_manager.plan(host, options, program, tag=tag, trigger=trigger)
    # Only who brings the program knows which of its files are no longer part of it.
    plan = finish(host, None, [part], (agent_manager.NAME,) if program is not None else ())
    stale = agent_manager.stale_metrics(host, options, "the metrics go elsewhere") if program is not None else ()
    return plan._replace(changes=plan.changes + stale)


def plan_removal(host: Host, managers: t.Sequence[str]) -> Plan:
    """The plan that brings back what was there before these managers' first change."""
    from .managers import agent as agent_manager

    plan = finish(host, None, [], managers)
    stale = agent_manager.stale_metrics(host, None, "nobody keeps the metrics up to date any more")
    if WORKLOADS in managers and host.exists(state.CHECKPOINT):
        from .managers import workloads

        known = {change.subject for change in plan.changes}
        stale += (workloads.given_up(host),)
        stale += tuple(change for change in workloads.empty_slices(host) if change.subject not in known)
    return plan._replace(changes=plan.changes + stale)


def joined(first: Plan, second: Plan) -> Plan:
    """Two plans as one."""
    return Plan(
        first.context or second.context,
        first.changes + second.changes,
        first.parts + second.parts,
        first.obsolete | second.obsolete,
        first.notes + second.notes,
    )


def finish(host: Host, context: t.Optional[Context], parts: t.Sequence[Part], managers: t.Sequence[str]) -> Plan:
    """A plan of these parts, and of all that these managers once changed and nobody holds any more."""
    records, warning = state.records(host)
    held = frozenset(key for part in parts for key in part.held)
    online = (host.read("/sys/devices/system/cpu/online") or "").strip()
    if context is not None and context.profile.cpu is not None:
        # A unit that goes back to no set of its own has what exclusive slices leave.
        free = (cgroup.cpu_list(online) or frozenset()) - context.pools.isolated - context.pools.exclusive
        online = cpuset.format(free) or online
    dropped = [record for record in records if record.manager in managers and record.before.key not in held]
    busy = [record for record in dropped if context is not None and is_busy(host, record.before)]
    dropped = [record for record in dropped if record not in busy]
    changes = [change for part in parts for change in part.changes]
    changes += [restoring(record, online)._replace(steps=(), verdict=UNCHANGEABLE, reason=BUSY) for record in busy]
    known = {step.key for change in changes for step in change.steps if step.kind == "unit"}
    again = [one for one in reversed(dropped) if one.before.key not in known and not is_as_before(host, one.before)]
    changes += [restoring(record, online) for record in again]
    obsolete = frozenset(record.before.key for record in dropped)
    notes = [note for part in parts for note in part.notes]
    return Plan(context, tuple(changes), tuple(parts), obsolete, (*([warning] if warning else []), *notes))


def is_busy(host: Host, before: undo.Before) -> bool:
    """Whether a slice that was made cannot go yet: a stop would end what runs in it."""
    is_slice = before.kind == "unit" and before.target.endswith(".slice")
    return is_slice and not before.active and not is_workloads(before.target) and cgroup.populated(host, before.target)


def is_as_before(host: Host, before: undo.Before) -> bool:
    """Whether a kernel value, a mount or a property of a unit needs no bringing back."""
    if before.kind == "cpuset":
        return actions.look(host, Step("cpuset", before.target, None, RELEASE)).value == before.value
    if before.kind == "mount":
        return before.active and mounts.at(host, before.name) is not None
    if before.kind == "property":
        step = Step("property", before.target, f"{before.name}=", RELEASE)
        # The folders that would have to be made are missing now as they were then, too.
        return actions.look(host, step) == before
    if before.kind not in ("value", "pool", "partition"):
        return False
    # A pool can be gone with its NUMA node.
    return (host.read(before.target) or "").strip() == before.value or not host.exists(before.target)


def restoring(record: Record, online: str) -> Change:
    """The change that brings a before-value back."""
    before = record.before
    kinds = {"file": "content", "link": "link", "pool": "nr_hugepages", "unit": "state", "mount": "mounted"}
    kinds.update(cpuset="cpuset.cpus", partition=partitions.PROPERTY)
    was = before.value if before.kind in ("value", "pool", "property", "cpuset", "partition") else None
    return Change(
        record.manager,
        before.name if before.kind == "mount" else before.target,
        before.name if before.kind == "property" else kinds.get(before.kind, before.kind),
        "set by Corral",
        was if was else ("as it was" if before.value or before.link or before.active else "absent"),
        "no longer declared: back to what was there before",
        before.target,
        tuple(undo.restore(before, online)),
    )


def declaration(host: Host, context: Context) -> Part:
    """The declared profile's files on the node, written last: it is declared once it is true.

    The origins of its keys are one of them. Where they are not known, those of this very profile stay, others go.
    """
    from .model import compose  # The tick declares nothing.

    data = profile.to_data(context.profile)
    files = [(state.DECLARED, data, "another profile", context.profile.name, "the declared profile")]
    origins = compose.declared_origins(data, context.origins) if context.origins else read_origins(host, data)
    if origins:
        kept = {"profile": state.checksum(data), "origins": origins}
        files.append((state.ORIGINS, kept, "other origins", f"{len(origins)} keys", "where each key comes from"))
    changes = []
    for path, content, other, wanted, reason in files:
        text = json.dumps(content, indent=2, sort_keys=True) + "\n"
        actual = host.read(path)
        if actual != text:
            # Readable for all: what a node is meant to be is no secret, and who is not root may ask how far it is from it.
            step = Step("file", path, text, DECLARE)
            shown = None if actual is None else other
            changes.append(Change(PROFILE, path, "content", shown, wanted, reason, path, (step,)))
    return Part(tuple(changes), frozenset(f"file:{path}" for path, *dummy in files))


def read_origins(host: Host, data: t.Mapping[str, t.Any]) -> dict[str, str]:
    """The origins that the node keeps of a declared profile (profile.to_data); empty when they are another's."""
    kept = state.read_json(host, state.ORIGINS)
    if not isinstance(kept, dict) or kept.get("profile") != state.checksum(data):
        return {}
    origins = kept.get("origins")
    return {str(path): str(origin) for path, origin in origins.items()} if isinstance(origins, dict) else {}


def applied_already(host: Host, declared: Profile) -> bool:
    """Whether this very profile was the last to be applied on this node."""
    return bool(state.read_json(host, state.APPLIED) == profile.to_data(declared))


def read_declared(host: Host) -> t.Optional[Profile]:
    """The node's declared profile; None when it has none. Raises CorralError for one that is no profile."""
    text = host.read(state.DECLARED)
    if text is None:
        return None
    try:
        data = json.loads(text, object_pairs_hook=profile.unique)
    except profile.DuplicateKey as error:
        raise CorralError(Problem(state.DECLARED, None, str(error))) from None
    except (ValueError, RecursionError) as error:
        raise CorralError(Problem(state.DECLARED, None, f"no JSON ({error}): apply the profile again")) from None
    return profile.parse(data)


def last_good(host: Host) -> tuple[t.Optional[Profile], t.Optional[CorralError]]:
    """The profile that was applied last."""
    data = state.read_json(host, state.APPLIED)
    return (None, None) if data is None else (profile.parse(data), None)


def declared_or_last_good(host: Host) -> tuple[t.Optional[Profile], t.Optional[CorralError]]:
    """The declared profile; when it is no profile, the one applied last and why."""
    try:
        return read_declared(host), None
    except CorralError as error:
        try:
            return last_good(host)[0], error
        except CorralError:
            return None, error


# Applying


def everything(plan: Plan) -> Plan:
    """A plan as it is."""
    return plan


def declare(
    host: Host,
    declared: Profile,
    origins: t.Optional[t.Mapping[str, str]] = None,
    *,
    narrow: Narrow = everything,
    forgiving: bool = False,
) -> Outcome:
    """Make a profile this node's declared one and true; the caller holds the lock."""
    context = compile_profile(host, declared, fresh=not applied_already(host, declared))
    context = context._replace(origins=origins or {})

    def again() -> Plan:
        return narrow(plan_profile(host, looked_again(host, context), declare=True))

    outcome = apply(host, narrow(plan_profile(host, context, declare=True)), again, forgiving=forgiving)
    if not outcome.error:
        state.remember_profile(host, profile.to_data(declared))
        keep_compiled(host, context)
    return outcome


def looked_again(host: Host, context: Context) -> Context:
    """The context for the look after an apply: what the kernel gave, and what workloads were granted, is known now."""
    if context.workloads is not None:
        origins, timer, boot = context.origins, context.by_timer, context.at_boot
        context = compile_profile(host, context.profile, topology=context.topology)
        context = context._replace(origins=origins, by_timer=timer, at_boot=boot)
    return context._replace(now=host.now(), attempts=load_attempts(host), fresh=False)


def keep_compiled(host: Host, context: Context) -> None:
    """Keep what the profile comes to on this node, for the diff of the next run; written only when it changed."""
    from . import compiled

    text = compiled.text_of(context.profile, context.lasting_pools)
    if host.read(state.COMPILED, follow=False) != text:
        state.state_folder(host, state.STATE)
        host.write_file(state.COMPILED, text, state.PRIVATE)


def remove(host: Host, managers: t.Sequence[str], *, narrow: Narrow = everything) -> Outcome:
    """Bring back what was there before these managers' first change; the caller holds the lock.

    Corral's own state goes with the last of it; what boot would bring back and others read goes with the profile.
    """

    def plan() -> Plan:
        return narrow(plan_removal(host, managers))

    outcome = apply(host, plan(), plan, forgiving=True)
    if not outcome.error and PROFILE in managers:
        from .managers import gc

        of_workloads = [one for path in state.WORKLOADS for one in (f"{path}.damaged", *state.rest_of(path))]
        for path in (state.APPLIED, state.COMPILED, *of_workloads, *state.PUBLISHED, *gc.told(host)):
            if host.exists(path):
                host.remove(path)
    # Before-values that were lost do not make a node one that nothing is declared on.
    needed = (state.DECLARED, state.APPLIED, *state.WORKLOADS)
    if not outcome.error and not state.records(host)[0] and not any(map(host.exists, needed)):
        state.forget(host)
    return outcome


def apply(host: Host, plan: Plan, replan: t.Callable[[], Plan], *, forgiving: bool = False) -> Outcome:
    """Execute a plan, all or nothing, and look again.

    Raises CorralError before the first write. A step that is refused in the middle undoes what was done, in reverse
    order. ``forgiving`` (removal) goes on past what cannot be brought back, and names it in ``leftovers``.
    """
    steps = steps_in_order(plan.changes)
    if not steps and not plan.obsolete:
        return Outcome(plan, (), plan.changes)
    state.preflight(host, steps)
    problems = validate.problems(steps, plan.context.topology if plan.context else None)
    problems += overlaps(host, plan, steps)
    if problems:
        raise CorralError(*problems)
    try:
        return carry_out(host, plan, steps, replan, forgiving)
    finally:
        host.close_bus()  # One connection to systemd serves the whole plan.


def carry_out(
    host: Host, plan: Plan, steps: t.Sequence[Step], replan: t.Callable[[], Plan], forgiving: bool
) -> Outcome:
    """Keep what is there before, run the steps, and look again."""
    online = (host.read("/sys/devices/system/cpu/online") or "").strip()
    if cgroup.unified(host):
        online = cpuset.format(cgroup.rest(host)) or online  # A unit without a set of its own had what partitions left.
    kept, dummy = state.records(host)
    new = new_records(host, plan, kept)
    untouched = not host.names(state.STATE)
    if new:
        keep_records(host, [*kept, *new])
    error, undone, leftovers = execute(host, plan, steps, online, forgiving)
    if error:
        if not leftovers and new:
            forget_records(host, kept, untouched)
        return Outcome(plan, (), replan().changes, error, undone, leftovers)
    save_attempts(host, steps)
    if plan.obsolete and not leftovers:
        gone = [record.before for record in kept if record.before.key in plan.obsolete]
        rest = [record for record in (*kept, *new) if record.before.key not in plan.obsolete]
        heirs = undo.handed_down([record.before for record in rest], gone)
        state.save_records(host, [record._replace(before=heir) for record, heir in zip(rest, heirs)])
    applied = tuple(change for change in plan.changes if change.steps)
    return Outcome(plan, applied, replan().changes, leftovers=leftovers)


def refuse_overlaps(host: Host, plan: Plan) -> None:
    """Raise CorralError for a plan that would let others onto exclusive CPUs."""
    problems = overlaps(host, plan, steps_in_order(plan.changes))
    if problems:
        raise CorralError(*problems)


def overlaps(host: Host, plan: Plan, steps: t.Sequence[Step]) -> list[Problem]:
    """Each instant at which the steps would let others onto exclusive CPUs, by the kernel's rule.

    Every plan comes through here: of a profile, of a removal, and each step of an undo (guarded). A slice that is to keep its
    CPUs is guarded throughout, any other exclusive one until it is no partition any more.
    """
    if not any(map(validate.moves_cpus, steps)):
        return []
    if not cgroup.unified(host):
        return replay_v1.problems(steps, [one for part in plan.parts for one in part.directories])
    from .host import cgroup_tree

    tree = host.unrecorded(lambda: cgroup_tree.look(host))
    exclusive = {path for path in tree.machine.cgroups if "/" not in path and is_exclusive(path)}
    keeps = keep_cpus(plan, exclusive)
    cpu = plan.context.profile.cpu if plan.context else None
    kept_out = cpu is None or cpu.partitions != "off"
    return replay.problems(steps, tree.machine, tree.populated & keeps, exclusive | keeps, partitions=kept_out)


def keep_cpus(plan: Plan, exclusive: t.Iterable[str]) -> set[str]:
    """The slices that have exclusive CPUs once the plan is executed; ``exclusive`` are those that are there."""
    context = plan.context
    if context is not None:
        isolated = {ISOLATED} if context.pools.isolated else set()
        return isolated | {grant.slice for grant in context.grants if grant.cpus}
    ends = any(step.target == state.CHECKPOINT for change in plan.changes for step in change.steps)
    removed = {change.subject for change in plan.changes if change.property == "state"}
    return set() if ends else set(exclusive) - removed


def guarded(host: Host, plan: Plan, step: Step) -> str:
    """Why a step must not follow one that was refused or undone, as the machine is now; "" when nothing is in its way."""
    found = overlaps(host, plan, [step])
    said = found[0].message.partition(": ")[0] if found else ""
    return f"{step.target}: left as it is, since {said}" if said else ""


def keep_records(host: Host, records: t.Sequence[Record]) -> None:
    """Keep the before-values; without them nothing is begun."""
    try:
        state.save_records(host, records)
    except OSError as error:
        message = (
            f"the before-values cannot be kept ({error.strerror}), so nothing was changed: make room, then try again"
        )
        raise refusal(message, path=state.BEFORE) from None


def forget_records(host: Host, kept: t.Sequence[Record], untouched: bool) -> None:
    """After an undo: keep what was kept before; on a node that had nothing of Corral's before the run, nothing at all."""
    if untouched:
        state.forget(host)
    else:
        state.save_records(host, kept)


def new_records(host: Host, plan: Plan, kept: t.Sequence[Record]) -> list[Record]:
    """The before-values of everything that this plan touches for the first time."""
    held = {record.before.key for record in kept}
    known = set(held)
    found = []
    for change in (change for part in plan.parts for change in part.changes):
        for step in (looked for written in change.steps for looked in (written, *taken_with(written))):
            if is_volatile(step) or step.key in known or step.value in NEVER_RECORDED or is_tampering(step, held):
                continue
            known.add(step.key)
            found.append(Record(change.manager, change.subject, actions.look(host, step)))
    # A kernel value that is right already: what somebody sets there later was not there before.
    for part in plan.parts:
        for kind, target in (key.split(":", 1) for key in sorted(part.held - known) if key.startswith(VALUE_KEYS)):
            if part.manager:
                found.append(Record(part.manager, target, actions.look(host, Step(kind, target, None, VALUES))))
        found += [Record(part.manager, s.target, actions.look(host, s)) for s in part.remember if s.key not in known]
    return found


def is_volatile(step: Step) -> bool:
    """Whether there is nothing to bring back: Corral's own state, and what ends with a process or a control group."""
    if step.target.startswith("/proc/"):
        return not step.target.startswith("/proc/sys/")
    if step.kind == "unit" and step.value == "stop":
        return is_workloads(step.target)
    return step.kind == "folder" or (step.kind != "partition" and step.target.startswith(VOLATILE))


def taken_with(step: Step) -> tuple[Step, ...]:
    """A drop-in takes the unit's live property as well: what somebody sets there later was not there before."""
    found = unitproperty.property_of(step.target) if step.kind == "file" else None
    return (Step("property", found[0], f"{found[1]}=", RELEASE),) if found else ()


def is_tampering(step: Step, held: t.Container[str]) -> bool:
    """Whether the step removes a property that somebody set after Corral took the unit: that was not there before."""
    folder, dummy, file = step.target.rpartition(".d/50-")
    if step.kind != "file" or not folder.startswith("/etc/systemd/system.control/"):
        return False
    return f"property:{folder.rpartition('/')[2]}:{file[: -len('.conf')]}" in held


def execute(
    host: Host, plan: Plan, steps: t.Sequence[Step], online: str, forgiving: bool
) -> tuple[str, tuple[str, ...], tuple[str, ...]]:
    """Run the steps. Returns the error, what was undone, and what could not be brought back."""
    done: list[tuple[undo.Before, Step]] = []
    leftovers: list[str] = []
    masks: Masks = {}
    for step in steps:
        # The plan was validated as a whole: what comes after a refused step was not.
        barred = guarded(host, plan, step) if leftovers else ""
        if barred:
            leftovers.append(barred)
            continue
        before = actions.look(host, step)
        done.append((before, step))
        try:
            actions.perform(host, step, masks)
        except (StepFailed, OSError) as error:
            if step.optional and not forgiving:
                continue
            said = sentence(step, error)
            if forgiving:
                leftovers.append(said)
                continue
            undone, left = undo_steps(host, plan, done, online, masks)
            return said, undone, left
    return "", (), tuple(leftovers)


def undo_steps(
    host: Host, plan: Plan, done: t.Sequence[tuple[undo.Before, Step]], online: str, masks: Masks
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Take back what was done, the last first. Returns what was taken back and what could not be."""
    undone, leftovers, late = [], [], []
    for before, step in reversed(done):
        inverse = undo.inverse(before, step, online)
        late += [back for back in inverse if back.phase == START]
        failed = [
            said for said in (attempt(host, plan, back, masks) for back in inverse if back.phase != START) if said
        ]
        leftovers += failed
        if inverse and not failed:
            undone.append(f"{step.kind} {step.target}")
    if any(step.reload or step.value == "daemon-reload" for dummy, step in done):
        late.insert(0, Step("unit", "", "daemon-reload", 0))
    leftovers += [said for said in (attempt(host, plan, back, masks) for back in late) if said]
    return tuple(undone), tuple(leftovers)


def attempt(host: Host, plan: Plan, step: Step, masks: Masks) -> str:
    """Do a step of an undo; what it says when it fails, "" when it does not."""
    barred = guarded(host, plan, step)
    if barred:
        return barred
    try:
        actions.perform(host, step, masks)
    except (StepFailed, OSError) as error:
        return sentence(step, error)
    return ""


def sentence(step: Step, error: Exception) -> str:
    """What was refused, by whom, on one line."""
    if isinstance(error, OSError):
        return f"{error.filename or step.target}: {error.strerror or error}"
    return str(error)


# Hugepages and partitions are asked for again at most every ten minutes


def load_attempts(host: Host) -> dict[str, Attempt]:
    """When which pool was last asked for, by its file."""
    data = state.read_json(host, state.ATTEMPTS)
    found = {}
    for path, row in data.items() if isinstance(data, dict) else ():
        try:
            found[path] = Attempt(int(row[0]), int(row[1]), float(row[2]))
        except (TypeError, ValueError, IndexError, KeyError):
            continue
    return found


def save_attempts(host: Host, steps: t.Sequence[Step]) -> None:
    """Remember what the kernel gave for the pools that were just asked for, and which partitions it refused."""
    asked = [step for step in steps if step.kind == "pool"]
    refused = [
        step.target for step in steps if step.kind == "partition" and "invalid" in (host.read(step.target) or "")
    ]
    if asked or refused:
        attempts = load_attempts(host)
        attempts.update((target, Attempt(1, 0, host.now())) for target in refused)
        for step in asked:
            attempts[step.target] = Attempt(int(step.value or 0), actions.pages(host, step.target), host.now())
        lock.own_folder(host, state.RUN, 0o755)
        host.write_file(state.ATTEMPTS, json.dumps(attempts) + "\n", 0o644)
