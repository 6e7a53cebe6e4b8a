# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# This module is private to the collection corral.node.
"""A run by a module or a command. The run is the node's only writer, and at its end the published files describe the node."""

from __future__ import annotations

import contextlib
import typing as t

from ..constants import LOCK_SECONDS
from ..host import state
from ..host.agent import pause_file
from ..host.files import Host, Unreadable
from ..host.lock import LOCK, Lock, refuse_lost
from ..host.plan import preflight
from ..model.plan.plan import Outcome, Plan
from ..model.values.errors import CorralError, refusal
from ..reports import status_file, status_now
from . import applying, declared_profile, planning

Answer = t.TypeVar("Answer")
NOTHING = Outcome(Plan(None, (), (), frozenset()), (), ())  # the outcome of a run that changed only Corral's own files


def published_after(host: Host, answer: object) -> None:
    """Publish the state of the node after a run, with the changes of the run if the answer is an outcome."""
    published(host, answer if isinstance(answer, Outcome) else NOTHING)


def published_by_work(host: Host, answer: object) -> None:
    """Publish nothing: the work itself publishes, or changes nothing that is published."""


def published_unless_ticked(host: Host, answer: object) -> None:
    """Publish the state of the node, unless an agent ticks: the next tick publishes, and logs the differences from the present status."""
    if not pause_file.ticks(host):
        published(host, NOTHING)


def locked(
    host: Host,
    work: t.Callable[[], Answer],
    *,
    wait: float = LOCK_SECONDS,
    hint: str = "try again",
    publish: t.Callable[[Host, Answer], object] = published_after,
) -> Answer:
    """Wait at most ``wait`` seconds for the node's lock, do ``work`` with the lock, and publish. Returns the answer of ``work``.

    Every module and command that writes calls this function. The files in /run/corral agree with the node before the lock is released, so
    the next task reads the result of this run, even before the next tick.

    Raises CorralError when another run holds the lock for longer than ``wait`` (``hint`` says what to do), and on a node that cannot be
    changed.
    """
    preflight.refuse_node(host)
    lock = Lock(host)
    if not lock.take(wait):
        from ..host.agent import agent_now

        by = agent_now.holder(host, "")
        waited = f" and did not release it within {wait:.0f} s" if wait else ""
        raise refusal(f"another run of Corral holds {LOCK}{f', {by},' if by else ''}{waited}: {hint}")
    try:
        state.refuse_unreadable(host)
        answer = work()
        refuse_lost(host)
        publish(host, answer)
        return answer
    except (OSError, Unreadable):
        # The run may have changed the node before it failed. The next run or tick publishes what cannot be published now.
        with contextlib.suppress(CorralError, OSError):
            published(host, NOTHING)
        raise
    finally:
        # A removal may have deleted Corral's state while this run waited: then the lock's file is deleted too.
        try:
            state.leave_nothing(host, LOCK)
        finally:
            lock.release()


def published(host: Host, outcome: Outcome) -> Outcome:
    """Make the published files agree with the node after a run: the status and the pools, and the metrics if an agent ticks.

    The caller holds the lock. The whole node is observed after each run: the run may have concerned a part of the node, an earlier run may
    have died before it published, and /run is empty after a boot. A file that agrees is not written. Without a profile nothing is
    published. The tick publishes and logs the error of a profile that is invalid, does not fit the node, or from which the node went back.
    """
    from . import profile_in_force, tick  # The start of a unit does not load these modules.

    if not host.exists(state.STATE):
        return outcome
    declared, broken = declared_profile.declared_or_last_good(host)
    if declared is None or broken is not None:
        return outcome
    try:
        if state.there(host, state.REJECTED):
            profile_in_force.refuse_rejected(host, declared)
        fresh = not declared_profile.applied_already(host, declared)
        context = planning.compile_profile(host, declared, "tick", fresh=fresh)
        items = tick.plan_node(host, context).changes
    except CorralError:
        return outcome
    except Unreadable as error:
        seen = outcome._replace(remaining=(applying.unreadable(error),), error="")
        now = tick.Tick(status_file.last_status(host), False, host.uptime())
        tick.publish_unreadable(host, seen, now, logged=False)
        return outcome
    previous, pause = status_file.last_status(host), pause_file.observe(host)
    ticks = pause_file.ticks(host)
    reported = outcome._replace(remaining=items, error="")  # an undone run is no error of the node
    status = status_file.status(host, context, reported, previous, paused=pause.paused, logged=False)
    # Only ticks set the two errors below, since a tick logs each new error. The status's ``error`` stays while items are left.
    status["pause_error"] = previous.get("pause_error") if ticks else pause.error
    status["metrics_error"] = previous.get("metrics_error") if ticks else None
    if items and not outcome.applied:
        status["error"] = previous.get("error")
    # A stale status is written again even if it agrees with the node.
    differs = not status_file.same(status, previous) or bool(status_now.stale(host, previous))
    if differs and ticks:  # Without ticks, metrics would soon be outdated.
        now = tick.Tick(previous, False, host.uptime(), pause.paused, status["pause_error"])
        tick.write_metrics(host, now, status)
    status_file.publish(host, status, context, write_status=differs)
    return outcome


def published_pools(host: Host, outcome: Outcome) -> Outcome:
    """Publish the pools after an admission or a release; the next tick publishes the status.

    A unit's start waits for this function, so the node is not observed again: the run has made the pools of its plan.
    """
    if not outcome.error and outcome.plan.context is not None:
        status_file.publish_pools(host, outcome.plan.context)
    return outcome
