# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# This module is private to the collection corral.node.
"""Whether a plan is for the way back of an unconfirmed profile, which what came after that profile must not keep from being executed."""

from __future__ import annotations

import typing as t

from . import state
from .files import Host

if t.TYPE_CHECKING:
    from ..model.profile.profile import Profile


def to(host: Host, declared: t.Optional[Profile]) -> bool:
    """Whether this profile (None: none) is the one before an unconfirmed one: the node goes back to it, by itself once its time is over.

    What was not confirmed may be what keeps the hook from draining the node. Nor need the node be Ready afterwards: a way back that waits
    for that may never end.
    """
    if not state.there(host, state.UNCONFIRMED):
        return False
    from ..model.profile import profile
    from . import unconfirmed_file

    found = unconfirmed_file.pending(host)
    return found is not None and profile.is_data_of(found.before, declared)
