# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Whatever is declared, parse gives a profile or a list of problems, never anything else."""

from __future__ import annotations

import json
import typing as t

from _core.model.profile import fit, profile, schema
from _core.model.values.errors import CorralError
from hypothesis import given
from hypothesis import strategies as st
from machines import machine
from test_profile import FULL

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


def places(data: object, path: tuple[t.Any, ...] = ()) -> list[tuple[t.Any, ...]]:
    """The path of every value in a profile."""
    items: t.Iterable[tuple[t.Any, t.Any]] = ()
    if isinstance(data, dict):
        items = data.items()
    elif isinstance(data, list):
        items = enumerate(data)
    return [path, *(found for name, value in items for found in places(value, (*path, name)))]


def replaced(data: t.Any, path: tuple[t.Any, ...], value: object) -> t.Any:
    if not path:
        return value
    copy = list(data) if isinstance(data, list) else dict(data)
    copy[path[0]] = replaced(copy[path[0]], path[1:], value)
    return copy


@given(st.lists(st.tuples(st.sampled_from(places(FULL)), anything), min_size=1, max_size=3))
def test_a_good_profile_with_something_else_in_it(changes: list[tuple[tuple[t.Any, ...], object]]) -> None:
    data: object = FULL
    for path, value in changes:
        try:
            data = replaced(data, path, value)
        except (KeyError, IndexError, TypeError, ValueError):  # an earlier change took this place away
            continue
    read = outcome(data)
    if read is not None:
        json.dumps(fit.check_node(read, machine()))
        fit.notes(read, machine())
