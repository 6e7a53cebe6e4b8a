# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import pytest
from _core.host import kernel_text
from _core.model.values import cpuset
from hypothesis import given
from hypothesis import strategies as st
from trees import mask

CPUS = st.frozensets(st.integers(0, 127))


@given(CPUS)
def test_mask_and_list_say_the_same(cpus: frozenset[int]) -> None:
    assert kernel_text.cpu_mask(f"{mask(cpus)}\n") == cpus
    assert kernel_text.cpu_list(f"{cpuset.format(cpus)}\n") == cpus


@pytest.mark.parametrize("text", ["", "\n", "(null)\n", "     (null)\n"])
def test_nothing_is_the_empty_set(text: str) -> None:
    assert kernel_text.cpu_list(text) == cpuset.EMPTY
    assert kernel_text.cpu_mask(text) == cpuset.EMPTY


@pytest.mark.parametrize("text", ["0-99999", "-1--0", "x", "1-", "65536", "0\0"])
def test_bad_lists(text: str) -> None:
    assert kernel_text.cpu_list(text) is None


BAD_MASKS = ["g", "0x3", "f,", "123456789", "f" * 8 + ",f" * 2048, "-1"]


@pytest.mark.parametrize("text", BAD_MASKS, ids=range(len(BAD_MASKS)))
def test_bad_masks(text: str) -> None:
    assert kernel_text.cpu_mask(text) is None


def test_numbered_names_are_plain_numbers_in_order() -> None:
    names = ["cpu10", "cpu2", "cpu02", "cpu", "cpuidle", "cpu²", "cpu999999999999"]
    assert list(kernel_text.numbered(names, "cpu")) == [2, 10]
    assert kernel_text.numbered(["hugepages-2048kB", "hugepages-kB"], "hugepages-", "kB") == {2048: "hugepages-2048kB"}


@pytest.mark.parametrize(
    ("text", "kib"),
    [("MemTotal:  2053992 kB\n", 2053992), ("\nNode 12 MemTotal: 0 kB\n", 0), ("MemFree: 1 kB", None), ("", None)],
)
def test_mem_total(text: str, kib: int | None) -> None:
    assert kernel_text.mem_total(text) == kib
