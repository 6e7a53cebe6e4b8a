# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# This module is private to the collection corral.node.
"""Record originals: write the state of each target that a plan changes for the first time, before the plan's first step."""

from __future__ import annotations

import contextlib
import typing as t

from ..host import state
from ..host.files import Host
from ..host.plan import apply_step
from ..host.state import Record
from ..managers import registry
from ..model.plan import make_step, undo
from ..model.plan.places import covering
from ..model.plan.plan import RELEASE, VALUES, Part, Plan, Step
from ..model.profile.schema_types import is_own
from ..model.systemd import unit_property
from ..model.values.errors import refusal
from . import lost_originals

if t.TYPE_CHECKING:
    from ..managers.manager import Manager
    from ..model.values.vocabulary import StepKind

NEVER_RECORDED = ("daemon-reload", "restart")
VALUE_KINDS: tuple[StepKind, ...] = ("pool", "value")


def keep_records(host: Host, records: t.Sequence[Record]) -> None:
    """Write the originals. Raises CorralError if this write fails, so that the run does not begin."""
    try:
        state.save_records(host, records)
    except OSError as error:
        message = (
            f"the originals cannot be recorded ({error.strerror}), so nothing was changed: make room, then try again"
        )
        raise refusal(message, path=state.BEFORE) from None


def note_reload(host: Host, steps: t.Iterable[Step]) -> None:
    """Mark by a file that a daemon-reload is due. The file stays if a run of these steps dies before the reload. Errors are ignored."""
    with contextlib.suppress(OSError):
        if any(step.reload for step in steps) and not state.there(host, state.RELOAD_DUE):
            host.write_file(state.RELOAD_DUE, "", state.PRIVATE)


def forget_records(host: Host, kept: t.Sequence[Record], untouched: bool) -> tuple[str, ...]:
    """After an undo: record only the originals ``kept``; if the run found the node ``untouched``, delete Corral's state.

    Returns a leftover if this write fails. The originals that stay recorded are right: after the undo their targets are as recorded.
    """
    try:
        if untouched:
            state.forget(host)
        else:
            state.save_records(host, kept)
    except OSError as error:
        return (
            f"{state.BEFORE}: {error.strerror}: it still records the originals of this run, make room and run again",
        )
    return ()


def settle_records(
    host: Host, kept: t.Sequence[Record], new: t.Sequence[Record], unset: t.Container[str], ended: t.Container[str]
) -> None:
    """After a run: forget new originals with the keys ``unset``, whose targets were not changed, and originals with the keys ``ended``."""
    gone = [record.before for record in kept if record.before.key in ended]
    rest = [*kept, *(record for record in new if record.before.key not in unset)]
    rest = [record for record in rest if record.before.key not in ended]
    heirs = undo.handed_down([record.before for record in rest], gone)
    state.save_records(host, [record._replace(before=heir) for record, heir in zip(rest, heirs)])


def new_records(host: Host, plan: Plan, kept: t.Sequence[Record]) -> list[Record]:
    """The originals of all targets that this plan changes for the first time."""
    recorded = {record.before.key for record in kept}
    rows = state.unreadable(host)
    if rows:
        recorded |= lost_originals.keys(rows)
    known = set(recorded)
    found = []
    pools = {key for part in plan.parts for key in part.owned if key.startswith("pool:")}
    for change in (change for part in plan.parts for change in part.changes if change.steps):
        owner = registry.manager(change.manager)
        for step in (looked for written in change.steps for looked in (written, *taken_with(written, owner))):
            if step.key not in known and has_original(step, owner, recorded, pools):
                known.add(step.key)
                found.append(Record(change.manager, change.subject, apply_step.observe(host, step)))
    return found + [record for part in plan.parts for record in right_already(host, part, known)]


def has_original(step: Step, owner: Manager, recorded: t.Container[str], pools: t.Container[str]) -> bool:
    """Whether a removal must restore the state before a step. For hugepage pools: only if ``pools`` has the key (pools of NUMA nodes)."""
    return not (
        is_volatile(step, owner)
        or step.value in NEVER_RECORDED
        or (step.kind == "pool" and step.key not in pools)
        or unit_property.is_live_file(step.kind, step.target)
        or is_tampering(step, owner.name, recorded)
    )


def right_already(host: Host, part: Part, known: t.AbstractSet[str]) -> list[Record]:
    """The originals of a part's kernel values that already are as declared: a value that is set later is not the original."""
    keys = sorted(part.owned - known) if part.manager else []
    steps = [
        Step(kind, key[len(kind) + 1 :], None, VALUES)
        for kind in VALUE_KINDS
        for key in keys
        if key.startswith(f"{kind}:")
    ]
    steps += [step for step in part.baseline if step.key not in known]
    return [Record(part.manager, step.target, apply_step.observe(host, step)) for step in steps]


def is_volatile(step: Step, owner: Manager) -> bool:
    """Whether a step has nothing to restore: its target is a folder, or a volatile place of its manager."""
    place = covering(owner.writes, step)
    return step.kind == "folder" or (place is not None and place.volatile)


def taken_with(step: Step, owner: Manager) -> tuple[Step, ...]:
    """The steps whose originals are recorded with this step: for a drop-in, the unit's live property. A value read later is no original."""
    unit = unit_property.unit_of_dropin(step.target, owner.name) if step.kind == "file" and owner.live else ""
    return (make_step.unit_property(unit, owner.live, "", RELEASE),) if unit else ()


def is_tampering(step: Step, manager: str, recorded: t.Container[str]) -> bool:
    """Whether the step removes a property that was set after Corral's first change of the unit: such a property is no original.

    Without a drop-in of Corral's the property is older than that change: the property had the wanted value, and Corral kept it. The slice
    of an instance has no drop-in, since each start makes the slice.
    """
    key = unit_property.key_of_file(step.target) if step.kind == "file" else ""
    if not key:
        return False
    unit = key.split(":", 1)[1].rpartition(":")[0]
    has_dropin = f"file:{unit_property.dropin(unit, manager)}" in recorded
    if is_own(unit):
        return has_dropin or key in recorded or ":" in unit
    return has_dropin and key in recorded
