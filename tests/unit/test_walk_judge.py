# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the judge of random walks finds, and what it excuses: beside each excuse stands what is nearly one and is found."""

from __future__ import annotations

import json
import typing as t
from pathlib import Path

import guard
import pytest
from fake_cpusets import BOOKWORM, Cpuset, Kernel, read_list
from walk_judge import CHECKPOINT, Judge

A = "corral_a.slice"
AUTO, OFF = ({"cpu": {"partitions": one, "reserved": {"slices": ["system.slice"]}}} for one in ("auto", "off"))
SYSTEM = "system.slice/x.service"


class Group(Cpuset):
    """A control group that may hold a process."""

    def __init__(self) -> None:
        super().__init__()
        self.procs = 0
        self.tasks: list[int] = []


class Machine:
    """A node of eight CPUs of which a judge looks at the control groups alone; ``a`` is granted 2-3."""

    def __init__(self, **asked: str) -> None:
        self.cgroups: dict[str, Group] = {}
        self.kernel = Kernel(t.cast("dict[str, Cpuset]", self.cgroups), read_list("0-7"), BOOKWORM)
        self.online = self.kernel.online
        self.checkpoint = {"data": {"grants": [{"workload": "a", "cpus": "2-3", "hold": "declared", "instance": ""}]}}
        self.there = True
        self.systemd = self
        self.hands = False
        self.runs: dict[str, object] = {}
        self.root = "/nowhere"
        self.watch: t.Callable[[], None] = lambda: None
        for path in ("", "corral.slice", "system.slice", SYSTEM, A, f"{A}/a.service"):
            self.cgroups[path] = Group()
        self.kernel.set_cpus("system.slice", read_list("0-1"))
        self.kernel.set_cpus("corral.slice", read_list("4-7"))
        self.kernel.set_cpus(A, read_list("2-3"))
        self.cgroups[SYSTEM].procs = 1
        self.cgroups[f"{A}/a.service"].procs = 1

    def overlaps(self) -> frozenset[guard.Row]:
        look = guard.Look(t.cast("t.Any", self))
        look.__dict__["grants"] = guard.granted(json.dumps(self.checkpoint).encode()) if self.there else None
        claims = look.top_level()
        return frozenset(row for path in look.busy for row in look.rows(path, claims))

    def has(self, path: str) -> bool:
        return path == CHECKPOINT and self.there

    def get(self, dummy: str) -> str:
        return json.dumps(self.checkpoint)

    def add(self, path: str, asked: str = "") -> None:
        """A control group with a process in it."""
        above = path.rpartition("/")[0]
        for one in filter(None, (above, path)):
            self.cgroups.setdefault(one, Group())
        self.cgroups[path].procs = 1
        if asked:
            self.kernel.set_cpus(path, read_list(asked))


def watching(machine: Machine, rolled_out: dict[str, t.Any]) -> Judge:
    """A judge at the begin of a step."""
    judge = Judge(t.cast("t.Any", machine))
    judge.watch()
    judge.before_step()
    judge.rolled_out = rolled_out
    return judge


def judged(
    machine: Machine, act: t.Callable[[Machine, Judge], None], rolled_out: dict[str, t.Any] | None = None
) -> list[str]:
    """What a judge says of what is done in one step."""
    judge = watching(machine, rolled_out or AUTO)
    assert judge.wrong == []
    act(machine, judge)
    judge.watch()
    return [line for line in judge.wrong if not line.startswith("at that moment")]


def partition(machine: Machine, kind: str = "root") -> Machine:
    machine.kernel.set_partition(A, kind)
    return machine


def grow(machine: Machine, dummy: Judge) -> None:
    machine.kernel.set_cpus("system.slice", read_list("0-3"))


def by_hand(machine: Machine, judge: Judge) -> None:
    machine.hands = True
    grow(machine, judge)


def greedy(machine: Machine, dummy: Judge) -> None:
    machine.add("greedy.slice", "2-7")


def greedy_then_grow(machine: Machine, judge: Judge) -> None:
    greedy(machine, judge)
    judge.watch()
    grow(machine, judge)


def begins_and_is_observed(machine: Machine, judge: Judge) -> None:
    """A slice starts, which requests nothing yet; then its CPUs are written, which others have."""
    del machine.cgroups[A], machine.cgroups[f"{A}/a.service"]
    grow(machine, judge)
    machine.add(f"{A}/a.service")
    judge.watch()
    machine.kernel.set_cpus(A, read_list("2-3"))


def greedy_gone(machine: Machine, judge: Judge) -> None:
    greedy(machine, judge)
    judge.watch()
    del machine.cgroups["greedy.slice"]
    judge.watch()
    grow(machine, judge)


def removed_and_rolled_out_again(machine: Machine, judge: Judge) -> None:
    removed(machine, judge)
    machine.kernel.set_partition(A, "member")
    judge.watch()
    machine.kernel.set_cpus("system.slice", read_list("0-1"))
    machine.kernel.set_partition(A, "root")
    judge.watch()
    grow(machine, judge)


def greedy_gone_and_mended(machine: Machine, judge: Judge) -> None:
    greedy(machine, judge)
    judge.watch()
    del machine.cgroups["greedy.slice"]
    machine.kernel.set_partition(A, "member")
    machine.kernel.set_partition(A, "root")
    judge.watch()
    grow(machine, judge)


def unmanaged(machine: Machine, dummy: Judge) -> None:
    machine.add("mine.slice/x.service", "0-7")


def offline(machine: Machine, dummy: Judge) -> None:
    machine.kernel.set_online(read_list("0-1,4-7"))


def back_online(machine: Machine, judge: Judge) -> None:
    offline(machine, judge)
    judge.watch()
    machine.kernel.set_online(read_list("0-7"))
    grow(machine, judge)


def removed(machine: Machine, judge: Judge) -> None:
    judge.give_up()
    machine.checkpoint["data"]["grants"] = []
    grow(machine, judge)


def given_up_and_granted_again(machine: Machine, judge: Judge) -> None:
    judge.give_up()
    grow(machine, judge)


def no_checkpoint(machine: Machine, judge: Judge) -> None:
    machine.there = False
    grow(machine, judge)


def reserve_offline(machine: Machine, dummy: Judge) -> None:
    machine.kernel.set_online(read_list("2-7"))


def ended(machine: Machine, judge: Judge) -> None:
    """The partition ends, for whatever reason, and others have its CPUs."""
    machine.kernel.set_partition(A, "member")
    judge.watch()
    grow(machine, judge)


def ended_and_empty(machine: Machine, judge: Judge) -> None:
    machine.cgroups[f"{A}/a.service"].procs = 0
    ended(machine, judge)


def lost(machine: Machine) -> Machine:
    """``a`` lost its grant and shares what corral.slice has."""
    machine.checkpoint["data"]["grants"] = []
    for path in ("corral.slice", A):
        machine.kernel.set_cpus(path, read_list("4-5"))
    machine.add("corral.slice/y.service")
    return machine


def granted_the_pool(machine: Machine, judge: Judge) -> None:
    """It is granted the CPUs that it shares."""
    lost(machine)
    judge.watch()
    machine.checkpoint["data"]["grants"] = [{"workload": "a", "cpus": "4-5", "hold": "declared", "instance": ""}]


def granted_the_pool_and_shared_again(machine: Machine, judge: Judge) -> None:
    """The same, and the pool leaves them and comes back."""
    granted_the_pool(machine, judge)
    judge.watch()
    for cpus in ("6-7", "4-5"):
        machine.kernel.set_cpus("corral.slice", read_list(cpus))


def granted_the_pool_as_partition(machine: Machine, judge: Judge) -> None:
    granted_the_pool(machine, judge)
    machine.kernel.set_partition(A, "root")


def begins_beside_fallen(machine: Machine, judge: Judge) -> None:
    """A slice is to be a partition, and its CPUs are written first; another one has no CPU online."""
    del machine.cgroups[A], machine.cgroups[f"{A}/a.service"]
    fallen_beside(machine, judge)
    judge.watch()
    machine.cgroups[A] = Group()
    machine.kernel.set_cpus(A, read_list("2-3"))


def fallen_beside(machine: Machine, dummy: Judge) -> None:
    """Another grant's CPUs go offline, and its process runs on all that no partition has."""
    machine.add("corral_b.slice/b.service")
    machine.kernel.set_cpus("corral_b.slice", read_list("7"))
    machine.kernel.set_online(read_list("0-6"))


def fallen_and_the_partition_ended(machine: Machine, judge: Judge) -> None:
    fallen_beside(machine, judge)
    judge.watch()
    machine.kernel.set_partition(A, "member")


def both_shrink(machine: Machine, dummy: Judge) -> None:
    """Two slices with the same CPUs are to have one each."""
    machine.kernel.set_cpus(A, read_list("2"))


def begins_beside_unmanaged(machine: Machine, judge: Judge) -> None:
    """The slice of a grant begins where an unmanaged one has requested its CPUs."""
    machine.add(f"{A}/a.service")
    machine.kernel.set_cpus(A, read_list("2-3"))
    judge.watch()


def alone_without_a_grant(machine: Machine, judge: Judge) -> None:
    """It has its CPUs alone while it holds no grant of them, then it does, and others come."""
    rows, machine.checkpoint["data"]["grants"] = machine.checkpoint["data"]["grants"], []
    judge.watch()
    machine.checkpoint["data"]["grants"] = rows
    judge.watch()
    grow(machine, judge)


def greedy_elsewhere(machine: Machine, judge: Judge) -> None:
    machine.add("greedy.slice", "5")
    judge.watch()
    grow(machine, judge)


def rogue(machine: Machine, dummy: Judge) -> None:
    machine.add("corral_rogue.slice/x.service")
    machine.kernel.set_cpus("corral_rogue.slice", read_list("0-1"))
    machine.kernel.set_partition("corral_rogue.slice", "root")


FOUND = [f"{SYSTEM} has 2-3 of {A}"]


@pytest.mark.parametrize("kind", ["member", "root"])
def test_who_runs_on_a_grants_cpus_is_found(kind: str) -> None:
    assert judged(partition(Machine(), kind), grow) == FOUND
    assert judged(partition(Machine(), kind), grow, OFF) == FOUND


@pytest.mark.parametrize(
    ("act", "rolled_out", "kind", "found"),
    [
        pytest.param(by_hand, AUTO, "root", [], id="what a hand does in this moment"),
        pytest.param(greedy, AUTO, "root", [], id="who asks for the CPUs"),
        pytest.param(greedy_then_grow, AUTO, "root", [], id="a partition that another's request made invalid"),
        pytest.param(greedy_gone_and_mended, AUTO, "root", FOUND, id="no longer once it is mended"),
        pytest.param(greedy_gone, OFF, "member", FOUND, id="no longer once nobody requests them, without partitions"),
        pytest.param(begins_and_is_observed, AUTO, "member", FOUND, id="not a slice that begins"),
        pytest.param(removed_and_rolled_out_again, AUTO, "root", FOUND, id="not once it is a partition again"),
        pytest.param(unmanaged, OFF, "member", [], id="who is not managed, without partitions"),
        pytest.param(
            unmanaged, AUTO, "member", [f"mine.slice/x.service has 2-3 of {A}"], id="not where there are to be some"
        ),
        pytest.param(offline, AUTO, "root", [], id="whose CPUs are offline has no claim to others'"),
        pytest.param(back_online, AUTO, "root", FOUND, id="its own are its own when they are back"),
        pytest.param(removed, AUTO, "root", [], id="a removal took its grant"),
        pytest.param(given_up_and_granted_again, AUTO, "root", FOUND, id="not while it is granted"),
        pytest.param(no_checkpoint, AUTO, "member", [], id="no grant is left, and no partition"),
        pytest.param(no_checkpoint, AUTO, "root", FOUND, id="a partition counts without a checkpoint"),
        pytest.param(reserve_offline, OFF, "member", [], id="whose reserve is offline, without partitions"),
        pytest.param(ended, AUTO, "root", FOUND, id="a partition that ended under its workload"),
        pytest.param(ended_and_empty, AUTO, "root", [], id="one that was given up and that nobody runs in"),
        pytest.param(fallen_beside, OFF, "member", [], id="who has no CPU online, beside what was no partition before"),
        pytest.param(
            fallen_and_the_partition_ended, AUTO, "root", [f"corral_b.slice/b.service has 2-3 of {A}"],
            id="not beside one that was a partition",
        ),
        pytest.param(begins_beside_fallen, AUTO, "member", [], id="who has no CPU online, beside what is to be a partition"),
        pytest.param(granted_the_pool, AUTO, "member", [], id="who is granted what it shares, for now"),
        pytest.param(
            granted_the_pool_and_shared_again, AUTO, "member", [f"corral.slice/y.service has 4-5 of {A}"],
            id="no longer once it was alone there",
        ),
        pytest.param(
            granted_the_pool_as_partition, AUTO, "member", [f"corral.slice/y.service has 4-5 of {A}"],
            id="nor once it is to be a partition",
        ),
        pytest.param(alone_without_a_grant, OFF, "member", FOUND, id="not who was alone on the CPUs before they were granted"),
        pytest.param(greedy_elsewhere, AUTO, "root", FOUND, id="not everybody once somebody asks for other CPUs"),
        pytest.param(rogue, AUTO, "root", [], id="a slice of that name which nobody granted anything"),
    ],
)  # fmt: skip
def test_excuses(
    act: t.Callable[[Machine, Judge], None], rolled_out: dict[str, t.Any], kind: str, found: list[str]
) -> None:
    assert judged(partition(Machine(), kind), act, rolled_out) == found


def test_of_two_that_shared_without_partitions_one_is_the_first_to_shrink() -> None:
    machine = Machine()
    machine.add("corral_b.slice/b.service")
    machine.kernel.set_cpus("corral_b.slice", read_list("2-3"))
    assert judged(machine, both_shrink, OFF) == []


@pytest.mark.parametrize("kind", ["member", "root"])
def test_who_requested_the_cpus_of_a_grant_that_begins_has_them_until_it_is_a_partition(kind: str) -> None:
    machine = Machine()
    del machine.cgroups[A], machine.cgroups[f"{A}/a.service"]
    machine.add("mine.slice/x.service")
    machine.kernel.set_cpus("mine.slice", read_list("2-7"))
    judge = watching(machine, AUTO)
    begins_beside_unmanaged(machine, judge)
    machine.kernel.set_partition(A, kind)
    judge.watch()
    judge.after_step(undone=False)
    ended = [] if machine.cgroups[A].valid and kind == "root" else [f"mine.slice/x.service has 2-3 of {A}"]
    assert [line for line in judge.wrong if not line.startswith("at that moment")] == ended


def test_at_rest_no_slice_of_the_profile_requests_anothers_cpus() -> None:
    machine = Machine()
    judge = Judge(t.cast("t.Any", machine))
    machine.kernel.set_cpus("corral.slice", read_list("3-7"))
    judge.check_requests({}, judge.held())
    assert judge.wrong == [f"at rest: corral.slice requests [3, 4, 5, 6, 7], and {A} is to have [2, 3]"]


@pytest.mark.parametrize(
    ("unit", "says", "found"),
    [
        pytest.param("system.slice", "0-1", [], id="apart"),
        pytest.param("system.slice", "0-2", [f"the drop-in of system.slice says [0, 1, 2], and {A} holds [2, 3]"], id="shared"),
        pytest.param(A, "2-3", [], id="its own"),
        pytest.param(A, "2", [f"the drop-in of {A} says [2], and it holds [2, 3]"], id="other than it holds"),
    ],
)  # fmt: skip
def test_at_rest_no_drop_in_gives_others_cpus_at_the_next_boot(
    tmp_path: Path, unit: str, says: str, found: list[str]
) -> None:
    machine = Machine()
    machine.root = str(tmp_path)
    file = tmp_path / f"etc/systemd/system/{unit}.d/10-corral-cpu.conf"
    file.parent.mkdir(parents=True)
    file.write_text(f"[Slice]\nAllowedCPUs=\nAllowedCPUs={says}\n")
    judge = Judge(t.cast("t.Any", machine))
    judge.check_dropins()
    assert judge.wrong == [f"at rest: {one}" for one in found]


def test_what_was_shared_before_is_said_once() -> None:
    machine = partition(Machine())
    judge = Judge(t.cast("t.Any", machine))
    grow(machine, judge)
    judge.watch()
    judge.watch()
    assert judge.wrong.count(FOUND[0]) == 1


@pytest.mark.parametrize("undone", [True, False])
def test_only_an_undo_gives_back_what_was_shared(undone: bool) -> None:
    machine = Machine()
    judge = Judge(t.cast("t.Any", machine))
    judge.rolled_out = AUTO
    granted_the_pool(machine, judge)
    judge.watch()
    judge.before_step()
    for cpus in ("6-7", "4-5"):
        machine.kernel.set_cpus("corral.slice", read_list(cpus))
    judge.watch()
    judge.after_step(undone)
    assert bool(judge.wrong) == (not undone)
    judge.watch()
    assert bool(judge.wrong) == (not undone), "it shares as it did"


@pytest.mark.parametrize("who", ["more.slice/x.service", "system.slice/x.service"])
@pytest.mark.parametrize("ends_as", ["a partition", "a member"])
def test_what_is_unmanaged_may_request_cpus_of_a_grant_that_begins_until_that_is_a_partition(
    who: str, ends_as: str
) -> None:
    machine = Machine()
    del machine.cgroups[A], machine.cgroups[f"{A}/a.service"]
    rows, machine.checkpoint["data"]["grants"] = machine.checkpoint["data"]["grants"], []
    machine.add(who)
    machine.kernel.set_cpus(who.partition("/")[0], read_list("0-3"))
    judge = watching(machine, AUTO)
    machine.checkpoint["data"]["grants"] = rows
    machine.cgroups[A] = Group()
    machine.kernel.set_cpus(A, read_list("2-3"))
    judge.watch()
    if ends_as == "a partition":
        machine.kernel.set_cpus(who.partition("/")[0], read_list("0-1"))
        machine.kernel.set_partition(A, "root")
        judge.watch()
    judge.after_step(undone=False)
    assert bool(judge.wrong) == (who.startswith("system") or ends_as == "a member")


@pytest.mark.parametrize("undone", [True, False])
def test_only_an_undo_gives_back_cpus_of_a_grant_that_began(undone: bool) -> None:
    machine = Machine()
    del machine.cgroups[A], machine.cgroups[f"{A}/a.service"]
    rows, machine.checkpoint["data"]["grants"] = machine.checkpoint["data"]["grants"], []
    judge = Judge(t.cast("t.Any", machine))
    judge.rolled_out = OFF
    judge.watch()
    judge.before_step()
    judge.rolled_out = OFF
    machine.checkpoint["data"]["grants"] = rows
    machine.cgroups[A] = Group()
    machine.kernel.set_cpus(A, read_list("2-3"))
    judge.watch()
    grow(machine, judge)
    judge.watch()
    judge.after_step(undone)
    assert bool(judge.wrong) == (not undone)


def let_in(machine: Machine, judge: Judge, cpus: str) -> None:
    """An administrator gives system.slice these CPUs."""
    machine.hands = True
    judge.let("system.slice", read_list(cpus))
    machine.kernel.set_cpus("system.slice", read_list(cpus))
    judge.watch()
    machine.hands = False


@pytest.mark.parametrize("who", ["system.slice", "corral.slice"])
def test_what_an_administrator_lets_in_is_excused_also_for_what_starts_there_later(who: str) -> None:
    machine = Machine()
    judge = watching(machine, OFF)
    let_in(machine, judge, "0-2")
    machine.add("system.slice/y.service")
    judge.watch()
    assert judge.wrong == []
    machine.hands = True
    machine.kernel.set_cpus("system.slice", read_list("0-1"))
    judge.watch()
    machine.hands = False
    machine.add("corral.slice/y.service")
    machine.kernel.set_cpus(who, read_list("2,4-7"))
    judge.watch()
    assert bool(judge.wrong) == (who == "corral.slice")


@pytest.mark.parametrize("named", ["[]", "system.slice AllowedCPUs"])
def test_a_tick_mends_what_an_administrator_let_in_or_names_it(named: str) -> None:
    machine = Machine()
    judge = Judge(t.cast("t.Any", machine))
    judge.rolled_out = AUTO
    let_in(machine, judge, "0-3")
    judge.after_tick(named)
    assert bool(judge.wrong) == (named == "[]")


@pytest.mark.parametrize("ticks", [0, 1])
def test_what_a_tick_mended_is_excused_no_more(ticks: int) -> None:
    machine = partition(Machine())
    judge = watching(machine, AUTO)
    let_in(machine, judge, "0-3")
    machine.kernel.set_cpus("system.slice", read_list("0-1"))
    for kind in ("member", "root"):
        partition(machine, kind)
        judge.watch()
    for dummy in range(ticks):
        judge.after_tick("[]")
    assert judge.wrong == []
    grow(machine, judge)
    judge.watch()
    assert bool(judge.wrong) == bool(ticks)


@pytest.mark.parametrize("top", ["system.slice", "more.slice"])
def test_only_an_unmanaged_slice_goes_on_asking_for_what_an_administrator_set(top: str) -> None:
    machine = partition(Machine())
    judge = watching(machine, AUTO)
    judge.let(top, read_list("4-5"))
    machine.add(f"{top}/z.service")
    machine.kernel.set_cpus(top, read_list("2-5"))
    judge.watch()
    assert bool(judge.wrong) == (top == "system.slice")
