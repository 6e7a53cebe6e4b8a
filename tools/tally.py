# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""How a part of the tests ended, and the closing line that a CI reads."""

from __future__ import annotations

import typing as t


class Tally(t.NamedTuple):
    """What passed, failed and could not be tried here."""

    passed: int = 0
    failed: int = 0
    skipped: int = 0

    def plus(self, other: Tally) -> Tally:
        return Tally(self.passed + other.passed, self.failed + other.failed, self.skipped + other.skipped)

    def line(self) -> str:
        return f"{self.passed} passed, {self.failed} failed" + (f", {self.skipped} skipped" if self.skipped else "")
