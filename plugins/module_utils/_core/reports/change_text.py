# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# This module is private to the collection corral.node.
"""Text of changes and outcomes: plans, drift, the diff of Ansible. No other module writes a change as text.

The fleet's report cannot call this module, so Ansible modules return the text with the data: ``text`` of each change.
"""

from __future__ import annotations

import time
import typing as t

from ..constants import SCHEMA
from ..model.plan.plan import UNCHANGEABLE, UNKNOWN, Change, Outcome, change_to_dict
from .value_text import compared, counted

if t.TYPE_CHECKING:
    from ..model.status.json_shapes import DriftItem, Plan, RenderedItem, Run

MOMENT = "%Y-%m-%d %H:%M:%S UTC"
Since = t.Mapping[tuple[str, str, str], int]  # when an item (Change.item) was first seen, epoch seconds
MARKS = {UNKNOWN: "?", UNCHANGEABLE: "!"}


def line(change: Change) -> str:
    """A line for a change or an item of drift, with a mark for its verdict."""
    return f"{MARKS.get(change.verdict, '~')} {described(change)}"


def described(change: Change) -> str:
    """A line for a change or an item of drift, without a mark."""
    values = "" if change.verdict == UNKNOWN else f": {' -> '.join(compared(change.actual, change.wanted))}"
    extra = "" if change.when == "now" else f" [{change.when}]"
    extra += "" if change.disruption == "none" else f" [{change.disruption}]"
    location = f" [{change.location}]" if change.location and change.location not in change.subject else ""
    return f"{change.manager} {change.subject} {change.property}{values} ({change.reason}){extra}{location}"


def with_text(change: Change) -> RenderedItem:
    """A change or an item of drift as JSON, with its line as ``text``."""
    return {**change_to_dict(change), "text": line(change)}


def recap(changes: t.Sequence[Change], *, done: bool) -> str:
    """A line with the number of changes (``done``: made, else still to be made), and of values that could not be read."""
    differing = [change for change in changes if change.verdict != UNKNOWN]
    unknown = len(changes) - len(differing)
    if not changes:
        return "in sync: nothing differs"
    managers = sorted({change.manager for change in differing})
    verb = "changed" if done else "differ" if len(differing) != 1 else "differs"
    parts = [f"{len(differing)} {verb} ({', '.join(managers)})"] if differing else []
    stuck = sum(change.verdict == "unchangeable" for change in differing)
    parts += [f"{stuck} of them Corral cannot correct"] if stuck else []
    parts += [f"{unknown} unknown"] if unknown else []
    return "; ".join(parts)


def moment(since: float) -> str:
    """A time (epoch seconds) as text."""
    return time.strftime(MOMENT, time.gmtime(since))


def lines(changes: t.Sequence[Change], *, done: bool = False, since: t.Optional[Since] = None) -> list[str]:
    """A plan or drift report as text, with the time when an item was first seen if ``since`` has that time."""
    return [*(line(change) + seen(change, since or {}) for change in changes), recap(changes, done=done)]


def seen(change: Change, since: Since) -> str:
    """The end of an item's line: the time when the item was first seen; empty if the time is not known."""
    first = since.get(change.item())
    return "" if first is None else f" [since {moment(first)}]"


def plan_data(changes: t.Sequence[Change], since: Since) -> Plan:
    """A plan or drift report as JSON."""
    return {"schema": SCHEMA, "changes": dated(changes, since)}


def dated(changes: t.Iterable[Change], since: Since) -> list[DriftItem]:
    """Items of drift as JSON; ``since`` is null for an item that was not seen before."""
    return [{**with_text(change), "since": since.get(change.item())} for change in changes]


def outcome_data(outcome: Outcome, since: Since) -> Run:
    """An outcome as JSON."""
    return {
        "schema": SCHEMA,
        "changed": [with_text(change) for change in outcome.applied],
        "drift": dated(outcome.remaining, since),
        "error": outcome.error or None,
        "undone": list(outcome.undone),
        "leftovers": list(outcome.leftovers),
    }


def outcome_lines(outcome: Outcome, since: t.Optional[Since] = None) -> list[str]:
    """An outcome as text, with the times in ``since`` when the items that still differ were first seen."""
    shown = lines(outcome.applied, done=True) if outcome.applied or not outcome.remaining else []
    if outcome.remaining:
        shown += ["what still differs:", *lines(outcome.remaining, since=since)]
    if outcome.error:
        shown += [f"refused: {outcome.error}", f"undone: {counted(len(outcome.undone), 'step')}, in reverse order"]
    return shown + leftovers(outcome)


def leftovers(outcome: Outcome) -> list[str]:
    """A line for each target that a run could not restore."""
    return [f"could not be brought back: {leftover}" for leftover in outcome.leftovers]


def refused(outcome: Outcome) -> str:
    """Why a run failed in the middle, and whether its earlier steps were undone."""
    became = "nothing was changed"
    if outcome.undone:
        count = len(outcome.undone)
        became = f"{counted(count, 'step')} {'was' if count == 1 else 'were'} undone in reverse order"
    if outcome.leftovers:
        became = f"not all of it could be undone ({'; '.join(outcome.leftovers)})"
    return f"refused, and {became}: {outcome.error}"


def diff(changes: t.Sequence[Change]) -> dict[str, str]:
    """Ansible's diff: a line for each property that differs, with its value before and after."""

    def side(change: Change, value: t.Optional[str]) -> str:
        return f"{change.manager} {change.subject} {change.property}: {'absent' if value is None else value}\n"

    shown = [change for change in changes if change.verdict != UNKNOWN]
    return {
        "before_header": "the node as it is",
        "after_header": "the node as declared",
        "before": "".join(side(change, change.actual) for change in shown),
        "after": "".join(side(change, change.wanted) for change in shown),
    }


def in_words(change: Change) -> str:
    """A change in a few words, for a comment."""
    if change.verdict == UNKNOWN:
        return f"{change.subject} {change.property}: unknown ({change.reason})"
    actual, wanted = compared(change.actual, change.wanted, 80)
    if change.property == "content" and change.actual is None:
        return f"new file {change.subject}: {wanted}"
    return f"{change.subject} {change.property}: {actual} -> {wanted}"
