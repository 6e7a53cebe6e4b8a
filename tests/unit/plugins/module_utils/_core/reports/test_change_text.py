# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Each rendering of a plan or an outcome has each item, once."""

from __future__ import annotations

import json

from _core.model.plan.plan import DRIFT, UNCHANGEABLE, UNKNOWN, Change, Outcome, Plan
from _core.reports import change_text


def item(subject: str, verdict: str = DRIFT) -> Change:
    return Change("cpu", subject, "AllowedCPUs", "0-3", None, "set by hand", f"/place/of/{subject}", (), verdict)


ITEMS = (item("first"), item("second", UNKNOWN), item("third", UNCHANGEABLE))
LINES = [
    "~ cpu first AllowedCPUs: 0-3 -> absent (set by hand) [/place/of/first]",
    "? cpu second AllowedCPUs (set by hand) [/place/of/second]",
    "! cpu third AllowedCPUs: 0-3 -> absent (set by hand) [/place/of/third]",
]
PLAN = Plan(None, (), (), frozenset())


def test_a_report_has_each_item_and_their_counts() -> None:
    assert change_text.lines(ITEMS) == [*LINES, "2 differ (cpu); 1 of them Corral cannot correct; 1 unknown"]
    assert change_text.lines(ITEMS[:1]) == [LINES[0], "1 differs (cpu)"]
    assert change_text.lines(ITEMS[1:2]) == [LINES[1], "1 unknown"]
    assert change_text.lines(()) == ["in sync: nothing differs"]


def test_an_outcome_has_what_was_done_and_what_is_left() -> None:
    outcome = Outcome(PLAN, ITEMS[:1], ITEMS[1:], "no room", ("file /a",), ("file /b",))
    assert change_text.outcome_lines(outcome) == [
        LINES[0],
        "1 changed (cpu)",
        "what still differs:",
        *LINES[1:],
        "1 differs (cpu); 1 of them Corral cannot correct; 1 unknown",
        "refused: no room",
        "undone: 1 step, in reverse order",
        "could not be brought back: file /b",
    ]
    assert change_text.outcome_lines(Outcome(PLAN, (), ())) == ["in sync: nothing differs"]


def test_what_became_of_a_run_that_was_refused() -> None:
    def said(undone: tuple[str, ...], leftovers: tuple[str, ...]) -> str:
        return change_text.refused(Outcome(PLAN, (), (), "no room", undone, leftovers))

    assert said((), ()) == "refused, and nothing was changed: no room"
    assert said(("file /a",), ()) == "refused, and 1 step was undone in reverse order: no room"
    assert said(("file /a", "file /b"), ()) == "refused, and 2 steps were undone in reverse order: no room"
    for undone in ((), ("file /a",)):
        left = said(undone, ("/b: Input/output error",))
        assert left == "refused, and not all of it could be undone (/b: Input/output error): no room"


def test_a_line_says_when_and_what_it_interrupts_and_a_place_that_its_subject_does_not_have() -> None:
    change = item("first")._replace(when="next boot", disruption="service restart", wanted="2-3")
    assert change_text.line(change) == (
        "~ cpu first AllowedCPUs: 0-3 -> 2-3 (set by hand) [next boot] [service restart] [/place/of/first]"
    )
    there = item("/place/of/it")._replace(location="/place/of/it")
    assert change_text.line(there) == "~ cpu /place/of/it AllowedCPUs: 0-3 -> absent (set by hand)"


def test_a_change_in_words() -> None:
    assert change_text.in_words(item("first")) == "first AllowedCPUs: 0-3 -> absent"
    assert change_text.in_words(item("first", UNKNOWN)) == "first AllowedCPUs: unknown (set by hand)"


def test_data_have_each_item_whole() -> None:
    data = json.loads(json.dumps(change_text.outcome_data(Outcome(PLAN, ITEMS[:2], ITEMS), {ITEMS[0].item(): 5})))
    assert [row["subject"] for row in data["changed"]] == ["first", "second"]
    assert [row["subject"] for row in data["drift"]] == ["first", "second", "third"]
    assert data["drift"][2] == {
        "manager": "cpu", "subject": "third", "property": "AllowedCPUs", "actual": "0-3", "wanted": None,
        "reason": "set by hand", "location": "/place/of/third", "verdict": "unchangeable", "when": "now", "disruption": "none",
        "text": LINES[2], "since": None,
    }  # fmt: skip
    assert [row["since"] for row in data["drift"]] == [5, None, None]
    assert all("since" not in row for row in data["changed"])
    assert (data["error"], data["undone"], data["leftovers"]) == (None, [], [])


def test_data_of_a_refused_run_have_why_what_was_undone_and_what_is_left() -> None:
    outcome = Outcome(PLAN, (), ITEMS, "no", ("file /a", "unit b"), ("/c: stays",))
    data = json.loads(json.dumps(change_text.outcome_data(outcome, {})))
    assert (data["error"], data["undone"], data["leftovers"]) == ("no", ["file /a", "unit b"], ["/c: stays"])


def test_a_report_says_since_when_where_that_is_known() -> None:
    rows = change_text.lines(ITEMS, since={ITEMS[1].item(): 86400})
    assert rows[:3] == [LINES[0], f"{LINES[1]} [since 1970-01-02 00:00:00 UTC]", LINES[2]]


def test_a_diff_has_each_side_of_what_is_known() -> None:
    shown = change_text.diff(ITEMS)
    assert shown["before"] == "cpu first AllowedCPUs: 0-3\ncpu third AllowedCPUs: 0-3\n"
    assert shown["after"] == "cpu first AllowedCPUs: absent\ncpu third AllowedCPUs: absent\n"
