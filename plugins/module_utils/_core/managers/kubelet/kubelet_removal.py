# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# This module is private to the collection corral.node.
"""The end of Corral's kubelet configuration: after a profile without the section, a removal, or the return to an earlier profile."""

from __future__ import annotations

import typing as t

from ...host import state
from ...host.files import Host
from ...host.kubelet import kubelet_unit
from ...host.topology import sysfs
from ...model.kubelet.config_text import NotEditable
from ...model.kubelet.kubelet_config import Layer, effective
from ...model.plan import make_step, undo
from ...model.plan.context import Context
from ...model.plan.plan import FILES, Change, Part, Step
from ...model.values.errors import CorralError, Problem
from . import kubelet_change, kubelet_observed
from .kubelet_change import StateFiles, Transition
from .kubelet_observed import ObservedKubelet
from .kubelet_obstacles import NO_RESTART, acts, refused
from .kubelet_places import DUE, KEPT, NAME
from .kubelet_target import layers_below_dropin, load, moved_away


def plan_without(host: Host, context: Context) -> Part:
    """The part for a profile without the section, on a node where Corral configured the kubelet before.

    The plan restores the drop-in from its original; the changes of this part restore lines in a file of others and restart the kubelet. A
    tick only reports what remains of the configuration, and keeps the originals for a later run.
    """
    seen = kubelet_observed.observe(host, context)
    changes, problems = way_back(host, seen, context)
    if problems and not changes:
        return refused(tuple(problems), seen.kept.file, seen.kept.file, held(host))
    if acts(seen, context) and not problems:
        return Part(tuple(changes), frozenset())
    why = "; ".join(problem.line() for problem in problems) or NO_RESTART
    kept = [one._replace(steps=(), reason=f"{one.reason}; {why}") for one in changes]
    kept += [] if problems else kubelet_change.unfinished(seen, by_tick=True)
    return Part(tuple(kept), held(host), problems=tuple(problems))


def removal(host: Host, *, pools_stay: bool, goes_back: bool) -> list[Change]:
    """The changes that end Corral's configuration of the kubelet. Raises CorralError. ``pools_stay``: pools of hugepages stay."""
    context = kubelet_observed.without_profile(host, sysfs.discover(host, with_devices=False))
    context = context._replace(goes_back=goes_back)
    changes, problems = way_back(host, kubelet_observed.observe(host, context, pools_stay=pools_stay), context)
    if problems:
        raise CorralError(*problems)
    return changes


def way_back(host: Host, seen: ObservedKubelet, context: Context) -> tuple[list[Change], list[Problem]]:
    """The changes that take Corral's keys out of the configuration, and the problems that prevent the changes."""
    try:
        return (left_behind(host, seen), []) if seen.missing else back_changes(host, seen, context)
    except NotEditable as error:
        message = (
            f"the lines that Corral changed there cannot be restored ({error}): correct the file; or edit it as you want it, and "
            f"delete {KEPT}, which has the original lines"
        )
        return [], [Problem(seen.kept.file, None, message)]


def left_behind(host: Host, seen: ObservedKubelet) -> list[Change]:
    """The change for a kubelet that is gone: lines in a file of others are restored, and Corral's state is removed. Raises NotEditable."""
    steps = moved_away(seen) if seen.kept.file else []
    left = (DUE,) if steps else (KEPT, DUE)
    steps += [make_step.file(path, None, FILES) for path in left if host.exists(path)]
    return [Change(NAME, "kubelet", "state", "kept", "absent", seen.missing, KEPT, tuple(steps))] if steps else []


def back_changes(host: Host, seen: ObservedKubelet, context: Context) -> tuple[list[Change], list[Problem]]:
    """The result of way_back() on a node with a kubelet. Raises NotEditable."""
    originals = [record.before for record in state.records(host)[0] if record.manager == NAME]
    then = effective(layers_of_others(seen, originals), seen.flags)
    move = kubelet_change.transition(host, seen, then, hook_left(host, seen), context)
    stays = why_not_stopped(host, seen) if move.restarts else ""
    problems = against(host, seen, move, stays, context)
    steps = moved_away(seen) if seen.kept.file else list[Step]()
    if move.restarts and not stays:
        steps += kubelet_change.restart(host, seen, move, context, problems)[0]
    elif (seen.due or seen.drained[0]) and context.run != "boot":
        steps += kubelet_change.finish(seen.drained[0])
    if stays and not steps:
        # The plan restores the drop-in from its original anyway. With the steps of that, this item counts as changed in the result.
        steps = [step for before in originals for step in undo.restore_recorded(before, "")]
    if not steps:
        return [], []
    changed = [one.key for one in move.differences] or ["other hugepages" if move.unfit else "as Corral left it"]
    reason = "no longer declared"
    if stays:
        reason += f"; the running kubelet keeps the configuration that it read: {stays}{way_to_start(move.after)}"
    stops = kubelet_change.stops(seen) and not stays
    change = Change(
        NAME, kubelet_unit.UNIT, "configuration", ", ".join(changed), "as others configure it", reason, seen.own, tuple(steps),
        when="now" if stops else "next start", disruption="service restart" if stops else "none",
    )  # fmt: skip
    return [change], problems


def layers_of_others(seen: ObservedKubelet, originals: t.Sequence[undo.Original]) -> list[Layer]:
    """The layers without Corral: the original of the drop-in, and files of others with their original lines. Raises NotEditable."""
    before = {one.target: one.value for one in originals}
    files = [one for one in layers_below_dropin(seen) if before.get(one.origin, "") is not None]
    return [
        one._replace(data=load(before[one.origin] or "", one.origin)) if one.origin in before else one for one in files
    ]


def against(host: Host, seen: ObservedKubelet, move: Transition, stays: str, context: Context) -> list[Problem]:
    """The problems that prevent a restart without Corral's keys. ``stays``: why the kubelet is not stopped."""
    if not move.restarts or not acts(seen, context):
        return []
    if stays:
        is_lost = stays == damage(seen) and not context.goes_back
        return [Problem("kubelet", None, f"{stays}: the running kubelet could not be started again")] if is_lost else []
    if seen.process is None and not kubelet_unit.is_installed(host):
        return []  # A removed kubelet gives CPUs to no other pod.
    return kubelet_change.problems(move.after, move.hook, kubelet_change.WAY_OUT_OF_LEAVING)


def way_to_start(after: StateFiles) -> str:
    """What has to be done before the next start of a kubelet that is not stopped now; an empty string if nothing has to be done.

    The state files stay until then: the files say which CPUs pods have, and the kubelet would write them again from its memory.
    """
    files = " and ".join(one.path for one in after.refused)
    return (
        f"; its next start would refuse {files}: drain the node first, and remove that after its stop" if files else ""
    )


def why_not_stopped(host: Host, seen: ObservedKubelet) -> str:
    """Why the running kubelet must not be stopped (it could not start again, even without Corral's keys); otherwise an empty string."""
    if seen.process is None:
        return ""
    unfit = kubelet_unit.cannot_start(host)
    return f"{kubelet_unit.UNIT} {unfit}" if unfit else damage(seen)


def damage(seen: ObservedKubelet) -> str:
    """A fault in a configuration file, and what to do; empty without a fault. Faults of flags do not count: the kubelet runs with them."""
    line = next((line for line in seen.wrong if not line.startswith("--")), "")
    return f"{line}: correct that first" if line else ""


def held(host: Host) -> frozenset[str]:
    """The keys of the kubelet manager's recorded originals."""
    return frozenset(record.before.key for record in state.records(host)[0] if record.manager == NAME)


def hook_left(host: Host, seen: ObservedKubelet) -> t.Optional[str]:
    """The hook of the latest declared or applied profile with the section; else the hook that drained the node before."""
    current, past = state.history(host)
    profiles = [state.read_json(host, state.DECLARED), *(one.profile for one in (current, *past) if one)]
    sections = [one.get("kubelet") for one in profiles if isinstance(one, dict)]
    hook = next((one.get("drain") for one in sections if isinstance(one, dict)), None)
    return hook if isinstance(hook, str) else seen.drained[0] or None
