# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# This module is private to the collection corral.node.
"""The command confirm: keep the unconfirmed profile. The timer calls confirm --tick, which goes back if no confirmation came in time."""

from __future__ import annotations

import argparse
import typing as t

from ..constants import DIFFERS, ERROR, IN_SYNC, SCHEMA
from ..host.agent import unconfirmed_file
from ..host.files import Host
from ..model.plan.plan import Outcome
from ..model.status.unconfirmed import Pending
from ..model.values.errors import CorralError
from ..pipeline import confirming, locked_run, profile_in_force, tick
from ..reports import change_text
from . import command_output

if t.TYPE_CHECKING:
    from ..model.status.json_shapes import Confirmed, KeptProfile


def do_confirm(host: Host, args: argparse.Namespace) -> int:
    """corral confirm"""
    if args.tick:
        ask_command(host)
        return locked_run.locked(host, lambda: go_back(host), publish=locked_run.published_by_work)
    report = data(locked_run.locked(host, lambda: confirming.keep(host, args.hash)))
    command_output.show(args, report, report["report"], schema=False)
    return IN_SYNC


def data(confirmed: t.Optional[Pending]) -> Confirmed:
    """The confirmed profile as JSON data (None: no profile was unconfirmed)."""
    if confirmed is None:
        return {"schema": SCHEMA, "confirmed": None, "report": ["no profile is unconfirmed"]}
    kept: KeptProfile = {"name": confirmed.name, "hash": confirmed.hash}
    return {"schema": SCHEMA, "confirmed": kept, "report": [f"kept: profile {confirmed.name} ({confirmed.hash})"]}


def ask_command(host: Host) -> None:
    """Confirm the unconfirmed profile if its own command succeeds. The command runs without the lock, after the change."""
    waiting = locked_run.locked(host, lambda: confirming.awaiting_command(host), publish=locked_run.published_by_work)
    if waiting is None:
        return
    said = confirming.run_command(host, waiting)
    name = unconfirmed_file.named(waiting)[0]
    if said:
        if unconfirmed_file.log_now(host, waiting, said):
            tick.notice(f"{name} is not confirmed yet: {said}", priority=4)
        return

    def keep() -> t.Optional[Pending]:
        # The profile may have been confirmed or replaced meanwhile.
        return confirming.keep(host, waiting.hash) if confirming.awaiting_command(host) == waiting else None

    if locked_run.locked(host, keep) is not None:
        tick.notice(f"{name} is confirmed: {waiting.command[0]} succeeded")


def go_back(host: Host) -> int:
    """corral-confirm.service: go back when the time is over. The service runs every few seconds while a profile is unconfirmed."""
    try:
        unsettled, outcome = confirming.tick(host)
    except CorralError as error:
        unsettled = profile_in_force.expired(host)
        if unsettled is None:
            raise
        return failed(host, unsettled, str(error))
    if unsettled is None or outcome is None:
        return IN_SYNC
    if outcome.error or outcome.leftovers:
        return failed(host, unsettled, "; ".join(filter(None, (outcome.error, *outcome.leftovers))))
    name, before = unconfirmed_file.named(unsettled, "what there was before Corral")
    why = f"was not confirmed: {unsettled.why_back}" if unsettled.command else f"was {unsettled.why_back}"
    if unsettled.failed:
        why = "failed and could not be undone at once"
    tick.notice(f"{name} {why}: went back to {before}", priority=4)
    publish_and_log(host, outcome)
    return IN_SYNC


def failed(host: Host, unsettled: Pending, said: str) -> int:
    """Log that the node could not go back; the next run tries again. Only a new failure is an ERROR: systemd logs each ERROR."""
    if not unconfirmed_file.log_now(host, unsettled, said):
        return DIFFERS
    tick.notice(f"{unconfirmed_file.named(unsettled)[0]} was not confirmed, and going back failed: {said}", priority=3)
    return ERROR


def publish_and_log(host: Host, outcome: Outcome) -> None:
    """Publish the node after the way back, and write a line to the journal for each change."""
    for change in outcome.applied:
        tick.notice(f"changed {change_text.described(change)}")
    locked_run.published(host, outcome)
