# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# This module is private to the collection corral.node.
"""The section ``memory`` of a profile: hugepages, their mounts, and the memory that hugepages leave free."""

from __future__ import annotations

import typing as t
from itertools import starmap

from ..values import sizes
from ..values.records import NamedTuple
from ..values.sizes import Share
from .schema_reader import Reader, join
from .section_data import Shape


class NodeMemory(NamedTuple):
    """The bytes of a NUMA node's memory that hugepages must leave free."""

    node: int
    size: int


class Hugepages(NamedTuple):
    """A pool of ``pages`` (key `count`) of one size. ``node`` None: the kernel spreads the pages over the whole machine.

    In a declared profile, ``share`` (of the memory) may replace ``pages``, which is then 0. ``place`` (each, first, last) or ``near`` (a
    device) may replace ``node``. An ``optional`` pool may be missing on a node. node_intent.py resolves these fields on each node.
    """

    size_kib: int
    pages: int = 0
    node: t.Optional[int] = None
    share: t.Optional[Share] = None
    place: t.Optional[str] = None  # the key `node` with a word as its value
    near: t.Optional[str] = None
    optional: bool = False


class Mount(NamedTuple):
    """A hugetlbfs mount. Sizes are in bytes. User and group are given by number or by name; the default is root.

    ``optional``: the mount is left out on a node that cannot have the mount.
    """

    path: str
    pagesize_kib: int
    size: t.Optional[int] = None
    min_size: t.Optional[int] = None
    mode: int = 0o755
    uid: t.Optional[int] = None
    user: t.Optional[str] = None
    gid: t.Optional[int] = None
    group: t.Optional[str] = None
    optional: bool = False


class Memory(NamedTuple):
    """The section's values; empty if nothing is declared. Pools and mounts keep the order of the profile: errors name their index."""

    reserved: tuple[NodeMemory, ...] = ()
    hugepages: tuple[Hugepages, ...] = ()
    mounts: tuple[Mount, ...] = ()
    policy: str = "none"
    reserved_per_numa: t.Union[int, Share, None] = None  # for each NUMA node that is not in ``reserved``


def check(reader: Reader, memory: t.Mapping[str, t.Any], given: t.Mapping[str, t.Any]) -> None:
    """Refuse contradictions; ``given`` is the section as it was written."""
    _check_hugepages(reader, memory.get("hugepages", []), given.get("hugepages"))
    _check_mounts(reader, memory.get("mounts", []))


def _check_hugepages(reader: Reader, pools: list[dict[str, t.Any]], given: object) -> None:
    for index, (dummy, row) in enumerate(zip(pools, given if isinstance(given, (list, tuple)) else ())):
        if isinstance(row, dict):
            if row.get("count") is None and row.get("share") is None:
                reader.refuse(
                    f"memory.hugepages[{index}].count", None, "is missing: write it as in count: 512, or share: 25%"
                )
            elif row.get("count") is not None and row.get("share") is not None:
                reader.refuse(
                    f"memory.hugepages[{index}]", None, "declares count and share together: write one of them"
                )
            if row.get("node") is not None and row.get("near") is not None:
                path = f"memory.hugepages[{index}]"
                reader.refuse(path, None, "declares node and near together: write one of them")
    seen: dict[tuple[int, object], int] = {}
    for index, pool in enumerate(pools):
        if "size" not in pool:
            continue
        path, size = f"memory.hugepages[{index}]", pool["size"]
        place = f"near {pool['near']}" if "near" in pool else pool.get("node")
        text = sizes.page_text(size)
        if (size, place) in seen:
            reader.refuse(
                path,
                text,
                f"is declared for {_place_text(place)} in memory.hugepages[{seen[size, place]}] already: write one count",
            )
        seen.setdefault((size, place), index)
        if place is not None and (size, None) in seen:
            reader.refuse(
                path,
                text,
                f"is declared for the whole machine in memory.hugepages[{seen[size, None]}]: write node in both, or in none",
            )
        elif place is None and any(other == size and at is not None for other, at in seen):
            reader.refuse(path, text, "is declared for single NUMA nodes before: write node here too, or nowhere")


def _place_text(place: object) -> str:
    """The place of a pool, as a refusal names it."""
    if place is None:
        return "the whole machine"
    if isinstance(place, int):
        return f"NUMA node {place}"
    return {"each": "each NUMA node", "first": "the first NUMA node", "last": "the last NUMA node"}.get(
        str(place), f"the NUMA node {place}"
    )


def _check_mounts(reader: Reader, mounts: list[dict[str, t.Any]]) -> None:
    paths: dict[str, int] = {}
    for index, mount in enumerate(mounts):
        at = f"memory.mounts[{index}]"
        for name in ("size", "min_size"):
            if name in mount and "pagesize" in mount and mount[name] % (mount["pagesize"] << 10):
                page = sizes.page_text(mount["pagesize"])
                reader.refuse(
                    join(at, name),
                    sizes.size_text(mount[name]),
                    f"is not a whole number of pages: write a multiple of {page}",
                )
        if "size" in mount and "min_size" in mount and mount["min_size"] > mount["size"]:
            size = sizes.size_text(mount["size"])
            reader.refuse(
                join(at, "min_size"),
                sizes.size_text(mount["min_size"]),
                f"is more than the mount's size: write at most {size}",
            )
        for number, name in (("uid", "user"), ("gid", "group")):
            if number in mount and name in mount:
                reader.refuse(
                    join(at, number),
                    mount[number],
                    f"is declared together with {name}: {mount[name]}: leave one of them out",
                )
        if "path" in mount:
            _check_path(reader, join(at, "path"), mount["path"], paths)
            paths.setdefault(mount["path"], index)


def _check_path(reader: Reader, at: str, path: str, before: dict[str, int]) -> None:
    for other, index in before.items():
        if path == other:
            reader.refuse(at, path, f"is the path of memory.mounts[{index}] already: give each mount its own")
        elif path.startswith(other + "/") or other.startswith(path + "/"):
            reader.refuse(
                at,
                path,
                f"and the path of memory.mounts[{index}] ({other}) lie within each other: mount them side by side",
            )


def _reserved(by_node: t.Mapping[int, int]) -> tuple[NodeMemory, ...]:
    return tuple(sorted(starmap(NodeMemory, by_node.items())))


def _reserved_data(reserved: t.Iterable[NodeMemory]) -> dict[str, str]:
    return {str(row.node): sizes.size_text(row.size) for row in reserved}


SHAPES = {
    "memory": Memory,
    "memory.reserved": Shape(_reserved, _reserved_data),
    "memory.hugepages": Hugepages,
    "memory.mounts": Mount,
}
