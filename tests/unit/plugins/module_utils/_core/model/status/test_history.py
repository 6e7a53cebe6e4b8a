# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The profiles that were applied: what is kept of them, and which one a number or a hash names."""

from __future__ import annotations

import pytest
from _core.model.status import history
from _core.model.status.history import HistoryEntry
from _core.model.values.errors import CorralError

A, B, C = ({"name": name} for name in "abc")


def test_entries_of_older_versions_are_plain_profiles() -> None:
    rows = [{"profile": A, "applied": 7, "hash": history.hash_of(A)}, B]
    kept = history.from_data(rows)
    assert kept == [HistoryEntry(A, 7), HistoryEntry(B)]
    assert history.to_data(kept) == rows


@pytest.mark.parametrize("data", [None, 5, "x", {}, [5, None, []]])
def test_what_is_no_history_has_no_entries(data: object) -> None:
    assert history.from_data(data) == []


def test_the_first_profile_has_none_before_it() -> None:
    assert history.with_profile([], None, A, 5) == [HistoryEntry(A, 5)]


def test_a_profile_in_force_without_a_time_is_kept_when_the_next_is_applied() -> None:
    assert history.with_profile([HistoryEntry(B)], A, C, 5) == [HistoryEntry(C, 5), HistoryEntry(A), HistoryEntry(B)]


@pytest.mark.parametrize("first", [HistoryEntry(A, 1), HistoryEntry(A)])
def test_a_kill_between_the_history_and_the_applied_profile_leaves_no_entry_twice(first: HistoryEntry) -> None:
    killed = (
        history.with_profile([first, HistoryEntry(C, 0)], A, B, 2)
        if first.applied
        else [HistoryEntry(B, 2), first, HistoryEntry(C, 0)]
    )
    assert history.divided(killed, A) == (first, [HistoryEntry(C, 0)])
    assert history.with_profile(killed, A, B, 3) == [HistoryEntry(B, 3), first, HistoryEntry(C, 0)]
    assert history.with_profile(killed, A, C, 3) == [HistoryEntry(C, 3), first, HistoryEntry(C, 0)], (
        "another profile comes instead"
    )


def test_a_first_profile_that_was_killed_is_no_profile_before_itself() -> None:
    assert history.with_profile([HistoryEntry(A, 1)], None, A, 2) == [HistoryEntry(A, 2)]


def test_ten_are_kept_beside_the_one_in_force() -> None:
    kept: list[HistoryEntry] = []
    profiles = [{"name": str(number)} for number in range(15)]
    for number, one in enumerate(profiles):
        kept = history.with_profile(kept, profiles[number - 1] if number else None, one, number)
    assert [one.profile for one in kept] == profiles[:3:-1]
    in_force, past = history.divided(kept, profiles[-1])
    assert in_force == kept[0] and history.chosen(in_force, past, "10").profile == profiles[4]


def test_the_hash_is_of_the_content_whatever_the_order_of_keys() -> None:
    assert history.hash_of({"x": 1, "y": 2}) == history.hash_of({"y": 2, "x": 1}) != history.hash_of({"x": 1})


def test_a_number_counts_back_and_a_hash_finds_the_one_in_force_as_well() -> None:
    past = [HistoryEntry(B, 2), HistoryEntry(A, 1)]
    assert history.chosen(HistoryEntry(C, 3), past, "2").profile == A
    for one in (A, B, C):
        assert history.chosen(HistoryEntry(C, 3), past, history.hash_of(one)[:6]).profile == one


@pytest.mark.parametrize(
    ("to", "said"),
    [
        ("0", "how many profiles back"),
        ("11", "how many profiles back"),
        ("-1", "how many profiles back"),
        ("abc", "how many profiles back"),
        ("last", "how many profiles back"),
        ("\u0663", "how many profiles back"),
        ("2", "corral history has 1 before the one in force"),
        ("00000000", "no profile with this hash is kept"),
    ],
)
def test_what_names_no_kept_profile_is_refused(to: str, said: str) -> None:
    with pytest.raises(CorralError, match=said):
        history.chosen(HistoryEntry(B, 2), [HistoryEntry(A, 1)], to)


def test_a_hash_that_begins_like_several_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(history, "hash_of", lambda profile: f"12345{ord(profile['name']):07x}")
    with pytest.raises(CorralError, match="several hashes begin so: 123450000061, 123450000062"):
        history.chosen(HistoryEntry(A, 1), [HistoryEntry(B, 2)], "12345")
