# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# This module is private to the collection corral.node.
"""The items for Corral's file, for state files, for overridden keys, and for files that the kubelet has not read."""

from __future__ import annotations

import typing as t

from ...host.files import Host
from ...host.kubelet import kubelet_cpus, kubelet_node, kubelet_state, kubelet_unit
from ...model.kubelet import config_text
from ...model.kubelet.kubelet_config import DEFAULT
from ...model.kubelet.kubelet_drift import Difference
from ...model.plan.context import Context
from ...model.plan.plan import UNCHANGEABLE, Change, Step
from ...model.systemd.unit_file import settings
from . import kubelet_change
from .kubelet_observed import ObservedKubelet
from .kubelet_places import DROPIN, NAME
from .kubelet_target import Target


def file_item(seen: ObservedKubelet, then: Target, steps: t.Sequence[Step], when: t.Any, disruption: t.Any) -> Change:
    """The item of Corral's drop-in, or of the lines in a file of others."""
    actual, wanted = seen.texts.get(seen.own), then.text
    reason = "the kubelet's keys that the profile declares"
    if not seen.dropin:
        keys = sorted(then.kept.lines.keys() | seen.kept.lines.keys())
        actual, wanted = (
            "".join(filter(None, config_text.blocks_of(text or "", keys).values())) for text in (actual, wanted)
        )
        reason = f"{reason}; all other lines stay"
    return Change(
        NAME, seen.own, "content" if seen.dropin else "lines", None if actual is None else settings(actual),
        None if wanted is None else settings(wanted), reason, seen.own, tuple(steps), when=when, disruption=disruption,
    )  # fmt: skip


def state_item(one: kubelet_change.RefusedFile, steps: t.Sequence[Step], disruption: t.Any, when: t.Any) -> Change:
    """The item of a state file that the kubelet would refuse."""
    return Change(
        NAME, one.path, "state", "refused at the start", "set aside", one.refusal, one.path, tuple(steps), when=when,
        disruption=disruption,
    )  # fmt: skip


def overridden_item(host: Host, one: Difference) -> Change:
    """The item of a key to which a later file or a flag gives another value."""
    file = "" if one.origin == DEFAULT else one.origin
    reason = f"{file} sorts after {DROPIN}: remove the key there, or declare its value"
    if one.origin.startswith("--"):
        file = kubelet_unit.file_of_flag(host, one.origin)
        reason = f"the flag {one.origin} in {file} wins over every file: remove it there, or declare its value"
    elif not file:
        reason = (
            "the kubelet adds its default thresholds (mergeDefaultEvictionSettings): set that to false, or declare them"
        )
    return Change(NAME, one.key, "value", one.actual, one.wanted, reason, file, (), UNCHANGEABLE)


def older_than_files(host: Host, seen: ObservedKubelet, context: Context) -> list[Change]:
    """The item of a kubelet that has not read its files: the files were changed after its start, and this plan does not restart it.

    If the pools follow the kubelet's reserved CPUs, there is also an item for a state file that does not fit the files, even if the kubelet
    does not run: with this state file the kubelet would not start.
    """
    newer = kubelet_node.newer_files(host, seen.process, seen.places, seen.layers)
    if newer:
        actual, wanted, file = f"changed since: {', '.join(newer)}", "read by the kubelet", newer[0]
    else:
        found = kubelet_cpus.bound(host) if context.declared_pools is not None else None
        if found is None or not found.doubt:
            return []
        actual, wanted, file = found.doubt, "reserved", found.file
    way = kubelet_state.way_to_read(host, newer, context.topology)
    began = (
        f"the running kubelet (process {seen.process.pid}) began before this change"
        if seen.process
        else "the kubelet does not start with that"
    )
    return [
        Change(NAME, kubelet_unit.UNIT, "files", actual, wanted, f"{began}: {way}", file, (), UNCHANGEABLE, "next start",
               "service restart")
    ]  # fmt: skip
