# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# This module is private to the collection corral.node.
"""The kinds of values that configure a kubelet. The readers are as those of schema_types.py."""

from __future__ import annotations

import re

from ..kubelet.kubelet_options import SIGNALS
from ..values import quantity
from .schema_types import Type, choice, read_text

_PERCENT = re.compile(r"(?:0|[1-9][0-9]?)(?:\.[0-9]{1,4})?%")
_CGROUP = re.compile(r"/[A-Za-z0-9_.:@\\-]+(?:/[A-Za-z0-9_.:@\\-]+)*")
_PROGRAM = re.compile(r"/[A-Za-z0-9_.:@+-]+(?:/[A-Za-z0-9_.:@+-]+)*")


def _threshold(value: object) -> str:
    """An eviction threshold as the kubelet writes it: a quantity, or a share in percent."""
    if isinstance(value, int) and not isinstance(value, bool):
        value = str(value)
    text = read_text(value, such_as="500Mi or 10%").strip()
    if text.endswith("%"):
        if not _PERCENT.fullmatch(text):
            raise ValueError("is not a share of less than 100%: write it as in 10%")
        return text
    try:
        amount = quantity.parse(text) if len(text) <= 64 else None
    except ValueError:
        amount = None
    if amount is None or amount.nano < 0:
        raise ValueError("is neither a quantity nor a share in percent: write it as in 500Mi or 10%")
    return text


def _cgroup(value: object) -> str:
    text = read_text(value, such_as="/system.slice")
    if len(text) > 1024 or not _CGROUP.fullmatch(text) or ".." in text.split("/"):
        raise ValueError("is not the absolute name of a control group: write it as in /system.slice")
    return text


def _hook(value: object) -> str:
    """The word none, or the absolute path of a program."""
    text = read_text(value, such_as="/usr/local/sbin/drain-node")
    if text == "none":
        return text
    if len(text) > 1024 or not _PROGRAM.fullmatch(text) or any(part in (".", "..") for part in text.split("/")):
        raise ValueError(
            "is neither none nor the absolute path of a program, without arguments: write it as in /usr/local/sbin/drain-node"
        )
    return text


RESERVABLE = choice("cpu", "memory", "ephemeral-storage", "pid")
ENFORCED = choice(
    "pods", "system-reserved", "system-reserved-compressible", "kube-reserved", "kube-reserved-compressible", "none"
)
SIGNAL = choice(*SIGNALS)
THRESHOLD = Type("quantity, or share in percent", _threshold, bounds=(0, 1 << 60), pattern=".+")
CONTROL_GROUP = Type("control group", _cgroup, pattern=_CGROUP.pattern)
HOOK = Type("none, or the path of a program", _hook, pattern=f"none|{_PROGRAM.pattern}")
