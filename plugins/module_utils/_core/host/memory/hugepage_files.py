# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# This module is private to the collection corral.node.
"""Reading pools of hugepages (kernel: Documentation/admin-guide/mm/hugetlbpage.rst)."""

from __future__ import annotations

import re
import typing as t

from .. import kernel_text
from ..files import Host


def folder(size_kib: int, node: t.Optional[int]) -> str:
    """The folder of a pool: of a NUMA node, or of the whole machine if ``node`` is None."""
    if node is None:
        return f"/sys/kernel/mm/hugepages/hugepages-{size_kib}kB"
    return f"/sys/devices/system/node/node{node}/hugepages/hugepages-{size_kib}kB"


def pool_of(path: str) -> t.Optional[tuple[int, t.Optional[int]]]:
    """The page size and NUMA node of a pool's file; None for any other path."""
    match = re.fullmatch(
        r"/sys/(?:devices/system/node/node(\d+)|kernel/mm)/hugepages/hugepages-(\d+)kB/nr_hugepages", path
    )
    return (int(match.group(2)), int(match.group(1)) if match.group(1) else None) if match else None


def pool(host: Host, size_kib: int, node: t.Optional[int]) -> t.Optional[int]:
    """The pages of one pool; None if the pool's file is absent or has no number."""
    return number(host, f"{folder(size_kib, node)}/nr_hugepages")


def available(host: Host, size_kib: int) -> t.Optional[int]:
    """The pages of a size that a new mount can reserve: free, and not reserved by another mount."""
    place = folder(size_kib, None)
    free, promised = (number(host, f"{place}/{name}_hugepages") for name in ("free", "resv"))
    return None if free is None else max(free - (promised or 0), 0)


def default_kib(host: Host) -> t.Optional[int]:
    """The default size of huge pages, in KiB (Hugepagesize of proc_meminfo(5))."""
    fields = (host.lines("/proc/meminfo", "Hugepagesize:") or "").split()
    return kernel_text.count(fields[1]) if len(fields) > 1 else None


def number(host: Host, path: str) -> t.Optional[int]:
    """The number in a kernel file; None for an absent file, and for another text."""
    text = (host.read(path) or "").strip()
    return kernel_text.count(text)
