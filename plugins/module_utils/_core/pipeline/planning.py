# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# This module is private to the collection corral.node.
"""Compile a profile for the node, and plan the changes of all managers. Drift is a plan that was not executed."""

from __future__ import annotations

import typing as t

from ..host import state
from ..host.files import Host
from ..host.memory import hugepage_files
from ..host.plan import attempts
from ..host.topology import sysfs
from ..managers import registry
from ..managers.kubelet import kubelet
from ..managers.registry import CHECKS, CPU, DEVICES, PROFILE, WORKLOADS
from ..model.cpu import pools
from ..model.cpu.handover import NoSafeOrder
from ..model.plan import undo
from ..model.plan.context import Context
from ..model.plan.plan import Change, Part, Plan
from ..model.profile import capacity_check, profile
from ..model.profile.profile import Profile
from ..model.topology.topology import Topology
from ..model.values.errors import CorralError, Problem
from . import declared_profile, named_programs

if t.TYPE_CHECKING:
    from ..model.agent.agent_units import AgentOptions
    from ..model.profile.node_intent import Resolved
    from ..model.values.vocabulary import Run
    from .allocate_workloads import Request

GRANTS = (CPU, WORKLOADS, DEVICES)  # the managers that an admission needs
KUBELET = kubelet.MANAGER.name
# Runs that restart no kubelet: their pools and grants keep to the CPUs that the kubelet reserves now. Other runs plan the reserved CPUs.
KEEP_KUBELET = ("tick", "timer", "admission")


def compile_profile(
    host: Host,
    declared: Profile,
    run: Run = "rollout",
    *,
    fresh: bool = False,
    topology: t.Optional[Topology] = None,
    request: t.Optional[Request] = None,
) -> Context:
    """The profile compiled for this machine, or for ``topology``; ``request`` has the workloads that start or stop now.

    Raises one CorralError with all problems.
    """
    topology = sysfs.watched(host) if topology is None else topology
    befores = [record.before for record in state.records(host)[0]]
    pages = {hugepage_files.pool_of(one.target): one.value or "" for one in befores if one.kind == "pool"}
    counts = {pool: int(n) for pool, n in pages.items() if pool and n.isdecimal()}
    resolved = resolve(declared, topology, counts)
    literal = resolved.profile if resolved else declared
    problems = capacity_check.check_node(literal, topology, counts)
    if resolved:
        problems = [*resolved.problems, *map(resolved.as_declared, problems)]
    goes_back = declared_profile.goes_back_to(host, declared)
    if named_programs.names_any(declared) and not goes_back:
        problems += named_programs.problems(host, declared)
    if problems:
        raise CorralError(*problems)
    computed = pools.compute(literal, topology)
    if resolved:
        computed = computed._replace(notes=(*computed.notes, *resolved.notes))
    before = {one.target: one.value for one in befores if one.kind == "value" and one.value}
    original_cpus = {
        one.target: one.value or "" for one in befores if one.kind == "property" and one.name == "AllowedCPUs"
    }
    tried = attempts.read(host)
    context = Context(literal, topology, computed, host.now(), tried, fresh, before, original_cpus, resolved=resolved)
    context = context._replace(run=run, goes_back=goes_back)
    if run in KEEP_KUBELET:
        context = beside_kubelet(host, context)
    return with_grants(host, context, request)


def with_grants(host: Host, context: Context, request: t.Optional[Request] = None) -> Context:
    """The context with the grants of workloads, and its pools without the granted CPUs; ``request``: see compile_profile()."""
    declared = context.declared
    claims = declared.workloads or declared.tenants
    if not (request or claims or any(state.written_before(host, path) for path in state.WORKLOADS)):
        return context
    from . import allocate_workloads

    if not (request or allocate_workloads.concerns(host, declared)):
        return context
    if request is None and context.goes_back:
        request = allocate_workloads.without_conflicts(host, declared)
    asked = request or allocate_workloads.NOTHING
    left, allocated = allocate_workloads.allocate(
        host, context.profile, context.topology, context.pools, asked, fresh=context.fresh, before=context.before
    )
    return context._replace(pools=left, workloads=allocated)


def configures_kubelet(host: Host, declared: Profile) -> bool:
    """Whether Corral configures the kubelet: the profile has the section kubelet, or changes by an earlier section kubelet are left."""
    return declared.kubelet is not None or kubelet.is_held(host)


def beside_kubelet(host: Host, context: Context) -> Context:
    """The context with its pools within the CPUs that the node's kubelet reserves now; ``context`` itself if no pool has to change."""
    if (
        context.declared_pools is not None
        or context.profile.cpu is None
        or not configures_kubelet(host, context.profile)
    ):
        return context
    from ..host.gc import other_gc
    from ..host.kubelet import kubelet_unit

    service = other_gc.kubelet(host)
    if service != kubelet_unit.UNIT and (service is not None or not kubelet_unit.is_installed(host)):
        return context  # Neither the files of a removed kubelet nor a kubelet within another program limits the pools.
    from ..host.kubelet import kubelet_cpus

    now = context.pools
    own = now.reserved | now.isolated
    if kubelet_cpus.for_pools(host, own | now.exclusive) - now.exclusive == own:
        return context
    # The bound is for the pools before any grant: the grants are taken out of the bounded pools afterwards.
    declared = pools.compute(context.profile, context.topology)._replace(notes=now.notes) if now.exclusive else now
    reserve = kubelet_cpus.for_pools(host, declared.reserved | declared.isolated)
    kept = pools.within(declared, context.topology, reserve)
    return context if kept is declared else context._replace(pools=kept, declared_pools=declared)


def resolve(
    declared: Profile, topology: Topology, before: t.Mapping[tuple[int, t.Optional[int]], int]
) -> t.Optional[Resolved]:
    """The profile with its intents resolved for this machine; None for a profile without intents."""
    if not profile.has_intents(declared):
        return None
    from ..model.profile import node_intent

    return node_intent.resolve(declared, topology, before)


def plan_grants(host: Host, context: Context) -> Plan:
    """The plan that applies the profile, or only the changes of the managers in GRANTS. Raises CorralError like plan_profile().

    The changes of these managers are enough if this profile is already applied on the node and these changes end no original.
    """
    if declared_profile.applied_already(host, context.declared):
        plan = plan_profile(host, context, managers=GRANTS)
        if not plan.obsolete:
            return plan
    return plan_profile(host, context)


def plan_profile(
    host: Host, context: Context, *, declare: bool = False, managers: t.Optional[t.Sequence[str]] = None
) -> Plan:
    """The plan that applies the profile, with the changes of ``managers`` (None: of all managers).

    With ``declare`` the plan also makes the profile the node's declared profile. An admission executes no change of the kubelet manager, so
    problems of that manager refuse no admission.

    Raises CorralError if the profile cannot be applied on this node (a mount's path is taken, a PID budget is exceeded). A profile that is
    already applied is not refused: its problems are drift.
    """
    names = tuple(registry.FILES) if managers is None else tuple(managers)
    planning = with_work(host, context, names)
    first: dict[str, Part] = {}
    if context.run not in KEEP_KUBELET and configures_kubelet(host, context.profile):
        if KUBELET in planning:
            first[KUBELET] = kubelet.plan(host, context)
        if not kubelet.reserves_pools(first.get(KUBELET, Part((), frozenset())), context):
            kept = beside_kubelet(host, context)
            if kept is not context:
                return plan_profile(host, with_grants(host, kept), declare=declare, managers=managers)
    try:
        parts = [first.get(name) or registry.manager(name).plan(host, context) for name in planning]
    except NoSafeOrder as stuck:
        problem = f"no order of steps hands the CPUs of {stuck} over without an overlap: apply a profile in between"
        raise CorralError(Problem("cpu", None, problem)) from None
    refuse(host, context, dict(zip(planning, parts)))
    if declare:
        parts.append(registry.manager(PROFILE).plan(host, context))
    plan = finish(host, context, parts, (PROFILE, *names) if declare else names)
    left_out = context.resolved.notes if context.resolved else ()
    plan = plan._replace(notes=(*plan.notes, *left_out, *capacity_check.notes(context.profile, context.topology)))
    if not declared_profile.applied_already(host, context.declared):
        from . import overlap_check

        overlap_check.refuse_overlaps(host, plan)
    # A tick makes only changes that a run has announced, and the start of a unit must not wait for this observation.
    if managers is None and context.run in ("rollout", "install"):
        from . import fewer_cpus

        plan = plan._replace(notes=(*plan.notes, *fewer_cpus.notes(host, plan)))
    return plan


def with_work(host: Host, context: Context, names: t.Iterable[str]) -> list[str]:
    """The names of the managers that have work to do: a node without workloads, for example, does not load the manager of workloads."""
    found = context.workloads
    gives = found is not None and (found.devices is not None or any(need.workload.containers for need in found.needs))
    idle = set[str]() if found is not None else {WORKLOADS}
    if not (gives or host.exists(state.DEVICES) or state.there(host, state.GRANTS_SPEC)):
        idle.add(DEVICES)  # No workload has devices or containers, and no files of grants are left.
    if not (any(one.check for one in context.profile.devices) or state.there(host, state.DEVICE_CHECKS_LOCK)):
        idle.add(CHECKS)
    return [name for name in names if name not in idle]


def refuse(host: Host, context: Context, parts: t.Mapping[str, Part]) -> None:
    """Raise CorralError with the problems of ``parts`` if the profile is not applied yet."""
    spared = {KUBELET} if context.run == "admission" else set[str]()
    if context.goes_back:
        # Workloads of the unconfirmed profile with resources, and a kubelet that cannot be changed, are drift here, not a refusal.
        spared |= {WORKLOADS, KUBELET}
    problems = [problem for name, part in parts.items() if name not in spared for problem in part.problems]
    if context.resolved is not None:
        problems = list(map(context.resolved.as_declared, problems))
    if problems and not declared_profile.applied_already(host, context.declared):
        raise CorralError(*problems)


def drifted_from(host: Host, applied: object) -> frozenset[tuple[str, str, str]]:
    """The items by which the node differs from its applied profile (``applied`` is the data); empty if that profile no longer fits."""
    try:
        context = compile_profile(host, profile.parse(applied))
        return frozenset(change.item() for change in plan_profile(host, context).changes)
    except CorralError:
        return frozenset()


def plan_agent(
    host: Host,
    options: AgentOptions,
    core: t.Optional[t.Mapping[str, str]] = None,
    *,
    tag: t.Optional[str] = None,
    trigger: str = "",
) -> Plan:
    """The plan that installs the agent, or keeps it installed (see managers/agent/agent_install.py)."""
    from ..managers.agent import agent_install

    part = agent_install.plan(host, options, core, tag=tag, trigger=trigger)
    # Only a run that installs the program knows which files the program no longer has.
    plan = finish(host, None, [part], (agent_install.NAME,) if core is not None else ())
    stale = agent_install.stale_metrics(host, options, "the metrics go elsewhere") if core is not None else ()
    return plan._replace(changes=plan.changes + stale)


def plan_removal(host: Host, managers: t.Sequence[str]) -> Plan:
    """The plan that restores the originals of these managers. If the originals are lost, the plan only names what is left."""
    from ..host.plan import apply_step
    from . import lost_originals

    plan = finish(host, None, [], managers)
    if state.originals_lost(host):
        left = lost_originals.left(host, managers, plan_declared(host))
        if left:  # As long as Corral's values are left that cannot be restored, nothing is removed.
            return plan._replace(changes=(*plan.changes, *left), lost=True, keep_going=True)
    known = {change.subject for change in plan.changes}
    back = declared_profile.goes_back_to(host, None)
    own = [change for one in registry.every() for change in one.on_removal(host, managers, back)]
    changes = plan.changes + tuple(change for change in own if change.subject not in known)
    # The run tries the steps on busy targets too, names the steps that fail, and executes all other steps.
    busy = (apply_step.in_use(host, step) for change in changes for step in change.steps)
    notes = (f"will not be brought back: {why}" for why in dict.fromkeys(busy) if why)
    return plan._replace(changes=changes, notes=(*plan.notes, *notes), keep_going=True)


def plan_declared(host: Host) -> t.Optional[Plan]:
    """The plan of the declared profile; None if no profile is declared, or the profile does not fit the node."""
    try:
        declared = declared_profile.read_declared(host)
        return None if declared is None else plan_profile(host, compile_profile(host, declared))
    except CorralError:
        return None


def joined(first: Plan, second: Plan) -> Plan:
    """One plan with the content of two plans."""
    return Plan(
        first.context or second.context,
        first.changes + tuple(change for change in second.changes if change not in first.changes),
        first.parts + second.parts,
        first.obsolete | second.obsolete,
        first.notes + second.notes,
        first.lost or second.lost,
        first.keep_going or second.keep_going,
    )


def finish(host: Host, context: t.Optional[Context], parts: t.Sequence[Part], managers: t.Sequence[str]) -> Plan:
    """The plan with the changes of ``parts``. The plan also restores the originals of ``managers`` that no part owns any more."""
    records, warning = state.records(host)
    obsolete = frozenset(key for part in parts for key in part.gone)
    settled = obsolete.union(*(part.owned for part in parts))
    notes = [warning] if warning else []
    is_whole = set(registry.FILES) <= set(managers)
    dropped = [
        record
        for record in records
        # Only the plan of the whole profile names the originals of managers that this version lacks.
        if (is_whole and record.manager not in registry.names())
        or (
            record.manager in managers
            and record.before.key not in settled
            and undo.own_property(record.before.target) not in settled  # systemd's file is restored with its property
        )
    ]
    changes = [change for part in parts for change in part.changes]
    if not set(managers) <= set(GRANTS) and state.there(host, state.RELOAD_DUE):  # A start does no reload.
        from ..managers.profile import declaration

        changes += declaration.reload_due()
    if dropped:
        from . import restoring_originals  # A tick that restores no original does not load the module.

        restored = restoring_originals.plan(host, dropped, changes, context)
        changes += restored.changes
        obsolete |= restored.obsolete
        notes += restored.notes
    pools = any(step.kind == "pool" for change in changes for step in change.steps)
    if pools and context is not None and context.in_tick:
        from . import counted_hugepages  # Few ticks load the module: only ticks that find a differing pool.

        changes, kept = counted_hugepages.left_to_runs(host, changes)
        obsolete -= kept
    changes += lost_items(host, context, parts, managers, has_records=bool(records))
    if state.unread_rows(host):
        obsolete |= {state.UNREADABLE}  # The run saves the originals, and sets the unreadable records aside.
    notes += [note for part in parts for note in part.notes]
    return Plan(context, tuple(changes), tuple(parts), obsolete, tuple(notes))


def lost_items(
    host: Host, context: t.Optional[Context], parts: t.Sequence[Part], managers: t.Sequence[str], *, has_records: bool
) -> list[Change]:
    """The items for lost files of Corral and lost originals, as far as the files and originals belong to ``managers``."""
    is_whole = set(registry.FILES) <= set(managers)
    found: list[Change] = []
    if parts and (not has_records or state.there(host, state.LOST)):
        from . import lost_originals

        found += lost_originals.not_owned(host, managers, frozenset(key for part in parts for key in part.owned))
        found += lost_originals.loss(host) if context is not None and is_whole else ()
    if context is not None and is_whole:
        from . import lost_files

        found += lost_files.items(host)
    unreadable = state.unreadable(host)
    if unreadable:
        from . import lost_originals

        found += lost_originals.unreadable(unreadable, None if is_whole else managers)
    return found
