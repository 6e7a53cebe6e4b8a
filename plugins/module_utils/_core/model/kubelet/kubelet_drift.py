# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# This module is private to the collection corral.node.
"""How a kubelet's configuration in force differs from the wanted keys: each key whose values differ in meaning, and its origin."""

from __future__ import annotations

import json
import typing as t

from ..values.records import NamedTuple
from . import config_values
from .config_shape import MAPS
from .kubelet_config import DEFAULT, Config, Layer
from .kubelet_wanted import GATES


class Difference(NamedTuple):
    """A top-level key with another value than wanted. ``actual`` and ``wanted`` are texts (None: not set).

    ``origin``: the file or flag that sets the key, or "default". ``overridden``: a later file or a flag overrides Corral's file.
    """

    key: str
    actual: t.Optional[str]
    wanted: t.Optional[str]
    origin: str
    overridden: bool = False


def changing(now: Config, then: Config, keys: t.Optional[t.Container[str]] = None) -> list[Difference]:
    """The keys (None: all) whose values differ between the configuration in force and the planned configuration."""
    return [
        Difference(key, shown(now.get(key)), shown(then.get(key)), origin_of(now, key))
        for key in sorted(now.data.keys() | then.data.keys())
        if (keys is None or key in keys) and not same(key, now.get(key), then.get(key))
    ]


def running_otherwise(config: Config, running: t.Mapping[str, t.Any]) -> list[Difference]:
    """The keys whose values a running kubelet reports differently from its files, flags and defaults.

    The kubelet fills nested settings with defaults, and leaves out a key that is zero or empty. Neither counts as a difference.
    """
    reported = {
        # In the maps of MAPS each entry counts: an entry that only the kubelet has is a difference.
        key: running[key] if key in MAPS and running.get(key) else as_configured(value, running.get(key))
        for key, value in config.data.items()
    }
    return changing(config, Config(reported, {}), config.data)


def as_configured(configured: t.Any, running: t.Any) -> t.Any:
    """The kubelet's report on a setting, without the entries that the kubelet adds."""
    if isinstance(configured, dict) and isinstance(running, dict):
        return {name: as_configured(value, running.get(name)) for name, value in configured.items()}
    return configured if running is None and not configured else running


def overridden(
    then: Config, wanted: t.Mapping[str, t.Any], files: t.Sequence[Layer] = (), own: str = ""
) -> list[Difference]:
    """The keys without their wanted values in ``then``, which includes Corral's file ``own``. A null in a later file deletes a key."""
    found = []
    for key, value in wanted.items():
        actual = then.get(key)
        if key == GATES and isinstance(actual, dict):
            actual = {name: one for name, one in actual.items() if name in value}
        if not same(key, actual, value):
            origin = origin_of(then, key, value)
            if origin in (DEFAULT, own):
                deleting = (
                    one.origin for one in reversed(files) if one.origin != own and deletes(one.data.get(key, value))
                )
                origin = next(deleting, origin)
            found.append(Difference(key, shown(actual), shown(value), origin, overridden=True))
    return found


def deletes(patch: t.Any) -> bool:
    """Whether a JSON merge patch deletes any key."""
    return patch is None or (isinstance(patch, dict) and any(map(deletes, patch.values())))


def same(key: str, one: t.Any, other: t.Any) -> bool:
    """Whether two values of a key have the same meaning."""
    return bool(config_values.meaning(key, one) == config_values.meaning(key, other))


def origin_of(config: Config, key: str, wanted: t.Any = None) -> str:
    """The origin of a key's value; for a map, the origin of the first entry that differs from ``wanted``. Unwanted gates do not count."""
    origins = {path: origin for path, origin in config.origins.items() if path[0] == key}
    if isinstance(wanted, dict):
        for path, origin in sorted(origins.items()):
            counts = len(path) > 1 and (key != GATES or path[1] in wanted)
            if counts and not same(key, {path[1]: config.get(*path)}, {path[1]: wanted.get(path[1])}):
                return origin
    return next((origin for path, origin in sorted(origins.items())), DEFAULT)


def shown(value: t.Any) -> t.Optional[str]:
    """A value as text; None for a value that is not set."""
    if value is None or isinstance(value, str):
        return value
    return json.dumps(value, sort_keys=True)
