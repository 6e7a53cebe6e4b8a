# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# This module is private to the collection corral.node.
"""The profile in force on a node: the declared profile, unless this profile is invalid or was not confirmed in time."""

from __future__ import annotations

import typing as t

from ..host import state
from ..host.files import Host
from ..model.profile import profile
from ..model.profile.profile import Profile
from ..model.values.errors import CorralError, refusal
from . import declared_profile

if t.TYPE_CHECKING:
    from ..model.status.unconfirmed import Pending, Rejected


def read(host: Host) -> tuple[t.Optional[Profile], t.Optional[CorralError]]:
    """The profile in force, and the error of the declared profile.

    The profile is None without an error if no profile is declared. The profile is None with an error if the declared profile must not be
    applied, and no profile was applied before or that profile is lost.
    """
    return instead_of(host, *declared_profile.declared_or_last_good(host))


def instead_of(
    host: Host, declared: t.Optional[Profile], broken: t.Optional[CorralError]
) -> tuple[t.Optional[Profile], t.Optional[CorralError]]:
    """The result of read(), for a declared profile that was read already.

    Once the time of an unconfirmed profile is over, the profile before is in force. If there was no profile before, the unconfirmed profile
    is in force until the node has gone back.
    """
    if not (state.there(host, state.UNCONFIRMED) or state.there(host, state.REJECTED)):
        return declared, broken
    try:
        pending = expired(host)
        if pending is not None and pending.before is not None:
            return profile.parse(pending.before), None
        if pending is None and declared is not None and broken is None:
            refuse_rejected(host, declared)
    except CorralError as error:
        try:
            return declared_profile.last_good(host)[0], error
        except CorralError:
            return None, error
    return declared, broken


def refuse_rejected(host: Host, declared: Profile) -> None:
    """Raise CorralError for a profile from which the node went back."""
    from ..host.agent import unconfirmed_file

    if unconfirmed_file.rejected_damaged(host) and not declared_profile.applied_already(host, declared):
        message = "cannot be read as Corral wrote it, and this profile may have gone back: apply it with force, or remove the file"
        raise refusal(message, path=state.REJECTED)
    rejected = rejection(host, declared)
    if rejected is not None:
        message = (
            f"this profile was applied before and went back ({rejected.reason}): change it, or apply it with force"
        )
        raise refusal(message, path="name", value=declared.name)


def rejection(host: Host, declared: Profile) -> t.Optional[Rejected]:
    """When and why the node went back from this profile; None if the node did not go back, or if this profile was applied last."""
    from ..host.agent import unconfirmed_file  # Few nodes load the module, and a start waits for this import.
    from ..model.status import history

    known = unconfirmed_file.rejected(host)
    if not known or declared_profile.applied_already(host, declared):
        return None
    digits = history.hash_of(profile.to_data(declared))
    return next((one for one in known if one.hash == digits), None)


def expired(host: Host) -> t.Optional[Pending]:
    """The unconfirmed profile whose time is over; None without such a profile."""
    from ..host.agent import unconfirmed_file

    pending = unconfirmed_file.pending(host)
    return pending if pending is not None and unconfirmed_file.left(host, pending) <= 0 else None
