# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The core's NamedTuple is at run time what typing's would be."""

from __future__ import annotations

import copy
import typing as t

import pytest
from _core.model.values import records


def both(base: t.Any) -> t.Any:
    class Share(base):  # type: ignore[misc]
        """A share of a resource."""

        name: str
        cpus: frozenset[int] = frozenset()
        note: t.Optional[str] = None

        @property
        def count(self) -> int:
            return len(self.cpus)

        @classmethod
        def none(cls) -> t.Any:
            return cls("none")

        def __str__(self) -> str:
            return f"{self.name}: {self.count}"

    return Share


@pytest.fixture(params=[records.NamedTuple, t.NamedTuple], ids=["core", "typing"])
def share(request: pytest.FixtureRequest) -> t.Any:
    return both(request.param)


def test_fields_defaults_and_methods(share: t.Any) -> None:
    one = share("a", frozenset({1, 2}))
    assert one == ("a", frozenset({1, 2}), None) == share(name="a", cpus=frozenset({2, 1}))
    assert (one.count, str(one), repr(share.none())) == (2, "a: 2", "Share(name='none', cpus=frozenset(), note=None)")
    assert one._replace(note="x")._asdict() == {"name": "a", "cpus": frozenset({1, 2}), "note": "x"}
    assert (share._fields, share._field_defaults) == (("name", "cpus", "note"), {"cpus": frozenset(), "note": None})
    assert copy.copy(one) == one
    assert share.__doc__ == "A share of a resource."
    assert share.__module__ == __name__


@pytest.mark.parametrize("base", [records.NamedTuple, t.NamedTuple], ids=["core", "typing"])
def test_a_field_without_a_default_does_not_follow_one_with_a_default(base: t.Any) -> None:
    with pytest.raises(TypeError):
        type(base)("Share", (base,), {"__annotations__": {"name": str, "count": int}, "__module__": "x", "name": ""})


def test_what_is_wrong_is_refused(share: t.Any) -> None:
    with pytest.raises(TypeError):
        share()
    with pytest.raises(TypeError):
        share("a", cpu=1)
    with pytest.raises(AttributeError):
        share("a").name = "b"
