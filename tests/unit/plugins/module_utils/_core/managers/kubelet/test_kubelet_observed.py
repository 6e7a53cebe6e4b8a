# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What is observed of a kubelet: its files, its version, and the machine that its configuration is to fit."""

from __future__ import annotations

import typing as t
from pathlib import Path

import pytest
from _core.host import state
from _core.host.command import Command
from _core.host.files import Host
from _core.host.kubelet.kubelet_node import Process
from _core.managers.kubelet import kubelet_observed
from _core.managers.kubelet.kubelet_observed import Kept
from _core.model.profile.profile_memory import Hugepages
from _core.model.topology.topology import NumaNode, Topology

CONFIG, FOLDER, UNIT = "/var/lib/kubelet/config.yaml", "/etc/kubelet.d", "/usr/lib/systemd/system/kubelet.service"
HEAD = "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n"
OWN = f"{FOLDER}/20-corral.conf"


class Machine(Host):
    """A tree of files on which each command has the same answer."""

    def __init__(self, root: Path, answer: Command) -> None:
        super().__init__(str(root), run=self.answered)
        self.seconds: list[float] = []
        self.said = answer

    def answered(self, argv: t.Sequence[str], timeout: float) -> Command:
        self.seconds.append(timeout)
        return self.said

    def put(self, path: str, text: str) -> None:
        file = Path(self.at(path))
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path, Command(0, "Kubernetes v1.36.2\n", ""))


@pytest.mark.parametrize(
    ("unit", "program", "files", "asked"),
    [
        ("/opt/own/kubelet --v=2", "/usr/bin/kubelet", ["/usr/bin/kubelet"], "/opt/own/kubelet"),
        ("", "/usr/local/bin/kubelet", ["/usr/bin/kubelet"], "/usr/local/bin/kubelet"),
        # The unit and the process name no path.
        ("kubelet", "kubelet", ["/opt/bin/kubelet", "/usr/local/bin/kubelet"], "/usr/local/bin/kubelet"),
        ("kubelet /etc/own.yaml", "", ["/usr/bin/kubelet"], "/usr/bin/kubelet"),
        ("", "", ["/opt/bin/kubelet"], "/opt/bin/kubelet"),
        ("", "", ["/usr/bin/kubelet", "/usr/local/bin/kubelet"], "/usr/bin/kubelet"),
        ("", "", [], "kubelet"),
    ],
)
def test_the_version_is_asked_of_the_program_that_the_unit_starts(
    unit: str, program: str, files: list[str], asked: str, machine: Machine
) -> None:
    if unit:
        machine.put(UNIT, f"[Service]\nExecStart={unit}\n")
    for path in files:
        machine.put(path, "")
    process = Process(5, None, (), program) if program else None
    assert kubelet_observed.version_of(machine, process) == ((1, 36), "")
    assert machine.commands == [(asked, "--version")]
    assert machine.seconds == [60.0], "the program is read from a disk"


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        (Command(1, "Kubernetes v1.36.2\n", "no  such\nflag\n"), "no such flag"),
        (Command(1, "Kubernetes v1.36.2\n", ""), "Kubernetes v1.36.2"),
        (Command(0, "", ""), "no version"),
        (Command(0, "a" * 300, ""), "a" * 200),
        (Command(127, "", "kubelet: not found"), "kubelet: not found"),
    ],
)
def test_why_a_version_is_not_known_is_told(answer: Command, error: str, tmp_path: Path) -> None:
    assert kubelet_observed.version_of(Machine(tmp_path, answer), None) == (None, f"kubelet --version: {error}")


LINES = {"maxPods": "maxPods: 110\n", "podPidsLimit": None}


@pytest.mark.parametrize(
    ("data", "found"),
    [
        ({"file": CONFIG, "lines": LINES}, Kept(CONFIG, LINES)),
        ({"file": CONFIG, "lines": LINES, "more": 1}, Kept(CONFIG, LINES)),
        ({"file": CONFIG}, Kept()),
        ({"lines": {}}, Kept()),
        ([CONFIG, {}], Kept()),
        (None, Kept()),
    ],
)
def test_what_is_kept_of_a_file_of_others_is_read(data: t.Any, found: Kept, machine: Machine) -> None:
    assert kubelet_observed.kept(machine) == Kept()
    machine.put("/var/lib/corral/kubelet.json", state.checked_text(data))
    assert kubelet_observed.kept(machine) == found
    text = machine.read("/var/lib/corral/kubelet.json") or ""
    machine.put("/var/lib/corral/kubelet.json", text.replace('"checksum": "', '"checksum": "0'))
    assert kubelet_observed.kept(machine) == Kept()


def look(machine: Machine, flags: str, **context: t.Any) -> kubelet_observed.ObservedKubelet:
    machine.put(UNIT, f"[Service]\nExecStart=/usr/bin/kubelet {flags}\n")
    of = kubelet_observed.without_profile(machine, Topology(frozenset({0, 1})))
    return kubelet_observed.observe(machine, of._replace(**context))


def test_the_files_of_a_kubelet_with_drop_ins_are_observed(machine: Machine) -> None:
    machine.put(CONFIG, f"{HEAD}maxPods: 5\n")
    Path(machine.at(CONFIG)).chmod(0o600)
    machine.put(f"{FOLDER}/10.conf", "odd: [\n")
    machine.put(OWN, f"{HEAD}maxPods: 7\n")
    seen = look(machine, f"--config={CONFIG} --config-dir={FOLDER}/ --max-pods=9 --pod-max-pids=many")
    assert (seen.missing, seen.process, seen.own, seen.dropin) == ("", None, OWN, OWN)
    assert [(layer.origin, layer.data.get("maxPods"), layer.drop_in) for layer in seen.layers] == [
        (CONFIG, 5, False),
        (OWN, 7, True),
    ]
    assert [line.partition(" ")[0] for line in seen.wrong] == [f"{FOLDER}/10.conf:", "--pod-max-pids=many:"]
    assert [(layer.origin, layer.data) for layer in seen.flags] == [("--max-pods", {"maxPods": 9})]
    assert seen.texts == {CONFIG: f"{HEAD}maxPods: 5\n", OWN: f"{HEAD}maxPods: 7\n"}
    assert seen.modes == {CONFIG: 0o600, OWN: 0o644}
    assert (seen.links, seen.kept, seen.due, seen.drained) == ([], Kept(), False, ("", ""))
    assert seen.machine.online == {0, 1}


def test_a_unit_whose_file_is_missing_is_a_kubelet_to_configure(machine: Machine) -> None:
    seen = look(machine, f"--config={CONFIG}")
    assert (seen.missing, seen.own, seen.layers, seen.texts) == ("", CONFIG, (), {})
    assert [line.partition(": ")[0] for line in seen.wrong] == [CONFIG]


@pytest.mark.parametrize(
    "text", ["maxPods: 7\n", "", f"{HEAD}maxPods: [\n", f"{HEAD.replace('v1beta1', 'v1')}maxPods: 7\n"]
)
def test_what_is_wrong_with_corrals_own_file_is_no_obstacle(text: str, machine: Machine) -> None:
    machine.put(CONFIG, HEAD)
    machine.put(OWN, text)
    seen = look(machine, f"--config={CONFIG} --config-dir={FOLDER}")
    assert ([layer.origin for layer in seen.layers], seen.wrong) == ([CONFIG], ())
    assert seen.texts[OWN] == text


def test_the_file_of_a_kubelet_without_drop_ins_is_observed(machine: Machine) -> None:
    other = "/etc/kubelet/config.yaml"
    machine.put(other, f"{HEAD}maxPods: 5\n")
    Path(machine.at(CONFIG)).parent.mkdir(parents=True)
    Path(machine.at(CONFIG)).symlink_to(machine.at(other))
    machine.put("/var/lib/corral/kubelet.json", state.checked_text({"file": other, "lines": LINES}))
    machine.put("/run/corral/kubelet-due", "")
    seen = look(machine, f"--config={CONFIG}")
    assert (seen.own, seen.dropin, seen.links, seen.kept) == (CONFIG, "", [CONFIG], Kept(other, LINES))
    assert sorted(seen.texts) == [other, CONFIG]
    assert seen.due
    assert not look(machine, f"--config={CONFIG}", run="boot").due, "a boot starts the kubelet after this"
    machine.put(other, "odd: [\n")
    assert [line.partition(": ")[0] for line in look(machine, f"--config={CONFIG}").wrong] == [CONFIG]


def test_a_node_without_a_kubelet_has_what_was_changed_for_the_last_one(machine: Machine) -> None:
    of = kubelet_observed.without_profile(machine, Topology(frozenset({0})))
    seen = kubelet_observed.observe(machine, of)
    assert seen.missing == f"this node has no kubelet: there is no kubelet.service and no {CONFIG}, install it first"
    assert (seen.texts, seen.modes, seen.kept) == ({"": None}, {}, Kept())
    other = "/etc/kubelet/config.yaml"
    machine.put("/var/lib/corral/kubelet.json", state.checked_text({"file": other, "lines": LINES}))
    seen = kubelet_observed.observe(machine, of)
    assert (seen.texts, seen.modes, seen.kept) == ({other: None}, {}, Kept(other, LINES))
    machine.put(other, "maxPods: 50\n")
    Path(machine.at(other)).chmod(0o640)
    seen = kubelet_observed.observe(machine, of)
    assert (seen.texts, seen.modes) == ({other: "maxPods: 50\n"}, {other: 0o640})
    # kubeadm's file alone is one to configure.
    machine.put(CONFIG, HEAD)
    assert (kubelet_observed.observe(machine, of).missing, kubelet_observed.observe(machine, of).own) == ("", CONFIG)


def test_the_machine_is_that_of_the_topology_where_no_profile_says_more(machine: Machine) -> None:
    nodes = {0: NumaNode(0, frozenset({0, 1}), 1024, {2048: 3})}
    topology = Topology(
        frozenset({0, 1}),
        isolated=frozenset({1}),
        sockets={"0": frozenset({0}), "1": frozenset({1})},
        numa=nodes,
        machine_memory_kib=2048,
    )
    machine.put("/proc/sys/kernel/pid_max", "4000\n")
    machine.put("/proc/sys/kernel/threads-max", "3000\n")
    machine.put("/proc/swaps", "Filename Type Size Used Priority\n")
    found = kubelet_observed.machine(machine, kubelet_observed.without_profile(machine, topology))
    assert (found.version, found.online, found.reserved, found.isolated, found.isolcpus) == (
        None,
        frozenset({0, 1}),
        None,
        frozenset(),
        frozenset({1}),
    )
    assert (found.sockets, found.memory, found.pids, found.swap) == (2, 2 << 20, 3000, False)
    assert found.numa == {0: {"memory": 1 << 20, "hugepages-2Mi": 3 * 2048 << 10}}
    machine.put("/proc/swaps", "Filename Type Size Used Priority\n/dev/sda2 partition 1 0 -2\n")
    bare = kubelet_observed.machine(machine, kubelet_observed.without_profile(machine, Topology(frozenset({0}))))
    assert (bare.isolcpus, bare.sockets, bare.memory, bare.swap, bare.numa) == (frozenset(), 1, 0, True, {})


MIB = 1 << 20
TWO = {"memory": 1024 * MIB}


@pytest.mark.parametrize(
    ("pools", "found"),
    [
        ([], {0: {**TWO, "hugepages-2Mi": 8 * MIB}, 1: TWO, 2: {"memory": 0}}),
        ([Hugepages(2048, 1, 0)], {0: {**TWO, "hugepages-2Mi": 2 * MIB}, 1: TWO, 2: {"memory": 0}}),
        # The whole machine's are spread over the nodes with memory, the first ones get the rest.
        (
            [Hugepages(2048, 5, None)],
            {0: {**TWO, "hugepages-2Mi": 6 * MIB}, 1: {**TWO, "hugepages-2Mi": 4 * MIB}, 2: {"memory": 0}},
        ),
        # A later pool of one node counts there.
        (
            [Hugepages(2048, 4, None), Hugepages(2048, 1, 1), Hugepages(1048576, 1, 0)],
            {
                0: {**TWO, "hugepages-2Mi": 4 * MIB, "hugepages-1Gi": 1024 * MIB},
                1: {**TWO, "hugepages-2Mi": 2 * MIB},
                2: {"memory": 0},
            },
        ),
        (
            [Hugepages(2048, 1, 7)],
            {0: {**TWO, "hugepages-2Mi": 8 * MIB}, 1: TWO, 2: {"memory": 0}, 7: {"hugepages-2Mi": 2 * MIB}},
        ),
    ],
)
def test_hugepages_are_counted_as_the_kernel_spreads_them(
    pools: list[Hugepages], found: dict[int, dict[str, int]]
) -> None:
    nodes = {
        2: NumaNode(2, frozenset(), None, {}),
        1: NumaNode(1, frozenset({1}), 1 << 20, {}),
        0: NumaNode(0, frozenset({0}), 1 << 20, {2048: 4}),
    }
    assert kubelet_observed.numa(Topology(frozenset({0, 1}), numa=nodes), pools) == found
