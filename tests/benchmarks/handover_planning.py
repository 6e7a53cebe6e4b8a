# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""How long it takes to plan which exclusive grant moves when, and to replay that plan by the kernel's rule, against
copying and sorting the same CPU sets once.

Grants of four CPUs each that rotate (each is to have its neighbour's CPUs) or are shuffled, with CPUs free or none; and
1,024 CPUs that are dealt again at random. Each grant is a partition with a process in it; beside them are the slices of
the reserved and the shared pool, and one without CPUs of its own. `replay` is the validator of cgroup v2, from the
finished steps to its verdict, `v1` is the one of cgroup v1.
"""

from __future__ import annotations

import argparse
import functools
import random
import time
import typing as t

import bench
from _core.model.cpu import handover
from _core.model.cpu.handover import Slice
from _core.model.plan import make_step, replay, replay_v1
from _core.model.plan.kernel_cpusets import PARTITION, Cgroup, Machine
from _core.model.plan.plan import CPUS as CPUS_PHASE
from _core.model.values import cpuset

SIZES = (60, 120, 250, 500)
EACH = 4  # CPUs of a grant
CPUS = 1024  # dealt at random
OTHERS = 4  # CPUs that the slices of the pools have, beside the grants
HEAD = (
    "grants", "number", "CPUs", "floor ms", "plan ms", "plan/floor", "replay ms", "replay/floor", "replay/plan", "v1 ms",
    "writes", "per grant",
)  # fmt: skip

Cpus = frozenset[int]


def block(place: int) -> Cpus:
    return frozenset(range(EACH * place, EACH * (place + 1)))


def slices_of(now: t.Sequence[Cpus], wanted: t.Sequence[Cpus]) -> list[Slice]:
    return [Slice(f"corral_{index}.slice", *both, exclusive=True) for index, both in enumerate(zip(now, wanted))]


def rotating(number: int) -> list[Slice]:
    """Each grant is to have the next one's CPUs."""
    return slices_of(
        [block(place) for place in range(number)], [block((place + 1) % number) for place in range(number)]
    )


def shuffled(number: int) -> list[Slice]:
    """Each grant is to have any one's CPUs."""
    after = random.Random(number).sample(range(number), number)
    return slices_of([block(place) for place in range(number)], [block(place) for place in after])


def dealt(number: int) -> list[Slice]:
    """Each grant has any CPUs, and is to have any others."""
    rng = random.Random(number)
    return slices_of(*([frozenset(rows) for rows in deal(rng, number)] for dummy in ("now", "wanted")))


def deal(rng: random.Random, number: int) -> list[set[int]]:
    """All CPUs in as many sets, none of them empty."""
    cpus = rng.sample(range(CPUS), CPUS)
    sets = [{cpus.pop()} for dummy in range(number)]
    for cpu in cpus:
        rng.choice(sets).add(cpu)
    return sets


def copy(slices: t.Sequence[Slice]) -> list[tuple[list[int], list[int]]]:
    """The floor: the CPUs now and soon of each grant, in their order."""
    return [(sorted(one.now), sorted(one.wanted)) for one in slices]


def machine(slices: t.Sequence[Slice], cpus: int) -> Machine:
    """The machine before the first write: each grant is a partition, and the pools' slices are on CPUs of their own."""
    found = {one.unit: Cgroup(one.now, PARTITION, True) for one in slices}
    pools = frozenset(range(cpus, cpus + OTHERS))
    others = {
        "system.slice": pools,
        "user.slice": pools,
        "machine.slice": pools,
        "corral.slice": pools,
        "other.slice": (),
    }
    found.update({unit: Cgroup(frozenset(has)) for unit, has in others.items()})
    return Machine(found, frozenset(range(cpus + OTHERS)))


CASES: dict[str, tuple[t.Callable[[int], list[Slice]], int]] = {
    "rotating": (rotating, 0),
    "rotating, 4 CPUs free": (rotating, EACH),
    "shuffled": (shuffled, 0),
    "dealt at random": (dealt, 0),
}


def row(case: str, number: int, turns: int) -> tuple[object, ...]:
    """The figures of one case."""
    make, free = CASES[case]
    slices = make(number)
    cpus = len(frozenset[int]().union(*(one.now for one in slices))) + free
    spare = frozenset(range(cpus - free, cpus))
    moves = handover.order(slices, spare)
    before, units = machine(slices, cpus), {one.unit for one in slices}
    steps = [make_step.unit_property(unit, "AllowedCPUs", cpuset.format(to), CPUS_PHASE) for unit, to in moves]
    if replay.problems(steps, before, units, units) or not replay.problems(steps[1:], before, units, units):
        raise RuntimeError(
            f"{case}, {number} grants: the replay does not tell the plan from one without its first step"
        )
    works: dict[str, t.Callable[[], object]] = {
        "floor": functools.partial(copy, slices),
        "plan": functools.partial(handover.order, slices, spare),
        "replay": functools.partial(replay.problems, steps, before, units, units),
        "v1": functools.partial(replay_v1.new_overlap, slices, moves),
    }
    times = bench.by_turns(works, turns, time.process_time)
    floor, plan, replayed, old = (f"{bench.median(times[work]) * 1000:.2f}" for work in works)
    changed = sum(one.now != one.wanted for one in slices)
    by_floor, by_plan = bench.ratio(times["replay"], times["floor"]), bench.ratio(times["replay"], times["plan"])
    ratios = bench.ratio(times["plan"], times["floor"]), replayed, by_floor, by_plan
    return case, number, cpus, floor, plan, *ratios, old, len(moves), f"{len(moves) / changed:.2f}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--turns", type=int, default=11, help="how often everything is run (default: 11)")
    turns = parser.parse_args().turns
    bench.header("make bench-handover-planning")
    rows = []
    for case in CASES:
        for number in SIZES:
            bench.progress(f"{case}, {number} grants")
            rows.append(row(case, number, turns))
    bench.say(bench.table(HEAD, rows))
    bench.footer()


if __name__ == "__main__":
    main()
