# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a failed step leaves for the end of the run."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import steps
from tally import Tally, from_junit

REPORT = """<?xml version="1.0"?><testsuites><testsuite tests="4" failures="1" errors="1" skipped="1">
<testcase classname="tests.test_a" name="test_one[2-3]"><failure message="assert 1 == 2&#10;more">long text</failure></testcase>
<testcase classname="tests.test_a" name="test_two"><error message="RuntimeError: no">long text</error></testcase>
<testcase classname="tests.test_a" name="test_three"><skipped message="no"/></testcase>
<testcase classname="tests.test_a" name="test_four"/>
</testsuite></testsuites>"""


@pytest.fixture(autouse=True)
def _none_yet(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(steps, "complaints", [])


def test_tests_that_failed_are_named(tmp_path: Path) -> None:
    (tmp_path / "report.xml").write_text(REPORT)
    tally, wrong = from_junit([tmp_path / "report.xml"])
    assert tally == Tally(1, 2, 1)
    assert wrong == ["tests.test_a::test_one[2-3]: assert 1 == 2", "tests.test_a::test_two: RuntimeError: no"]


def test_what_a_command_said_last_is_repeated_when_it_failed(capsys: pytest.CaptureFixture[str]) -> None:
    many = "for i in range(40): print(i)"
    good = steps.Step("good", lambda: steps.one_test(steps.answer([sys.executable, "-c", many])))
    bad = steps.Step(
        "bad", lambda: steps.one_test(steps.answer([sys.executable, "-c", many + "\nraise SystemExit(1)"]))
    )
    assert steps.judged(good) == Tally(passed=1) and not steps.complaints
    assert steps.judged(bad) == Tally(failed=1)
    assert "0\n1\n2\n" in capsys.readouterr().out, "all of it where it happened"
    assert steps.complaints == ["bad failed:", *(f"    {n}" for n in range(40 - steps.ENOUGH, 40))]


def test_a_step_says_nothing_of_the_one_before() -> None:
    assert steps.judged(steps.Step("first", lambda: steps.one_test(None, "a reason"))).failed
    assert steps.judged(steps.Step("second", lambda: Tally(failed=1))).failed
    assert steps.complaints == ["first failed:", "    a reason", "second failed:"]
