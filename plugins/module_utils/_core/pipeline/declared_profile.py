# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# This module is private to the collection corral.node.
"""Which profile is declared on a node, and which profile was applied last."""

from __future__ import annotations

import json
import typing as t

from ..host import state
from ..host.files import Host
from ..model.profile import profile, schema_reader
from ..model.profile.profile import Profile
from ..model.values.errors import CorralError, Problem

WAY_BACK = "run the rollout again, or corral reconcile, which writes it as it was applied last"


def applied_already(host: Host, declared: Profile) -> bool:
    """Whether the profile that was applied last on this node has the same data as ``declared``."""
    return profile.is_data_of(state.applied(host), declared)


def goes_back_to(host: Host, declared: t.Optional[Profile]) -> bool:
    """Whether ``declared`` (None: no profile) is the profile to which the node goes back from an unconfirmed profile.

    A run that goes back neither drains the node nor waits until the node is Ready: the unconfirmed profile may prevent the drain and the
    state Ready.
    """
    if not state.there(host, state.UNCONFIRMED):
        return False
    from ..host.agent import unconfirmed_file

    pending = unconfirmed_file.pending(host)
    return pending is not None and profile.is_data_of(pending.before, declared)


class Damaged(CorralError):
    """The declared profile is lost: its file is gone although a profile was applied, is not a regular file, or is not JSON."""


def read_declared(host: Host) -> t.Optional[Profile]:
    """The node's declared profile; None if no profile is declared. Raises CorralError if the profile is invalid, Damaged if it is lost."""
    text = state.declared_text(host)
    if text is None:
        lost = why_lost(host)
        if lost:
            raise Damaged(Problem(state.DECLARED, None, f"{lost}: {WAY_BACK}"))
        return None
    try:
        data = json.loads(text, object_pairs_hook=schema_reader.unique)
    except schema_reader.DuplicateKey as error:
        raise CorralError(Problem(state.DECLARED, None, str(error))) from None
    except (ValueError, RecursionError) as error:
        raise Damaged(Problem(state.DECLARED, None, f"not JSON ({error}): apply the profile again")) from None
    return profile.parse(data)


def why_lost(host: Host) -> str:
    """Why the declared profile's file cannot be read; empty if it is a regular file, or if nothing shows that a profile was declared."""
    if not state.there(host, state.DECLARED):
        return "is gone" if state.there(host, state.APPLIED) or state.has_changed(host) else ""
    other = state.kind(host, state.DECLARED)
    return f"is {other}, and leads to no file" if other == "a link" else f"is {other}, not a file" if other else ""


def in_force(host: Host) -> t.Optional[Profile]:
    """The declared profile, or the profile applied last if the file is damaged; None if no profile is declared. Raises CorralError."""
    try:
        return read_declared(host)
    except Damaged as error:
        last = last_good(host)[0]
        if last is None:
            raise error from None
        return last


def last_good(host: Host) -> tuple[t.Optional[Profile], t.Optional[CorralError]]:
    """The profile that was applied last (None: no profile), and None, in the form of declared_or_last_good(). Raises CorralError."""
    data = state.applied(host)
    return (None, None) if data is None else (profile.parse(data), None)


def declared_or_last_good(host: Host) -> tuple[t.Optional[Profile], t.Optional[CorralError]]:
    """The declared profile, and None. If the declared profile is invalid: the profile applied last, and the error."""
    try:
        return read_declared(host), None
    except CorralError as error:
        try:
            return last_good(host)[0], error
        except CorralError:
            return None, error
