# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import typing as t

import pytest
from _core.model.values import cpuset
from hypothesis import given
from hypothesis import strategies as st
from shared_data import cases


@pytest.mark.parametrize("case", cases("cpuset.json"))
def test_kubelet_case(case: dict[str, t.Any]) -> None:
    if case["op"] == "format":
        assert cpuset.format(case["in"]) == case["format"]
    elif case["op"] == "setops":
        a, b = cpuset.parse(case["a"]), cpuset.parse(case["b"])
        assert cpuset.format(a | b) == case["union"]
        assert cpuset.format(a & b) == case["intersection"]
        assert cpuset.format(a - b) == case["difference"]
        assert (a == b, a <= b, len(a)) == (case["equals"], case["a_subset_of_b"], case["size_a"])
    elif "error" in case:
        with pytest.raises(ValueError, match=r".+"):
            cpuset.parse(case["in"])
    else:
        cpus = cpuset.parse(case["in"])
        assert sorted(cpus) == case["list"]
        assert cpuset.format(cpus) == case["format"]


@given(st.frozensets(st.integers(0, 5000)))
def test_round_trip(cpus: frozenset[int]) -> None:
    assert cpuset.parse(cpuset.format(cpus)) == cpus


@given(st.text(alphabet="0123456789-+, \n:/a²٣", max_size=30))
def test_any_text_is_a_set_or_a_value_error(text: str) -> None:
    try:
        cpus = cpuset.parse(text)
    except ValueError as error:
        assert "\n" not in str(error)
    else:
        assert cpuset.parse(cpuset.format(cpus)) == cpus or min(cpus) < 0


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("0-3,1x", "'1x'"),
        ("0\n", "'0\\n'"),
        ("5-4", "'5-4'"),
        ("0-99999999999", "wider than"),
        ("9" * 5000, "too large"),
        ("²", "'²'"),
        ("1_0", "'1_0'"),
    ],
)
def test_error_quotes_what_is_wrong(text: str, part: str) -> None:
    with pytest.raises(ValueError, match=r".+") as caught:
        cpuset.parse(text)
    assert part in str(caught.value)
    assert len(str(caught.value)) < 200


def test_sign_is_read_as_go_reads_it() -> None:
    assert cpuset.parse("+1-+3") == {1, 2, 3}
