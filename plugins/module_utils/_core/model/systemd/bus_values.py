# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# This module is private to the collection corral.node.
"""D-Bus forms of "NAME=VALUE" and of a unit's name, as systemctl(1) sends them (systemd, src/shared/bus-unit-util.c)."""

from __future__ import annotations

import re
import typing as t

from ..values import cpuset
from ..values.records import NamedTuple

MANAGER_PATH = b"/org/freedesktop/systemd1"
UNLIMITED = 2**64 - 1
MAX_CPU = 8191  # NR_CPUS_RANGE_END on x86-64: systemctl refuses larger numbers.
LISTS = ("AllowedCPUs", "AllowedMemoryNodes")
LIMITS = ("MemoryMax", "MemorySwapMax", "TasksMax")
DECIMAL = re.compile(r"[0-9]{1,19}", re.ASCII)
LIST = re.compile(r"[0-9]{1,4}(-[0-9]{1,4})?(,[0-9]{1,4}(-[0-9]{1,4})?)*", re.ASCII)
PERCENT = re.compile(r"([0-9]{1,9})(?:\.([0-9]{1,2}))?%", re.ASCII)
# The characters that systemd.unit(5) allows in a name; systemctl would escape other characters.
UNIT = re.compile(r"[A-Za-z0-9:_.@\\-]+\.(slice|service|scope|mount|timer|path|socket|target)", re.ASCII)


Value = t.Union[int, bytes]


class Property(NamedTuple):
    """A property on D-Bus: its D-Bus name, the type of its value ("t": uint64, "ay": bytes), and the value."""

    name: str
    kind: str
    value: Value


def typed(assignment: str) -> t.Optional[Property]:
    """The property that ``systemctl set-property`` sends for an assignment; None for an assignment that only systemctl can convert."""
    name, equals, value = assignment.partition("=")
    if not equals:
        return None
    if name in LISTS and (not value or LIST.fullmatch(value)):
        return cpu_list(name, value)
    if name in LIMITS and (value in ("", "infinity") or DECIMAL.fullmatch(value)):
        return Property(name, "t", int(value) if value.isdecimal() else UNLIMITED)
    if name == "CPUWeight" and not value:
        return Property(name, "t", UNLIMITED)
    if name == "CPUWeight" and DECIMAL.fullmatch(value) and 1 <= int(value) <= 10000:
        return Property(name, "t", int(value))
    if name == "CPUQuota":
        return quota(value)
    return None


def cpu_list(name: str, value: str) -> t.Optional[Property]:
    """A CPU list as a bitmap: CPU n is bit n % 8 of byte n / 8. An empty bitmap resets the property. None for an invalid list."""
    try:
        members = cpuset.parse(value)
    except ValueError:
        return None
    if max(members, default=0) > MAX_CPU:
        return None
    bits = bytearray(max(members) // 8 + 1 if members else 0)
    for member in members:
        bits[member // 8] |= 1 << member % 8
    return Property(name, "ay", bytes(bits))


def quota(value: str) -> t.Optional[Property]:
    """CPUQuota= in microseconds of CPU time per second (20% are 200000); None for an invalid value."""
    match = PERCENT.fullmatch(value)
    hundredths = int(match[1]) * 100 + int((match[2] or "").ljust(2, "0")) if match else 0
    if value and not hundredths:
        return None
    return Property("CPUQuotaPerSecUSec", "t", hundredths * 100 if value else UNLIMITED)


def object_path(unit: str) -> bytes:
    """The object path of a unit: each character other than a letter or digit becomes ``_`` and its code, as does a leading digit."""
    escaped = "".join(
        chr(byte) if chr(byte).isalnum() and byte < 128 and (index or not chr(byte).isdigit()) else f"_{byte:02x}"
        for index, byte in enumerate(unit.encode())
    )
    return MANAGER_PATH + b"/unit/" + escaped.encode()


def covers(unit: str) -> bool:
    """Whether ``unit`` is a full name that systemctl sends unchanged: nothing has to be completed or escaped."""
    return len(unit) < 256 and UNIT.fullmatch(unit) is not None
