# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Writes docs/profile.schema.json, the JSON Schema of a profile, from the schema. A test says when it has to be run again.

It is for editors and for checks of a repository of profiles: it accepts every profile that Corral accepts, and finds unknown
keys, values of another kind and keys that exclude each other. What depends on several keys or on the node, Corral says.
"""

from __future__ import annotations

import json
import sys
import typing as t
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(REPOSITORY / "plugins" / "module_utils"))

from _core.model.profile import schema, schema_key, schema_quantities, schema_types  # noqa: E402

FILE = REPOSITORY / "docs" / "profile.schema.json"
DRAFT = "https://json-schema.org/draft/2020-12/schema"
Schema = dict[str, t.Any]


def whole() -> Schema:
    """The JSON Schema of a profile."""
    return {
        "$schema": DRAFT,
        "title": "Corral: a node resource profile",
        "description": f"Format {schema.FORMAT}. docs/profile.md has every key with an example.",
        **section("", schema.TREE),
    }


def section(path: str, nodes: t.Mapping[str, schema.Node]) -> Schema:
    """A mapping with known keys. A key that is empty counts as left out, which no required key may be."""
    now = {name: node for name, node in nodes.items() if not node.key.later}
    rule: Schema = {
        "type": "object",
        "additionalProperties": False,
        "properties": {name: described(node) for name, node in now.items()},
    }
    required = [name for name, node in now.items() if node.key.required]
    if required:
        rule["required"] = required
    if path in schema.EXACTLY_ONE:
        rule["oneOf"] = [
            {"required": [name], "properties": {name: {"not": {"type": "null"}}}} for name in schema.EXACTLY_ONE[path]
        ]
    return rule


def described(node: schema.Node) -> Schema:
    """The rule of a key, with its text for an editor."""
    key = node.key
    rule = valued(node)
    if not key.required:
        rule = {"anyOf": [rule, {"type": "null"}]}
    if key.default is not None:
        rule["default"] = list(key.default) if isinstance(key.default, tuple) else key.default
    return {"description": key.doc.replace("`", ""), **rule}


def valued(node: schema.Node) -> Schema:
    """The rule of a key's value."""
    key = node.key
    if key.many == schema_key.LIST:
        items = section(f"{key.path}[]", node.children) if key.type is None else typed(key.type)
        return {"type": "array", "items": items, "maxItems": schema.ITEMS_LIMIT}
    if key.many == schema_key.MAP:
        assert key.type is not None
        values = {"anyOf": [typed(key.type), {"type": "null"}]}
        return {"type": "object", "additionalProperties": values, "maxProperties": schema.ITEMS_LIMIT}
    return section(key.path, node.children) if key.type is None else typed(key.type)


def typed(kind: schema_types.Type) -> Schema:
    """The rule of one kind of value."""
    if kind is schema_types.BOOLEAN:
        return {"type": "boolean"}
    if kind is schema_types.BOOLEAN_OR_ANY:
        return {"enum": [True, False, "any"]}
    rules: list[Schema] = []
    if kind.bounds:
        low, high = kind.bounds
        rules.append({"type": "integer", "minimum": low, "maximum": high})
    if kind.words:
        # YAML 1.1 reads a bare off as false, and Corral knows.
        rules.append({"enum": [*kind.words, *([False] if "off" in kind.words else [])]})
    if kind.pattern:
        rules.append({"type": "string", "pattern": f"^(?:{kind.pattern})$"})
    if kind is schema_quantities.QUANTITY:
        rules.append({"type": "number", "minimum": 0})
    if not rules:
        rules.append({"type": "string"})
    return rules[0] if len(rules) == 1 else {"anyOf": rules}


def text() -> str:
    """The text of the file."""
    return json.dumps(whole(), indent=2, ensure_ascii=False) + "\n"


if __name__ == "__main__":
    FILE.write_text(text(), encoding="utf-8")
