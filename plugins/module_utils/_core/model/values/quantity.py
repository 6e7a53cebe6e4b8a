# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# This module is private to the collection corral.node.
"""Kubernetes quantities: ``500m``, ``1.5Gi``, ``2e3`` (resource.ParseQuantity of k8s.io/apimachinery 1.36).

Two results of the Go code lose the number and are not copied: values beyond int64 stay exact here (Go's Value() and MilliValue() overflow),
and a decimal above 999E keeps its suffix (Go prints ``1`` for ``1000E``).
"""

from __future__ import annotations

import re

from .records import NamedTuple

DECIMAL_SI = "DecimalSI"
DECIMAL_EXPONENT = "DecimalExponent"
BINARY_SI = "BinarySI"

NANO = 10**9
MAX_INT64 = 2**63 - 1

# Bounds on the time and memory for a text; Go has no such bounds.
MAX_LENGTH = 256
MAX_EXPONENT = 512

# The parts that the Go scanner finds before the scanner checks the suffix: digits are optional on both sides of the point.
_SPLIT = re.compile(r"([+-]?)([0-9]*)(\.[0-9]*)?([eEinumkKMGTP]*[-+]?[0-9]*)", re.ASCII)
_EXPONENT = re.compile(r"[eE]([+-]?[0-9]+)", re.ASCII)
_DECIMAL = {"n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
_DECIMAL_SUFFIX = {exponent: suffix for suffix, exponent in _DECIMAL.items()}
_BINARY = {"Ki": 10, "Mi": 20, "Gi": 30, "Ti": 40, "Pi": 50, "Ei": 60}
_BINARY_SUFFIX = ("", *_BINARY)
_SUFFIXES = " ".join(filter(None, [*_DECIMAL, *_BINARY]))

# Go's fast path reads up to this number of decimal digits into an int64; only the fast path keeps the original text.
_FAST_DIGITS = 18


class Quantity(NamedTuple):
    """An exact amount. Compare ``nano``: ``1``, ``1000m`` and ``1e0`` are the same amount, written differently.

    ``nano`` is the amount in units of 10^-9 (smaller parts are rounded away from zero); ``form`` is DecimalSI, DecimalExponent or BinarySI;
    ``text`` is what Kubernetes prints for the quantity.
    """

    nano: int
    form: str
    text: str

    def value(self) -> int:
        """The amount in whole units, a fraction rounded away from zero (``1500m`` is 2)."""
        return _round_away(self.nano, NANO)

    def milli(self) -> int:
        """The amount in thousandths, a fraction rounded away from zero."""
        return _round_away(self.nano, NANO // 1000)

    def is_whole(self) -> bool:
        """Whether the amount is a whole number of units, as exclusive CPUs must be in the kubelet."""
        return self.nano % NANO == 0

    def __str__(self) -> str:
        return self.text


def parse(text: str | int | float) -> Quantity:
    """The quantity of a text such as ``1.5Gi``, or of a number from YAML or JSON.

    Raises ValueError with a message that quotes the text and says what to write.
    """
    if isinstance(text, bool) or not isinstance(text, (str, int, float)):
        raise ValueError(f"{text!r} is not a quantity; write a number such as 2, 500m or 1Gi")
    if not isinstance(text, str):
        text = _from_number(text)
    if len(text) > MAX_LENGTH:
        raise ValueError(f"{text[:40]!r}… is too long for a quantity (at most {MAX_LENGTH} characters)")
    match = _SPLIT.fullmatch(text)
    if match is None or text == "":
        raise ValueError(f"{text!r} is not a quantity; write a number such as 2, 500m or 1Gi")
    sign, whole, point, suffix = match.groups()
    number = _Number(text, sign == "-", whole.lstrip("0") or "0", (point or ".")[1:], bool(whole or (point or "")[1:]))
    if suffix in _BINARY:
        return _binary(number, _BINARY[suffix])
    if suffix in _DECIMAL:
        return _decimal(number, _DECIMAL[suffix], DECIMAL_SI)
    return _decimal(number, _exponent(suffix, text), DECIMAL_EXPONENT)


class _Number(NamedTuple):
    text: str
    negative: bool
    whole: str  # without leading zeros; "0" without any digit
    fraction: str
    has_digits: bool


def _from_number(number: int | float) -> str:
    # str() of an int with thousands of digits is slow, or fails in newer versions of Python.
    if isinstance(number, int) and number.bit_length() > 4 * MAX_LENGTH:
        raise ValueError(f"a number of {number.bit_length()} bits is too large for a quantity")
    return repr(number)


def _exponent(suffix: str, text: str) -> int:
    match = _EXPONENT.fullmatch(suffix)
    if match is None:
        raise ValueError(f"{text!r}: unknown suffix {suffix!r}; known are {_SUFFIXES} and e followed by a number")
    exponent = int(match.group(1))
    if exponent > MAX_EXPONENT or exponent < -(2**31):
        raise ValueError(f"{text!r}: the exponent is out of range; at most {MAX_EXPONENT}")
    return exponent


def _decimal(number: _Number, exponent: int, form: str) -> Quantity:
    digits = number.whole + number.fraction
    scale = exponent - len(number.fraction)
    nano = _scaled(int(digits), scale + 9)
    canonical = scale >= -9 and scale % 3 == 0 and digits[0] != "0" and not digits.endswith("000")
    if canonical and len(digits) <= _FAST_DIGITS:
        return Quantity(-nano if number.negative else nano, form, number.text)
    return _quantity(number, nano, form, form)


def _binary(number: _Number, exponent: int) -> Quantity:
    if not number.fraction and len(number.whole) <= 14 - exponent * 3 // 10:
        count = int(number.whole)
        nano = (count << exponent) * NANO
        if count & 7:
            return Quantity(-nano if number.negative else nano, BINARY_SI, number.text)
        return _quantity(number, nano, BINARY_SI, BINARY_SI)
    if not number.has_digits:
        # Go's slow path parses the text before the suffix again, and requires a digit there.
        raise ValueError(f"{number.text!r} has no number before its suffix; write one such as 1Pi")
    nano = _scaled(int(number.whole + number.fraction) << exponent, 9 - len(number.fraction))
    nano = min(nano, MAX_INT64 * NANO)
    form = DECIMAL_SI if 0 < nano < NANO else BINARY_SI
    # The kubelet prints the decimal form for amounts below 1024, and for amounts of which a binary suffix would lose a fraction.
    return _quantity(number, nano, form, form)


def _quantity(number: _Number, nano: int, form: str, style: str) -> Quantity:
    sign = "-" if number.negative and nano else ""
    if style == BINARY_SI and (nano < 1024 * NANO or nano % NANO):
        style = DECIMAL_SI
    return Quantity(-nano if number.negative else nano, form, sign + _canonical(nano, style))


def _canonical(nano: int, style: str) -> str:
    """The canonical text without a sign: the amount has the largest suffix that leaves a whole number."""
    if nano == 0:
        return "0"
    if style == BINARY_SI:
        amount, power = nano // NANO, 0
        while amount % 1024 == 0 and power < len(_BINARY):
            amount, power = amount // 1024, power + 1
        return f"{amount}{_BINARY_SUFFIX[power]}"
    amount, exponent = nano, -9
    while amount % 1000 == 0 and (style == DECIMAL_EXPONENT or exponent < 18):
        amount, exponent = amount // 1000, exponent + 3
    if style == DECIMAL_SI:
        return f"{amount}{_DECIMAL_SUFFIX[exponent]}"
    return f"{amount}e{exponent}" if exponent else str(amount)


def _scaled(digits: int, power: int) -> int:
    """digits * 10**power; a fraction is rounded up ("if you want some resources, you should get some")."""
    if digits == 0 or power >= 0:
        return digits * 10**power if digits else 0
    if -power > MAX_LENGTH * 2:
        return 1
    return _round_away(digits, 10**-power)


def _round_away(amount: int, unit: int) -> int:
    """amount / unit as an integer, rounded away from zero."""
    return -(-amount // unit) if amount >= 0 else amount // unit
