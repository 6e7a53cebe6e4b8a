# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# This module is private to the collection corral.node.
"""Limits of units: systemd's properties (systemd.resource-control(5)), and the kernel's file for each property (cgroup-v2.rst).

A property has its value as in a unit file. kernel() returns what the kernel's file shows for this value, in a form that is the same for
equal values: sets as sorted lists, sizes in whole pages.
"""

from __future__ import annotations

import mmap
import typing as t

from ..values import cpuset
from ..values.sizes import page_text
from ..workload import qos
from ..workload.resource_requirements import ResourceRequirements
from ..workload.resources import CPU, MEMORY, PIDS, hugepages

# The kernel's file of each property.
FILES = {
    "AllowedCPUs": "cpuset.cpus",
    "AllowedMemoryNodes": "cpuset.mems",
    "CPUWeight": "cpu.weight",
    "CPUQuota": "cpu.max",
    "MemoryMax": "memory.max",
    "MemorySwapMax": "memory.swap.max",
    "TasksMax": "pids.max",
}
PAGE = mmap.PAGESIZE  # 4 KiB, on some machines 16 or 64 KiB: the kernel counts whole pages
PERIOD = qos.QUOTA_PERIOD
UNLIMITED = "infinity"
DEFAULT_WEIGHT = "100"


def of(need: ResourceRequirements, exclusive: bool, mems: t.Optional[frozenset[int]]) -> dict[str, str]:
    """The properties of a workload's slice, derived as the kubelet derives a pod's cgroup.

    A workload with exclusive CPUs has no CPU quota (kubernetes#70585), and like a Guaranteed workload no swap.
    """
    requests, limits = dict(need.requests), dict(need.limits)
    quota = None if exclusive else qos.cpu_quota(limits.get(CPU, 0), PERIOD)
    properties = {
        "CPUWeight": str(qos.cpu_weight(qos.cpu_shares(requests.get(CPU, 0)))),
        "CPUQuota": "" if quota is None else percent(quota, PERIOD),
        "MemoryMax": str(limits[MEMORY]) if MEMORY in limits else UNLIMITED,
        "MemorySwapMax": "0" if exclusive or need.qos == qos.GUARANTEED else UNLIMITED,
        "TasksMax": str(limits[PIDS]) if PIDS in limits else UNLIMITED,
    }
    if mems:
        properties["AllowedMemoryNodes"] = cpuset.format(mems)
    return properties


def percent(quota: int, period: int) -> str:
    """The value of CPUQuota=, to a hundredth of a percent: 150000 of 100000 µs are 150%."""
    hundredths = quota * 10000 // period
    return f"{hundredths // 100}%" if hundredths % 100 == 0 else f"{hundredths / 100:.2f}%"


def hugetlb(need: ResourceRequirements, sizes: t.Iterable[int]) -> dict[str, int]:
    """The bytes of hugepages that a workload may have, by the name of the kernel's file; 0 for page sizes without a limit.

    ``sizes``, in KiB, are the page sizes of the node's pools (kubelet 1.36, HugePageLimits of a pod's cgroup).
    """
    limits = dict(need.limits)
    return {f"hugetlb.{page_name(size)}B.max": limits.get(hugepages(size), 0) for size in sorted(sizes)}


def page_name(size_kib: int) -> str:
    """A page size in KiB as the hugetlb controller names it, without the B: 2048 → ``2M``."""
    return page_text(size_kib)[:-1]


def meaning(name: str, text: str) -> str:
    """The text of a kernel file in a form that is the same for equal values; ``name`` is the property."""
    text = " ".join(text.split())
    if name in ("AllowedCPUs", "AllowedMemoryNodes"):
        try:
            return cpuset.format(cpuset.parse(text))
        except ValueError:
            return text
    if name in ("MemoryMax", "MemorySwapMax") and text.isdecimal():
        return str(int(text) // PAGE * PAGE)
    if name == "CPUQuota":
        quota, dummy, period = text.partition(" ")
        return (
            "max"
            if quota == "max"
            else f"{int(quota) * PERIOD // int(period)} {PERIOD}"
            if period.isdecimal()
            else text
        )
    return text


def kernel(name: str, value: str) -> str:
    """The value that the kernel's file shows if the property has this value."""
    if name == "CPUQuota":
        if not value:
            return "max"
        hundredths = round(float(value[:-1]) * 100)
        return f"{max(hundredths * PERIOD // 10000, qos.MIN_QUOTA_PERIOD)} {PERIOD}"
    if name == "CPUWeight":
        return value or DEFAULT_WEIGHT
    if name in ("AllowedCPUs", "AllowedMemoryNodes"):
        return meaning(name, value)
    return meaning(name, "max" if value in ("", UNLIMITED) else value)


def property_value(name: str, shown: str) -> str:
    """The value of a property for which the kernel's file shows this text; "max" becomes the property's default."""
    if name == "CPUQuota":
        quota, dummy, period = shown.partition(" ")
        return "" if quota == "max" else percent(int(quota), int(period or PERIOD))
    if shown == "max":
        return "" if name == "CPUWeight" else UNLIMITED  # systemd does not accept an infinite weight
    return shown
