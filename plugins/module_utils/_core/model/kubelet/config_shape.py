# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# This module is private to the collection corral.node.
"""The data of a kubelet's configuration file: its form in JSON, and the kinds of values that the kubelet accepts.

YAML can express more than JSON: keys that are not text, dates, sets, values that contain themselves.
"""

from __future__ import annotations

import json
import typing as t

from .kubelet_config import DEFAULTS, FLAGS

MOST, DEEPEST = 100_000, 100  # the most values, and the most levels
MAPS = frozenset(
    (
        "evictionHard", "evictionSoft", "evictionSoftGracePeriod", "evictionMinimumReclaim", "systemReserved", "kubeReserved",
        "featureGates", "cpuManagerPolicyOptions", "topologyManagerPolicyOptions", "memorySwap", "qosReserved",
    )
)  # fmt: skip
LISTS = frozenset(("allowedUnsafeSysctls", "enforceNodeAllocatable", "reservedMemory"))
SINGLE = frozenset(
    {*DEFAULTS, *(key for key, dummy in FLAGS.values()), "healthzPort", "healthzBindAddress", "imageMaximumGCAge"}
    - MAPS
    - LISTS
)
_KINDS = {
    **{key: type(value).__name__ for key, value in DEFAULTS.items()},
    **dict(FLAGS.values()),
    "healthzPort": "int",
}
BOOLEANS = frozenset(key for key, kind in _KINDS.items() if kind == "bool")
NUMBERS = frozenset(key for key, kind in _KINDS.items() if kind == "int")


def plain(value: t.Any) -> t.Any:
    """The data of a YAML file in the form of JSON. Keys, and values without a form in JSON, become text. Raises ValueError."""
    left = [MOST]

    def as_json(one: t.Any, depth: int) -> t.Any:
        left[0] -= 1
        if depth > DEEPEST or left[0] < 0:
            raise ValueError("is nested too deeply, or has too many values")
        if isinstance(one, dict):
            return {key_of(key): as_json(inner, depth + 1) for key, inner in one.items()}
        if isinstance(one, (list, tuple)):
            return [as_json(inner, depth + 1) for inner in one]
        if isinstance(one, (set, frozenset)):
            return {key_of(key): None for key in one}
        return one if one is None or isinstance(one, (str, bool, int, float)) else str(one)

    return as_json(value, 0)


def key_of(key: t.Any) -> str:
    """A key as text; a bool, a number or null is written as in JSON."""
    return json.dumps(key) if key is None or isinstance(key, (bool, int, float)) else str(key)


def unfit(data: t.Mapping[str, t.Any]) -> list[str]:
    """A message for each key with a value of a kind that the kubelet does not take: with such a value the kubelet does not start."""
    found = []
    for key, value in data.items():
        if value is None:
            continue
        if key in MAPS and (
            not isinstance(value, dict) or any(isinstance(one, (dict, list)) for one in value.values())
        ):
            found.append(f"{key}: is not a map of single values")
        elif key in LISTS and not isinstance(value, list):
            found.append(f"{key}: is not a list")
        elif key in SINGLE and isinstance(value, (dict, list)):
            found.append(f"{key}: is not a single value")
        elif key in BOOLEANS and not isinstance(value, bool):
            found.append(f"{key}: is not true or false without quotes")
        elif key in NUMBERS and (isinstance(value, bool) or not isinstance(value, (int, float)) or value % 1):
            found.append(f"{key}: is not a whole number without quotes")
        elif key == "enforceNodeAllocatable" and not all(isinstance(one, str) for one in value):
            found.append(f"{key}: is not a list of texts")
    return found
