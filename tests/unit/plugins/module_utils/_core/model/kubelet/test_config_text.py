# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A file of the kubelet's in which keys are changed: all else stays as it is, byte by byte."""

from __future__ import annotations

import typing as t

import pytest
import yaml
from _core.model.kubelet import config_text
from _core.model.kubelet.config_text import NotEditable
from hypothesis import given
from hypothesis import strategies as st

FILE = """\
# made by kubeadm
---
apiVersion: kubelet.config.k8s.io/v1beta1
authentication:
  # who may ask
  anonymous:
    enabled: false

# how many
maxPods: 110 # so many
"quoted": 'x'
enforceNodeAllocatable:
- pods

evictionHard:
  memory.available: 100Mi
  # disk
  nodefs.available: "10%"
text: |
  a

  b
kind: KubeletConfiguration
"""


def changed(text: str, **keys: t.Any) -> str:
    lines = {key: None if value is None else config_text.key_lines(key, value) for key, value in keys.items()}
    return config_text.changed(text, lines)


def test_a_key_that_is_there_is_replaced_in_its_place() -> None:
    found = changed(FILE, maxPods=50, evictionHard={"memory.available": "1Gi", "pid.available": "5%"})
    assert found == FILE.replace("maxPods: 110 # so many\n", "maxPods: 50\n").replace(
        '  memory.available: 100Mi\n  # disk\n  nodefs.available: "10%"\n', ""
    ).replace("evictionHard:\n", 'evictionHard: {memory.available: 1Gi, pid.available: "5%"}\n')


def test_a_list_at_the_margin_goes_as_a_whole_and_comments_before_the_next_key_stay() -> None:
    assert changed(FILE, enforceNodeAllocatable=None, authentication=None) == FILE.replace(
        "enforceNodeAllocatable:\n- pods\n", ""
    ).replace("authentication:\n  # who may ask\n  anonymous:\n    enabled: false\n", "")


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("kind: x\n", "kind: x\nmaxPods: 5\n"),
        ("kind: x", "kind: x\nmaxPods: 5\n"),
        ("kind: x\n# the end\n", "kind: x\n# the end\nmaxPods: 5\n"),
        ("---\nkind: x\n...\n", "---\nkind: x\nmaxPods: 5\n...\n"),
        ("", "maxPods: 5\n"),
        ("kind: x\r\n", "kind: x\r\nmaxPods: 5\n"),
    ],
)
def test_a_new_key_comes_last(before: str, after: str) -> None:
    assert changed(before, maxPods=5) == after


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ('{"maxPods": 5}', "line 1 begins no key"),
        ("- a\n", "line 1 begins no key"),
        ("a: 1\n? b\n", "line 2 begins no key"),
        ("a: 1\nb: 2\na: 3\n", "the key a is there twice"),
        ("a: {\nb: 1\n}\n", "line 3 begins no key"),
    ],
)
def test_what_is_no_block_mapping_is_not_edited(text: str, why: str) -> None:
    with pytest.raises(NotEditable, match=why):
        changed(text, maxPods=5)


def test_a_drop_in_names_its_kind_and_can_delete_keys() -> None:
    found = yaml.safe_load(config_text.drop_in({"maxPods": 5, "evictionHard": {"a": None, "b": "10%"}, "x": {}}))
    assert found == {
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "maxPods": 5,
        "evictionHard": {"a": None, "b": "10%"},
        "x": {},
    }


TEXTS = st.text("ab:#-'\"{}[]|>&*!%@ \n\té", max_size=8)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=6,
)
KEYS = st.sampled_from(["apiVersion", "maxPods", "featureGates", "evictionHard", "a.b", "c-d"])
CHANGES = st.dictionaries(
    KEYS,
    st.none() | st.integers() | st.dictionaries(st.sampled_from("xyz"), st.text("ab%1", max_size=3), max_size=3),
)


@given(
    data=st.dictionaries(KEYS, VALUES, max_size=5),
    changes=CHANGES,
    indented=st.booleans(),
    width=st.sampled_from([10, 80]),
)
def test_whatever_a_dumper_writes_the_changed_keys_differ_and_going_back_gives_the_same_text(
    data: dict[str, t.Any], changes: dict[str, t.Any], indented: bool, width: int
) -> None:
    text = yaml.safe_dump(data, default_flow_style=None if indented else False, width=width) if data else ""
    try:
        before = config_text.blocks_of(text, changes)
        found = changed(text, **changes)
    except NotEditable:
        return
    loaded = yaml.safe_load(found) or {}
    wanted = {**data, **changes}
    assert loaded == {key: value for key, value in wanted.items() if not (key in changes and value is None)}
    back = config_text.changed(found, before)
    assert yaml.safe_load(back or "{}") == (data or yaml.safe_load(back or "{}"))
    if all(key in data and changes[key] is not None for key in changes):
        assert back == text
