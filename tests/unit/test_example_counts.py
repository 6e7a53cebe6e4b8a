# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which writes get which kind of fault: together the kinds hit all of them."""

from __future__ import annotations

import example_counts
import pytest
from example_counts import in_turn, places

KINDS = ("error", "torn", "killed")


@pytest.fixture(autouse=True)
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(example_counts, "LONG", False)
    monkeypatch.setattr(example_counts, "OLDER", False)


@pytest.mark.parametrize("count", [1, 2, 3, 4, 40])
@pytest.mark.parametrize("kinds", [KINDS[:1], KINDS[:2], KINDS])
def test_each_write_gets_one_kind_and_the_last_all(count: int, kinds: tuple[str, ...]) -> None:
    found = [number for kind in kinds for number in in_turn(count, kind, kinds)]
    assert sorted(found) == [*range(1, count), *[count] * len(kinds)]
    assert places(count) == [*range(1, count + 1)]


def test_a_long_run_has_every_kind_at_every_write(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(example_counts, "LONG", True)
    assert [in_turn(7, kind, KINDS) for kind in KINDS] == [[1, 2, 3, 4, 5, 6, 7]] * 3


def test_an_older_python_has_a_third(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(example_counts, "OLDER", True)
    assert places(11) == [1, 4, 7, 10, 11]
    assert [in_turn(20, kind, KINDS) for kind in KINDS] == [[1, 10, 19, 20], [4, 13, 20], [7, 16, 20]]
