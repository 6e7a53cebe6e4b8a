# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Whatever is declared, parse gives a profile or a list of problems, never anything else."""

from __future__ import annotations

import json
import typing as t

from _core.model.profile import capacity_check, node_intent, profile, schema
from _core.model.values.errors import CorralError
from hypothesis import given
from hypothesis import strategies as st
from machines import machine

scalars = (
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20)
    | st.sampled_from(["0-3", "2Mi", "1Gi", "static", "audit", "/mnt/huge", "machine.slice", "../..", "0770", "a\nb", "\ud800", 1 << 70])
)  # fmt: skip
keys = st.text(max_size=8) | st.sampled_from(sorted({key.name for key in schema.KEYS}))
anything = st.recursive(
    scalars,
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(keys | st.integers() | st.booleans() | st.none(), inner, max_size=5)
    ),
    max_leaves=25,
)


def outcome(data: object) -> profile.Profile | None:
    """The profile, or None when it was refused as it should be."""
    try:
        read = profile.parse(data)
    except CorralError as exc:
        assert exc.problems
        json.dumps(exc.problems)
        for problem in exc.problems:
            assert problem.message
            assert problem.line().isprintable()
            assert len(problem.line()) < 2000
        return None
    again = json.loads(json.dumps(profile.to_data(read)))
    assert profile.parse(again) == read
    assert profile.to_data(profile.parse(again)) == again
    return read


@given(anything)
def test_anything(data: object) -> None:
    outcome(data)


# Profiles that are right: each section is there or not, and so is each key that may be left out.

reserved = st.one_of(
    st.fixed_dictionaries({"count": st.integers(1, 64)}),
    st.fixed_dictionaries({"cores_per_numa": st.integers(1, 8)}),
    st.fixed_dictionaries({"cpus": st.sampled_from(["0", "0-1", "0,32", "1,0,32-33", "0-7"])}),
)
isolated = st.one_of(
    st.fixed_dictionaries(
        {"cores": st.integers(1, 64)},
        optional={"numa": st.integers(0, 7) | st.sampled_from(["first", "last"]), "optional": st.booleans()},
    ),
    st.fixed_dictionaries({"cores": st.integers(1, 4), "near": st.sampled_from(["ens1f0", "3B:00.0", "0000:3b:00.1"])}),
    st.fixed_dictionaries(
        {"cpus": st.sampled_from(["8", "8-11", "9,12-15"])}, optional={"load_balance": st.booleans()}
    ),
)
cpu = st.fixed_dictionaries(
    {"reserved": reserved},
    optional={
        "isolated": isolated,
        "shared": st.fixed_dictionaries({}, optional={"min_cpus": st.integers(1, 8)}),
        "whole_cores": st.booleans(),
        "policy": st.sampled_from(["none", "static"]),
        "partitions": st.just("auto"),
        "unmanaged": st.sampled_from(["report", "confine"]),
    },
)
memory = st.fixed_dictionaries(
    {},
    optional={
        "reserved": st.dictionaries(st.sampled_from(["0", "1", "7"]), st.sampled_from(["512Mi", "2Gi", 1 << 30])),
        "reserved_per_numa": st.sampled_from(["512Mi", "2Gi", "10%", "100%"]),
        "hugepages": st.lists(
            st.tuples(
                st.fixed_dictionaries({"count": st.integers(0, 4096)})
                | st.fixed_dictionaries({"share": st.sampled_from(["25%", "0.5%", "100%"])}),
                st.fixed_dictionaries(
                    {
                        "size": st.sampled_from(["2Mi", "1Gi"]),
                        "node": st.integers(0, 7) | st.sampled_from(["each", "first", "last"]),
                    },
                    optional={"optional": st.booleans()},
                ),
            ).map(lambda both: {**both[0], **both[1]}),
            unique_by=lambda pool: (pool["size"], pool["node"]),
            max_size=4,
        ),
        "mounts": st.lists(
            st.fixed_dictionaries(
                {"path": st.sampled_from(["/dev/hugepages-2Mi", "/mnt/huge", "/mnt/a_b"]), "pagesize": st.just("2Mi")},
                optional={
                    "size": st.sampled_from(["2Mi", "64Mi"]),
                    "mode": st.sampled_from(["0770", "1777"]),
                    "optional": st.booleans(),
                },
            ),
            unique_by=lambda mount: mount["path"],
            max_size=3,
        ),
    },
)
pids = st.fixed_dictionaries(
    {},
    optional={
        "pid_max": st.integers(1 << 16, 1 << 22),
        "threads_max": st.integers(1 << 16, 1 << 20),
        "reserved": st.integers(1, 4096),
        "slices": st.dictionaries(st.sampled_from(["machine.slice", "system.slice"]), st.integers(1024, 16384)),
    },
)
ages = st.sampled_from(["0s", "90s", "2m", "1h30m"])
images = st.fixed_dictionaries(
    {"high": st.integers(51, 100), "low": st.integers(0, 50)},
    optional={"min_age": ages, "keep": st.lists(st.sampled_from(["base:*", "localhost/tools"]), unique=True)},
)
containers = st.fixed_dictionaries(
    {}, optional={"min_age": ages, "max_per_workload": st.integers(-1, 8), "scope": st.just("all")}
)
gc = st.fixed_dictionaries({"images": images}, optional={"containers": containers}) | st.fixed_dictionaries(
    {"containers": containers}
)
workload = st.fixed_dictionaries(
    {"name": st.sampled_from(["a", "b", "dataplane"])},
    optional={
        "hold": st.sampled_from(["declared", "running"]),
        "limits": st.fixed_dictionaries(
            {"cpu": st.sampled_from([2, "500m"]), "memory": st.sampled_from(["1Gi", 1 << 29])}
        ),
    },
)
workloads = st.lists(workload, unique_by=lambda one: one["name"], max_size=3).map(
    lambda rows: [{**row, "match": {"unit": f"{row['name']}.service"}} for row in rows]
)
valid = st.fixed_dictionaries(
    {"name": st.sampled_from(["x", "edge-worker"])},
    optional={
        "version": st.just(1),
        "mode": st.sampled_from(["enforce", "audit"]),
        "cpu": cpu,
        "memory": memory,
        "pids": pids,
        "topology": st.fixed_dictionaries({"policy": st.sampled_from(["none", "restricted", "single-numa-node"])}),
        "gc": gc,
    },
).flatmap(lambda data: workloads.map(lambda rows: {**data, "workloads": rows} if "cpu" in data else data))


@given(valid)
def test_a_valid_profile_is_read_and_judged_for_a_node(data: dict[str, t.Any]) -> None:
    read = outcome(data)
    assert read is not None, profile.parse(data)
    for here in (
        machine(),
        machine(1),
        machine(memory_kib=None),
        machine(1)._replace(numa={}, machine_memory_kib=1 << 20),
    ):
        found = node_intent.resolve(read, here)
        problems = [*found.problems, *map(found.as_declared, capacity_check.check_node(found.profile, here))]
        json.dumps([problems, found.notes, capacity_check.notes(found.profile, here)])
        assert not profile.has_intents(found.profile)
        assert node_intent.resolve(found.profile, here).profile == found.profile
        optional = {f"memory.{name}[{index}]" for name in ("hugepages", "mounts")
                    for index, row in enumerate(getattr(read.memory, name)) if row.optional}  # fmt: skip
        blamed = {problem.path.partition("]")[0] + "]" for problem in problems}
        assert not blamed & optional, "what is optional is never refused"


def leaves(data: object, path: tuple[t.Any, ...] = ()) -> list[tuple[t.Any, ...]]:
    """The path of each value that is neither mapping nor list, or an empty one."""
    items: t.Iterable[tuple[t.Any, t.Any]] = ()
    if isinstance(data, dict):
        items = data.items()
    elif isinstance(data, list):
        items = enumerate(data)
    return [found for name, value in items for found in leaves(value, (*path, name))] or [path]


def replaced(data: t.Any, path: tuple[t.Any, ...], value: object) -> t.Any:
    if not path:
        return value
    copy = list(data) if isinstance(data, list) else dict(data)
    copy[path[0]] = replaced(copy[path[0]], path[1:], value)
    return copy


near = st.sampled_from(
    [True, False, 0, 1, 2, 64, 4096, 65536, "2Mi", "4Mi", "1Gi", "x", "none", "audit", "0-3", "0770", "1h"]
)


@given(valid, st.data())
def test_a_valid_profile_with_another_leaf_is_a_profile_or_refused(
    data: dict[str, t.Any], choices: st.DataObject
) -> None:
    path = choices.draw(st.sampled_from(leaves(data)))
    read = outcome(replaced(data, path, choices.draw(near | anything)))
    if read is not None:
        json.dumps(capacity_check.check_node(read, machine()))
        capacity_check.notes(read, machine())
