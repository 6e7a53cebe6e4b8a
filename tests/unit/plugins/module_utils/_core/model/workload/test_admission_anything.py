# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Any sequence of what happens to workloads on any machine: nobody shares, loses or leaks a CPU, at no instant.

CORRAL_LONG=1 takes 2,000 sequences of 60 steps (120,000 in all, some ten minutes) instead of a few short ones.
"""

from __future__ import annotations

import os
import typing as t

from _core.model.cpu import cpu_options, handover, pools, slices
from _core.model.cpu.handover import NoSafeOrder
from _core.model.plan import replay_v1
from _core.model.profile import profile
from _core.model.profile.profile_workloads import DECLARED, RUNNING, Workload
from _core.model.topology import cpu_topology
from _core.model.topology.topology import NumaNode, Topology, ordered
from _core.model.values.errors import CorralError
from _core.model.workload import admission, grants, resource_requirements
from _core.model.workload.admission import AllocationResult, WorkloadStatus
from _core.model.workload.grants import Grant, is_exclusive
from _core.model.workload.node_budget import AllocationInput
from _core.model.workload.resource_requirements import ResourceRequirements
from example_counts import examples
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

LONG = bool(os.environ.get("CORRAL_LONG"))
SEQUENCES, STEPS = (2000, 60) if LONG else (40, 25)
MIB = 1 << 20
MEMORY = 1024 * MIB  # of a NUMA node
NAMES = [f"w{number}" for number in range(6)]
names = st.sampled_from(NAMES)
CpuSet = frozenset[int]


def topology_of(sockets: int, nodes: int, cores: int, threads: int) -> Topology:
    """A machine numbered as x86 does: the first thread of every core, then the second ones."""
    total = sockets * nodes * cores
    groups = [frozenset(range(core, total * threads, total)) for core in range(total)]
    numa = {
        node: NumaNode(node, frozenset[int]().union(*groups[node * cores : (node + 1) * cores]), MEMORY >> 10, {})
        for node in range(sockets * nodes)
    }
    by_socket = {
        str(socket): frozenset[int]().union(*groups[socket * nodes * cores : (socket + 1) * nodes * cores])
        for socket in range(sockets)
    }
    return Topology(
        online=frozenset(range(total * threads)),
        isolated=frozenset(),
        sockets=by_socket,
        cores=ordered(groups),
        l3=ordered(by_socket.values()),
        numa=numa,
        distances=tuple(tuple(10 if a == b else 20 for b in numa) for a in numa),
        distance_nodes=tuple(numa),
        machine_memory_kib=(MEMORY >> 10) * len(numa),
        global_hugepages={},
    )


def without(whole: Topology, offline: CpuSet) -> Topology:
    """The machine with some CPUs offline, as discovery finds it."""

    def left(cpus: CpuSet) -> CpuSet:
        return cpus - offline

    return whole._replace(
        online=left(whole.online),
        offline_present=offline,
        sockets={name: left(cpus) for name, cpus in whole.sockets.items() if left(cpus)},
        cores=ordered(filter(None, map(left, whole.cores))),
        l3=ordered(filter(None, map(left, whole.l3))),
        numa={node: one._replace(cpus=left(one.cpus)) for node, one in whole.numa.items()},
    )


@st.composite
def workloads(draw: st.DrawFn, name: str) -> Workload:
    """Guaranteed ones mostly, since they are what moves CPUs."""
    cpu = draw(st.sampled_from([1, 2, 2, 3, 4, 4, 6, 8])) * 1000 + (500 if draw(st.integers(0, 5)) == 0 else 0)
    memory = draw(st.integers(1, 600)) * MIB
    requests = (("cpu", cpu), ("memory", memory))
    limits = requests if draw(st.integers(0, 4)) else (("cpu", cpu * 2), ("memory", memory))
    return Workload(name, "unit", f"{name}.service", draw(st.sampled_from([DECLARED, RUNNING])), requests, limits)


# Sockets, NUMA nodes of each, cores of each, threads of each: 4 to 64 CPUs.
SHAPES = [
    (1, 1, 4, 1),
    (1, 1, 6, 2),
    (2, 1, 4, 2),
    (1, 4, 4, 1),
    (2, 2, 3, 2),
    (2, 2, 4, 2),
    (1, 1, 16, 4),
    (2, 2, 8, 2),
]
OPTIONS = st.fixed_dictionaries(
    {name: st.booleans() for name in cpu_options.NAMES if name != "strict-cpu-reservation"}
    | {"strict-cpu-reservation": st.booleans()}
).map(lambda given: given if not cpu_options.forbidden(options_of(given)) else {"full-pcpus-only": True})


def options_of(given: dict[str, bool]) -> cpu_options.Options:
    return cpu_options.Options(**{cpu_options.NAMES[name]: value for name, value in given.items()})


class Node(RuleBasedStateMachine):
    """A node in memory: the profile and the machine, grants as they were written, runs, and who has which CPUs now."""

    def __init__(self) -> None:
        super().__init__()
        self.declared: dict[str, Workload] = {}
        self.held: tuple[Grant, ...] = ()
        self.alive: dict[str, str] = {}  # run by workload; "" where a run needs no name
        self.requested: dict[str, CpuSet] = {}  # by slice
        self.runs = 0
        self.offline: CpuSet = frozenset()
        self.settled: tuple[object, dict[str, Workload]] = (None, {})  # with which machine, for whom
        self.short: set[str] = set()  # refused: they keep what is left of a grant until there is room

    @initialize(
        shape=st.sampled_from(SHAPES),
        options=OPTIONS,
        policy=st.sampled_from(["none", "best-effort", "restricted", "single-numa-node"]),
        memory=st.sampled_from(["none", "static"]),
        reserved=st.integers(1, 2),
        min_shared=st.integers(1, 2),
    )
    def begin(
        self,
        shape: tuple[int, int, int, int],
        options: dict[str, bool],
        policy: str,
        memory: str,
        reserved: int,
        min_shared: int,
    ) -> None:
        self.whole = self.topology = topology_of(*shape)
        if policy == "single-numa-node":
            options = {**options, "align-by-socket": False}
        self.sections: dict[str, t.Any] = {
            "cpu": {
                "policy": "static",
                "reserved": {"count": reserved},
                "options": options,
                "shared": {"min_cpus": min_shared},
            },
            "memory": {"policy": memory},
            "topology": {"policy": policy, "options": {"max-allowable-numa-nodes": 64}},
        }
        self.machine = self.compiled(self.sections, self.topology)
        self.take_over(self.allocate({}), self.machine)

    def compiled(self, sections: dict[str, t.Any], topology: Topology) -> AllocationInput:
        """Raises CorralError where the profile does not fit."""
        declared = profile.parse({"name": "x", **sections})
        tables = {node: {"memory": MEMORY} for node in topology.numa}
        return AllocationInput(
            declared, topology, cpu_topology.of(topology), pools.compute(declared, topology), tables, 100_000
        )

    # What is looked at

    def needs(self, machine: AllocationInput) -> list[ResourceRequirements]:
        cpu = machine.profile.cpu
        assert cpu
        return [resource_requirements.of(one, cpu.policy, None) for one in self.declared.values()]

    def status(self, asked: t.Mapping[str, str]) -> WorkloadStatus:
        return WorkloadStatus(frozenset(self.alive), asked, 1)

    def allocate(self, asked: t.Mapping[str, str], held: t.Sequence[Grant] | None = None) -> AllocationResult:
        held = self.held if held is None else held
        return admission.allocate(self.machine, self.needs(self.machine), held, self.status(asked))

    # What must hold of whatever is decided

    def take_over(self, found: AllocationResult, machine: AllocationInput) -> None:
        self.check_grants(found, machine)
        self.check_moves(found, machine)
        self.hand_over(found, machine)
        self.held, self.settled = found.grants, (machine, dict(self.declared))
        self.short = {one.workload for one in found.refusals}
        again = admission.allocate(machine, self.needs(machine), self.held, self.status({}))
        lasting = [one for one in self.held if one.hold == DECLARED or one.workload in self.alive]
        assert list(again.grants) == lasting, "what was decided is decided again"

    def check_grants(self, found: AllocationResult, machine: AllocationInput) -> None:
        cpu, taken = machine.profile.cpu, frozenset[int]()
        assert cpu
        by_name = {need.workload.name: need for need in self.needs(machine)}
        # Who cannot be made whole again keeps what is left.
        short = {one.workload for one in found.refusals}
        for grant in found.grants:
            need = by_name.get(grant.workload)
            assert not grant.cpus & taken, "two have one CPU"
            assert grant.cpus <= machine.assignable
            taken |= grant.cpus
            if grant.workload in short:
                assert grant.cpus, "what is left of a grant is not nothing"
                continue
            if need is not None and cpu.policy == "static":
                assert len(grant.cpus) == need.cpus
            if cpu.options.full_pcpus_only:
                assert machine.topology.siblings_of(grant.cpus) == grant.cpus, "a sibling is somebody else's"
            if cpu.policy == "static" and need and need.cpus and self.sections["memory"]["policy"] == "static":
                assert sum(block.size for block in grant.blocks) == dict(need.requests)["memory"]
                assert grant.mems == frozenset().union(*(block.nodes for block in grant.blocks))
            policy = machine.policy.name
            if policy == "single-numa-node" and grant.cpus and grant.blocks:
                assert len(grant.mems or ()) == 1
        left = machine.assignable - taken
        shared = left if machine.pools.strict else left | machine.pools.reserved
        if taken:
            assert len(shared | machine.topology.offline_present) >= cpu.min_shared and shared
        for node in machine.memory:
            there = [b for g in found.grants for b in g.blocks if node in b.nodes]
            assert len({block.nodes for block in there}) <= 1 or all(len(block.nodes) == 1 for block in there)
        total = sum(dict(grant.requests).get("cpu", 0) for grant in found.grants)
        fresh = [told for told in found.events if told.before is None and told.after is not None]
        if fresh:
            assert total <= 1000 * len(machine.assignable), "more was promised than there is"

    def check_moves(self, found: AllocationResult, machine: AllocationInput) -> None:
        """A grant stays as it is where nothing speaks against it; whatever became of one is told."""
        after = {grant.workload: grant for grant in found.grants}
        told = {one.workload: one for one in found.events}
        by_name = {need.workload.name: need for need in self.needs(machine)}
        for grant in self.held:
            now = after.get(grant.workload)
            name = grant.workload
            static = self.sections["cpu"]["policy"] == "static"
            need = by_name.get(name)
            # One that cannot have what it asks for now keeps what it has, until there is room.
            met = (
                name not in self.short
                and need is not None
                and (len(grant.cpus), grant.requests) == (need.cpus, need.requests)
            )
            stays = (
                static and met and need.workload.hold == grant.hold and (grant.hold == DECLARED or name in self.alive)
            )
            if stays and self.settled == (machine, {**self.settled[1], name: self.declared.get(name)}):
                assert now is not None, "a grant ended although it is asked for as before"
                assert (now.cpus, now.mems) == (grant.cpus, grant.mems), "a grant moved for somebody else"
            if now is None or now.cpus != grant.cpus or now.mems != grant.mems:
                assert grant.workload in told, "a grant moved or ended and nobody says so"
                assert told[grant.workload].reason
        for one in found.events:
            assert (one.after is None) == (one.workload not in after)

    def hand_over(self, found: AllocationResult, machine: AllocationInput) -> None:
        """Move the CPUs as the cpu manager does, every write looked at."""
        cpu = machine.profile.cpu
        assert cpu
        left = pools.with_exclusive(machine.pools, grants.exclusive(found.grants))
        wanted = slices.wanted_cpus(cpu, left, found.grants)
        running = {grants.slice_of(name, exclusive=True) for name in self.alive}
        # What is there and nobody is to have any more shares from now on, whether anything runs in it or not.
        now = {unit: self.effective(unit) if unit in self.requested else None for unit in (*wanted, *self.requested)}
        moving = slices.handover_slices(wanted, now)
        moves = handover.order(moving, left.reserved)
        assert replay_v1.new_overlap(moving, moves) is None
        exclusive = {one.unit for one in moving if one.exclusive}
        assert exclusive == {unit for unit in wanted if is_exclusive(unit)}
        state = {one.unit: one.now for one in moving}
        before = replay_v1.overlaps(state, exclusive)
        for unit, cpus in moves:
            assert cpus
            state[unit] = cpus
            assert replay_v1.overlaps(state, exclusive) <= before
        self.requested = dict(wanted)
        for unit in running:
            # Who lost its CPUs runs as shared until it stops.
            if unit not in wanted and unit in now:
                self.requested[unit] = wanted["corral.slice"]

    def effective(self, unit: str) -> CpuSet:
        """What the kernel has in force: all CPUs where none of a unit's own are online."""
        return self.requested.get(unit, frozenset()) & self.topology.online or self.topology.online

    # What happens

    @rule(data=st.data(), name=names)
    def declare(self, data: st.DataObject, name: str) -> None:
        self.declared[name] = data.draw(workloads(name))
        self.take_over(self.allocate({}), self.machine)

    @rule(name=names)
    def withdraw(self, name: str) -> None:
        self.declared.pop(name, None)
        self.take_over(self.allocate({}), self.machine)

    @precondition(lambda self: self.declared)
    @rule(data=st.data())
    def start(self, data: st.DataObject) -> None:
        """A first run, or the next one while the one before is still there."""
        name = data.draw(st.sampled_from(sorted(self.declared)))
        self.runs += 1
        run = str(self.runs)
        if self.declared[name].hold == DECLARED:
            self.alive[name] = ""
            self.take_over(self.allocate({}), self.machine)
            return
        found = self.allocate({name: run})
        granted = next((grant for grant in found.grants if grant.workload == name), None)
        if granted is None:
            assert any(refused.workload == name for refused in found.refusals)
            return  # Nothing is changed, and it does not start.
        assert granted.instance == run
        self.alive[name] = run
        self.take_over(found, self.machine)

    @precondition(lambda self: self.alive)
    @rule(data=st.data(), late=st.booleans())
    def stop(self, data: st.DataObject, late: bool) -> None:
        """A run ends; ``late`` is the end of an earlier one, which must change nothing."""
        name = data.draw(st.sampled_from(sorted(self.alive)))
        run = self.alive[name]
        ended = "0" if late else run
        held = [one for one in self.held if one.workload != name or one.instance != ended or one.hold != RUNNING]
        if late:
            assert held == list(self.held)
        else:
            del self.alive[name]
        found = self.allocate({}, held)
        self.held = tuple(held)
        self.take_over(found, self.machine)

    @rule(options=OPTIONS, static=st.booleans(), reserved=st.integers(1, 3))
    def change_the_profile(self, options: dict[str, bool], static: bool, reserved: int) -> None:
        if self.sections["topology"]["policy"] == "single-numa-node":
            options = {**options, "align-by-socket": False}
        cpu = {
            **self.sections["cpu"],
            "options": options,
            "policy": "static" if static else "none",
            "reserved": {"count": reserved},
        }
        self.try_with({**self.sections, "cpu": cpu}, self.topology, self.offline)

    @rule(data=st.data())
    def take_cpus_offline_or_back(self, data: st.DataObject) -> None:
        cpus = sorted(self.whole.online - {0})
        offline = frozenset(data.draw(st.lists(st.sampled_from(cpus), max_size=2)))
        self.try_with(self.sections, without(self.whole, offline), offline)

    def try_with(self, sections: dict[str, t.Any], topology: Topology, offline: CpuSet) -> None:
        """Another profile or machine, unless the profile does not fit or cannot be reached in one go."""
        try:
            machine = self.compiled(sections, topology)
        except CorralError:
            return
        before = self.machine, self.topology
        self.machine, self.topology = machine, topology
        try:
            self.take_over(self.allocate({}), machine)
        except NoSafeOrder:
            self.machine, self.topology = before
            return
        self.sections, self.offline = sections, offline

    @precondition(lambda self: any(grant.cpus for grant in self.held))
    @rule()
    def lose_the_checkpoint(self) -> None:
        """Grants are as the slices show them, and nobody moves. How much memory a refused workload keeps no slice shows."""
        seen = [
            Grant(
                one.workload, one.hold, one.instance, one.cpus, mems=one.mems, requests=one.requests, limits=one.limits
            )
            for one in self.held
        ]
        found = self.allocate({}, seen)
        after = {grant.workload: grant for grant in found.grants}
        for one in self.held:
            if one.workload not in self.short:
                assert after[one.workload].cpus == one.cpus, "a grant moved with its checkpoint"
        self.take_over(found, self.machine)

    @invariant()
    def all_that_is_released_is_free_again(self) -> None:
        if not self.declared and not self.alive:
            assert self.held == ()


TestNode = Node.TestCase
TestNode.settings = settings(max_examples=examples(SEQUENCES), stateful_step_count=STEPS, deadline=None)


class Drawn:
    """Data that draws what it was given."""

    def __init__(self, value: object) -> None:
        self.draw = lambda dummy_strategy: value


def small(name: str, cpus: int) -> t.Any:
    """A Guaranteed workload with a little memory."""
    amounts = (("cpu", 1000 * cpus), ("memory", 2 * MIB))
    return Drawn(Workload(name, "unit", f"{name}.service", DECLARED, amounts, amounts))


def test_what_the_refusal_of_a_later_workload_frees_is_given_at_once() -> None:
    """w3 cannot be made whole in the end, so w1 can: not only when somebody decides again."""
    node = Node()
    options = {
        name: name in ("strict-cpu-reservation", "prefer-align-cpus-by-uncorecache") for name in cpu_options.NAMES
    }
    node.begin((1, 4, 4, 1), options, "best-effort", "static", reserved=1, min_shared=2)
    for name, cpus in (("w0", 4), ("w3", 3), ("w1", 6)):
        node.declare(small(name, cpus), name)
    for offline in ([1, 2], [9, 4]):
        node.take_cpus_offline_or_back(t.cast(st.DataObject, Drawn(offline)))
        node.lose_the_checkpoint()


def test_what_a_refused_workload_keeps_is_nobody_elses() -> None:
    """w1 is declared anew and comes first; w4 asks for what it cannot have, since its core's other thread is back."""
    node = Node()
    node.begin((1, 1, 6, 2), {"full-pcpus-only": True}, "none", "static", reserved=1, min_shared=2)
    node.declare(small("w0", 2), "w0")
    amounts = (("cpu", 4500), ("memory", MIB))
    node.declare(Drawn(small("w1", 2).draw(None)._replace(requests=amounts, limits=amounts)), "w1")
    node.take_cpus_offline_or_back(t.cast(st.DataObject, Drawn([2, 11])))
    node.declare(small("w4", 1), "w4")
    node.take_cpus_offline_or_back(t.cast(st.DataObject, Drawn([])))
    held = {one.workload: one.cpus for one in node.held}
    node.declare(small("w1", 2), "w1")
    assert {one.workload: one.cpus for one in node.held}["w4"] == held["w4"] == frozenset({8})
