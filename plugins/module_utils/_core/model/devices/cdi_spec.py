# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# This module is private to the collection corral.node.
"""CDI specs: the devices that a JSON or YAML file of /etc/cdi or /var/run/cdi names.

Source: github.com/cncf-tags/container-device-interface, SPEC.md; a spec with a mistake is ignored as a whole there as well.
"""

from __future__ import annotations

import json
import re
import typing as t

from ..values.data_bounds import OutOfBounds, check_bounds
from ..values.errors import refusal
from ..values.records import NamedTuple

KIND = re.compile(r"[A-Za-z](?:[A-Za-z0-9_.-]{0,252}[A-Za-z0-9])?/[A-Za-z](?:[A-Za-z0-9_.-]{0,252}[A-Za-z0-9])?")
NAME = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9_.:-]{0,252}[A-Za-z0-9])?")
VERSION = re.compile(r"[0-9]{1,4}(\.[0-9]{1,4}){2}", re.ASCII)
# The lists of containerEdits, which have mappings, but for env.
LISTS = ("env", "deviceNodes", "mounts", "hooks", "netDevices")
ENV = re.compile(r"[^=]+=", re.ASCII)


class SpecDevice(NamedTuple):
    """A device of a spec, with the paths of its device nodes on the node.

    ``edits`` are the spec's version and what a container gets with the device, as JSON: by the device, and by the spec as a whole.
    """

    kind: str
    name: str
    paths: tuple[str, ...]
    edits: tuple[str, ...] = ()


def parse(data: object, path: str) -> list[SpecDevice]:
    """The devices of a spec's data. Raises CorralError that names the file and the field."""
    spec = _of(dict, data, path, "the spec")
    _check_json(spec, path)
    version = _of(str, spec.get("cdiVersion"), path, "cdiVersion")
    if not VERSION.fullmatch(version):
        raise refusal("cdiVersion is not a version: generate the spec again", path=path, value=version)
    whole = _edits(spec, path, "containerEdits")
    kind = _of(str, spec.get("kind"), path, "kind")
    if not KIND.fullmatch(kind):
        raise refusal("kind is not VENDOR/CLASS: generate the spec again", path=path, value=kind)
    found: dict[str, SpecDevice] = {}
    for index, row in enumerate(_of(list, spec.get("devices"), path, "devices")):
        at = f"devices[{index}]"
        name = _of(str, _of(dict, row, path, at).get("name"), path, f"{at}.name")
        if not NAME.fullmatch(name):
            raise refusal(f"{at}.name is not the name of a CDI device: generate the spec again", path=path, value=name)
        if name in found:
            raise refusal(f"{at}.name is declared twice: leave one out", path=path, value=name)
        own = _edits(row, path, f"{at}.containerEdits")
        paths = _paths(row, path, at)
        texts = (json.dumps(edits, sort_keys=True, default=str) for edits in (own, whole) if edits)
        found[name] = SpecDevice(kind, name, paths, (version, *texts))
    return list(found.values())


def _check_json(spec: dict[str, t.Any], path: str) -> None:
    """Refuse what JSON cannot say, which has to pass the edits on: other keys than text, a value in itself, and YAML that stands for too much."""

    def parts(one: t.Any) -> t.Iterable[t.Any]:
        odd = [key for key in one if not isinstance(key, str)] if isinstance(one, dict) else []
        if odd:
            raise refusal("has a key that is not text: generate the spec again", path=path, value=str(odd[0]))
        return one.values() if isinstance(one, dict) else one if isinstance(one, (list, tuple, set)) else ()

    try:
        check_bounds(spec, parts)
    except OutOfBounds as error:
        raise refusal(f"{error}; or generate the spec again", path=path) from None


def _edits(row: dict[str, t.Any], path: str, at: str) -> dict[str, t.Any]:
    """What a container gets. It is passed on in Corral's own spec, which an engine ignores as a whole where a part is no edit."""
    edits = _of(dict, row.get("containerEdits") or {}, path, at)
    for key in LISTS:
        for number, one in enumerate(_of(list, edits.get(key) or [], path, f"{at}.{key}")):
            where = f"{at}.{key}[{number}]"
            if key == "env" and not ENV.match(_of(str, one, path, where)):
                raise refusal(f"{where} is not NAME=VALUE: generate the spec again", path=path, value=one)
            if key != "env":
                _of(dict, one, path, where)
    return edits


def _paths(row: dict[str, t.Any], path: str, at: str) -> tuple[str, ...]:
    paths = []
    for number, node in enumerate((row.get("containerEdits") or {}).get("deviceNodes") or []):
        where = f"{at}.containerEdits.deviceNodes[{number}]"
        inside = _of(str, node.get("path"), path, f"{where}.path")
        host_path = _of(str, node.get("hostPath") or inside, path, f"{where}.hostPath")
        if not host_path.startswith("/") or not host_path.isprintable():
            raise refusal(
                f"{where} has no absolute path of printable characters: generate the spec again",
                path=path,
                value=host_path,
            )
        paths.append(host_path)
    return tuple(paths)


Wanted = t.TypeVar("Wanted")

_KINDS: dict[type, str] = {dict: "a mapping", list: "a list", str: "text"}


def _of(kind: type[Wanted], value: object, path: str, field: str) -> Wanted:
    if not isinstance(value, kind):
        message = f"is not a CDI spec, {field} is not {_KINDS[kind]}: generate it again, or remove the file"
        raise refusal(message, path=path)
    return value
