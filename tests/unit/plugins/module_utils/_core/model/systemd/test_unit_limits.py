# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Limits of a workload's slice: systemd's properties, and what the kernel's files show for them."""

from __future__ import annotations

import os

import pytest
from _core.model.profile.profile_workloads import Workload
from _core.model.systemd import bus_values, unit_limits
from _core.model.workload import resource_requirements
from _core.model.workload.resources import Amounts
from fake_systemd import kernel_text
from hypothesis import given
from hypothesis import strategies as st

MIB, GIB = 1 << 20, 1 << 30


def need(requests: dict[str, int], limits: dict[str, int]) -> resource_requirements.ResourceRequirements:
    def amounts(given: dict[str, int]) -> Amounts:
        return tuple(sorted(given.items()))

    return resource_requirements.of(
        Workload("a", "unit", "a.service", requests=amounts(requests), limits=amounts(limits)), "static", None
    )


BOTH = {"cpu": 2000, "memory": GIB}
HALF = {"cpu": 500, "memory": GIB}
NOTHING = {
    "CPUWeight": "1",
    "CPUQuota": "",
    "MemoryMax": "infinity",
    "MemorySwapMax": "infinity",
    "TasksMax": "infinity",
}
SHARES = 1 + (2048 - 2) * 9999 // (262144 - 2)  # of two CPUs


@pytest.mark.parametrize(
    ("requests", "limits", "exclusive", "mems", "wanted"),
    [
        (BOTH, BOTH, True, frozenset({1}),
         {"CPUWeight": str(SHARES), "MemoryMax": str(GIB), "MemorySwapMax": "0", "AllowedMemoryNodes": "1"}),
        (BOTH, BOTH, False, None, {"CPUWeight": str(SHARES), "CPUQuota": "200%", "MemoryMax": str(GIB), "MemorySwapMax": "0"}),
        (HALF, HALF, False, None, {"CPUWeight": "20", "CPUQuota": "50%", "MemoryMax": str(GIB), "MemorySwapMax": "0"}),
        ({"cpu": 2000}, {"cpu": 3333}, False, None, {"CPUWeight": str(SHARES), "CPUQuota": "333.30%"}),
        ({}, {"cpu": 1}, False, None, {"CPUQuota": "1%"}),  # the kernel takes no less than a millisecond
        ({"memory": GIB}, {}, False, None, {}),
        ({}, {"pids": 64}, False, None, {"TasksMax": "64"}),
        ({}, {}, False, frozenset({0, 2, 3}), {"AllowedMemoryNodes": "0,2-3"}),
    ],
)  # fmt: skip
def test_the_properties_of_a_workloads_slice(
    requests: dict[str, int],
    limits: dict[str, int],
    exclusive: bool,
    mems: frozenset[int] | None,
    wanted: dict[str, str],
) -> None:
    assert unit_limits.of(need(requests, limits), exclusive, mems) == {**NOTHING, **wanted}


@pytest.mark.parametrize(
    ("name", "value", "shown"),
    [
        ("CPUWeight", "79", "79"), ("CPUWeight", "", "100"),
        ("CPUQuota", "", "max"), ("CPUQuota", "150%", "150000 100000"), ("CPUQuota", "333.30%", "333300 100000"),
        ("CPUQuota", "1%", "1000 100000"),
        ("MemoryMax", "infinity", "max"), ("MemoryMax", "", "max"), ("MemoryMax", "8192", "8192"),
        ("MemoryMax", "8191", "4096"), ("MemorySwapMax", "0", "0"), ("TasksMax", "64", "64"), ("TasksMax", "infinity", "max"),
        ("AllowedMemoryNodes", "1,0", "0-1"), ("AllowedCPUs", "3 4 5".replace(" ", ","), "3-5"),
    ],
)  # fmt: skip
def test_what_the_kernel_shows_for_a_property(name: str, value: str, shown: str) -> None:
    assert unit_limits.kernel(name, value) == shown


@pytest.mark.parametrize(
    ("name", "one", "other", "same"),
    [
        ("CPUQuota", "max 100000", "max 50000", True),
        ("CPUQuota", "150000 100000", "75000 50000", True),
        ("CPUQuota", "150000 100000", "150000 50000", False),
        ("CPUQuota", "150000 100000", "max 100000", False),
        ("AllowedMemoryNodes", "0-1", "1,0", True),
        ("AllowedMemoryNodes", "", "0", False),
        ("MemoryMax", "8192", "8193", True),
        ("MemoryMax", "8192", "12288", False),
        ("TasksMax", "64", "64\n", True),
        ("CPUWeight", "1", "100", False),
    ],
)
def test_values_are_compared_by_meaning(name: str, one: str, other: str, same: bool) -> None:
    assert (unit_limits.meaning(name, one) == unit_limits.meaning(name, other)) is same


@pytest.mark.parametrize("name", ["CPUWeight", "CPUQuota", "MemoryMax", "MemorySwapMax", "TasksMax"])
def test_a_property_without_any_setting_goes_back_to_what_systemd_takes(name: str) -> None:
    assert bus_values.typed(f"{name}={unit_limits.property_value(name, 'max')}") is not None


@given(st.integers(1, 1 << 20), st.integers(0, 1 << 50))
def test_what_was_there_is_what_a_property_brings_back(milli: int, memory: int) -> None:
    """As the fake systemd, which is independent of it, makes kernel values of properties."""
    limits = unit_limits.of(need({}, {"cpu": milli, "memory": memory}), False, None)
    for name in ("CPUQuota", "MemoryMax"):
        shown = kernel_text(name, limits[name])
        assert unit_limits.meaning(name, shown) == unit_limits.kernel(name, limits[name])
        again = unit_limits.property_value(name, shown)
        assert kernel_text(name, again) == shown


@pytest.mark.parametrize(
    ("limits", "sizes", "wanted"),
    [
        ({"hugepages-2Mi": 4 * MIB}, [2048, 1 << 20], {"hugetlb.2MB.max": 4 * MIB, "hugetlb.1GB.max": 0}),
        ({"hugepages-1Gi": GIB}, [1 << 20], {"hugetlb.1GB.max": GIB}),
        ({"hugepages-64Ki": 65536}, [64], {"hugetlb.64KB.max": 65536}),
        ({"hugepages-2Mi": 4 * MIB}, [], {}),
        ({}, [2048], {"hugetlb.2MB.max": 0}),
    ],
)
def test_hugepages_that_a_workload_does_not_name_are_not_for_it(
    limits: dict[str, int], sizes: list[int], wanted: dict[str, int]
) -> None:
    assert unit_limits.hugetlb(need({}, limits), sizes) == wanted


@pytest.mark.parametrize("page", [4096, 16384, 65536])
@pytest.mark.parametrize("size", [100_000_000, 128 * MIB, 64 * MIB + 1])
def test_a_size_reads_back_in_the_machines_own_pages(size: int, page: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(unit_limits, "PAGE", page)
    shown = str(size // page * page)  # page_counter_memparse(): in whole pages
    assert unit_limits.meaning("MemoryMax", shown) == unit_limits.kernel("MemoryMax", str(size)) == shown


def test_the_page_is_this_machines() -> None:
    assert os.sysconf("SC_PAGE_SIZE") == unit_limits.PAGE
