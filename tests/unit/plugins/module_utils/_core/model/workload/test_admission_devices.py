# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Devices of workloads: which ones each gets, with its CPUs and memory on one NUMA node, who is refused, and who keeps what."""

from __future__ import annotations

import typing as t

import pytest
from _core.model.cpu import pools
from _core.model.devices.device import Device, GrantedDevice
from _core.model.profile import profile
from _core.model.topology import cpu_topology
from _core.model.workload import admission, grants, resource_requirements
from _core.model.workload.admission import AllocationResult, WorkloadStatus
from _core.model.workload.grants import Grant
from _core.model.workload.node_budget import AllocationInput
from example_counts import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from machines import machine

NIC, GPU = "example.com/nic", "example.com/gpu"
MIB = 1 << 20


def device(name: str, node: int = 0, unhealthy: str = "", *keys: str) -> Device:
    return Device(name, node, unhealthy, (), None, (), (), frozenset({name, *keys}), frozenset())


class Node:
    """A node with 2 NUMA nodes of 6 CPUs and some devices: what is declared on it, what was granted, and what runs."""

    def __init__(self, *nics: Device, policy: str = "none", scope: str = "container", **devices: t.Any) -> None:
        self.devices: dict[str, tuple[Device, ...]] = {NIC: nics, **devices}
        self.elsewhere: dict[str, tuple[str, ...]] = {}
        self.policy, self.scope = policy, scope
        self.rows: dict[str, dict[str, t.Any]] = {}
        self.held: tuple[Grant, ...] = ()
        self.alive: set[str] = set()

    def allocate(self, **start: str) -> AllocationResult:
        declared = profile.parse(
            {
                "name": "x",
                "cpu": {"policy": "static", "reserved": {"count": 2}},
                "topology": {"policy": self.policy, "scope": self.scope},
                "memory": {"policy": "static"},
            }
        )
        topology = machine(2, 6, 1)
        tables = {node: {"memory": 1024 * MIB} for node in topology.numa}
        computed = pools.compute(declared, topology)
        inputs = AllocationInput(
            declared,
            topology,
            cpu_topology.of(topology),
            computed,
            tables,
            devices=self.devices,
            devices_elsewhere=self.elsewhere,
        )
        needs = [
            resource_requirements.of(one, "static", None) for one in profile.parse_workloads(list(self.rows.values()))
        ]
        status = WorkloadStatus(frozenset(self.alive), start, 7)
        found = admission.allocate(inputs, needs, self.held, status)
        self.held = found.grants
        # The checkpoint keeps all of it.
        assert grants.from_data(grants.to_data(grants.Checkpoint(self.held)))[0].grants == self.held
        return found

    def declare(self, name: str, **row: t.Any) -> AllocationResult:
        kind = "pod" if "containers" in row else "unit"
        self.rows[name] = {"name": name, "match": {kind: f"{name}.service"}, **row}
        return self.allocate()

    def nics(self, name: str, count: int, **row: t.Any) -> AllocationResult:
        return self.declare(name, requests={NIC: count}, **row)

    def delete(self, name: str) -> AllocationResult:
        del self.rows[name]
        return self.allocate()

    def has(self, name: str) -> list[str]:
        return [one.id for grant in self.held if grant.workload == name for one in grant.devices]


def refusal(found: AllocationResult) -> str:
    (one,) = found.refusals
    return f"{one.workload}.{one.key}: {one.value}: {one.message}"


def file(name: str, *places: str) -> Device:
    return Device(name, 0, "", (), None, (), (), frozenset({f"/dev/{name}", *places}), frozenset())


@pytest.mark.parametrize(
    ("seen", "ids"),
    [
        ((file("link", "devices/usb1"), file("other", "devices/usb2")), ["link", "other"]),
        ((file("tty0", "devices/usb1"), file("tty1", "devices/usb2")), ["tty0", "tty1"]),
        ((file("tty0", "devices/usb1"), file("other", "devices/usb2")), ["tty0", "other"]),
        ((file("tty0", "devices/usb3"), file("tty1")), ["link", "other"]),  # other devices
        ((file("tty0", "devices/usb1", "devices/usb3"),), ["link", "other"]),  # more than it was
        (
            (file("other", "devices/usb1"),),
            ["other", "devices/usb2"],
        ),  # the first has the other's name, and the other is gone
        ((file("other", "devices/usb1"), file("link", "devices/usb2")), ["other", "link"]),
        ((file("other", "devices/usb1"), file("link", "devices/usb3")), ["other", "devices/usb2"]),
    ],
)
def test_a_granted_device_is_followed_to_another_name(seen: tuple[Device, ...], ids: list[str]) -> None:
    node = Node(file("link", "devices/usb1"), file("other", "devices/usb2"))
    node.nics("w", 1)
    node.nics("v", 1)
    node.devices[NIC] = seen
    node.allocate()
    assert [*node.has("w"), *node.has("v")] == ids


def gpu(number: int, name: str) -> Device:
    """A device of a CDI spec whose file the kernel has no place for in sysfs."""
    return Device(name, -1, "", (), None, (), (), frozenset({f"/dev/gpu{number}", name}), frozenset())


@pytest.mark.parametrize(
    ("seen", "ids"),
    [
        ((gpu(0, "x/gpu=0"), gpu(1, "x/gpu=1")), ["x/gpu=0", "x/gpu=1"]),
        ((gpu(1, "x/gpu=0"), gpu(0, "x/gpu=1")), ["x/gpu=1", "x/gpu=0"]),
        ((gpu(1, "x/gpu=0"),), ["/dev/gpu0", "x/gpu=0"]),  # the first is gone, and the second is counted from 0
        ((gpu(2, "x/gpu=0"), gpu(1, "x/gpu=1")), ["x/gpu=0", "x/gpu=1"]),  # its file has another name
        ((gpu(0, "x/gpu=a"), gpu(1, "x/gpu=b")), ["x/gpu=a", "x/gpu=b"]),
    ],
)
@pytest.mark.parametrize("together", [True, False])
def test_devices_that_a_spec_counts_otherwise_have_their_holders_as_before(
    seen: tuple[Device, ...], ids: list[str], together: bool
) -> None:
    node = Node(gpu(0, "x/gpu=0"), gpu(1, "x/gpu=1"), gpu(2, "x/gpu=2"))
    node.nics("w", 2 if together else 1)
    if not together:
        node.nics("v", 1)
    node.alive = {"w", "v"}
    node.devices[NIC] = seen
    found = node.allocate()
    assert sorted(name for grant in node.held for name in node.has(grant.workload)) == sorted(ids)
    assert together or [*node.has("w"), *node.has("v")] == ids
    assert found.refusals == ()
    keys = [key for grant in node.held for one in grant.devices for key in one.keys]
    assert len(keys) == len(set(keys)), keys
    # As before, once the spec counts them as before.
    node.devices[NIC] = (gpu(0, "x/gpu=0"), gpu(1, "x/gpu=1"))
    node.allocate()
    if {one.id for one in seen} == {"x/gpu=0", "x/gpu=1"} and gpu(2, "x/gpu=0") in seen:
        return  # Nothing tells which one it was.
    assert sorted(name for grant in node.held for name in node.has(grant.workload)) == ["x/gpu=0", "x/gpu=1"]


THREE = (device("a"), device("b"), device("c", 1))


def test_each_device_has_one_holder_and_a_release_gives_it_back() -> None:
    node = Node(*THREE)
    node.nics("one", 2)
    assert not node.nics("two", 1).refusals
    assert (node.has("one"), node.has("two")) == (["a", "b"], ["c"])
    node.delete("one")
    node.nics("three", 1)
    assert (node.has("two"), node.has("three")) == (["c"], ["a"])


def test_more_than_there_are_is_refused_with_who_has_them() -> None:
    node = Node(*THREE, device("d", 0, "no driver is bound to it"))
    node.nics("one", 2)
    assert refusal(node.nics("two", 2)) == (
        'two.requests["example.com/nic"]: 2: 1 missing: of 4 devices 1 can be given (one has a, b; d: no driver is bound to it): '
        "ask for fewer, or release one of them (corral devices)"
    )
    assert node.has("two") == []
    node.delete("two")
    assert refusal(Node().nics("one", 1)).endswith(
        "1 missing: no device of this node matches: ask for fewer, or correct the match in devices (corral devices)"
    )
    assert refusal(node.declare("gpu", requests={GPU: 1})).endswith(
        "no such resource is declared here: declare it in devices of the node's profile"
    )


def test_what_a_resource_matches_and_another_one_has_is_named() -> None:
    for here, there in (((), "all that match are in other resources"), (THREE[:1], "of 1 devices 1 can be given")):
        node = Node(*here)
        node.elsewhere[NIC] = ("b is in devices[1] (example.com/other) already",)
        assert refusal(node.nics("one", 1 + len(here))).endswith(
            f"1 missing: {there} (b is in devices[1] (example.com/other) already): "
            "ask for fewer, or narrow one of the two matches (corral devices)"
        )


def test_all_of_a_workload_meets_on_one_numa_node() -> None:
    limits = {"cpu": 3, "memory": "64Mi", NIC: 1}
    node = Node(device("a", 1), device("b", 1), policy="single-numa-node")
    assert not node.declare("near", limits=limits).refusals
    (grant,) = node.held
    assert (node.has("near"), grant.cpus, grant.mems) == (["a"], {6, 7, 8}, {1})
    # Node 1 has 3 CPUs and a device left, node 0 more CPUs and no device.
    assert "single-numa-node" in refusal(node.declare("wide", limits={**limits, "cpu": 4}))
    node.delete("wide")
    assert not node.declare("second", limits={**limits, "cpu": 3}).refusals
    assert node.has("second") == ["b"]


def test_devices_of_other_classes_are_aligned_too() -> None:
    node = Node(device("a", 0), device("b", 1), policy="restricted", **{GPU: (device("g", 1),)})
    node.declare("burstable", requests={NIC: 1, GPU: 1})
    assert node.has("burstable") == ["g", "b"]
    said = refusal(node.declare("late", requests={NIC: 2}))
    assert "missing" in said
    node = Node(device("a", 0), device("b", 1), device("c", 1), policy="restricted")
    node.nics("first", 1)
    node.nics("both", 2)
    assert (node.has("first"), node.has("both")) == (["a"], ["b", "c"])


def test_devices_without_a_node_are_not_counted_as_aligned_and_the_refusal_says_so() -> None:
    node = Node(device("a", 1), device("b", -1), policy="single-numa-node")
    assert refusal(node.nics("two", 2)) == (
        "two.requests: example.com/nic 2: topology policy single-numa-node: example.com/nic: 2 asked, 1 free on NUMA nodes "
        "(node 0: 0, node 1: 1): 1 missing: ask for less, release a workload, or declare another topology.policy"
    )


def test_devices_without_a_node_have_no_say() -> None:
    node = Node(device("a", -1), policy="single-numa-node")
    assert not node.nics("one", 1).refusals
    assert node.has("one") == ["a"]


POD = [
    {"name": "setup", "role": "init", "requests": {NIC: 2}},
    {"name": "side", "role": "sidecar", "requests": {NIC: 1}},
    {"name": "app", "requests": {NIC: 2}},
]


@pytest.mark.parametrize("scope", ["container", "pod"])
def test_what_an_init_container_had_is_used_again(scope: str) -> None:
    node = Node(*(device(name, number % 2) for number, name in enumerate("abcd")), policy="best-effort", scope=scope)
    assert not node.declare("web", containers=POD).refusals
    (grant,) = node.held
    by_container: dict[str, set[str]] = {}
    for one in grant.devices:
        by_container.setdefault(one.container, set()).add(one.id)
    assert {name: len(ids) for name, ids in by_container.items()} == {"setup": 2, "side": 1, "app": 2}
    assert by_container["side"] <= by_container["setup"]
    assert not by_container["side"] & by_container["app"]
    assert len(by_container["setup"] | by_container["app"] | by_container["side"]) == 3
    assert dict(grant.requests)[NIC] == 3


# Restarts, and devices that go


def test_a_run_keeps_its_devices_and_the_next_one_gets_healthy_ones() -> None:
    node = Node(*THREE)
    node.rows["job"] = {"name": "job", "match": {"unit": "job.service"}, "hold": "running", "requests": {NIC: 1}}
    assert not node.allocate(job="run-1").refusals
    node.alive.add("job")
    assert node.has("job") == ["a"]
    node.devices[NIC] = (device("a", 0, "no link"), *THREE[1:])
    assert not node.allocate().events
    node.devices[NIC] = THREE[1:]
    assert not node.allocate().events
    assert node.has("job") == ["a"], "nothing is taken from what runs"
    node.nics("other", 2)
    assert node.has("other") == ["b", "c"]
    node.delete("other")
    # Its next start, with the grant of the run before still there.
    (event,) = node.allocate(job="run-2").events
    assert "a is gone" in event.reason
    assert node.has("job") == ["b"]


def test_a_start_with_its_grant_keeps_the_same_device() -> None:
    node = Node(*THREE)
    node.rows["job"] = {"name": "job", "match": {"unit": "job.service"}, "hold": "running", "requests": {NIC: 1}}
    node.allocate(job="by-hand")
    node.alive.add("job")
    node.nics("other", 1)
    (event,) = node.allocate(job="run-1").events
    assert (node.has("job"), node.has("other")) == (["a"], ["b"])
    assert (event.workload, event.reason) == ("job", "its declaration changed"), "the run alone is another one"


@pytest.mark.parametrize(
    ("devices", "reason"),
    [(THREE[1:], "a is gone"), ((device("a", 0, "it is sick"), *THREE[1:]), "a is unhealthy (it is sick)")],
)
def test_a_start_with_a_device_that_cannot_be_used_gets_another_one(devices: tuple[Device, ...], reason: str) -> None:
    node = Node(*THREE)
    node.nics("one", 1, hold="running")
    node.allocate(one="run-1")
    node.devices[NIC] = devices
    (event,) = node.allocate(one="run-2").events
    assert (node.has("one"), event.reason) == (["b"], reason)


def test_a_stopped_workload_keeps_a_device_that_is_gone_as_it_may_come_back() -> None:
    node = Node(*THREE)
    node.nics("one", 1)
    node.devices[NIC] = THREE[1:]
    assert not node.allocate().events
    assert node.has("one") == ["a"]
    node.devices[NIC] = THREE
    assert not node.allocate().events


def test_one_that_asks_for_more_or_less() -> None:
    node = Node(*THREE)
    node.nics("one", 1)
    node.nics("two", 1)
    node.nics("one", 2)
    assert (node.has("one"), node.has("two")) == (["a", "c"], ["b"])
    node.alive.add("one")
    node.nics("one", 1)
    assert node.has("one") == ["a", "c"], "it runs: nothing is taken"
    assert not node.allocate().events
    assert "missing" in refusal(node.nics("two", 2))
    node.alive.clear()
    node.nics("two", 1)
    assert node.has("one") == ["a"]


SINGLE = "single-numa-node"


def test_fewer_for_a_running_workload_has_to_meet_all_that_it_has() -> None:
    node = Node(device("a"), device("b", 1), policy="restricted", **{GPU: (device("g"), device("h", 1))})
    node.nics("one", 2)
    node.alive.add("one")
    assert not node.declare("one", requests={NIC: 1, GPU: 2}).refusals, "two are on no fewer than two nodes"
    assert sorted(node.has("one")) == ["a", "b", "g", "h"]


def test_more_for_a_running_workload_has_to_meet_what_it_has() -> None:
    node = Node(device("a"), device("b", 1), device("c", 1), policy=SINGLE)
    node.nics("one", 1)
    node.alive.add("one")
    assert SINGLE in refusal(node.nics("one", 2)), "b and c meet, but a is in use"
    assert node.has("one") == ["a"]
    node.devices[NIC] += (device("d"),)
    assert not node.allocate().refusals
    assert node.has("one") == ["a", "d"]


def test_what_a_running_workload_lost_has_to_meet_nothing() -> None:
    node = Node(device("a"), device("b"), device("c", 1), device("d", 1), policy=SINGLE)
    node.nics("one", 2)
    node.alive.add("one")
    node.devices[NIC] = node.devices[NIC][1:]
    assert SINGLE in refusal(node.nics("one", 3)), "b is the last one on its node"
    node.devices[NIC] += (device("e"),)
    assert not node.allocate().refusals
    assert node.has("one") == ["a", "b", "e"]


def test_what_a_stopped_workload_had_need_not_be_met() -> None:
    node = Node(device("a"), device("b", 1), device("c", 1), policy=SINGLE)
    node.nics("one", 1)
    assert node.has("one") == ["a"]
    assert not node.nics("one", 2).refusals
    assert node.has("one") == ["b", "c"]


def test_more_for_a_container_of_a_running_pod_has_to_meet_that_containers_own() -> None:
    node = Node(device("a"), device("b", 1), policy=SINGLE)
    containers = [{"name": "x", "requests": {NIC: 1}}, {"name": "y", "requests": {NIC: 1}}]
    node.declare("web", containers=containers)
    node.alive.add("web")
    node.devices[NIC] += (device("c", 1), device("d"))
    containers[0]["requests"] = {NIC: 2}
    assert not node.declare("web", containers=containers).refusals
    assert [(one.container, one.id) for one in node.held[0].devices] == [("x", "a"), ("x", "d"), ("y", "b")]


def test_a_running_workload_that_cannot_have_more_keeps_what_it_has() -> None:
    node = Node(*THREE)
    node.nics("one", 2)
    node.alive.add("one")
    found = node.nics("one", 4)
    assert found.refusals
    assert node.has("one") == ["a", "b"]
    assert "missing" in refusal(found)
    assert "1 can be given" not in refusal(found)
    node.nics("one", 2)
    assert node.has("one") == ["a", "b"]


def test_two_running_workloads_that_ask_for_more_at_once_take_nothing_from_each_other() -> None:
    node = Node(*THREE)
    node.nics("one", 1)
    node.nics("two", 1)
    node.alive.update(("one", "two"))
    for name in ("one", "two"):
        node.rows[name]["requests"] = {NIC: 2}
    assert "two has b" not in refusal(node.allocate())
    assert (node.has("one"), node.has("two")) == (["a", "c"], ["b"])


def test_a_container_of_a_running_pod_takes_nothing_from_another() -> None:
    node = Node(*THREE)
    containers = [{"name": "x", "requests": {NIC: 1}}, {"name": "y", "requests": {NIC: 1}}]
    node.declare("web", containers=containers)
    node.alive.add("web")
    containers[0]["requests"] = {NIC: 2}
    assert not node.declare("web", containers=containers).refusals
    assert [(one.container, one.id) for one in node.held[0].devices] == [("x", "a"), ("x", "c"), ("y", "b")]


def test_devices_of_a_workload_that_left_the_profile_are_given_out_when_it_stops() -> None:
    node = Node(*THREE)
    node.declare("one", limits={"cpu": 2, "memory": "1Mi", NIC: 2})
    node.alive.add("one")
    (event,) = node.delete("one").events
    assert event.after is not None
    assert (event.after.cpus, event.after.blocks, event.after.mems) == (frozenset(), (), None)
    assert "missing" in refusal(node.nics("two", 2))
    assert node.has("one") == ["a", "b"]
    node.alive.clear()
    assert not node.allocate().refusals
    assert node.has("two") == ["a", "b"]
    assert [grant.workload for grant in node.held] == ["two"]


def test_a_device_under_another_resource_or_name_is_still_held() -> None:
    node = Node(device("a", 0, "", "devices/pci0000:00/a"), device("b"))
    node.nics("one", 1)
    inner = Device("/dev/x", 0, "", (), None, (), (), frozenset({"/dev/x"}), frozenset({"devices/pci0000:00/a"}))
    node.devices = {NIC: (), GPU: (inner, device("z", 0, "", "b"))}
    node.rows["two"] = {"name": "two", "match": {"unit": "two.service"}, "requests": {GPU: 2}}
    assert "of 2 devices 1 can be given" in refusal(node.allocate())
    # And the other way round: what is around a part that is held is held as well.
    node = Node(device("tty", 0, "", "devices/pci0000:00/a/usb1/tty"))
    node.nics("one", 1)
    node.devices[GPU] = (device("a", 0, "", "devices/pci0000:00/a"),)
    assert "of 1 devices 0 can be given" in refusal(node.declare("two", requests={GPU: 1}))


@pytest.mark.parametrize("starting", [{}, {"b": "run-1"}], ids=["stopped", "starting"])
def test_of_two_grants_with_one_device_the_later_one_gets_another(starting: dict[str, str]) -> None:
    node = Node(device("n0"), device("n1"))
    node.nics("a", 1)
    node.nics("b", 1)
    first, second = node.held
    node.held = (first, second._replace(devices=first.devices))
    (event,) = node.allocate(**starting).events
    assert (event.workload, event.reason) == ("b", "n0 belongs to another grant")
    assert (node.has("a"), node.has("b")) == (["n0"], ["n1"])


def test_keys_follow_a_device_that_has_other_names_after_a_reboot() -> None:
    node = Node(device("a", 0, "", "/dev/vfio/7"))
    node.nics("one", 1)
    node.devices[NIC] = (device("a", 0, "", "/dev/vfio/9"), device("b", 0, "", "/dev/vfio/7"))
    assert not node.allocate().events
    assert node.held[0].devices == (GrantedDevice("", NIC, "a", ("/dev/vfio/9", "a")),)
    node.nics("two", 1)
    assert node.has("two") == ["b"]


@pytest.mark.parametrize(
    "devices",
    [[["", NIC, "a"]], [["", NIC, 1, []]], [["", NIC, "a", []], ["", NIC, "a", []]], {"a": 1}],
    ids=str,
)
def test_a_grant_with_devices_that_corral_did_not_write_is_left_out_alone(devices: t.Any) -> None:
    node = Node(*THREE)
    node.nics("one", 1)
    node.nics("two", 1)
    data = grants.to_data(grants.Checkpoint(node.held))
    data["grants"][0]["devices"] = devices
    found, (wrong,) = grants.from_data(data)
    assert found.grants == node.held[1:]
    assert wrong.startswith("grant 0 of one is not as Corral writes it (")


def test_a_checkpoint_in_which_two_have_one_device_is_not_read() -> None:
    node = Node(*THREE)
    node.nics("one", 1)
    node.nics("two", 1)
    data = grants.to_data(grants.Checkpoint(node.held))
    data["grants"][0]["devices"] = data["grants"][1]["devices"]
    with pytest.raises(ValueError, match=r"device \w+ is granted to one and two"):
        grants.from_data(data)


def test_a_checkpoint_of_an_earlier_version_is_read_and_written_as_it_is() -> None:
    node = Node(*THREE)
    node.declare("plain", requests={"cpu": "100m"})
    data = grants.to_data(grants.Checkpoint(node.held))
    assert "devices" not in data["grants"][0]
    assert grants.from_data(data)[0].grants == node.held


# Whatever is asked for


WISHES = st.lists(
    st.tuples(
        st.sampled_from("pqrs"), st.integers(0, 3), st.booleans(), st.sampled_from(["declare", "delete", "toggle"])
    ),
    max_size=12,
)


@settings(max_examples=examples(60), deadline=None)
@given(st.data(), WISHES, st.sampled_from(["none", "best-effort", "restricted", "single-numa-node"]))
def test_no_device_has_two_holders_and_what_runs_keeps_its_own(
    data: st.DataObject, wishes: list[tuple[str, int, bool, str]], policy: str
) -> None:
    everything = [device(name, number % 3 - 1) for number, name in enumerate("abcdef")]
    node = Node(*everything, policy=policy)
    for name, count, is_alive, act in wishes:
        (node.alive.add if is_alive else node.alive.discard)(name)
        before = {grant.workload: {one.id for one in grant.devices} for grant in node.held}
        if act == "declare" and count:
            node.nics(name, count)
        elif act == "delete" and name in node.rows:
            node.delete(name)
        else:
            gone = data.draw(st.sampled_from(everything))
            node.devices[NIC] = tuple(one for one in everything if one != gone)
            node.allocate()
        held = [one.id for grant in node.held for one in grant.devices]
        assert len(held) == len(set(held))
        for grant in node.held:
            if grant.workload in node.alive:
                assert before.get(grant.workload, set()) <= {one.id for one in grant.devices}
        for workload in before.keys() & node.alive:
            assert before[workload] <= set(node.has(workload)), "nothing is taken from what runs"
        twice = node.allocate()
        assert not twice.events, "decided again, it is the same"
