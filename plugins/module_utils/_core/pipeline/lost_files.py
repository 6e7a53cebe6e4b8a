# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# This module is private to the collection corral.node.
"""Lost files of Corral as drift: the files that a run restores from another copy, and the files that only a user can restore."""

from __future__ import annotations

import json
import typing as t

from ..host import state
from ..host.files import Host
from ..managers.registry import PROFILE, WORKLOADS
from ..model.plan import make_step
from ..model.plan.plan import RECORD, UNCHANGEABLE, Change

ORDER = 5


def items(host: Host) -> tuple[Change, ...]:
    """An item of drift for each lost file, with the step that restores the file if another copy has its content."""
    changes = [*of_copies(host), *of_applied(host)]
    for file in state.FILES:
        if file.told and is_lost(host, file):
            said = state.wrong(host, file.path, state.read_json(host, file.path), is_checked=file.checked)
            row = (PROFILE, file.path, "content", "damaged", "readable", f"{said}: {file.lost}", file.path)
            changes.append(Change(*row, (), UNCHANGEABLE))
    return tuple(changes)


def is_lost(host: Host, file: state.OwnFile) -> bool:
    """Whether a file is damaged, or gone although the records of originals show that it was written."""
    if not state.there(host, file.path):
        return file.path == state.AGENT and any(
            record.before.key == f"file:{file.path}" for record in state.records(host)[0]
        )
    if file.path == state.DRAINED:
        from ..host.agent import node_hooks

        return not node_hooks.drained_by(host)[0]
    return bool(state.wrong(host, file.path, state.read_json(host, file.path), is_checked=file.checked))


def of_applied(host: Host) -> t.Iterator[Change]:
    """The change that writes the profile applied last to its file again, if only the history still has this profile."""
    if state.read_json(host, state.APPLIED) is None:
        kept = state.applied(host)
        if kept is not None:
            text = json.dumps(kept, sort_keys=True) + "\n"
            yield mended(host, state.APPLIED, text, f"it is written again from {state.HISTORY}")


def of_copies(host: Host) -> t.Iterator[Change]:
    """An item for each copy that is lost or older than the other copy, for the files with two copies."""
    for pair in copies():
        readable = [path for path in pair if state.checked(host, path) is not None]
        if not readable:
            continue  # The file does not exist, or both copies are lost: see items().
        text = state.checked_text(state.either(host, pair[0]))
        for path, other in (pair, pair[::-1]):
            if path not in readable:
                yield mended(host, path, text, f"it is written again from {other}")
            elif state.read_text(host, path) != text:
                yield mended(host, path, text, f"it is not as {other}: it gets what both have")


def copies() -> list[tuple[str, ...]]:
    """The second copy and the file itself, for each file whose lost copy a run restores. Other code restores the other files."""
    return [one.copies[::-1] for one in state.FILES if one.spare == state.BESIDE and one.lost == state.AGAIN]


def mended(host: Host, path: str, text: str, how: str) -> Change:
    """The change that writes ``text`` to a file again; ``how`` says why."""
    stored = state.read_json(host, path)
    said = state.wrong(host, path, stored, is_checked=path != state.APPLIED) or "is an earlier one"
    step = make_step.file(path, text, RECORD, ORDER, mode=state.PRIVATE)
    owner = WORKLOADS if path in state.rest_of(state.ADMITTED) else PROFILE
    return Change(owner, path, "content", "damaged", "readable", f"{said}: {how}", path, (step,))
