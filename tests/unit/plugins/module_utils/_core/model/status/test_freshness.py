# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A report that is older than three intervals, with no look under way within its time limit, is stale; and why it is."""

from __future__ import annotations

import pytest
from _core.model.status import freshness
from _core.model.status.freshness import Agent, Look, UnitStatus
from hypothesis import given
from hypothesis import strategies as st

NOW, UP = 1_700_000_000.0, 50_000.0
SERVICE, TIMER = UnitStatus(active="inactive", enabled="static", limit=180.0), UnitStatus()
RUNS = Agent(TIMER, SERVICE)
ENABLE = "systemctl enable --now corral-reconcile.timer"


def seen(age: int, interval: int | None = 10, clock_set_by: int = 0) -> Look:
    """A look so many seconds ago; the clock was set since."""
    return Look(int(NOW) - age - clock_set_by, int(UP) - age, interval)


def job(state: str, seconds: float, limit: float = 180.0, timer: UnitStatus = TIMER) -> Agent:
    return Agent(timer, SERVICE._replace(active=state, seconds=seconds, limit=limit))


OFF = TIMER._replace(active="inactive", enabled="disabled")
MASKED = TIMER._replace(load="masked", active="inactive", enabled="masked")

CASES: dict[str, tuple[Look, Agent | None, str]] = {
    # fresh, whatever is off: nobody is asked
    "now": (seen(0), None, ""),
    "three intervals": (seen(30), None, ""),
    "three longer intervals": (seen(180, 60), None, ""),
    "the timer was stopped a moment ago": (seen(29), Agent(OFF, SERVICE), ""),
    "the clock was set forward by a year": (seen(5, clock_set_by=31_536_000), RUNS, ""),
    "the clock was set back by a year": (seen(5, clock_set_by=-31_536_000), RUNS, ""),
    # a tick that takes long
    "a loaded node: the tick began in time and is within its limit": (seen(60), job("activating", 40), ""),
    "the same, a moment before its limit": (seen(200), job("activating", 180), ""),
    "a tick without a limit": (seen(4000), job("activating", 3990, float("inf")), ""),
    "a timer that was stopped while its tick runs": (seen(60), job("activating", 40, timer=OFF), ""),
    "a tick that hangs": (seen(250), job("activating", 240), "a tick hangs for 240 s, its TimeoutStartSec= is 180 s"),
    "a tick that does not end when it is told to": (
        seen(250), job("deactivating", 185), "a tick hangs for 185 s, its TimeoutStartSec= is 180 s",
    ),
    "each tick hangs, the next one is within its limit": (
        seen(250), job("activating", 5), "a tick runs for 5 s, after one that ended without a look",
    ),
    # why there is none
    "one second later": (seen(31), RUNS, "its ticks end without a look: journalctl -u corral-reconcile.service"),
    "timer stopped": (
        seen(31), Agent(TIMER._replace(active="inactive"), SERVICE),
        "corral-reconcile.timer is inactive, enabled: systemctl enable --now corral-reconcile.timer",
    ),
    "timer disabled": (
        seen(31), Agent(OFF, SERVICE), "corral-reconcile.timer is inactive, disabled: systemctl enable --now corral-reconcile.timer",
    ),
    "timer masked": (seen(31), Agent(MASKED, SERVICE), "corral-reconcile.timer is masked"),
    "service masked": (
        seen(31), Agent(TIMER, SERVICE._replace(load="masked")), "corral-reconcile.service is masked",
    ),
    "units deleted": (
        seen(31), Agent(OFF._replace(load="not-found"), SERVICE._replace(load="not-found")),
        "corral-reconcile.service is not-found; corral-reconcile.timer is not-found",
    ),
    "unit failed": (
        seen(31), Agent(TIMER, SERVICE._replace(active="failed", result="timeout")),
        "corral-reconcile.service failed with the result timeout",
    ),
    "condition not met": (
        seen(31), Agent(TIMER, SERVICE._replace(condition=False)),
        "a condition of corral-reconcile.service is not met: systemctl status corral-reconcile.service names it",
    ),
    "another run": (seen(31), RUNS._replace(holder="python3 (process 7)"), "python3 (process 7) holds the node's lock"),
    "several reasons": (
        seen(31), Agent(OFF, SERVICE._replace(result="exit-code")),
        f"corral-reconcile.timer is inactive, disabled: {ENABLE}; corral-reconcile.service failed with the result exit-code",
    ),
    "nobody answers": (seen(31), None, "systemd does not say why"),
    "the clock was set back as well": (
        seen(31, clock_set_by=-3600), Agent(MASKED, SERVICE), "corral-reconcile.timer is masked; the clock was set back by 1h since",
    ),
    "the clock was set forward as well": (
        seen(31, clock_set_by=90), Agent(MASKED, SERVICE), "corral-reconcile.timer is masked; the clock was set forward by 1m30s since",
    ),
    # looks of other kinds
    "of another boot": (Look(int(NOW), int(UP) + 100, 10), job("activating", 1), "a tick runs for 1 s, after one that ended without a look"),
    "by an earlier Corral": (Look(int(NOW) - 30, None, 10), None, ""),
    "by an earlier Corral, old": (Look(int(NOW) - 31, None, 10), Agent(MASKED, SERVICE), "corral-reconcile.timer is masked"),
    "by an earlier Corral, of a time to come": (Look(int(NOW) + 5, None, 10), Agent(MASKED, SERVICE), "corral-reconcile.timer is masked"),
    "no agent, a moment ago": (seen(5, None), None, ""),
    "no agent": (
        seen(100, None), None,
        "no agent keeps this node, and this is what the last run found: corral drift checks now",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_a_report_has_an_age(name: str) -> None:
    look, agent, wanted = CASES[name]
    assert freshness.stale(look, NOW, UP, lambda: agent) == wanted


@given(st.integers(0, 10**6), st.integers(1, 86400), st.floats(0, 10**6), st.floats(0, 1000))
def test_no_tick_keeps_a_report_for_longer_than_its_limit(
    age: int, interval: int, seconds: float, limit: float
) -> None:
    """However ticks run: after three intervals and a tick's time limit nobody is told that the node is in sync."""
    found = job("activating", seconds, limit)
    if not freshness.stale(seen(age, interval), NOW, UP, lambda: found):
        assert age <= 3 * interval + limit


@given(st.integers(-(10**9), 10**9), st.integers(0, 10**4))
def test_no_clock_that_is_set_changes_the_verdict(clock_set_by: int, age: int) -> None:
    asked = freshness.stale(seen(age, clock_set_by=clock_set_by), NOW, UP, lambda: RUNS)
    assert bool(asked) == (age > 30)
