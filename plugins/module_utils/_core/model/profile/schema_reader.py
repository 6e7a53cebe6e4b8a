# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# This module is private to the collection corral.node.
"""Reads data by the schema: every key must be known, and every value must have its key's type. All problems are found at once.

profile_checks.py compares values with each other. The data may be anything that YAML or JSON can contain: the reader goes no deeper than
the schema, and no problem repeats more than a line of the data.
"""

from __future__ import annotations

import re
import typing as t

from ..values import suggest
from ..values.errors import Problem, shown
from . import schema, schema_key, schema_types

# A longer list of problems would not help the user.
PROBLEMS_LIMIT = 100

_PLAIN_KEY = re.compile(r"[A-Za-z0-9_-]{1,60}")


def join(path: str, name: str | int) -> str:
    """The path of a key or an item below ``path``: ``a.b``, ``a[0]``, ``a["odd.key"]``."""
    if isinstance(name, int):
        return f"{path}[{name}]"
    if _PLAIN_KEY.fullmatch(name):
        return f"{path}.{name}" if path else name
    return f'{path}["{name if len(name) <= 60 else name[:60] + "…"}"]'


def brief(value: object) -> object:
    """A value as a problem shows it: short, and always valid in JSON."""
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, int):
        return int(value) if value.bit_length() <= 128 else f"a number of {value.bit_length()} bits"
    if isinstance(value, str):
        return str(value) if len(value) <= 200 else value[:200] + "…"
    if isinstance(value, (dict, list, tuple)):
        return f"{schema_types.kind(value)} of {len(value)}"
    return repr(value)[:200] if isinstance(value, float) else schema_types.kind(value)


class Reader:
    """Reads data and collects the problems."""

    def __init__(self) -> None:
        self.problems: list[Problem] = []
        # For the path of a value as read: the path and the value as written. The checks know values as read, users know values as written
        # (cpu: 1.5 is read as 1500m, hugepages-2048Ki as hugepages-2Mi).
        self._written: dict[str, tuple[str, object]] = {}

    def refuse(self, path: str, value: object, message: str) -> None:
        """Add a problem; ``message`` ends with what to do. The problem shows the value as the user wrote it."""
        path, value = self._written.get(path, (path, value))
        if len(self.problems) < PROBLEMS_LIMIT:
            self.problems.append(Problem(path, brief(value), message))
        elif len(self.problems) == PROBLEMS_LIMIT:
            self.problems.append(Problem("", None, "there are more problems than these: correct them and check again"))

    def written(self, path: str) -> str:
        """The value at this path as the user wrote it, for a message about another value."""
        return shown(brief(self._written[path][1]))

    def one_of(self, path: str, given: dict[str, t.Any], names: t.Sequence[str]) -> None:
        """Refuse a section that does not declare exactly one of these keys. ``given`` is the data as written."""
        there = [name for name in names if given.get(name) is not None]
        if len(there) != 1:
            declared = there or [str(name) for name in given if given[name] is not None]
            how = " together" if there else " alone" if declared else ""
            what = " and ".join(declared) or "nothing"
            self.refuse(path, None, f"declares {what}{how}: write exactly one of {', '.join(names)}")

    def refuse_command(
        self, path: str, values: t.Optional[t.Mapping[str, t.Any]], written: t.Mapping[str, t.Any]
    ) -> None:
        """Refuse a section whose ``command`` is an empty list, or does not begin with an absolute path."""
        command = (values or {}).get("command")
        if command and not command[0].startswith("/"):
            message = "is not an absolute path: write the program's path, such as /usr/bin/curl"
            self.refuse(f"{path}.command[0]", command[0], message)
        if written.get("command") == []:
            self.refuse(f"{path}.command", [], "has no words: write a command, or leave the section out")

    def section(self, data: object, path: str, known: dict[str, schema.Node]) -> dict[str, t.Any]:
        """The values of a mapping by key, without refused values. A key with the value None counts as not declared."""
        if not isinstance(data, dict):
            subject = "is" if path else "the profile is"
            message = (
                f"{subject} {schema_types.kind(data)}, not a mapping: write one or more of its keys, {_names(known)}"
            )
            self.refuse(path, data, message)
            return {}
        found: dict[str, t.Any] = {}
        mistyped: set[str | None] = set()
        for name, value in data.items():
            node = known.get(name) if isinstance(name, str) else None
            if node is None:
                mistyped.add(self._unknown(path, name, known))
            elif value is not None:
                self._known(join(path, name), value, node, found)
        for name, node in known.items():
            if data.get(name) is None:
                if node.key.required and join(path, name) not in mistyped:
                    self.refuse(join(path, name), None, _missing(node.key))
                elif node.key.default is not None:
                    self._known(join(path, name), node.key.default, node, found)
        return found

    def _known(self, path: str, value: object, node: schema.Node, found: dict[str, t.Any]) -> None:
        key = node.key
        if key.later:
            self.refuse(path, None, "not in this version of Corral: leave the key out")
        elif key.many == schema_key.LIST:
            found[key.name] = self._list(path, value, node)
        elif key.many == schema_key.MAP:
            found[key.name] = self._map(path, value, key)
        elif key.type is None:
            found[key.name] = self.section(value, path, node.children)
        else:
            try:
                found[key.name] = key.type.read(value)
                self._written[path] = (path, value)
            except ValueError as exc:
                self.refuse(path, value, str(exc))

    def _list(self, path: str, value: object, node: schema.Node) -> list[t.Any]:
        if not isinstance(value, (list, tuple)):
            self.refuse(path, value, f"is {schema_types.kind(value)}, not a list: {_example(node.key)}")
            return []
        if len(value) > schema.ITEMS_LIMIT:
            self.refuse(path, value, f"has {len(value)} items: write at most {schema.ITEMS_LIMIT}")
            return []
        items: list[t.Any] = []
        for index, item in enumerate(value):
            where = join(path, index)
            if node.key.type is None:
                items.append(self.section(item, where, node.children))
                continue
            try:
                read = node.key.type.read(item)
            except ValueError as exc:
                self.refuse(where, item, str(exc))
                continue
            if read in items and node.key.type is not schema_types.COMMAND_WORD:
                self.refuse(where, item, "is in the list twice: leave one out")
            else:
                items.append(read)
                self._written[where] = (where, item)
        return items

    def _map(self, path: str, value: object, key: schema_key.Key) -> dict[t.Any, t.Any]:
        if not isinstance(value, dict):
            self.refuse(path, value, f"is {schema_types.kind(value)}, not a mapping: {_example(key)}")
            return {}
        if len(value) > schema.ITEMS_LIMIT:
            self.refuse(path, value, f"has {len(value)} keys: write at most {schema.ITEMS_LIMIT}")
            return {}
        read: dict[t.Any, t.Any] = {}
        for name, item in value.items():
            if item is None:
                continue
            where = join(path, str(brief(name)))
            try:
                index = key.keys.read(name) if key.keys else name
            except ValueError as exc:
                self.refuse(where, None, f"the key {exc}")
                continue
            try:
                amount = key.type.read(item) if key.type else item
            except ValueError as exc:
                self.refuse(where, item, str(exc))
                continue
            self._written[where] = self._written[join(path, str(index))] = (where, item)
            if index in read:
                self.refuse(where, item, "is declared twice, in two spellings: leave one out")
            read[index] = amount
        return read

    def _unknown(self, path: str, name: object, known: dict[str, schema.Node]) -> str | None:
        """Refuse an unknown key; return the path of the key that was probably meant."""
        if not isinstance(name, str):
            why = " (YAML reads on, yes and true as true)" if isinstance(name, bool) else ""
            self.refuse(join(path, str(brief(name))), None, f"unknown key, not text{why}: write one of {_names(known)}")
            return None
        if not path and name.startswith("corral_"):
            self.refuse(
                name, None, "is a variable of Ansible: give its value as the profile, or the whole file with -e @FILE"
            )
            return None
        meant = _meant(name, path, known)
        hint = f"did you mean {meant}?" if meant else f"write one of {_names(known)}"
        self.refuse(join(path, name), None, f"unknown key: {hint}")
        return meant


def _meant(name: str, path: str, known: dict[str, schema.Node]) -> str | None:
    """The path of the key that was probably meant: a similar key of the same section, or the same key of another section."""
    near = suggest.nearest(name, known)
    if near is not None:
        return join(path, near)
    # The kubelet's maxPods is max_pods in a profile.
    same = [key for key in known if "_" in key and key.replace("_", "") == name.lower()]
    if same:
        return join(path, same[0])
    # A key of the kubelet in its form (reservedSystemCPUs) or in the form of a profile (reserved_system_cpus).
    plain = name.replace("_", "").lower()
    kubelets = [own for theirs, own in schema.KUBELET_NAMES.items() if theirs.lower() == plain]
    if kubelets:
        return kubelets[0]
    elsewhere = [key.path for key in schema.KEYS if key.name == name]
    meant = _here(elsewhere[0], path) if len(elsewhere) == 1 else ""
    # For an unknown key in an item of a list, no key of the items in another section is suggested.
    return None if "[]" in meant and _top(meant) != _top(path) and "[" in path else meant or None


def _top(path: str) -> str:
    """The section of a profile in which a path lies."""
    return re.split(r"[.\[]", path, maxsplit=1)[0]


def _here(meant: str, path: str) -> str:
    """The path ``meant`` with the indexes of ``path``: workloads[0].match.unit for workloads[].match.unit."""
    parts = meant.split(".")
    for index, (part, mine) in enumerate(zip(parts, path.split("."))):
        if re.sub(r"\[[0-9]+\]", "[]", mine) != part:
            break
        parts[index] = mine
    return ".".join(parts)


def _names(known: dict[str, schema.Node]) -> str:
    return ", ".join(name for name, node in known.items() if not node.key.later)


def _missing(key: schema_key.Key) -> str:
    return f"is missing: {_example(key)}"


def _example(key: schema_key.Key) -> str:
    if key.example:
        return f"write it as in {key.name}: {key.example}"
    above = f"{key.path}[]." if key.many == schema_key.LIST else f"{key.path}."
    below = {other.path[len(above) :]: other for other in schema.KEYS if other.path.startswith(above)}
    names = [name for name, other in below.items() if "." not in name and not other.later]
    return f"write {'items with' if key.many == schema_key.LIST else 'one of its keys,'} {', '.join(names)}"


class DuplicateKey(ValueError):
    """An error: a mapping in a file has the same key twice. JSON and YAML loaders would silently use the last value."""

    def __init__(self, name: str, line: int = 0) -> None:
        where = f"line {line}: " if line else ""
        super().__init__(f"{where}the key {name} is in one mapping twice: leave one out")


def unique(pairs: list[tuple[str, t.Any]]) -> dict[str, t.Any]:
    """A JSON object for object_pairs_hook. Raises DuplicateKey if a key occurs twice."""
    found = dict(pairs)
    if len(found) != len(pairs):
        names = [name for name, dummy in pairs]
        raise DuplicateKey(next(name for name in names if names.count(name) > 1))
    return found
