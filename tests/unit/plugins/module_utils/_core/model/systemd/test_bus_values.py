# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What is sent to systemd is what systemctl would send; the rest is left to it."""

from __future__ import annotations

import pytest
from _core.model.systemd import bus_values

ALL = 2**64 - 1
PATH = "/org/freedesktop/systemd1"
UNIT = "corral_a\\x2db.slice"

SENT = [
    ("AllowedCPUs=0", "AllowedCPUs", b"\x01"),
    ("AllowedCPUs=7", "AllowedCPUs", b"\x80"),
    ("AllowedCPUs=8", "AllowedCPUs", b"\x00\x01"),
    ("AllowedCPUs=0-3,5,14-17", "AllowedCPUs", b"\x2f\xc0\x03"),
    ("AllowedCPUs=", "AllowedCPUs", b""),
    ("AllowedMemoryNodes=1", "AllowedMemoryNodes", b"\x02"),
    ("AllowedMemoryNodes=", "AllowedMemoryNodes", b""),
    ("TasksMax=4096", "TasksMax", 4096),
    ("TasksMax=infinity", "TasksMax", ALL),
    ("TasksMax=", "TasksMax", ALL),
    ("MemoryMax=67108864", "MemoryMax", 67108864),
    ("MemoryMax=", "MemoryMax", ALL),
    ("MemorySwapMax=0", "MemorySwapMax", 0),
    ("MemorySwapMax=infinity", "MemorySwapMax", ALL),
    ("CPUWeight=79", "CPUWeight", 79),
    ("CPUWeight=", "CPUWeight", ALL),
    ("CPUQuota=20%", "CPUQuotaPerSecUSec", 200000),
    ("CPUQuota=150%", "CPUQuotaPerSecUSec", 1500000),
    ("CPUQuota=12.5%", "CPUQuotaPerSecUSec", 125000),
    ("CPUQuota=0.05%", "CPUQuotaPerSecUSec", 500),
    ("CPUQuota=", "CPUQuotaPerSecUSec", ALL),
]  # fmt: skip


@pytest.mark.parametrize(("assignment", "name", "value"), SENT)
def test_an_assignment_has_the_value_that_systemctl_sends(assignment: str, name: str, value: int | bytes) -> None:
    assert bus_values.typed(assignment) == (name, "ay" if isinstance(value, bytes) else "t", value)


@pytest.mark.parametrize(
    "assignment",
    ["AllowedCPUs=3-1", "AllowedCPUs=0 1", "AllowedCPUs=0,", "AllowedCPUs=8192", "AllowedCPUs=+1", "TasksMax=10%",
     "MemoryMax=1M", "MemoryMax=-1", "MemoryMax=99999999999999999999", "CPUWeight=0", "CPUWeight=idle",
     "CPUWeight=10001", "CPUQuota=0%", "CPUQuota=100", "CPUQuota=1.234%", "CPUQuota=infinity", "OOMPolicy=kill",
     "TasksMax", "TasksMax=٣", ""],
)  # fmt: skip
def test_the_rest_is_left_to_systemctl(assignment: str) -> None:
    assert bus_values.typed(assignment) is None


def test_a_units_object_has_its_name_escaped() -> None:
    base = f"{PATH}/unit/"
    assert bus_values.object_path("ssh.service").decode() == f"{base}ssh_2eservice"
    assert bus_values.object_path("3a@x-\\x2d.slice").decode() == f"{base}_33a_40x_2d_5cx2d_2eslice"


@pytest.mark.parametrize(
    ("unit", "covered"),
    [(UNIT, True), ("batch@1.service", True), ("-.mount", True), ("ssh", False), ("a b.slice", False), ("a/b.mount", False),
     ("*.slice", False), ("ä.slice", False), ("", False), ("x" * 260 + ".slice", False)],
)  # fmt: skip
def test_a_name_that_systemctl_would_change_is_left_to_it(unit: str, covered: bool) -> None:
    assert bus_values.covers(unit) == covered
