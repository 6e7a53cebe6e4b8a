# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The names of grants in Corral's CDI spec."""

from __future__ import annotations

import itertools

import pytest
from _core.model.devices import cdi_spec, device_delivery


@pytest.mark.parametrize(
    ("workload", "container", "name"),
    [
        ("web", "", "web"),
        ("web", "app", "web:app"),
        ("batch:batch@a", "", "batch:batch_40a"),
        ("batch:my_unit", "", "batch:my_unit"),
        ("batch:batch_40a", "", "batch:batch_5f40a"),
        ("batch:batch@a\\x2db", "", "batch:batch_40a_5cx2db"),
        ("batch:batch@a-", "", "batch:batch_40a_2d"),
    ],
)
def test_names_of_devices(workload: str, container: str, name: str) -> None:
    assert device_delivery.cdi_name(workload, container) == name


def test_no_two_workloads_have_one_name() -> None:
    """All unit names of some characters, up to a length."""
    words = ["w:" + "".join(word) for size in range(1, 6) for word in itertools.product("@_40a-", repeat=size)]
    names = [device_delivery.cdi_name(word) for word in words]
    assert all(cdi_spec.NAME.fullmatch(name) for name in names)
    assert len(set(names)) == len(words)
