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
from _core.model.profile import profile, schema, schema_key
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
