# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# This module is private to the collection corral.node.
"""Going back to a profile that was applied before."""

from __future__ import annotations

import typing as t

from ..host import state
from ..host.files import Host
from ..model.plan.plan import Outcome
from ..model.profile import profile
from ..model.profile.profile import Profile
from ..model.status import history
from . import confirming
from .confirming import Terms


def left_already(host: Host, only_from: str) -> t.Optional[Profile]:
    """The profile in force, which the node keeps, if the profile's hash does not begin with ``only_from``; None if the node goes back."""
    in_force = state.history(host)[0]
    if not only_from or in_force is None or history.hash_of(in_force.profile).startswith(only_from):
        return None
    return profile.parse(in_force.profile)


def target(host: Host, to: str, only_from: str = "") -> Profile:
    """The profile that ``to`` names (see history.chosen), or the profile that left_already() returns. Raises CorralError."""
    return left_already(host, only_from) or profile.parse(history.chosen(*state.history(host), to).profile)


def roll_back(host: Host, to: str, seconds: int = 0, only_from: str = "") -> Outcome:
    """Apply a profile that was applied before, and declare it; the caller holds the lock. ``seconds``: see confirming.Terms.

    If ``to`` is a number, the history forgets the profiles after the chosen profile, so that the same number goes further back the next
    time. If ``to`` is a hash, the history keeps these profiles, and the same hash changes nothing the next time. With a hash and
    ``only_from`` the history forgets these profiles too.
    """
    number, past = history.number_of(to), state.history(host)[1]
    stays = left_already(host, only_from)
    if stays is not None:
        number = None
    elif number is None and only_from:
        number = next((place for place, one in enumerate(past, 1) if history.hash_of(one.profile).startswith(to)), None)
    outcome = confirming.declare(host, stays or target(host, to), None, Terms(seconds, force=True))
    if not outcome.error and number is not None:
        now = state.history(host)[0]
        state.save_history(host, [*([now] if now and now.applied is not None else []), *past[number:]])
    return outcome
