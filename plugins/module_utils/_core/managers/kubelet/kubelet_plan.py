# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# This module is private to the collection corral.node.
"""The plan of the kubelet manager: its items, steps and refusals for a declared section."""

from __future__ import annotations

import typing as t

from ...host.files import Host
from ...host.kubelet import kubelet_unit
from ...model.kubelet import kubelet_config, kubelet_drift, kubelet_rules, kubelet_wanted
from ...model.kubelet.config_text import NotEditable
from ...model.kubelet.kubelet_config import DEFAULT, Config, effective
from ...model.kubelet.kubelet_wanted import Wanted
from ...model.plan.context import Context
from ...model.plan.plan import Change, Part, Step
from ...model.profile.profile_kubelet import Kubelet
from ...model.profile.schema_types import CORRAL_SLICE
from ...model.values.errors import Problem
from . import kubelet_change, kubelet_observed
from .kubelet_change import Transition
from .kubelet_items import file_item, older_than_files, overridden_item, state_item
from .kubelet_observed import ObservedKubelet
from .kubelet_obstacles import (
    NO_RESTART,
    acts,
    gates_problem,
    no_restart,
    obstacles,
    refused,
    stopped_for_good,
    wrong_version,
)
from .kubelet_places import NAME
from .kubelet_removal import held, hook_left
from .kubelet_target import Target, wanted_of, write_steps


def plan_beside(host: Host, context: Context) -> Part:
    """The part for a profile without the section ``kubelet``: a note if the profile's hugepages make a state file unfit."""
    seen = kubelet_observed.observe(host, context)
    if seen.missing or (seen.process is None and not kubelet_unit.is_installed(host)):
        return Part((), frozenset())
    move = kubelet_change.transition(host, seen, effective(seen.layers, seen.flags), None, context)
    notes = []
    if move.unfit:
        files = " and ".join(one.path for one in move.after.refused)
        notes.append(
            f"the kubelet would not start again with {files} once hugepages have changed: declare the section kubelet, with which a "
            "rollout sets that aside and restarts it, or do both by hand"
        )
    return Part((), frozenset(), notes=tuple(notes))


def without(host: Host, seen: ObservedKubelet, kubelet: Kubelet, context: Context) -> Part:
    """The part for a node without a kubelet to configure."""
    owned = held(host) if context.in_tick else frozenset[str]()
    if kubelet.optional:
        return Part((), owned, notes=(f"kubelet is left out (kubelet.optional): {seen.missing}",))
    message = f"{seen.missing}; or declare kubelet.optional: true for nodes without it"
    return refused((Problem("kubelet", None, message),), "configuration", "", owned)


def plan_section(host: Host, kubelet: Kubelet, context: Context) -> Part:
    """The part for a profile with the section: the changes that give the kubelet the wanted configuration."""
    seen = kubelet_observed.observe(host, context)
    if seen.missing:
        return without(host, seen, kubelet, context)
    owned = frozenset({f"file:{seen.dropin}"}) if seen.dropin else frozenset()
    try:
        found = tuple(obstacles(seen))
        if not found:
            seen, wanted, then, found = aimed(host, seen, kubelet, context)
    except NotEditable as error:
        message = f"its keys cannot be changed one by one ({error}): write it as YAML, or give the kubelet --config-dir"
        return refused((Problem(seen.own, None, message),), seen.own, seen.own, owned)
    if found:
        return refused(found, "configuration", seen.own, owned)
    knows = acts(seen, context)
    hook = kubelet.drain or (hook_left(host, seen) if context.goes_back else None)
    keys = None if knows else known_keys(seen, wanted)
    move = kubelet_change.transition(host, seen, then.config, hook, context, keys)
    standing, refusals = contradictions(host, seen, wanted, move)
    refusals += stopped_for_good(host, seen) if move.unfit else []
    refusals += kubelet_change.problems(move.after, move.hook) if move.restarts or not seen.process else []
    overridden = kubelet_drift.overridden(then.config, wanted.data, seen.layers, seen.own)
    refusals += [gates_problem(host, one) for one in overridden if one.key == kubelet_wanted.GATES]
    steps, unasked = kubelet_change.restart(host, seen, move, context, refusals) if move.restarts else ([], [])
    why = "; ".join(problem.line() for problem in refusals)
    if not (knows or why):  # A tick without a difference reads no files of the unit.
        why = no_restart(host, seen) if move.differences else NO_RESTART
    changes = changes_of(seen, then, move, steps, context, why)
    changes += [overridden_item(host, one) for one in overridden]
    if not move.restarts:
        changes += older_than_files(host, seen, context)
    notes = [f"the kubelet: {line}" for line in (*standing, *kubelet_config.unknown_keys(seen.layers))]
    notes += unasked
    if context.fresh:
        notes += kubelet_change.sizing_notes(host, move, seen)
        notes += [] if move.restarts else kubelet_change.standing_notes(seen, move.after, context)
    notes += shared_with_pods(then.config, context)
    return Part(tuple(changes), owned, problems=tuple(refusals), notes=tuple(notes))


def aimed(
    host: Host, seen: ObservedKubelet, kubelet: Kubelet, context: Context
) -> tuple[ObservedKubelet, Wanted, Target, tuple[Problem, ...]]:
    """The observation, the wanted keys, their target, and the obstacles for the installed kubelet. Raises NotEditable.

    The kubelet's program is started to learn its version only if a run has something to write, or wants keys that depend on the version.
    """
    wanted, then = wanted_of(seen, kubelet)
    if not acts(seen, context) or not (any(kubelet_wanted.versioned(wanted.data)) or write_steps(seen, then)):
        return seen, wanted, then, ()
    seen = kubelet_observed.with_version(host, seen)
    found = tuple(wrong_version(seen))
    if not found:
        wanted, then = wanted_of(seen, kubelet)
        found = tuple(stopped_for_good(host, seen)) if write_steps(seen, then) else ()
    return seen, wanted, then, found


def contradictions(
    host: Host, seen: ObservedKubelet, wanted: Wanted, move: Transition
) -> tuple[list[str], list[Problem]]:
    """The problems of the wanted configuration: as text the problems that exist already, and the new problems, which refuse the profile."""
    machine = kubelet_observed.with_groups(host, seen.machine, move.now, move.then)
    before = {problem.line() for problem in kubelet_rules.problems(move.now, machine, ())}
    found = kubelet_rules.problems(move.then, machine, wanted.data)
    standing = [one.line() for one in found if one.line() in before]
    return standing, [*wanted.problems, *(one for one in found if one.line() not in before)]


def known_keys(seen: ObservedKubelet, wanted: Wanted) -> frozenset[str]:
    """The keys that a tick compares without the kubelet's version: the wanted keys, and the keys that Corral wrote before."""
    written = {key for layer in seen.layers if layer.origin == seen.dropin for key in layer.data}
    written.update(seen.kept.lines)
    return frozenset(wanted.data) | (written - {kubelet_wanted.GATES, kubelet_wanted.MAXIMUM_AGE})


def shared_with_pods(config: Config, context: Context) -> list[str]:
    """A note that names the slices whose CPUs the kubelet may also give to a pod exclusively."""
    cpu = context.profile.cpu
    if cpu is None or config.get("cpuManagerPolicy") != "static":
        return []
    slices = ", ".join((*cpu.shared_slices, CORRAL_SLICE))
    return [
        (
            f"{slices} run on the shared CPUs, and the kubelet gives pods some of these exclusively: run nothing in these slices, or "
            "add those in use to cpu.reserved.slices"
        )
    ]


def changes_of(
    seen: ObservedKubelet, then: Target, move: Transition, restart: t.Sequence[Step], context: Context, why: str
) -> list[Change]:
    """The items of the keys, files and state files that differ. Each item has all steps of the change.

    ``restart``: the steps around the writes. ``why``: why this run takes no steps ("": the run takes steps); then the items have no steps.
    """
    write = write_steps(seen, then)
    steps = [*restart, *write] if move.restarts else []
    disruption: t.Any = "service restart" if kubelet_change.stops(seen) else "none"
    when: t.Any = "now" if kubelet_change.stops(seen) else "next start"
    found = []
    if write and not why:
        found.append(file_item(seen, then, steps or write, when, disruption if steps else "none"))
    for one in move.differences:
        reason = f"set by {one.origin}" if one.origin != DEFAULT else "the kubelet's default"
        found.append(
            Change(NAME, one.key, "value", one.actual, one.wanted, f"{reason}; {why}" if why else reason,
                   seen.own if one.origin == DEFAULT else one.origin.partition(" ")[0], () if why else tuple(steps),
                   when=when, disruption=disruption)
        )  # fmt: skip
    if not why and (move.restarts or not seen.process):
        steps = steps or kubelet_change.aside(move.after, context.now)
        found += [state_item(one, steps, disruption, when) for one in move.after.refused]
    if not move.restarts or not acts(seen, context):
        found += kubelet_change.unfinished(seen, by_tick=context.run == "boot" or not acts(seen, context))
    return found
