# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A profile's file: what is read is what is written there, and nothing is swallowed."""

from __future__ import annotations

import json
import os
import typing as t
from pathlib import Path

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


@pytest.mark.parametrize(
    "text", ["[" * 500 + "]" * 500, "".join(f"{' ' * depth}a:\n" for depth in range(500)), "- " * 500 + "a"]
)
def test_too_deep_a_file_says_how_deep_it_may_be(text: str) -> None:
    with pytest.raises(CorralError, match=r"deep\.yml: is nested more than 100 levels deep"):
        profile_file.load(text, "deep.yml")


def test_what_is_read_is_a_regular_file_or_what_the_shell_has_opened(tmp_path: Path) -> None:
    """open(2) of a FIFO waits for its writer for ever, and that of a device may do something."""
    os.mkfifo(tmp_path / "fifo")
    for path in (str(tmp_path / "fifo"), "/dev/zero"):
        with pytest.raises(CorralError, match="cannot be read: not a regular file"):
            profile_file.read(path)
    end, begin = os.pipe()
    os.write(begin, b"name: x\r\n")
    os.close(begin)
    assert profile_file.read(f"/dev/fd/{end}") == "name: x\n"
    os.close(end)


def test_the_bound_of_a_file_is_in_bytes(tmp_path: Path) -> None:
    (tmp_path / "x.yml").write_text("\u00e4" * (2 << 20) + "a", encoding="utf-8")
    with pytest.raises(CorralError, match="more than 4194304 bytes"):
        profile_file.read(str(tmp_path / "x.yml"))
