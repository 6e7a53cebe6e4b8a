# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the kernel lets control groups have, as it was seen on kernels 6.1, 6.12 and 7.2 (the scenarios cpusets go on)."""

from __future__ import annotations

import typing as t

import pytest
from _core.model import cpuset
from _core.model import kernel_cpusets as oracle
from _core.model.kernel_cpusets import INVALIDATES, ISOLATED, MEMBER, PARTITION, WINS, Machine
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
    assert shown(oracle.effective(machine)) == wanted
    assert shown(oracle.possible(machine)) == wanted


def test_a_sibling_that_wants_the_same_may_end_a_partition_or_get_what_it_leaves() -> None:
    steps = [*TWO, ("cpus", "x", "5-7")]
    older, newer = after(steps), after(steps, WINS)
    assert (older.cgroups["a"].valid, older.cgroups["b"].valid) == (True, None)
    assert shown(oracle.possible(older)) == {"": "0-1,4-7", "a": "2-3", "b": "0-1,4-7", "x": "0-1,4-7"}
    assert newer.cgroups["b"].valid
    assert shown(oracle.possible(newer)) == {"": "0-1,6-7", "a": "2-3", "b": "4-5", "x": "6-7"}
    told = oracle.looked(older, {"a": True, "b": False, "x": False})
    assert shown(oracle.effective(told)) == {"": "0-1,4-7", "a": "2-3", "b": "4-5", "x": "5-7"}, "both run on 5"


@pytest.mark.parametrize(
    "steps",
    [
        [("partition", "a", PARTITION), ("cpus", "a", "2-3")],  # a partition before it has CPUs
        [("cpus", "a", "2-3"), ("cpus", "x", "3"), ("partition", "a", PARTITION)],
        [("cpus", "a", "2"), ("partition", "a", PARTITION), ("cpus", "x", "3"), ("cpus", "a", "2-3")],
        [("cpus", "a", "2"), ("partition", "a", PARTITION), ("online", "0-1,3-7")],
        [("cpus", "x/a", "2"), ("partition", "x/a", PARTITION)],  # in something that is none
    ],
)
def test_what_the_kernel_may_decide_either_way_is_not_believed_whatever_it_says(steps: list[Step]) -> None:
    machine = after(steps)
    (path,) = (path for path, one in machine.cgroups.items() if one.partition != MEMBER)
    assert machine.cgroups[path].valid is None
    everybody = dict.fromkeys(machine.cgroups, True)
    assert oracle.looked(machine, everybody).cgroups[path].valid is None
    nobody = dict.fromkeys(machine.cgroups, False)
    assert oracle.looked(machine, nobody).cgroups[path].valid is False


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
    found = oracle.possible(machine)
    effective = oracle.effective(machine)
    for path, one in machine.cgroups.items():
        assert found[path], "nobody is without a CPU while the root has some"
        assert effective[path] <= found[path]
        assert found[path] <= machine.online
        if one.valid:
            others = [name for name in ("", *machine.cgroups) if not f"{name}/".startswith(f"{path}/")]
            assert not any(found[path] & found[name] for name in others)
