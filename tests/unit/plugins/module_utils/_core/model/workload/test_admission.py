# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Who gets what, who is refused in which words, and what a change leaves alone."""

from __future__ import annotations

import typing as t

import pytest
from _core.model.cpu import pools
from _core.model.cpu.pools import workload_cpus
from _core.model.numa.numa_memory import Block
from _core.model.profile import profile
from _core.model.profile.profile_workloads import Workload
from _core.model.topology import cpu_topology
from _core.model.values import cpuset
from _core.model.workload import admission, grants, resource_requirements
from _core.model.workload.admission import AllocationResult, WorkloadStatus
from _core.model.workload.grants import Grant
from _core.model.workload.node_budget import AllocationInput
from machines import machine

MIB, GIB = 1 << 20, 1 << 30
RUN = "running"


class Node:
    """A node in memory: what is declared on it, what was granted, and what runs."""

    def __init__(
        self, nodes: int = 1, cores: int = 12, threads: int = 1, *, node_memory: int = 0, **sections: t.Any
    ) -> None:
        self.shape = (nodes, cores, threads)
        self.offline: frozenset[int] = frozenset()
        self.memory = node_memory
        self.sections: dict[str, t.Any] = {}
        self.cpu: dict[str, t.Any] = {"policy": "static", "reserved": {"count": 2}}
        self.workloads: dict[str, Workload] = {}
        self.held: tuple[Grant, ...] = ()
        self.alive: set[str] = set()
        self.lost: dict[str, str] = {}
        self.sharing: set[str] = set()
        self.pids: int | None = None
        self.change(**sections)

    def change(self, offline: t.Iterable[int] = (), **sections: t.Any) -> None:
        """Another profile, or other CPUs online."""
        self.offline = frozenset(offline)
        self.cpu.update(sections.pop("cpu", {}))
        self.sections.update(sections)
        declared = profile.parse({"name": "x", "cpu": self.cpu, **self.sections})
        topology = machine(*self.shape, offline_present=self.offline)
        tables = {node: {"memory": self.memory} for node in topology.numa} if self.memory else {}
        self.machine = AllocationInput(
            declared, topology, cpu_topology.of(topology), pools.compute(declared, topology), tables, self.pids
        )

    def declare(self, name: str, **row: t.Any) -> AllocationResult:
        """A workload by its requests and limits, both the same if only one is given."""
        kind = "pod" if "containers" in row else "unit"
        data = {"name": name, "match": {kind: f"{name}.service"}, **row}
        self.workloads[name] = profile.parse_workloads([data])[0]
        return self.allocate()

    def guaranteed(self, name: str, cpu: int | str, memory: str = "1Mi", **row: t.Any) -> AllocationResult:
        return self.declare(name, limits={"cpu": cpu, "memory": memory}, **row)

    def delete(self, name: str) -> AllocationResult:
        del self.workloads[name]
        return self.allocate()

    def allocate(self, **asked: str) -> AllocationResult:
        policy = self.machine.profile.cpu.policy if self.machine.profile.cpu else "none"
        listed = [resource_requirements.of(one, policy, None) for one in self.workloads.values()]
        status = WorkloadStatus(frozenset(self.alive), asked, 7, self.lost, sharing=frozenset(self.sharing))
        found = admission.allocate(self.machine, listed, self.held, status)
        self.held = found.grants
        return found

    def cpus(self, name: str) -> str:
        """The CPUs of its own."""
        return cpuset.format(self.grant(name).cpus)

    def grant(self, name: str) -> Grant:
        return next(grant for grant in self.held if grant.workload == name)

    @property
    def shared(self) -> int:
        """On how many CPUs a shared workload can run."""
        return len(workload_cpus(pools.with_exclusive(self.machine.pools, grants.exclusive(self.held))))


def told(found: AllocationResult) -> list[str]:
    return [one.reason for one in found.events]


def refusal(found: AllocationResult) -> str:
    (one,) = found.refusals
    return f"{one.workload}.{one.key}: {one.value}: {one.message}"


LOOSE = {"strict-cpu-reservation": False}


def test_the_quiz_that_trips_the_kubelet() -> None:
    """From 1.22 on a kubelet leaves the Burstable one with 6 CPUs after the Guaranteed one is gone."""
    node = Node(cpu={"options": LOOSE})
    can_run_on = [node.shared]
    node.declare("burstable", requests={"cpu": 4}, limits={"cpu": 8})
    can_run_on.append(node.shared)
    for act in (node.guaranteed, lambda name, *dummy: node.delete(name), node.guaranteed):
        assert not act("guaranteed", 6).refusals
        can_run_on.append(node.shared)
    assert can_run_on == [12, 12, 6, 12, 6]


# Refusals


def test_not_enough_cpus_says_how_many_are_missing_where_and_who_has_them() -> None:
    node = Node(2, 6, 1, cpu={"reserved": {"cpus": "0,6"}})
    node.guaranteed("first", 6)
    node.workloads["third"] = profile.parse_workloads(
        [{"name": "third", "match": {"unit": "t.service"}, "limits": {"cpu": 5, "memory": "1Mi"}}]
    )[0]
    found = node.allocate()
    assert refusal(found) == (
        "third.requests.cpu: 5: 1 missing: this node can give 10 in all, first has 6: "
        "ask for less, reserve less, or release one of them"
    )
    assert [grant.workload for grant in found.grants] == ["first"]


def test_cpus_that_are_free_in_sum_but_not_here_are_told_by_node() -> None:
    node = Node(2, 6, 1, cpu={"reserved": {"cpus": "0,6"}}, topology={"policy": "single-numa-node"})
    node.guaranteed("first", 3)
    said = refusal(node.guaranteed("wide", 6))
    assert said.startswith("wide.requests: cpu 6, memory 1Mi: topology policy single-numa-node: ")
    assert said.endswith(
        "(free CPUs: node 0: 2, node 1: 5; first has 1-3): ask for less, release a workload, or declare another topology.policy"
    )


@pytest.mark.parametrize(("strict", "most"), [(True, 6), (False, 8)])
def test_the_shared_pool_keeps_its_minimum(strict: bool, most: int) -> None:
    """Reserved CPUs count where shared workloads may run on them."""
    node = Node(cpu={"shared": {"min_cpus": 4}, "options": {"strict-cpu-reservation": strict}})
    assert refusal(node.guaranteed("a", most + 1)) == (
        f"a.requests.cpu: {most + 1}: the shared pool would be left with fewer than 4 CPUs (cpu.shared.min_cpus): "
        "ask for fewer, or reserve fewer (free CPUs: node 0: 10)"
    )
    assert not node.guaranteed("a", most).refusals
    assert node.shared == 4


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        (3, "SMT Alignment Error: requested 3 cpus not multiple cpus per core = 2 (cpu.options.full-pcpus-only)"),
        (10, ("SMT Alignment Error: not enough free physical CPUs: available physical CPUs = 8, requested CPUs = 10, "
              "CPUs per core = 2 (cpu.options.full-pcpus-only)")),
    ],
)  # fmt: skip
def test_whole_cores_or_nothing(asked: int, said: str) -> None:
    node = Node(1, 6, 2, cpu={"reserved": {"cpus": "0,2"}, "options": {"full-pcpus-only": True}})
    assert refusal(node.guaranteed("a", asked)) == f"a.requests.cpu: {asked}: {said}"
    node.guaranteed("a", 4)
    assert node.cpus("a") == "4-7"


def test_a_part_of_a_cpu_is_shared() -> None:
    node = Node()
    found = node.guaranteed("a", "1500m")
    assert (found.refusals, node.cpus("a"), node.shared) == ((), "", 10)


@pytest.mark.parametrize(
    ("row", "said"),
    [
        ({"requests": {"cpu": 5}}, "b.requests.cpu: 5: 1 missing: this node can give 10 in all, a has 6"),
        ({"requests": {"cpu": "4001m"}}, "b.requests.cpu: 4001m: 1m missing: this node can give 10 in all, a has 6"),
        ({"requests": {"memory": "3Gi"}}, "b.requests.memory: 3Gi: 2049Mi missing: this node can give 1024Mi in all, a has 1Mi"),
        ({"requests": {"hugepages-2Mi": "2Mi"}, "limits": {"hugepages-2Mi": "2Mi"}}, None),
        ({"limits": {"pids": 101}}, "b.limits.pids: 101: 1 missing: this node can give 100 in all"),
        ({"requests": {"cpu": 4}, "limits": {"cpu": 99, "pids": 100}}, None),
    ],
)  # fmt: skip
def test_the_requests_of_all_stay_within_what_the_node_can_give(row: dict[str, t.Any], said: str | None) -> None:
    """Limits may be as large as one likes, but for tasks, which nobody requests."""
    node = Node(node_memory=GIB)
    node.pids = 100
    node.change()
    node.declare("a", requests={"cpu": 6, "memory": "1Mi"}, limits={"cpu": 20})
    found = node.declare("b", **row)
    if said is None:
        assert found.refusals == ()
    else:
        assert refusal(found).startswith(said)


def test_more_cannot_be_had_by_declaring_it_anew() -> None:
    node = Node()
    node.declare("a", requests={"cpu": 6})
    node.declare("b", requests={"cpu": 4})
    assert refusal(node.declare("a", requests={"cpu": 7})).startswith("a.requests.cpu: 7: 1 missing")
    node.delete("b")
    assert not node.declare("a", requests={"cpu": 10}).refusals


def test_memory_of_one_node_or_none() -> None:
    node = Node(2, 6, 1, node_memory=GIB)
    node.change(memory={"policy": "static"}, topology={"policy": "single-numa-node"})
    node.guaranteed("a", 2, "700Mi")
    assert (node.cpus("a"), node.grant("a").mems) == ("2-3", {0})
    node.guaranteed("b", 2, "700Mi")
    assert (node.cpus("b"), node.grant("b").mems) == ("6-7", {1})
    said = refusal(node.guaranteed("c", 2, "700Mi"))
    assert said.startswith(
        "c.requests.memory: 700Mi: 52Mi missing: this node can give 2048Mi in all, a has 700Mi, b has 700Mi"
    )
    said = refusal(node.guaranteed("c", 2, "500Mi"))
    assert said.startswith("c.requests: cpu 2, memory 500Mi: topology policy single-numa-node: ")
    assert "memory" in said


def test_a_node_is_used_alone_or_in_a_group_never_both() -> None:
    node = Node(2, 6, 1, node_memory=GIB)
    node.change(memory={"policy": "static"})
    node.guaranteed("both", 2, "1500Mi")
    assert node.grant("both").mems == {0, 1}
    node.guaranteed("small", 2, "100Mi")
    assert node.grant("small").mems == {0, 1}, "node 0 belongs to the group already"


# Containers


def test_an_init_container_hands_its_cpus_to_those_after_it() -> None:
    node = Node()

    def limits(cpu: int) -> dict[str, t.Any]:
        return {"limits": {"cpu": cpu, "memory": "1Mi"}}

    rows = [{"name": "init", "role": "init", **limits(6)}, {"name": "one", **limits(4)}, {"name": "two", **limits(2)}]
    assert not node.declare("pod", containers=rows).refusals
    found = dict(node.grant("pod").containers)
    assert found["init"] == found["one"] | found["two"] == node.grant("pod").cpus
    assert (len(found["one"]), len(found["two"]), found["one"] & found["two"]) == (4, 2, frozenset())


# What stays, and what moves


def test_others_stay_where_they_are_whoever_comes_and_goes() -> None:
    node = Node()
    node.guaranteed("a", 2)
    node.guaranteed("b", 2)
    before = node.cpus("b")
    node.delete("a")
    node.guaranteed("c", 4)
    assert node.cpus("b") == before
    assert told(node.allocate()) == []


@pytest.mark.parametrize(("count", "kept"), [(2, "2-3"), (6, "2-7")])
def test_who_asks_for_another_number_keeps_what_it_can(count: int, kept: str) -> None:
    node = Node()
    node.guaranteed("a", 4)
    assert node.cpus("a") == "2-5"
    found = node.guaranteed("a", count)
    assert (node.cpus("a"), told(found)) == (kept, [f"{count} CPUs of its own are declared, it has 4"])


def test_a_cpu_that_goes_offline_moves_its_owner_alone() -> None:
    node = Node()
    node.guaranteed("a", 4)
    node.guaranteed("b", 2)
    node.change(offline=[3])
    assert told(node.allocate()) == ["CPUs 3 are offline now"]
    assert (node.cpus("a"), node.cpus("b")) == ("2,4-5,8", "6-7")
    node.change()
    assert told(node.allocate()) == [], "nobody moves back for a CPU that returned"


@pytest.mark.parametrize("others", [True, False])
def test_what_runs_keeps_its_cpus_while_others_come_back_online(*, others: bool) -> None:
    """a runs on what is left on node 1, and b, where it is there, on node 0, all of which would be enough for a."""
    node = Node(2, 5, 1, cpu={"reserved": {"cpus": "0"}}, topology={"policy": "single-numa-node"})
    node.guaranteed("b", 3)
    node.guaranteed("a", 3)
    assert (node.cpus("b"), node.cpus("a")) == ("1-3", "5-7")
    node.alive = {"a", "b"}
    node.change(offline=[1, 2, 5, 8, 9])
    node.allocate()
    assert (node.cpus("b"), node.cpus("a")) == ("3", "6-7")
    # a is decided on first.
    node.workloads = dict(reversed(node.workloads.items()))
    if not others:
        node.delete("b")
    node.change()
    node.allocate()
    assert node.cpus("a") == "5-7"
    if others:
        assert node.cpus("b") == "1-3"


@pytest.mark.parametrize("order", ["dabc", "adbc"])
def test_what_runs_keeps_its_cpus_although_the_shared_pool_has_too_few_for_another_one(order: str) -> None:
    """d lost its only CPU, and got the last one that the shared pool could spare: a had to leave its own for the pool."""
    node = Node(1, 8, 1, cpu={"reserved": {"cpus": "0"}})
    node.guaranteed("a", 2)
    for name in "bcd":
        node.guaranteed(name, 1)
    assert [node.cpus(name) for name in "abcd"] == ["1-2", "3", "4", "5"]
    node.alive = set("abcd")
    node.workloads = {name: node.workloads[name] for name in order}
    node.change(offline=[1, 5, 7])
    assert {one.workload for one in node.allocate().refusals} == {"a", "d"}
    assert [node.cpus(name) for name in "abc"] == ["2", "3", "4"]
    assert node.shared == 1


def test_who_had_something_comes_before_who_is_new() -> None:
    node = Node(1, 8, 1)
    node.guaranteed("old", 4)
    node.workloads = {**profile_of(new=2), **node.workloads}
    node.change(offline=[3])
    found = node.allocate()
    assert [one.workload for one in found.refusals] == ["new"]
    assert node.cpus("old") == "2,4-6"


def profile_of(**cpus: int) -> dict[str, Workload]:
    rows = [
        {"name": name, "match": {"unit": f"{name}.service"}, "limits": {"cpu": count, "memory": "1Mi"}}
        for name, count in cpus.items()
    ]
    return {one.name: one for one in profile.parse_workloads(rows)}


def test_another_reserve_moves_only_those_on_it() -> None:
    node = Node()
    node.guaranteed("a", 2)
    node.guaranteed("b", 2)
    node.change(cpu={"reserved": {"cpus": "2-3"}})
    assert told(node.allocate()) == ["CPUs 2-3 are reserved or isolated now"]
    assert (node.cpus("a"), node.cpus("b")) == ("0-1", "4-5")


def test_whole_cores_asked_for_later_move_only_those_without() -> None:
    node = Node(1, 6, 2, cpu={"reserved": {"cpus": "0-1"}})
    node.guaranteed("whole", 4)
    node.guaranteed("one", 1)
    node.guaranteed("three", 3)
    assert (node.cpus("whole"), node.cpus("one"), node.cpus("three")) == ("2-5", "6", "7-9")
    node.delete("one")
    node.guaranteed("three", 4)
    assert node.cpus("three") == "6-9", "a core is completed"
    node.held = (node.grant("whole"), node.grant("three")._replace(cpus=frozenset({7, 8, 9, 10})))
    node.change(cpu={"options": {"full-pcpus-only": True}})
    assert told(node.allocate()) == ["whole cores are asked for, and it lacks CPUs 6,11"]
    assert (node.cpus("whole"), node.cpus("three")) == ("2-5", "6-9")


def test_a_larger_minimum_of_the_shared_pool_takes_from_the_last() -> None:
    node = Node()
    node.guaranteed("a", 4)
    node.guaranteed("b", 4)
    node.change(cpu={"shared": {"min_cpus": 6}})
    found = node.allocate()
    assert [grant.workload for grant in found.grants] == ["a"]
    assert "the shared pool would be too small; refused:" in told(found)[0]


@pytest.mark.parametrize(("alive", "first"), [({"b"}, "2-3,6-7"), (set(), "2-5")])
def test_a_larger_grant_takes_no_cpus_on_which_another_workload_runs_that_is_not_decided_on_yet(
    alive: set[str], first: str
) -> None:
    node = Node()
    node.guaranteed("a", 2)
    node.guaranteed("b", 2)
    node.alive = alive
    for name, count in (("a", 4), ("b", 3)):
        node.workloads[name] = profile.parse_workloads(
            [{"name": name, "match": {"unit": f"{name}.service"}, "limits": {"cpu": count, "memory": "1Mi"}}]
        )[0]
    node.allocate()
    assert node.cpus("a") == first


@pytest.mark.parametrize("hold", ["running", "declared"])
def test_a_shared_cpu_that_goes_offline_ends_no_grant_on_others(hold: str) -> None:
    node = Node(1, 8, cpu={"shared": {"min_cpus": 2}})
    node.guaranteed("a", 2, hold=hold)
    node.guaranteed("b", 2, hold=hold)
    node.alive = {"a", "b"}
    held = node.allocate(**({"a": "1", "b": "2"} if hold == "running" else {})).grants
    node.change(offline=[7])
    found = node.allocate()
    assert (node.shared, found.events, found.refusals) == (1, (), ())
    assert [one.cpus for one in found.grants] == [one.cpus for one in held] == [{2, 3}, {4, 5}]
    assert "the shared pool would be left with fewer" in refusal(node.guaranteed("c", 1))
    node.change(offline=[6, 7])
    assert [one.partition(";")[0] for one in told(node.allocate())] == ["the shared pool would have no CPU"]


def test_without_the_static_policy_cpus_go_back_as_runs_end() -> None:
    node = Node()
    node.guaranteed("runs", 4)
    node.guaranteed("rests", 2)
    node.alive = {"runs"}
    node.change(cpu={"policy": "none"})
    node.allocate()
    assert (node.cpus("runs"), node.cpus("rests")) == ("2-5", "")
    node.alive.clear()
    node.allocate()
    assert node.cpus("runs") == ""


def test_a_run_that_began_anew_on_the_shared_pool_gives_its_cpus_back_and_holds_the_rest() -> None:
    node = Node()
    node.guaranteed("runs", 4)
    node.alive = {"runs"}
    node.change(cpu={"policy": "none"})
    node.sharing = {"runs"}
    found = node.allocate()
    assert [(grant.workload, grant.cpus) for grant in found.grants] == [("runs", frozenset())]
    assert told(found) == ["it does not run on its CPUs any more"]


def test_memory_that_is_gone_after_a_reboot_breaks_its_grant_alone() -> None:
    node = Node(2, 6, 1, node_memory=GIB)
    node.change(memory={"policy": "static"})
    node.guaranteed("a", 2, "700Mi")
    node.guaranteed("b", 2, "700Mi")
    node.lost = {"b": "node 1 is gone"}
    assert told(node.allocate()) == ["node 1 is gone"]


# Holds


def test_what_is_held_while_it_runs_is_granted_at_the_start_and_ends_with_the_run() -> None:
    node = Node()
    node.guaranteed("a", 4, hold=RUN)
    assert node.held == ()
    node.allocate(a="run-1")
    assert (node.cpus("a"), node.grant("a").instance) == ("2-5", "run-1")
    node.alive = {"a"}
    assert told(node.allocate()) == []
    node.alive.clear()
    assert told(node.allocate()) == ["its run has ended"]
    assert node.held == ()


def test_a_run_that_begins_while_the_one_before_is_there_goes_on_with_its_cpus() -> None:
    node = Node()
    node.guaranteed("a", 4, hold=RUN)
    node.allocate(a="run-1")
    node.alive = {"a"}
    node.allocate(a="run-2")
    assert (node.cpus("a"), node.grant("a").instance) == ("2-5", "run-2")


def test_memory_that_a_refused_workload_keeps_is_given_to_no_other() -> None:
    """Both lose a CPU: the first moves to two nodes, the second cannot be made whole and its memory stays where it is."""
    node = Node(4, 4, 1, node_memory=GIB, cpu={"reserved": {"count": 1}, "shared": {"min_cpus": 2}})
    node.change(memory={"policy": "static"}, topology={"policy": "best-effort"})
    node.guaranteed("a", 4)
    node.guaranteed("b", 3)
    node.guaranteed("c", 6)
    before = {grant.workload: grant for grant in node.held}
    lost = [min(before[name].cpus) for name in ("a", "c")]
    node.change(offline=lost)
    node.allocate()
    sets = [block.nodes for grant in node.held for block in grant.blocks]
    assert {grant.workload for grant in node.held} == {"a", "b", "c"}
    assert [(a, b) for a in sets for b in sets if a & b and a != b] == [], "the kubelet's rule of groups"


def test_a_run_keeps_what_it_has_when_it_is_no_longer_declared() -> None:
    node = Node()
    node.guaranteed("a", 4, hold=RUN)
    node.allocate(a="run-1")
    node.alive = {"a"}
    node.delete("a")
    assert node.cpus("a") == "2-5"
    node.change(offline=[3])
    assert told(node.allocate()) == ["CPUs 3 are offline now"], "it cannot be placed anew, and that is told"
    assert node.held == ()


def test_a_hold_that_changes_leaves_the_cpus_alone() -> None:
    node = Node()
    node.guaranteed("a", 4, hold=RUN)
    node.allocate(a="run-1")
    node.alive = {"a"}
    node.guaranteed("a", 4, hold="declared")
    assert (node.cpus("a"), node.grant("a").hold, node.grant("a").instance) == ("2-5", "declared", "")
    node.guaranteed("a", 4, hold=RUN)
    assert (node.cpus("a"), node.grant("a").hold) == ("2-5", RUN)


def test_a_slice_without_memory_nodes_is_no_grant_of_memory() -> None:
    node = Node(2, 6, 1, node_memory=GIB)
    node.change(memory={"policy": "static"}, topology={"policy": "single-numa-node"})
    node.guaranteed("a", 2, "100Mi")
    (before,) = node.held
    node.held = (before._replace(blocks=(), mems=None),)
    assert told(node.allocate()) == ["other amounts of memory are declared"]
    assert node.held == (before,)


def test_a_grant_that_the_slices_show_is_completed_where_it_is() -> None:
    node = Node(2, 6, 1, node_memory=GIB)
    node.change(memory={"policy": "static"}, topology={"policy": "single-numa-node"})
    node.guaranteed("a", 2, "100Mi")
    node.guaranteed("b", 2, "100Mi")
    before = node.held
    node.held = tuple(one._replace(blocks=(), containers=()) for one in before)
    node.allocate()
    assert [(one.cpus, one.mems, one.blocks) for one in node.held] == [
        (one.cpus, one.mems, one.blocks) for one in before
    ]
    assert node.grant("a").blocks == (Block(frozenset({0}), "memory", 100 * MIB),)
