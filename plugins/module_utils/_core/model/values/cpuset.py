# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# This module is private to the collection corral.node.
"""CPU lists as the kernel writes them and the kubelet reads them: ``0-3,8`` (cpuset(7), "List format").

A set of CPUs is a ``frozenset`` of logical CPU ids everywhere in Corral. parse() accepts exactly what k8s.io/utils/cpuset accepts (kubelet
1.36): no blanks, no strides (``0-15/2``), no open ranges.
"""

from __future__ import annotations

import re
import typing as t

CpuSet = frozenset[int]

EMPTY: CpuSet = frozenset()

# The limits of numbers and lists. Go parses into an int; the kubelet has no other bound. MAX_WIDTH is far above any machine
# (NR_CPUS_RANGE_END is 8192 on x86-64 in Linux 6.12), and a mistyped range up to MAX_WIDTH costs little memory.
MAX_INT64 = 2**63 - 1
MAX_WIDTH = 2**20

_NUMBER = re.compile(r"[+-]?[0-9]+", re.ASCII)


def parse(text: str) -> CpuSet:
    """The CPUs of a list such as ``0-3,8``; an empty set for an empty text.

    Raises ValueError with a message that quotes the wrong part.
    """
    if text == "":
        return EMPTY
    cpus: set[int] = set()
    width = 0
    for part in text.split(","):
        first, dash, last = part.partition("-")
        start = _number(first, part)
        end = _number(last, part) if dash else start
        if start > end:
            raise ValueError(f"range {part!r} runs backwards; write the lower CPU first")
        width += end - start + 1
        if width > MAX_WIDTH:
            raise ValueError(f"{part!r}: the list is wider than {MAX_WIDTH} CPUs; name CPUs that exist")
        cpus.update(range(start, end + 1))
    return frozenset(cpus)


def format(cpus: t.Iterable[int]) -> str:
    """The shortest list of these CPUs in ascending order, such as ``0-3,8``; an empty string for no CPUs."""
    parts: list[str] = []
    start = end = None
    for cpu in sorted(set(cpus)):
        if end is not None and cpu == end + 1:
            end = cpu
            continue
        if start is not None:
            parts.append(_range(start, end))
        start = end = cpu
    if start is not None:
        parts.append(_range(start, end))
    return ",".join(parts)


def _range(start: int, end: int | None) -> str:
    return str(start) if start == end else f"{start}-{end}"


def _number(text: str, part: str) -> int:
    """A CPU id as Go's strconv.Atoi reads a number: ASCII digits, a sign allowed, within int64."""
    where = "" if text == part else f" in {part!r}"
    if not _NUMBER.fullmatch(text):
        raise ValueError(f"{text!r}{where} is not a CPU number; write a list such as 0-3,8")
    # Python's int() refuses thousands of digits with another message.
    digits = text.lstrip("+-").lstrip("0") or "0"
    if len(digits) > 19 or int(digits) > MAX_INT64:
        raise ValueError(f"{text[:40]!r}{where if len(part) < 80 else ''} is too large for a CPU number")
    return -int(digits) if text[0] == "-" else int(digits)
