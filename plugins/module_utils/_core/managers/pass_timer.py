# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# This module is private to the collection corral.node.
"""A timer of a manager, for a service that works in passes: the changes of timer and service, and an item if no pass ends."""

from __future__ import annotations

import re
import typing as t

from ..host import state, systemd
from ..host.files import Host
from ..model.plan import make_step
from ..model.plan.context import Context
from ..model.plan.places import Place
from ..model.plan.plan import FILES, START, UNKNOWN, Change
from ..model.systemd.pass_units import WANTED_BY
from ..model.systemd.unit_file import file_change
from ..model.systemd.unit_property import ETC
from ..model.values.records import NamedTuple

# The longest duration of a pass in seconds: a tick reports only after this time that no pass has ended.
LONGEST_PASS = 600


class PassTimer(NamedTuple):
    """A manager's timer and its service. ``results`` is the file that each pass writes, with the ``time`` of the pass.

    Reasons of changes: ``when`` of the timer's file, ``what`` of the service's file, ``without`` of the timer's start, ``ended`` of the
    removal of results.
    """

    manager: str
    timer: str
    service: str
    results: str
    when: str
    what: str
    without: str
    ended: str

    @property
    def link(self) -> str:
        """The link that enables the timer."""
        return f"{ETC}/{WANTED_BY}.wants/{self.timer}"

    def writes(self, results: t.Iterable[str]) -> tuple[Place, ...]:
        """The places where the manager writes. ``results``: the files that passes write, and that the manager only removes."""
        return (
            Place("file", rf"{ETC}/({re.escape(self.timer)}|{re.escape(self.service)})"),
            Place("file", re.escape(self.link)),
            Place("unit", re.escape(self.timer), "start|stop|restart"),
            Place("file", "|".join(map(re.escape, results)), None, volatile=True),
        )

    def owned(self) -> frozenset[str]:
        """The keys of the originals of the files and the unit that the manager writes."""
        files = (*(f"{ETC}/{unit}" for unit in (self.timer, self.service)), self.link)
        return frozenset({*(f"file:{path}" for path in files), f"unit:{self.timer}"})


class Passes(NamedTuple):
    """Passes as observed: the units' texts, whether the timer is enabled and active, and when the last pass ended. ``since``: the time from
    which the timer could start passes, if no pass has ended.
    """

    texts: dict[str, t.Optional[str]]
    enabled: bool
    active: bool
    last: t.Optional[float]
    since: float = 0.0


def observe(host: Host, context: Context, own: PassTimer, period: int) -> Passes:
    """The units and the last pass as observed.

    The time of the last pass is not recorded as an input of the tick: this time changes with each pass, and must not cause a full tick.
    """
    data = host.unrecorded(lambda: state.read_json(host, own.results))
    last = data.get("time") if isinstance(data, dict) else None
    last = float(last) if isinstance(last, (int, float)) and abs(last) < 1 << 63 else None  # neither Infinity nor NaN
    return Passes(
        {unit: host.read(f"{ETC}/{unit}") for unit in (own.timer, own.service)},
        host.link(own.link) is not None,
        is_active(host, context, own, period, last),
        last,
        since(host, own) if last is None else 0.0,
    )


def since(host: Host, own: PassTimer) -> float:
    """The time from which the timer could start passes: the node's start or the change of the timer's file, whichever is later."""
    return host.unrecorded(lambda: max(host.modified(f"{ETC}/{own.timer}") or host.now(), host.now() - host.uptime()))


def is_active(host: Host, context: Context, own: PassTimer, period: int, last: t.Optional[float]) -> bool:
    """Whether the timer runs. No file shows this: a tick concludes from a recent pass that the timer runs; otherwise systemd is asked."""
    if context.run == "boot":
        return host.link(own.link) is not None  # at boot the timer is started after this run
    if context.run == "timer" and last is not None and abs(context.now - last) < 2 * period + LONGEST_PASS:
        return True
    return systemd.runs(host) and own.timer in systemd.active(host, [own.timer])


def changes(context: Context, own: PassTimer, texts: t.Mapping[str, str], period: int, seen: Passes) -> list[Change]:
    """The changes of the units, and an item if the last pass ended too long ago. ``texts`` are the units' wanted texts."""
    rows: list[t.Optional[Change]] = []
    for unit, text in texts.items():
        reason = own.when if unit == own.timer else own.what
        change = file_change(own.manager, f"{ETC}/{unit}", seen.texts[unit], text, reason=reason)
        if change is not None and unit == own.timer and seen.active:
            # A reload does not rearm a running timer.
            change = change._replace(steps=(*change.steps, make_step.unit(own.timer, "restart", START, 20)))
        rows.append(change)
    rows.append(state_change(own, seen))
    ended = seen.since if seen.last is None else seen.last
    if seen.active and context.now - ended > 3 * period + LONGEST_PASS:
        reason = f"the timer runs, and no pass has ended since: see journalctl -u {own.service}"
        rows.append(Change(own.manager, own.service, "last pass", None, None, reason, own.results, (), UNKNOWN))
    return [change for change in rows if change is not None]


def state_change(own: PassTimer, seen: Passes) -> t.Optional[Change]:
    """The change of the timer's state: the timer has to be enabled and active."""
    if seen.enabled and seen.active:
        return None
    steps = [] if seen.enabled else [make_step.link(own.link, f"../{own.timer}", FILES, reload=True)]
    if not seen.active:
        steps.append(make_step.unit(own.timer, "start", START, 20))
    actual = f"{'enabled' if seen.enabled else 'disabled'}, {'active' if seen.active else 'inactive'}"
    return Change(own.manager, own.timer, "state", actual, "enabled, active", own.without, own.link, tuple(steps))


def stale(host: Host, own: PassTimer, results: t.Iterable[str]) -> tuple[Change, ...]:
    """The changes that remove the results of earlier passes, once no timer starts passes."""
    return tuple(
        Change(
            own.manager, path, "content", "the last pass", None, own.ended, path, (make_step.file(path, None, FILES),)
        )
        for path in results
        if host.exists(path)
    )
