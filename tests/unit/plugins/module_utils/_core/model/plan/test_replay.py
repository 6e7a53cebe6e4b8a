# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The validator's replay: plans that let others onto somebody's CPUs are refused, each kind of step, each kind of machine."""

from __future__ import annotations

import pytest
from _core.model.plan import make_step, replay
from _core.model.plan.kernel_cpusets import INVALIDATES, MEMBER, PARTITION, WINS, Cgroup, Machine
from _core.model.plan.moving_cpusets import MovingMachine
from _core.model.plan.plan import CPUS, Step
from _core.model.values import cpuset

EIGHT = frozenset(range(8))
OWN = {"corral_a.slice", "corral_b.slice"}


def group(cpus: str, partition: str = MEMBER, valid: bool | None = None) -> Cgroup:
    return Cgroup(cpuset.parse(cpus), partition, partition != MEMBER if valid is None else valid)


def machine(way: str = INVALIDATES, **changed: Cgroup | None) -> Machine:
    """Two grants, a on 2-3 with processes and b on 4-5, and the others on what is left; names without ".slice"."""
    found = {
        "system": group("0-1"), "machine": group("6-7"), "corral": group("6-7"), "other": group(""),
        "corral_a": group("2-3", PARTITION), "corral_b": group("4-5", PARTITION), **changed,
    }  # fmt: skip
    return Machine({f"{name}.slice": one for name, one in found.items() if one is not None}, EIGHT, way)


def cpus(unit: str, text: str) -> Step:
    return make_step.unit_property(unit, "AllowedCPUs", text, CPUS)


def partition(unit: str, kind: str = PARTITION) -> Step:
    return Step("partition", f"/sys/fs/cgroup/{unit}/cpuset.cpus.partition", kind, CPUS)


def file(unit: str, text: str, folder: str = "etc") -> Step:
    """systemd's own file of a property, which it reads at its next daemon-reload."""
    place = f"/{folder}/systemd/system.control/{unit}.d/50-AllowedCPUs.conf"
    return make_step.file(place, f"[Slice]\nAllowedCPUs=\nAllowedCPUs={text}\n", CPUS, reload=True)


def start(unit: str) -> Step:
    return Step("unit", unit, "start", CPUS)


GOOD: dict[str, tuple[Machine, list[Step]]] = {
    "nothing": (machine(), []),
    "a grant moves to CPUs that others left": (
        machine(), [cpus("corral.slice", "7"), cpus("machine.slice", "7"), cpus("corral_a.slice", "2-3,6")],
    ),
    "two hand over": (
        machine(), [cpus("corral_a.slice", "2"), cpus("corral_b.slice", "3-5")],
    ),
    "a new one, a partition once it has its CPUs": (
        machine(corral_b=None),
        [cpus("corral_b.slice", "4-5"), start("corral_b.slice"), cpus("corral_b.slice", "4-5"), partition("corral_b.slice")],
    ),
    "one is given back": (
        machine(), [partition("corral_b.slice", MEMBER), cpus("corral_b.slice", "6-7"), cpus("corral.slice", "4-7")],
    ),
    "one that is not in force is mended": (
        machine(corral_a=group("2-3", PARTITION, valid=False)), [partition("corral_a.slice")],
    ),
    "one that is not in force moves, which lets nobody onto it who was not": (
        machine(corral_a=group("2-3", PARTITION, valid=False), corral=group("7"), machine=group("7")),
        [cpus("corral_a.slice", "6"), partition("corral_a.slice")],
    ),
    "a file gives a slice what nobody has alone": (machine(), [file("machine.slice", "0-1 6-7")]),
    "a file of a slice that is not there": (machine(machine=None), [file("machine.slice", "2-3")]),
    "a file whose value systemd ignores": (machine(), [file("machine.slice", "2-x")]),
    "what nobody is to have alone": (machine(), [cpus("system.slice", "0-1,6-7"), start("new.slice")]),
    "others that share already": (
        machine(other=group("3"), corral_a=group("2-3", PARTITION, valid=False)), [cpus("corral.slice", "6")],
    ),
}  # fmt: skip

BAD: dict[str, tuple[Machine, list[Step], str]] = {
    "a shared slice grows onto it": (machine(), [cpus("corral.slice", "3,6-7")], "corral.slice would have CPUs of corral_a"),
    "a file gives it to a slice": (machine(), [file("machine.slice", "3 6-7")], "machine.slice would have CPUs of corral_a"),
    "a live file does": (
        machine(), [file("machine.slice", "3,6-7", "run")], "machine.slice would have CPUs of corral_a",
    ),
    "a slice of nobody's does": (machine(), [cpus("other.slice", "2-3")], "other.slice would have CPUs of corral_a"),
    "one grant grows before the other shrinks": (
        machine(), [cpus("corral_b.slice", "3-5"), cpus("corral_a.slice", "2")], "corral_b.slice would have CPUs of corral_a",
    ),
    "it grows onto the shared slices": (machine(), [cpus("corral_a.slice", "2-3,6")], "corral.slice would have"),
    "it grows onto what a slice asks for that nobody declared": (
        machine(other=group("1,6"), corral=group("7"), machine=group("7")), [cpus("corral_a.slice", "2-3,6")],
        "other.slice would have CPUs of corral_a",
    ),
    "it is given up while it is granted": (
        machine(), [partition("corral_a.slice", MEMBER)], "a process in a control group without a cpuset would have CPUs of corral_a",
    ),
    "it is a partition before it has CPUs": (
        machine(corral_b=None), [start("corral_b.slice"), partition("corral_b.slice"), cpus("corral_b.slice", "4-5")],
        "would have CPUs of corral_b",
    ),
    "it is a partition while others have its CPUs": (
        machine(corral_b=None, corral=group("4-7")),
        [cpus("corral_b.slice", "4-5"), partition("corral_b.slice")],
        "corral.slice would have CPUs of corral_b",
    ),
    "a control group in another one grows onto it with that one": (
        machine(**{"corral.slice/corral-x": group("3,6")}), [cpus("corral.slice", "3,6-7")], "corral_a",
    ),
    "a slice that may have all, as a partition beside it is not in force, asks for it": (
        machine(corral_a=group("2-3"), corral_b=group("4-5", PARTITION, valid=False), corral=group("4")),
        [cpus("corral.slice", "3")], "corral.slice would have CPUs of corral_a",
    ),
    "with others it takes all CPUs, and the root has to keep one": (
        machine(corral_b=group("4-7", PARTITION), corral=group(""), machine=group(""), system=group("")),
        [cpus("corral_a.slice", "0-3")], "a process in a control group without a cpuset would have CPUs of corral_a",
    ),
    "a slice whose CPUs may be lost asks for it": (
        machine(corral_a=group("2-3"))._replace(lost=frozenset({6, 7})), [cpus("corral.slice", "3")],
        "corral.slice would have CPUs of corral_a",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", GOOD)
def test_a_plan_that_keeps_all_others_out_passes(name: str) -> None:
    before, steps = GOOD[name]
    assert replay.problems(steps, before, {"corral_a.slice"}, OWN) == []


@pytest.mark.parametrize("name", BAD)
def test_a_plan_that_lets_anybody_in_is_refused(name: str) -> None:
    before, steps, said = BAD[name]
    assert any(said in problem.message for problem in replay.problems(steps, before, {"corral_a.slice"}, OWN))


def test_what_is_wrong_later_is_not_told() -> None:
    """It may follow from what is wrong first."""
    steps = [cpus("corral.slice", "3,6-7"), cpus("other.slice", "2-3")]
    (found,) = replay.problems(steps, machine(), {"corral_a.slice"}, OWN)
    assert found.message.startswith("corral.slice would have CPUs of corral_a")


def test_where_a_partition_wins_others_may_ask_for_what_they_like() -> None:
    steps = [cpus("other.slice", "2-3")]
    assert replay.problems(steps, machine(WINS), {"corral_a.slice"}, OWN) == []


def test_without_partitions_what_slices_ask_for_is_what_counts() -> None:
    plain = {"corral_a": group("2-3"), "corral_b": group("4-5")}
    populated = {"corral_a.slice"}
    assert replay.problems([cpus("corral_a.slice", "2")], machine(**plain), populated, OWN) == []
    assert replay.problems([cpus("corral.slice", "3,6-7")], machine(**plain), populated, OWN)
    assert replay.problems([cpus("corral_b.slice", "3-5")], machine(**plain), populated, OWN)


@pytest.mark.parametrize("kind", [PARTITION, MEMBER])
def test_what_was_mended_is_guarded_from_then_on(kind: str) -> None:
    before = machine(corral_a=group("2-3", kind, valid=False))
    steps = [partition("corral_a.slice"), partition("corral_a.slice", MEMBER)]
    assert replay.problems(steps, before, {"corral_a.slice"}, OWN)


def test_what_a_slice_shares_before_it_is_granted_anything_is_not_its_own() -> None:
    """Its processes wait there for CPUs of their own, on those that the system has, and so may others."""
    before = machine(corral_b=group("0"))
    steps = [partition("corral_a.slice", MEMBER), cpus("corral_a.slice", "0"), cpus("corral_b.slice", "4-5")]
    populated, own = {"corral_a.slice", "corral_b.slice"}, {"corral_b.slice"}
    assert replay.problems(steps, before, populated, own), "b was granted 0"
    assert replay.problems(steps, before, populated, own, ungranted=own) == []


@pytest.mark.parametrize(
    ("b", "steps"),
    [
        pytest.param(group("4"), [cpus("machine.slice", "4,6-7")], id="nobody else has it"),
        pytest.param(group("0"), [cpus("corral_b.slice", "4"), cpus("machine.slice", "4,6")], id="it has what it was granted"),
        pytest.param(group("0"), [cpus("system.slice", "1"), partition("corral_b.slice"), cpus("system.slice", "0-1")], id="it is a partition"),
    ],
)  # fmt: skip
def test_a_slice_that_is_granted_something_has_it_for_itself(b: Cgroup, steps: list[Step]) -> None:
    own = {"corral_b.slice"}
    assert replay.problems(steps, machine(corral_b=b), own, own, ungranted=own)


def test_steps_of_other_kinds_move_nothing() -> None:
    others = [
        Step("unit", "a.service", "start", 80), make_step.unit_property("corral_a.slice", "CPUWeight", "1", 40),
        Step("file", "/etc/x", "AllowedCPUs=2-3", 60), make_step.unit_property("corral_a.slice", "AllowedCPUs", "", 50),
    ]  # fmt: skip
    moving = MovingMachine(machine())
    for step in others:
        replay.do(moving, step)
    assert (moving.machine, moving.moved) == (machine(), {})
