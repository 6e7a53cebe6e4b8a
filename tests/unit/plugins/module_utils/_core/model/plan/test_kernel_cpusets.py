# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the kernel lets control groups have, as it was seen on kernels 6.1, 6.12 and 7.2 (the scenarios cpusets go on)."""

from __future__ import annotations

import typing as t

import pytest
from _core.model.plan import kernel_cpusets as oracle
from _core.model.plan.kernel_cpusets import INVALIDATES, ISOLATED, MEMBER, PARTITION, WINS, Machine
from _core.model.values import cpuset
from hypothesis import given
from hypothesis import strategies as st

EIGHT = frozenset(range(8))
WAYS = (INVALIDATES, WINS)
Step = tuple[t.Any, ...]


def after(steps: t.Iterable[Step], way: str = INVALIDATES) -> Machine:
    """The machine after operations: ("cpus", path, "2-3"), ("partition", path, kind), ("online", "0-5"), ("remove", path)."""
    machine = Machine({}, EIGHT, way)
    for what, *words in steps:
        if what == "online":
            machine = oracle.set_online(machine, cpuset.parse(words[0]))
            continue
        path = words[0]
        parts = path.split("/")
        for name in ("/".join(parts[: depth + 1]) for depth in range(len(parts))):
            machine = machine if name in machine.cgroups else oracle.make(machine, name)
        if what == "cpus":
            machine = oracle.set_cpus(machine, path, cpuset.parse(words[1]))
        elif what == "partition":
            machine = oracle.set_partition(machine, path, words[1])
        elif what == "remove":
            machine = oracle.remove(machine, path)
    return machine


def shown(found: t.Mapping[str, frozenset[int]]) -> dict[str, str]:
    return {path: cpuset.format(cpus) for path, cpus in found.items()}


def least(machine: Machine) -> dict[str, str]:
    return shown({path: one.least for path, one in oracle.bounds(machine).items()})


def most(machine: Machine) -> dict[str, str]:
    return shown({path: one.most for path, one in oracle.bounds(machine).items()})


TWO = [("cpus", "a", "2-3"), ("partition", "a", PARTITION), ("cpus", "b", "4-5"), ("partition", "b", ISOLATED)]


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(
    ("steps", "wanted"),
    [
        # Nobody asks for anything, or a part.
        ([("make", "x"), ("make", "x/y")], {"": "0-7", "x": "0-7", "x/y": "0-7"}),
        ([("cpus", "x", "1-3"), ("cpus", "x/y", "3-5")], {"": "0-7", "x": "1-3", "x/y": "3"}),
        # Whoever asks for nothing that is there gets what the group around has, without a word.
        ([("cpus", "x", "1-3"), ("cpus", "x/y", "6")], {"": "0-7", "x": "1-3", "x/y": "1-3"}),
        ([("cpus", "x", "7"), ("online", "0-6")], {"": "0-6", "x": "0-6"}),
        # Partitions take theirs from everybody: the root, those who ask for nothing, those who come later.
        (TWO, {"": "0-1,6-7", "a": "2-3", "b": "4-5"}),
        ([*TWO, ("make", "x"), ("cpus", "y", "0-1")], {"": "0-1,6-7", "a": "2-3", "b": "4-5", "x": "0-1,6-7", "y": "0-1"}),
        ([*TWO, ("make", "a/x"), ("cpus", "a/y", "3")], {"": "0-1,6-7", "a": "2-3", "b": "4-5", "a/x": "2-3", "a/y": "3"}),
        # They shrink and grow as they are, and give back what they had.
        ([*TWO, ("cpus", "a", "2"), ("cpus", "b", "3-5")], {"": "0-1,6-7", "a": "2", "b": "3-5"}),
        ([*TWO, ("partition", "a", MEMBER)], {"": "0-3,6-7", "a": "2-3", "b": "4-5"}),
        ([*TWO, ("remove", "a")], {"": "0-3,6-7", "b": "4-5"}),
        ([*TWO, ("online", "0-2,4-7")], {"": "0-1,6-7", "a": "2", "b": "4-5"}),
    ],
)  # fmt: skip
def test_who_gets_what(steps: list[Step], wanted: dict[str, str], way: str) -> None:
    machine = after(steps, way)
    assert least(machine) == most(machine) == wanted


def test_a_sibling_that_wants_the_same_may_end_a_partition_or_get_what_it_leaves() -> None:
    steps = [*TWO, ("cpus", "x", "5-7")]
    older, newer = after(steps), after(steps, WINS)
    assert (older.cgroups["a"].valid, older.cgroups["b"].valid) == (True, None)
    assert most(older) == {"": "0-1,4-7", "a": "2-3", "b": "0-1,4-7", "x": "5-7"}, "b and x may both run on 5"
    assert least(older) == {"": "0-1,6-7", "a": "2-3", "b": "", "x": "6-7"}
    assert newer.cgroups["b"].valid
    assert least(newer) == most(newer) == {"": "0-1,6-7", "a": "2-3", "b": "4-5", "x": "6-7"}
    told = oracle.observed(older, {"a": True, "b": False, "x": False})
    assert most(told) == most(older), "its CPUs may still be kept from all"


AWAY = [("cpus", "a", "5"), ("partition", "a", PARTITION), ("cpus", "x", "2"), ("make", "x/y"), ("online", "0-1,3-7")]


def test_who_lost_its_cpus_keeps_on_6_1_what_it_got_although_a_partition_took_it() -> None:
    kept = after([*AWAY, ("cpus", "x/z", "3")])
    same = {"": "0-1,3-4,6-7", "a": "5", "x": "0-1,3-4,6-7", "x/y": "0-1,3-4,6-7", "x/z": "3"}
    assert least(kept) == most(kept) == same

    taken = oracle.set_cpus(kept, "a", cpuset.parse("3-5"))
    assert taken.cgroups["a"].valid is None, "6.1 says that it is valid, and x goes on to run on 3 and 4"
    assert oracle.observed(taken, dict.fromkeys(taken.cgroups, True)).cgroups["a"].valid is None
    assert most(taken)["x"] == "0-1,3-7"

    beside = oracle.remove(oracle.set_partition(taken, "a", MEMBER), "a")
    beside = oracle.set_cpus(oracle.make(beside, "b"), "b", cpuset.parse("3"))
    assert oracle.set_partition(beside, "b", PARTITION).cgroups["b"].valid is None


def test_a_partition_that_gives_cpus_back_is_sure_and_who_lost_its_own_has_them_or_not() -> None:
    given = after([("cpus", "a", "4-5"), *AWAY[1:], ("cpus", "a", "5")])
    assert given.cgroups["a"].valid
    assert least(given)["x/y"] == "0-1,3,6-7", "as on 6.1"
    assert most(given)["x/y"] == "0-1,3-4,6-7"


@pytest.mark.parametrize(
    ("step", "kept"),
    [
        (("cpus", "x", "6"), ""),
        (("cpus", "x", ""), ""),
        (("online", "0-7"), ""),
        (("online", "0-1,3-6"), "0-1,3-4,6"),  # It loses what it got, and gets what there is now.
        (("cpus", "x/y", "6"), "0-1,3-4,6-7"),
        (("partition", "x", PARTITION), "0-1,3-4,6-7"),
    ],
)
def test_it_is_over_when_its_own_cpus_are_written_or_one_goes_or_comes(step: Step, kept: str) -> None:
    machine = after([*AWAY, step])
    assert cpuset.format(machine.cgroups["x"].kept.most) == kept
    assert machine.cgroups["a"].valid
    assert after([*AWAY, ("cpus", "a", "3-5")], WINS).cgroups["a"].valid, "later kernels update it"


def test_of_two_that_want_to_be_a_partition_of_the_same_neither_is_sure_where_a_partition_wins() -> None:
    sure = [("cpus", "b", "1"), ("partition", "b", PARTITION)]
    cpus, partition = ("cpus", "a", "1"), ("partition", "a", PARTITION)
    for machine in (after([*sure, cpus], WINS), after([*sure, partition], WINS)):
        assert machine.cgroups["b"].valid
    for machine in (after([*sure, cpus, partition], WINS), after([*sure, partition, cpus], WINS)):
        assert (machine.cgroups["a"].valid, machine.cgroups["b"].valid) == (None, None)


@pytest.mark.parametrize(
    ("steps", "seen"),
    [
        # A partition takes its CPUs from a member that asked for them first, and gives none to one that asks for all of them.
        ([("cpus", "x", "2-6"), *TWO], {"": "0-1,6-7", "a": "2-3", "b": "4-5", "x": "6"}),
        ([*TWO, ("cpus", "x", "2-3")], {"": "0-1,6-7", "a": "2-3", "b": "4-5", "x": "0-1,6-7"}),
        # It may ask for CPUs of another one: it gets the rest, and not those that the other gives back, until it asks anew.
        ([*TWO, ("cpus", "b", "3-5")], {"": "0-1,6-7", "a": "2-3", "b": "4-5"}),
        ([*TWO, ("cpus", "b", "3-5"), ("cpus", "a", "2")], {"": "0-1,3,6-7", "a": "2", "b": "4-5"}),
        ([*TWO, ("cpus", "b", "2-3")], {"": "0-1,4-7", "a": "2-3", "b": "0-1,4-7"}),
        # Whose CPUs are all gone is one no more, unless all its processes are in control groups without a cpuset.
        ([*TWO, ("online", "0-1,4-7")], {"": "0-1,6-7", "a": "0-1,6-7", "b": "4-5"}),
        ([*TWO, ("online", "0-1,4-7")], {"": "0-1,6-7", "a": "", "b": "4-5"}),
        ([*TWO, ("online", "0-1,4-7")], {"": "0-1,6-7", "a": "0-1,4-7", "b": "4-5"}),  # the masks of those processes
        # When they are back it is one again, and the root has one of them as well.
        ([*TWO, ("online", "0-1,4-7"), ("online", "0-7")], {"": "0-1,3,6-7", "a": "2-3", "b": "4-5"}),
    ],
)  # fmt: skip
def test_what_kernel_7_2_did_is_possible_where_a_partition_wins(steps: list[Step], seen: dict[str, str]) -> None:
    found = oracle.bounds(after(steps, WINS))
    assert found.keys() == seen.keys()
    assert all(found[path].least <= cpuset.parse(cpus) <= found[path].most for path, cpus in seen.items()), found


@pytest.mark.parametrize(
    "steps",
    [
        [("partition", "a", PARTITION), ("cpus", "a", "2-3")],  # a partition before it has CPUs
        [("cpus", "a", "2-3"), ("cpus", "x", "3"), ("partition", "a", PARTITION)],
        [("cpus", "a", "2"), ("partition", "a", PARTITION), ("cpus", "x", "3"), ("cpus", "a", "2-3")],
        [("cpus", "a", "2"), ("partition", "a", PARTITION), ("online", "0-1,3-7")],
        [("cpus", "x/a", "2"), ("partition", "x/a", PARTITION)],  # in something that is none
        [("cpus", "a", "0-7"), ("partition", "a", PARTITION)],  # nothing would be left for the root
        [("cpus", "a", "0-6"), ("partition", "a", PARTITION), ("cpus", "a", "0-7")],
    ],
)
def test_what_the_kernel_may_decide_either_way_is_not_believed_whatever_it_says(steps: list[Step]) -> None:
    machine = after(steps)
    (path,) = (path for path, one in machine.cgroups.items() if one.partition != MEMBER)
    assert machine.cgroups[path].valid is None
    everybody = dict.fromkeys(machine.cgroups, True)
    assert oracle.observed(machine, everybody).cgroups[path].valid is None
    nobody = dict.fromkeys(machine.cgroups, False)
    assert oracle.observed(machine, nobody).cgroups[path].valid is False


@pytest.mark.parametrize("said", [True, False])
def test_a_partition_of_cpus_that_are_offline_may_have_none(said: bool) -> None:
    machine = after([("online", "0-3,5-7"), ("cpus", "a", "4"), ("partition", "a", PARTITION), ("cpus", "a/x", "1")])
    machine = oracle.observed(machine, {"a": said, "a/x": False})
    assert (least(machine)["a"], most(machine)["a"]) == ("", "0-3,5-7")
    assert (least(machine)["a/x"], most(machine)["a/x"]) == ("", "0-3,5-7")


OVERLAP = [*TWO, ("cpus", "x", "5-7")]  # b is invalid, or may be
GONE = [*OVERLAP, ("partition", "b", MEMBER), ("remove", "b")]


@pytest.mark.parametrize(
    ("steps", "lost"),
    [
        (TWO, ""),
        ([*TWO, ("partition", "b", MEMBER)], ""),
        ([*TWO, ("cpus", "b", "5-6")], ""),
        (OVERLAP, ""),  # So far they are only those of a partition that is not in force.
        # They stay lost, whichever way it is given up: it asks for others, it is none any more, it goes.
        ([*OVERLAP, ("cpus", "b", "4")], "4-5"),
        ([*OVERLAP, ("partition", "b", MEMBER)], "4-5"),
        ([*OVERLAP, ("remove", "b")], "4-5"),
        ([*OVERLAP, ("partition", "b", PARTITION)], ""),
        ([*GONE, ("cpus", "x", "1"), ("online", "0-6"), ("online", "0-7")], "4-5"),
        ([*TWO, ("cpus", "b", "5-6"), ("cpus", "x", "6"), ("cpus", "b", "4")], "5-6"),
        # A partition that is sure takes them and returns them.
        ([*GONE, ("cpus", "a", "2-4")], "5"),
        ([*GONE, ("cpus", "x", "1"), ("cpus", "c", "5-6"), ("partition", "c", PARTITION)], "4"),
        ([*GONE, ("cpus", "a", "2-4"), ("cpus", "a", "2")], "5"),
        ([*GONE, ("cpus", "c", "5"), ("partition", "c", PARTITION)], "4-5"),  # x asks for 5 as well.
        # A CPU of a partition that was offline.
        ([*TWO, ("online", "0-2,4-6"), ("online", "0-7")], "3"),
    ],
)
def test_cpus_of_a_partition_that_was_not_in_force_may_be_lost(steps: list[Step], lost: str) -> None:
    assert cpuset.format(after(steps).lost) == lost


@pytest.mark.parametrize(
    ("cpus", "low", "high", "inner"),
    [
        ("4", "", "0-1,4-7", "0-1,4-7"),  # All that it asks for may be lost: then it has what the root has left.
        ("4-5", "", "0-1,4-7", "0-1,4-7"),
        ("4-6", "6", "4-6", "4-6"),
        ("6", "6", "6", "6"),
        ("", "0-1,6-7", "0-1,4-7", "7"),
    ],
)
def test_who_asks_for_lost_cpus_alone_may_have_all_that_partitions_leave(
    cpus: str, low: str, high: str, inner: str
) -> None:
    machine = after([*GONE, ("cpus", "y", cpus), ("cpus", "y/z", "7")])
    assert all(one.valid for one in machine.cgroups.values() if one.partition != MEMBER)
    assert (least(machine)["y"], most(machine)["y"]) == (low, high)
    assert most(machine)["y/z"] == inner


CPUS = st.frozensets(st.integers(1, 7), max_size=4)
NAMES = st.sampled_from(["a", "b", "c", "a/x", "b/x", "b/y", "c/x/y"])
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("cpus"), NAMES, CPUS.map(cpuset.format)),
        st.tuples(st.just("partition"), st.sampled_from(["a", "b", "c"]), st.sampled_from([MEMBER, PARTITION, ISOLATED])),
        st.tuples(st.just("online"), CPUS.map(lambda away: cpuset.format(EIGHT - away))),
    ),
    max_size=25,
)  # fmt: skip


@given(STEPS, st.sampled_from(WAYS))
def test_a_partition_that_is_sure_has_its_cpus_for_itself(steps: list[Step], way: str) -> None:
    machine = after([("make", name) for name in ("a", "b", "c", "c/x")] + steps, way)
    bounds = oracle.bounds(machine)
    found = {path: one.most for path, one in bounds.items()}
    for path, one in machine.cgroups.items():
        assert found[path], "nobody is without a CPU while the root has some"
        assert bounds[path].least <= bounds[path].most
        assert found[path] <= machine.online
        if one.valid:
            # But for those of a partition without a CPU on 7.2, which run anywhere.
            away = tuple(
                f"{name}/"
                for name, other in machine.cgroups.items()
                if way == WINS and other.valid is None and not other.cpus & machine.online
            )
            others = [name for name in ("", *machine.cgroups) if not f"{name}/".startswith((f"{path}/", *away))]
            assert not any(found[path] & found[name] for name in others)


@pytest.mark.parametrize(
    ("release", "way"),
    [("6.1.0-44-cloud-amd64", INVALIDATES), ("7.0.0-fake", WINS), ("7.2", WINS), ("10.0", WINS), ("", INVALIDATES)],
)
def test_the_way_of_a_kernel_follows_from_its_release(release: str, way: str) -> None:
    assert oracle.way_of(release) == way
