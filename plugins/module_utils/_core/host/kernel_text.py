# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# This module is private to the collection corral.node.
"""The text formats of kernel files. For a text in another format the functions return None, and never raise.

Formats: Documentation/admin-guide/cputopology.rst; bitmaps as lib/bitmap.c prints them (%*pb, %*pbl).
"""

from __future__ import annotations

import re

from ..model.values import cpuset
from ..model.values.cpuset import CpuSet

# The kernel's NR_CPUS is at most 8192 in any distribution: an id above this limit shows a broken file.
CPU_LIMIT = 2**16
_CHUNK_LIMIT = CPU_LIMIT // 32

_MASK = re.compile(r"[0-9a-f]{1,8}(?:,[0-9a-f]{1,8})*", re.ASCII | re.IGNORECASE)
_INTEGER = re.compile(r"-?[0-9]{1,18}", re.ASCII)
_MEM_TOTAL = re.compile(r"^(?:Node\s+[0-9]+\s+)?MemTotal:\s*([0-9]{1,18})\s*kB", re.ASCII | re.MULTILINE)

# The kernel's texts for an empty list: kernel versions, printk and sysfs use different texts.
_NOTHING = ("", "(null)")


def cpu_list(text: str) -> CpuSet | None:
    """The CPUs of a list such as ``0-3,8``, also with blanks around; an empty text and ``(null)`` give the empty set."""
    text = text.strip()
    if text in _NOTHING:
        return cpuset.EMPTY
    try:
        cpus = cpuset.parse(text)
    except ValueError:
        return None
    return cpus if min(cpus) >= 0 and max(cpus) < CPU_LIMIT else None


def cpu_mask(text: str) -> CpuSet | None:
    """The CPUs of a mask such as ``00000000,000000ff``: groups of 32 bits in hexadecimal, the highest first."""
    text = text.strip()
    if text in _NOTHING:
        return cpuset.EMPTY
    chunks = text.split(",", _CHUNK_LIMIT)
    if len(chunks) > _CHUNK_LIMIT or not _MASK.fullmatch(text):
        return None
    cpus: list[int] = []
    # The loop takes group by group: most masks of a large machine have a few CPUs among many zeros.
    for index, chunk in enumerate(reversed(chunks)):
        bits = int(chunk, 16)
        while bits:
            low = bits & -bits
            cpus.append(32 * index + low.bit_length() - 1)
            bits ^= low
    return frozenset(cpus)


def integer(text: str) -> int | None:
    """A decimal integer, possibly negative."""
    text = text.strip()
    return int(text) if _INTEGER.fullmatch(text) else None


def count(text: str) -> int | None:
    """A decimal integer that is not negative."""
    number = integer(text)
    return None if number is None or number < 0 else number


def counts(text: str) -> tuple[int, ...] | None:
    """The counts in a text, separated by blanks, such as a row of node distances."""
    numbers = [count(word) for word in text.split()]
    return tuple(number for number in numbers if number is not None) if None not in numbers else None


def mem_total(text: str) -> int | None:
    """MemTotal in KiB of /proc/meminfo or of a node's meminfo."""
    match = _MEM_TOTAL.search(text)
    return int(match.group(1)) if match else None


def numbered(names: list[str], prefix: str, suffix: str = "") -> dict[int, str]:
    """The names ``PREFIXnSUFFIX`` by the number n, ascending; other names, and numbers with leading zeros, are left out."""
    names_by_number: dict[int, str] = {}
    for name in names:
        digits = name[len(prefix) : len(name) - len(suffix)]
        if name == f"{prefix}{digits}{suffix}" and digits.isdecimal() and digits.isascii() and len(digits) < 12:
            number = int(digits)
            if str(number) == digits:
                names_by_number[number] = name
    return dict(sorted(names_by_number.items()))
