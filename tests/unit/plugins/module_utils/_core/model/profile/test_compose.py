# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Layers of a profile: what wins, what goes, where each key comes from, and whom a refusal names."""

from __future__ import annotations

import typing as t

import pytest
from _core.model.cpu import cpu_options
from _core.model.profile import compose, profile, schema, schema_key
from _core.model.profile.compose import Composed, Layer
from _core.model.values.errors import CorralError
from hypothesis import given
from hypothesis import strategies as st
from test_profile import FULL
from test_profile_anything import anything, keys

Data = dict[str, t.Any]


def merged(*layers: Data) -> Composed:
    """The layers a, b, c …"""
    return compose.compose([Layer(chr(ord("a") + number), data) for number, data in enumerate(layers)])


def workload(name: str, **match: str) -> Data:
    return {"name": name, "match": match}


def pool(size: str, count: int | None, node: t.Any = None) -> Data:
    return {"size": size, "count": count, **({} if node is None else {"node": node})}


@pytest.mark.parametrize(
    ("layers", "wanted", "origins"),
    [
        pytest.param(
            [{"name": "x", "cpu": {"reserved": {"count": 2}}}, {"cpu": {"whole_cores": True}}],
            {"name": "x", "cpu": {"reserved": {"count": 2}, "whole_cores": True}},
            {"name": "a", "cpu.reserved.count": "a", "cpu.whole_cores": "b"},
            id="sections merge key by key",
        ),
        pytest.param(
            [{"cpu": {"reserved": {"slices": ["a.slice", "b.slice"]}}}, {"cpu": {"reserved": {"slices": ["c.slice"]}}}],
            {"cpu": {"reserved": {"slices": ["c.slice"]}}},
            {"cpu.reserved.slices": "b"},
            id="lists of plain values are replaced",
        ),
        pytest.param(
            [
                {"memory": {"hugepages": [pool("2Mi", 1, 0), pool("2Mi", 2, 1)]}},
                {"memory": {"hugepages": [pool("2048Ki", 9, "1"), pool("1Gi", 3, 0)]}},
            ],
            {"memory": {"hugepages": [pool("2Mi", 1, 0), pool("2048Ki", 9, "1"), pool("1Gi", 3, 0)]}},
            {
                **{f"memory.hugepages[0].{name}": "a" for name in ("size", "count", "node")},
                **{
                    f"memory.hugepages[{number}].{name}": "b" for number in (1, 2) for name in ("size", "count", "node")
                },
            },
            id="pools by size and node, however they are written",
        ),
        pytest.param(
            [
                {"memory": {"mounts": [{"path": "/mnt/a", "pagesize": "2Mi", "user": "qemu", "mode": "0770"}]}},
                {"memory": {"mounts": [{"path": "/mnt/b", "pagesize": "1Gi"}, {"path": "/mnt/a", "uid": 3}]}},
            ],
            {
                "memory": {
                    "mounts": [
                        {"path": "/mnt/a", "pagesize": "2Mi", "uid": 3, "mode": "0770"},
                        {"path": "/mnt/b", "pagesize": "1Gi"},
                    ]
                }
            },
            {
                "memory.mounts[0].path": "b",
                "memory.mounts[0].pagesize": "a",
                "memory.mounts[0].mode": "a",
                "memory.mounts[0].uid": "b",
                "memory.mounts[1].path": "b",
                "memory.mounts[1].pagesize": "b",
            },
            id="mounts by path, and a number displaces a name",
        ),
        pytest.param(
            [
                {
                    "gc": {"images": {"high": 90, "keep": ["a"]}, "containers": {}},
                    "workloads": [workload("x", pod="x")],
                },
                {"gc": {"images": {"keep": ["b"]}, "containers": None}, "workloads": [workload("y", label="y")]},
            ],
            {
                "gc": {"images": {"high": 90, "keep": ["b"]}, "containers": None},
                "workloads": [workload("x", pod="x"), workload("y", label="y")],
            },
            {
                "gc.images.high": "a",
                "gc.images.keep": "b",
                "gc.containers": "b",
                **{f"workloads[0].{name}": "a" for name in ("name", "match.pod")},
                **{f"workloads[1].{name}": "b" for name in ("name", "match.label")},
            },
            id="keys of gc one by one, workloads by name",
        ),
        pytest.param(
            [{"workloads": [workload("x", pod="x")]}, {"workloads": [workload("x", unit="x.service")]}],
            {"workloads": [workload("x", unit="x.service")]},
            {"workloads[0].name": "b", "workloads[0].match.unit": "b"},
            id="another match displaces the one before",
        ),
        pytest.param(
            [{"memory": {"hugepages": [pool("2Mi", 8)]}}, {"memory": {"hugepages": [pool("2Mi", 4, 1)]}}],
            {"memory": {"hugepages": [pool("2Mi", 4, 1)]}},
            {f"memory.hugepages[0].{name}": "b" for name in ("size", "count", "node")},
            id="a node's pool displaces the whole machine's",
        ),
        pytest.param(
            [
                {"memory": {"hugepages": [pool("2Mi", 8, 0), pool("1Gi", 1, 0)]}},
                {"memory": {"hugepages": [pool("2Mi", 4)]}},
            ],
            {"memory": {"hugepages": [pool("1Gi", 1, 0), pool("2Mi", 4)]}},
            {
                **{f"memory.hugepages[0].{name}": "a" for name in ("size", "count", "node")},
                **{f"memory.hugepages[1].{name}": "b" for name in ("size", "count")},
            },
            id="and the other way round, of the same size only",
        ),
        pytest.param(
            [
                {"memory": {"hugepages": [pool("2Mi", 8, 0), pool("2Mi", 8, 1)]}},
                {"memory": {"hugepages": [pool("2Mi", None, 1)]}},
            ],
            {"memory": {"hugepages": [pool("2Mi", 8, 0)]}},
            {f"memory.hugepages[0].{name}": "a" for name in ("size", "count", "node")},
            id="count null takes a pool away",
        ),
        pytest.param(
            [
                {"memory": {"mounts": [{"path": "/m", "pagesize": "2Mi"}]}},
                {"memory": {"mounts": [{"path": "/m", "pagesize": None}]}},
            ],
            {"memory": {"mounts": []}},
            {"memory.mounts": "b"},
            id="pagesize null takes a mount away",
        ),
        pytest.param(
            [
                {"memory": {"hugepages": [pool("2Mi", 8, 0)]}},
                {"memory": {"hugepages": [pool("2Mi", None, 1), pool("2Mi", 4, 3)]}},
            ],
            {"memory": {"hugepages": [pool("2Mi", 8, 0), pool("2Mi", 4, 3)]}},
            {
                **{f"memory.hugepages[0].{name}": "a" for name in ("size", "count", "node")},
                **{f"memory.hugepages[1].{name}": "b" for name in ("size", "count", "node")},
            },
            id="taking away what is not there is no error",
        ),
        pytest.param(
            [{"cpu": {"isolated": {"cores": 1}}, "pids": {"reserved": 1}}, {"cpu": {"isolated": None}, "pids": None}],
            {"cpu": {"isolated": None}, "pids": None},
            {"cpu.isolated": "b", "pids": "b"},
            id="null takes a section away",
        ),
        pytest.param(
            [
                {"pids": {"reserved": 1}, "memory": {"hugepages": [pool("2Mi", 1)]}},
                {"pids": {}, "memory": {"hugepages": []}},
            ],
            {"pids": {"reserved": 1}, "memory": {"hugepages": [pool("2Mi", 1)]}},
            {"pids.reserved": "a", "memory.hugepages[0].size": "a", "memory.hugepages[0].count": "a"},
            id="what is empty adds nothing",
        ),
        pytest.param(
            [{"memory": {"reserved": {"0": "1Gi", "1": "1Gi"}}}, {"memory": {"reserved": {1: "2Gi"}}}],
            {"memory": {"reserved": {"0": "1Gi", 1: "2Gi"}}},
            {"memory.reserved.0": "a", "memory.reserved.1": "b"},
            id="the keys of a mapping may be text or numbers",
        ),
        pytest.param(
            [{"cpu": {"isolated": {"cores": 2, "near": "ens1"}}}, {"cpu": {"isolated": {"cpus": "2-3"}}}],
            {"cpu": {"isolated": {"cpus": "2-3"}}},
            {"cpu.isolated.cpus": "b"},
            id="literal CPUs displace intent and place",
        ),
        pytest.param(
            [
                {"cpu": {"isolated": {"cores": 2, "near": "ens1"}}},
                {"cpu": {"isolated": {"numa": 1}}},
                {"cpu": {"isolated": {"cores": 4}}},
            ],
            {"cpu": {"isolated": {"cores": 4, "numa": 1}}},
            {"cpu.isolated.cores": "c", "cpu.isolated.numa": "b"},
            id="one place displaces another, and stays when the number changes",
        ),
        pytest.param(
            [{"cpu": {"reserved": {"cpus": "0"}}}, {"cpu": {"reserved": {"count": None}}}],
            {"cpu": {"reserved": {"cpus": "0", "count": None}}},
            {"cpu.reserved.cpus": "a", "cpu.reserved.count": "b"},
            id="a choice that is taken away displaces nothing",
        ),
        pytest.param(
            [{"cpu": "all"}, {"cpu": {"reserved": {"count": 1}}}, {"memory": 3}, {"memory": {"mounts": 4}}],
            {"cpu": {"reserved": {"count": 1}}, "memory": {"mounts": 4}},
            {"cpu.reserved.count": "b", "memory.mounts": "d"},
            id="what is of another kind is replaced",
        ),
    ],
)
def test_what_wins_and_where_it_comes_from(layers: list[Data], wanted: Data, origins: dict[str, str]) -> None:
    assert merged(*layers) == Composed(wanted, origins)


def test_a_list_that_is_too_long_is_left_to_be_refused() -> None:
    many = [pool("2Mi", 1, number % 1000) for number in range(schema.ITEMS_LIMIT + 1)]
    for layers in ([many, [pool("1Gi", 1)]], [[pool("1Gi", 1)], many]):
        assert merged(*({"memory": {"hugepages": items}} for items in layers)).data["memory"]["hugepages"] == many


RESERVATIONS = {"cpus": "0-1", "count": 2, "cores_per_numa": 1}


@pytest.mark.parametrize("first", RESERVATIONS)
@pytest.mark.parametrize("second", RESERVATIONS)
def test_a_later_reservation_displaces_the_earlier(first: str, second: str) -> None:
    base = {"name": "x", "cpu": {"reserved": {first: RESERVATIONS[first], "slices": ["system.slice"]}}}
    found = merged(base, {"cpu": {"reserved": {second: RESERVATIONS[second]}}})
    assert found.data["cpu"]["reserved"] == {second: RESERVATIONS[second], "slices": ["system.slice"]}
    profile.parse(found.data)


def test_every_list_of_sections_says_what_its_items_are_told_apart_by() -> None:
    lists = {key.path for key in schema.KEYS if key.many == schema_key.LIST and key.type is None}
    assert set(compose.IDENTITY) == lists
    known = {key.path for key in schema.KEYS}
    others = {f"{path.rpartition('.')[0]}.{name}" for path, names in compose.DISPLACES.items() for name in names}
    assert known >= set(compose.DISPLACES) | others


# What a refusal names


def refused(*layers: Data) -> list[str]:
    found = merged(*layers)
    with pytest.raises(CorralError) as error:
        profile.parse(found.data)
    return str(compose.rewrite_paths(error.value, found.origins)).splitlines()


BASE = {"name": "x", "cpu": {"reserved": {"count": 1}}}


@pytest.mark.parametrize(
    ("layers", "beginning"),
    [
        ([BASE, {"cpu": {"reserved": {"count": 0}}}], "cpu.reserved.count (from b): 0: is too small"),
        ([BASE, {"cpu": {"reserved": {"slices": ["system.slice", 3]}}}], "cpu.reserved.slices[1] (from b): 3: is a number"),
        ([BASE, {"cpu": {"reserved": {"cpus": "0", "count": 2}}}], "cpu.reserved (from b): declares cpus and count together"),
        ([BASE, {"cpu": {"reserved": None}}], "cpu.reserved (from b): is missing"),
        ([BASE, {"cpu": {"isolatd": {}}}], "cpu.isolatd (from b): unknown key"),
        ([BASE, {"pids": {"slices": {"no.slice": 5}}}], 'pids.slices["no.slice"] (from b): 5: is not a slice of'),
        ([BASE, {"memory": {"hugepages": [pool("2Mi", 1), pool("2Mi", 2)]}}], "memory.hugepages[1] (from b): 2Mi: is declared for"),
        ([BASE, {"memory": {"hugepages": [pool("2Mi", 1)]}}, {"memory": {"hugepages": [pool("2Mi", 2, 0), pool("2Mi", 3)]}}],
         "memory.hugepages[1] (from c): 2Mi: is declared for single NUMA nodes before"),
        ([BASE, {"memory": {"hugepages": [pool("2Mi", 1)]}}, {"memory": {"hugepages": [pool("2Mi", 2), pool("2Mi", 3, 0)]}}],
         "memory.hugepages[1] (from c): 2Mi: is declared for the whole machine"),
        ([BASE, {"memory": {"hugepages": [{"size": "2Mi"}]}}], "memory.hugepages[0].count (from b): is missing"),
        ([{"mode": "audit"}, {"cpu": {"reserved": {"count": 1}}}], "name: is missing"),
        ([BASE, {"cpu": {"isolated": {"cpus": "1"}}}, {"cpu": {"isolated": {"numa": 1}}}], "cpu.isolated.numa (from c): 1: literal"),
        ([{"name": "x", "cpu": {"whole_cores": True}}, {"cpu": {"policy": "none"}}], "cpu.reserved (from a, b): is missing"),
    ],
)  # fmt: skip
def test_a_refusal_names_the_layer(layers: list[Data], beginning: str) -> None:
    lines = refused(*layers)
    assert [line for line in lines if line.startswith(beginning)], lines


def test_a_layer_that_is_no_mapping_is_refused_by_name() -> None:
    with pytest.raises(CorralError, match=r"^the profile \(from b\): a list of 1: is a list, not a mapping"):
        merged(BASE, t.cast("Data", ["cpu"]))
    with pytest.raises(CorralError, match="layers: is empty"):
        merged()


# What holds for all of them


def section(**parts: st.SearchStrategy[t.Any]) -> st.SearchStrategy[Data]:
    return st.fixed_dictionaries({}, optional=parts)


def items(item: st.SearchStrategy[Data], *names: str) -> st.SearchStrategy[list[Data]]:
    return st.lists(item, min_size=1, max_size=3, unique_by=lambda one: tuple(one.get(name) for name in names))


sizes = st.sampled_from(["2Mi", "1Gi"])
numbers = st.integers(1, 9)
slices = st.lists(st.sampled_from(["a.slice", "b.slice"]), min_size=1, unique=True)
pools = items(st.fixed_dictionaries({"size": sizes, "count": numbers, "node": st.integers(0, 1)}), "size", "node")
mounts = items(
    st.one_of(
        *(
            st.fixed_dictionaries(
                {"path": st.sampled_from(["/mnt/a", "/mnt/b"])}, optional={"pagesize": sizes, owner: numbers}
            )
            for owner in ("uid", "user")
        )
    ),
    "path",
)
reserved = st.one_of(*(section(slices=slices, **{name: numbers}) for name in ("cpus", "count", "cores_per_numa")))
layers = section(
    name=st.sampled_from(["x", "y"]),
    mode=st.sampled_from(["audit", "enforce"]),
    cpu=section(reserved=reserved, isolated=section(cores=numbers), whole_cores=st.booleans()),
    memory=section(
        reserved=st.dictionaries(st.sampled_from(["0", "1"]), sizes, min_size=1), hugepages=pools, mounts=mounts
    ),
    pids=section(pid_max=numbers, slices=st.dictionaries(st.sampled_from(["a.slice", "b.slice"]), numbers, min_size=1)),
)


def leaves(data: object, path: str = "") -> dict[str, object]:
    """Path to value, told by the data alone."""
    if isinstance(data, dict) and data:
        parts = [(name if "." not in name else f'["{name}"]', value) for name, value in data.items()]
        return {
            leaf: end
            for name, value in parts
            for leaf, end in leaves(
                value, path + name if name.startswith("[") else f"{path}.{name}".lstrip(".")
            ).items()
        }
    if isinstance(data, list) and data and isinstance(data[0], dict):
        return {
            leaf: end for number, item in enumerate(data) for leaf, end in leaves(item, f"{path}[{number}]").items()
        }
    return {path: data}


@given(st.dictionaries(keys, anything, max_size=5))
def test_one_layer_stays_as_it_is(data: Data) -> None:
    assert repr(merged(data).data) == repr(data)


@given(st.lists(st.dictionaries(keys, anything, max_size=5), min_size=1, max_size=3))
def test_anything_is_merged(data: list[Data]) -> None:
    found = merged(*data)
    assert set(found.origins.values()) <= set("abc")


@given(st.lists(layers, min_size=1, max_size=4))
def test_origins_cover_exactly_the_leaves(data: list[Data]) -> None:
    found = merged(*data)
    ends = leaves(found.data) if found.data else {}
    assert set(found.origins) - {""} == set(ends)
    for path, value in ends.items():
        if "[" not in path:
            assert leaves(data[ord(found.origins[path]) - ord("a")])[path] == value


@given(layers, layers, layers)
def test_which_two_are_merged_first_does_not_matter(one: Data, two: Data, three: Data) -> None:
    at_once = merged(one, two, three).data
    assert merged(merged(one, two).data, three).data == at_once
    assert merged(one, merged(two, three).data).data == at_once


@given(st.sets(st.sampled_from(sorted(FULL)), min_size=1))
def test_a_profile_in_two_layers_is_the_profile(names: set[str]) -> None:
    one = {name: value for name, value in FULL.items() if name in names}
    two = {name: value for name, value in FULL.items() if name not in names}
    assert profile.parse(merged(one, two).data) == profile.parse(FULL)


def test_the_origins_of_a_declared_profile_name_the_defaults() -> None:
    found = merged(BASE, {"memory": {"reserved": {0: "1Gi"}, "mounts": [{"path": "/mnt/a", "pagesize": "2Mi"}]}})
    data = profile.to_data(profile.parse(found.data))
    assert compose.declared_origins(data, found.origins) == {
        "name": "a",
        "version": "default",
        "mode": "default",
        "cpu.reserved.count": "a",
        "cpu.reserved.slices": "default",
        "cpu.shared.min_cpus": "default",
        "cpu.shared.slices": "default",
        "cpu.whole_cores": "default",
        "cpu.policy": "default",
        "cpu.partitions": "default",
        "cpu.unmanaged": "default",
        **{f"cpu.options.{name}": "default" for name in cpu_options.NAMES},
        "memory.reserved.0": "b",
        "memory.mounts[0].path": "b",
        "memory.mounts[0].pagesize": "b",
        "memory.mounts[0].mode": "default",
    }
