# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# This module is private to the collection corral.node.
"""The gc manager: its units, the open items of the last passes, and other programs that collect garbage on this node.

The passes decide what is removed, and when (gc/gc_pass.py): this manager does not call Podman.
"""

from __future__ import annotations

import typing as t

from ...host import accounts, state
from ...host.files import Host
from ...host.gc import other_gc
from ...model.agent import agent_units
from ...model.gc import gc_units
from ...model.gc.gc_units import SERVICE, TIMER
from ...model.plan.context import Context
from ...model.plan.places import Place
from ...model.plan.plan import DRIFT, UNCHANGEABLE, UNKNOWN, Change, Part
from ...model.profile.profile_gc import DECLARED, GC
from ...model.values.errors import Problem
from ...model.values.records import NamedTuple
from .. import pass_timer
from ..manager import Manager, agent_note
from ..pass_timer import Passes, PassTimer

if t.TYPE_CHECKING:
    from ...model.profile.profile import Profile

NAME = "gc"
OWN = PassTimer(
    NAME,
    TIMER,
    SERVICE,
    results=state.GC_STATUS,
    when="when images and dead containers are checked",
    what="what checks them",
    without="nothing is collected without it",
    ended="nothing is collected any more",
)
MAY_BE_NONE = ("actual", "wanted")

STATUS_FILES = (state.GC_RECORDS, f"{state.GC_RECORDS}.previous", state.GC_STATUS, state.GC_DRIFT, state.GC_IDLE)
WRITES = (
    *OWN.writes(STATUS_FILES),
    Place("file", agent_units.metrics_place(agent_units.GC_METRICS_NAME), None, volatile=True),
)


class ObservedPasses(NamedTuple):
    """The passes as observed, their open items, and the other programs that collect garbage on this node."""

    passes: Passes
    items: tuple[Change, ...]
    kubelet: t.Optional[str]
    pruners: tuple[tuple[str, str], ...]
    unknown_users: tuple[str, ...]
    metrics: str


def plan(host: Host, context: Context) -> Part:
    """The gc manager's part of the plan; without ``gc`` in the profile the results of earlier passes are removed."""
    gc = context.profile.gc
    # The records of when images were used are removed too: without passes the records would become wrong.
    if gc is None:
        return Part(pass_timer.stale(host, OWN, status_files(host)), frozenset())
    part = decide(context, gc, observe(host, context, gc))
    return part._replace(notes=(*agent_note(host, context, "gc: collects"), *part.notes))


def observe(host: Host, context: Context, gc: GC) -> ObservedPasses:
    """The units and the last passes' results as observed."""
    return ObservedPasses(
        pass_timer.observe(host, context, OWN, gc_units.period(gc)),
        items(state.read_json(host, state.GC_DRIFT) if state.there(host, state.GC_DRIFT) else []),
        other_gc.kubelet(host),
        tuple(other_gc.pruners(host)),
        tuple(user for user in gc.users if accounts.user_id(host, None, user) is None),
        agent_units.metrics_dir(state.read_json(host, state.AGENT)),
    )


def items(data: object) -> tuple[Change, ...]:
    """The open items in the file that the last passes wrote; for data in another form, an item of unknown state."""
    rows = data if isinstance(data, list) else [data]
    rows_as_items = [item(row) for row in rows]
    if None in rows_as_items:
        reason = "not as Corral wrote it: the next pass replaces it"
        rows_as_items.append(Change(NAME, state.GC_DRIFT, "content", None, None, reason, state.GC_DRIFT, (), UNKNOWN))
    return tuple(change for change in rows_as_items if change is not None)


def item(row: object) -> t.Optional[Change]:
    """The item of drift in a row of the file that the last passes wrote; None for a row in another form."""
    try:
        change = Change(**{**t.cast("dict[str, t.Any]", row), "steps": ()})
    except TypeError:
        return None
    values = {name: value for name, value in change._asdict().items() if name != "steps"}
    texts = all(isinstance(value, str) or (value is None and name in MAY_BE_NONE) for name, value in values.items())
    return change if texts and change.manager == NAME and change.verdict in (DRIFT, UNCHANGEABLE, UNKNOWN) else None


def decide(context: Context, gc: GC, seen: ObservedPasses) -> Part:
    """The changes of the units, and the items of the passes."""
    changes = pass_timer.changes(context, OWN, gc_units.units(gc, seen.metrics), gc_units.period(gc), seen.passes)
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
    return Part(
        (*changes, *seen.items),
        OWN.owned(),
        problems=tuple(problems),
        notes=notes(context, gc, seen),
    )


def notes(context: Context, gc: GC, seen: ObservedPasses) -> tuple[str, ...]:
    """Notes for the user about this garbage collection."""
    texts = [
        f"gc.images: {location} removes images without a name, too ({line[:120]})"
        for location, line in seen.pruners
        if gc.images is not None and other_gc.DANGLING.search(line)
    ]
    if gc.images is not None and gc.images.high == 100 and not gc.images.max_age:
        texts.append("gc.images: a high of 100 without max_age never removes an image")
    if gc.containers is not None and gc.containers.scope == DECLARED and not context.profile.workloads:
        texts.append("gc.containers: no workloads are declared, so no container goes; scope: all means every dead one")
    return tuple(texts)


def status_files(host: Host) -> tuple[str, ...]:
    """The files that passes write for the next pass, the tick and exporters."""
    metrics = agent_units.gc_metrics_file(agent_units.metrics_dir(state.read_json(host, state.AGENT)))
    return (*STATUS_FILES, metrics) if metrics else STATUS_FILES


def key_of(change: Change, dummy_declared: Profile) -> str:
    """The profile's key for a change: gc.images or gc.containers for an open item of a pass, else the section gc."""
    if change.subject == "containers":
        return "gc.containers"
    return "gc.images" if change.property in ("images", "disk use") or change.subject == "images" else "gc"


MANAGER = Manager(NAME, plan, WRITES, status_files=status_files, key_of=key_of)
