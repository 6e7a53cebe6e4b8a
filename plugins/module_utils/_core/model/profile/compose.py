# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# This module is private to the collection corral.node.
"""Merges the layers of a profile; each key keeps the name of its layer.

A later layer wins. Sections merge key by key. Lists of sections merge item by item if the items have an identity; a list of plain values is
replaced. A key with the value null removes the value of earlier layers. Any other key also removes the keys that DISPLACES names.
profile.py checks the result.
"""

from __future__ import annotations

import re
import typing as t

from ..values.errors import CorralError, Problem, refusal
from ..values.records import NamedTuple
from ..workload.match_kinds import MATCH_KINDS
from . import profile_devices, schema, schema_key, schema_types
from .schema_reader import brief, join

# For each list of sections, the keys that identify an item. A pool without ``node`` is for the whole machine.
IDENTITY: dict[str, tuple[str, ...]] = {
    "memory.hugepages": ("size", "node", "near"),
    "memory.mounts": ("path",),
    "workloads": ("name",),
    "workloads[].containers": ("name",),
    "devices": ("name",),
    "tenants": ("name",),
    "tenants[].limits": ("type",),
    "tenants[].quota": ("name",),
    "tenants[].quota[].scope_selector": ("scope", "operator"),
}

# Each pool of hugepages has exactly one of AMOUNTS.
POOLS, AMOUNTS = "memory.hugepages", ("count", "share")

# For each key of a later layer, the keys of earlier layers that the key removes.
DISPLACES: dict[str, tuple[str, ...]] = {
    "cpu.reserved.cpus": ("count", "cores_per_numa"),
    "cpu.reserved.count": ("cpus", "cores_per_numa"),
    "cpu.reserved.cores_per_numa": ("cpus", "count"),
    "cpu.isolated.cpus": ("cores", "numa", "near"),
    "cpu.isolated.cores": ("cpus",),
    "cpu.isolated.numa": ("near",),
    "cpu.isolated.near": ("numa",),
    "memory.hugepages[].count": ("share",),
    "memory.hugepages[].share": ("count",),
    "memory.mounts[].uid": ("user",),
    "memory.mounts[].user": ("uid",),
    "memory.mounts[].gid": ("group",),
    "memory.mounts[].group": ("gid",),
    **{
        f"devices[].match.{kind}": tuple(
            other for other in (*profile_devices.ALONE, *profile_devices.OF_PCI) if other != kind
        )
        for kind in profile_devices.ALONE
    },
    **{f"devices[].match.{kind}": profile_devices.ALONE for kind in profile_devices.OF_PCI},
    **{f"workloads[].match.{kind}": tuple(other for other in MATCH_KINDS if other != kind) for kind in MATCH_KINDS},
}

# The origin of a key that no layer declares.
DEFAULT = "default"

# The last part of a path: `.name`, `[0]` or `["odd.name"]`.
_LAST_PART = re.compile(r'(?:\.[^.\[\]"]+|\[\d+\]|\["[^"]*"\])$')


class Layer(NamedTuple):
    """A layer of a profile: its data as written, and its ``origin``, such as the variable ``corral_profile_layer_50_edge``."""

    origin: str
    data: object


class Composed(NamedTuple):
    """The merged data, not yet checked. ``origins`` has the origin of each leaf by the leaf's path (``memory.mounts[0].size``)."""

    data: dict[t.Any, t.Any]
    origins: dict[str, str]


class _Leaf(NamedTuple):
    value: t.Any
    origin: str


# Data in which each leaf has its origin: a mapping, a list of items, or a leaf.
_Marked = t.Union[dict[t.Any, t.Any], list[t.Any], _Leaf]


def compose(layers: t.Sequence[Layer]) -> Composed:
    """All layers merged; the last layer is the strongest. Raises CorralError for a layer that is no mapping."""
    if not layers:
        raise refusal("is empty: give one layer or more, or leave it out", path="layers")
    wrong = [
        Problem(
            "",
            brief(layer.data),
            f"is {schema_types.kind(layer.data)}, not a mapping: write keys of a profile",
            layer.origin,
        )
        for layer in layers
        if not isinstance(layer.data, dict)
    ]
    if wrong:
        raise CorralError(*wrong)
    merged = _mark(layers[0].data, schema.ROOT, layers[0].origin)
    for layer in layers[1:]:
        merged = _merge(merged, _mark(layer.data, schema.ROOT, layer.origin), schema.ROOT, layer.origin)
    return Composed(_plain(merged), {path: leaf.origin for path, leaf in _leaves(merged, "")})


def origin_of(path: str, origins: t.Mapping[str, str]) -> str:
    """The origin of the value at a path; for a section, the origins of all leaves below the path.

    A missing key gets the origins of the leaves beside the path, any of which may be the cause. Without leaves: an empty string.
    """
    while path:
        if path in origins:
            return origins[path]
        below = [origin for leaf, origin in origins.items() if leaf.startswith((f"{path}.", f"{path}["))]
        if below:
            return ", ".join(dict.fromkeys(below))
        path = _LAST_PART.sub("", path) if _LAST_PART.search(path) else ""
    return ""


def rewrite_paths(error: CorralError, origins: t.Mapping[str, str]) -> CorralError:
    """The refusal ``error``, in which each problem has the origin of its value."""
    return CorralError(
        *(problem._replace(origin=problem.origin or origin_of(problem.path, origins)) for problem in error.problems)
    )


def declared_origins(data: t.Mapping[str, t.Any], origins: t.Mapping[str, str]) -> dict[str, str]:
    """The origin of each leaf of a checked profile's data (profile.to_data): a layer, or the default."""
    optional = {key.path for key in schema.KEYS if key.default is not None}
    by_path = {}
    for path in leaves_of(data):
        defaulted = path not in origins and re.sub(r"\[\d+\]", "[]", path) in optional
        by_path[path] = (not defaulted and origin_of(path, origins)) or DEFAULT
    return by_path


def leaves_of(data: t.Mapping[str, t.Any]) -> dict[str, t.Any]:
    """The values of a profile's data by path (``cpu.reserved.count``)."""
    return {path: leaf.value for path, leaf in _leaves(_mark(dict(data), schema.ROOT, DEFAULT), "")}


def _mark(value: t.Any, node: t.Optional[schema.Node], origin: str) -> _Marked:
    """The data with each leaf marked by its origin. Empty values, and values that the schema does not know, are leaves."""
    if node is None or not value:
        return _Leaf(value, origin)
    key = node.key
    if key.many == schema_key.LIST and key.type is None and isinstance(value, (list, tuple)):
        return [_mark_section(item, node, origin) for item in value]
    if key.many == schema_key.MAP and isinstance(value, dict):
        return {name: _Leaf(item, origin) for name, item in value.items()}
    if key.many == schema_key.ONE and key.type is None:
        return _mark_section(value, node, origin)
    return _Leaf(value, origin)


def _mark_section(value: t.Any, node: schema.Node, origin: str) -> _Marked:
    if not isinstance(value, dict) or not value:
        return _Leaf(value, origin)
    return {name: _mark(item, node.children.get(name), origin) for name, item in value.items()}


def _merge(below: _Marked, above: _Marked, node: schema.Node, origin: str) -> _Marked:
    """``above`` merged over ``below``. An empty section or list of items adds nothing; null removes the value."""
    if isinstance(below, dict) and isinstance(above, dict):
        return (
            _merge_map(below, above, node)
            if node.key.many == schema_key.MAP
            else _merge_section(below, above, node, origin)
        )
    if isinstance(below, list) and isinstance(above, list):
        return _merge_items(below, above, node, origin)
    if isinstance(above, _Leaf) and isinstance(below, (dict, list)) and above.value in ({}, []):
        return below
    return above


def _merge_map(below: dict[t.Any, t.Any], above: dict[t.Any, t.Any], node: schema.Node) -> dict[t.Any, t.Any]:
    """Two mappings with names that the user chooses, merged; 0 and "0" are the same name."""
    taken = {_read(node.key.keys, name) for name in above}
    return {**{name: value for name, value in below.items() if _read(node.key.keys, name) not in taken}, **above}


def _merge_section(
    below: dict[t.Any, t.Any], above: dict[t.Any, t.Any], node: schema.Node, origin: str
) -> dict[t.Any, t.Any]:
    merged = dict(below)
    for name, value in above.items():
        child = node.children.get(name)
        merged[name] = _merge(below[name], value, child, origin) if child and name in below else value
    for name, value in above.items():
        child = node.children.get(name)
        for other in DISPLACES.get(child.key.path, ()) if child and not _is_null(value) else ():
            if other not in above:
                merged.pop(other, None)
    return merged


def _merge_items(below: list[t.Any], above: list[t.Any], node: schema.Node, origin: str) -> _Marked:
    """Two lists merged item by item. If one layer has two items with the same identity, both items stay, so that the profile is refused."""
    if max(len(below), len(above)) > schema.ITEMS_LIMIT:
        return max(below, above, key=len)  # The schema's reader refuses a list of this length.
    names = [_identity(item, node) for item in below]
    merged: list[t.Any] = list(below)
    free = {name: index for index, name in enumerate(names) if name is not None}
    for item in above:
        name = _identity(item, node)
        at = free.pop(name, None) if name is not None else None
        if _takes_away(item, node):
            if at is not None:
                merged[at] = None
            continue
        for rival in _rivals(name, free, node):
            merged[free.pop(rival)] = None
        if at is None:
            merged.append(item)
        else:
            merged[at] = _merge_section(merged[at], item, node, origin)
    return [item for item in merged if item is not None] or _Leaf([], origin)


def _identity(item: _Marked, node: schema.Node) -> t.Optional[tuple[t.Any, ...]]:
    """The values that identify an item; None without such values, or if a value has a wrong type (then the profile is refused)."""
    names = IDENTITY.get(node.key.path)
    if names is None or not isinstance(item, dict):
        return None
    identity: list[t.Any] = []
    for name in names:
        value = item.get(name)
        if value is None or _is_null(value):
            identity.append(None)
        elif isinstance(value, _Leaf):
            read = _read(node.children[name].key.type, value.value)
            if read is value.value and not isinstance(read, (str, int)):
                return None
            identity.append(read)
    return tuple(identity) if identity and identity[0] is not None else None


def _takes_away(item: _Marked, node: schema.Node) -> bool:
    """Whether an item removes an earlier layer's item: a key that every item needs is null, as in `{size: 2Mi, node: 0, count: null}`."""
    names = IDENTITY.get(node.key.path, ())
    amounts = (
        [item[name] for name in AMOUNTS if name in item] if node.key.path == POOLS and isinstance(item, dict) else []
    )
    if amounts and all(map(_is_null, amounts)):
        return True
    return isinstance(item, dict) and any(
        child.key.required and name not in names and name in item and _is_null(item[name])
        for name, child in node.children.items()
    )


def _rivals(
    name: t.Optional[tuple[t.Any, ...]], others: t.Iterable[tuple[t.Any, ...]], node: schema.Node
) -> list[tuple[t.Any, ...]]:
    """The pools of the same page size that a pool excludes: one pool for the whole machine excludes pools of NUMA nodes, and vice versa."""
    if node.key.path != POOLS or name is None:
        return []

    def whole_machine(pool: tuple[t.Any, ...]) -> bool:
        return all(part is None for part in pool[1:])

    return [other for other in others if other[0] == name[0] and whole_machine(other) != whole_machine(name)]


def _read(kind_of: t.Optional[schema_types.Type], value: t.Any) -> t.Any:
    """A value as its type reads it (2Mi equals 2048Ki); an invalid value unchanged."""
    try:
        return kind_of.read(value) if kind_of else value
    except ValueError:
        return value


def _is_null(marked: _Marked) -> bool:
    return isinstance(marked, _Leaf) and marked.value is None


def _parts(marked: _Marked) -> t.Iterable[tuple[t.Any, t.Any]]:
    """The items of a mapping or list, each with its key or index for a path; a leaf has no items."""
    if isinstance(marked, dict):
        return [(name if isinstance(name, str) else str(brief(name)), value) for name, value in marked.items()]
    return [] if isinstance(marked, _Leaf) else list(enumerate(marked))


def _leaves(marked: _Marked, path: str) -> t.Iterator[tuple[str, _Leaf]]:
    if isinstance(marked, _Leaf):
        yield path, marked
    for name, value in _parts(marked):
        yield from _leaves(value, join(path, name))


def _plain(marked: _Marked) -> t.Any:
    """The plain values, without the origins."""
    if isinstance(marked, dict):
        return {name: _plain(value) for name, value in marked.items()}
    return marked.value if isinstance(marked, _Leaf) else [_plain(value) for value in marked]
