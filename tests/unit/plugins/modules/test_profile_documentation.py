# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What ansible-doc shows of the module profile is enough to write one, and is so."""

from __future__ import annotations

import re
import typing as t
from pathlib import Path

import pytest
import yaml
from _core.model.profile import compose, profile, schema

TEXT = (Path(__file__).parents[4] / "plugins/modules/profile.py").read_text(encoding="utf-8")
SECTIONS = {name: node for name, node in schema.TREE.items() if not node.key.later}
# In these, the keys of each part are named as well; in kubelet, some of the kubelet's own.
IN_DEPTH = ("cpu.reserved", "cpu.isolated", "cpu.shared", "memory.hugepages", "memory.mounts", "workloads.match")


def block(name: str) -> t.Any:
    """A block of the module's documentation."""
    found = re.search(rf'^{name} = r"""\n(.*?)^"""', TEXT, re.MULTILINE | re.DOTALL)
    assert found
    return yaml.safe_load(found[1])


PARAGRAPHS = block("DOCUMENTATION")["options"]["profile"]["description"]


def paragraph(section: str) -> str:
    (text,) = [one for one in PARAGRAPHS if one.startswith(f"C({section}) ")]
    return t.cast("str", text)


def test_keys_without_keys_below_are_one_paragraph() -> None:
    plain = {name for name, node in SECTIONS.items() if not node.children}
    assert plain == set(re.findall(r"C\((\w+)\)", paragraph("name")))


@pytest.mark.parametrize("section", [name for name, node in SECTIONS.items() if node.children])
def test_each_section_has_its_keys_and_no_others(section: str) -> None:
    node, text = SECTIONS[section], paragraph(section)
    named = set(re.findall(r"C\((\w+)\)", text)) - {section}
    parts = {name: set(one.children) for name, one in node.children.items() if f"{section}.{name}" in IN_DEPTH}
    known = set(node.children).union(*parts.values())
    if section == "kubelet":
        assert "max_pods" in named & known and named - known == {"maxPods"}
    else:
        assert named == known


def profiles() -> t.Iterator[dict[str, t.Any]]:
    for task in block("EXAMPLES"):
        asked = task["corral.node.profile"] or {}
        if "layers" in asked:
            yield compose.compose([compose.Layer(one["origin"], one["profile"]) for one in asked["layers"]]).data
        elif "profile" in asked:
            yield asked["profile"]


def test_each_example_is_a_profile() -> None:
    found = [profile.parse(one) for one in profiles()]
    assert len(found) == 3
    assert {"cpu", "memory", "pids", "gc", "workloads"} <= set().union(*profiles())
