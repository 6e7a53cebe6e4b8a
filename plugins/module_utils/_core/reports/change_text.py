# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# This module is private to the collection corral.node.
"""Changes and outcomes as a person reads them: plans, drift, the diff of Ansible. Nothing else renders a change."""

from __future__ import annotations

import typing as t

from ..model.plan.plan import UNKNOWN, Change, Outcome, change_to_dict


def line(change: Change) -> str:
    """One change or drift item on one line."""
    mark = {"unknown": "?", "unchangeable": "!"}.get(change.verdict, "~")
    actual = "absent" if change.actual is None else change.actual
    wanted = "absent" if change.wanted is None else change.wanted
    values = "" if change.verdict == UNKNOWN else f": {shorten(actual)} -> {shorten(wanted)}"
    extra = "" if change.when == "now" else f" [{change.when}]"
    extra += "" if change.disruption == "none" else f" [{change.disruption}]"
    place = f" [{change.place}]" if change.place and change.place not in change.subject else ""
    return f"{mark} {change.manager} {change.subject} {change.property}{values} ({change.reason}){extra}{place}"


def shorten(text: str, limit: int = 100) -> str:
    """A value that fits on a line."""
    return text if len(text) <= limit else text[: limit - 1] + "…"


def recap(changes: t.Sequence[Change], *, done: bool) -> str:
    """One line that counts a plan: what was or would be changed, and what could not be looked at."""
    differing = [change for change in changes if change.verdict != UNKNOWN]
    unknown = len(changes) - len(differing)
    if not changes:
        return "in sync: nothing differs"
    managers = sorted({change.manager for change in differing})
    verb = "changed" if done else "differ" if len(differing) != 1 else "differs"
    parts = [f"{len(differing)} {verb} ({', '.join(managers)})"] if differing else []
    stuck = sum(change.verdict == "unchangeable" for change in differing)
    parts += [f"{stuck} of them Corral cannot mend"] if stuck else []
    parts += [f"{unknown} unknown"] if unknown else []
    return "; ".join(parts)


def lines(changes: t.Sequence[Change], *, done: bool = False) -> list[str]:
    """A plan or drift report as a person reads it."""
    return [*(line(change) for change in changes), recap(changes, done=done)]


def outcome_data(outcome: Outcome) -> dict[str, t.Any]:
    """An outcome as JSON."""
    return {
        "changed": [change_to_dict(change) for change in outcome.applied],
        "drift": [change_to_dict(change) for change in outcome.remaining],
        "error": outcome.error or None,
        "undone": list(outcome.undone),
        "leftovers": list(outcome.leftovers),
    }


def outcome_lines(outcome: Outcome) -> list[str]:
    """An outcome as a person reads it."""
    shown = lines(outcome.applied, done=True) if outcome.applied or not outcome.remaining else []
    if outcome.remaining:
        shown += ["what still differs:", *lines(outcome.remaining)]
    if outcome.error:
        shown += [f"refused: {outcome.error}", f"undone: {len(outcome.undone)} steps, in reverse order"]
    return shown + [f"could not be brought back: {leftover}" for leftover in outcome.leftovers]


def diff(changes: t.Sequence[Change]) -> dict[str, str]:
    """Ansible's diff: the same lines before and after, one per property that differs."""

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
    """A change, short enough for a comment."""
    wanted = "absent" if change.wanted is None else shorten(change.wanted, 80)
    if change.property == "content" and change.actual is None:
        return f"new file {change.subject}: {wanted}"
    actual = "absent" if change.actual is None else shorten(change.actual, 80)
    return f"{change.subject} {change.property}: {actual} -> {wanted}"


def item_line(item: t.Mapping[str, t.Any]) -> str:
    """A drift item of status.json on one line."""
    return (
        f"{item['manager']} {item['subject']} {item['property']}: "
        f"{item['actual']} -> {item['wanted']} ({item['reason']})"
    )
