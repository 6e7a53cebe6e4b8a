# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# This module is private to the collection corral.node.
"""The manager of the declaration: the files with the declared profile, and with the origins of the profile's keys."""

from __future__ import annotations

import json
import re
import typing as t

from ...host import state
from ...host.files import Host
from ...model.plan import make_step
from ...model.plan.context import Context
from ...model.plan.places import Place
from ...model.plan.plan import DECLARE, RELOAD, Change, Part
from ...model.profile import compose, profile
from ..manager import Manager

NAME = "profile"
# The files of state that a run writes again after a loss: see lost_files.py.
KEPT = [path for file in state.FILES if file.written and file.spare for path in file.copies]
WRITES = (
    Place("file", re.escape(state.DECLARED)),
    Place("file", re.escape(state.ORIGINS)),
    Place("file", re.escape(state.RELOAD_DUE), None, volatile=True),
    *(Place("file", re.escape(path), volatile=True) for path in KEPT),
)


def plan(host: Host, context: Context) -> Part:
    """The changes of the declaration's files, written last: a profile becomes the declared profile only once its whole plan is executed.

    If the origins of the keys are not known, the recorded origins stay if they belong to this profile. Otherwise their file is removed.
    """
    data = profile.to_data(context.declared)
    files = [(state.DECLARED, data, "another profile", context.declared.name, "the declared profile")]
    origins = compose.declared_origins(data, context.origins) if context.origins else read_origins(host, data)
    if origins:
        kept = {"profile": state.checksum(data), "origins": origins}
        files.append((state.ORIGINS, kept, "other origins", f"{len(origins)} keys", "where each key comes from"))
    changes = []
    for path, content, other, wanted, reason in files:
        text = json.dumps(content, indent=2, sort_keys=True) + "\n"
        actual = host.read(path)
        # A profile may hold text that is not for every user of the node, such as a command or a label.
        step = make_step.file(path, text, DECLARE, mode=state.PRIVATE)
        mode = host.mode(path) or 0
        if actual != text:
            shown = None if actual is None else other
            changes.append(Change(NAME, path, "content", shown, wanted, reason, path, (step,)))
        elif mode & ~state.PRIVATE:
            modes, why = (f"{mode:04o}", f"{state.PRIVATE:04o}"), "other users can read it, or write to it"
            changes.append(Change(NAME, path, "mode", *modes, why, path, (step,)))
    return Part(tuple(changes), frozenset(f"file:{path}" for path, *dummy in files))


def reload_due() -> tuple[Change, ...]:
    """The item for files that systemd has not read: the run that wrote the files died before the daemon-reload."""
    steps = (make_step.file(state.RELOAD_DUE, None, RELOAD, 1, reload=True),)
    reason = "a run that died wrote files which systemd has not read since"
    return (Change(NAME, "systemd", "configuration", "not read", "read", reason, state.RELOAD_DUE, steps),)


def is_drift(change: Change) -> bool:
    """Whether a planned change is drift. The file of origins is never drift: it also changes if a variable or file is renamed."""
    return change.subject != state.ORIGINS


def read_origins(host: Host, data: t.Mapping[str, t.Any]) -> dict[str, str]:
    """The origins that the node keeps of a declared profile (profile.to_data); empty if the origins belong to another profile."""
    kept = state.read_json(host, state.ORIGINS)
    if not isinstance(kept, dict) or kept.get("profile") != state.checksum(data):
        return {}
    origins = kept.get("origins")
    return {str(path): str(origin) for path, origin in origins.items()} if isinstance(origins, dict) else {}


MANAGER = Manager(NAME, plan, WRITES)
