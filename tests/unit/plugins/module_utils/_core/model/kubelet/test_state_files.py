# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The kubelet's state files: its own cases, and files that are torn, forged or of another form."""

from __future__ import annotations

import json
import typing as t

import pytest
from _core.model.kubelet import go_values, state_files
from _core.model.kubelet.go_values import GoError
from _core.model.kubelet.state_files import (
    CPU,
    MEMORY,
    CpuState,
    DeviceEntry,
    DeviceState,
    Kind,
    MemoryState,
    StateFile,
    StateRefused,
    Version,
)
from _core.model.values import cpuset
from hypothesis import given
from hypothesis import strategies as st
from shared_data import cases

DEVICES = "kubelet_internal_checkpoint"
# Upstream's test names its files so.
TEST_FILES = {CPU: "DIR/cpumanager_checkpoint_test", MEMORY: "DIR/memorymanager_checkpoint_test"}
V2 = '{"policyName":"static","defaultCpuSet":"0,2-3,8-15","entries":{"pod-a":{"c1":"1,9"}},"checksum":2611876578}'
NODE = '{"numberOfAssignments":0,"memoryMap":{"memory":{"total":2048,"systemReserved":512,"allocatable":1536,"reserved":512,"free":1024}},"cells":[]}'
BLOCK = '{"pod":{"container1":[{"numaAffinity":[0],"type":"memory","size":512}]}}'
STATIC = f'{{"policyName":"Static","machineState":{{"0":{NODE}}},"entries":{BLOCK},"checksum":46685113}}'


def kind_of(case: dict[str, t.Any]) -> Kind:
    return CPU if case["file"] == CPU.file else MEMORY


def version_of(kind: Kind, name: str) -> Version:
    return next(one for one in kind.versions if one.name == name)


@pytest.mark.parametrize("case", cases("checkpoint_checksums.json", lambda case: "json" in case))
def test_the_kubelets_checksums(case: dict[str, t.Any]) -> None:
    if case["file"] == DEVICES:
        values = state_files.DEVICES.decode(json.loads(case["json"])["Data"], "")
        text = f"({state_files.DEVICES.name}){state_files.DEVICES.text(values)}"
        assert state_files.read_devices(case["json"]).checksum == "verified"
    else:
        kind = kind_of(case)
        version = version_of(kind, case["version"])
        values = go_values.Struct(kind.hashed, version.fields).decode(json.loads(case["json"]), "")
        assert values is not None
        text = state_files.hashed(kind, version, values)
    assert text == case["hashed"]
    assert go_values.checksum(text) == case["checksum"]


@pytest.mark.parametrize("case", cases("checkpoint_restore.json"))
def test_the_kubelets_starts(case: dict[str, t.Any]) -> None:
    kind, said = kind_of(case), ""
    restored: dict[str, t.Any] | None = None
    try:
        if kind is CPU:
            containers = {row[2]: (row[0], row[1]) for row in case["initial_containers"]}
            found = state_files.restore_cpus(
                case["content"], case["policy"], pod_level=case["pod_level_resource_managers"], containers=containers
            )
            restored = {
                "assignments": {
                    pod: {name: cpuset.format(cpus) for name, cpus in of.items()}
                    for pod, of in found.containers.items()
                },
                "default_cpuset": cpuset.format(found.default),
                "pod_assignments": {pod: cpuset.format(cpus) for pod, cpus in found.pods.items()},
            }
        else:
            state_files.restore_memory(case["content"], case["policy"], pod_level=case["pod_level_resource_managers"])
    except StateRefused as error:
        said = state_files.advice(kind, TEST_FILES[kind], str(error))
    assert said == case["actual_error"]
    assert restored == case.get("state")


# Vectors of the kubelet's own tests.
@pytest.mark.parametrize(
    ("kind", "text", "version"),
    [
        (CPU, '{"policyName":"none","defaultCpuSet":"4-6","checksum":354655845}', "v2"),
        (CPU, V2, "v2"),
        (CPU, '{"policyName":"none","defaultCpuSet":"1-3","entries":{"id1":"4-6"},"checksum":0}', "v1"),
        (MEMORY, STATIC, "v1"),
        (MEMORY, STATIC.replace("Static", "static").replace("46685113", "4215593881"), "v1"),
        (MEMORY, '{"policyName":"None","machineState":{},"checksum":4236770233}', "v1"),
    ],
)
def test_a_file_is_read_by_the_version_that_fits(kind: Kind, text: str, version: str) -> None:
    found = state_files.read(kind, text)
    assert (found.version, found.refusal) == (version, "")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{", "unexpected end of JSON input"),
        (V2[:-9], "unexpected end of JSON input"),
        ("", "unexpected end of JSON input"),
        ("\0\0\0\0", r"invalid character '\x00' looking for beginning of value"),
        ("[]", "json: cannot unmarshal array into Go value of type state.CPUManagerCheckpointV1"),
        ("true", "json: cannot unmarshal bool into Go value of type state.CPUManagerCheckpointV1"),
        ("7", "json: cannot unmarshal number into Go value of type state.CPUManagerCheckpointV1"),
        ('"x"', "json: cannot unmarshal string into Go value of type state.CPUManagerCheckpointV1"),
        ('{"policyName": 3}', "json: cannot unmarshal number into Go struct field CPUManagerCheckpointV1.policyName of type string"),
        (V2 + "x", "invalid character 'x' after top-level value"),
        ('{"policyName" "none"}', "invalid character '\"' after object key"),
        ("{x}", "invalid character 'x' looking for beginning of object key string"),
    ],
)  # fmt: skip
def test_what_is_no_state_file_is_refused_as_go_refuses_it(text: str, said: str) -> None:
    assert state_files.read(CPU, text).refusal == said


V3 = (
    '{"policyName":"none","defaultCpuSet":"1-3","entries":{"pod":{"container1":"4-6","container2":"1-3"}},'
    '"podEntries":{"pod":{"cpuSet":"4-6"}},"checksum":2649431787}'
)


@pytest.mark.parametrize(
    ("kind", "text", "pod_level", "version"),
    [
        (CPU, V2.replace("2611876578", "0"), False, "v2"),
        (CPU, V2.replace("2611876578", "2611876579"), False, ""),
        (CPU, V3, True, "v3"),
        (CPU, V3, False, ""),
        # With the gate a checksum of 0 is that of an older file.
        (CPU, V3.replace("2649431787", "0"), True, "v2"),
        (MEMORY, STATIC, True, "v1"),
        (MEMORY, STATIC.replace("46685113", "0"), False, ""),
        (MEMORY, STATIC.replace("46685113", "0"), True, ""),
        # To encoding/json null says nothing of a struct: all is empty, a checksum of 0 as well.
        (CPU, "null", False, "v2"),
        (MEMORY, "null", False, ""),
    ],
)
def test_a_checksum_of_0_passes_for_older_files_of_the_cpu_manager_alone(
    kind: Kind, text: str, pod_level: bool, version: str
) -> None:
    found = state_files.read(kind, text, pod_level=pod_level)
    assert (found.version, bool(found.refusal)) == (version, not version)


def test_what_a_kubelet_restores_of_memory() -> None:
    tables = {"TotalMemSize": 2048, "SystemReserved": 512, "Allocatable": 1536, "Reserved": 512, "Free": 1024}
    node = {"NumberOfAssignments": 0, "MemoryMap": {"memory": tables}, "Cells": []}
    block = {"NUMAAffinity": [0], "Type": "memory", "Size": 512}
    found = state_files.restore_memory(STATIC, "Static")
    assert found == MemoryState("Static", {0: node}, {"pod": {"container1": [block]}}, {})
    assert state_files.restore_memory("", "Static") == MemoryState("Static", {}, {}, {})
    # Of a whole pod.
    values = {
        "PolicyName": "Static",
        "MachineState": {0: node},
        "Entries": {},
        "PodEntries": {"pod": {"MemoryBlocks": [block]}},
    }
    read = StateFile("v2", values)
    assert state_files.memory_state(read) == MemoryState("Static", {0: node}, {}, {"pod": {"MemoryBlocks": [block]}})


def test_what_is_null_in_a_state_file_is_nothing() -> None:
    empty = {"PolicyName": "none", "DefaultCPUSet": "", "Entries": None}
    for version in ("v1", "v2"):
        assert state_files.cpu_state(StateFile(version, empty), {}) == CpuState("none", frozenset(), {}, {})
    for entries in ("null", '{"pod":null}', "{}"):
        text = f'{{"policyName":"static","defaultCpuSet":"0-1","entries":{entries},"checksum":0}}'
        assert state_files.restore_cpus(text, "static") == CpuState("static", frozenset({0, 1}), {}, {})
    null = {"PolicyName": "None", "MachineState": None, "Entries": None, "PodEntries": None}
    assert state_files.memory_state(StateFile("v2", null)) == MemoryState("None", {}, {}, {})
    inner = {"PolicyName": "None", "MachineState": {0: None}, "Entries": {"pod": None}}
    assert state_files.memory_state(StateFile("v1", inner)) == MemoryState("None", {}, {"pod": {}}, {})


@given(st.text(max_size=30), st.integers(0, len(V2) - 1))
def test_no_damage_passes_for_a_state(put: str, at: int) -> None:
    damaged = V2[:at] + put + V2[at + 1 :]
    found = state_files.read(CPU, damaged)
    if found.refusal == "":
        # Blanks, other cases of a key's letters and a checksum of 0 leave what the file says as it is.
        values = found.values
        assert values["Checksum"] == 0 or found.values | {"Checksum": 0} == state_files.read(CPU, V2).values | {
            "Checksum": 0
        }


KEYS = (
    "policyName", "defaultCpuSet", "entries", "podEntries", "checksum", "machineState", "0", "memoryMap", "cells", "cpuSet",
    "Data", "Checksum", "PodDeviceEntries", "DeviceIDs", "RegisteredDevices",
)  # fmt: skip
ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(KEYS), inner, max_size=4),
)


@given(ANYTHING)
def test_whatever_json_is_there_is_read_or_refused(data: object) -> None:
    text = json.dumps(data)
    for pod_level in (False, True):
        for kind in (CPU, MEMORY):
            found = state_files.read(kind, text, pod_level=pod_level)
            assert bool(found.refusal) != bool(found.version)
    try:
        state_files.read_devices(text)
    except GoError as error:
        assert str(error)


def test_another_policy_is_refused_by_name() -> None:
    with pytest.raises(StateRefused, match='configured policy "none" differs from state checkpoint policy "static"'):
        state_files.restore_cpus(V2, "none")
    with pytest.raises(StateRefused, match='configured policy "None" differs from state checkpoint policy "Static"'):
        state_files.restore_memory(STATIC, "None")


def test_an_unknown_container_of_the_first_version_is_named() -> None:
    text = '{"policyName":"none","defaultCpuSet":"1-3","entries":{"id1":"4-6"},"checksum":0}'
    with pytest.raises(StateRefused, match="id1"):
        state_files.restore_cpus(text, "none")


ROW = '{"PodUID":"p","ContainerName":"c","ResourceName":"example.com/dev","DeviceIDs":%s,"AllocResp":"CgNBPTE="}'
DATA = '{"Data":{"PodDeviceEntries":[%s],"RegisteredDevices":{"example.com/dev":["d0","d1"]}},"Checksum":%s}'


def test_devices_are_read_in_both_forms() -> None:
    newer = state_files.read_devices(DATA % (ROW % '{"0":["d0"],"-1":["d1"]}', 7))
    assert newer.checksum == "wrong"
    assert newer.entries[0].devices == {0: ("d0",), -1: ("d1",)}
    assert newer.entries[0].response == b"\n\x03A=1"
    older = state_files.read_devices(DATA % (ROW % '["d0"]', 7))
    assert older.checksum == "unverifiable"
    assert older.entries[0].devices == {-1: ("d0",)}
    assert older.registered == {"example.com/dev": ("d0", "d1")}


def test_nothing_and_an_empty_list_of_devices_are_not_the_same() -> None:
    nothing = '{"Data":{"PodDeviceEntries":null,"RegisteredDevices":null},"Checksum":1944006890}'
    assert state_files.read_devices(nothing).checksum == "verified"
    assert state_files.read_devices(nothing.replace("null", "[]", 1)).checksum == "wrong"


def test_what_is_null_in_a_file_of_devices_is_nothing() -> None:
    for text in ("null", "{}", '{"Data":null,"Checksum":5}', '{"checksum":0}'):
        assert state_files.read_devices(text) == DeviceState((), {}, "wrong")
    row = (ROW % "null").replace('"CgNBPTE="', "null")
    entry = DeviceEntry("p", "c", "example.com/dev", {}, b"")
    found = state_files.read_devices((DATA % (row, 0)).replace('["d0","d1"]', "null"))
    assert found == DeviceState((entry,), {"example.com/dev": ()}, "wrong")
    assert state_files.read_devices(DATA % (ROW % '{"1":null}', 0)).entries[0].devices == {1: ()}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[]", "json: cannot unmarshal array into Go value of type checkpoint.Data"),
        ('{"Data":[]}', "json: cannot unmarshal array into Go struct field Data.Data of type checkpoint.checkpointData"),
        ('{"Data":"x"}', "json: cannot unmarshal string into Go struct field Data.Data of type checkpoint.checkpointData"),
        ('{"Checksum":"x"}', "json: cannot unmarshal string into Go struct field Data.Checksum of type checksum.Checksum"),
        ("{", "unexpected end of JSON input"),
    ],
)  # fmt: skip
def test_what_is_no_file_of_devices_is_refused_as_go_refuses_it(text: str, said: str) -> None:
    with pytest.raises(GoError) as error:
        state_files.read_devices(text)
    assert str(error.value) == said


def fnv(text: str) -> int:
    """FNV-1a with 32 bits."""
    found = 2166136261
    for byte in text.encode():
        found = (found ^ byte) * 16777619 & 0xFFFFFFFF
    return found


def test_assignments_of_a_numa_node_are_read() -> None:
    hashed = (
        "(*state.MemoryManagerCheckpoint){PolicyName:(string)Static MachineState:(state.NUMANodeMap)map[0:<*>{NumberOfAssignments:(int)0 "
        "MemoryMap:(map[v1.ResourceName]*state.MemoryTable)map[memory:<*>{TotalMemSize:(uint64)2048 SystemReserved:(uint64)512 "
        "Allocatable:(uint64)1536 Reserved:(uint64)512 Free:(uint64)1024}] Cells:([]int)[]}] Entries:(state.ContainerMemoryAssignments)"
        "map[pod:map[container1:[{NUMAAffinity:([]int)[0] Type:(v1.ResourceName)memory Size:(uint64)512}]]] "
        "Checksum:(checksum.Checksum)0}"
    )
    assert fnv(hashed) == 46685113, "the kubelet's own vector"
    text = STATIC.replace('"numberOfAssignments":0', '"numberOfAssignments":2')
    text = text.replace(
        "46685113", str(fnv(hashed.replace("NumberOfAssignments:(int)0", "NumberOfAssignments:(int)2")))
    )
    assert state_files.restore_memory(text, "Static").nodes[0]["NumberOfAssignments"] == 2
