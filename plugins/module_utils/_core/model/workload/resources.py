# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# This module is private to the collection corral.node.
"""The resources that workloads can have, and their amounts: CPUs in thousandths, memory and hugepages in bytes, tasks, devices."""

from __future__ import annotations

from ..profile import schema_quantities
from ..values import sizes

CPU, MEMORY, PIDS, HUGEPAGES = "cpu", "memory", "pids", "hugepages-"

Amounts = tuple[tuple[str, int], ...]


def is_device(resource: str) -> bool:
    """Whether a resource is a device: its name contains a domain, like the extended resources of Kubernetes."""
    return "/" in resource


def hugepages(size_kib: int) -> str:
    """The name of the resource for a page size: 2048 → ``hugepages-2Mi``."""
    return f"{HUGEPAGES}{sizes.page_text(size_kib)}"


def page_bytes(resource: str) -> int:
    """The page size of a hugepage resource in bytes: ``hugepages-2Mi`` → 2097152."""
    return int(schema_quantities.PAGE_SIZE.read(resource[len(HUGEPAGES) :])) << 10


def amount_text(resource: str, amount: int) -> str:
    """An amount as a profile writes it, without rounding: ``1500m``, ``2``, ``512Mi``."""
    if resource == CPU:
        return f"{amount}m" if amount % 1000 else str(amount // 1000)
    return str(amount) if resource == PIDS or is_device(resource) else sizes.size_text(amount)


def about(resource: str, amount: int) -> str:
    """An amount for display, with bytes rounded down."""
    whole = resource in (CPU, PIDS) or is_device(resource)
    return amount_text(resource, amount) if whole else sizes.about_text(amount)


def shown(resource: str, amount: int) -> str:
    """An amount for display: bytes in Ki, Mi or Gi with at most two decimals, other amounts unchanged."""
    if resource != MEMORY and not resource.startswith(HUGEPAGES):
        return str(amount)
    for unit, size in (("Gi", 1 << 30), ("Mi", 1 << 20), ("Ki", 1 << 10)):
        if amount >= size:
            return f"{amount / size:.2f}".rstrip("0").rstrip(".") + unit
    return str(amount)
