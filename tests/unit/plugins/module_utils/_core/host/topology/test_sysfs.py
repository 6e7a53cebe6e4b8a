# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Discovery on made-up machines, on broken files, and on what only some kernels have."""

from __future__ import annotations

import json
import tempfile
import typing as t
from pathlib import Path

import pytest
from _core.host.files import Host
from _core.host.topology.sysfs import discover, signature
from _core.model.cpu import allocation
from _core.model.topology.topology import Topology, to_dict
from example_counts import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from topology_json import from_dict
from trees import CPU, NODE, Machine, build, mask

EDGE = Machine(
    sockets=2,
    nodes=2,
    cores=2,
    cpu_step=3,
    node_ids=(0, 1, 8, 9),
    bare_nodes=(4, 250),
    offline=frozenset({3, 24}),
    isolated=frozenset({6, 30}),
    pools={8: {2048: 16}},
    pci={"0000:02:00.0": 8, "0000:81:00.1": -1, "10000:01:00.0": 0},
    net={"lo": None, "ens2f0": "0000:02:00.0", "eth0": "0000:81:00.1"},
    virtio=("eth0",),
)


def put(root: Path, path: str, text: str | bytes) -> None:
    file = root / path
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(text if isinstance(text, bytes) else text.encode())


def groups(found: t.Iterable[t.Iterable[int]] | None) -> list[list[int]] | None:
    return None if found is None else [sorted(group) for group in found]


def of(root: Path) -> Topology:
    return discover(Host(str(root)))


MACHINES = st.fixed_dictionaries(
    {
        "sockets": st.integers(1, 2),
        "nodes": st.integers(1, 2),
        "cores": st.integers(1, 2),
        "threads": st.integers(1, 2),
        "cpu_step": st.integers(1, 3),
        "bare_nodes": st.sampled_from([(), (4,), (4, 9)]),
        "isolated": st.sampled_from([None, frozenset(), frozenset({1})]),
        "page_sizes": st.sampled_from([(2048,), (64, 2048, 32768, 1048576)]),
        "socket_ids": st.booleans(),
        "numa": st.booleans(),
        "pci": st.dictionaries(st.sampled_from(["0000:00:01.0", "0000:3b:00.2", "10000:01:00.0"]), st.integers(-1, 3)),
    }
)
FILES = st.sampled_from([(True, True, True), (True, False, True), (False, True, False), (True, False, False)])


@settings(max_examples=examples(25))
@given(facts=MACHINES, files=FILES, data=st.data())
def test_made_up_machine_is_found(facts: dict[str, t.Any], files: tuple[bool, bool, bool], data: st.DataObject) -> None:
    machine = Machine(**facts)
    count = machine.sockets * machine.nodes * machine.cores * machine.threads
    others = [cpu * machine.cpu_step for cpu in range(1, count)]
    offline = data.draw(st.frozensets(st.sampled_from(others), max_size=2)) if others else frozenset()
    machine = machine._replace(offline=offline, masks=files[0], lists=files[1], online_file=files[2])
    with tempfile.TemporaryDirectory() as folder:
        expected = build(Path(folder), machine)
        found = of(Path(folder))
        assert found == expected
        assert from_dict(json.loads(json.dumps(to_dict(found)))) == found


def test_edge_machine(tmp_path: Path) -> None:
    expected = build(tmp_path, EDGE)
    found = of(tmp_path)
    assert found == expected
    assert found.notes == ()
    assert found.siblings_of({0}) == {0} and found.siblings_of({9}) == {9, 33}
    without_devices = discover(Host(str(tmp_path)), with_devices=False)
    assert without_devices == expected._replace(pci={}, net={})


def test_signature_changes_with_the_cpus(tmp_path: Path) -> None:
    build(tmp_path, EDGE)
    before = signature(Host(str(tmp_path)))
    assert signature(Host(str(tmp_path))) == before
    put(tmp_path, f"{CPU}/online", "0-9\n")
    assert signature(Host(str(tmp_path))) != before


# Broken files

GARBAGE = st.one_of(
    st.binary(max_size=40),
    st.sampled_from(
        [b"", b"\n", b"\0", b"-1\n", b"(null)\n", b"0-99999999999\n", b"0-70000\n", b"-3--1", b"9" * 5000, b"f" * 90000]
    ),
    st.sampled_from([b"1,0", b"ffffffff,ffffffff\n", b"3-1\n", b"\xff\xfe", "²".encode(), b"1e9\n", b"0 x 20\n"]),
    st.from_regex(rb"[0-9a-f,\-]{1,20}\n", fullmatch=True),
)


class Broken(Host):
    """A host on which some files hold something else, and some folders other names."""

    def __init__(self, root: str, files: dict[str, bytes], folders: dict[str, list[str]]) -> None:
        super().__init__(root)
        self.files = files
        self.folders = folders

    def read_bytes(self, path: str, *, follow: bool = True) -> bytes | None:
        return self.files[path] if path in self.files else super().read_bytes(path, follow=follow)

    def names(self, path: str) -> list[str]:
        return self.folders[path] if path in self.folders else super().names(path)

    def link(self, path: str) -> str | None:
        return self.files[path].decode(errors="replace") if path in self.files else super().link(path)


@pytest.fixture(scope="module")
def edge_tree(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, list[str]]:
    root = tmp_path_factory.mktemp("edge")
    build(root, EDGE)
    host = Host(str(root), record=True)
    discover(host)
    return str(root), sorted(host.seen or ())


@settings(max_examples=examples(300))
@given(data=st.data())
def test_garbage_is_a_value(edge_tree: tuple[str, list[str]], data: st.DataObject) -> None:
    root, paths = edge_tree
    files = data.draw(st.dictionaries(st.sampled_from(paths), GARBAGE, min_size=1, max_size=4))
    names = st.lists(st.sampled_from(["cpu0", "cpu01", "cpu999999", "node3", "node", "index3", "0000:02:00.0", "é\n"]))
    folders = data.draw(st.dictionaries(st.sampled_from(paths), names, max_size=1))
    found = discover(Broken(root, files, folders))
    assert from_dict(json.loads(json.dumps(to_dict(found)))) == found
    assert found.online.isdisjoint(found.offline_present)
    for level in (found.cores, tuple(found.sockets.values()), tuple(found.node_cpus().values())):
        members = [cpu for group in level for cpu in group]
        assert sorted(members) == sorted(found.online)
    view = allocation.of(found)
    half = len(found.online) // 2
    assert len(allocation.take_packed(view, found.online, half)) == half


@pytest.mark.parametrize(
    ("path", "text", "note"),
    [
        (f"{CPU}/cpu0/topology/core_cpus", b"zz\n", "core_cpus: 'zz\\n' is not a CPU mask"),
        (f"{CPU}/cpu6/cache/index2/level", b"\xff", "level: '\ufffd' is not an integer"),
        (f"{NODE}/node8/meminfo", b"", "node8/meminfo"),
        (f"{NODE}/node8/distance", b"10 20\n", "not a square"),
        ("sys/bus/pci/devices/0000:02:00.0/numa_node", b"?", "numa_node"),
        (f"{CPU}/isolated", b"all", "isolated"),
        (f"{CPU}/cpu0/topology/core_cpus", b"00000003\n", "contradict"),
        (f"{CPU}/cpu0/topology/core_cpus", b"00000000\n", ""),
    ],
)
def test_odd_file_is_noted(tmp_path: Path, path: str, text: bytes, note: str) -> None:
    build(tmp_path, EDGE._replace(cpu_step=1, offline=frozenset(), isolated=frozenset()))
    put(tmp_path, path, text)
    found = of(tmp_path)
    assert note in "\n".join(found.notes)
    assert len(found.notes) <= 2


def test_many_notes_are_cut(tmp_path: Path) -> None:
    build(tmp_path, Machine(cores=32, lists=False))
    for cpu in range(64):
        put(tmp_path, f"{CPU}/cpu{cpu}/topology/core_cpus", "?")
    notes = of(tmp_path).notes
    assert len(notes) == 41 and notes[-1] == "and 24 more of the kind"


# What only some kernels have


def test_no_sysfs_cpus_falls_back_to_cpuinfo(tmp_path: Path) -> None:
    entries = [(0, 0, 0), (1, 1, 0), (2, 0, 0), (3, 1, 0)]
    text = "".join(
        f"processor\t: {cpu}\nphysical id\t: {socket}\ncore id\t\t: {core}\n\n" for cpu, socket, core in entries
    )
    put(tmp_path, "proc/cpuinfo", text)
    found = of(tmp_path)
    assert found.online == {0, 1, 2, 3}
    assert groups(found.cores) == [[0, 2], [1, 3]]
    assert found.sockets == {"0": {0, 2}, "1": {1, 3}} and found.socket_ids_known


@pytest.mark.parametrize(
    "text", ["processor 0: version = 00\nprocessor 1: version = 00\n", "CPU0: online\nCPU1: online\n"]
)
def test_cpuinfo_of_other_architectures(tmp_path: Path, text: str) -> None:
    put(tmp_path, "proc/cpuinfo", text)
    found = of(tmp_path)
    assert groups(found.cores) == [[0], [1]]
    assert found.sockets == {"?0": {0, 1}} and not found.socket_ids_known


def test_nothing_at_all(tmp_path: Path) -> None:
    found = of(tmp_path)
    assert found.online == set() and found.numa == {} and found.isolated is None
    assert allocation.take_packed(allocation.of(found), found.online, 0) == set()


def test_ids_without_masks_tell_cores_and_sockets(tmp_path: Path) -> None:
    for cpu, (socket, core) in enumerate([(3, 0), (3, 0), (5, 0), (5, 1)]):
        put(tmp_path, f"{CPU}/cpu{cpu}/topology/physical_package_id", f"{socket}\n")
        put(tmp_path, f"{CPU}/cpu{cpu}/topology/core_id", f"{core}\n")
    found = of(tmp_path)
    assert found.sockets == {"3": {0, 1}, "5": {2, 3}}
    assert groups(found.cores) == [[0, 1], [2], [3]]


@pytest.mark.parametrize("ids", [(0, 0), (-1, -1), (65535, 65535), (None, None), (0, None)])
def test_unusable_socket_ids(tmp_path: Path, ids: tuple[int | None, int | None]) -> None:
    for cpu, socket in enumerate(ids):
        put(tmp_path, f"{CPU}/cpu{cpu}/topology/core_siblings", f"{1 << cpu:08x}\n")
        if socket is not None:
            put(tmp_path, f"{CPU}/cpu{cpu}/topology/physical_package_id", f"{socket}\n")
    found = of(tmp_path)
    assert found.sockets == {"?0": {0}, "?1": {1}} and not found.socket_ids_known


@pytest.mark.parametrize(("ids", "known"), [((-1, -1), False), ((65535, 65535), False), ((0, -1), True)])
def test_dies_with_unknown_ids_are_not_told(tmp_path: Path, ids: tuple[int, int], known: bool) -> None:
    for cpu, die in enumerate(ids):
        put(tmp_path, f"{CPU}/cpu{cpu}/topology/die_cpus", f"{1 << cpu:08x}\n")
        put(tmp_path, f"{CPU}/cpu{cpu}/topology/die_id", f"{die}\n")
    assert groups(of(tmp_path).dies) == ([[0], [1]] if known else None)


def test_books_and_drawers(tmp_path: Path) -> None:
    for cpu in range(4):
        folder = f"{CPU}/cpu{cpu}/topology"
        put(tmp_path, f"{folder}/book_siblings_list", "0-1\n" if cpu < 2 else "2-3\n")
        put(tmp_path, f"{folder}/drawer_siblings", "0000000f\n")
    found = of(tmp_path)
    assert groups(found.books) == [[0, 1], [2, 3]]
    assert groups(found.drawers) == [[0, 1, 2, 3]]


def test_empty_cache_mask_tells_nothing(tmp_path: Path) -> None:
    for cpu in range(2):
        put(tmp_path, f"{CPU}/cpu{cpu}/cache/index2/level", "3\n")
        put(tmp_path, f"{CPU}/cpu{cpu}/cache/index2/shared_cpu_map", "00000000\n")
    assert of(tmp_path).l3 == ()


def test_hybrid_kinds(tmp_path: Path) -> None:
    build(tmp_path, Machine(cores=4, threads=1))
    assert of(tmp_path).kinds == ()
    for cpu in range(4):
        put(tmp_path, f"{CPU}/cpu{cpu}/cpu_capacity", "1024\n" if cpu < 2 else "446\n")
    assert dict(of(tmp_path).kinds) == {"capacity-1024": {0, 1}, "capacity-446": {2, 3}}
    put(tmp_path, "sys/devices/cpu_atom/cpus", "1-3\n")
    put(tmp_path, "sys/devices/cpu_core/cpus", "0\n")
    assert dict(of(tmp_path).kinds) == {"core": {0}, "atom": {1, 2, 3}}


def test_node_without_map_counts_its_cpu_links(tmp_path: Path) -> None:
    build(tmp_path, Machine(numa=False))
    for cpu in (1, 2, 77):
        (tmp_path / NODE / "node5" / f"cpu{cpu}").mkdir(parents=True)
    found = of(tmp_path)
    assert found.numa[5].cpus == {1, 2}
    assert found.node_cpus() == {5: {0, 1, 2, 3}}


def test_pci_without_bus_links(tmp_path: Path) -> None:
    for folder in ("pci0000:00/0000:00:1c.0/0000:02:00.0", "platform/40000000.pcie/pci0001:00/0001:00:00.0"):
        put(tmp_path, f"sys/devices/{folder}/numa_node", "1\n")
    put(tmp_path, "sys/devices/pci0000:00/0000:00:1c.0/class", "0x060400\n")
    found = of(tmp_path)
    assert {address: device.numa_node for address, device in found.pci.items()} == {
        "0000:00:1c.0": -1,
        "0000:02:00.0": 1,
        "0001:00:00.0": 1,
    }
    assert to_dict(found)["pci_numa_node"] == {"0000:02:00.0": 1, "0001:00:00.0": 1}


def test_interface_of_an_old_tree_with_a_device_link_only(tmp_path: Path) -> None:
    put(tmp_path, "sys/class/net/bonding_masters", "bond0\n")
    device = tmp_path / "sys/class/net/eth0"
    device.mkdir(parents=True)
    (device / "device").symlink_to("../../../devices/pci0000:00/0000:00:19.0")
    assert of(tmp_path).net == {"eth0": "0000:00:19.0"}


def test_masks_are_written_as_the_kernel_does() -> None:
    assert mask({0, 33}, 64) == "00000002,00000001"


def test_the_machine_we_run_on() -> None:
    found: t.Any = to_dict(discover(Host("/")))
    assert found["online"]
