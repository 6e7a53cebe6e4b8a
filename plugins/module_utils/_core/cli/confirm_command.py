# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# This module is private to the collection corral.node.
"""The command confirm: keep the unconfirmed profile, or (the timer's call) go back when no confirmation came in time."""

from __future__ import annotations

import argparse
import typing as t

from ..constants import DIFFERS, ERROR, IN_SYNC, SCHEMA
from ..host import unconfirmed_file
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
    found = data(locked_run.locked(host, lambda: confirming.keep(host, args.hash)))
    command_output.show(args, found, found["report"], schema=False)
    return IN_SYNC


def data(found: t.Optional[Pending]) -> Confirmed:
    """What was kept, as JSON data."""
    if found is None:
        return {"schema": SCHEMA, "confirmed": None, "report": ["no profile is unconfirmed"]}
    kept: KeptProfile = {"name": found.name, "hash": found.hash}
    return {"schema": SCHEMA, "confirmed": kept, "report": [f"kept: profile {found.name} ({found.hash})"]}


def ask_command(host: Host) -> None:
    """Confirm what the node confirms by itself, where its command succeeds. It runs without the lock, and after the change."""
    found = locked_run.locked(host, lambda: confirming.awaiting_command(host), publish=locked_run.published_by_work)
    if found is None:
        return
    said = confirming.run_command(host, found)
    name = unconfirmed_file.named(found)[0]
    if said:
        if unconfirmed_file.log_now(host, found, said):
            tick.notice(f"{name} is not confirmed yet: {said}", priority=4)
        return

    def keep() -> t.Optional[Pending]:
        # It may have been confirmed, or replaced, meanwhile.
        return confirming.keep(host, found.hash) if confirming.awaiting_command(host) == found else None

    if locked_run.locked(host, keep) is not None:
        tick.notice(f"{name} is confirmed: {found.command[0]} succeeded")


def go_back(host: Host) -> int:
    """corral-confirm.service, every few seconds while a profile is unconfirmed."""
    try:
        found, outcome = confirming.tick(host)
    except CorralError as error:
        found = profile_in_force.expired(host)
        if found is None:
            raise
        return failed(host, found, str(error))
    if found is None or outcome is None:
        return IN_SYNC
    if outcome.error or outcome.leftovers:
        return failed(host, found, "; ".join(filter(None, (outcome.error, *outcome.leftovers))))
    name, before = unconfirmed_file.named(found, "what there was before Corral")
    why = f"was not confirmed: {found.why_back}" if found.command else f"was {found.why_back}"
    if found.failed:
        why = "failed and could not be undone at once"
    tick.notice(f"{name} {why}: went back to {before}", priority=4)
    publish_and_log(host, outcome)
    return IN_SYNC


def failed(host: Host, found: Pending, said: str) -> int:
    """The way back failed, and is tried again. What was logged already is no failure of the unit either: systemd logs those."""
    if not unconfirmed_file.log_now(host, found, said):
        return DIFFERS
    tick.notice(f"{unconfirmed_file.named(found)[0]} was not confirmed, and going back failed: {said}", priority=3)
    return ERROR


def publish_and_log(host: Host, outcome: Outcome) -> None:
    """Publish the result, with a line in the journal for each change."""
    for change in outcome.applied:
        tick.notice(f"changed {change_text.described(change)}")
    locked_run.published(host, outcome)
