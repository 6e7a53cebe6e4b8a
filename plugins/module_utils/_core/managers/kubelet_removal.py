# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# This module is private to the collection corral.node.
"""A profile without the section, the removal, and the way back: what Corral changed goes back to what others configure."""

from __future__ import annotations

import typing as t

from ..host import kubelet_unit, state
from ..host.discovery import sysfs
from ..host.files import Host
from ..model.kubelet import config_text, kubelet_drift
from ..model.kubelet.config_text import NotEditable
from ..model.kubelet.kubelet_config import effective
from ..model.plan import make_step, undo
from ..model.plan.context import Context
from ..model.plan.plan import FILES, Change, Part, Step
from ..model.values.errors import CorralError, Problem, refusal
from . import kubelet_change, kubelet_observed
from .kubelet_change import Drain, StateFiles
from .kubelet_observed import Observation
from .kubelet_obstacles import NO_RESTART, acts, refused
from .kubelet_places import DUE, KEPT, NAME
from .kubelet_target import load, moved_away


def plan_without(host: Host, context: Context) -> Part:
    """The part of a profile without the section, on a node where Corral configured the kubelet before."""
    return leaving(host, kubelet_observed.observe(host, context), context)


def removal(host: Host, *, pools_stay: bool, goes_back: bool) -> list[Change]:
    """The changes by which the kubelet goes back to what others configure; ``pools_stay``: hugepages do not."""
    context = kubelet_observed.without_profile(host, sysfs.discover(host, with_devices=False))
    context = context._replace(goes_back=goes_back)
    seen = kubelet_observed.observe(host, context, pools_stay=pools_stay)
    try:
        changes, problems = back_changes(host, seen, context)
    except NotEditable as error:
        raise refusal(cannot_go_back(error), path=seen.kept.file) from None
    if problems:
        raise CorralError(*problems)
    return changes


def leaving(host: Host, seen: Observation, context: Context) -> Part:
    """What Corral changed goes back: the drop-in by its original, lines of others' files here; the kubelet reads that at a restart.

    A tick names what is left, and keeps the originals for the run that does it.
    """
    try:
        changes, problems = back_changes(host, seen, context)
    except NotEditable as error:
        problem = Problem(seen.kept.file, None, cannot_go_back(error))
        return refused((problem,), seen.kept.file, seen.kept.file, held(host))
    if problems:
        why = "; ".join(problem.line() for problem in problems)
        kept = [one._replace(steps=(), reason=f"{one.reason}; {why}") for one in changes]
        return Part(tuple(kept), held(host), problems=tuple(problems))
    if acts(seen, context):
        return Part(tuple(changes), frozenset())
    kept = [one._replace(steps=(), reason=f"{one.reason}; {NO_RESTART}") for one in changes]
    return Part((*kept, *kubelet_change.unfinished(seen, by_tick=True)), held(host))


def cannot_go_back(error: NotEditable) -> str:
    """Why the lines of a file of others do not come back, and the way out."""
    return (
        f"the lines that Corral changed there cannot be restored ({error}): correct the file; or edit it as you want it, and delete {KEPT}, "
        "which has the original lines"
    )


def back_changes(host: Host, seen: Observation, context: Context) -> tuple[list[Change], list[Problem]]:
    """The changes that take Corral's keys out of the configuration, and what stands against them.

    Raises NotEditable.
    """
    if seen.missing:
        gone = moved_away(seen) if seen.kept.file else []
        left = (DUE,) if gone else (KEPT, DUE)
        gone += [make_step.file(path, None, FILES) for path in left if host.exists(path)]
        found = [Change(NAME, "kubelet", "state", "kept", "absent", seen.missing, KEPT, tuple(gone))] if gone else []
        return found, []
    layers, steps = [], moved_away(seen) if seen.kept.file else list[Step]()
    originals = {record.before.target: record.before for record in state.records(host)[0] if record.manager == NAME}
    for layer in seen.layers:
        if layer.origin in originals:
            before = originals[layer.origin].value
            layers += [layer._replace(data=load(before, layer.origin))] if before is not None else []
        elif layer.origin == seen.kept.file:
            layers.append(
                layer._replace(
                    data=load(config_text.changed(seen.texts[layer.origin] or "", seen.kept.lines), layer.origin)
                )
            )
        else:
            layers.append(layer)
    now, then = effective(seen.layers, seen.flags), effective(layers, seen.flags)
    differences = kubelet_drift.changing(now, then)
    after = kubelet_change.state_under(host, seen, then, context)
    unfit = kubelet_change.is_made_unfit(host, seen, now, after, context)
    starts = bool(differences) or unfit
    stays = why_not_stopped(host, seen) if starts else ""
    problems: list[Problem] = []
    back = starts and context.goes_back
    if stays and stays == damage(seen) and acts(seen, context) and not back:
        problems = [Problem("kubelet", None, f"{stays}: the running kubelet could not be started again")]
    if starts and not stays:
        drain = Drain(hook_left(host, seen)) if after.refused else Drain()
        if after.refused and back:
            drain = Drain(drain.hook or "none", optional=True)
        # A kubelet that was removed gives these CPUs to no other pod.
        if acts(seen, context) and (seen.process is not None or kubelet_unit.is_installed(host)):
            problems = kubelet_change.problems(after, drain, kubelet_change.WAY_OUT_OF_LEAVING)
        asks = acts(seen, context) and not problems and not back
        ready, dummy = kubelet_change.readiness(host, seen) if asks else ([], [])
        steps += kubelet_change.restart(seen, after, then, drain, context.now, ready)
    elif (seen.due or seen.drained[0]) and context.run != "boot":
        steps += kubelet_change.finish(seen.drained[0])
    if stays and not steps:  # A drop-in goes back by its original: with that step the item is one of the run.
        steps = [step for before in originals.values() for step in undo.restore_recorded(before, "")]
    if not steps:
        return [], []
    shown = ", ".join(one.key for one in differences) or ("other hugepages" if unfit else "as Corral left it")
    stops = kubelet_change.stops(seen) and not stays
    reason = "no longer declared" + (
        f"; the running kubelet keeps the configuration that it read: {stays}{way_to_start(after)}" if stays else ""
    )
    change = Change(
        NAME, kubelet_unit.UNIT, "configuration", shown, "as others configure it", reason, seen.own, tuple(steps),
        when="now" if stops else "next start", disruption="service restart" if stops else "none",
    )  # fmt: skip
    return [change], problems


def way_to_start(after: StateFiles) -> str:
    """What a kubelet that is not stopped now needs before its next start; "" for nothing.

    Its state files stay meanwhile: it writes them again from its memory, and they say which CPUs pods have.
    """
    files = " and ".join(one.path for one in after.refused)
    return (
        f"; its next start would refuse {files}: drain the node first, and remove that after its stop" if files else ""
    )


def why_not_stopped(host: Host, seen: Observation) -> str:
    """Why the running kubelet is not to be stopped: it would not start again, whatever goes back. "" where it would, or does not run."""
    if seen.process is None:
        return ""
    unfit = kubelet_unit.cannot_start(host)
    return f"{kubelet_unit.UNIT} {unfit}" if unfit else damage(seen)


def damage(seen: Observation) -> str:
    """What is wrong with a file of the configuration, and the way out; "" for nothing. Flags are those with which the kubelet runs."""
    line = next((line for line in seen.wrong if not line.startswith("--")), "")
    return f"{line}: correct that first" if line else ""


def held(host: Host) -> frozenset[str]:
    """The keys of what Corral recorded of the kubelet."""
    return frozenset(record.before.key for record in state.records(host)[0] if record.manager == NAME)


def hook_left(host: Host, seen: Observation) -> t.Optional[str]:
    """How the profile that is left drains the node: the declared one, or the last one applied that has the section; None: nothing says how."""
    current, past = state.history(host)
    profiles = [state.read_json(host, state.DECLARED), *(one.profile for one in (current, *past) if one)]
    sections = [one.get("kubelet") for one in profiles if isinstance(one, dict)]
    hook = next((one.get("drain") for one in sections if isinstance(one, dict)), None)
    return hook if isinstance(hook, str) else seen.drained[0] or None
