# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# This module is private to the collection corral.node.
"""A full tick: observe the node, then correct or report drift. A full tick runs when something may have changed, and at boot."""

from __future__ import annotations

import os
import sys
import typing as t

from ..constants import DIFFERS, ERROR, IN_SYNC
from ..host import lock, recorded_inputs, state
from ..host.agent import pause_file
from ..host.files import Host, Unreadable
from ..host.plan import apply_step, attempts, preflight
from ..host.workload import workload_state
from ..managers import registry
from ..managers.agent import agent_install
from ..model.agent import agent_units
from ..model.plan import make_step
from ..model.plan.context import Context
from ..model.plan.plan import START, UNCHANGEABLE, UNKNOWN, Change, Outcome, Plan
from ..model.profile import profile
from ..model.profile.profile import Profile
from ..model.values.errors import CorralError
from ..model.values.printable_text import printable
from ..model.values.records import NamedTuple
from ..reports import change_text, status_file
from . import applying, declared_profile, planning
from .declared_profile import Damaged

if t.TYPE_CHECKING:
    from ..model.status.json_shapes import RenderedPause, Status
    from ..model.values.vocabulary import Run


class Tick(NamedTuple):
    """The state of a tick before it observes the node: the last status, the pause, and when the tick began (seconds since the boot)."""

    previous: dict[str, t.Any]
    at_boot: bool
    began: float
    paused: t.Optional[RenderedPause] = None
    pause_error: t.Optional[str] = None


def run(host: Host, *, at_boot: bool = False, began: float) -> int:
    """One pass over the node; the caller holds the lock. If the node cannot be read, the pass only reports that error."""
    compile_once(host)
    now = Tick({}, at_boot, began)
    try:
        now = now._replace(previous=status_file.last_status(host))
        return look(host, now)
    except Unreadable as error:
        return report_unreadable(host, now, error)


def look(host: Host, now: Tick) -> int:
    """Observe the node, and correct or report."""
    at_boot = now.at_boot
    state.refuse_unreadable(host)
    host.recorded = {}
    # The boot starts the kubelet after this tick: a wait for the kubelet would be in vain. (After a soft reboot KUBELET_DUE may be left.)
    if state.there(host, state.KUBELET_DUE) and not at_boot:
        from ..host.kubelet import kubelet_unit

        # The kubelet is started in audit mode and in a pause as well.
        said = host.unrecorded(lambda: kubelet_unit.start_again(host))
        if said:
            notice(said, priority=4)
    now = with_pause(host, now)
    declared, broken = declared_profile.last_good(host) if at_boot else declared_profile.declared_or_last_good(host)
    if state.there(host, state.UNCONFIRMED) or state.there(host, state.REJECTED):
        declared, broken = with_unconfirmed(host, declared, broken, at_boot=at_boot)
    if declared is None:
        return report_error(host, now, broken) if broken else IN_SYNC
    return reconcile(host, declared, broken, now)


def with_unconfirmed(
    host: Host, declared: t.Optional[Profile], broken: t.Optional[CorralError], *, at_boot: bool
) -> tuple[t.Optional[Profile], t.Optional[CorralError]]:
    """The result of profile_in_force.instead_of(). If the time of an unconfirmed profile is over, a tick also starts
    corral-confirm.service, and has no profile if no profile was applied before.
    """
    from . import profile_in_force

    found = profile_in_force.expired(host)
    if found is not None and not at_boot:
        # The service needs the lock that the tick holds, so the tick does not wait for it.
        host.unrecorded(lambda: host.run("systemctl", "--no-block", "start", agent_units.CONFIRM_SERVICE))
    if found is not None and found.before is None and not at_boot:
        return None, None
    # At boot ``declared`` is the profile applied last, so this profile is not refused as rejected. Its pools exist before any unit starts.
    return profile_in_force.instead_of(host, declared, broken)


def with_pause(host: Host, now: Tick) -> Tick:
    """The tick with the node's pause. This function also logs the begin and the end of a pause, and removes the file of an ended pause."""
    was = now.previous.get("paused")
    if state.there(host, state.PAUSE):
        found = pause_file.tidy(host)
        now = now._replace(paused=found.paused, pause_error=found.error)
        was = was or found.ended
        if found.paused and not (was and was.get("since") == found.paused["since"]):
            notice(pause_file.sentence(found.paused))
        if found.error and found.error != now.previous.get("pause_error"):
            notice(found.error, priority=4)
    if was and not now.paused:
        notice(f"the pause by {was.get('by')} has ended: {was.get('reason') or 'no reason given'}")
    return now


def compile_once(host: Host) -> None:
    """Compile the program for a Python that is new on this node.

    The units run with -B: a Python that writes compiled files at any time could write some after a removal. This function
    cannot, since the tick and the removal both hold the lock.
    """
    compiled = __spec__.cached if __spec__ else None
    if host.live and compiled and not host.exists(compiled):
        try:
            apply_step.perform(host, make_step.program(compiled.rpartition("/_core/")[0], "", sys.executable, START))
        except (apply_step.StepFailed, OSError) as error:
            notice(str(error), priority=4)


def reconcile(host: Host, declared: Profile, broken: t.Optional[CorralError], now: Tick) -> int:
    """One pass over the node with a valid profile."""
    enforce = declared.mode == "enforce" and not now.paused
    fresh = now.at_boot or not declared_profile.applied_already(host, declared)
    try:
        # At boot the kubelet has yet to start, and a unit that has yet to start is no drift.
        trigger = os.environ.get("TRIGGER_UNIT", "")
        run: Run = "boot" if now.at_boot else "timer" if trigger else "tick"
        context = planning.compile_profile(host, declared, run, fresh=fresh)
        plan = plan_node(host, context, trigger=trigger)
        if broken is not None:
            plan = plan._replace(changes=(*plan.changes, broken_profile(broken)))
        # At boot the last applied profile is brought back in audit mode too, and on a paused node: that is persistence,
        # not enforcement.
        outcome = Outcome(plan, (), plan.changes)
        if enforce or now.at_boot:
            takes_up = fresh and not now.at_boot and broken is None
            outcome = enforced(host, declared, context, plan, takes_up=takes_up)
            if broken is not None and broken_profile(broken) not in outcome.remaining:
                outcome = outcome._replace(remaining=(*outcome.remaining, broken_profile(broken)))
    except CorralError as error:
        lock.refuse_lost(host)
        return report_error(host, now, error)
    lock.refuse_lost(host)
    if not outcome.error and broken is None and enforce:
        state.record_profile(host, profile.to_data(declared))
    if context.attempts:
        host.unrecorded(lambda: attempts.forget_mended(host))
    started, unwritten = keep_pci_used(host, declared)
    outcome = outcome._replace(remaining=(*outcome.remaining, *unwritten))
    status = status_file.status(host, context, outcome, now.previous, paused=now.paused)
    log(outcome, now)
    keep = not status["error"] and broken is None
    host.unrecorded(lambda: publish(host, now, status, context, keep=keep))
    if converged(host, now, context, status, outcome) and started and not now.at_boot:
        recorded_inputs.keep(host, state.PUBLISHED, recorded_inputs.moment(status["time"], status["time_since_boot"]))
    return ERROR if outcome.error else DIFFERS if outcome.applied or outcome.remaining else IN_SYNC


def enforced(host: Host, declared: Profile, context: Context, plan: Plan, *, takes_up: bool) -> Outcome:
    """The outcome of executing the plan. A profile that the node ``takes_up`` may wait for its command to confirm it."""

    def again() -> Plan:
        return plan_node(host, applying.refresh(host, context))

    def apply(begin: t.Optional[t.Callable[[], None]] = None) -> Outcome:
        return applying.apply(host, plan, again, before_steps=begin)

    try:
        if takes_up and (declared.confirm is not None or state.there(host, state.UNCONFIRMED)):
            return take_up(host, declared, apply)
        return apply()
    except preflight.Blocked as error:  # An obstacle in the way of a file must not hide other drift.
        return Outcome(plan, (), plan.changes, str(error).replace("\n", "; "))


def converged(host: Host, now: Tick, context: Context, status: Status, outcome: Outcome) -> bool:
    """Whether the next ticks may be quiet until something changes. The function also asks systemd to stop the units of unneeded grants."""
    # A pause ends with the clock, which a quiet tick does not read. While the pause's file has an error, no tick is quiet either.
    found = status["in_sync"] and not outcome.applied and not now.paused and not now.pause_error
    found = found and not status["unconfirmed"]
    if context.workloads is None:
        return found
    from . import allocate_workloads  # A node without workloads does not load the module.

    found = found and not allocate_workloads.waits(host, context.grants)
    # A cancelled start changes no file, so a quiet tick would miss it: no tick is quiet until the grant has ended.
    return found if now.at_boot else not workload_state.ask_for_end(host, context.grants) and found


def keep_pci_used(host: Host, declared: Profile) -> tuple[bool, tuple[Change, ...]]:
    """Record for the next boot which PCI functions that Corral may bind are in use: see pci_used_before.keep().

    Returns whether the record is current, and an item of drift if the record cannot be written; the next tick tries again.
    """
    if not any(one.bind for one in declared.devices):
        return True, ()
    from ..host.devices import device_files, pci_used_before

    used = host.unrecorded(lambda: device_files.used_now(host, declared.devices))
    try:
        return host.unrecorded(lambda: pci_used_before.keep(host, used)), ()
    except OSError as error:
        return False, (pci_used_before.unwritten(host, used, error),)


def take_up(host: Host, declared: Profile, apply: t.Callable[..., Outcome]) -> Outcome:
    """Apply a profile that the node is to confirm by itself."""
    from . import confirming  # Few ticks load the module.

    return confirming.take_up(host, declared, apply)


def publish(host: Host, now: Tick, status: Status, context: Context, *, keep: bool) -> None:
    """Publish the observation. With ``keep``, write the effective profile if it changed."""
    write_metrics(host, now, status)
    status_file.publish(host, status, context, (registry.AGENT,) if now.at_boot else ())
    if keep:
        applying.write_effective_profile(host, context)


def write_metrics(host: Host, now: Tick, status: Status) -> None:
    """Write the metrics if they are due. An error does not fail the tick: the error is published, and logged if it is new."""
    before = now.previous
    status["pause_error"], status["metrics_error"] = now.pause_error, before.get("metrics_error")
    # Changed counters alone are no reason to write: each tick that fails counts an error, and would write.
    moving = {"time": 0, "time_since_boot": 0, "totals": 0}
    same = {**before, **moving} == {**status, **moving}
    if same and before["time"] // recorded_inputs.METRICS_SECONDS == status["time"] // recorded_inputs.METRICS_SECONDS:
        return

    from ..host.agent import metrics_file  # A tick loads the module once a minute, or if something changed.

    said = metrics_file.publish(host, status, now.began)
    if said and said != status["metrics_error"]:
        notice(said, priority=4)
    status["metrics_error"] = said


def plan_node(host: Host, context: Context, *, trigger: str = "") -> Plan:
    """The plan of the profile and, if the agent is installed, of the agent's units."""
    plan = planning.plan_profile(host, context)
    options = agent_install.installed(host) if context.in_tick else None
    return plan if options is None else planning.joined(plan, planning.plan_agent(host, options, trigger=trigger))


def broken_profile(error: CorralError) -> Change:
    """The drift item for a declared profile that cannot be applied, or from which the node went back."""
    said = str(error).replace("\n", "; ")
    reason = f"the profile applied last stays in force: {said}"
    sides = (
        ("damaged", "the profile") if isinstance(error, Damaged) else ("a refused profile", "one that can be applied")
    )
    return Change(
        "profile", state.DECLARED, "content", *sides, reason, state.DECLARED,
        (), UNCHANGEABLE,
    )  # fmt: skip


def report_error(host: Host, now: Tick, error: t.Optional[CorralError]) -> int:
    """Publish an error, and log the error if it is new."""
    said = str(error).replace("\n", "; ")
    nothing = Outcome(Plan(None, (), (), frozenset()), (), ())
    status = status_file.status(host, None, nothing, now.previous, error=said, paused=now.paused)
    write_metrics(host, now, status)
    status_file.publish(host, status, None)
    if now.previous.get("error") != said:
        notice(f"not reconciled: {said}", priority=3)
    return ERROR


def report_unreadable(host: Host, now: Tick, error: Unreadable) -> int:
    """Publish that the node could not be observed, and log a new error. This function reads little, since a read may fail again."""
    outcome = Outcome(Plan(None, (), (), frozenset()), (), (applying.unreadable(error),))
    log(outcome, now)
    publish_unreadable(host, outcome, now)
    return ERROR


def publish_unreadable(host: Host, outcome: Outcome, now: Tick, *, logged: bool = True) -> None:
    """Publish the outcome of a pass that could not read the node."""
    before = now.previous
    status = status_file.status(host, None, outcome, before, paused=before.get("paused"), logged=logged)
    try:
        write_metrics(host, now._replace(pause_error=before.get("pause_error")), status)
    except Unreadable as other:
        status["metrics_error"] = str(other)
    status_file.publish(host, status, None)


def log(outcome: Outcome, now: Tick) -> None:
    """Write a journal line for each change, each new drift item and a new error."""
    for change in outcome.applied:
        notice(f"changed {change_text.described(change)}")
    before = now.previous.get("items", [])
    known = {(item["manager"], item["subject"], item["property"]) for item in before if item.get("logged", True)}
    for change in outcome.remaining:
        if change.item() not in known:
            what = "unknown" if change.verdict == UNKNOWN else "drift"
            notice(f"{what}{' under maintenance' if now.paused else ''} {change_text.line(change)}", priority=4)
    if outcome.error and now.previous.get("error") != outcome.error:
        notice(change_text.refused(outcome), priority=3)


def notice(text: str, priority: int = 5) -> None:
    """One line for the journal (sd-daemon(3): the priority in angle brackets; 3 error, 4 warning, 5 notice)."""
    sys.stderr.write(f"<{priority}>{printable(text)}\n")
