# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# This module is private to the collection corral.node.
"""Garbage collection in the tick: its units, what its last passes left undone, and other programs that collect here.

A unit of its own decides what is removed, and when (see gc/gc_pass.py): this manager does not call Podman.
"""

from __future__ import annotations

import re
import typing as t

from ..host import accounts, other_gc, state, systemd
from ..host.files import Host
from ..model.gc_policy.gc_records import mapping
from ..model.plan import make_step
from ..model.plan.context import Context
from ..model.plan.places import Place
from ..model.plan.plan import DRIFT, FILES, START, UNCHANGEABLE, UNKNOWN, Change, Part
from ..model.profile.profile_gc import DECLARED, GC
from ..model.systemd import agent_units, gc_units
from ..model.systemd.gc_units import SERVICE, TIMER
from ..model.systemd.unit_file import file_change
from ..model.systemd.unit_property import ETC
from ..model.values.errors import Problem
from ..model.values.records import NamedTuple
from .manager import Manager

if t.TYPE_CHECKING:
    from ..model.profile.profile import Profile

NAME = "gc"
LINK = f"{ETC}/{gc_units.WANTED_BY}.wants/{TIMER}"
# A pass may take this long; the tick must not take such a pass for a timer that does not run.
LONGEST_PASS = 600
MAY_BE_NONE = ("actual", "wanted")

STATUS_FILES = (state.GC_RECORDS, f"{state.GC_RECORDS}.previous", state.GC_STATUS, state.GC_DRIFT, state.GC_IDLE)
WRITES = (
    Place("file", rf"{ETC}/({re.escape(TIMER)}|{re.escape(SERVICE)})"),
    Place("file", re.escape(LINK)),
    Place("unit", re.escape(TIMER), "start|stop|restart"),
    # Passes write their own results.
    Place("file", "|".join(map(re.escape, STATUS_FILES)), None, volatile=True),
    Place("file", agent_units.metrics_place(agent_units.GC_METRICS_NAME), None, volatile=True),
)


class Observation(NamedTuple):
    """As observed: the units' texts, whether the timer is enabled and active, when the last pass ended, its drift items."""

    texts: dict[str, t.Optional[str]]
    enabled: bool
    active: bool
    last: t.Optional[float]
    items: tuple[Change, ...]
    kubelet: t.Optional[str]
    pruners: tuple[tuple[str, str], ...]
    unknown_users: tuple[str, ...]
    agent: bool


def plan(host: Host, context: Context) -> Part:
    """The gc manager's part of the plan; without ``gc`` in the profile it removes the results of earlier passes."""
    gc = context.profile.gc
    return Part(stale(host), frozenset()) if gc is None else decide(context, gc, observe(host, context, gc))


def observe(host: Host, context: Context, gc: GC) -> Observation:
    """Read the units and the last passes' results. A tick that the timer started runs no command.

    The time of the last pass does not cause a full tick: it changes all the time.
    """
    last = host.unrecorded(lambda: mapping(state.read_json(host, state.GC_STATUS)).get("time"))
    last = float(last) if isinstance(last, (int, float)) and abs(last) < 1 << 63 else None  # not Infinity, not NaN
    return Observation(
        {unit: host.read(f"{ETC}/{unit}") for unit in (TIMER, SERVICE)},
        host.link(LINK) is not None,
        is_active(host, context, gc, last),
        last,
        items(state.read_json(host, state.GC_DRIFT) if host.exists(state.GC_DRIFT) else []),
        other_gc.kubelet(host),
        tuple(other_gc.pruners(host)),
        tuple(user for user in gc.users if accounts.user_id(host, None, user) is None),
        host.exists(agent_units.LAUNCHER),
    )


def is_active(host: Host, context: Context, gc: GC, last: t.Optional[float]) -> bool:
    """Whether the timer runs. No file shows that: a recent pass does; without one systemd is asked."""
    if context.at_boot:
        return host.link(LINK) is not None  # Boot has yet to start it.
    if context.by_timer and last is not None and abs(context.now - last) < 2 * gc_units.period(gc) + LONGEST_PASS:
        return True
    return systemd.runs(host) and TIMER in systemd.active(host, [TIMER])


def items(data: object) -> tuple[Change, ...]:
    """What the last passes left undone, from the file that they wrote.

    A file in another form is unknown, not in sync.
    """
    rows = data if isinstance(data, list) else [data]
    found = [item(row) for row in rows]
    if None in found:
        reason = "not as Corral wrote it: the next pass replaces it"
        found.append(Change(NAME, state.GC_DRIFT, "content", None, None, reason, state.GC_DRIFT, (), UNKNOWN))
    return tuple(change for change in found if change is not None)


def item(row: object) -> t.Optional[Change]:
    """One item; None for data that is no item."""
    try:
        change = Change(**{**t.cast("dict[str, t.Any]", row), "steps": ()})
    except TypeError:
        return None
    values = {name: value for name, value in change._asdict().items() if name != "steps"}
    texts = all(isinstance(value, str) or (value is None and name in MAY_BE_NONE) for name, value in values.items())
    return change if texts and change.manager == NAME and change.verdict in (DRIFT, UNCHANGEABLE, UNKNOWN) else None


def decide(context: Context, gc: GC, seen: Observation) -> Part:
    """The changes of the units, and the items of the passes."""
    changes: list[t.Optional[Change]] = []
    for unit, text in gc_units.units(gc).items():
        reason = "when images and dead containers are looked at" if unit == TIMER else "what looks at them"
        change = file_change(NAME, f"{ETC}/{unit}", seen.texts[unit], text, reason=reason)
        if change is not None and unit == TIMER and seen.active:
            # A running timer is not armed again by a reload.
            change = change._replace(steps=(*change.steps, make_step.unit(TIMER, "restart", START, 20)))
        changes.append(change)
    changes.append(state_change(seen))
    problems = [
        Problem(f"gc.users[{gc.users.index(user)}]", user, "this node has no such user: make the account first")
        for user in seen.unknown_users
    ]
    if seen.kubelet is not None:
        said = f"{seen.kubelet} on this node collects its runtime's images itself: leave gc out of its profile"
        problems.append(Problem("gc", None, said))
        changes.append(Change(NAME, seen.kubelet, "owner", "collects as well", "one owner", said, "", (), UNCHANGEABLE))
    for location, line in seen.pruners:
        if not other_gc.DANGLING.search(line):
            reason = f"it runs {line[:120]}: disable it, or leave gc out of the profile"
            changes.append(
                Change(NAME, location, "owner", "collects as well", "one owner", reason, location, (), UNCHANGEABLE)
            )
    if seen.active and seen.last is not None and context.now - seen.last > 3 * gc_units.period(gc) + LONGEST_PASS:
        reason = f"the timer runs, and no pass has ended since: see journalctl -u {SERVICE}"
        changes.append(Change(NAME, SERVICE, "last pass", None, None, reason, state.GC_STATUS, (), UNKNOWN))
    owned = {f"file:{ETC}/{unit}" for unit in (TIMER, SERVICE)} | {f"link:{LINK}", f"unit:{TIMER}"}
    return Part(
        (*filter(None, changes), *seen.items),
        frozenset(owned),
        problems=tuple(problems),
        notes=notes(context, gc, seen),
    )


def state_change(seen: Observation) -> t.Optional[Change]:
    """The change of the timer's state."""
    if seen.enabled and seen.active:
        return None
    steps = [] if seen.enabled else [make_step.link(LINK, f"../{TIMER}", FILES, reload=True)]
    if not seen.active:
        steps.append(make_step.unit(TIMER, "start", START, 20))
    actual = f"{'enabled' if seen.enabled else 'disabled'}, {'active' if seen.active else 'inactive'}"
    reason = "nothing is collected without it"
    return Change(NAME, TIMER, "state", actual, "enabled, active", reason, LINK, tuple(steps))


def notes(context: Context, gc: GC, seen: Observation) -> tuple[str, ...]:
    """Notes for the user about this garbage collection."""
    found = []
    if not seen.agent:
        found.append("gc: collects once the agent is installed on the node (corral.node.agent)")
    found += [
        f"gc.images: {location} removes images without a name, too ({line[:120]})"
        for location, line in seen.pruners
        if gc.images is not None and other_gc.DANGLING.search(line)
    ]
    if gc.images is not None and gc.images.high == 100 and not gc.images.max_age:
        found.append("gc.images: a high of 100 without max_age never removes an image")
    if gc.containers is not None and gc.containers.scope == DECLARED and not context.profile.workloads:
        found.append("gc.containers: no workloads are declared, so no container goes; scope: all means every dead one")
    return tuple(found)


def stale(host: Host) -> tuple[Change, ...]:
    """The removal of the files about passes that are not made any more.

    The records of images' use are removed as well: from now on their use is not observed.
    """
    reason = "nothing is collected any more"
    return tuple(
        Change(NAME, path, "content", "the last pass", None, reason, path, (make_step.file(path, None, FILES),))
        for path in status_files(host)
        if host.exists(path)
    )


def status_files(host: Host) -> tuple[str, ...]:
    """The files that passes write for the next pass, the tick and exporters."""
    metrics = agent_units.gc_metrics_file(agent_units.metrics_dir(state.read_json(host, state.AGENT)))
    return (*STATUS_FILES, metrics) if metrics else STATUS_FILES


def key_of(change: Change, dummy_declared: Profile) -> str:
    """The key that a change follows from: that of images or containers, for what a pass left undone; else the section."""
    if change.subject == "containers":
        return "gc.containers"
    return "gc.images" if change.property in ("images", "disk use") or change.subject == "images" else "gc"


MANAGER = Manager(NAME, plan, WRITES, status_files=status_files, key_of=key_of)
