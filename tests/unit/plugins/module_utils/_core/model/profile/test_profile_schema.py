# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The JSON Schema of a profile: it accepts what Corral accepts, and finds what an editor should mark."""

from __future__ import annotations

import sys
import typing as t
from pathlib import Path

import pytest
import yaml
from _core.model.profile import profile, schema, schema_key, schema_reader, section_data
from _core.model.values.errors import CorralError
from hypothesis import given

jsonschema = pytest.importorskip("jsonschema", reason="jsonschema is not here: make setup installs it")
REPOSITORY = Path(__file__).resolve().parents[7]
if not (REPOSITORY / "tools" / "profile_schema.py").is_file():
    pytest.skip("the tools are not in the built collection", allow_module_level=True)
sys.path.insert(0, str(REPOSITORY / "tools"))

import profile_schema  # noqa: E402
from test_profile_anything import valid  # noqa: E402

EXAMPLES = [path for path in sorted((REPOSITORY / "examples").glob("*.yml")) if path.name != "prometheus-rules.yml"]
CHECKER = jsonschema.Draft202012Validator(profile_schema.whole())
BASE = {"name": "x"}


def complaints(data: object) -> list[str]:
    return [f"{'.'.join(map(str, error.path))}: {error.message}" for error in CHECKER.iter_errors(data)]


def test_the_file_is_up_to_date() -> None:
    assert profile_schema.FILE.read_text(encoding="utf-8") == profile_schema.text(), "run tools/profile_schema.py"
    jsonschema.Draft202012Validator.check_schema(profile_schema.whole())


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_an_example_is_accepted(path: Path) -> None:
    data = yaml.safe_load(path.read_text(encoding="utf-8"))
    assert complaints(data) == []
    assert complaints(profile.to_data(profile.parse(data))) == []


@given(valid)
def test_what_corral_accepts_is_accepted(data: dict[str, t.Any]) -> None:
    try:
        read = profile.parse(data)
    except CorralError:
        return
    assert complaints(data) == []
    assert complaints(profile.to_data(read)) == []


@pytest.mark.parametrize("key", [key for key in schema.KEYS if key.example], ids=lambda key: key.path)
def test_the_example_of_each_key_is_of_its_kind(key: schema_key.Key) -> None:
    first, *below = key.path.replace("[]", "").split(".")
    node = schema.TREE[first]
    for name in below:
        node = node.children[name]
    rule = profile_schema.valued(node)
    found = list(jsonschema.Draft202012Validator(rule).iter_errors(yaml.safe_load(key.example)))
    assert found == [], f"{key.path}: {key.example}"


def put(place: dict[str, t.Any], nodes: t.Mapping[str, schema.Node], path: str, last: str = "") -> None:
    """Declare, with their examples, the keys that a section needs; where it needs none and has no key yet, its first one."""
    one_of = schema.EXACTLY_ONE.get(path, ())
    needed = [name for name, node in nodes.items() if node.key.required]
    needed += one_of[:1] if last not in one_of else ()
    for name in needed if needed or last else list(nodes)[:1]:
        example = nodes[name].key.example
        inner: dict[str, t.Any] = {}
        if not example:
            put(inner, nodes[name].children, f"{path}.{name}")
        place[name] = yaml.safe_load(example) if example else inner


def with_key(key: schema_key.Key) -> dict[str, t.Any]:
    """A profile with the example of one key, and with what its sections need."""
    data: dict[str, t.Any] = {"name": "x"}
    place, nodes = data, schema.TREE
    *above, last = key.path.split(".")
    for number, part in enumerate(above):
        inner: dict[str, t.Any] = {}
        place[part.removesuffix("[]")] = [inner] if part.endswith("[]") else inner
        place, nodes = inner, nodes[part.removesuffix("[]")].children
        following = key.path.split(".")[number + 1].removesuffix("[]")
        put(place, nodes, ".".join(above[: number + 1]), following)
    place[last] = yaml.safe_load(key.example)
    return data


@pytest.mark.parametrize("key", [key for key in schema.KEYS if key.example], ids=lambda key: key.path)
def test_the_profile_keeps_each_key(key: schema_key.Key) -> None:
    reader = schema_reader.Reader()
    values = reader.section(with_key(key), "", schema.TREE)
    assert [str(one) for one in reader.problems] == []
    found: t.Any = profile.to_data(section_data.build(values, schema.ROOT, profile.SHAPES))
    path = key.path.replace("quota[].scopes", "quota[].scope_selector")  # It is written in that form.
    for part in path.split("."):
        found = found[part.removesuffix("[]")]
        found = found[0] if part.endswith("[]") else found
    assert found is not None, "it has a field, and to_data writes that"


@pytest.mark.parametrize(
    "data",
    [
        {},
        [],
        {"name": "Upper"},
        {**BASE, "mode": "maybe"},
        {**BASE, "unknown": 1},
        {**BASE, "irq": {}},
        {**BASE, "devices": {}},
        {**BASE, "devices": [{"name": "nic", "match": {"pci": "8086:1572"}}]},
        {**BASE, "cpu": {}},
        {**BASE, "cpu": {"reserved": {}}},
        {**BASE, "cpu": {"reserved": {"count": 1, "cpus": "0"}}},
        {**BASE, "cpu": {"reserved": {"count": 0}}},
        {**BASE, "cpu": {"reserved": {"count": "1"}}},
        {**BASE, "cpu": {"reserved": {"cpus": "zero"}}},
        {**BASE, "cpu": {"reserved": {"count": 1}, "isolated": {"cores": 1, "numa": "next"}}},
        {**BASE, "memory": {"hugepages": [{"count": 1}]}},
        {**BASE, "memory": {"hugepages": [{"size": "2Mi"}]}},
        {**BASE, "memory": {"hugepages": [{"size": "2Mi", "count": 1, "share": "5%"}]}},
        {**BASE, "memory": {"hugepages": {"size": "2Mi"}}},
        {**BASE, "memory": {"mounts": [{"path": "huge", "pagesize": "2Mi"}]}},
        {**BASE, "memory": {"mounts": [{"path": "/mnt/huge", "pagesize": "2Mi", "mode": 504}]}},
        {**BASE, "pids": {"pid_max": 1}},
        {**BASE, "pids": {"slices": {"machine.slice": 0}}},
    ],
)
def test_what_an_editor_should_mark_is_refused_by_both(data: object) -> None:
    assert complaints(data)
    with pytest.raises(CorralError):
        profile.parse(data)
