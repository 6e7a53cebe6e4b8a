# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# This module is private to the collection corral.node.
"""A plan by the keys of the profile: each edited key with the changes on the node that follow from this key.

A change is drift if the profile that was applied before would make the same change. A change of one of Corral's own units follows from no
key, and is not drift: another release of the collection writes other units.
"""

from __future__ import annotations

import re
import typing as t

from ..managers import registry
from ..managers.profile import declaration
from ..model.plan.context import Context
from ..model.plan.plan import Change
from ..model.profile import compose, profile
from ..model.systemd.unit_property import ETC
from ..model.values.vocabulary import Disruption
from . import change_text

if t.TYPE_CHECKING:
    from ..model.status.json_shapes import EditedKey

HARMLESS: Disruption = "none"
ITEM = re.compile(r"([a-z]+)\[([0-9]+)\]")  # An item in a list of the profile. The item may have a name.
OWN_UNIT = re.compile(rf"{ETC}/corral-[a-z@-]+\.(service|timer)")
Kind = t.Literal["edited", "first", "drift", "own"]


def of_plan(
    context: Context,
    changes: t.Sequence[Change],
    applied: t.Optional[t.Mapping[str, t.Any]],
    drifted: t.Container[tuple[str, str, str]] = (),
) -> list[EditedKey]:
    """The edited keys in the order of their paths with the lines of their changes, then drift and Corral's own units.

    ``applied`` is the data of the profile that was applied before. If ``applied`` is None, each section is one entry. ``drifted`` has the
    items (Change.item) by which the node differs from that profile.
    """
    declared = profile.to_data(context.declared)
    after = compose.leaves_of(declared)
    shown = [change for change in changes if declaration.is_drift(change) and change.manager != declaration.NAME]
    paths = [key_of(change, context) for change in shown]
    keys = [by_name(path, declared) for path in paths]
    if applied is None:
        first = [entry("first", key, None, None, path, context) for key, path in dict(zip(keys, paths)).items()]
        return filled(first, shown, keys, drifted)
    before = {by_name(path, applied): value for path, value in compose.leaves_of(applied).items()}
    path_of = {by_name(path, declared): path for path in after}
    values = {key: after[path] for key, path in path_of.items()}
    names = sorted(key for key in {*before, *values} if before.get(key) != values.get(key))
    edited = [entry("edited", key, before.get(key), values.get(key), path_of.get(key, key), context) for key in names]
    return filled(edited, shown, keys, drifted)


def by_name(path: str, data: t.Mapping[str, t.Any]) -> str:
    """A path with an item's name in place of its number (``workloads[lane].hold``), so that the order of items does not matter."""
    found = ITEM.match(path)
    if found is None:
        return path
    item = data[found[1]][int(found[2])]
    name = item.get("name") if isinstance(item, dict) else None
    return f"{found[1]}[{name}]{path[found.end() :]}" if name else path


def key_of(change: Change, context: Context) -> str:
    """The key or section from which a change follows; empty if the change follows from no key."""
    return registry.manager(change.manager).key_of(change, context.declared) or ""


def entry(kind: Kind, key: str, before: t.Any, after: t.Any, path: str, context: Context) -> EditedKey:
    """The entry of an edited key, without changes. ``path`` is the key's path in the profile, by which the origins are stored."""
    origin = compose.origin_of(path, context.origins) if context.origins else ""
    return {
        "kind": kind,
        "key": key,
        "before": before,
        "after": after,
        "origin": origin or None,
        "disruption": HARMLESS,
        "changes": [],
    }


def filled(
    entries: list[EditedKey],
    changes: t.Sequence[Change],
    keys: t.Sequence[str],
    drifted: t.Container[tuple[str, str, str]],
) -> list[EditedKey]:
    """The entries with their changes, then an entry for drift and an entry for Corral's own units, if these two have changes."""
    drift, own = without_key("drift"), without_key("own")
    for change, key in zip(changes, keys):
        if change.item() in drifted:
            owner = own if OWN_UNIT.fullmatch(change.subject) else drift
        else:
            owner = nearest(entries, key) or drift
        owner["changes"].append(change_text.line(change))
        if change.disruption != HARMLESS:
            owner["disruption"] = change.disruption
    return [*entries, *(one for one in (drift, own) if one["changes"])]


def without_key(kind: Kind) -> EditedKey:
    """An entry for changes that follow from no edited key."""
    return {
        "kind": kind, "key": "", "before": None, "after": None, "origin": None, "disruption": HARMLESS, "changes": [],
    }  # fmt: skip


def nearest(entries: t.Sequence[EditedKey], key: str) -> t.Optional[EditedKey]:
    """The entry of a key, else of the nearest key above or below it, else of a key in its section, else the first entry.

    A change may follow from several keys, also of other sections (isolated CPUs move if more CPUs are reserved). Such a change is shown
    once.
    """

    def rank(one: EditedKey) -> tuple[bool, bool, bool, int]:
        related = is_within(one["key"], key) or is_within(key, one["key"])
        same = one["key"].partition(".")[0] == key.partition(".")[0]
        return one["key"] == key, related, same, len(one["key"]) if related else 0

    return max(entries, key=rank, default=None)


def is_within(path: str, above: str) -> bool:
    """Whether the key ``path`` lies below the key ``above``; False if ``above`` is empty."""
    return bool(above) and path.startswith((f"{above}.", f"{above}["))
