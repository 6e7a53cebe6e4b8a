# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# This module is private to the collection corral.node.
"""The hand-over of CPUs between the units of the cpu manager: which units move, in which order, and the steps of each move."""

from __future__ import annotations

import typing as t

from ...host import cgroup, systemd
from ...model.cpu import handover, partitions, slices, unmanaged_groups
from ...model.cpu.partitions import MEMBER
from ...model.cpu.slices import described
from ...model.plan import make_step
from ...model.plan.context import Context
from ...model.plan.plan import CPUS, DRIFT, Change, Step
from ...model.profile.schema_types import CORRAL_SLICE
from ...model.systemd import unit_property
from ...model.values import cpuset
from ...model.values.records import NamedTuple
from ...model.workload.grants import is_exclusive
from .cpu_dropins import NEXT_START, after_reload, kept_by_others
from .cpu_observed import Observation, UnitState, Wanted

# The order of the steps of a hand-over. CONTROLLER: the controller is switched on. UNMADE: invalid partitions end, and valid partitions
# release CPUs (only of slices in reduced_requests()). UNCLAIMED: the other slices request fewer CPUs. ENDED: partitions end. START_MISSING:
# missing slices start. Then each move has MOVE numbers: for the START of the slice, its CPUs (SET) and its partition (MADE).
CONTROLLER, UNMADE, UNCLAIMED, ENDED, START_MISSING, MOVE = -1, 0, 1, 2, 3, 10
START, SET, MADE = 3, 4, 6
LIVE_PROPERTIES = ("AllowedCPUs", "cpuset.cpus.effective", NEXT_START)


class Moves(NamedTuple):
    """A hand-over. ``writes``: pairs of a unit and its new CPUs, in the order of the writes. ``starting``: the shared and reserved slices
    that start first, with their CPUs. ``stopped``: the exclusive slices that do not run, with the CPUs with which they would start.

    ``placed``: the unmanaged units that Corral gives CPUs. ``confined``: the placed units that get the shared CPUs. ``rivals``: the CPUs
    that each unmanaged control group outside ``placed`` requests.
    """

    writes: list[tuple[str, frozenset[int]]]
    starting: dict[str, frozenset[int]]
    stopped: dict[str, frozenset[int]]
    placed: dict[str, handover.Slice]
    confined: frozenset[str]
    rivals: dict[str, frozenset[int]]

    @property
    def units(self) -> frozenset[str]:
        """The units that get CPUs."""
        return frozenset(unit for unit, dummy in self.writes)


def plan_moves(wanted: Wanted, seen: Observation, context: Context) -> Moves:
    """The hand-over that leads to the wanted CPUs. Raises NoSafeOrder if every order of writes has an overlap."""
    stopped, starting = stopped_with_cpus(wanted, seen), started_on(wanted, seen)
    by_files = others_by_files(wanted, seen)
    now = {**claims(wanted, seen, by_files), **stopped, **starting}
    placed = placed_in(wanted, seen, refused_in(wanted, seen, context, now), context)
    # A request for CPUs that a partition has is in vain: a shared slice gets none of them by its write until the partition releases them.
    requested = {one.name: one.requested & one.cpus for one in seen.unmanaged}
    for unit, state in seen.units.items():
        # If systemd has read other CPUs from a file, systemd sets the file's CPUs once it looks at the unit, and the present request ends.
        asked = (state.cpus.requested or cpuset.EMPTY) & by_files.get(unit, wanted.online)
        requested[unit] = asked if is_exclusive(unit) else asked & (state.cpus.effective or cpuset.EMPTY)
    requested.update({unit: cpus for unit, cpus in stopped.items() if unit in wanted.now}, **starting)
    reduced = stopped_unmanaged(wanted, seen, context)
    rivals = {one.name: one.requested for one in seen.unmanaged if one.name not in placed}
    view = slices.handover_slices(wanted.now, now, [*placed.values(), *reduced], requested)
    writes = handover.order(view, wanted.reserved, cpuset.EMPTY.union(*rivals.values()))
    # A stopped slice that would get just the shared CPUs is started too: only then can its live setting be removed.
    others = stopped.keys() - wanted.now.keys() - {unit for unit, dummy in writes}
    writes += [(unit, wanted.now[CORRAL_SLICE]) for unit in sorted(others)]
    return Moves(writes, starting, stopped, placed, frozenset(placed if wanted.confine else ()), rivals)


def is_valid_partition(unit: str, state: UnitState) -> bool:
    """Whether an exclusive slice is a valid partition."""
    return is_exclusive(unit) and state.partition in (partitions.ROOT, partitions.UNBALANCED)


def claims(
    wanted: Wanted, seen: Observation, by_files: t.Mapping[str, frozenset[int]]
) -> dict[str, t.Optional[frozenset[int]]]:
    """The CPUs that each unit has, or gets without a write of Corral's; None for a unit that does not run.

    The result has the CPUs in force, the CPUs in ``by_files``, and the CPUs that a shared or reserved slice requests and gets later: when
    the slice is no longer a partition (the first step of the plan), or when another partition releases the CPUs (from kernel 7.0 on).
    """
    kept = (
        (seen.units[unit].cpus.effective or cpuset.EMPTY) & cpus
        for unit, cpus in wanted.exclusive.items()
        if is_valid_partition(unit, seen.units[unit])
    )
    open_to_others = wanted.online - seen.foreign.union(*kept)
    found = {}
    for unit, state in seen.units.items():
        cpus = state.now()
        if state.exists and not is_exclusive(unit):
            cpus = (cpus or cpuset.EMPTY) | (state.cpus.requested or cpuset.EMPTY) & open_to_others
        found[unit] = (cpus or cpuset.EMPTY) | by_files[unit] if unit in by_files else cpus
    return found


def refused_in(
    wanted: Wanted, seen: Observation, context: Context, now: t.Mapping[str, t.Optional[frozenset[int]]]
) -> frozenset[str]:
    """The unmanaged units whose change of CPUs failed a short time ago: systemd may have stopped such a unit, and left processes.

    A unit that requests CPUs which an exclusive slice is about to get is left out: the slice needs the CPUs, so this plan tries again.
    """
    gains = cpuset.EMPTY.union(*(cpus - (now[unit] or cpuset.EMPTY) for unit, cpus in wanted.exclusive.items()))
    attempts = {
        one.name: context.attempts.get(cgroup.path_of(one.name)) for one in seen.unmanaged if not one.requested & gains
    }
    return frozenset(
        name for name, found in attempts.items() if found is not None and partitions.too_soon(found, context)
    )


def placed_in(
    wanted: Wanted, seen: Observation, refused_lately: t.Container[str], context: Context
) -> dict[str, handover.Slice]:
    """The unmanaged units that Corral gives CPUs, as slices of the hand-over.

    With ``cpu.unmanaged: confine`` these units get the shared CPUs. Otherwise the units that Corral confined earlier and that still request
    CPUs get the CPUs of cpus_left(). To clear AllowedCPUs= would not change cpuset.cpus, and the old request would keep the next slice from
    being a partition.
    """
    found = {}
    for one in seen.unmanaged:
        if one.name not in refused_lately and unmanaged_groups.can_be_confined(one):
            has = one.cpus | one.requested & wanted.online
            if wanted.confine:
                found[one.name] = handover.Slice(one.name, has, wanted.now[CORRAL_SLICE])
            elif one.name in context.original_cpus and one.requested:
                found[one.name] = handover.Slice(one.name, has, cpus_left(one.name, wanted, seen, context))
    return found


def stopped_unmanaged(wanted: Wanted, seen: Observation, context: Context) -> list[handover.Slice]:
    """The unmanaged units that do not run, and would start with exclusive CPUs that Corral set while the units ran.

    A tick takes these CPUs back. Until then, or as long as ticks change nothing, such a unit can start at any moment.
    """
    own = cpuset.EMPTY.union(*wanted.exclusive.values())
    return [
        handover.Slice(unit, cpus & wanted.online, cpus_left(unit, wanted, seen, context))
        for unit, cpus in seen.stopped.items()
        if cpus & wanted.online & own
    ]


def cpus_left(unit: str, wanted: Wanted, seen: Observation, context: Context) -> frozenset[int]:
    """The CPUs for an unmanaged unit that Corral confined earlier: its original CPUs without the CPUs of exclusive slices and of foreign
    partitions; if no CPU is left, all CPUs that such slices and partitions leave.
    """
    left = wanted.online - seen.foreign.union(*wanted.exclusive.values())
    return (cgroup.cpu_list(context.original_cpus[unit]) or cpuset.EMPTY) & left or left


def started_on(wanted: Wanted, seen: Observation) -> dict[str, frozenset[int]]:
    """The shared and reserved slices that do not run, with CPUs that no exclusive slice has now.

    The plan starts these slices first: systemd may have read their files long ago, and would give them CPUs that other slices got later.
    """
    own = (state.now() for unit, state in seen.units.items() if is_exclusive(unit))
    taken = frozenset().union(*(cpus or () for cpus in own))
    missing = (unit for unit, state in seen.units.items() if unit.endswith(".slice") and not state.exists)
    found = {
        unit: (wanted.now[unit] - taken) or (wanted.reserved - taken)
        for unit in missing
        if unit in wanted.now and not is_exclusive(unit)
    }
    return {unit: cpus for unit, cpus in found.items() if cpus}


def stopped_with_cpus(wanted: Wanted, seen: Observation) -> dict[str, frozenset[int]]:
    """The exclusive slices that do not run, with the CPUs with which they would start: these CPUs were set earlier.

    systemd can start such a slice at any moment. So these CPUs count as in use until other CPUs are set for the slice.
    """
    found = {unit: state.at_start(unit) & wanted.online for unit, state in seen.units.items() if is_exclusive(unit)}
    return {unit: cpus for unit, cpus in found.items() if cpus}


def with_moves(
    changes: t.Sequence[Change],
    moves: t.Sequence[tuple[str, frozenset[int]]],
    starting: t.Mapping[str, frozenset[int]],
    seen: Observation,
    wanted: Wanted,
) -> tuple[Change, ...]:
    """The changes with the steps of the hand-over and the steps of partitions, all in one order.

    A slice becomes a partition after it got its CPUs, and ends as a partition before it shares its CPUs. So partitions end first, then
    missing slices start, then come the moves; a partition is made after the last move of its slice. The partitions of slices that keep
    exclusive CPUs end last.
    """
    # Slices whose CPUs differ, but which the hand-over does not move. The slice requests more CPUs than it has, or requests CPUs that
    # another slice still has, or does not run and would start with the CPUs of its files. These requests are written after all moves.
    left = seen.units.keys() - starting.keys() - {unit for unit, dummy in moves}
    asking = [(one.subject, wanted.now[one.subject]) for one in changes if is_in_force(one) and one.subject in left]
    running = {unit for unit, dummy in asking if seen.units[unit].exists}
    steps, last = steps_of_moves([*moves, *asking], starting, seen, running)
    order = (len(moves) + len(asking) + 1) * MOVE
    reduced = reduced_requests(seen, wanted)
    for unit, cpus in reduced.items():
        releases = is_valid_partition(unit, seen.units[unit])
        steps[unit] = [assigned(unit, cpus, UNMADE if releases else UNCLAIMED), *steps.get(unit, [])]
    steps = {unit: without_set_property(unit, mine, wanted, seen) for unit, mine in steps.items()}
    placed = (
        one._replace(steps=placed_partition(one, last, order, wanted, reduced))
        if one.property == partitions.PROPERTY
        else one
        for one in changes
    )
    return carried(placed, steps, wanted)


def steps_of_moves(
    moves: t.Sequence[tuple[str, frozenset[int]]],
    starting: t.Mapping[str, frozenset[int]],
    seen: Observation,
    running: t.Container[str],
) -> tuple[dict[str, list[Step]], dict[str, int]]:
    """The steps of a hand-over by unit, and the order number of each unit's last move. Units in ``running`` are not started."""
    steps = {unit: started_with(unit, cpus, seen, START_MISSING, START_MISSING + 1) for unit, cpus in starting.items()}
    last: dict[str, int] = {}
    for index, (unit, cpus) in enumerate(moves, 1):
        # A control group can exist although its slice does not run: set-property makes only the control group.
        # The start of a running slice does nothing.
        if unit not in (*starting, *last) and unit not in running and described(unit):
            mine = started_with(unit, cpus, seen, index * MOVE + START, index * MOVE + SET)
        else:
            # optional: an unmanaged unit may stop at any moment
            mine = [assigned(unit, cpus, index * MOVE + SET)._replace(optional=unit not in seen.units)]
        steps[unit] = [*steps.get(unit, []), *mine]
        last[unit] = index * MOVE
    return steps, last


def assigned(unit: str, cpus: frozenset[int], order: int) -> Step:
    """The step that gives a unit CPUs."""
    return make_step.unit_property(unit, "AllowedCPUs", cpuset.format(cpus), CPUS, order)


def is_in_force(change: Change) -> bool:
    """Whether a change is about a unit's CPUs in force. The steps of such a change come from the hand-over."""
    return change.property in LIVE_PROPERTIES and change.verdict == DRIFT


def carried(changes: t.Iterable[Change], steps: dict[str, list[Step]], wanted: Wanted) -> tuple[Change, ...]:
    """The changes, each with the steps of the hand-over for its unit."""
    result = []
    for change in changes:
        if is_in_force(change):
            change = change._replace(steps=(*change.steps, *steps.pop(change.subject, [])))
        elif change.property != partitions.PROPERTY and change.subject in steps.keys() - wanted.now.keys():
            own = steps.pop(change.subject)
            known = {step.key for step in own if step.kind in ("file", "folder")}
            change = change._replace(steps=(*own, *(one for one in change.steps if one.key not in known)))
        result.append(change)
    if steps and result:
        # Some slices move without an item of drift: other slices pass through their CPUs, or the slices only request CPUs that they have.
        # The first item with steps carries the steps of these moves.
        rest = [step for leftover in steps.values() for step in leftover]
        index = next((index for index, change in enumerate(result) if change.steps), 0)
        result[index] = result[index]._replace(steps=(*result[index].steps, *rest))
    return tuple(result)


def reduced_requests(seen: Observation, wanted: Wanted) -> dict[str, frozenset[int]]:
    """The exclusive slices that request CPUs which they do not have, each with the CPUs that it is to request instead.

    Such a request comes from an administrator. A partition of another slice may keep a requested CPU until the partition ends. Then the
    requesting slice gets the CPU, while processes of the other slice still run there. A slice that has none of its requested CPUs runs on
    CPUs of other slices: the slice is to request the wanted CPUs that it alone has. If there are no such CPUs, it is to request just its
    wanted CPUs, and a partition that has these CPUs and is about to end releases them first.
    """
    has = {unit: state.now() or state.at_start(unit) for unit, state in seen.units.items()}
    found: dict[str, frozenset[int]] = {}
    for unit, state in seen.units.items():
        requested = state.cpus.requested or cpuset.EMPTY
        if is_exclusive(unit) and requested & wanted.online - has[unit]:
            others = cpuset.EMPTY.union(*(cpus for other, cpus in has.items() if other != unit))
            own = wanted.now.get(unit, cpuset.EMPTY)
            cpus = requested & has[unit] or own & has[unit] - others or own & requested
            if cpus and cpus != requested:
                found[unit] = cpus
    claimed = cpuset.EMPTY.union(*(cpus - has[unit] for unit, cpus in found.items()))
    for unit, state in seen.units.items():
        if (
            unit not in wanted.partitions
            and unit not in found
            and is_valid_partition(unit, state)
            and claimed & has[unit]
        ):
            kept = (state.cpus.requested or cpuset.EMPTY) & has[unit] - claimed
            found.update({unit: kept} if kept else {})
    return found


def others_by_files(wanted: Wanted, seen: Observation) -> dict[str, frozenset[int]]:
    """The units whose files have other CPUs than the unit requests and is to have, each with the files' CPUs.

    systemd may have read such a file already, and then sets the file's CPUs once it looks at the unit or at a unit beside it. A write of
    the right CPUs makes systemd forget the file's CPUs, unless another author's file overrides that write.
    """
    found = {}
    for unit, cpus in wanted.now.items():
        state = seen.units[unit]
        by_files = systemd.merged_cpus(state.settings)
        if by_files in (cpus, state.cpus.requested) or not (state.runs and state.settings):
            continue
        if not kept_by_others(unit, wanted, seen) and after_reload(unit, cpus, state.settings)[0] == cpus:
            found[unit] = (by_files or cpuset.EMPTY) & wanted.online
    return found


def without_set_property(unit: str, steps: list[Step], wanted: Wanted, seen: Observation) -> list[Step]:
    """A unit's steps, with the removal of the file of a persistent set-property, which hides the live file.

    A daemon-reload would bring the file's CPUs back. So the file is removed right after the live file is written, before the CPUs that the
    unit leaves are given to another unit. A unit that does not run, and that systemd has not loaded, would start with the file's CPUs: then
    the file is removed first. No reload is needed: systemd has the live value, and reads the live file when it loads the unit.
    """
    state = seen.units.get(unit)
    if state is None or not steps or (unit in wanted.now and kept_by_others(unit, wanted, seen)):
        return steps
    if requests_no_cpus(state):
        index, order = 0, min(step.order for step in steps)
    else:
        index = next(number for number, step in enumerate(steps, 1) if step.kind == "property")
        order = steps[index - 1].order
    removal = [
        step._replace(order=order, reload=False)
        for step in unit_property.removal(unit, "AllowedCPUs", state.settings, CPUS, order)
    ]
    # systemd may read its files between write and removal, and has the persistent file's CPUs again: so the write is repeated.
    again = [steps[index - 1]._replace(order=order + 1)] if removal and index else []
    return [*steps[:index], *removal, *again, *steps[index:]]


def requests_no_cpus(state: UnitState) -> bool:
    """Whether a unit requests no CPUs now: the unit does not run, or systemd has not loaded its files.

    A control group does not show that the unit runs: set-property makes a control group without a start (see UnitState.runs).
    """
    return not (state.exists and state.cpus.requested)


def started_with(unit: str, cpus: frozenset[int], seen: Observation, first: int, second: int) -> list[Step]:
    """The steps that start a slice and set its CPUs. If files (also of others) assign more CPUs, the CPUs are set before the start."""
    state = seen.units.get(unit)
    by_files = systemd.merged_cpus(state.settings) if state is not None and requests_no_cpus(state) else None
    start, assignment = (second, first) if by_files and by_files - cpus else (first, second)
    return [make_step.unit(unit, "start", CPUS, start), assigned(unit, cpus, assignment)]


def placed_partition(
    change: Change, last: t.Mapping[str, int], order: int, wanted: Wanted, reduced: t.Container[str]
) -> tuple[Step, ...]:
    """The steps of a partition's change in their order. ``last``: the order number of each slice's last move. ``order``: a number after all
    moves. ``reduced``: the slices that first request fewer CPUs.

    A partition that releases CPUs ends before other slices get these CPUs. A partition whose slice keeps exclusive CPUs (in a profile
    without partitions) ends after all moves: until then the partition keeps off processes whose cpuset has no online CPU. The kernel lets
    such processes run on all CPUs that no partition has.
    """
    unit, is_invalid = change.subject, "invalid" in (change.actual or "")
    ended = UNMADE if is_invalid and unit in reduced else ENDED
    if unit in wanted.partitions:
        position = last.get(unit, order) + MADE
    else:
        position = order + MOVE + MADE if unit in wanted.now and is_exclusive(unit) and not is_invalid else ended
    made = tuple(step._replace(order=position) for step in change.steps)
    if made and unit in wanted.partitions and unit in last and is_invalid:
        # If an invalid partition requests other CPUs, kernel 6.12 keeps the partition's previous CPUs from every control group.
        made = (made[0]._replace(value=MEMBER, order=ended), *made)
    return made
