# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# This module is private to the collection corral.node.
"""The workloads manager: the checkpoint of grants, a slice with its limits for each workload, and its unit's place in it.

Which CPUs a slice has is the cpu manager's; who is granted what was settled before (settling.py).
"""

from __future__ import annotations

import fnmatch
import typing as t

from ..host import cgroup, hugepages, oom, state, systemd
from ..host import workloads as seen_workloads
from ..host.files import Host
from ..model import cpuset, grants, profile_workloads, qos, task_budget, unit_limits, unitproperty, workload_units
from ..model.admission import Refusal, Told
from ..model.agent_units import LAUNCHER
from ..model.context import Context, Workloads
from ..model.errors import Problem
from ..model.grants import Grant
from ..model.needs import Need
from ..model.plan import CLAIM, CPUS, FILES, LIVE, RELEASE, START, UNCHANGEABLE, UNKNOWN, Change, Part, Step
from ..model.profile_workloads import RUNNING
from ..model.resources import MEMORY, PIDS
from ..model.schema_types import is_own
from ..model.slices import SHARED
from ..model.unitfile import file_change
from ..model.unitproperty import ETC, Setting, dropin
from ..model.workload_units import NAME


class UnitState(t.NamedTuple):
    """What is seen of a workload's unit: whether there is one, its drop-in, what else places it, and where it runs."""

    there: bool
    dropin: t.Optional[str]
    slices: tuple[Setting, ...]
    quotas: tuple[Setting, ...]
    runs_in: t.Optional[str]


class State(t.NamedTuple):
    """What is seen of one workload: its slice's drop-in and kernel values (None: no slice), its unit, and the OOM scores
    that its processes should not have.
    """

    slice: str
    exists: bool
    dropin: t.Optional[str]
    values: dict[str, t.Optional[str]]
    hugetlb: dict[str, t.Optional[str]]
    unit: t.Optional[UnitState]
    scores: tuple[str, ...]


def plan(host: Host, context: Context) -> Part:
    """The workloads manager's part of the plan; without workloads, and grants of some, it has none."""
    found = context.workloads
    if found is None:
        return Part((), frozenset())
    unfit = unfit_problem(host, context)
    if unfit is not None:
        change = Change(NAME, "workloads", "placement", None, None, unfit.message, state.CHECKPOINT, (), UNKNOWN)
        running = [grant for grant in found.settled.grants if grant.cpus]
        if running and context.profile.cpu is None:
            kept = ", ".join(f"{grant.workload} (CPUs {cpuset.format(grant.cpus)})" for grant in running)
            unfit = Problem("cpu", None, f"{kept} runs and keeps its CPUs until it stops: stop it first, or keep cpu")
        if found.needs or running:
            return Part((change,), frozenset(), problems=(unfit,), manager=NAME)
        ended = [given_up(host)] if context.profile.cpu is None else []
        return Part(tuple(change for change in ended if change.steps), frozenset(), manager=NAME)
    sizes = sorted({row.size_kib for row in context.profile.memory.hugepages})
    by_name = {grant.workload: grant for grant in found.settled.grants}
    changes = [*admitted_changes(host, found), *checkpoint_changes(host, found)]
    held: set[str] = {f"controller:{cgroup.ROOT}/cgroup.subtree_control"} if found.needs else set()
    problems = [problem_of(context, refusal) for refusal in found.settled.refusals]
    problems += twice_matched(found.needs)
    notes = list(found.notes)
    memory = context.topology.machine_memory_kib
    own_tasks = task_budget.exclusive_limits(context)
    tasks = task_budget.share(context.profile.pids, context.profile.cpu, found.pids, own_tasks)
    containers = running_containers(host, found.needs)
    files = systemd.UnitFiles(host, seen_workloads.units_of(need.workload for need in found.needs))
    for need in found.needs:
        score = score_of(need, None if memory is None else memory << 10)
        if need.workload.is_template:
            changes += filter(None, [template_change(host, need, score)])
            held.add(f"file:{dropin(need.workload.template, NAME)}")
            continue
        grant = by_name.get(need.workload.name)
        wanted = unit_limits.of(need, bool(need.cpus), grant.mems if grant else None)
        if PIDS not in dict(need.limits) and tasks is not None and grants.is_exclusive(slice_for(need, grant)):
            # Nothing around a slice at the top keeps the reserve for the system.
            wanted = {**wanted, "TasksMax": str(tasks)}
        seen = observe(host, files, need, slice_for(need, grant), wanted, score, sizes)
        changes += slice_changes(host, need, grant, wanted, seen, sizes)
        held |= held_of(seen.slice, wanted if grant else {}, files=not need.workload.template)
        if need.workload.match == "unit":
            changes += unit_changes(need, seen.slice, seen.unit, score) if seen.unit else []
            problems += unit_problems(context, need, seen)
            if not need.workload.template:
                held.add(f"file:{dropin(need.workload.pattern, NAME)}")
            if seen.unit is not None and not seen.unit.there:
                notes.append(f"workload {need.workload.name}: this node has no unit {need.workload.pattern} yet")
        else:
            changes += filter(None, [container_change(need, seen.slice, containers)])
        if not need.cpus:
            changes += narrower_changes(host, need, wanted)
        changes += score_changes(host, need, seen, score)
    names = {need.workload.name for need in found.needs}
    orphans = [grant for grant in found.settled.grants if grant.hold == RUNNING and grant.workload not in names]
    held |= held_for_runs(host, orphans)
    changes += [refused_change(refusal) for refusal in found.settled.refusals]
    if orphans or any(need.workload.hold == RUNNING for need in found.needs):
        path = workload_units.GRANT_UNIT
        text = workload_units.grant_unit_text()
        changes += filter(
            None, [file_change(NAME, path, host.read(path), text, reason="admits workloads before they start")]
        )
        held.add(f"file:{path}")
        if not host.exists(LAUNCHER):
            notes.append("workloads with hold: running start once the agent is installed (corral.node.agent)")
    return Part(tuple(changes), frozenset(held), problems=tuple(problems), manager=NAME, notes=tuple(notes))


def unfit_problem(host: Host, context: Context) -> t.Optional[Problem]:
    """Why no workload can be given anything here; None when nothing is in the way."""
    if not systemd.runs(host):
        return Problem("workloads", None, "systemd does not run here, so workloads have no slices")
    if not cgroup.unified(host):
        message = "workloads with requests or limits need cgroup v2: boot with systemd.unified_cgroup_hierarchy=1, or leave these out"
        return Problem("workloads", None, message)
    if context.profile.cpu is None:
        message = "workloads were admitted at run time and need the pools of CPUs: release them first, or declare cpu.reserved"
        return Problem("cpu", None, message)
    return None


def given_up(host: Host) -> Change:
    """The end of all grants, before others get their CPUs: for a removal, and for a profile without pools of CPUs."""
    steps = tuple(kept_steps(host, state.CHECKPOINT, None))
    reason = "all grants end"
    return Change(NAME, state.CHECKPOINT, "content", "the grants", None, reason, state.CHECKPOINT, steps)


def empty_slices(host: Host) -> tuple[Change, ...]:
    """The slices of workloads that hold nobody: systemd started them with a unit that was then refused, and keeps them.

    For a removal alone: a unit may be about to start in one.
    """
    return tuple(
        Change(
            NAME, unit, "state", "active", "inactive", "nobody runs in it any more", cgroup.path_of(unit),
            (Step("unit", unit, "stop", RELEASE, 80),),
        )
        for unit in seen_workloads.slices(host)
        if not cgroup.populated(host, unit)
    )  # fmt: skip


def observe(
    host: Host,
    files: systemd.UnitFiles,
    need: Need,
    unit: str,
    limits: t.Iterable[str],
    score: t.Optional[int],
    sizes: t.Sequence[int],
) -> State:
    """Look at a workload, its slice ``unit`` and these ``limits`` of it: kernel files and systemd's files, no command."""
    path = cgroup.path_of(unit)
    exists = cgroup.exists(host, unit)
    values = {name: stripped(host.read(f"{path}/{unit_limits.FILES[name]}")) for name in limits if exists}
    hugetlb = (
        {name: stripped(host.read(f"{path}/{name}")) for name in unit_limits.hugetlb(need, sizes)} if exists else {}
    )
    service = observe_unit(host, files, need, unit) if need.workload.match == "unit" else None
    scores = host.oom_scores(path, str(score)) if exists and score is not None else ()
    return State(unit, exists, host.read(dropin(unit, NAME)), values, hugetlb, service, scores)


def observe_unit(host: Host, files: systemd.UnitFiles, need: Need, wanted: str) -> UnitState:
    """Look at a workload's unit."""
    unit = need.workload.pattern
    own = place_file(need)
    settings = files.settings(unit, "Slice")
    before = [item.value for item in settings if item.file != own and item.value]
    usual = before[-1] if before else systemd.usual_slice(unit)
    places = dict.fromkeys((wanted, usual, grants.slice_of(need.workload.name, exclusive=not need.cpus)))
    runs_in = next((place for place in places if cgroup.populated_at(host, f"{cgroup.path_of(place)}/{unit}")), None)
    quotas = files.settings(unit, "CPUQuota") if need.cpus else []
    there = seen_workloads.there(host, files, unit)
    return UnitState(there, files.text(own), tuple(settings), tuple(quotas), runs_in)


def place_file(need: Need) -> str:
    """The drop-in that places a workload's unit: its own, or its template's."""
    return dropin(need.workload.template or need.workload.pattern, NAME)


def stripped(text: t.Optional[str]) -> t.Optional[str]:
    """A kernel file's text."""
    return None if text is None else text.strip()


def slice_for(need: Need, grant: t.Optional[Grant]) -> str:
    """Where a workload belongs. One that was refused CPUs shares: without any its own slice would give it everybody's.

    What is admitted before each start has its slice even while it has nothing: it does not start without.
    """
    own = bool(grant.cpus) if grant else need.cpus > 0 and need.workload.hold == RUNNING
    return grants.slice_of(need.workload.name, exclusive=own)


def held_of(unit: str, wanted: t.Mapping[str, str], *, files: bool) -> set[str]:
    """The keys of what a workload's slice is held by; the slice itself is held with its limits, while there is a grant."""
    held = {f"file:{dropin(unit, NAME)}"} if files else set()
    return held | {f"property:{unit}:{name}" for name in wanted} | ({f"unit:{unit}"} if wanted else set())


def held_for_runs(host: Host, orphans: t.Sequence[Grant]) -> set[str]:
    """The keys of what grants need until their run ends, though their workloads are declared no more.

    Without the drop-in that requires the unit which holds the grant systemd would end that one under the running workload.
    """
    held: set[str] = set()
    names = host.names(ETC) if orphans else []
    paths = [f"{ETC}/{name}/10-corral-{NAME}.conf" for name in names if name.endswith(".service.d")]
    texts = {path: host.read(path) or "" for path in paths}
    for grant in orphans:
        instance = profile_workloads.slice_name(grant.workload).partition("\\x40")[2]
        # Its slice may be another one by now: without the static policy new runs share.
        line = f"Requires={workload_units.grant_unit(grant.workload)}\n"
        held |= {f"file:{path}" for path, text in texts.items() if line in text.replace("%i", instance)}
        held |= held_of(grant.slice, dict.fromkeys(unit_limits.FILES, ""), files=True)
    return held


# The checkpoint


def checkpoint_changes(host: Host, found: Workloads) -> list[Change]:
    """What becomes of grants. It is written before anything takes effect: after a death the next look goes on from it."""
    path, changes = state.CHECKPOINT, [told_change(told) for told in found.settled.told]
    before = host.read(path, follow=False)
    keeps = found.needs or found.settled.grants
    steps = kept_steps(host, path, checkpoint_text(found) if keeps else None, "damaged" if found.damage else "")
    if not steps:
        return changes
    if not changes or found.damage:
        reason = found.damage or "; ".join(found.drifted) or "what was granted is kept there"
        shown = None if before is None else "unreadable" if found.damage else "an earlier one"
        changes.insert(0, Change(NAME, path, "content", shown, f"{len(found.settled.grants)} grants", reason, path))
    return [changes[0]._replace(steps=tuple(steps)), *changes[1:]]


def kept_steps(host: Host, path: str, text: t.Optional[str], aside: str = "", order: int = 0) -> list[Step]:
    """The steps that bring a file of Corral's state and its second copy to a text (None: to nothing).

    What the file held is kept under the suffix ``aside``, where that is given.
    """
    before = host.read(path, follow=False)
    if text is None:
        there = filter(host.exists, state.rest_of(path))
        return [Step("file", gone, None, CLAIM, order + number) for number, gone in enumerate(there)]
    steps = []
    if aside and before not in (None, text):
        steps.append(Step("file", f"{path}.{aside}", before, CLAIM, order, mode=state.PRIVATE))
    for number, copy in enumerate((path, f"{path}.previous"), 1):
        if host.read(copy, follow=False) != text:
            steps.append(Step("file", copy, text, CLAIM, order + number, mode=state.PRIVATE))
    return steps


def checkpoint_text(found: Workloads) -> str:
    """The checkpoint that is to be, as a file."""
    return state.checked_text(grants.to_data(grants.Checkpoint(found.settled.grants, found.totals)))


def admitted_changes(host: Host, found: Workloads) -> list[Change]:
    """The file of the workloads that were admitted at run time, where they change."""
    if found.admitted is None:
        return []
    rows = profile_workloads.to_data(found.admitted)
    steps = kept_steps(host, state.ADMITTED, state.checked_text(rows) if rows else None, order=4)
    if not steps:
        return []
    names = ", ".join(one.name for one in found.admitted) or None
    shown = "others" if host.exists(state.ADMITTED) else None
    return [Change(NAME, state.ADMITTED, "content", shown, names, "admitted at run time", state.ADMITTED, tuple(steps))]


def told_change(told: Told) -> Change:
    """A grant that is made, moves or ends."""
    sides = [None if one is None else grant_text(one) for one in (told.before, told.after)]
    return Change(NAME, told.workload, "grant", sides[0], sides[1], told.reason, state.CHECKPOINT)


def grant_text(grant: Grant) -> str:
    """A grant on one line."""
    cpus = f"CPUs {cpuset.format(grant.cpus)}" if grant.cpus else "shared CPUs"
    mems = "" if grant.mems is None else f", memory of node {cpuset.format(grant.mems)}"
    run = f", run {grant.instance[:8]}" if grant.instance else ""
    return f"{cpus}{mems}{run}"


def refused_change(refusal: Refusal) -> Change:
    """The item of a workload that does not get what it asks for."""
    return Change(
        NAME,
        refusal.workload,
        refusal.key,
        "nothing",
        refusal.value,
        refusal.message,
        state.CHECKPOINT,
        (),
        UNCHANGEABLE,
    )


def problem_of(context: Context, refusal: Refusal) -> Problem:
    """A refusal as a reason not to begin with the profile."""
    name = refusal.workload.partition(":")[0]
    index = next((i for i, one in enumerate(context.profile.workloads) if one.name == name), None)
    path = refusal.workload if index is None else f"workloads[{index}]"
    return Problem(f"{path}.{refusal.key}", refusal.value, f"{refusal.workload}: {refusal.message}")


def twice_matched(needs: t.Sequence[Need]) -> list[Problem]:
    """Units that two workloads match: neither can be said to have them."""
    owners: dict[str, str] = {}
    found = []
    for need in needs:
        if need.workload.match != "unit":
            continue
        unit, name = need.workload.pattern, need.workload.name
        if unit in owners:
            message = f"both {owners[unit]} and {name} match it: narrow the pattern of one"
            if owners[unit] == name:
                message = f"was admitted at run time under this name already: corral release {name} first"
            found.append(Problem("workloads", unit, message))
        owners.setdefault(unit, name)
    return found


# Slices


def slice_changes(
    host: Host, need: Need, grant: t.Optional[Grant], wanted: t.Mapping[str, str], seen: State, sizes: t.Sequence[int]
) -> list[Change]:
    """The changes of a workload's slice: its drop-in, its limits in force, and that it is there."""
    lasting = {
        name: value for name, value in wanted.items() if name != "AllowedMemoryNodes" or need.workload.hold != RUNNING
    }
    text = workload_units.slice_text(need, seen.slice, lasting)
    path = dropin(seen.slice, NAME)
    # A slice that is yet to start finds it there.
    phase = FILES if seen.exists else CLAIM
    change = file_change(NAME, path, seen.dropin, text, reason=f"limits of workload {need.workload.name}", phase=phase)
    # Instances of a template come and go: theirs are set at each start, with no file that systemd would have to read.
    changes = [change] if change and not need.workload.template else []
    if not seen.exists:
        if grant is not None and not grant.cpus:
            step = Step("unit", seen.slice, "start", START)
            reason = "the workload's slice does not run yet"
            changes.append(
                Change(NAME, seen.slice, "state", "inactive", "active", reason, cgroup.path_of(seen.slice), (step,))
            )
        if grant is not None:
            changes += early_limits(need, seen, wanted)
            changes += hugetlb_changes(host, need, seen, sizes)
        return changes
    if grant is not None:  # The slice of somebody who waits for his start is nobody's yet.
        changes += filter(None, (limit_change(seen, name, value) for name, value in wanted.items()))
        changes += hugetlb_changes(host, need, seen, sizes)
    return changes


def early_limits(need: Need, seen: State, wanted: t.Mapping[str, str]) -> list[Change]:
    """The limits of a slice that is about to start and has no drop-in for them."""
    names = [name for name in wanted if need.workload.template or name == "AllowedMemoryNodes"]
    found = (limit_change(seen, name, wanted[name]) for name in names if need.workload.hold == RUNNING)
    return [change for change in found if change is not None]


def narrower_changes(host: Host, need: Need, wanted: t.Mapping[str, str]) -> list[Change]:
    """The limits that a workload on the shared pool cannot reach: those of the slice around all of them are lower."""
    found = []
    for name in ("TasksMax", "MemoryMax", "CPUQuota"):
        place = f"{cgroup.path_of(SHARED)}/{unit_limits.FILES[name]}"
        own, around = unit_limits.kernel(name, wanted[name]), stripped(host.read(place)) or "max"
        around = unit_limits.meaning(name, around)
        if "max" in (own, around) or int(around.split()[0]) >= int(own.split()[0]):
            continue
        reason = f"{SHARED} is limited to less: raise that, or lower the limit of {need.workload.name}"
        subject = need.workload.name
        found.append(Change(NAME, subject, f"{name} in force", around, own, reason, place, (), UNCHANGEABLE))
    return found


def limit_change(seen: State, name: str, value: str) -> t.Optional[Change]:
    """The change of one limit in force."""
    actual, target = seen.values.get(name), unit_limits.kernel(name, value)
    shown = None if actual is None else unit_limits.meaning(name, actual)
    nothing_yet = actual is None and (target == "max" or (name == "CPUWeight" and target == unit_limits.DEFAULT_WEIGHT))
    if shown == target or nothing_yet:
        return None
    place = f"{cgroup.path_of(seen.slice)}/{unit_limits.FILES[name]}"
    # Memory nodes before the first process comes: with the CPUs, once the slice is there.
    phase, order = (CPUS, 1 << 30) if name == "AllowedMemoryNodes" else (LIVE, 0)
    step = Step("property", seen.slice, f"{name}={value}", phase, order)
    return Change(NAME, seen.slice, name, actual, target, "the limit in force is another", place, (step,))


def hugetlb_changes(host: Host, need: Need, seen: State, sizes: t.Sequence[int]) -> list[Change]:
    """The limits of hugepages, which systemd has no property for: the controller down the path, then the file."""
    changes = []
    path = cgroup.path_of(seen.slice)
    limits = unit_limits.hugetlb(need, [size for size in sizes if hugepages.pool(host, size, None) is not None])
    for file, limit in limits.items():
        actual = seen.hugetlb.get(file)
        if actual == str(limit) or not cgroup.offers(host, "hugetlb"):
            continue
        above = [place for place in cgroup.ancestors(path) if "hugetlb" not in cgroup.delegated(host, place)]
        steps = [Step("controller", f"{place}/cgroup.subtree_control", "+hugetlb", START, 1) for place in above]
        steps.append(Step("value", f"{path}/{file}", str(limit), START, 2))
        changes.append(
            Change(
                NAME,
                seen.slice,
                file[: -len(".max")],
                actual,
                str(limit),
                "the limit in force is another",
                f"{path}/{file}",
                tuple(steps),
            )
        )
    return changes


# Units


def unit_changes(need: Need, home: str, found: UnitState, score: t.Optional[int]) -> list[Change]:
    """The changes of a workload's unit: its drop-in, and that it runs where it belongs."""
    unit = need.workload.pattern
    changes = []
    text = workload_units.unit_dropin(need, home, score, exclusive=bool(need.cpus))
    change = file_change(NAME, dropin(unit, NAME), found.dropin, text, reason=f"places {unit} in its slice")
    if change is not None and not need.workload.template:
        changes.append(change)
    changes += filter(None, [later_change(need, "CPUQuota", found.quotas, "")] if need.cpus else [])
    if found.runs_in is not None and found.runs_in != home:
        changes.append(
            Change(
                NAME, unit, "slice", found.runs_in, home,
                f"a unit moves when it starts: systemctl restart {unit}",
                f"{cgroup.path_of(found.runs_in)}/{unit}", (), UNCHANGEABLE, "next start", "service restart",
            )
        )  # fmt: skip
    return changes


def template_change(host: Host, need: Need, score: t.Optional[int]) -> t.Optional[Change]:
    """The drop-in of a template: it places every instance, also one that nobody has seen yet."""
    unit = need.workload.template
    path = dropin(unit, NAME)
    text = workload_units.unit_dropin(need, slice_for(need, None), score, exclusive=bool(need.cpus))
    return file_change(NAME, path, host.read(path), text, reason=f"places instances of {unit} in their slices")


def unit_problems(context: Context, need: Need, seen: State) -> list[Problem]:
    """A unit that somebody else's file keeps in another slice: there it would get that slice's CPUs."""
    found = seen.unit
    change = later_change(need, "Slice", found.slices, seen.slice) if found else None
    if change is None:
        return []
    return [problem_of(context, Refusal(need.workload.name, "match.unit", need.workload.pattern, change.reason))]


def later_change(need: Need, name: str, settings: t.Sequence[Setting], wanted: str) -> t.Optional[Change]:
    """A file of somebody else that sorts after our drop-in and sets a property otherwise."""
    ours = place_file(need)
    coming = unitproperty.foretold(settings, ours, (wanted,))
    result = coming[-1].value if coming else wanted
    return unitproperty.later_change(NAME, need.workload.pattern, name, coming, result, wanted, ours)


def running_containers(host: Host, needs: t.Iterable[Need]) -> list[tuple[str, str]]:
    """Name and control group of the running containers that may be workloads'. Only Podman knows of pods and labels."""
    kinds = [(need.workload.match, need.workload.pattern) for need in needs if need.workload.match != "unit"]
    patterns = sorted({pattern if match == "container" else "*" for match, pattern in kinds})
    return host.containers(cgroup.ROOT, tuple(patterns)) if patterns else []


def container_change(need: Need, home: str, running: t.Iterable[tuple[str, str]]) -> t.Optional[Change]:
    """A container of a workload that was started past Corral: it runs with everybody else.

    Where one may be the workload's and nothing but Podman can say so, it is unknown whether it is in place.
    """
    kind, pattern = need.workload.match, need.workload.pattern
    inside = f"{cgroup.path_of(home)}/"
    outside = [(name, place) for name, place in running if not f"{place}/".startswith(inside)]
    way_out = f"start it with --cgroup-parent={home}, or as a unit (Quadlet) that the workload matches"
    named = [one for one in outside if kind == "container" and fnmatch.fnmatchcase(one[0], pattern)]
    if named:
        name, place = named[0]
        actual = f"{name} in {slice_shown(place)}{'' if len(named) == 1 else f', and {len(named) - 1} more'}"
        verdict = UNCHANGEABLE
        return Change(
            NAME,
            need.workload.name,
            "slice",
            actual,
            home,
            way_out,
            place,
            (),
            verdict,
            "next start",
            "service restart",
        )
    maybe = [one for one in outside if not (kind == "container" and one[0]) and not in_own_slice(one[1])]
    if not maybe:
        return None
    name, place = maybe[0]
    who = f"{name or 'a container that has lost its monitor (conmon)'} runs in {slice_shown(place)}"
    reason = f"{who}, and only Podman knows whether it is one of {kind} {pattern}: if so, {way_out}"
    return Change(NAME, need.workload.name, "slice", None, home, reason, place, (), UNKNOWN)


def in_own_slice(place: str) -> bool:
    """Whether a control group lies in a slice of Corral's."""
    return is_own(place[len(cgroup.ROOT) + 1 :].partition("/")[0])


def slice_shown(place: str) -> str:
    """What a container's control group lies in, as a person reads it."""
    return place[len(cgroup.ROOT) + 1 :].partition("/libpod-")[0] or "the root"


# OOM scores


def score_of(need: Need, capacity: t.Optional[int]) -> t.Optional[int]:
    """oom_score_adj of a workload's processes; None where the machine's memory is not known."""
    if capacity is None and need.qos == qos.BURSTABLE:
        return None
    return qos.oom_score_adj(need.qos, dict(need.requests).get(MEMORY, 0), capacity or 1)


def score_changes(host: Host, need: Need, seen: State, score: t.Optional[int]) -> list[Change]:
    """Processes that have another score: OOMScoreAdjust= reaches a unit at its start only."""
    if score is None or not seen.scores:
        return []
    others = oom.others(host, cgroup.path_of(seen.slice), str(score))
    steps = tuple(Step("value", f"/proc/{pid}/oom_score_adj", str(score), LIVE, optional=True) for pid in others)
    if not steps:
        return []
    actual = ", ".join(seen.scores)
    place = f"/proc/{others[0]}/oom_score_adj"
    return [
        Change(
            NAME, need.workload.name, "oom_score_adj", actual, str(score), "processes have another score", place, steps
        )
    ]
