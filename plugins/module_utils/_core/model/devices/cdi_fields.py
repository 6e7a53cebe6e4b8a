# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# This module is private to the collection corral.node.
"""The fields of a CDI spec: their kinds, forms and first versions. Container engines ignore the whole spec if a field breaks a rule.

Source: github.com/cncf-tags/container-device-interface, specs-go (config.go, version.go) and pkg/cdi (its Validate functions).
"""

from __future__ import annotations

import re
import typing as t

from ..values.errors import shown
from ..values.records import NamedTuple

VERSIONS = ("0.1.0", "0.2.0", "0.3.0", "0.4.0", "0.5.0", "0.6.0", "0.7.0", "0.8.0", "1.0.0", "1.1.0")
DIGIT_FIRST, DOT_IN_CLASS = "0.5.0", "0.6.0"


class Field(NamedTuple):
    """A field of a spec. ``kind``: a JSON type, a table of fields, or a list with the Field of its rows. ``form``: the pattern of a text.

    ``since``: the first version with the field. ``once``: the fields whose values must differ from row to row of a list.
    """

    kind: t.Any = str
    since: str = ""
    form: str = ""
    needed: bool = False
    once: tuple[str, ...] = ()


NEEDED = Field(form=".+", needed=True)
ENV = [Field(form="[^=]+=.*")]
TEXTS, NUMBER = [Field()], Field(int)
ANNOTATIONS = Field({"": Field()}, since="0.6.0")  # the key "" stands for any key
NODE = {
    "path": NEEDED,
    "hostPath": Field(since="0.5.0"),
    "type": Field(form="[bcup]?"),
    "permissions": Field(form="[rwm]*|none"),
    **dict.fromkeys(("major", "minor", "fileMode", "uid", "gid"), NUMBER),
}
MOUNT = {"hostPath": NEEDED, "containerPath": NEEDED, "options": Field(TEXTS), "type": Field(since="0.4.0")}
HOOK = {
    "hookName": Field(form="prestart|createRuntime|createContainer|startContainer|poststart|poststop", needed=True),
    "path": NEEDED,
    "args": Field(TEXTS),
    "env": Field(ENV),
    "timeout": NUMBER,
}
RDT = {
    "closID": Field(form=r"/|(?!\.\.?$)[^/\n]{0,4095}"),
    **dict.fromkeys(("l3CacheSchema", "memBwSchema"), Field()),
    **dict.fromkeys(("enableCMT", "enableMBM"), Field(bool)),
    "schemata": Field(TEXTS, since="1.1.0"),
    "enableMonitoring": Field(bool, since="1.1.0"),
}
NET = ("hostInterfaceName", "name")
EDITS = {
    "env": Field(ENV),
    "deviceNodes": Field([Field(NODE)]),
    "netDevices": Field([Field(dict.fromkeys(NET, NEEDED))], since="1.1.0", once=NET),
    "hooks": Field([Field(HOOK)]),
    "mounts": Field([Field(MOUNT)]),
    "intelRdt": Field(RDT, since="0.7.0"),
    "additionalGids": Field([NUMBER], since="0.7.0"),
}
DEVICE = {"name": NEEDED, "annotations": ANNOTATIONS, "containerEdits": Field(EDITS)}
SPEC = {
    "cdiVersion": NEEDED,
    "kind": NEEDED,
    "annotations": ANNOTATIONS,
    "devices": Field([Field(DEVICE)], needed=True),
    "containerEdits": Field(EDITS),
}
KINDS: dict[t.Any, str] = {dict: "a mapping", list: "a list", str: "text", int: "a whole number", bool: "true or false"}
COUNT_WHEN_EMPTY = ("intelRdt", "schemata")


class Unfit(Exception):
    """A field that breaks a rule: a message, and the field's value if it helps. ``is_form``: the file is no CDI spec at all."""

    def __init__(self, at: str, message: str, value: t.Optional[str] = None, *, is_form: bool = False) -> None:
        super().__init__(f"{at} {message}")
        self.value, self.is_form = value, is_form


def check(field: Field, value: t.Any, at: str, *, strict: bool = True) -> str:
    """The version of CDI that a value needs. Raises Unfit. Unless ``strict``, unknown fields are allowed. ``at``: the field's path."""
    kind: t.Any = type(field.kind) if isinstance(field.kind, (dict, list)) else field.kind
    if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
        raise Unfit(at or "the spec", f"is not {KINDS[kind]}", is_form=True)
    if kind is str and field.form and not re.fullmatch(field.form, value, re.DOTALL):
        raise Unfit(at, "is not NAME=VALUE" if field is ENV[0] else "is none that CDI has", value)
    needs = [VERSIONS[0]]
    if kind is list:
        needs += [check(field.kind[0], row, f"{at}[{number}]", strict=strict) for number, row in enumerate(value)]
        for name in field.once:
            if len({row[name] for row in value}) < len(value):
                raise Unfit(at, f"has one {name} twice")
    elif kind is dict:
        needs += of_mapping(field, value, at, strict=strict)
    return max(needs, key=order)


def of_mapping(field: Field, value: dict[str, t.Any], at: str, *, strict: bool) -> list[str]:
    """The versions of CDI that the fields of a mapping need. Raises Unfit."""
    needs = []
    for name, inner in field.kind.items():
        if inner.needed and value.get(name) in (None, ""):
            wanted = KINDS[list if isinstance(inner.kind, list) else str]
            raise Unfit(f"{at}.{name}".lstrip("."), f"is not {wanted}", is_form=True)
    for name, given in value.items():
        inner, where = field.kind.get(name, field.kind.get("")), f"{at}.{shown(name)}".lstrip(".")
        if inner is None and strict:
            raise Unfit(where, f"is no field that CDI has up to {VERSIONS[-1]}")
        if inner is not None and given is not None:
            needs.append(check(inner, given, where, strict=strict))
            if given or (given in ({}, []) and name in COUNT_WHEN_EMPTY):
                needs.append(inner.since or VERSIONS[0])
    return needs


def order(version: str) -> tuple[int, ...]:
    """A version as numbers, to compare versions."""
    return tuple(map(int, version.split(".")))


def of_name(name: str) -> str:
    """The version of CDI that the name of a device needs."""
    return DIGIT_FIRST if name[:1].isdigit() else VERSIONS[0]


def of_device(name: str, edits: t.Mapping[str, t.Any]) -> str:
    """The version of CDI that a device with this name and these edits needs; unknown fields are allowed. Raises Unfit."""
    return max(check(Field(EDITS), edits, "containerEdits", strict=False), of_name(name), key=order)
