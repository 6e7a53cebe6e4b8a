# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# This module is private to the collection corral.node.
"""Going back to a profile that was applied before."""

from __future__ import annotations

from ..host import state
from ..host.files import Host
from ..model.plan.plan import Outcome
from ..model.profile import profile
from ..model.profile.profile import Profile
from ..model.status import history
from . import confirming
from .confirming import Terms


def target(host: Host, to: str) -> Profile:
    """The profile that ``to`` names (see history.chosen). Raises CorralError."""
    return profile.parse(history.chosen(*state.history(host), to).profile)


def roll_back(host: Host, to: str, seconds: int = 0) -> Outcome:
    """Apply a profile that was applied before, and declare it; the caller holds the lock. ``seconds``: see confirming.Terms.

    By number the profiles that it goes past are forgotten, so that the same number goes further back the next time.
    By hash they are kept, and the same hash changes nothing the next time.
    """
    number, past = history.number_of(to), state.history(host)[1]
    outcome = confirming.declare(host, target(host, to), None, Terms(seconds, force=True))
    if not outcome.error and number is not None:
        now = state.history(host)[0]
        state.save_history(host, [*([now] if now and now.applied is not None else []), *past[number:]])
    return outcome
