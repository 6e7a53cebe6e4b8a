# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# This module is private to the collection corral.node.
"""Apply a profile until it is confirmed, confirm a profile, and go back to the profile before.

A timer on the node starts the way back, without the network. Neither a reboot nor a change of the clock ends the wait. The caller of each
function holds the lock, except for run_command().
"""

from __future__ import annotations

import contextlib
import typing as t

from ..host import state
from ..host.agent import foreign_program, unconfirmed_file
from ..host.files import Host
from ..managers import registry
from ..managers.agent import agent_install
from ..managers.profile import declaration
from ..model.agent.agent_units import CONFIRM_TIMER
from ..model.plan.plan import Outcome
from ..model.profile import profile
from ..model.profile.profile import Profile
from ..model.status import history, unconfirmed
from ..model.status.unconfirmed import Pending, Rejected
from ..model.systemd.unit_property import ETC
from ..model.values import exit_text
from ..model.values.errors import CorralError, refusal
from ..model.values.records import NamedTuple
from . import applying
from .profile_in_force import expired, refuse_rejected


class Terms(NamedTuple):
    """The ``seconds`` to wait for a confirmation (0: no wait). ``force``: apply the profile even if the node went back from it."""

    seconds: int = 0
    force: bool = False


AT_ONCE = Terms()
# A function that applies a profile, and calls its argument right before the first step.
Run = t.Callable[[t.Optional[t.Callable[[], None]]], Outcome]
TOO_LATE = "the time of profile {} is over, and the node goes back: apply it again with force to keep it"
COMMAND_SECONDS = 60  # time limit of a command that confirms a profile


def refuse(host: Host, declared: Profile, terms: Terms) -> None:
    """Raise CorralError for terms that this node cannot keep, or a profile from which the node went back; check mode calls this too."""
    unconfirmed.timeout(terms.seconds)
    if terms.seconds and (agent_install.installed(host) is None or not host.exists(f"{ETC}/{CONFIRM_TIMER}")):
        message = (
            "only an agent of this version can take the node back: install it first (corral.node.agent), or set it to 0"
        )
        raise refusal(message, path="confirm_timeout", value=terms.seconds)
    if terms.seconds:
        refuse_lost(host)
    if not terms.force:
        refuse_expired(host, declared)
        refuse_rejected(host, declared)


def is_lost(host: Host) -> bool:
    """Whether the profile that was confirmed last is lost; False on a node that never had a profile."""
    return unconfirmed_file.pending(host) is None and state.applied(host) is None and state.was_applied(host)


def refuse_lost(host: Host) -> None:
    """Raise CorralError if the profile to go back to is lost: the node would go back to no profile."""
    if is_lost(host):
        message = "is lost, and no copy replaces it, so that the node could not go back: apply a profile without confirm_timeout"
        raise refusal(message, path=state.APPLIED)


def refuse_expired(host: Host, declared: Profile) -> None:
    """Raise CorralError if the profile is unconfirmed and its time is over: the node is about to go back from this profile."""
    pending = expired(host)
    if pending is not None and not pending.failed and pending.hash == history.hash_of(profile.to_data(declared)):
        raise refusal(TOO_LATE.format(pending.name), path="name", value=declared.name)


def declare(
    host: Host, declared: Profile, origins: t.Optional[t.Mapping[str, str]] = None, terms: Terms = AT_ONCE
) -> Outcome:
    """Apply a profile as applying.declare() does, with a confirmation by ``terms``.

    A run that waits for no confirmation confirms an earlier unconfirmed profile, like a plain commit on network devices.
    """
    refuse(host, declared, terms)
    waits = needs_confirmation(host, declared, terms)
    outcome = unconfirmed_from(
        host,
        new_pending(host, declared, terms.seconds) if waits else None,
        lambda begin: applying.declare(host, declared, origins, before_steps=begin),
    )
    if outcome.applied and not outcome.error:
        if not waits and state.there(host, state.UNCONFIRMED):
            unconfirmed_file.forget(host)
        forget_rejection(host, declared)
    return outcome


def take_up(host: Host, declared: Profile, apply: Run) -> Outcome:
    """Apply, in a tick, a profile that was put on the node without a run of Corral. A command that the profile declares confirms it.

    Ticks that only correct drift do not call this function. A tick that continues a killed run starts no new wait: the command or
    controller of that run still confirms the profile. As in declare(), the new profile confirms an earlier unconfirmed profile, or waits in
    its place.
    """
    confirm, earlier = declared.confirm, unconfirmed_file.pending(host)
    if earlier is not None and expired(host) is not None:
        return apply(None)  # The node is about to go back from the earlier profile.
    if confirm is None or not needs_confirmation(host, declared, Terms(confirm.timeout)):
        outcome = apply(None)
        if earlier is not None and earlier.hash != history.hash_of(profile.to_data(declared)) and not outcome.error:
            unconfirmed_file.forget(host)
        return outcome
    new = new_pending(host, declared, confirm.timeout)._replace(command=confirm.command)
    if earlier is not None and earlier.hash == new.hash:
        new = earlier
    outcome = unconfirmed_from(host, new, apply)
    if earlier is not None and new != earlier and not outcome.error and unconfirmed_file.pending(host) == earlier:
        # The new profile needed no step: its command confirms the earlier changes, in the time that is left.
        went_on = earlier._replace(name=new.name, hash=new.hash, command=new.command, failed=False, passed=new.passed)
        unconfirmed_file.write(host, went_on)
    return outcome


def unconfirmed_from(host: Host, new: t.Optional[Pending], apply: Run) -> Outcome:
    """Apply a profile. The record ``new`` is written before the first step; None: the profile needs no confirmation."""
    earlier = unconfirmed_file.pending(host)

    def begin() -> None:
        try:
            unconfirmed_file.make(host, t.cast("Pending", new))
        except CorralError:
            restore_earlier(host, earlier)
            raise

    # An error that is raised after begin() leaves the record: the node may have been changed.
    outcome = apply(begin if new is not None else None)
    if outcome.error:
        # After a complete undo the node needs no way back; after an undo with leftovers the node needs a way back.
        if not outcome.leftovers:
            restore_earlier(host, earlier)
        elif new is not None:
            mark_failed(host)
    return outcome


def needs_confirmation(host: Host, declared: Profile, terms: Terms) -> bool:
    """Whether a change waits for a confirmation. A return to the profile that was confirmed last does not wait."""
    return terms.seconds > 0 and not profile.is_data_of(confirmed_last(host, unconfirmed_file.pending(host)), declared)


def confirmed_last(host: Host, earlier: t.Optional[Pending]) -> t.Optional[dict[str, t.Any]]:
    """The data of the profile that was confirmed last (None: no profile). ``earlier`` is the present unconfirmed profile."""
    return t.cast("t.Any", state.applied(host)) if earlier is None else earlier.before


def new_pending(host: Host, declared: Profile, seconds: int) -> Pending:
    """The record of a profile that is unconfirmed from now on. Raises CorralError."""
    refuse_lost(host)
    earlier = unconfirmed_file.pending(host)
    data, before = profile.to_data(declared), confirmed_last(host, earlier)
    origins = declaration.read_origins(host, before) if before is not None else {}
    passed: tuple[str, ...] = ()
    if earlier is not None:
        origins, passed = earlier.origins, (*earlier.passed, earlier.hash)
    return Pending(
        declared.name, history.hash_of(data), int(host.now()), seconds, host.boot_id(), host.uptime(), before,
        dict(origins), passed=passed,
    )  # fmt: skip


def mark_failed(host: Host) -> None:
    """Record that the unconfirmed profile failed, so that the profile may be applied again after the node went back.

    If the record cannot be written, the profile is refused later, like a profile that was not confirmed.
    """
    pending = unconfirmed_file.pending(host)
    if pending is not None:
        with contextlib.suppress(OSError):
            unconfirmed_file.write(host, pending._replace(failed=True))


def restore_earlier(host: Host, earlier: t.Optional[Pending]) -> None:
    """Restore the record of the earlier unconfirmed profile, with its own time limit, after a run that changed nothing."""
    if unconfirmed_file.pending(host) == earlier:
        return
    if earlier is None:
        unconfirmed_file.forget(host)
    else:
        unconfirmed_file.write(host, earlier)


def to_confirm(host: Host, digits: str = "") -> t.Optional[Pending]:
    """The profile that a confirmation would keep; None without an unconfirmed profile.

    Raises CorralError if the profile's hash does not begin with ``digits``, if the profile is not in force, and if its time is over.
    """
    pending = unconfirmed_file.pending(host)
    if pending is not None and not pending.hash.startswith(digits):
        message = f"the unconfirmed profile is {pending.name} ({pending.hash}): confirm that one, or leave the hash out"
        raise refusal(message, path="hash", value=digits)
    if pending is not None and pending.failed:
        message = f"profile {pending.name} failed and is not in force, so it cannot be confirmed: wait until the node goes back, or apply it again"
        raise refusal(message, path="hash", value=pending.hash)
    if pending is not None and unconfirmed_file.left(host, pending) <= 0:
        # The node may already have gone back to the profile before, so the confirmation would keep another profile.
        raise refusal(TOO_LATE.format(pending.name), path="hash", value=pending.hash)
    return pending


def keep(host: Host, digits: str = "") -> t.Optional[Pending]:
    """Confirm the unconfirmed profile, and return it; see to_confirm()."""
    pending = to_confirm(host, digits)
    if pending is not None and pending.passed:
        out_of_history(host, pending)
    if state.there(host, state.UNCONFIRMED):
        unconfirmed_file.forget(host)
    return pending


def forget_rejection(host: Host, declared: Profile) -> None:
    """A run has applied the profile again: remove it from the list of profiles from which the node went back."""
    known = unconfirmed_file.rejected(host)
    digits = history.hash_of(profile.to_data(declared))
    if any(one.hash == digits for one in known) or unconfirmed_file.rejected_damaged(host):
        unconfirmed_file.save_rejected(host, [one for one in known if one.hash != digits])


def go_back(host: Host, pending: Pending) -> Outcome:
    """Go back from an unconfirmed profile to the profile before, or to the state before Corral if no profile was applied before.

    The agent stays. If this run is killed or fails, the next run of corral-confirm.service goes back.
    """
    known = unconfirmed_file.rejected(host)
    # A run that failed to go back is repeated every few seconds: the list may have the profile already.
    is_known = any(one.hash == pending.hash for one in known)
    # While the list is damaged, all profiles except the last applied profile are refused. A new list would admit rejected profiles.
    if not pending.failed and not is_known and not unconfirmed_file.rejected_damaged(host):
        rejected = Rejected(pending.hash, pending.name, int(host.now()), pending.why_back)
        unconfirmed_file.save_rejected(host, unconfirmed.with_rejected(known, rejected))
    if pending.before is None:
        outcome = applying.remove(host, registry.of_profile(), goes_back=True)
    else:
        outcome = applying.declare(host, profile.parse(pending.before), pending.origins)
    if not outcome.error and not outcome.leftovers:
        out_of_history(host, pending)
        unconfirmed_file.forget(host)
    return outcome


def out_of_history(host: Host, pending: Pending) -> None:
    """Remove from the history the profiles that were never confirmed, and a second entry of the profile in force."""
    current, past = state.history(host)
    never = {pending.hash, *pending.passed}
    if current is None or current.applied is None or not past or history.hash_of(past[0].profile) not in never:
        return
    while past and history.hash_of(past[0].profile) in never:
        past = past[1:]
    if past and past[0].profile == current.profile:
        past = past[1:]
    state.save_history(host, [current, *past])


def awaiting_command(host: Host) -> t.Optional[Pending]:
    """The unconfirmed profile if it is in force, has a command that confirms it, and has time left; else None."""
    pending = unconfirmed_file.pending(host)
    if pending is None or not pending.command or pending.failed or unconfirmed_file.left(host, pending) <= 0:
        return None
    applied = state.applied(host)
    return pending if isinstance(applied, dict) and history.hash_of(applied) == pending.hash else None


def run_command(host: Host, pending: Pending) -> str:
    """Run the command of an unconfirmed profile. Returns why the command failed (empty: success). The caller does not hold the lock."""
    seconds = min(float(COMMAND_SECONDS), max(unconfirmed_file.left(host, pending), 1.0))
    answer = foreign_program.run(host, pending.command, seconds, {})
    return exit_text.why_failed(pending.command[0], answer.code, answer.out, answer.err)


def tick(host: Host) -> tuple[t.Optional[Pending], t.Optional[Outcome]]:
    """Go back if the time of the unconfirmed profile is over. Returns that profile and the outcome, or (None, None).

    corral-confirm.service calls this function. A damaged record of the unconfirmed profile is set aside, and the profile stays.
    """
    if unconfirmed_file.damaged(host):
        said = "is damaged, so the profile to go back to is not known: the node keeps its profile (corral rollback goes back)"
        unconfirmed_file.set_aside(host)
        raise refusal(said, path=state.UNCONFIRMED)
    if not state.there(host, state.UNCONFIRMED):
        unconfirmed_file.stop_timer(host)
    pending = expired(host)
    return (None, None) if pending is None else (pending, go_back(host, pending))
