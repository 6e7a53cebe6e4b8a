# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# This module is private to the collection corral.node.
"""The end of a pass of garbage collection, even with work left."""

from __future__ import annotations

import time
import typing as t

from ..host.containers.podman_cli import PodmanError


def always() -> bool:
    """The default of Stop.wanted, with which only the time limit or a signal ends the pass."""
    return True


class Stop:
    """The end of a pass, even with work left: after ``seconds``, when ``wanted`` returns False, or on a signal."""

    def __init__(self, uptime: t.Callable[[], float], seconds: float) -> None:
        self.uptime, self.until = uptime, uptime() + seconds
        self.wanted: t.Callable[[], bool] = always

    def end(self) -> None:
        """End the pass after the present removal: Podman leaves layers behind when a removal is killed."""
        self.until = self.uptime()

    def now(self) -> bool:
        """Whether the pass has to end now."""
        return self.uptime() >= self.until or not self.wanted()

    def check(self, user: str) -> None:
        """Raise PodmanError for a user's storage if the pass ends before the storage is read."""
        if self.now():
            in_time = self.uptime() < self.until
            why = "the profile changed during the pass" if in_time else "other storages took the whole time of the pass"
            raise PodmanError(f"podman of {user}: not read, {why}")

    def wait(self, seconds: float) -> None:
        """Sleep."""
        time.sleep(seconds)
