# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# This module is private to the collection corral.node.
"""Go's values as the kubelet's state files need them: decoded from JSON as encoding/json does, printed as go-spew does.

A checksum of the kubelet is FNV-1a (32 bit) over the ``%#v`` text of a struct (pkg/kubelet/checkpointmanager/checksum, pkg/util/hash). A
Type decodes the JSON of a Go type and prints its values.
"""

from __future__ import annotations

import abc
import json
import typing as t

from ..values import cpuset
from ..values.records import NamedTuple

INT_BITS, UINT_BITS = 63, 64


class GoError(ValueError):
    """An error that encoding/json would return, in the words of encoding/json."""


class Type(abc.ABC):
    """A Go type. ``name``: the text that go-spew prints before a value if the surrounding type does not tell the value's type."""

    name = ""
    json_name = ""  # the name of the type in errors of encoding/json

    def zero(self) -> t.Any:
        """The value of a field that is missing in JSON."""
        return None

    @abc.abstractmethod
    def decode(self, data: t.Any, path: str) -> t.Any:
        """The Go value for ``data``, which is parsed JSON. ``path`` names the field in an error. Raises GoError."""

    @abc.abstractmethod
    def text(self, value: t.Any) -> str:
        """The text that go-spew prints for a value, without the type's name."""

    def refuse(self, data: t.Any, path: str) -> GoError:
        """The error for JSON of another kind."""
        kinds: tuple[tuple[t.Any, str], ...] = (
            (bool, "bool"), (str, "string"), ((int, float), "number"), (dict, "object"), (list, "array"),
        )  # fmt: skip
        kind = next((word for of, word in kinds if isinstance(data, of)), "null")
        return GoError(f"json: cannot unmarshal {kind} into Go struct field {path} of type {self.json_name}")


class String(Type):
    """A Go string, or a named type of strings."""

    json_name = "string"

    def __init__(self, name: str = "string") -> None:
        self.name = name
        self.json_name = name

    def zero(self) -> str:
        return ""

    def decode(self, data: t.Any, path: str) -> str:
        if data is None:
            return ""
        if not isinstance(data, str):
            raise self.refuse(data, path)
        return data

    def text(self, value: str) -> str:
        return value


class Integer(Type):
    """A Go int or uint64."""

    def __init__(self, name: str) -> None:
        self.name = self.json_name = name

    def zero(self) -> int:
        return 0

    def decode(self, data: t.Any, path: str) -> int:
        if data is None:
            return 0
        if isinstance(data, bool) or not isinstance(data, (int, float)):
            raise self.refuse(data, path)
        fits = (0 <= data < 1 << UINT_BITS) if self.name == "uint64" else -(1 << INT_BITS) <= data < 1 << INT_BITS
        if not isinstance(data, int) or not fits:
            raise GoError(f"json: cannot unmarshal number {data} into Go struct field {path} of type {self.name}")
        return data

    def text(self, value: int) -> str:
        return str(value)


class Bytes(Type):
    """A Go []byte; JSON has its base64 text."""

    name = "[]uint8"
    json_name = "[]uint8"

    def decode(self, data: t.Any, path: str) -> t.Optional[bytes]:
        import base64
        import binascii

        if data is None:
            return None
        if not isinstance(data, str):
            raise self.refuse(data, path)
        try:
            return base64.b64decode(data, validate=True)
        except (binascii.Error, ValueError):
            raise GoError("illegal base64 data") from None

    def text(self, value: t.Optional[bytes]) -> str:
        return "<nil>" if value is None else f"[{' '.join(map(str, value))}]"


class Slice(Type):
    """A Go slice, whose elements have the type ``of``. None is Go's nil, which differs from an empty slice."""

    def __init__(self, name: str, of: Type) -> None:
        self.name = self.json_name = name
        self.of = of

    def decode(self, data: t.Any, path: str) -> t.Optional[list[t.Any]]:
        if data is None:
            return None
        if not isinstance(data, list):
            raise self.refuse(data, path)
        return [self.of.decode(one, path) for one in data]

    def text(self, value: t.Optional[list[t.Any]]) -> str:
        return "<nil>" if value is None else f"[{' '.join(map(self.of.text, value))}]"


class Map(Type):
    """A Go map. Keys are text, or whole numbers if ``numbered``. None is Go's nil, which differs from an empty map."""

    def __init__(self, name: str, of: Type, *, numbered: bool = False) -> None:
        self.name = self.json_name = name
        self.of, self.numbered = of, numbered

    def decode(self, data: t.Any, path: str) -> t.Optional[dict[t.Any, t.Any]]:
        if data is None:
            return None
        if not isinstance(data, dict):
            raise self.refuse(data, path)
        return {self.key(key, path): self.of.decode(one, f"{path}.{key}") for key, one in data.items()}

    def key(self, text: str, path: str) -> t.Union[str, int]:
        """The key of the Go map for a key of JSON. Raises GoError."""
        if not self.numbered:
            return text
        try:
            return int(text)
        except ValueError:
            raise GoError(f"json: cannot unmarshal number {text} into Go struct field {path} of type int") from None

    def text(self, value: t.Optional[t.Mapping[t.Any, t.Any]]) -> str:
        if value is None:
            return "<nil>"
        order: t.Any = None if self.numbered else (lambda key: key.encode(errors="surrogatepass"))
        return f"map[{' '.join(f'{key}:{self.of.text(value[key])}' for key in sorted(value, key=order))}]"


class CpuSet(Type):
    """The type k8s.io/utils/cpuset.CPUSet; JSON has a list such as 0-3,8."""

    name = "cpuset.CPUSet"
    json_name = "string"

    def zero(self) -> frozenset[int]:
        return frozenset()

    def decode(self, data: t.Any, path: str) -> frozenset[int]:
        if data is None:
            return frozenset()
        if not isinstance(data, str):
            raise self.refuse(data, path)
        return cpu_list(data)

    def text(self, value: frozenset[int]) -> str:
        return f"{{elems:(map[int]struct {{}})map[{' '.join(f'{cpu}:{{}}' for cpu in sorted(value))}]}}"


class Field(NamedTuple):
    """A field: its name in Go, its key in JSON, its type. ``made``: a missing field is an empty map or slice, not nil."""

    name: str
    key: str
    type: Type
    made: bool = False


class Struct(Type):
    """A Go struct. ``pointer``: whether a map holds the struct by pointer; go-spew then prints <*> before the struct."""

    def __init__(self, name: str, fields: t.Sequence[Field], *, pointer: bool = False) -> None:
        self.name = name
        self.json_name = name
        self.fields = fields
        self.pointer = pointer

    def zero(self) -> dict[str, t.Any]:
        return {one.name: self.initial(one) for one in self.fields}

    def initial(self, field: Field) -> t.Any:
        """The value of a field before decode() reads JSON."""
        if field.made:
            return [] if isinstance(field.type, Slice) else {}
        return field.type.zero()

    def decode(self, data: t.Any, path: str) -> t.Optional[dict[str, t.Any]]:
        if data is None:
            return None if self.pointer else self.zero()
        if not isinstance(data, dict):
            raise self.refuse(data, path)
        found = self.zero()
        for key, value in data.items():
            field = self.field(key)
            if field is not None:
                found[field.name] = field.type.decode(value, f"{path}.{field.key}")
        return found

    def field(self, key: str) -> t.Optional[Field]:
        """The field with a key of JSON: the exact key, else a key that differs only in upper and lower case. None without such a field."""
        exact = (one for one in self.fields if one.key == key)
        return next(exact, None) or next((one for one in self.fields if one.key.lower() == key.lower()), None)

    def text(self, value: t.Optional[t.Mapping[str, t.Any]]) -> str:
        if value is None:
            return "<nil>"
        inner = " ".join(f"{one.name}:({one.type.name}){one.type.text(value[one.name])}" for one in self.fields)
        return f"{'<*>' if self.pointer else ''}{{{inner}}}"


def cpu_list(text: str) -> frozenset[int]:
    """The CPUs of a list such as 0-3,8. Raises GoError with the words of k8s.io/utils/cpuset."""
    for part in text.split(",") if text else ():
        first, dash, last = part.partition("-")
        for word in (first, last) if dash else (first,):
            digits = word[1:] if word[:1] in ("+", "-") else word
            if not (digits.isascii() and digits.isdigit()):
                raise GoError(f'strconv.Atoi: parsing "{word}": invalid syntax')
            if len(digits.lstrip("0")) > 19 or int(digits) > cpuset.MAX_INT64:
                raise GoError(f'strconv.Atoi: parsing "{word}": value out of range')
        if dash and int(first) > int(last):
            raise GoError(f'invalid range "{part}" ({first} > {last})')
    try:
        return cpuset.parse(text)
    except ValueError as error:
        raise GoError(str(error)) from None


def parse(text: str) -> t.Any:
    """The data of a JSON text. Raises GoError with the words of encoding/json."""
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        raise GoError(syntax_error(text, error)) from None
    except RecursionError:
        raise GoError("exceeded max depth") from None


# By message of Python's JSON decoder, what encoding/json says after the invalid character.
CONTEXTS = {
    "Expecting value": "looking for beginning of value",
    "Expecting property name enclosed in double quotes": "looking for beginning of object key string",
    "Illegal trailing comma before end of object": "looking for beginning of object key string",
    "Illegal trailing comma before end of array": "looking for beginning of value",
    "Expecting ':' delimiter": "after object key",
    "Expecting ',' delimiter": "after object key:value pair",
    "Extra data": "after top-level value",
}


def syntax_error(text: str, error: json.JSONDecodeError) -> str:
    """An error of Python's JSON decoder in the words of Go's encoding/json."""
    rest = text[error.pos :].lstrip(" \t\r\n")
    if not rest or error.msg.startswith("Unterminated string"):
        return "unexpected end of JSON input"
    if error.msg.startswith("Invalid control character"):
        return f"invalid character {quoted(rest[0])} in string literal"
    return f"invalid character {quoted(rest[0])} {CONTEXTS.get(error.msg, 'in JSON')}"


def quoted(character: str) -> str:
    """A character as strconv.QuoteRune writes it, for the characters that JSON errors name."""
    known = {"'": r"'\''", '"': "'\"'", "\x00": r"'\x00'", "\n": r"'\n'", "\t": r"'\t'"}
    return known.get(character, f"'{character}'")


def checksum(text: str) -> int:
    """The FNV-1a hash (32 bit) of a text."""
    found = 0x811C9DC5
    for byte in text.encode(errors="surrogatepass"):
        found = (found ^ byte) * 0x01000193 & 0xFFFFFFFF
    return found
