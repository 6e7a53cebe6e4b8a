# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A profile's file: what is read is what is written there, and nothing is swallowed."""

from __future__ import annotations

import json
import typing as t

import pytest
from _core.cli import profile_file
from _core.model.values.errors import CorralError
from hypothesis import given
from hypothesis import strategies as st

plain = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=10,
)


@given(plain)
def test_json_is_read_as_it_is(data: t.Any) -> None:
    assert profile_file.load(json.dumps(data), "file") == data


MERGED = """
common: &common {mode: audit, pids: &pids {reserved: 1, pid_max: 400}}
outer: {inner: &inner {<<: *common, mode: enforce}}
last: {<<: *inner, pids: {<<: *pids, reserved: 2}}
"""


def test_a_merge_key_does_not_make_a_key_stand_twice() -> None:
    data = profile_file.load(MERGED, "file")
    assert data["last"] == {"mode": "enforce", "pids": {"reserved": 2, "pid_max": 400}}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('{"a": {"b": 1, "c": 2, "b": 3}}', "file: the key b is in one mapping twice: leave one out"),
        ("a:\n  - b: 1\n    c: 2\n    b: 3", "file: line 4: the key b is in one mapping twice: leave one out"),
        ("a: &a {b: 1, 'b': 2}", "file: line 1: the key b is in one mapping twice"),
        ("? {b: 1, b: 2}\n: 3", "file: line 1: the key b is in one mapping twice"),
        (
            "a: 1\n---\na: 2",
            "file: is not YAML: line 2, column 1: expected a single document in the stream of line 1, but found another",
        ),
        (
            "{a: [}",
            "file: is not YAML: line 1, column 6: while parsing a flow node, expected the node content",
        ),
        ("a: 1\n\tb: 2", "file: is not YAML: line 2, column 1: while scanning for the next token, found character"),
        ("a: b: c", "file: is not YAML: line 1, column 5: mapping values are not allowed here"),
        ("a: \0", "file: is not YAML: unacceptable character #x0000"),
        ('a: !!int ""', "file: is not YAML: a value is not what its tag"),
        ("a: !!bool maybe", "file: is not YAML: a value is not what its tag"),
        ("a: !!timestamp soon", "file: is not YAML: a value is not what its tag"),
    ],
)
def test_what_cannot_be_meant_is_refused(text: str, said: str) -> None:
    with pytest.raises(CorralError) as refused:
        profile_file.load(text, "file")
    assert str(refused.value).startswith(said)


@pytest.mark.parametrize("text", ["1: a\n'1': b", "a: &x {b: 1}\nc: *x"])
def test_what_differs_is_not_refused(text: str) -> None:
    assert profile_file.load(text, "file")
