# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# This module is private to the collection corral.node.
"""CDI specs: the devices that a JSON or YAML file of /etc/cdi or /var/run/cdi names.

Source: github.com/cncf-tags/container-device-interface, SPEC.md. The library in this repository, too, ignores the whole of a spec with a
mistake.
"""

from __future__ import annotations

import json
import re
import typing as t

from ..values.data_bounds import OutOfBounds, check_bounds
from ..values.errors import refusal
from ..values.records import NamedTuple
from . import cdi_fields
from .cdi_fields import VERSIONS, Field, Unfit, order

KIND = re.compile(r"[A-Za-z](?:[A-Za-z0-9_.-]{0,252}[A-Za-z0-9])?/[A-Za-z](?:[A-Za-z0-9_.-]{0,252}[A-Za-z0-9])?")
NAME = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9_.:-]{0,252}[A-Za-z0-9])?")
VERSION = re.compile(r"v?([0-9]{1,4}(?:\.[0-9]{1,4}){2})", re.ASCII)


class SpecDevice(NamedTuple):
    """A device of a spec. ``paths``: its device files on the machine; ``shared``: the device files that come with each device of the spec.

    ``edits``: the spec's version, then the containerEdits of the device and of the whole spec, as JSON.
    """

    kind: str
    name: str
    paths: tuple[str, ...]
    edits: tuple[str, ...] = ()
    shared: tuple[str, ...] = ()


def parse(data: object, path: str) -> list[SpecDevice]:
    """The devices in a spec's data. Raises a CorralError, which names the file and the field."""
    if isinstance(data, dict):
        _check_json(data, path)
    try:
        return _devices(data, path)
    except Unfit as error:
        rest = "generate it again, or remove the file" if error.is_form else "generate the spec again"
        said = f"is not a CDI spec, {error}" if error.is_form else f"{error}, and engines ignore the whole spec"
        raise refusal(f"{said}: {rest}", path=path, value=error.value) from None


def _devices(data: t.Any, path: str) -> list[SpecDevice]:
    """The devices of a spec. Raises Unfit for a spec that engines ignore, and CorralError for a spec that Corral refuses."""
    version = _version(data)
    # A spec of a later version may have fields that Corral does not know.
    needs = cdi_fields.check(Field(cdi_fields.SPEC), data, "", strict=order(version) <= order(VERSIONS[-1]))
    kind, whole = data["kind"], data.get("containerEdits") or {}
    if not KIND.fullmatch(kind):
        raise refusal("kind is not VENDOR/CLASS: generate the spec again", path=path, value=kind)
    if "." in kind.partition("/")[2]:
        needs = max(needs, cdi_fields.DOT_IN_CLASS, key=order)
    shared = _paths(whole, path, "containerEdits")
    devices: dict[str, SpecDevice] = {}
    for index, row in enumerate(data["devices"]):
        at, name, own = f"devices[{index}]", row["name"], row.get("containerEdits") or {}
        if not NAME.fullmatch(name):
            raise refusal(f"{at}.name is not the name of a CDI device: generate the spec again", path=path, value=name)
        if name in devices:
            raise refusal(f"{at}.name is declared twice: leave one out", path=path, value=name)
        if not any(one is not None and (one or key in cdi_fields.COUNT_WHEN_EMPTY) for key, one in own.items()):
            raise Unfit(f"{at}.containerEdits", "is empty", name)
        needs = max(needs, cdi_fields.of_name(name), key=order)
        paths = _paths(own, path, f"{at}.containerEdits")
        texts = (json.dumps(edits, sort_keys=True, default=str) for edits in (own, whole) if edits)
        devices[name] = SpecDevice(kind, name, paths, (version, *texts), shared)
    if not devices:
        raise Unfit("devices", "has none")
    if order(needs) > order(version):
        raise Unfit("cdiVersion", f"is too low for the fields that it has, which came with {needs}", version)
    return list(devices.values())


def _version(data: t.Any) -> str:
    """The version of a spec. Raises Unfit. Without a version: the latest version, since the check of the fields refuses such a spec."""
    said = data.get("cdiVersion") if isinstance(data, dict) else None
    if not isinstance(said, str) or not said:
        return VERSIONS[-1]
    match = VERSION.fullmatch(said)
    if match is None or (match.group(1) not in VERSIONS and order(match.group(1)) < order(VERSIONS[-1])):
        raise Unfit("cdiVersion", "is not a version", said)
    return match.group(1)


def _check_json(spec: dict[str, t.Any], path: str) -> None:
    """Refuse a spec that JSON cannot express, since Corral passes the edits on as JSON: a key that is not text, a value that contains
    itself, and YAML that expands too far.
    """

    def parts(value: t.Any) -> t.Iterable[t.Any]:
        odd = [key for key in value if not isinstance(key, str)] if isinstance(value, dict) else []
        if odd:
            raise refusal("has a key that is not text: generate the spec again", path=path, value=str(odd[0]))
        return value.values() if isinstance(value, dict) else value if isinstance(value, (list, tuple, set)) else ()

    try:
        check_bounds(spec, parts)
    except OutOfBounds as error:
        raise refusal(f"{error}; or generate the spec again", path=path) from None


def _paths(edits: t.Mapping[str, t.Any], path: str, at: str) -> tuple[str, ...]:
    paths = []
    for number, node in enumerate(edits.get("deviceNodes") or []):
        host_path = node.get("hostPath") or node["path"]
        if not host_path.startswith("/") or not host_path.isprintable():
            said = f"{at}.deviceNodes[{number}] has no absolute path of printable characters: generate the spec again"
            raise refusal(said, path=path, value=host_path)
        paths.append(host_path)
    return tuple(paths)
