# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""How a part of the tests ended, and the closing line that a CI reads."""

from __future__ import annotations

import pathlib
import typing as t
from xml.etree import ElementTree


class Tally(t.NamedTuple):
    """What passed, failed and could not be tried here."""

    passed: int = 0
    failed: int = 0
    skipped: int = 0

    def plus(self, other: Tally) -> Tally:
        return Tally(self.passed + other.passed, self.failed + other.failed, self.skipped + other.skipped)

    def line(self) -> str:
        return f"{self.passed} passed, {self.failed} failed" + (f", {self.skipped} skipped" if self.skipped else "")


def from_junit(reports: t.Iterable[pathlib.Path]) -> tuple[Tally, list[str]]:
    """What pytest's reports count, and each test that failed, with the first line of its error."""
    tally, wrong = Tally(), []
    for report in reports:
        for suite in ElementTree.parse(report).getroot().iter("testsuite"):  # noqa: S314 (pytest wrote it just now)
            ran, skipped = int(suite.get("tests", 0)), int(suite.get("skipped", 0))
            failed = int(suite.get("failures", 0)) + int(suite.get("errors", 0))
            tally = tally.plus(Tally(ran - failed - skipped, failed, skipped))
            wrong += list(failures(suite))
    return tally, wrong


def failures(suite: ElementTree.Element) -> t.Iterator[str]:
    for case in suite.iter("testcase"):
        for error in (*case.iter("failure"), *case.iter("error")):
            said = (error.get("message") or "").splitlines() or [""]
            yield f"{case.get('classname')}::{case.get('name')}: {said[0]}"
