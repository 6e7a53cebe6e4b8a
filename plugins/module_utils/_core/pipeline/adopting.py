# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# This module is private to the collection corral.node.
"""The differences of a node from its applied profile, as keys of a profile.

A part is adopted if the profile with that part keeps the node's value, and changes no other value in force.
"""

from __future__ import annotations

import typing as t

from ..host import state
from ..host.files import Host
from ..host.topology import sysfs
from ..managers import registry
from ..model.plan.plan import Change
from ..model.profile import compose, node_as_profile, profile
from ..model.profile.node_as_profile import ProfileFragment
from ..model.values.errors import CorralError
from . import planning

# The kinds of steps that make a value persistent and do not change the live value.
PERSISTENT = ("file", "link", "folder")

Item = tuple[str, str, str]


def adopted(host: Host) -> dict[str, t.Any]:
    """The keys in which the node differs, as a layer over the applied profile; empty if no key expresses a difference of the node."""
    applied = state.applied(host)
    if not isinstance(applied, dict):
        return {}
    try:
        left = changes_of(host, applied)
    except CorralError:
        return {}
    if not left:
        return {}
    topology = sysfs.discover(host, with_devices=False)
    parts = [part for manager in registry.every() for part in manager.describe(host, topology)]
    kept: list[ProfileFragment] = []
    for part in parts:
        try:
            changes = changes_of(host, applied, [*kept, part])
        except CorralError:
            continue
        if is_closer(left, changes):
            kept.append(part)
            left = changes
    return without(node_as_profile.profile_data({}, kept), applied)


def changes_of(
    host: Host, applied: t.Mapping[str, t.Any], parts: t.Sequence[ProfileFragment] = ()
) -> tuple[Change, ...]:
    """The changes that the profile ``applied`` would make with ``parts`` over it. Raises CorralError if the result is no valid profile."""
    layers = [compose.Layer("applied", applied), compose.Layer("node", node_as_profile.profile_data({}, parts))]
    context = planning.compile_profile(host, profile.parse(compose.compose(layers).data))
    return planning.plan_profile(host, context).changes


def is_closer(before: t.Sequence[Change], after: t.Sequence[Change]) -> bool:
    """Whether ``after`` lacks an item of ``before``, and each new item of ``after`` only makes a present value persistent."""
    known: set[Item] = {change.item() for change in before}
    left: set[Item] = {change.item() for change in after}
    fresh = [change for change in after if change.item() not in known]
    return bool(known - left) and all(
        change.steps and all(step.kind in PERSISTENT for step in change.steps) for change in fresh
    )


def without(data: t.Mapping[str, t.Any], applied: t.Mapping[str, t.Any]) -> dict[str, t.Any]:
    """The data without the keys that the applied profile has with the same value."""
    different = {}
    for key, value in data.items():
        below = applied.get(key)
        kept = without(value, below) if isinstance(value, dict) and isinstance(below, dict) else value
        if value != below and kept != {}:
            different[key] = kept
    return different
