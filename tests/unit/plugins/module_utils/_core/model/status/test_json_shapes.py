# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The documented shapes are the ones that the code is held to: in docs/json.md, in the modules' RETURN."""

from __future__ import annotations

import re
import typing as t

import pytest
import yaml
from _core.constants import SCHEMA
from _core.model.plan.plan import change_from_dict
from _core.model.status import command_shapes, json_shapes, kubelet_shapes
from _core.reports import change_text, status_file
from shapes import misfits
from shared_data import REPOSITORY

PAGE = (REPOSITORY / "docs" / "json.md").read_text(encoding="utf-8")
SECTIONS = dict(re.findall(r"^## (\w+)\n(.*?)(?=^## |\Z)", PAGE, re.MULTILINE | re.DOTALL))
SHAPES = {
    name: shape
    for module in (json_shapes, kubelet_shapes, command_shapes)
    for name, shape in vars(module).items()
    if hasattr(shape, "__total__")
}
CHANGING = ("agent", "cpuset", "gc", "hugepages", "hugetlbfs_mount", "pid_limits", "profile", "rollback", "workload")
TYPES = {str: "str", int: "int", bool: "bool", list: "list"}


def words(hint: t.Any) -> str:
    """A type as the page writes it."""
    inner = t.get_args(hint)
    kind = t.get_origin(hint)
    if kind is t.Union:
        return f"{words(inner[0])} or null"
    if kind is t.Literal:
        return f"{', '.join(f'`{one}`' for one in inner[:-1])} or `{inner[-1]}`"
    if kind in (list, dict):
        return f"list of {words(inner[0])}" if kind is list else f"mapping to {words(inner[1])}"
    if hasattr(hint, "__total__"):
        return f"[{hint.__name__}](#{hint.__name__.lower()})"
    return {str: "text", int: "number", bool: "true or false", t.Any: "anything"}[hint]


def documented(name: str) -> dict[str, str]:
    """The fields of a section with their types, those that it has of another one as well."""
    rows = dict(re.findall(r"^\| `(\w+)` \| (.*?) \| [^|]+ \|$", SECTIONS[name], re.MULTILINE))
    other = re.search(r"It has the fields of \[(\w+)\]", SECTIONS[name])
    return {**(documented(other.group(1)) if other else {}), **rows}


@pytest.mark.parametrize("name", SHAPES)
def test_the_page_has_the_fields_of_each_shape(name: str) -> None:
    assert documented(name) == {field: words(hint) for field, hint in t.get_type_hints(SHAPES[name]).items()}


def test_the_page_has_no_other_shapes() -> None:
    assert SECTIONS.keys() == SHAPES.keys()


def returned(module: str) -> dict[str, t.Any]:
    text = (REPOSITORY / "plugins" / "modules" / f"{module}.py").read_text(encoding="utf-8")
    found = re.search(r'RETURN = r"""\n(.*?)"""', text, re.DOTALL)
    assert found
    return t.cast("dict[str, t.Any]", yaml.safe_load(found.group(1)))


@pytest.mark.parametrize("module", CHANGING)
def test_a_module_documents_what_each_returns(module: str) -> None:
    fields = returned(module)
    hints = t.get_type_hints(json_shapes.ModuleResult)
    types = {field: TYPES[t.get_origin(hint) or hint] for field, hint in hints.items() if field != "changed"}
    assert {field: fields[field]["type"] for field in types if field in fields} == types
    assert fields["schema"]["sample"] == SCHEMA
    for item in fields["changes"].get("sample", ()):
        assert misfits(item, json_shapes.RenderedItem) == []
        assert item["text"] == change_text.line(change_from_dict(item)), "as it would be shown"


@pytest.mark.parametrize(
    ("module", "key", "shape"),
    [
        ("profile", "changes", json_shapes.RenderedItem),
        ("profile", "drift", json_shapes.DriftItem),
        ("profile", "paused", json_shapes.RenderedPause),
        ("rollback", "changes", json_shapes.RenderedItem),
        ("rollback", "drift", json_shapes.DriftItem),
        ("rollback", "paused", json_shapes.RenderedPause),
        ("pause", "paused", json_shapes.RenderedPause),
    ],
)
def test_a_module_documents_each_field(module: str, key: str, shape: t.Any) -> None:
    contains = returned(module)[key]["contains"]
    sample = {name: one["sample"] for name, one in contains.items()}
    assert misfits(sample, shape) == []
    assert {name: one["type"] for name, one in contains.items()} == {
        name: TYPES[type(value)] for name, value in sample.items()
    }


def test_what_is_read_of_the_last_status_is_written() -> None:
    assert status_file.BUILT_UPON.keys() <= t.get_type_hints(json_shapes.Status).keys()
    assert status_file.ITEM.keys() <= t.get_type_hints(json_shapes.StatusItem).keys()
    assert status_file.PAUSED.keys() <= t.get_type_hints(json_shapes.Pause).keys()


def test_the_check_of_shapes_finds_what_is_wrong() -> None:
    right: dict[str, t.Any] = {"time": 1, "changes": []}
    assert misfits(right, json_shapes.LastChanged) == []
    assert misfits({**right, "time": True}, json_shapes.LastChanged) == [".time: True"]
    assert misfits({**right, "more": 1}, json_shapes.LastChanged) == [".more: one side alone has it"]
    assert misfits({"time": 1, "changes": [{}]}, json_shapes.LastChanged) != []
    assert misfits(None, t.Optional[json_shapes.LastChanged]) == []
