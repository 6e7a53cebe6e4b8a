# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import pytest
from _core.model.values import duration
from hypothesis import given
from hypothesis import strategies as st


@given(st.integers(0, 1 << 40))
def test_what_is_written_is_read(seconds: int) -> None:
    assert duration.parse(duration.text(seconds)) == seconds


@given(st.text(max_size=12) | st.from_regex(r"([0-9]{0,11}[dhmsw]){0,5}", fullmatch=True))
def test_anything_is_a_number_of_seconds_or_a_value_error(text: str) -> None:
    try:
        seconds = duration.parse(text)
    except ValueError:
        return
    assert seconds >= 0
    assert duration.parse(duration.text(seconds)) == seconds


@pytest.mark.parametrize(
    ("seconds", "text"), [(0, "0s"), (5400, "1h30m"), (86400, "1d"), (90061, "1d1h1m1s"), (604800, "7d"), (59, "59s")]
)
def test_the_fewest_units(seconds: int, text: str) -> None:
    assert duration.text(seconds) == text
