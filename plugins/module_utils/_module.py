# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# This module is private to the collection corral.node.
"""The only file that uses AnsibleModule: it takes the arguments and returns the outcome of every module in the same way."""

from __future__ import annotations

import re
import sys
import typing as t

from ansible.module_utils.basic import AnsibleModule

from . import _core_files  # before the core: it decides where the core is imported from
from ._core import main
from ._core.constants import SCHEMA
from ._core.host import state, trusted_program
from ._core.host.agent import pause_file, unconfirmed_file
from ._core.host.files import Host, Unreadable
from ._core.host.plan import preflight
from ._core.host.snapshot import recorded_tree
from ._core.host.topology import sysfs
from ._core.managers import registry
from ._core.managers.agent import agent_install
from ._core.managers.profile import declaration
from ._core.model.agent.agent_units import AgentOptions
from ._core.model.cpu import published_pools
from ._core.model.plan.context import Context
from ._core.model.plan.plan import Change, Outcome, Plan
from ._core.model.profile import compose, effective_profile, profile
from ._core.model.profile.profile import Profile
from ._core.model.status import history, pause
from ._core.model.topology import topology
from ._core.model.values.errors import CorralError, Problem, refusal
from ._core.model.values.printable_text import printable
from ._core.pipeline import (
    adopting,
    all_problems,
    applying,
    confirming,
    declared_profile,
    describing,
    locked_run,
    named_programs,
    observed_assignment,
    planning,
    preflight_notes,
    run_device_checks,
    section_tasks,
)
from ._core.pipeline.confirming import Terms
from ._core.reports import (
    change_text,
    cpu_map,
    drift_since,
    explain,
    gc_report,
    numa_table,
    plan_by_key,
    status_file,
    status_now,
)

# These properties may differ after a run: the kernel gave fewer pages, or a process has started meanwhile (cgroup v1).
MAY_DIFFER = ("nr_hugepages", "placement")

if t.TYPE_CHECKING:
    from ._core.model.status.json_shapes import ModuleResult
    from ._core.model.values.vocabulary import Run

Answer = t.TypeVar("Answer")


def run(spec: dict[str, t.Any], task: t.Callable[[AnsibleModule, Host], dict[str, t.Any]], **rules: t.Any) -> None:
    """Run a module: a refusal becomes a failure that names every problem, never a traceback."""
    module = AnsibleModule(supports_check_mode=True, argument_spec=spec, **rules)
    try:
        result = task(module, Host())
    except CorralError as error:
        problems = [problem._asdict() for problem in error.problems]
        for problem in problems:
            problem["value"] = None if problem["value"] is None else str(problem["value"])
        module.fail_json(msg=str(error), problems=problems)
    except Unreadable as error:
        module.fail_json(msg=printable(error.advised), problems=[])
    except OSError as error:
        module.fail_json(msg=printable(f"{error.filename or 'the node'}: {error.strerror or error}"), problems=[])
    if result.pop("failed", False):
        module.fail_json(**result)
    module.exit_json(**result)


def locked(
    module: AnsibleModule,
    host: Host,
    work: t.Callable[[], Answer],
    publish: t.Callable[[Host, Answer], object] = locked_run.published_after,
) -> Answer:
    """The result of the work, which is done as the only writer of the node."""
    wait, hint = module.params["lock_timeout"], "try again, or raise lock_timeout"
    return locked_run.locked(host, work, wait=wait, hint=hint, publish=publish)


def unless_paused(module: AnsibleModule, host: Host, work: t.Callable[[], Outcome]) -> Outcome:
    """Do the work as the only writer; on a paused node only if the task sets during_pause to apply."""

    def checked() -> Outcome:
        refuse_while_paused(module, host)
        return work()

    return locked(module, host, checked)


def nothing_to_do(module: AnsibleModule, host: Host, outcome: Outcome) -> Outcome:
    """The outcome of a run that changes nothing. It publishes what an earlier run could not publish."""
    if not module.check_mode and publishes(host):
        locked(module, host, lambda: outcome)
    return outcome


def publishes(host: Host) -> bool:
    """Whether a run that changes nothing takes the lock. On a node that Corral has not changed it takes none, and leaves nothing."""
    return host.exists(state.STATE)


def refuse_while_paused(module: AnsibleModule, host: Host) -> None:
    """Raise CorralError on a paused node, unless the task sets during_pause to apply."""
    if module.params["during_pause"] == "refuse":
        pause_file.refuse_changes(
            host, "end the pause with corral resume or corral.node.pause, or set during_pause to apply"
        )


def would_change(outcome: Outcome) -> tuple[Change, ...]:
    """The changes of a plan that a run would make: items that Corral cannot correct, or that are unknown, have no steps."""
    return tuple(change for change in outcome.plan.changes if change.steps)


def is_of_declared(host: Host, outcome: Outcome) -> bool:
    """Whether an outcome compares the node with its declared profile, as the agent's reports do."""
    if not outcome.remaining or outcome.plan.context is None:
        return bool(outcome.remaining)
    try:
        return declared_profile.read_declared(host) == outcome.plan.context.declared
    except CorralError:
        return False


def result_of(
    module: AnsibleModule, host: Host, outcome: Outcome, looked: t.Optional[change_text.Since] = None
) -> dict[str, t.Any]:
    """The result of each changing module. Check mode returns what the run would return. ``looked``: more times since when items exist."""
    shown = would_change(outcome) if module.check_mode else outcome.applied
    since = drift_since.known(host, status_file.last_status(host)) if is_of_declared(host, outcome) else {}
    since.update(looked or {})
    common: ModuleResult = {
        "schema": SCHEMA,
        "changed": bool(shown),
        "changes": [change_text.with_text(change) for change in shown],
        "drift": change_text.dated(outcome.remaining, since),
        "in_sync": not outcome.remaining and not outcome.error,
        "report": change_text.lines(outcome.remaining, since=since)
        if module.check_mode
        else change_text.outcome_lines(outcome, since),
    }
    result: dict[str, t.Any] = {**common}
    if module._diff:
        result["diff"] = change_text.diff(shown)
    for note in (*outcome.plan.notes, *change_text.leftovers(outcome)):
        module.warn(note)
    if outcome.plan.lost:
        said = "\n".join(change_text.line(change) for change in outcome.plan.changes)
        result.update(failed=True, msg=f"nothing was removed:\n{said}")
    elif outcome.error and module.check_mode:
        # A run would fail in the same way; the drift is reported as well.
        problem = Problem("", None, outcome.error)._asdict()
        result.update(failed=True, changed=False, msg=outcome.error, problems=[problem])
    elif outcome.leftovers and module.check_mode:
        result.update(failed=True, msg=f"not everything could be undone: {'; '.join(outcome.leftovers)}")
    elif outcome.error:
        result.update(failed=True, msg=change_text.refused(outcome), undone=list(outcome.undone))
    elif not module.check_mode:
        stuck = [change for change in outcome.remaining if change.steps and change.property not in MAY_DIFFER]
        if stuck and outcome.leftovers:
            said = "; ".join(outcome.leftovers)
            result.update(failed=True, msg=f"could not be brought back, and so {len(stuck)} more items differ: {said}")
        elif stuck:
            said = "; ".join(change_text.line(change) for change in stuck)
            result.update(failed=True, msg=f"set, and it did not stick (does something else set it?): {said}")
    return result


# profile


def profile_task(module: AnsibleModule, host: Host) -> dict[str, t.Any]:
    """The module profile."""
    if module.params["state"] == "absent":
        return removal(module, host, registry.of_profile())
    whole, layers = module.params["profile"], module.params["layers"]
    terms = Terms(module.params["confirm_timeout"], module.params["force"])
    adopt = module.params["adopt"]
    if layers is None:
        if adopt:
            raise refusal("adopts into a layer: give the profile in layers", path="adopt", value=adopt)
        if whole is None:  # The declared profile of the node, whose origins are kept.
            return apply_profile(module, host, node_profile(host), {}, terms)
        try:
            declared = profile.parse(whole)
            section_tasks.refuse_name(declared)
            same = declaration.read_origins(host, profile.to_data(declared))
            named = {} if same else dict.fromkeys(compose.leaves_of(whole), "profile")
            return apply_profile(module, host, declared, named, terms)
        except CorralError as error:
            raise all_problems.refusal_of(host, whole, error) from None
    parts = [compose.Layer(layer["origin"], layer["profile"]) for layer in layers]
    layer = adopted_layer(host, parts, adopt) if adopt else None
    if layer is not None:
        parts = [*(part for part in parts if part.origin != adopt), layer]
    composed = compose.compose(parts)
    try:
        declared = profile.parse(composed.data)
        section_tasks.refuse_name(declared)
        result = apply_profile(module, host, declared, composed.origins, terms)
        return {**result, "adopted": layer.data if layer else None} if adopt else result
    except CorralError as error:
        raise compose.rewrite_paths(all_problems.refusal_of(host, composed.data, error), composed.origins) from None


def adopted_layer(host: Host, layers: t.Sequence[compose.Layer], origin: str) -> t.Optional[compose.Layer]:
    """The layer with this origin and the node's differences merged over it; None if nothing can be adopted."""
    new = adopting.adopted(host)
    if not new:
        return None
    before = [layer for layer in layers if layer.origin == origin]
    return compose.Layer(origin, compose.compose([*before, compose.Layer(origin, new)]).data)


def apply_profile(
    module: AnsibleModule,
    host: Host,
    declared: Profile,
    origins: t.Mapping[str, str],
    terms: Terms,
    declare: t.Optional[t.Callable[[], Outcome]] = None,
) -> dict[str, t.Any]:
    """Apply a profile and declare it on this node (with ``declare``, if it is given); in check mode only plan it."""
    confirming.refuse(host, declared, terms)
    run_device_checks.check_unknown(host, declared, writes=not module.check_mode)
    run: Run = "install" if module.params.get("with_agent") else "rollout"
    context = planning.compile_profile(host, declared, run, fresh=not declared_profile.applied_already(host, declared))
    context = context._replace(origins=origins)
    applied = state.applied(host)
    confirmed = confirming.confirmed_last(host, unconfirmed_file.pending(host))
    none_before = "" if confirming.is_lost(host) else None
    drifted = planning.drifted_from(host, applied) if applied is not None else frozenset()
    effective_before = state.read_text(host, state.EFFECTIVE_PROFILE) or ""
    notes: tuple[str, ...] = ()
    if module.check_mode:
        outcome = applying.planned(host, planning.plan_profile(host, context, declare=True), locks=True)
        notes = preflight_notes.notes(host, context)
        if would_change(outcome) and confirming.needs_confirmation(host, declared, terms):
            notes += (f"a run goes back after {terms.seconds} s unless it is confirmed",)
    else:
        outcome = unless_paused(module, host, declare or (lambda: confirming.declare(host, declared, origins, terms)))
        context = outcome.plan.context or context
        declared = context.declared
        notes = tuple(named_programs.notes(host, declared))
        for note in notes:
            module.warn(note)
    plain = profile.to_data(declared)
    known = compose.declared_origins(plain, origins) if origins else declaration.read_origins(host, plain)
    paused, said = pause_file.in_force(host), result_of(module, host, outcome)
    if paused is not None:
        said["report"].append(paused["text"])
    waiting = unconfirmed_file.shown(host)
    if waiting is not None:
        said["report"].append(waiting["text"])
    shown = would_change(outcome) if module.check_mode else outcome.applied
    result = {
        **said,
        "notes": [*outcome.plan.notes, *notes],
        "paused": paused,
        "unconfirmed": waiting,
        "name": declared.name,
        "mode": declared.mode,
        "by_key": plan_by_key.of_plan(context._replace(origins=known), shown, applied, drifted),
        "pools": published_pools.to_dict(context.pools),
        "cpu_map": cpu_map.cpu_map(context.topology, context.pools, context.grants),
        # Before the first profile, the slices of a node are no pools.
        "cpu_map_now": observed_assignment.map_in_force(host, context) if state.was_applied(host) else None,
        "numa_nodes": numa_table.rows(context.topology),
        "effective_profile": effective_profile.compile_to_data(context.profile, context.persistent_pools),
        "workloads": status_file.workload_rows(context),
        "tenants": status_file.tenant_rows(context),
        "gc_report": gc_report.lines(host),
        "origins": known,
        "profile_hash": history.hash_of(plain),
        "profile_hash_before": none_before if confirmed is None else history.hash_of(confirmed),
    }
    if module._diff:
        result["diff"] = [
            result["diff"],
            *effective_diff(effective_before, effective_profile.text_of(context.profile, context.persistent_pools)),
        ]
    if module._verbosity >= 2:
        result["explain"] = explain.lines(context._replace(origins=known), shown)
    return result


def effective_diff(before: str, after: str) -> list[dict[str, str]]:
    """Ansible's diff of the effective profile; empty if the profile is unchanged."""
    headers = {"before_header": "the effective profile as it was", "after_header": "the effective profile"}
    return [{**headers, "before": before, "after": after}] if before != after else []


def node_profile(host: Host) -> Profile:
    """The profile that the node has declared."""
    declared = declared_profile.in_force(host)
    if declared is None:
        raise refusal("this node has no declared profile: give the module a profile", path=state.DECLARED)
    return declared


def removal(module: AnsibleModule, host: Host, managers: t.Sequence[str]) -> dict[str, t.Any]:
    """Restore the originals; Corral's state is removed when no original is left to restore."""
    plan = planning.plan_removal(host, managers)
    kept = state.records(host)[0] or host.exists(state.STATE) or host.exists(state.RUN)
    locks = bool(plan.changes or kept)
    if module.check_mode or not locks:
        return result_of(module, host, applying.planned(host, plan, locks=locks))

    return result_of(module, host, unless_paused(module, host, lambda: applying.remove(host, managers)))


# agent


def agent_task(module: AnsibleModule, host: Host) -> dict[str, t.Any]:
    """The module agent."""
    if module.params["state"] == "absent":
        return removal(module, host, (agent_install.NAME,))
    options = agent_options(module, host)
    source = _core_files.program(main)
    tag = sys.implementation.cache_tag if options.python == sys.executable else None

    def plan() -> Plan:
        return planning.plan_agent(host, options, source, tag=tag)

    if module.check_mode:
        outcome = applying.planned(host, plan(), locks=True)
        looked, overdue = status_now.item(host)
        return result_of(module, host, outcome._replace(remaining=(*outcome.remaining, *overdue)), looked)
    return result_of(module, host, locked(module, host, lambda: applying.apply(host, plan(), plan)))


def agent_options(module: AnsibleModule, host: Host) -> AgentOptions:
    """The options of the agent: as given, else as installed, else the defaults."""
    now = agent_install.installed_or_usual(host, sys.executable)
    interval, python, folder = (module.params[name] for name in ("interval", "python", "metrics_dir"))
    options = AgentOptions(
        now.interval if interval is None else interval,
        python or now.python,
        now.metrics_dir if folder is None else folder,
    )
    if not 1 <= options.interval <= 86400:
        raise refusal("seconds from 1 to 86400", path="interval", value=options.interval)
    if not host.exists(options.python) or not re.fullmatch(r"/[A-Za-z0-9/._+-]+", options.python):
        raise refusal("an absolute path of a Python on this node, without blanks", path="python", value=options.python)
    dummy, why = trusted_program.why_not(host, [options.python])
    if why:
        raise refusal(f"root would run it, and {why}; or name another Python", path="python", value=options.python)
    if folder:
        agent_install.check_metrics_dir(host, folder)
    return options


# pause


def pause_task(module: AnsibleModule, host: Host) -> dict[str, t.Any]:
    """The module pause."""
    absent = module.params["state"] == "absent"
    requested = None
    if not absent:
        seconds = pause.duration(module.params["duration"])
        requested = pause_file.requested(host, seconds, pause.reason(module.params["reason"]))
    before = pause_file.in_force(host)
    changed = requested is not None or state.there(host, state.PAUSE)
    after = None if requested is None else pause_file.as_shown(requested)
    if changed and module.check_mode:
        preflight.refuse_node(host)
    elif changed:

        def work() -> None:
            if requested is None:
                pause_file.end(host)
            else:
                pause_file.begin(host, requested)

        locked(module, host, work, locked_run.published_unless_ticked)
        pause_file.tick_now(host)
    said = [one["text"] if one else "not paused" for one in (before, after)]
    result: dict[str, t.Any] = {"schema": SCHEMA, "changed": changed, "paused": after, "report": [said[1]]}
    if module._diff:
        result["diff"] = {"before": f"{said[0]}\n", "after": f"{said[1]}\n"}
    return result


# topology_info, pools_info


def topology_task(module: AnsibleModule, host: Host) -> dict[str, t.Any]:
    """The module topology_info."""
    machine = replayed(module, host, sysfs.discover)
    return {"changed": False, "topology": topology.to_dict(machine), "report": cpu_map.topology_lines(machine)}


def pools_task(module: AnsibleModule, host: Host) -> dict[str, t.Any]:
    """The module pools_info."""
    data = module.params["profile"]
    wanted = profile.parse(data) if data is not None else node_profile(host)

    def ask(machine: Host) -> tuple[Context, tuple[str, ...]]:
        context = planning.compile_profile(machine, wanted, "tick" if data is None else "rollout")
        return context, preflight_notes.notes(machine, context)

    context, notes = replayed(module, host, ask)
    return {
        "changed": False,
        "notes": list(notes),
        "pools": published_pools.to_dict(context.pools),
        "report": cpu_map.pool_lines(context.pools),
        "cpu_map": cpu_map.cpu_map(context.topology, context.pools, context.grants),
    }


# profile_info


def describe_task(module: AnsibleModule, host: Host) -> dict[str, t.Any]:
    """The module profile_info."""
    described = replayed(module, host, lambda machine: describing.describe(machine, module.params["name"]))
    return {"changed": False, "profile": described.data, "content": described.text, "notes": list(described.notes)}


def replayed(module: AnsibleModule, host: Host, ask: t.Callable[[Host], Answer]) -> Answer:
    """The answer of ``ask`` for this machine, or for the recorded machine that the option root names."""
    root = module.params["root"]
    if root is None:
        return ask(host)
    with recorded_tree.opened(root) as recorded:
        return ask(recorded)
