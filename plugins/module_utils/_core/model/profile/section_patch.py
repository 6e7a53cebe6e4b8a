# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# This module is private to the collection corral.node.
"""Changes a section of the node's declared profile: the options of a module such as hugepages or cpuset become a patch of the profile.

There is no second schema: the patch is merged into the profile's data, and the merged data is read like any profile. A refusal names the
module's option instead of the option's path in the profile.
"""

from __future__ import annotations

import re
import typing as t

from ..values.errors import CorralError, Problem, refusal
from ..values.records import NamedTuple
from . import compose, profile, schema_quantities, schema_types
from .profile import Profile

# The name of the profile that modules such as hugepages and cpuset make. No other profile may have this name.
NAME = "parts"

CPUSET, HUGEPAGES, MOUNT, PIDS, GC = "cpuset", "hugepages", "hugetlbfs_mount", "pid_limits", "gc"
LISTS = {HUGEPAGES: "hugepages", MOUNT: "mounts"}
SECTIONS = {CPUSET: "cpu", HUGEPAGES: "memory.hugepages", MOUNT: "memory.mounts", PIDS: "pids", GC: "gc"}
STRICT = "strict_cpu_reservation"


class SectionPatch(NamedTuple):
    """The request of a task: the module's name, its options, and whether its section (or item of a list) is to be present."""

    module: str
    options: dict[str, t.Any]
    present: bool = True


def merged(declared: t.Optional[Profile], patch: SectionPatch) -> tuple[t.Optional[Profile], str]:
    """The declared profile with the patch added or removed (None: no section is left), and the patch's path in the profile.

    Raises CorralError with the module's options as paths.
    """
    data: dict[str, t.Any] = {"name": NAME} if declared is None else profile.to_data(declared)
    given = without_empty(patch.options)
    own = SECTIONS[patch.module]
    if patch.module in LISTS:
        own += put_item(data, patch, given)
    elif not patch.present:
        data.pop(own, None)
    elif patch.module == CPUSET:
        data[own] = cpu_data(given)
    elif given:
        data[own] = added(data.get(own, {}), given)
    if not set(data) - {"name", "version", "mode"}:
        return None, own
    try:
        return profile.parse(data), own
    except CorralError as error:
        raise rewrite_paths(error, patch.module, own) from None


def without_empty(options: t.Mapping[str, t.Any]) -> dict[str, t.Any]:
    """The options that the task sets: without the options that are None."""
    return {
        name: without_empty(value) if isinstance(value, dict) else value
        for name, value in options.items()
        if value is not None
    }


def cpu_data(given: dict[str, t.Any]) -> dict[str, t.Any]:
    """The options as the section ``cpu``; strict_cpu_reservation is under its name in the kubelet."""
    data = {name: value for name, value in given.items() if name != STRICT}
    return {**data, "options": {"strict-cpu-reservation": given[STRICT]}} if STRICT in given else data


def added(declared: dict[str, t.Any], given: dict[str, t.Any]) -> dict[str, t.Any]:
    """A declared section with the given options, merged key by key; a list is replaced.

    An empty mapping stays: the schema adds its defaults.
    """
    section = dict(declared)
    for name, value in given.items():
        there = section.get(name, {})
        section[name] = added(there, value) if isinstance(value, dict) and isinstance(there, dict) else value
    return section


def put_item(data: dict[str, t.Any], patch: SectionPatch, given: dict[str, t.Any]) -> str:
    """Put an item into its list, or remove the item. Returns its index as in a path ("[0]"); an empty string after a removal."""
    identity = pool_of if patch.module == HUGEPAGES else path_of
    own, name = identity(given), LISTS[patch.module]
    memory = data.get("memory", {})
    items = list(memory.get(name, []))
    place = next((index for index, item in enumerate(items) if identity(item) == own), len(items))
    items[place : place + 1] = [given] if patch.present else []
    data["memory"] = {key: value for key, value in {**memory, name: items}.items() if value}
    if not data["memory"]:
        del data["memory"]
    return f"[{place}]" if patch.present else ""


def pool_of(item: t.Mapping[str, t.Any]) -> tuple[int, t.Optional[int]]:
    """The page size in KiB and the NUMA node that identify a pool."""
    node = item.get("node")
    size = read("size", schema_quantities.PAGE_SIZE, item["size"])
    number = None if node is None else read("node", schema_types.NODE, node)
    return t.cast("tuple[int, t.Optional[int]]", (size, number))


def path_of(item: t.Mapping[str, t.Any]) -> str:
    """The path that identifies a mount."""
    return t.cast("str", read("path", schema_types.MOUNT_PATH, item["path"]))


def read(option: str, of_type: schema_types.Type, value: object) -> object:
    """The value of an option that identifies an item. Raises CorralError for an invalid value, even if the item is to be removed."""
    try:
        return of_type.read(value)
    except ValueError as error:
        raise refusal(str(error), path=option, value=value) from None


# Origins


def origins_of(declared: Profile) -> dict[str, str]:
    """For each key (by path) of a profile with the name NAME, the module that declared the key; empty for any other profile."""
    leaves = compose.leaves_of(profile.to_data(declared)) if declared.name == NAME else ()
    return {
        leaf: f"corral.node.{module}"
        for leaf in leaves
        for module, section in SECTIONS.items()
        if leaf.startswith((f"{section}.", f"{section}["))
    }


def rewrite_paths(error: CorralError, module: str, own: str) -> CorralError:
    """The refusal with the module's options as paths; ``own`` is the patch's path in the profile.

    A problem in the section of another module keeps its path; its message names that module.
    """
    return CorralError(*(translated(problem, module, own) for problem in error.problems))


def translated(problem: Problem, module: str, own: str) -> Problem:
    """A problem with the module's option as its path. A problem about sections of other modules names these modules."""
    path = problem.path
    message = re.sub(rf"(?<![\w.]){re.escape(own)}\.(?=[a-z])", "", problem.message)
    if path.startswith((f"{own}.", f"{own}[")):
        path = path[len(own) :].lstrip(".")
    elif path in (own, SECTIONS[module]):
        # A problem of one pool gets the path ``size``, a problem of all pools together the path ``count``.
        whole = "size" if path == own else "count"
        path = whole if module == HUGEPAGES else ""
    path, message = (text.replace("options.strict-cpu-reservation", STRICT) for text in (path, message))
    others = [
        f"corral.node.{other}"
        for other, section in SECTIONS.items()
        if section != own and re.search(rf"(?<![\w.]){re.escape(section)}[.\[]", f"{path} {message}")
    ]
    if others:
        message += f" ({' and '.join(others)} declared it on this node)"
    return problem._replace(path=path, message=message)
