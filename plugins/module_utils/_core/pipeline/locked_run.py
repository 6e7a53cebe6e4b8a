# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# This module is private to the collection corral.node.
"""A run by a module or a command: it is the node's only writer, and what it changed is published before it returns."""

from __future__ import annotations

import typing as t

from ..constants import LOCK_SECONDS
from ..host import preflight, state
from ..host.files import Host
from ..host.lock import LOCK, Lock
from ..model.plan.plan import Outcome, Plan
from ..model.values.errors import CorralError, refusal
from ..reports import status_file
from . import declared_profile, planning

Answer = t.TypeVar("Answer")


def locked(host: Host, work: t.Callable[[], Answer], *, wait: float = LOCK_SECONDS, hint: str = "try again") -> Answer:
    """Do the work with the node's lock, for which it waits at most ``wait`` seconds; returns what the work returns.

    Raises CorralError when another run holds the lock for longer (``hint`` says what to do), or when this is not a
    node that can be changed.
    """
    preflight.refuse_node(host)
    lock = Lock(host)
    if not lock.take(wait):
        raise refusal(f"another run of Corral holds {LOCK}: {hint}")
    try:
        return work()
    except CorralError:
        # On a node that Corral has not changed a refusal leaves nothing, not even the lock.
        if not host.exists(state.STATE) and host.names(state.RUN) == [LOCK.rpartition("/")[2]]:
            host.remove(LOCK)
            host.remove_dir(state.RUN)
        raise
    finally:
        lock.release()


def published(host: Host, outcome: Outcome) -> Outcome:
    """Publish what a run leaves when it changed something: status and pools, with an agent the metrics as well.

    The caller holds the lock: the next task reads what this run made, whichever comes first, it or a tick. It observes the
    whole node, because a run may have concerned a part of it. Files that are missing are written whatever the run did:
    an earlier one may have died before it published, and /run begins empty. A node without a profile has nothing to
    publish; an error of a profile that does not fit the node is for the tick to publish and to log.
    """
    if not outcome.applied and not outcome.undone and all(host.exists(path) for path in state.PUBLISHED):
        return outcome
    return publish(host, outcome)


def publish_again(host: Host) -> None:
    """Publish the node as it is, after a run that changed no more than what is known of its profile."""
    publish(host, Outcome(Plan(None, (), (), frozenset()), (), ()))


def publish(host: Host, outcome: Outcome) -> Outcome:
    """Observe the whole node, and publish that with what a run has changed."""
    from ..host import pause_file
    from ..managers import agent_install
    from . import tick  # Admission and release, for which a unit's start waits, publish the pools alone.

    now = tick.Tick(status_file.last_status(host), False, host.uptime(), pause_file.in_force(host))
    declared, broken = declared_profile.declared_or_last_good(host)
    if declared is None or broken is not None:
        return outcome
    try:
        context = planning.compile_profile(host, declared, fresh=not declared_profile.applied_already(host, declared))
        items = tick.plan_node(host, context, with_agent=True).changes
    except CorralError:
        return outcome
    reported = outcome._replace(remaining=items, error="")  # an undone run is no error of the node
    status = status_file.status(host, context, reported, now.previous, paused=now.paused, logged=False)
    if agent_install.installed(host) is not None:  # Without ticks, metrics would soon be outdated.
        tick.write_metrics(host, now, status)
    status_file.publish(host, status, context)
    return outcome


def published_pools(host: Host, outcome: Outcome) -> Outcome:
    """Publish the pools that an admission or a release leaves; the status is the next tick's.

    A unit's start waits for this, so the node is not observed again: the plan's own pools are those that the run has made.
    """
    if outcome.applied and outcome.plan.context is not None:
        status_file.publish_pools(host, outcome.plan.context)
    return outcome
