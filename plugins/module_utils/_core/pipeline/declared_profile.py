# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# This module is private to the collection corral.node.
"""Which profile is declared on a node, and which was applied last."""

from __future__ import annotations

import json
import typing as t

from ..host import state
from ..host.files import Host
from ..model.profile import profile, schema_reader
from ..model.profile.profile import Profile
from ..model.values.errors import CorralError, Problem


def applied_already(host: Host, declared: Profile) -> bool:
    """Whether this very profile was the last to be applied on this node."""
    return profile.is_data_of(state.read_json(host, state.APPLIED), declared)


def read_declared(host: Host) -> t.Optional[Profile]:
    """The node's declared profile; None when it has none. Raises CorralError for one that is no profile."""
    text = host.read(state.DECLARED)
    if text is None:
        if host.mode(state.DECLARED) is not None:
            raise CorralError(Problem(state.DECLARED, None, "cannot be read: it leads to no file, move it away"))
        return None
    try:
        data = json.loads(text, object_pairs_hook=schema_reader.unique)
    except schema_reader.DuplicateKey as error:
        raise CorralError(Problem(state.DECLARED, None, str(error))) from None
    except (ValueError, RecursionError) as error:
        raise CorralError(Problem(state.DECLARED, None, f"not JSON ({error}): apply the profile again")) from None
    return profile.parse(data)


def last_good(host: Host) -> tuple[t.Optional[Profile], t.Optional[CorralError]]:
    """The profile that was applied last."""
    data = state.read_json(host, state.APPLIED)
    return (None, None) if data is None else (profile.parse(data), None)


def declared_or_last_good(host: Host) -> tuple[t.Optional[Profile], t.Optional[CorralError]]:
    """The declared profile; when it is no profile, the one applied last and why."""
    try:
        return read_declared(host), None
    except CorralError as error:
        try:
            return last_good(host)[0], error
        except CorralError:
            return None, error
