# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# This module is private to the collection corral.node.
"""The cpu manager: the tree of slices that gives each pool of CPUs a home (cgroup v2, systemd.resource-control(5)).

Persistent by drop-ins, live by properties; both are compared, the live side with what the kernel has in force.
cgroup v1 has a file of its own, cpu_v1.py.
"""

from __future__ import annotations

import typing as t

from ..host import cgroup, systemd
from ..host.files import Host
from ..model import cpuset, grants, handover, slices, unitproperty
from ..model.context import Context
from ..model.grants import EXCLUSIVE
from ..model.plan import CPUS, RELEASE, UNCHANGEABLE, Change, Part, Step
from ..model.slices import ISOLATED, TOP, described
from ..model.unitfile import file_change, section_of, unit_text
from ..model.unitproperty import Setting, control_file, dropin

NAME = slices.MANAGER
TARGET = "slices.target"


class UnitState(t.NamedTuple):
    """What is seen of one slice or scope; ``peopled`` is looked at for the slices of workloads alone."""

    exists: bool
    cpus: cgroup.Cpus
    dropin: t.Optional[str]
    settings: tuple[Setting, ...]
    peopled: bool = True


class Observation(t.NamedTuple):
    """What is seen of the slice tree. ``in_frames`` counts processes directly in a slice that is to hold slices only."""

    units: dict[str, UnitState]
    strangers: tuple[str, ...]
    in_frames: dict[str, int]
    target: t.Optional[str]


class Wanted(t.NamedTuple):
    """The CPUs of each unit: ``now`` in force, and ``lasting`` in files. They differ by the grants that end with a run."""

    now: dict[str, frozenset[int]]
    lasting: dict[str, frozenset[int]]
    refuge: frozenset[int]


def plan(host: Host, context: Context) -> Part:
    """The cpu manager's part of the plan; a profile without ``cpu`` has none."""
    cpu = context.profile.cpu
    if cpu is None:
        return Part((), frozenset())
    if not systemd.runs(host):
        return slices.unknown("systemd does not run here, so no slice has CPUs of its own", cgroup.ROOT)
    now = slices.wanted_cpus(cpu, context.pools, context.grants)
    if cgroup.unified(host):
        lasting = slices.wanted_cpus(cpu, context.lasting_pools, grants.lasting(context.grants))
        return decide(Wanted(now, lasting, context.pools.reserved), observe(host, now))
    from . import cpu_v1  # A node has one version: the others' tick does not pay for it.

    return cpu_v1.plan(host, context.pools, now)


def observe(host: Host, wanted: t.Mapping[str, frozenset[int]]) -> Observation:
    """Read the slice tree: kernel files and systemd's files, no command."""
    units = {}
    looked_at = slices.looked_at(wanted, cgroup.slices_in(host, EXCLUSIVE))
    files = systemd.UnitFiles(host, looked_at)
    for unit in looked_at:
        units[unit] = UnitState(
            cgroup.exists(host, unit),
            cgroup.cpus(host, unit),
            files.text(dropin(unit, NAME)),
            tuple(files.settings(unit, "AllowedCPUs")),
            EXCLUSIVE not in slices.frames_of(unit) or cgroup.populated(host, unit),
        )
    strangers = tuple(name for name in cgroup.top_level(host) if name not in units and cgroup.populated(host, name))
    strangers = (*strangers, *cgroup.foreign(host))
    in_frames = {frame: cgroup.own_processes(host, frame) for frame in (TOP, EXCLUSIVE) if frame in wanted}
    return Observation(units, strangers, in_frames, host.read(dropin(TARGET, NAME)))


def decide(wanted: Wanted, seen: Observation) -> Part:
    """The changes that bring the slice tree to what is wanted."""
    # Nobody runs in the empty slice of a workload, whatever CPUs it has.
    now = {
        unit: (state.cpus.effective if state.peopled else None) or frozenset() if state.exists else None
        for unit, state in seen.units.items()
    }
    homes, frames = slices.homes_of(wanted.now, now, described)
    moves = handover.order(homes, frames, wanted.refuge)
    changes: list[Change] = []
    for unit, cpus in wanted.now.items():
        changes += filter(None, [live_change(unit, cpus, wanted.now, seen)])
    for unit, cpus in wanted.lasting.items():
        changes += filter(
            None, [dropin_change(unit, cpus, seen), override_change(unit, cpus, wanted.now.get(unit), seen)]
        )
    changes += [left_change(unit, seen) for unit in left_over(wanted, seen)]
    changes += filter(None, [target_change(wanted.lasting, seen)])
    changes += slices.stray_changes(seen.strangers, seen.in_frames, cgroup.path_of)
    remember = [
        Step("property", unit, "AllowedCPUs=", RELEASE)
        for unit, cpus in wanted.lasting.items()
        if kept_by_others(unit, cpus, seen)
    ]
    moved = with_moves(changes, moves, seen, wanted)
    return Part(moved, held_by(wanted, seen), tuple(homes), manager=NAME, remember=tuple(remember))


def left_over(wanted: Wanted, seen: Observation) -> list[str]:
    """The slices of workloads that are no longer to have CPUs of their own, with processes still in them."""
    return [
        unit
        for unit, state in seen.units.items()
        if EXCLUSIVE in slices.frames_of(unit) and unit not in wanted.now and state.exists and state.peopled
    ]


def left_change(unit: str, seen: Observation) -> Change:
    """The item of a workload that lost its CPUs while it runs: it shares until it is started anew."""
    state = seen.units[unit]
    return Change(
        NAME, unit, "placement", f"runs on {cpuset.format(state.cpus.effective or ())}", "stopped",
        "the workload has no CPUs of its own any more, it runs as shared: restart it to move it",
        cgroup.path_of(unit), (), UNCHANGEABLE, "next start", "service restart",
    )  # fmt: skip


def live_change(
    unit: str, cpus: frozenset[int], wanted: t.Mapping[str, frozenset[int]], seen: Observation
) -> t.Optional[Change]:
    """The change of what the kernel has in force for a unit; its steps are the hand-over's."""
    state = seen.units[unit]
    place = f"{cgroup.path_of(unit)}/cpuset.cpus"
    if not state.exists:
        if not described(unit):
            return None  # It takes its CPUs from the drop-in when it starts.
        return Change(NAME, unit, "AllowedCPUs", None, cpuset.format(cpus), "the pool's slice does not run yet", place)
    requested, effective = state.cpus
    if requested == cpus and effective == cpus:
        return None
    above = next((frame for frame in slices.frames_of(unit) if seen.units[frame].cpus.requested != wanted[frame]), None)
    if requested == cpus and above is not None:
        return None  # The parent's own item says it.
    if requested == cpus:
        return Change(
            NAME, unit, "cpuset.cpus.effective", cpuset.format(effective or ()), cpuset.format(cpus),
            "the kernel does not have in force what was asked for", f"{cgroup.path_of(unit)}/cpuset.cpus.effective",
        )  # fmt: skip
    shown = cpuset.format(requested) if requested else f"all ({cpuset.format(effective or ())})"
    return Change(NAME, unit, "AllowedCPUs", shown, cpuset.format(cpus), reason_of(unit, state, cpus), place)


def reason_of(unit: str, state: UnitState, cpus: frozenset[int]) -> str:
    """Who else asks for other CPUs, as far as files tell."""
    by_hand = unitproperty.set_by_hand(unit, "AllowedCPUs", state.settings)
    if by_hand is not None and merged(state.settings) != cpus:
        return f"{by_hand.file} sets {by_hand.value or 'nothing'} (systemctl set-property)"
    return "the pool's CPUs are not what runs"


def assigned(cpus: frozenset[int]) -> tuple[str, str]:
    """What the drop-in assigns. Lists add up over drop-ins, so it begins with an empty assignment."""
    return "", cpuset.format(cpus)


def dropin_text(unit: str, cpus: frozenset[int]) -> str:
    """The drop-in of a unit."""
    description = [("Unit", [f"Description={described(unit)}"])] if described(unit) else []
    return unit_text(*description, (section_of(unit), [f"AllowedCPUs={value}" for value in assigned(cpus)]))


def kept_by_others(unit: str, cpus: frozenset[int], seen: Observation) -> bool:
    """Whether files of somebody else give a unit these very CPUs at the next boot: ours is not needed then."""
    state = seen.units[unit]
    others = unitproperty.lasting(state.settings)
    return state.dropin is None and not described(unit) and bool(others) and merged(others) == cpus


def dropin_change(unit: str, cpus: frozenset[int], seen: Observation) -> t.Optional[Change]:
    """The change of the drop-in that keeps the CPUs over a reboot."""
    path = dropin(unit, NAME)
    if kept_by_others(unit, cpus, seen):
        return None
    return file_change(
        NAME, path, seen.units[unit].dropin, dropin_text(unit, cpus), reason=f"keeps {unit}'s CPUs over a reboot"
    )


def override_change(
    unit: str, cpus: frozenset[int], now: t.Optional[frozenset[int]], seen: Observation
) -> t.Optional[Change]:
    """A file of somebody else that wins at the next reload, over our drop-in or the one that we would write.

    While the CPUs differ from those wanted ``now`` the live item names what set-property left, and removes it.
    """
    state = seen.units[unit]
    if state.dropin not in (None, dropin_text(unit, cpus)) or kept_by_others(unit, cpus, seen):
        return None
    coming = unitproperty.foretold(state.settings, dropin(unit, NAME), assigned(cpus))
    result = cpuset.format(merged(coming) or ())
    change = unitproperty.later_change(NAME, unit, "AllowedCPUs", coming, result, cpuset.format(cpus))
    differs = state.exists and state.cpus.requested != now
    return None if change is not None and change.steps and differs else change


def merged(settings: t.Iterable[Setting]) -> t.Optional[frozenset[int]]:
    """The CPUs that systemd makes of all assignments: they add up, an empty one resets; None for garbage."""
    total: frozenset[int] = frozenset()
    for item in settings:
        # systemd takes blanks and commas as separators (systemd.resource-control(5)).
        part = cgroup.cpu_list(",".join(item.value.replace(",", " ").split()))
        if part is None:
            return None
        total = total | part if item.value else frozenset()
    return total


def target_change(wanted: t.Mapping[str, frozenset[int]], seen: Observation) -> t.Optional[Change]:
    """The pools' slices are there from boot, before anything asks for them."""
    slices = [unit for unit in wanted if described(unit)]
    return file_change(
        NAME,
        dropin(TARGET, NAME),
        seen.target,
        unit_text(("Unit", [f"Wants={' '.join(slices)}"])),
        reason="starts the pools' slices at boot",
    )


def with_moves(
    changes: t.Sequence[Change],
    moves: t.Sequence[tuple[str, frozenset[int]]],
    seen: Observation,
    wanted: Wanted,
) -> tuple[Change, ...]:
    """The changes with the hand-over's steps. A new slice gets its drop-in first, so that it starts on its CPUs.

    A step whose unit has no item of its own (a frame that makes room) goes with the first item that moves.
    """
    steps: dict[str, list[Step]] = {}
    started: dict[str, int] = {}
    order = 0
    for unit, cpus in moves:
        mine = steps.setdefault(unit, [])
        order += 10
        if described(unit) and unit not in started:
            # A control group can be there without its slice: a property set on a slice that does not run makes one,
            # and nothing more. Starting a slice that runs does nothing.
            started[unit] = order
            mine.append(Step("unit", unit, "start", CPUS, order + 1))
        mine.append(Step("property", unit, f"AllowedCPUs={cpuset.format(cpus)}", CPUS, order + 2))
    # A requested set can differ while the effective one is right (a sibling's write narrowed neither): write it again.
    for unit in (change.subject for change in changes if change.property in ("AllowedCPUs", "cpuset.cpus.effective")):
        if unit not in steps and unit in seen.units:
            order += 10
            steps[unit] = [Step("property", unit, f"AllowedCPUs={cpuset.format(wanted.now[unit])}", CPUS, order)]
    result = []
    for change in changes:
        if change.property in ("AllowedCPUs", "cpuset.cpus.effective"):
            own = steps.pop(change.subject, [])
            settings = seen.units[change.subject].settings
            cpus = wanted.lasting.get(change.subject, wanted.now[change.subject])
            wrong = not kept_by_others(change.subject, cpus, seen)
            by_hand = unitproperty.removal(change.subject, "AllowedCPUs", settings) if wrong else ()
            change = change._replace(steps=(*change.steps, *own, *by_hand))
        result.append(with_early_file(change, started, seen, wanted))
    if steps and result:
        rest = [step for leftover in steps.values() for step in leftover]
        first = next((index for index, change in enumerate(result) if change.steps), 0)
        result[first] = result[first]._replace(steps=(*result[first].steps, *rest))
    return tuple(result)


def with_early_file(
    change: Change,
    started: t.Mapping[str, int],
    seen: Observation,
    wanted: Wanted,
) -> Change:
    """The change with its drop-in written before the unit can start on it.

    A pool's new slice finds it when the hand-over starts it. Any other slice that does not run may be started by
    somebody in the middle: its old drop-in must not give it CPUs that are about to be isolated, nor the new one those
    that still are.
    """
    unit = next((unit for unit in wanted.lasting if change.subject == dropin(unit, NAME)), None)
    if unit is None or seen.units[unit].exists or not change.steps:
        return change
    if unit in started:
        return change._replace(steps=tuple(step._replace(phase=CPUS, order=started[unit]) for step in change.steps))
    own = [state for name, state in seen.units.items() if name == ISOLATED or EXCLUSIVE in slices.frames_of(name)]
    guarded = frozenset().union(*(state.cpus.effective or () for state in own if state.exists and state.peopled))
    # As in the hand-over itself, shared workloads may wait on the reserved pool.
    safe = (wanted.lasting[unit] - guarded) or (wanted.refuge - guarded)
    early = change.steps[0]._replace(phase=CPUS, order=0, value=dropin_text(unit, safe))
    if safe == wanted.lasting[unit]:
        return change._replace(steps=(early,))
    return change._replace(steps=(early, *change.steps)) if safe else change


def held_by(wanted: Wanted, seen: Observation) -> frozenset[str]:
    """The keys of all that this manager holds for the profile.

    The slice of a workload that lost its CPUs is held until it is empty; then it stops.
    """
    held = {f"file:{dropin(TARGET, NAME)}"}
    for unit in wanted.lasting:
        held |= {f"file:{dropin(unit, NAME)}", f"file:{control_file(unit, 'AllowedCPUs', runtime=False)}"}
    left = left_over(wanted, seen)
    for unit in (*wanted.now, *left, *([EXCLUSIVE] if left else [])):
        held |= {
            f"property:{unit}:AllowedCPUs",
            f"unit:{unit}",
            f"cpuset:{cgroup.path_of(unit, cgroup.CPUSETS)}",  # from before a boot with v1
        }
    return frozenset(held)
