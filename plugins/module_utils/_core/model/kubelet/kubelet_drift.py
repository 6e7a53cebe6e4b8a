# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# This module is private to the collection corral.node.
"""How a kubelet's configuration in force differs from what is wanted: key by key, by meaning, each with what sets it."""

from __future__ import annotations

import json
import typing as t

from ..values.records import NamedTuple
from . import config_values
from .config_shape import MAPS
from .kubelet_config import DEFAULT, Config, Layer
from .kubelet_wanted import GATES


class Difference(NamedTuple):
    """A top-level key that is not as wanted: its values as texts (None: not set), and the file or flag that sets it (or "default").

    ``overridden``: a later file or a flag sets it, so that Corral's file does not count.
    """

    key: str
    actual: t.Optional[str]
    wanted: t.Optional[str]
    origin: str
    overridden: bool = False


def changing(now: Config, then: Config, keys: t.Optional[t.Container[str]] = None) -> list[Difference]:
    """The keys (None: all) whose values differ between the configuration in force and the one that is planned."""
    return [
        Difference(key, shown(now.get(key)), shown(then.get(key)), origin_of(now, key))
        for key in sorted(now.data.keys() | then.data.keys())
        if (keys is None or key in keys) and not same(key, now.get(key), then.get(key))
    ]


def running_otherwise(config: Config, running: t.Mapping[str, t.Any]) -> list[Difference]:
    """The keys that a kubelet says that it uses otherwise than files, flags and defaults make them.

    It says more than those: nested settings are filled with defaults, and a key that is zero or empty is left out.
    """
    reported = {
        # In these maps each entry counts, so that one which only the kubelet has is a difference.
        key: running[key] if key in MAPS and running.get(key) else as_configured(value, running.get(key))
        for key, value in config.data.items()
    }
    return changing(config, Config(reported, {}), config.data)


def as_configured(configured: t.Any, running: t.Any) -> t.Any:
    """What a kubelet says of a setting, without what it adds to it."""
    if isinstance(configured, dict) and isinstance(running, dict):
        return {name: as_configured(value, running.get(name)) for name, value in configured.items()}
    return configured if running is None and not configured else running


def overridden(
    then: Config, wanted: t.Mapping[str, t.Any], files: t.Sequence[Layer] = (), own: str = ""
) -> list[Difference]:
    """The keys that are not as wanted even once Corral's file ``own`` has them, among these files. A null of a later one deletes them."""
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
    """Whether a JSON merge patch deletes something."""
    return patch is None or (isinstance(patch, dict) and any(map(deletes, patch.values())))


def same(key: str, one: t.Any, other: t.Any) -> bool:
    """Whether two values of a key mean the same."""
    return bool(config_values.meaning(key, one) == config_values.meaning(key, other))


def origin_of(config: Config, key: str, wanted: t.Any = None) -> str:
    """What sets a key; of a map, what sets the first value in it that is not as wanted. Feature gates of others may be anything."""
    origins = {path: origin for path, origin in config.origins.items() if path[0] == key}
    if isinstance(wanted, dict):
        for path, origin in sorted(origins.items()):
            counts = len(path) > 1 and (key != GATES or path[1] in wanted)
            if counts and not same(key, {path[1]: config.get(*path)}, {path[1]: wanted.get(path[1])}):
                return origin
    return next((origin for path, origin in sorted(origins.items())), DEFAULT)


def shown(value: t.Any) -> t.Optional[str]:
    """A value as text; None for one that is not set."""
    if value is None or isinstance(value, str):
        return value
    return json.dumps(value, sort_keys=True)
