# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# This module is private to the collection corral.node.
"""The explanation of a node: each key of the profile with its origin, the effect of the profile, and the key behind each change."""

from __future__ import annotations

import json
import typing as t

from ..constants import SCHEMA
from ..managers import registry
from ..model.plan.context import Context
from ..model.plan.plan import Change
from ..model.profile import compose, effective_profile, profile
from ..model.profile.schema_reader import join
from . import change_text, text_table, value_text

if t.TYPE_CHECKING:
    from ..model.status.json_shapes import AskedBy, ExplainedPlan, Key

UNKNOWN_ORIGIN = "-"


def to_data(
    context: Context, changes: t.Sequence[Change], since: t.Optional[change_text.Since] = None
) -> ExplainedPlan:
    """The explanation as JSON data. ``since`` of a change is null if no earlier run has seen the change."""
    declared = context.declared
    keys: dict[str, Key] = {
        path: {"value": value, "origin": context.origins.get(path)}
        for path, value in compose.leaves_of(profile.to_data(declared)).items()
    }
    return {
        "schema": SCHEMA,
        "keys": keys,
        "effective_profile": effective_profile.compile_to_data(context.profile, context.persistent_pools),
        "changes": [
            {**item, "asked_by": asked_by(change, context)}
            for change, item in zip(changes, change_text.dated(changes, since or {}))
        ],
    }


def lines(context: Context, changes: t.Sequence[Change], since: t.Optional[change_text.Since] = None) -> list[str]:
    """The explanation as text."""
    found = to_data(context, changes)
    keys = [(f"  {path}", shown(key["value"]), key["origin"] or UNKNOWN_ORIGIN) for path, key in found["keys"].items()]
    here = [
        (f"  {path}", shown(value))
        for path, value in flat(found["effective_profile"], "")
        if path not in ("name", "mode")
    ]
    rows = [
        f"profile {context.profile.name}, each key with its origin:",
        *text_table.aligned(keys),
        "its effect on this node:",
        *text_table.aligned(here or [("  nothing", "")]),
        "changes:" if changes else "changes: none",
    ]
    for change in changes:
        rows.append(f"  {change_text.line(change)}{change_text.seen(change, since or {})}")
        asked = asked_by(change, context)
        if asked is not None:
            rows.append(f"      asked for by {asked['key']} ({asked['origin'] or 'its origin is not known'})")
    return rows


def asked_by(change: Change, context: Context) -> t.Optional[AskedBy]:
    """The key or section that a change follows from, and its origin; None if the change follows from no key."""
    origins = context.origins or dict.fromkeys(compose.leaves_of(profile.to_data(context.declared)), "")
    key = registry.manager(change.manager).key_of(change, context.declared)
    if key is None or not any(leaf == key or leaf.startswith((f"{key}.", f"{key}[")) for leaf in origins):
        return None
    written = {leaf: origin for leaf, origin in origins.items() if origin != compose.DEFAULT}
    return {"key": key, "origin": compose.origin_of(key, written) or compose.origin_of(key, origins) or None}


def flat(data: t.Mapping[str, t.Any], path: str) -> t.Iterator[tuple[str, t.Any]]:
    """The leaves of plain data, each with its path."""
    for name, value in data.items():
        where = join(path, name)
        if isinstance(value, dict) and value:
            yield from flat(value, where)
        else:
            yield where, value


def shown(value: t.Any) -> str:
    """A value as the profile has it, on one line."""
    text = value if isinstance(value, str) else json.dumps(value)
    return value_text.shorten(text) or "none"
