# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Two values on one line: short enough to read, and never the same text for two that differ."""

from __future__ import annotations

import pytest
from _core.reports import value_text
from hypothesis import given
from hypothesis import strategies as st

UNIT = "[Unit]; Description=Corral: hugetlbfs of 2Mi pages on {path}; [Mount]; What=hugetlbfs; Where={path}; Type=hugetlbfs"
LONG = "x" * 300


@pytest.mark.parametrize(
    ("actual", "wanted", "shown"),
    [
        (None, "0-1", ("absent", "0-1")),
        ("0-1", None, ("0-1", "absent")),
        (None, LONG, ("absent", "x" * 99 + "…")),
        ("0-7", "0-1", ("0-7", "0-1")),
        (
            UNIT.format(path="/dev/hugepages-2M"),
            UNIT.format(path="/dev/hugepages-2Mi"),
            (
                "…; Description=Corral: hugetlbfs of 2Mi pages on /dev/hugepages-2M; …; Where=/dev/hugepages-2M; …",
                "…; Description=Corral: hugetlbfs of 2Mi pages on /dev/hugepages-2Mi; …; Where=/dev/hugepages-2Mi; …",
            ),
        ),
        (f"a; {LONG}; b", f"a; {LONG}; c; d", ("…; b", "…; c; d")),
        (f"a; {LONG}", f"a; {LONG}; CPUWeight=5", ("…", "…; CPUWeight=5")),
        (f"a; {LONG}", f"{LONG}; a", ("a; " + "x" * 96 + "…", "x" * 99 + "…")),
        (LONG + "1", LONG + "2", ("…" + "x" * 20 + "1", "…" + "x" * 20 + "2")),
        ("another profile", LONG, ("another profile", "x" * 99 + "…")),
    ],
)
def test_what_differs_is_shown(actual: str | None, wanted: str | None, shown: tuple[str, str]) -> None:
    assert value_text.compared(actual, wanted) == shown


PARTS = st.lists(st.sampled_from(["a", "b", "", "AllowedCPUs=", "x" * 30, "y" * 120]), max_size=8).map("; ".join)


@given(PARTS, PARTS, st.text(max_size=5))
def test_two_values_that_differ_never_look_alike(one: str, other: str, end: str) -> None:
    for actual, wanted in ((one, other), (one, one + end), (one + end, other + end)):
        if actual != wanted:
            shown = value_text.compared(actual, wanted, 60)
            assert shown[0] != shown[1]
            assert max(map(len, shown)) <= 60


@pytest.mark.parametrize(
    ("count", "words", "said"),
    [
        (0, ("step",), "0 steps"),
        (1, ("step",), "1 step"),
        (2, ("step",), "2 steps"),
        (1, ("entry", "entries"), "1 entry"),
        (2, ("entry", "entries"), "2 entries"),
    ],
)
def test_one_is_no_plural(count: int, words: tuple[str, ...], said: str) -> None:
    assert value_text.counted(count, *words) == said
