# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import contextlib
import typing as t
from fractions import Fraction

import pytest
from _core.model.values import quantity
from hypothesis import given
from hypothesis import strategies as st
from shared_data import cases


@pytest.mark.parametrize("case", cases("quantity.json"))
def test_kubelet_case(case: dict[str, t.Any]) -> None:
    if "error" in case:
        with pytest.raises(ValueError, match=r".+"):
            quantity.parse(case["in"])
        return
    parsed = quantity.parse(case["in"])
    exact = Fraction(case["dec"])
    assert str(parsed) == case["canonical"]
    assert parsed.form == case["format"]
    assert Fraction(parsed.nano, quantity.NANO) == exact
    assert (parsed.nano > 0) - (parsed.nano < 0) == case["sign"]
    # Go wraps what does not fit an int64; Corral keeps the number.
    if abs(exact) <= quantity.MAX_INT64:
        assert parsed.value() == case["value"]
    if not case.get("milli_overflow"):
        assert parsed.milli() == case["milli_value"]


SUFFIXES = ["", *"numkMGTPE", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei", "e3", "E-2", "e+7"]
AMOUNTS = st.builds(
    "{}{}{}{}".format,
    st.sampled_from(["", "-", "+"]),
    st.integers(0, 10**21),
    st.sampled_from(["", ".", ".5", ".000", ".125", ".0000000001"]),
    st.sampled_from(SUFFIXES),
)


@given(AMOUNTS)
def test_canonical_text_is_the_same_amount(text: str) -> None:
    parsed = quantity.parse(text)
    again = quantity.parse(str(parsed))
    assert again.nano == parsed.nano
    assert abs(parsed.value()) * quantity.NANO >= abs(parsed.nano)
    assert parsed.is_whole() == (parsed.value() * 1000 == parsed.milli() and parsed.nano % 10**6 == 0)


@given(st.text(alphabet="0123456789.+-eEinumkKMGTP ²", max_size=12))
def test_any_text_is_an_amount_or_a_value_error(text: str) -> None:
    with contextlib.suppress(ValueError):
        quantity.parse(text)


ABSURD = ["1e999999999", "1e99999999999999999999", "9" * 5000, "1e" + "9" * 200, 10**5000, float("nan"), True, None]


@pytest.mark.parametrize("text", ABSURD, ids=range(len(ABSURD)))
def test_absurd_input_is_refused_at_once(text: t.Any) -> None:
    with pytest.raises(ValueError, match=r".+"):
        quantity.parse(text)


@pytest.mark.parametrize(
    ("given_value", "text", "milli"),
    [
        (2, "2", 2000),
        (0.5, "500m", 500),
        (-1, "-1", -1000),
        ("1000E", "1000E", 10**24),
        ("1e-2147483648", "1e-9", 1),
        ("", None, None),
        ("Pi", None, None),
    ],
)
def test_numbers_and_edges(given_value: t.Any, text: str | None, milli: int | None) -> None:
    if text is None:
        with pytest.raises(ValueError, match=r".+"):
            quantity.parse(given_value)
    else:
        parsed = quantity.parse(given_value)
        assert (str(parsed), parsed.milli()) == (text, milli)
