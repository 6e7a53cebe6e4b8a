# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# This module is private to the collection corral.node.
"""What the profile declares of a kubelet's configuration, written where that kubelet reads it.

A drop-in of Corral's own where the kubelet has --config-dir, else the lines of single keys in its --config. The kubelet is restarted
only where the configuration in force changes, and by no tick but one that finishes what a run began.
"""

from __future__ import annotations

import typing as t

from ..host import kubelet_node, kubelet_unit, state
from ..host.discovery import sysfs
from ..host.files import Host
from ..model.kubelet import (
    config_text,
    kubelet_config,
    kubelet_drift,
    kubelet_options,
    kubelet_rules,
    kubelet_sizing,
    kubelet_wanted,
)
from ..model.kubelet.config_text import NotEditable
from ..model.kubelet.kubelet_config import DEFAULT, Config, Layer, effective
from ..model.kubelet.kubelet_drift import Difference
from ..model.kubelet.kubelet_sizing import Amount
from ..model.kubelet.kubelet_wanted import Wanted
from ..model.plan import make_step
from ..model.plan.context import Context
from ..model.plan.places import Place
from ..model.plan.plan import CLAIM, FILES, UNCHANGEABLE, UNKNOWN, Change, Part, Step
from ..model.profile import profile
from ..model.profile.profile import Profile
from ..model.profile.profile_kubelet import Kubelet
from ..model.profile.schema_types import CORRAL_SLICE
from ..model.systemd.unit_file import settings
from ..model.topology.topology import Topology
from ..model.values.errors import CorralError, Problem, refusal
from ..model.values.records import NamedTuple
from . import kubelet_change, kubelet_observed
from .kubelet_change import Drain, State
from .kubelet_observed import Kept, Observation
from .kubelet_places import CONFIG, DROPIN, DUE, KEPT, NAME

SLACK = 1.0  # The beginning of a process is known to hundredths of a second, of a machine whose clock may be set.
NO_RESTART = "a tick restarts no kubelet: roll the profile out again"


class Target(NamedTuple):
    """What is to be in force. ``text`` is Corral's file as it is to be (None: no file), ``kept`` what is to be kept of others' lines."""

    config: Config
    text: t.Optional[str]
    kept: Kept = Kept()


def plan_section(host: Host, kubelet: Kubelet, context: Context) -> Part:
    """The part of a profile with the section."""
    seen = kubelet_observed.observe(host, context)
    return without(host, seen, kubelet, context) if seen.missing else decide(host, seen, kubelet, context)


def plan_without(host: Host, context: Context) -> Part:
    """The part of a profile without the section, on a node where Corral configured the kubelet before."""
    return leaving(host, kubelet_observed.observe(host, context), context)


def plan_beside(host: Host, context: Context) -> Part:
    """The part of a profile that leaves the kubelet to others: a note where its hugepages make a state file unfit."""
    seen = kubelet_observed.observe(host, context)
    if seen.missing or seen.process is None:
        return Part((), frozenset())
    now = effective(seen.layers, seen.flags)
    after = kubelet_change.state_under(host, seen, now, context)
    notes = []
    if kubelet_change.is_made_unfit(host, seen, now, after, context):
        files = " and ".join(one.path for one in after.refused)
        notes.append(
            f"the kubelet would not start again with {files} once hugepages have changed: declare the section kubelet, with which a "
            "rollout sets that aside and restarts it, or do both by hand"
        )
    return Part((), frozenset(), notes=tuple(notes))


def removal(host: Host, *, pools_stay: bool) -> list[Change]:
    """The changes by which the kubelet goes back to what others configure; ``pools_stay``: hugepages do not."""
    context = kubelet_observed.without_profile(host, sysfs.discover(host, with_devices=False))
    seen = kubelet_observed.observe(host, context, pools_stay=pools_stay)
    try:
        changes, problems = back_changes(host, seen, context, None)
    except NotEditable as error:
        raise refusal(cannot_go_back(error), path=seen.kept.file) from None
    if problems:
        raise CorralError(*problems)
    return changes


def without(host: Host, seen: Observation, kubelet: Kubelet, context: Context) -> Part:
    """A node without a kubelet to configure."""
    owned = held(host) if context.in_tick else frozenset[str]()
    if kubelet.optional:
        return Part((), owned, notes=(f"kubelet is left out (kubelet.optional): {seen.missing}",))
    message = f"{seen.missing}; or declare kubelet.optional: true for nodes without it"
    return refused((Problem("kubelet", None, message),), "configuration", "", owned)


def refused(found: tuple[Problem, ...], subject: str, location: str, owned: frozenset[str] = frozenset()) -> Part:
    """Nothing can be said of the kubelet's keys, and a profile that is not in force yet is refused."""
    reason = "; ".join(problem.message for problem in found)
    return Part((Change(NAME, subject, "keys", None, None, reason, location, (), UNKNOWN),), owned, problems=found)


def decide(host: Host, seen: Observation, kubelet: Kubelet, context: Context) -> Part:
    """The changes that make the configuration as wanted."""
    owned = frozenset({f"file:{seen.dropin}"}) if seen.dropin else frozenset()
    found = tuple(obstacles(seen))
    if found:
        return refused(found, "configuration", seen.own, owned)
    knows = acts(seen, context)
    now = effective(seen.layers, seen.flags)
    try:
        wanted, then = wanted_of(seen, kubelet)
        if knows and (any(kubelet_wanted.versioned(wanted.data)) or write_steps(seen, then)):
            seen = kubelet_observed.with_version(host, seen)  # It is a process, which a node in sync does without.
            found = (*wrong_version(seen), *stopped_for_good(host, seen))
            if found:
                return refused(found, "configuration", seen.own, owned)
            wanted, then = wanted_of(seen, kubelet)
    except NotEditable as error:
        message = f"its keys cannot be changed one by one ({error}): write it as YAML, or give the kubelet --config-dir"
        return refused((Problem(seen.own, None, message),), seen.own, seen.own, owned)
    before = {problem.line() for problem in kubelet_rules.problems(now, seen.machine, ())}
    contradictions = kubelet_rules.problems(then.config, seen.machine, wanted.data)
    others = [one.line() for one in contradictions if one.line() in before]
    refusals = [*wanted.problems, *(one for one in contradictions if one.line() not in before)]
    differences = kubelet_drift.changing(now, then.config, None if knows else wanted.data)
    after = kubelet_change.state_under(host, seen, then.config, context) if knows else State()
    starts = bool(differences)
    if knows and seen.process and not starts and kubelet_change.is_made_unfit(host, seen, now, after, context):
        starts = True
        refusals += stopped_for_good(host, seen)
    drain = Drain(kubelet.drain)
    back = (starts or bool(after.refused)) and goes_back(host, context.declared)
    if after.refused and back:
        drain = Drain(kubelet.drain or hook_left(host, seen) or "none", optional=True)
    refusals += kubelet_change.problems(after, drain) if starts or not seen.process else []
    overridden = kubelet_drift.overridden(then.config, wanted.data)
    refusals += [gates_problem(host, one) for one in overridden if one.key == kubelet_wanted.GATES]
    asks = starts and knows and not refusals and not back
    ready, unasked = kubelet_change.readiness(host, seen) if asks else ([], [])
    changes = changes_of(seen, then, differences, starts, after, ready, drain, context, refusals)
    changes += [overridden_item(host, one) for one in overridden]
    changes += [] if starts else older_than_files(host, seen)
    notes = [f"the kubelet: {line}" for line in (*others, *kubelet_config.unknown_keys(seen.layers))]
    notes += unasked
    notes += kubelet_change.sizing_notes(host, now, then.config, seen) if context.fresh else []
    notes += kubelet_change.standing_notes(seen, after, context) if context.fresh and not starts else []
    notes += shared_with_pods(then.config, context)
    return Part(tuple(changes), owned, problems=tuple(refusals), notes=tuple(notes))


def shared_with_pods(config: Config, context: Context) -> list[str]:
    """The slices that run on CPUs which the kubelet may give to a pod alone."""
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


def wanted_of(seen: Observation, kubelet: Kubelet) -> tuple[Wanted, Target]:
    """The keys that are wanted, and what is to be in force. Raises NotEditable."""
    wanted = kubelet_wanted.compile(kubelet, seen.machine)
    wanted = kubelet_wanted.complete(wanted, kubelet, seen.machine, lambda one: target(seen, one).config)
    return wanted, target(seen, wanted)


def acts(seen: Observation, context: Context) -> bool:
    """Whether this run may change the kubelet: no tick, whose unit may write none of its files, and which has no network.

    At boot it may, as long as the kubelet does not run.
    """
    return seen.process is None if context.at_boot else not context.in_tick


def obstacles(seen: Observation) -> t.Iterator[Problem]:
    """What stands against changing this kubelet at all."""
    for line in seen.wrong:
        yield Problem("kubelet", None, f"{line}: correct that first")
    if not seen.own:
        yield Problem("kubelet", None, "this kubelet has neither --config nor --config-dir: give it one of them")
    elif not seen.dropin and not Place("file", CONFIG).covers(make_step.file(seen.own, "", FILES)):
        message = (
            "Corral writes no file of this name: give the kubelet --config-dir, or a --config with kubelet in its path"
        )
        yield Problem(seen.own, None, message)
    elif not seen.dropin and seen.own in seen.links:
        yield Problem(
            seen.own, None, "is a link, which Corral would replace: make it a file, or give the kubelet --config-dir"
        )
    if seen.process is not None and not seen.process.by_unit:
        message = f"process {seen.process.pid} is not run by {kubelet_unit.UNIT}: start it by that unit, which Corral can restart"
        yield Problem("kubelet", None, message)


def wrong_version(seen: Observation) -> t.Iterator[Problem]:
    """A kubelet whose version is not known, or too old."""
    version = seen.machine.version
    if version is None:
        yield Problem("kubelet", None, f"its version is not known ({seen.version_error}): correct that first")
    elif version < (1, kubelet_options.OLDEST):
        shown = ".".join(map(str, version))
        yield Problem("kubelet", shown, f"Corral configures kubelets from 1.{kubelet_options.OLDEST} on: update it")


def stopped_for_good(host: Host, seen: Observation) -> t.Iterator[Problem]:
    """A kubelet that runs, and that could not be started again once it is stopped."""
    why = kubelet_unit.cannot_start(host) if seen.process is not None else ""
    if why:
        yield Problem(
            "kubelet", None, f"{kubelet_unit.UNIT} runs and {why}: once stopped, it could not be started again"
        )


# What is to be in force, and its text


def target(seen: Observation, wanted: Wanted) -> Target:
    """The configuration with what is wanted, and Corral's file. Raises NotEditable."""
    if seen.dropin:
        layers = layers_below_dropin(seen)
        patch = wanted.patch(kubelet_wanted.below(layers, seen.dropin))
        config = kubelet_wanted.in_force(layers, seen.flags, seen.dropin, patch)
        return Target(config, config_text.drop_in(patch) if patch else None)
    return edited(seen, wanted)


def layers_below_dropin(seen: Observation) -> list[Layer]:
    """The files once a drop-in has what Corral wrote into one of others before: that one has its own lines again. Raises NotEditable."""
    path = seen.kept.file
    return [
        layer._replace(data=load(config_text.changed(seen.texts.get(path) or "", seen.kept.lines), path))
        if layer.origin == path
        else layer
        for layer in seen.layers
    ]


def edited(seen: Observation, wanted: Wanted) -> Target:
    """The same in a file of others: keys that are no longer wanted get back the lines that they had. Raises NotEditable."""
    path = seen.places.config
    text = seen.texts.get(path) or ""
    kept = seen.kept if seen.kept.file == path else Kept(path)
    bare = load(config_text.changed(text, kept.lines), path)
    keys = wanted.replacing(bare)
    lines: dict[str, t.Optional[str]] = {
        key: None if value is None else config_text.key_lines(key, value) for key, value in keys.items()
    }
    back = {key: old for key, old in kept.lines.items() if key not in keys}
    present = next((layer.data for layer in seen.layers if layer.origin == path), {})
    as_written = {key: present[key] for key in lines if is_written(key, keys, present)}
    lines = {key: own for key, own in lines.items() if key not in as_written}
    new = config_text.changed(text, {**back, **lines})
    originals = config_text.blocks_of(text, keys)
    kept_now = {
        key: kept.lines[key] if key in kept.lines else originals[key]
        for key in keys
        if key in kept.lines or key in lines
    }
    data = load(new, path)
    expected = {**{key: value for key, value in bare.items() if key not in keys}, **keys, **as_written}
    if data != expected:
        raise NotEditable("the result would not be what is wanted")
    layers = [layer._replace(data=data) if layer.origin == path else layer for layer in seen.layers]
    return Target(effective(layers, seen.flags), new, Kept(path, kept_now) if kept_now else Kept())


def is_written(key: str, keys: t.Mapping[str, t.Any], present: t.Mapping[str, t.Any]) -> bool:
    """Whether a file has a key with this meaning already, however it is written."""
    return key in present and kubelet_drift.same(key, present[key], keys[key])


def load(text: str, path: str) -> dict[str, t.Any]:
    """A configuration as data. Raises NotEditable."""
    try:
        data = kubelet_node.load(text, path) if text.strip() else {}
    except CorralError as error:
        raise NotEditable(str(error)) from None
    if not isinstance(data, dict):
        raise NotEditable("it has no keys")
    return data


# Changes


def changes_of(
    seen: Observation,
    then: Target,
    differences: t.Sequence[Difference],
    starts: bool,
    after: State,
    ready: t.Sequence[Step],
    drain: Drain,
    context: Context,
    refusals: t.Sequence[Problem],
) -> list[Change]:
    """The items of keys that differ, with the steps of all of them where this run may and can take them.

    ``starts`` is whether the kubelet restarts, because of these keys or of a state file that does not fit any more.
    """
    why = "" if acts(seen, context) else NO_RESTART
    if refusals:
        why = "; ".join(problem.line() for problem in refusals)
    write = write_steps(seen, then)
    steps = [*kubelet_change.restart(seen, after, then.config, drain, context.now, ready), *write] if starts else []
    disruption: t.Any = "service restart" if kubelet_change.stops(seen) else "none"
    when: t.Any = "now" if kubelet_change.stops(seen) else "next start"
    found = []
    if write and not why:
        found.append(file_item(seen, then, write if not starts else steps, when, disruption if starts else "none"))
    for one in differences:
        reason = f"set by {one.origin}" if one.origin != DEFAULT else "the kubelet's default"
        found.append(
            Change(NAME, one.key, "value", one.actual, one.wanted, f"{reason}; {why}" if why else reason,
                   seen.own if one.origin == DEFAULT else one.origin.partition(" ")[0], () if why else tuple(steps),
                   when=when, disruption=disruption)
        )  # fmt: skip
    if not why:
        found += [state_item(one, steps or kubelet_change.aside(after, context.now), disruption, when) for one in after.refused
                  if starts or not seen.process]  # fmt: skip
    if not found or not acts(seen, context):
        found += kubelet_change.unfinished(seen, by_tick=context.at_boot or not acts(seen, context))
    return found


def write_steps(seen: Observation, then: Target) -> list[Step]:
    """The steps that write Corral's file, or the keys in another one; none where the files say what they are to say."""
    steps = []
    if seen.dropin:
        present = next((layer.data for layer in seen.layers if layer.origin == seen.dropin), None)
        wanted = None if then.text is None else load(then.text, seen.dropin)
        is_there = seen.texts.get(seen.dropin) is not None
        if present != wanted and (is_there or needs_file(seen, then)):
            steps.append(make_step.file(seen.dropin, then.text, FILES))
        return [*steps, *(moved_away(seen) if seen.kept.file else ())]
    if then.text != seen.texts.get(seen.own):
        steps.append(make_step.file(seen.own, then.text, FILES, mode=seen.modes[seen.own]))
    if then.kept != seen.kept:
        steps.insert(0, keep_step(then.kept))
    if seen.kept.file not in ("", seen.own):
        steps += [step for step in moved_away(seen) if step.target != KEPT]
    return steps


def needs_file(seen: Observation, then: Target) -> bool:
    """Whether the files of others make something else of the keys."""
    return bool(kubelet_drift.changing(effective(layers_below_dropin(seen), seen.flags), then.config))


def keep_step(kept: Kept) -> Step:
    """Keep what lines were, before they change; with nothing to keep the file goes after the lines are back."""
    if not kept.file:
        return make_step.file(KEPT, None, FILES, 20)
    return make_step.file(
        KEPT, state.checked_text({"file": kept.file, "lines": dict(kept.lines)}), CLAIM, -30, mode=state.PRIVATE
    )


def moved_away(seen: Observation) -> list[Step]:
    """The steps that put back what Corral changed in a file of others. Raises NotEditable."""
    path = seen.kept.file
    text = seen.texts.get(path)
    if text is None:
        return [keep_step(Kept())]
    back = config_text.changed(text, seen.kept.lines)
    return [*([make_step.file(path, back, FILES, mode=seen.modes[path])] if back != text else []), keep_step(Kept())]


def file_item(seen: Observation, then: Target, steps: t.Sequence[Step], when: t.Any, disruption: t.Any) -> Change:
    """The item of Corral's file, or of the lines in others'."""
    actual, wanted = seen.texts.get(seen.own), then.text
    reason = "the kubelet's keys that the profile declares"
    if not seen.dropin:
        keys = sorted(then.kept.lines.keys() | seen.kept.lines.keys())
        actual, wanted = (
            "".join(filter(None, config_text.blocks_of(text or "", keys).values())) for text in (actual, wanted)
        )
        reason = f"{reason}; all other lines stay"
    return Change(
        NAME, seen.own, "content" if seen.dropin else "lines", None if actual is None else settings(actual),
        None if wanted is None else settings(wanted), reason, seen.own, tuple(steps), when=when, disruption=disruption,
    )  # fmt: skip


def state_item(one: kubelet_change.Refused, steps: t.Sequence[Step], disruption: t.Any, when: t.Any) -> Change:
    """The item of a state file that the kubelet would refuse."""
    return Change(
        NAME, one.path, "state", "refused at the start", "set aside", one.refusal, one.path, tuple(steps), when=when,
        disruption=disruption,
    )  # fmt: skip


def gates_problem(host: Host, one: Difference) -> Problem:
    """A feature gate that a flag or a later file turns off: the kubelet would not start with an option that needs it."""
    flag = one.origin.startswith("--")
    where = f"the flag {one.origin} in {kubelet_unit.file_of_flag(host, one.origin)}" if flag else one.origin
    message = f"{where} sets {one.actual} and wins, but the declared options need {one.wanted}, and the kubelet would not start: remove it there"
    return Problem("kubelet", None, message)


def overridden_item(host: Host, one: Difference) -> Change:
    """The item of a key that a later file or a flag sets."""
    if one.origin.startswith("--"):
        file = kubelet_unit.file_of_flag(host, one.origin)
        reason = f"the flag {one.origin} in {file} wins over every file: remove it there, or declare its value"
        return Change(NAME, one.key, "value", one.actual, one.wanted, reason, file, (), UNCHANGEABLE)
    if one.origin == DEFAULT:
        reason = (
            "the kubelet adds its default thresholds (mergeDefaultEvictionSettings): set that to false, or declare them"
        )
        return Change(NAME, one.key, "value", one.actual, one.wanted, reason, "", (), UNCHANGEABLE)
    reason = f"{one.origin} sorts after {DROPIN}: remove the key there, or declare its value"
    return Change(NAME, one.key, "value", one.actual, one.wanted, reason, one.origin, (), UNCHANGEABLE)


def older_than_files(host: Host, seen: Observation) -> list[Change]:
    """The item of a kubelet that has not read its files: it began before they were changed, and nothing else restarts it."""
    began = seen.process.began if seen.process else None
    if began is None:
        return []
    newer = [layer.origin for layer in seen.layers if (host.modified(layer.origin) or 0) > began + SLACK]
    if not newer:
        return []
    reason = f"the running kubelet (process {seen.process.pid if seen.process else ''}) began before this change: systemctl restart {kubelet_unit.UNIT}"
    return [
        Change(NAME, kubelet_unit.UNIT, "files", f"changed since: {', '.join(newer)}", "read by the kubelet", reason, newer[0],
               (), UNCHANGEABLE, "next start", "service restart")
    ]  # fmt: skip


# A profile without the section, and removal


def leaving(host: Host, seen: Observation, context: Context) -> Part:
    """What Corral changed goes back: the drop-in by its original, lines of others' files here; the kubelet reads that at a restart.

    A tick names what is left, and keeps the originals for the run that does it.
    """
    try:
        changes, problems = back_changes(host, seen, context, context.declared)
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


def held(host: Host) -> frozenset[str]:
    """The keys of what Corral recorded of the kubelet."""
    return frozenset(record.before.key for record in state.records(host)[0] if record.manager == NAME)


def hook_left(host: Host, seen: Observation) -> t.Optional[str]:
    """How the profile that is left drains the node: the declared one, or the last one applied that has the section; None: nothing says how."""
    current, past = state.history(host)
    profiles = [state.read_json(host, state.DECLARED), *(one.profile for one in (current, *past) if one)]
    sections = [one.get("kubelet") for one in profiles if isinstance(one, dict)]
    hook = next((one.get("drain") for one in sections if isinstance(one, dict)), None)
    return hook if isinstance(hook, str) else seen.due or seen.drained[0] or None


def goes_back(host: Host, to: t.Optional[Profile]) -> bool:
    """Whether this profile (None: none) is the one before an unconfirmed one whose time is over: the node has to go back to it.

    What was not confirmed may be what keeps the hook from draining the node. Nor need the node be Ready afterwards: a way back that waits
    for that may never end.
    """
    if not host.exists(state.UNCONFIRMED):
        return False
    from ..host import unconfirmed_file

    found = unconfirmed_file.pending(host)
    before = None if to is None else profile.to_data(to)
    return found is not None and found.before == before and unconfirmed_file.left(host, found) <= 0


def back_changes(
    host: Host, seen: Observation, context: Context, to: t.Optional[Profile]
) -> tuple[list[Change], list[Problem]]:
    """The changes that take Corral's keys out of the configuration, and what stands against them; ``to`` is the next profile (None: none).

    Raises NotEditable.
    """
    if seen.missing:
        gone = moved_away(seen) if seen.kept.file else []
        left = (DUE,) if gone else (KEPT, DUE)
        gone += [make_step.file(path, None, FILES) for path in left if host.exists(path)]
        found = [Change(NAME, "kubelet", "state", "kept", "absent", seen.missing, KEPT, tuple(gone))] if gone else []
        return found, []
    layers, steps = [], moved_away(seen) if seen.kept.file else list[Step]()
    originals = {
        record.before.target: record.before.value for record in state.records(host)[0] if record.manager == NAME
    }
    for layer in seen.layers:
        if layer.origin in originals:
            before = originals[layer.origin]
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
    unfit = seen.process is not None and kubelet_change.is_made_unfit(host, seen, now, after, context)
    starts = bool(differences) or unfit
    stays = kubelet_unit.cannot_start(host) if starts and seen.process is not None else ""
    problems: list[Problem] = []
    if starts and not stays:
        drain = Drain(hook_left(host, seen)) if after.refused else Drain()
        back = goes_back(host, to)
        if after.refused and back:
            drain = Drain(drain.hook or "none", optional=True)
        # A kubelet that was removed gives these CPUs to no other pod.
        if acts(seen, context) and (seen.process is not None or kubelet_unit.is_installed(host)):
            problems = kubelet_change.problems(after, drain, kubelet_change.WAY_OUT_OF_LEAVING)
        asks = acts(seen, context) and not problems and not back
        ready, dummy = kubelet_change.readiness(host, seen) if asks else ([], [])
        steps += kubelet_change.restart(seen, after, then, drain, context.now, ready)
    elif (seen.due is not None or seen.drained[0]) and not context.at_boot:
        steps += kubelet_change.finish(seen.due or seen.drained[0])
    if not steps:
        return [], []
    shown = ", ".join(one.key for one in differences) or ("other hugepages" if unfit else "as Corral left it")
    stops = kubelet_change.stops(seen) and not stays
    reason = "no longer declared" + (
        f"; {kubelet_unit.UNIT} {stays}: the running kubelet keeps the configuration that it read" if stays else ""
    )
    change = Change(
        NAME, kubelet_unit.UNIT, "configuration", shown, "as others configure it", reason, seen.own, tuple(steps),
        when="now" if stops else "next start", disruption="service restart" if stops else "none",
    )  # fmt: skip
    return [change], problems


# What pods may have


class Outlook(NamedTuple):
    """What pods may have of the node now, and once the profile is applied (None: it declares nothing of the kubelet)."""

    now: tuple[Amount, ...]
    then: t.Optional[tuple[Amount, ...]]


def outlook(host: Host, context: t.Optional[Context], topology: Topology) -> t.Optional[Outlook]:
    """The sizing of the node before and after a profile; None where there is no kubelet to size. No process is started.

    Without a context the node has no profile, and this topology.
    """
    asked = context is not None and context.profile.kubelet is not None
    has_profile = context is not None
    context = (context or kubelet_observed.without_profile(host, topology))._replace(in_tick=True)
    seen = kubelet_observed.observe(host, context, pools_stay=not has_profile)
    if seen.missing:
        return None
    now = tuple(kubelet_sizing.sizing(effective(seen.layers, seen.flags), seen.machine))
    if not asked or context.profile.kubelet is None:
        return Outlook(now, None)
    try:
        dummy, then = wanted_of(seen, context.profile.kubelet)
    except NotEditable:
        return Outlook(now, None)
    return Outlook(now, tuple(kubelet_sizing.sizing(then.config, seen.machine)))
