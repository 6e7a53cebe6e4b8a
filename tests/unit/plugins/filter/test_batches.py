# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The sizes of batches in each form in which a variable can have them."""

from __future__ import annotations

import controller_plugins
import pytest

AnsibleFilterError = pytest.importorskip("ansible.errors").AnsibleFilterError
batches = controller_plugins.load("filter.batches").batches


@pytest.mark.parametrize(
    ("value", "sizes"),
    [
        ("1,10%,100%", ["1", "10%", "100%"]),
        (" 2 , 50% ", ["2", "50%"]),
        ([1, "10%", "100%"], ["1", "10%", "100%"]),
        ((3, 3), ["3", "3"]),
        (5, ["5"]),
        ("100%", ["100%"]),
        ("1\n", ["1"]),
    ],
)
def test_a_text_a_list_and_a_number_are_sizes(value: object, sizes: list[str]) -> None:
    assert batches(value) == sizes


@pytest.mark.parametrize(
    ("value", "part"),
    [
        ("", "''"), ("1,,2", "''"), ("0", "'0'"), (0, "'0'"), (-1, "'-1'"), ("0%", "'0%'"), ("101%", "'101%'"), ("1.5", "'1.5'"),
        (True, "'True'"), (None, "'None'"), ({"a": 1}, '"{\'a\': 1}"'), (["1", ["2"]], '"[\'2\']"'),
        ("9" * 7, f"'{'9' * 7}'"),
    ],
)  # fmt: skip
def test_what_is_no_size_is_refused_by_its_own_text(value: object, part: str) -> None:
    with pytest.raises(AnsibleFilterError) as error:
        batches(value)
    assert str(error.value) == f"corral_serial: {part}: write numbers of hosts or shares, such as 1,10%,100%"


def test_no_sizes_at_all_are_refused() -> None:
    with pytest.raises(AnsibleFilterError, match="corral_serial: is empty: write numbers"):
        batches([])
