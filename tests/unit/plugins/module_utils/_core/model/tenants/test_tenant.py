# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which tenant a workload has, and which patterns cannot stand in two tenants."""

from __future__ import annotations

import fnmatch
import itertools

import pytest
from _core.model.tenants import tenant
from _core.model.tenants.tenant import Members, Tenant
from hypothesis import given
from hypothesis import strategies as st

# All texts of a small alphabet, long enough to tell short patterns apart: the longest text that two patterns of four
# characters need has fewer characters than both together.
TEXTS = ["".join(text) for length in range(8) for text in itertools.product("ab", repeat=length)]
globs = st.text("ab*?", min_size=1, max_size=4)


@given(globs, globs)
def test_two_patterns_meet_where_a_text_fits_both(first: str, second: str) -> None:
    both = any(fnmatch.fnmatchcase(text, first) and fnmatch.fnmatchcase(text, second) for text in TEXTS)
    assert tenant.globs_meet(first, second) == both
    assert tenant.globs_meet(second, first) == both


@given(globs, globs)
def test_a_covered_pattern_matches_nothing_else(own: str, pattern: str) -> None:
    if tenant.covers("units", own, pattern):
        assert all(fnmatch.fnmatchcase(text, own) for text in TEXTS if fnmatch.fnmatchcase(text, pattern))


@pytest.mark.parametrize(
    ("key", "first", "second", "meet"),
    [
        ("units", "web@*.service", "web@a*.service", True),
        ("units", "web.service", "web.service", True),
        ("units", "web-*.service", "db-*.service", False),
        ("labels", "tenant", "tenant=acme", True),
        ("labels", "tenant=a", "tenant=ab", False),
        ("slices", "acme.slice", "acme-web.slice", True),
        ("slices", "acme.slice", "acmeweb.slice", False),
        ("users", "acme", "acme", True),
        ("users", "acme", "globex", False),
    ],
)
def test_what_two_tenants_cannot_both_have(key: str, first: str, second: str, meet: bool) -> None:
    assert tenant.meets(key, first, second) == meet
    assert tenant.meets(key, second, first) == meet


@pytest.mark.parametrize(
    ("match", "pattern", "found"),
    [
        ("unit", "web-1.service", "units"),
        ("unit", "web-@*.service", "units"),
        ("unit", "web-1.timer", None),  # only services have resources
        ("container", "web-1", None),
        ("pod", "shop", "pods"),
        ("label", "tenant=acme", "labels"),
        ("label", "tenant", None),  # any value of it, and the tenant has one
    ],
)
def test_a_workload_belongs_by_its_match(match: str, pattern: str, found: str | None) -> None:
    tenants = [
        Tenant("units", Members(units=("web-*.*",))),
        Tenant("pods", Members(pods=("sh?p",))),
        Tenant("labels", Members(labels=("tenant=acme",))),
    ]
    assert tenant.declared_tenant(tenants, match, pattern) == found


def test_a_unit_belongs_by_its_settings_and_may_be_claimed_twice() -> None:
    tenants = [Tenant("one", Members(slices=("acme.slice",))), Tenant("two", Members(users=("web",)))]
    assert tenant.tenants_of_unit(tenants, "acme-web.slice", "") == ["one"]
    assert tenant.tenants_of_unit(tenants, "system.slice", "web") == ["two"]
    assert tenant.tenants_of_unit(tenants, "acme.slice", "web") == ["one", "two"]
    assert tenant.tenants_of_unit(tenants, "", "") == []


def test_a_tenant_is_found_by_its_name() -> None:
    tenants = [Tenant("one", Members()), Tenant("two", Members())]
    assert [tenant.named(tenants, name) for name in ("one", "two", "")] == [*tenants, None]
