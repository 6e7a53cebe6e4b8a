# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# This module is private to the collection corral.node.
"""The types of values in a profile: how each type is written, and read from YAML or JSON.

A reader takes any value and returns the plain value, or raises ValueError with a message that says what is wrong and what to do. The
message repeats neither the value nor the path: the caller knows both. YAML 1.1 turns ``on`` into true, ``0770`` into 504 and ``1.0`` into a
float before Corral gets the value; the message says so.
"""

from __future__ import annotations

import re
import typing as t

from ..values import cpuset, duration
from ..values.records import NamedTuple
from ..values.sizes import mode_text


def as_it_is(value: t.Any) -> t.Any:
    """The value unchanged."""
    return value


class Type(NamedTuple):
    """A type of values: ``name`` for the reference page, ``read`` for the parser, ``write`` for the plain data of a value that was read.

    The JSON Schema uses ``bounds`` of a number (both included), the allowed ``words``, and the ``pattern`` of a text.
    """

    name: str
    read: t.Callable[[object], t.Any]
    bounds: t.Optional[tuple[int, int]] = None
    words: tuple[str, ...] = ()
    pattern: str = ""
    write: t.Callable[[t.Any], t.Any] = as_it_is


# The most characters of a text in a profile. Only a CPU list of 8,192 single CPUs would be longer, which no node needs.
TEXT_LIMIT = 16384
WORD_LIMIT = 1024


# More CPUs than the kernel's largest configuration (8192 on x86, NR_CPUS), and as many NUMA nodes (1024, MAX_NUMNODES).
CPU_LIMIT = 1 << 16
NODE_LIMIT = 1 << 10

# Ten years: no duration of a profile needs to be longer.
DURATION_LIMIT = 3650 * duration.UNITS["d"]

CORRAL_SLICE = "corral.slice"
# The slice of Corral's agent: limits that a profile sets on other slices cannot stop the agent.
AGENT_SLICE = "corralagent.slice"
# The beginnings of the names of workloads' slices: with exclusive CPUs at the top of the tree, else within corral.slice.
EXCLUSIVE_PREFIX, SHARED_PREFIX = "corral_", "corral-"


_LABEL = re.compile(r"[a-z0-9](?:[-a-z0-9]{0,61}[a-z0-9])?")
_SLICE = re.compile(r"(?:[A-Za-z0-9:_.]|\\x[0-9a-f]{2}){1,200}\.slice")
_PATH = re.compile(r"/[A-Za-z0-9_.:@+/-]*")
_PCI = re.compile(r"(?:([0-9a-f]{4,8}):)?([0-9a-f]{2}:[0-9a-f]{2}\.[0-7])", re.IGNORECASE)
_INTERFACE = re.compile(r"[A-Za-z0-9_.@+-]{1,15}")  # a subset of what the kernel's dev_valid_name() allows
# Names that systemd accepts too (systemd.exec(5), USER_NAMES): john.doe, and names of a domain such as john@corp.
_ACCOUNT = re.compile(r"[A-Za-z_][A-Za-z0-9_.@-]{0,62}\$?")
_IMAGE = re.compile(r"[A-Za-z0-9*?][A-Za-z0-9._:@/*?+-]{0,511}")
_CONTAINER = re.compile(r"[a-zA-Z0-9*?][a-zA-Z0-9_.*?-]{0,252}")  # libpod's NameRegex
_CONTAINER_LABEL = re.compile(r"([A-Za-z0-9._/-]{1,255})(=[^\n*]{0,1024})?")
_CONTAINER_NAME = re.compile(r"[a-zA-Z0-9][a-zA-Z0-9_.-]{0,62}")
_UNIT = re.compile(r"[A-Za-z0-9:_.\\@*?-]{1,240}\.(service|scope|slice|socket|timer)")
_MODE = re.compile(r"0?[0-7]{3}|[01][0-7]{3}")


def kind(value: object) -> str:
    """The type of a value in words for a person."""
    if value is None:
        return "empty"
    if isinstance(value, bool):
        return "true or false"
    if isinstance(value, int):
        return "a number"
    if isinstance(value, float):
        return "a number with a decimal point"
    if isinstance(value, str):
        return "text"
    if isinstance(value, dict):
        return "a mapping"
    if isinstance(value, (list, tuple)):
        return "a list"
    return "something YAML cannot write"


def read_text(value: object, *, such_as: str) -> str:
    """The text of a value. Raises ValueError with an example for a value that is no text, or is too long."""
    if isinstance(value, bool):
        raise ValueError(f"YAML reads this word as true or false: write text, such as {such_as}, in quotes")
    if not isinstance(value, str):
        raise ValueError(f"is {kind(value)}, not text: write it as in {such_as}")
    if len(value) > TEXT_LIMIT:
        raise ValueError(f"has {len(value)} characters, at most {TEXT_LIMIT} are read: write it as in {such_as}")
    return str(value)


def integer(low: int, high: int) -> Type:
    """The type of a whole number within bounds, both included."""
    span = f"a whole number from {low} to {high}"

    def read(value: object) -> int:
        if isinstance(value, bool):
            raise ValueError(f"YAML reads this word as true or false: write {span}")
        if isinstance(value, float):
            raise ValueError(f"has a decimal point: write {span}")
        if isinstance(value, str):
            digits = value.strip()
            quoted = digits.isascii() and digits.isdigit() and len(digits) <= 20
            raise ValueError(f"is text: write {int(digits)} without quotes" if quoted else f"is text: write {span}")
        if not isinstance(value, int):
            raise ValueError(f"is {kind(value)}: write {span}")
        if not low <= value <= high:
            raise ValueError(f"is too {'small' if value < low else 'large'}: write {span}")
        return int(value)

    return Type(f"number, {low} to {high}", read, bounds=(low, high))


def choice(*words: str, later: tuple[str, ...] = ()) -> Type:
    """The type of a value that is one of these words; words in ``later`` are refused as not yet supported."""
    listed = " or ".join(words)

    def read(value: object) -> str:
        # YAML 1.1 reads a bare off as false.
        if isinstance(value, bool) and "off" in words and value:
            raise ValueError(f"is not known: write {listed}")
        text = "off" if value is False and "off" in words else read_text(value, such_as=words[0])
        if text in words:
            return text
        if text in later:
            raise ValueError(f"not in this version of Corral: write {listed}")
        raise ValueError(f"is not known: write {listed}")

    return Type(listed, read, words=words)


def _boolean(value: object) -> bool:
    if isinstance(value, bool):
        return value
    hint = "write true or false without quotes"
    raise ValueError(f"is {kind(value)}: {hint}")


def _boolean_or_any(value: object) -> str:
    """true, false or any, as a word."""
    if value == "any":
        return "any"
    try:
        return str(_boolean(value)).lower()
    except ValueError as exc:
        raise ValueError(f"{exc}, or any") from None


def _label(value: object) -> str:
    text = read_text(value, such_as="edge-worker")
    if not _LABEL.fullmatch(text):
        raise ValueError(
            "is not a DNS label: write 1 to 63 lower-case letters, digits and inner dashes, such as edge-worker"
        )
    return text


def _cpus(value: object) -> frozenset[int]:
    if isinstance(value, int) and not isinstance(value, bool):
        if 0 <= value < CPU_LIMIT:
            return frozenset((int(value),))
        raise ValueError("is not a CPU number: write a CPU list such as 0-3,8")
    if isinstance(value, (list, tuple)):
        raise ValueError("is a list: write the CPUs as one text, such as 0-3,8")
    text = read_text(value, such_as="0-3,8")
    if not text.strip():
        raise ValueError("names no CPU: write a CPU list such as 0-3,8, or leave the key out")
    try:
        cpus = cpuset.parse(text)
    except ValueError as exc:
        raise ValueError(str(exc)) from None
    if max(cpus) >= CPU_LIMIT:
        raise ValueError(f"names CPU {max(cpus)}, no Linux has that many: name CPUs of the node, such as 0-3,8")
    return cpus


def _mount_path(value: object) -> str:
    text = read_text(value, such_as="/dev/hugepages-2Mi")
    hint = "write an absolute path such as /dev/hugepages-2Mi"
    if not text.startswith("/"):
        raise ValueError(f"is not absolute: {hint}")
    if not _PATH.fullmatch(text):
        raise ValueError(f"has characters other than letters, digits and _ . : @ + - /: {hint}")
    parts = text[1:].split("/")
    if any(part in ("", ".", "..") for part in parts):
        raise ValueError(f"has an empty part, . or .. in it: {hint}")
    if len(text) > 1024 or any(len(part) > 255 for part in parts) or mount_unit_length(text) > 255:
        raise ValueError("is too long for the name of a mount unit: write a shorter path")
    if _hides_system(parts):
        raise ValueError(f"would hide a part of the system: {hint}")
    return text


# For each parent folder, the folders that a mount must not cover, since the mount would hide a part of the system.
_SYSTEM_FOLDERS = {
    "": ("bin", "boot", "dev", "etc", "home", "lib", "lib64", "media", "mnt", "opt", "root", "run", "sbin", "srv", "tmp", "usr", "var"),
    "dev": ("pts", "shm"),
    "run": ("systemd", "user"),
    "usr": ("bin", "lib", "lib64", "libexec", "local", "sbin", "share"),
    "var": ("cache", "lib", "log", "run", "spool", "tmp"),
}  # fmt: skip


def _hides_system(parts: list[str]) -> bool:
    if parts[0] in ("proc", "sys", "etc", "boot"):
        return True
    first, last = ("", parts[0]) if len(parts) == 1 else (parts[0], parts[1])
    return len(parts) <= 2 and last in _SYSTEM_FOLDERS.get(first, ())


def mount_unit_length(path: str) -> int:
    """The length of the name of the mount unit of ``path``: dashes and special characters become four characters each (systemd.unit(5))."""
    plain = sum(1 if char.isalnum() or char in "/:_." else 4 for char in path.strip("/"))
    return plain + len(".mount")


def _mode(value: object) -> int:
    """Permission bits."""
    if isinstance(value, int) and not isinstance(value, bool):
        raise ValueError(f'YAML makes a number of unquoted digits: write it in quotes, such as "{_mode_meant(value)}"')
    text = read_text(value, such_as='"0770"')
    if not _MODE.fullmatch(text):
        raise ValueError('is not a mode of three octal digits (and the sticky bit): write it in quotes, such as "0770"')
    return int(text, 8)


def _mode_meant(value: int) -> str:
    """The mode that the user probably wrote. YAML reads 0770 as the number 504, and 770 as the number 770.

    So a number may be the mode itself, or its octal digits: the result is the first that is a sensible mode, else 0770.
    """
    digits = str(value) if 0 <= value < 1 << 20 else ""
    for text in (mode_text(value) if 0 <= value <= 0o1777 else "", f"0{digits}"):
        if re.fullmatch(r"[01][67][0-7][0-7]", text) and text[1] >= text[2] >= text[3]:
            return text
    return "0770"


def _slice(value: object) -> str:
    """A top-level slice of the system, or init.scope."""
    text = read_text(value, such_as="system.slice")
    hint = "name a top-level slice such as system.slice, or init.scope"
    if text == "init.scope":
        return text
    if text.endswith((".service", ".scope")):
        raise ValueError(f"is not a slice; units inherit the CPUs of theirs: {hint}")
    if is_own(text):
        raise ValueError(f"is Corral's own and placed by itself: {hint}")
    if text == "-.slice":
        raise ValueError(f"is the root of all slices: {hint}")
    if re.fullmatch(r"[A-Za-z0-9:_.\\-]+\.slice", text) and "-" in text:
        raise ValueError(f"lies within {_first(text)}, a dash nests slices: {hint}")
    if not _SLICE.fullmatch(text):
        raise ValueError(f"is not the name of a slice: {hint}")
    return text


def is_own(unit: str) -> bool:
    """Whether a slice is Corral's: the slice of the shared pool, of the isolated pool, of the agent, or of a workload."""
    return unit in (CORRAL_SLICE, AGENT_SLICE) or (
        unit.startswith((EXCLUSIVE_PREFIX, SHARED_PREFIX)) and unit.endswith(".slice")
    )


def read_slice_or_corral(value: object) -> str:
    """A top-level slice of the system, init.scope, or corral.slice."""
    return CORRAL_SLICE if value == CORRAL_SLICE else _slice(value)


def _first(name: str) -> str:
    return name.split("-", 1)[0] + ".slice" if not name.startswith("-") else "another slice"


def _near(value: object) -> str:
    """A network interface, or a PCI address in full and lower case (0000:3b:00.0)."""
    text = read_text(value, such_as="ens1f0")
    pci = _PCI.fullmatch(text)
    if pci:
        return f"{pci.group(1) or '0000'}:{pci.group(2)}".lower()
    if _INTERFACE.fullmatch(text) and text.strip("."):
        return text
    raise ValueError("is neither a network interface nor a PCI address: write one such as ens1f0 or 0000:3b:00.0")


def _account(value: object) -> str:
    text = read_text(value, such_as="qemu")
    if not _ACCOUNT.fullmatch(text):
        raise ValueError(
            "is not the name of an account: write letters, digits, _ . @ and -, not a digit first, such as qemu"
        )
    return text


def _node(value: object) -> int:
    """The id of a NUMA node, also as the key of a mapping (JSON has text keys only)."""
    if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) <= 4:
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < NODE_LIMIT:
        raise ValueError('is not the number of a NUMA node: write one such as "0"')
    return int(value)


def _place(*words: str) -> t.Callable[[object], int | str]:
    """A reader of the id of a NUMA node or one of these words."""

    def read(value: object) -> int | str:
        if isinstance(value, str) and value in words:
            return value
        try:
            return _node(value)
        except ValueError:
            listed = " or ".join([", ".join(words[:-1]), words[-1]])
            raise ValueError(f'is not a NUMA node: write a number such as "0", or {listed}') from None

    return read


def read_duration(value: object, low: int = 0, high: int = DURATION_LIMIT) -> int:
    """Seconds, from a length of time with its unit."""
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        such_as = f"{value}s" if isinstance(value, int) and 0 <= value <= DURATION_LIMIT else "90s"
        raise ValueError(f"has no unit: write seconds as {such_as}, or such as 2m, 1h30m or 7d")
    seconds = duration.parse(read_text(value, such_as="2m").strip())
    if not low <= seconds <= high:
        raise ValueError(f"is out of bounds: write {duration.text(low)} to {duration.text(high)}")
    return seconds


def _interval(value: object) -> int:
    return read_duration(value, low=10)


def _wait(value: object) -> int:
    return read_duration(value, low=10, high=duration.UNITS["d"])


def _command_word(value: object) -> str:
    """A word of a command. No shell reads the command."""
    text = read_text(value, such_as="/usr/local/bin/healthy")
    if not 0 < len(text) <= WORD_LIMIT or not text.isprintable():
        raise ValueError(f"is not a word of a command: write 1 to {WORD_LIMIT} printable characters")
    return text


def _pattern(pattern: re.Pattern[str], such_as: str, characters: str) -> t.Callable[[object], str]:
    """A reader of text that fits a pattern."""

    def read(value: object) -> str:
        text = read_text(value, such_as=such_as)
        if not pattern.fullmatch(text):
            raise ValueError(f"is not {characters}: write it as in {such_as}")
        return text

    return read


def _unit(value: object) -> str:
    text = read_text(value, such_as="batch@*.service")
    if _UNIT.fullmatch(text):
        return text
    # systemctl accepts a service without its ending, and Quadlet makes web.service of web.container and of web.kube.
    service = re.sub(r"\.(container|kube)\Z", "", text) + ".service"
    hint = (
        f"did you mean {service}?"
        if _UNIT.fullmatch(service) and service.count(".") == 1
        else "write it as in batch@*.service"
    )
    raise ValueError(f"is not the full name of a unit: {hint}")


def _container_label(value: object) -> str:
    text = read_text(value, such_as="app=batch")
    key, equals, value_of = text.partition("=")
    if equals and "*" in value_of and _CONTAINER_LABEL.fullmatch(key):
        raise ValueError(f"is compared as it is, * is no pattern in a label: write {key} for any value of it")
    if not _CONTAINER_LABEL.fullmatch(text) or not text.isprintable():
        raise ValueError("is not a label, KEY or KEY=VALUE: write it as in app=batch")
    return text


BOOLEAN = Type("true or false", _boolean)
BOOLEAN_OR_ANY = Type("true, false or any", _boolean_or_any)
LABEL = Type("DNS label", _label, pattern=_LABEL.pattern)
CPUS = Type("CPU list", _cpus, bounds=(0, CPU_LIMIT - 1), pattern="[0-9, \\t-]+", write=cpuset.format)
MOUNT_PATH = Type("absolute path", _mount_path, pattern=_PATH.pattern)
MODE = Type("octal mode in quotes", _mode, pattern=_MODE.pattern, write=mode_text)
SLICE = Type("top-level slice", _slice, pattern=rf"{_SLICE.pattern}|init\.scope")
SLICE_OR_CORRAL = Type("slice", read_slice_or_corral, pattern=SLICE.pattern)
NEAR = Type("network interface or PCI address", _near)
ACCOUNT = Type("account name", _account, pattern=_ACCOUNT.pattern)
NODE = Type("NUMA node", _node, bounds=(0, NODE_LIMIT - 1), pattern="[0-9]{1,4}")
NODE_WITH_CPUS = Type("NUMA node, first or last", _place("first", "last"), NODE.bounds, ("first", "last"), NODE.pattern)
NODES = Type(
    "NUMA node, each, first or last",
    _place("each", "first", "last"),
    NODE.bounds,
    ("each", "first", "last"),
    NODE.pattern,
)
DURATION = Type("length of time", read_duration, write=duration.text)
INTERVAL = Type("length of time, from 10s", _interval, write=duration.text)
WAIT = Type("length of time, 10s to 1d", _wait, write=duration.text)
COMMAND_WORD = Type("word of a command", _command_word)
IMAGE = Type("image name", _pattern(_IMAGE, "quay.example/base:*", "the name of an image"), pattern=_IMAGE.pattern)
CONTAINER = Type(
    "container name", _pattern(_CONTAINER, "batch-*", "the name of a container or pod"), pattern=_CONTAINER.pattern
)
CONTAINER_LABEL = Type("label", _container_label, pattern=_CONTAINER_LABEL.pattern)
CONTAINER_NAME = Type(
    "container name",
    _pattern(_CONTAINER_NAME, "app", "the name of a container, without * and ?"),
    pattern=_CONTAINER_NAME.pattern,
)
UNIT = Type("unit name", _unit, pattern=_UNIT.pattern)
