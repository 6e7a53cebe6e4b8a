# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# This module is private to the collection corral.node.
"""The values in a kubelet's configuration, read as in the kubelet: quantities, thresholds, durations, bools, CPU lists.

Two values with the same meaning are equal here even if their texts differ: a comparison by text would restart kubelets for nothing.
"""

from __future__ import annotations

import fractions
import re
import struct
import typing as t

from ..values import cpuset, quantity

TRUE, FALSE = ("1", "t", "T", "true", "TRUE", "True"), ("0", "f", "F", "false", "FALSE", "False")
_DURATION = re.compile(r"([0-9]+(?:\.[0-9]*)?|\.[0-9]+)(ns|us|µs|ms|s|m|h)")
_SECONDS = {
    "ns": (1, 10**9),
    "us": (1, 10**6),
    "µs": (1, 10**6),
    "ms": (1, 1000),
    "s": (1, 1),
    "m": (60, 1),
    "h": (3600, 1),
}

TIMES = ("cpuManagerReconcilePeriod", "imageMinimumGCAge", "imageMaximumGCAge", "evictionPressureTransitionPeriod")
QUANTITIES = ("containerLogMaxSize",)
OPTIONS = ("cpuManagerPolicyOptions", "topologyManagerPolicyOptions")


def seconds(value: object) -> t.Optional[fractions.Fraction]:
    """A duration as Go writes it (``1m30s``, or a bare 0) in seconds; None for any other value."""
    text = str(value).strip()
    if text == "0":
        return fractions.Fraction(0)
    found, rest = fractions.Fraction(0), text
    while rest:
        match = _DURATION.match(rest)
        if match is None:
            return None
        factor, divisor = _SECONDS[match.group(2)]
        found += fractions.Fraction(match.group(1)) * factor / divisor
        rest = rest[match.end() :]
    return found if text else None


def amount(value: object) -> t.Optional[quantity.Quantity]:
    """The quantity of a value; None for a value that is no quantity."""
    if value is None or isinstance(value, bool):
        return None
    try:
        return quantity.parse(value if isinstance(value, (int, float)) else str(value))
    except ValueError:
        return None


def units(value: object) -> int:
    """A quantity in whole units; 0 for any other value."""
    found = amount(value)
    return 0 if found is None else found.value()


def milli(value: object) -> int:
    """A quantity in thousandths; 0 for any other value."""
    found = amount(value)
    return 0 if found is None else found.milli()


def percent(value: object) -> t.Optional[fractions.Fraction]:
    """A share such as ``10%`` in percent; None for any other value."""
    text = str(value).strip()
    try:
        return fractions.Fraction(text[:-1]) if text.endswith("%") else None
    except ValueError:
        return None


def threshold(value: object, capacity: int) -> int:
    """An eviction threshold in units of its resource (``capacity``: all units of the resource), as the kubelet computes the threshold.

    The kubelet stores a share as a float32, and rounds the product with the capacity down: 10% of 64Gi are 102 bytes more than a tenth.
    reservedMemory must include these bytes (pkg/kubelet/eviction/helpers.go, parsePercentage; api/types.go, GetThresholdQuantity). 100% is
    no threshold.
    """
    share = percent(value)
    if share is None:
        return units(value)
    return int(float(capacity) * single(single(float(share)) / 100)) if 0 < share < 100 else 0


def single(value: float) -> float:
    """A number, rounded to a float32."""
    return float(struct.unpack("<f", struct.pack("<f", value))[0])


def is_on(value: object) -> bool:
    """Whether an option is on. ``value`` is a bool of YAML, or the text of a Go bool."""
    return str(value) in TRUE


def meaning(key: str, value: t.Any) -> t.Any:
    """The value of a top-level key in a form in which values with the same meaning are equal. An invalid value stays unchanged."""
    if isinstance(value, dict):
        kept = {name: one for name, one in value.items() if one is not None}
        found = {name: meaning_in(key, one) for name, one in kept.items()}
        return {name: one for name, one in found.items() if one is not None} or None
    if value in (None, "", []):
        return None
    if key == "reservedSystemCPUs":
        try:
            return cpuset.parse(str(value))
        except ValueError:
            return value
    if key in TIMES:
        found_seconds = seconds(value)
        return value if found_seconds is None else found_seconds
    if key in QUANTITIES:
        size = amount(value)
        return value if size is None else size.nano
    if key == "enforceNodeAllocatable" and isinstance(value, (list, tuple)):
        return frozenset(map(str, value))
    if key == "reservedMemory" and isinstance(value, (list, tuple)):
        return reserved_memory(value)
    return value


def meaning_in(key: str, value: t.Any) -> t.Any:
    """An entry's value in the map of ``key``, in the form of meaning(). An option that is off becomes None, like a missing option."""
    if key in OPTIONS:
        return None if str(value) in FALSE else True if str(value) in TRUE else str(value)
    if key == "evictionSoftGracePeriod":
        found = seconds(value)
        return value if found is None else found
    if key in ("evictionHard", "evictionSoft"):
        share = percent(value)
        if share is not None:
            return ("%", share)
    if key in ("evictionHard", "evictionSoft", "systemReserved", "kubeReserved", "evictionMinimumReclaim"):
        size = amount(value)
        return value if size is None else size.nano
    return value


def reserved_memory(rows: t.Sequence[t.Any]) -> t.Any:
    """The amounts of reservedMemory by NUMA node and kind; the unchanged rows if a row is invalid."""
    found: dict[int, dict[str, int]] = {}
    try:
        for row in rows:
            kinds = {kind: quantity.parse(str(size)).nano for kind, size in row["limits"].items()}
            found.setdefault(int(row["numaNode"]), {}).update(kinds)
    except (ValueError, LookupError, TypeError, AttributeError):
        return list(rows)
    return found
