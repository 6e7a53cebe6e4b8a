# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A pause's arithmetic: what may be asked for, and that no clock keeps it in force for longer than that."""

from __future__ import annotations

import typing as t

import pytest
from _core.model.status import pause
from _core.model.status.pause import Pause
from _core.model.values.errors import CorralError
from _core.model.values.printable_text import printable
from hypothesis import given, settings
from hypothesis import strategies as st

HOUR = 3600
ASKED = Pause("alice", 1000, "a disk", since=1_000_000, seconds=HOUR, boot_id="a", uptime=500.0)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("90s", 90), ("15m", 900), ("1h", 3600), ("2d", 172800), ("30d", 2592000), ("2592000s", 2592000)],
)
def test_durations(text: str, seconds: int) -> None:
    assert pause.duration(text) == seconds


@pytest.mark.parametrize(
    "text", ["", "1", "h", "1H", "1 h", " 1h", "1h\n", "-1h", "+1h", "1.5h", "1h1h", "1w", "0s", "0d", "31d", "2592001s",
             "99999999d", "9" * 99 + "d", "١h", "1h; reboot"]
)  # fmt: skip
def test_what_is_no_duration_is_refused_with_the_way_out(text: str) -> None:
    with pytest.raises(CorralError) as refused:
        pause.duration(text)
    (problem,) = refused.value.problems
    assert (problem.path, problem.value) == ("duration", printable(text))
    assert "1s to 30d" in problem.message or "such as 90s, 15m, 1h30m or 2d" in problem.message


@pytest.mark.parametrize("text", ["a\nb", "\x1b[31m", "x" * 201, "\u2028"])
def test_a_reason_stays_on_its_line(text: str) -> None:
    with pytest.raises(CorralError, match="one printable line"):
        pause.reason(text)


@pytest.mark.parametrize(
    ("now", "boot", "uptime", "wanted"),
    [
        # The same boot: its own clock alone counts, wherever the wall clock was set to.
        (1_000_000, "a", 500, HOUR),
        (1_000_000 + 600, "a", 500 + 600, HOUR - 600),
        (9_000_000, "a", 500 + 600, HOUR - 600),
        (0, "a", 500 + 600, HOUR - 600),
        (1_000_000, "a", 500 + HOUR, 0),
        (0, "a", 500 + HOUR + 1, -1),
        (1_000_000, "a", 499, 0),  # That is no time of that boot.
        # Another one: the wall clock, and never longer than asked for since the boot.
        (1_000_000 + 600, "b", 20, HOUR - 600),
        (1_000_000 + HOUR, "b", 20, 0),
        (9_000_000, "b", 20, HOUR - 8_000_000),
        (1_000_000 - 5000, "b", 20, HOUR - 20),
        (0, "b", HOUR, 0),
    ],
)
def test_what_is_left(now: float, boot: str, uptime: float, wanted: float) -> None:
    assert pause.left(ASKED, now, boot, uptime) == wanted


@settings(deadline=None)
@given(
    now=st.floats(0, 1e10),
    boot=st.sampled_from(["a", "b"]),
    uptime=st.floats(0, 1e8),
    seconds=st.integers(1, 30 * 86400),
)
def test_a_pause_is_never_longer_than_asked_for(now: float, boot: str, uptime: float, seconds: int) -> None:
    asked = ASKED._replace(seconds=seconds)
    began = asked.uptime if boot == "a" else 0
    assert pause.left(asked, now, boot, uptime) <= seconds
    assert pause.left(asked, now, boot, began + seconds + uptime) <= 0, "whatever the wall clock says"


def test_the_end_is_shown_as_asked_for_unless_the_clock_was_set() -> None:
    assert pause.shown(ASKED, 1_000_600.4, 3000.0)["until"] == 1_003_600
    assert pause.shown(ASKED, 2_000_000.0, 3000.0) == {
        "since": 1_000_000, "until": 2_003_000, "by": "alice", "uid": 1000, "reason": "a disk",
    }  # fmt: skip


def test_a_pause_is_read_back() -> None:
    assert pause.from_data(ASKED._asdict()) == ASKED


@pytest.mark.parametrize(
    "changed",
    [{"user": 5}, {"reason": "a\n<3>b"}, {"boot_id": None}, {"uid": "0"}, {"since": -1}, {"since": 1e9}, {"seconds": 0},
     {"seconds": 30 * 86400 + 1}, {"seconds": "5"}, {"uptime": float("nan")}, {"uptime": float("inf")}, {"uptime": -1},
     {"uptime": "5"}, {"since": 2**70}, {"later": 1}],
)  # fmt: skip
def test_what_is_no_pause_is_none(changed: dict[str, t.Any]) -> None:
    assert pause.from_data({**ASKED._asdict(), **changed}) is None


@pytest.mark.parametrize("missing", Pause._fields)
def test_a_pause_with_a_field_less_is_none(missing: str) -> None:
    assert pause.from_data({key: value for key, value in ASKED._asdict().items() if key != missing}) is None


@pytest.mark.parametrize("data", [None, [], {}, "x", 5])
def test_other_data_is_no_pause(data: t.Any) -> None:
    assert pause.from_data(data) is None
