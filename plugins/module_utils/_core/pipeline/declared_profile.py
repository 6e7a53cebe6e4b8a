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
from ..model.plan.context import Context
from ..model.plan.plan import DECLARE, Change, Part, Step
from ..model.profile import profile, schema_reader
from ..model.profile.profile import Profile
from ..model.values.errors import CorralError, Problem

PROFILE = "profile"  # the manager of the declaration itself


def declaration(host: Host, context: Context) -> Part:
    """The declared profile's files on the node, written last: it is declared once it is true.

    The origins of its keys are one of them. Where they are not known, those of this very profile stay, others go.
    """
    from ..model.profile import compose  # The tick declares nothing.

    data = profile.to_data(context.profile)
    files = [(state.DECLARED, data, "another profile", context.profile.name, "the declared profile")]
    origins = compose.declared_origins(data, context.origins) if context.origins else read_origins(host, data)
    if origins:
        kept = {"profile": state.checksum(data), "origins": origins}
        files.append((state.ORIGINS, kept, "other origins", f"{len(origins)} keys", "where each key comes from"))
    changes = []
    for path, content, other, wanted, reason in files:
        text = json.dumps(content, indent=2, sort_keys=True) + "\n"
        actual = host.read(path)
        if actual != text:
            # Readable for all: what a node is meant to be is no secret, and users other than root may ask how far it is from it.
            step = Step("file", path, text, DECLARE)
            shown = None if actual is None else other
            changes.append(Change(PROFILE, path, "content", shown, wanted, reason, path, (step,)))
    return Part(tuple(changes), frozenset(f"file:{path}" for path, *dummy in files))


def read_origins(host: Host, data: t.Mapping[str, t.Any]) -> dict[str, str]:
    """The origins that the node keeps of a declared profile (profile.to_data); empty when they are another's."""
    kept = state.read_json(host, state.ORIGINS)
    if not isinstance(kept, dict) or kept.get("profile") != state.checksum(data):
        return {}
    origins = kept.get("origins")
    return {str(path): str(origin) for path, origin in origins.items()} if isinstance(origins, dict) else {}


def applied_already(host: Host, declared: Profile) -> bool:
    """Whether this very profile was the last to be applied on this node."""
    return bool(state.read_json(host, state.APPLIED) == profile.to_data(declared))


def read_declared(host: Host) -> t.Optional[Profile]:
    """The node's declared profile; None when it has none. Raises CorralError for one that is no profile."""
    text = host.read(state.DECLARED)
    if text is None:
        return None
    try:
        data = json.loads(text, object_pairs_hook=schema_reader.unique)
    except schema_reader.DuplicateKey as error:
        raise CorralError(Problem(state.DECLARED, None, str(error))) from None
    except (ValueError, RecursionError) as error:
        raise CorralError(Problem(state.DECLARED, None, f"no JSON ({error}): apply the profile again")) from None
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
