# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# This module is private to the collection corral.node.
"""The commands about the node: its topology and pools, its drift from the profile, and the actions that change the node."""

from __future__ import annotations

import argparse
import contextlib
import os
import sys
import typing as t

from ..constants import DIFFERS, ERROR, IN_SYNC
from ..host import state
from ..host.agent import pause_file
from ..host.files import Host
from ..host.snapshot import snapshot
from ..host.topology import sysfs
from ..managers.agent import agent_install
from ..managers.profile import declaration
from ..model.cpu import cpu_assignment, published_pools
from ..model.cpu.cpu_assignment import Assignment
from ..model.plan.plan import Outcome, Plan
from ..model.profile import compose, profile
from ..model.profile.profile import Profile
from ..model.status import history, pause, unconfirmed
from ..model.topology import topology
from ..model.topology.topology import Topology
from ..model.values import yaml_text
from ..model.values.errors import CorralError, refusal
from ..pipeline import (
    all_problems,
    applying,
    confirming,
    declared_profile,
    describing,
    locked_run,
    planning,
    preflight_notes,
    profile_in_force,
    rolling_back,
    run_device_checks,
    tick,
)
from ..pipeline.confirming import Terms
from ..reports import change_text, cpu_map, drift_since, explain, gc_report, machine_svg, status_file, text_table
from ..reports.value_text import counted
from . import command_output

if t.TYPE_CHECKING:
    from ..model.plan.context import Context
    from ..model.status.json_shapes import RenderedPause


def do_topology(host: Host, args: argparse.Namespace) -> int:
    """corral topology"""
    machine = sysfs.discover(host)
    if args.svg:
        return drawn_as_svg(machine, {})
    command_output.show(args, topology.to_dict(machine), cpu_map.topology_lines(machine))
    return IN_SYNC


def do_pools(host: Host, args: argparse.Namespace) -> int:
    """corral pools"""
    declared = command_output.the_profile(host, args.profile)
    context = planning.compile_profile(host, declared, "tick" if args.profile is None else "rollout")
    if args.svg:
        return drawn_as_svg(context.topology, cpu_assignment.declared(context.pools, context.grants))
    drawn = cpu_map.cpu_map(context.topology, context.pools, context.grants, colour=command_output.coloured())
    command_output.show(args, published_pools.to_dict(context.pools), [*cpu_map.pool_lines(context.pools), "", *drawn])
    return IN_SYNC


def drawn_as_svg(machine: Topology, assignments: dict[int, Assignment]) -> int:
    """Print the machine as a drawing."""
    sys.stdout.write(machine_svg.drawing(machine, assignments))
    return IN_SYNC


def planned(host: Host, args: argparse.Namespace) -> Plan:
    """The plan of a profile on this host; if the agent is installed, with the plan of the agent's units."""
    declared, broken = command_output.the_profile(host, args.profile), None
    if args.profile is None:
        in_force, broken = profile_in_force.read(host)
        if in_force is None and broken is not None:
            raise broken
        declared = in_force or declared
    run_device_checks.check_unknown(host, declared, writes=False)
    fresh = not declared_profile.applied_already(host, declared)
    # Without a file the plan is that of a tick. With a file the plan is that of a run with the file's profile.
    context = planning.compile_profile(host, declared, "tick" if args.profile is None else "rollout", fresh=fresh)
    plan = tick.plan_node(host, context) if context.in_tick else plan_of_run(host, context)
    if broken is not None:
        plan = plan._replace(changes=(*plan.changes, tick.broken_profile(broken)))
    refused = () if args.profile is None else refused_without_force(host, declared)
    return plan._replace(notes=(*plan.notes, *refused, *gc_report.lines(host), *preflight_notes.notes(host, context)))


def refused_without_force(host: Host, declared: Profile) -> tuple[str, ...]:
    """A note if a run would apply the profile only with force: the node went back from this profile, or is going back now."""
    try:
        confirming.refuse(host, declared, confirming.AT_ONCE)
    except CorralError as error:
        return (f"a run is refused: {error}",)
    return ()


def plan_of_run(host: Host, context: Context) -> Plan:
    """The plan of a run that applies a profile, with the plan of the installed agent's units."""
    plan, options = planning.plan_profile(host, context), agent_install.installed(host)
    return plan if options is None else planning.joined(plan, planning.plan_agent(host, options))


def do_plan(host: Host, args: argparse.Namespace) -> int:
    """corral plan"""
    try:
        plan = planned(host, args)
    except CorralError as error:
        if args.profile is None:
            raise
        raise all_problems.refusal_of(host, command_output.read_file(args.profile), error) from None
    paused = pause_file.in_force(host)
    notes = [*plan.notes, *([paused["text"]] if paused else [])]
    since = drift_since.known(host, status_file.last_status(host)) if args.profile is None else {}
    if args.explain and plan.context is not None:
        context = plan.context._replace(origins=origins_of(host, args.profile, plan.context.declared))
        command_output.show(
            args,
            explain.to_data(context, plan.changes, since),
            [*explain.lines(context, plan.changes, since), *notes],
        )
        return DIFFERS if plan.changes else IN_SYNC
    data = change_text.plan_data(plan.changes, since)
    command_output.show(args, data, [*change_text.lines(plan.changes, since=since), *notes])
    for note in notes if args.json else ():
        sys.stderr.write(f"corral: {note}\n")
    return DIFFERS if plan.changes else IN_SYNC


def origins_of(host: Host, path: t.Optional[str], declared: Profile) -> dict[str, str]:
    """The origin of each key: the file at ``path``; if ``path`` is None, the origin that the node has recorded."""
    data = profile.to_data(declared)
    if path is None:
        return declaration.read_origins(host, data)
    return compose.declared_origins(
        data, compose.compose([compose.Layer(path, command_output.read_file(path))]).origins
    )


do_drift = do_plan


def do_profile(host: Host, args: argparse.Namespace) -> int:
    """corral profile"""
    if not args.from_node:
        data = profile.to_data(command_output.the_profile(host, None))
        command_output.show(args, data, yaml_text.text(data).splitlines(), schema=False)
        return IN_SYNC
    described = describing.describe(host, args.name)
    command_output.show(args, described.data, described.text.splitlines(), schema=False)
    for note in described.notes if args.json else ():
        sys.stderr.write(f"corral: {note}\n")
    return IN_SYNC


def do_reconcile(host: Host, args: argparse.Namespace) -> int:
    """corral reconcile"""
    terms = Terms(unconfirmed.seconds_of(args.confirm_timeout), args.force)
    run_device_checks.check_unknown(host, command_output.the_profile(host, None))

    def work() -> Outcome:
        return with_agent(host, confirming.declare(host, command_output.the_profile(host, None), None, terms))

    return applied(host, args, work)


def with_agent(host: Host, outcome: Outcome) -> Outcome:
    """Correct the units of the installed agent. Returns the outcome with these changes, which corral drift reports too."""
    options = agent_install.installed(host)
    if options is None or outcome.error:
        return outcome

    def plan() -> Plan:
        return planning.plan_agent(host, options)

    agent = applying.apply(host, plan(), plan)
    return outcome._replace(
        applied=(*outcome.applied, *agent.applied),
        remaining=(*outcome.remaining, *agent.remaining),
        error=agent.error,
        undone=agent.undone,
        leftovers=(*outcome.leftovers, *agent.leftovers),
    )


def applied(host: Host, args: argparse.Namespace, declare: t.Callable[[], Outcome]) -> int:
    """Apply a profile now, as the module does, and print the result.

    ``declare`` reads the profile while the lock is held: the run that held the lock before may have declared another profile.
    """

    def work() -> Outcome:
        if not args.force:
            pause_file.refuse_changes(host, "end the pause with corral resume, or add --force")
        return declare()

    outcome = locked_run.locked(host, work)
    since = drift_since.known(host, status_file.last_status(host))
    data = change_text.outcome_data(outcome, since)
    command_output.show(args, data, change_text.outcome_lines(outcome, since))
    return ERROR if outcome.error else DIFFERS if outcome.remaining else IN_SYNC


def do_pause(host: Host, args: argparse.Namespace) -> int:
    """corral pause"""
    seconds, reason = pause.duration(args.duration, "--for"), pause.reason(args.reason, "--reason")

    def work() -> RenderedPause:
        return pause_file.begin(host, pause_file.requested(host, seconds, reason))

    paused = locked_run.locked(host, work, publish=locked_run.published_unless_ticked)
    pause_file.tick_now(host)
    command_output.show(args, {"paused": paused}, [paused["text"]])
    return IN_SYNC


def do_resume(host: Host, args: argparse.Namespace) -> int:
    """corral resume"""

    def work() -> t.Optional[RenderedPause]:
        paused = pause_file.in_force(host)
        pause_file.end(host)
        return paused

    paused = locked_run.locked(host, work, publish=locked_run.published_unless_ticked)
    pause_file.tick_now(host)
    said = "the node was not paused" if paused is None else f"ended: {paused['text']}"
    command_output.show(args, {"ended": paused}, [said])
    return IN_SYNC


def do_rollback(host: Host, args: argparse.Namespace) -> int:
    """corral rollback"""
    seconds = unconfirmed.seconds_of(args.confirm_timeout)
    return applied(host, args, lambda: rolling_back.roll_back(host, args.to, seconds))


def do_history(host: Host, args: argparse.Namespace) -> int:
    """corral history"""
    rows = history.shown(*state.history(host))
    table = [("back", "hash", "applied", "state", "profile")]
    for row in rows:
        when = "-" if row["applied"] is None else change_text.moment(row["applied"])
        table.append((str(row["number"]), row["hash"], when, row["state"], row["name"]))
    said = text_table.aligned(table) if rows else ["no profile was applied on this node"]
    command_output.show(args, {"profiles": rows}, said)
    return IN_SYNC


def do_snapshot(host: Host, args: argparse.Namespace) -> int:
    """corral snapshot"""
    host.recorded = {}
    sysfs.discover(host)
    try:
        planned(host, argparse.Namespace(profile=None))
    except CorralError:
        pass  # A machine without a profile, or with an unfit profile, can be recorded too.
    with contextlib.suppress(CorralError):
        describing.describe(host)
    target = args.output or f"corral-{os.uname().nodename}.tar.gz"
    try:
        count = snapshot.write(host, target)
    except OSError as error:
        raise refusal(f"cannot be written: {error.strerror}", path=target) from None
    command_output.show(
        args,
        {"file": target, "entries": count},
        [f"{target}: {counted(count, 'entry', 'entries')}; replay with --root {target}"],
    )
    return IN_SYNC
