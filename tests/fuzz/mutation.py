# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Changes to bytes, to data and to trees: what is damaged by chance, and what an attacker would write."""

from __future__ import annotations

import copy
import os
import random
import re
import shutil
import typing as t
from pathlib import Path

# A text with these two on lines of their own has forged a line: see oracles.py.
BEFORE_FORGED, FORGED = "antecedent", "forgedline"
HOSTILE = (
    f"{BEFORE_FORGED}\n{FORGED}", f"{BEFORE_FORGED}\r\n{FORGED}", "\x1b]0;title\x07", "\x1b[2J\x1b[31mred", "\0", "a\0b", "\x7f", "\x9b31m",
    "\u202egpj.exe", "\u2066x\u2069", "\u2028", "\x85", "\ud800", "\ufeff", "<script>alert(1)</script>", "'\"><img src=x>", "{{ 7 * 7 }}",
    "{% raw %}", "]]>", "&#27;", "| a | b |", "`id`", "$(id)", "../../../etc/passwd", "/", "..", ".", "", " ", "-rf", "--now", "%n", "%i",
    "\r<2>emergency", "x" * 5000, "*", "[", "?", "~root", "#", ":", "=", ",", ";",
)  # fmt: skip
NUMBERS = (
    "0", "-1", "1", "7", "255", "4096", "2147483648", "4294967296", "9223372036854775808", "18446744073709551616", "1e999", "-0", "0x10", "1_000",
    "nan", "inf", "0-", "-0-1", "0-99999999999", "3-1", "0-3:2/4", "٣", "²", "9" * 5000, "1.5", "100%", "1Gi", "-1Gi", "1e400Gi", "00",
)  # fmt: skip
SCALARS: tuple[t.Any, ...] = (
    None,
    True,
    False,
    0,
    -1,
    1,
    3,
    1 << 31,
    1 << 63,
    1 << 70,
    0.5,
    1e300,
    [],
    {},
    [[]],
    [None],
    {"": None},
)
HUGE = 5 << 20  # above the size of what is read of a file

Bytes = t.Callable[[random.Random, bytes], bytes]


def word(chance: random.Random) -> str:
    """A text that no honest program writes, or a number at the end of a range."""
    return chance.choice(HOSTILE if chance.random() < 0.6 else NUMBERS)


def encoded(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")


def somewhere(chance: random.Random, data: bytes) -> tuple[int, int]:
    """The ends of a short part."""
    start = chance.randint(0, len(data))
    return start, min(len(data), start + chance.choice((1, 1, 4, 16, 200)))


def flipped(chance: random.Random, data: bytes) -> bytes:
    start = chance.randrange(len(data)) if data else 0
    return data[:start] + bytes([chance.randrange(256)]) + data[start + 1 :]


def inserted(chance: random.Random, data: bytes) -> bytes:
    start, dummy = somewhere(chance, data)
    return data[:start] + encoded(word(chance)) + data[start:]


def cut_out(chance: random.Random, data: bytes) -> bytes:
    start, end = somewhere(chance, data)
    return data[:start] + data[end:]


def truncated(chance: random.Random, data: bytes) -> bytes:
    return data[: chance.randint(0, len(data))]


def doubled(chance: random.Random, data: bytes) -> bytes:
    start, end = somewhere(chance, data)
    return data[:end] + data[start:end] * chance.choice((1, 2, 50)) + data[end:]


def with_word(chance: random.Random, data: bytes) -> bytes:
    """One word of the text is another one."""
    words = list(re.finditer(rb"[\w.+-]+", data))
    if not words:
        return encoded(word(chance))
    found = chance.choice(words)
    other = encoded(word(chance)) if chance.random() < 0.7 else chance.choice(words).group()
    return data[: found.start()] + other + data[found.end() :]


def with_lines_moved(chance: random.Random, data: bytes) -> bytes:
    lines = data.splitlines(keepends=True)
    if len(lines) > 1:
        lines.insert(chance.randrange(len(lines)), lines.pop(chance.randrange(len(lines))))
    return b"".join(lines)


def replaced(chance: random.Random, dummy: bytes) -> bytes:
    if chance.random() < 0.02:
        return chance.choice((b"\0", b"9", b"a,", b"[", b"x\n")) * (HUGE // 2)
    return chance.choice((b"", b"\n", b"\xff\xfe\xfa", b"[" * 3000, b"{}", b"null", b"[]", encoded(word(chance))))


BYTES: tuple[Bytes, ...] = (
    flipped,
    inserted,
    cut_out,
    truncated,
    doubled,
    with_word,
    with_word,
    with_word,
    with_lines_moved,
    replaced,
)


def mutated(chance: random.Random, data: bytes) -> bytes:
    """The bytes with one to three changes."""
    for dummy in range(chance.choice((1, 1, 1, 2, 3))):
        data = chance.choice(BYTES)(chance, data)
    return data[: 2 * HUGE]


def mutated_text(chance: random.Random, text: str) -> str:
    return mutated(chance, encoded(text)).decode("utf-8", "replace")


def places(value: t.Any, path: tuple[t.Any, ...] = ()) -> list[tuple[t.Any, ...]]:
    """The path of each part of some data."""
    found = [path]
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in items:
        found += places(inner, (*path, key))
    return found


def part(value: t.Any, path: t.Iterable[t.Any]) -> t.Any:
    for key in path:
        value = value[key]
    return value


def other_value(chance: random.Random, old: t.Any, whole: t.Any) -> t.Any:
    """What could stand in the place of a value."""
    kind = chance.randrange(8)
    if kind == 0:
        return copy.deepcopy(chance.choice(SCALARS))
    if kind == 1:
        return copy.deepcopy(part(whole, chance.choice(places(whole))))
    if kind == 2:
        return [old] if chance.random() < 0.5 else {word(chance): old}
    if kind == 3 and isinstance(old, list) and old:
        return old * chance.choice((0, 2, 30))
    if kind == 4 and isinstance(old, dict):
        return {**old, word(chance): word(chance)}
    if kind == 5 and isinstance(old, int):
        return old + chance.choice((-1, 1, 1000, -(1 << 40), 1 << 62))
    if isinstance(old, str) and kind in (6, 7):
        return mutated_text(chance, old)
    return word(chance)


def mutated_data(chance: random.Random, data: t.Any, times: int = 0) -> t.Any:
    """The data with one to three parts changed, left out, or of another kind."""
    data = copy.deepcopy(data)
    for dummy in range(times or chance.choice((1, 1, 2, 3))):
        found = places(data)
        path = chance.choice(found)
        if not path:
            path = chance.choice(found)
        if not path:
            data = other_value(chance, data, data)
            continue
        around, key = part(data, path[:-1]), path[-1]
        if chance.random() < 0.15:
            del around[key]
        elif isinstance(around, dict) and chance.random() < 0.1:
            around[word(chance)] = around.pop(key)
        else:
            around[key] = other_value(chance, around[key], data)
    return data


def grafted(chance: random.Random, data: dict[str, t.Any], others: t.Sequence[t.Any]) -> dict[str, t.Any]:
    """Data that is mostly right: parts of other data under the same keys, numbers next to others, keys left out."""
    data = copy.deepcopy(data)
    for dummy in range(chance.choice((1, 2, 4))):
        path = chance.choice([one for one in places(data) if one] or [()])
        around = part(data, path[:-1])
        rest = [other for other in others if path and path in places(other)]
        if not path:
            continue
        if chance.random() < 0.2:
            del around[path[-1]]
        elif isinstance(around[path[-1]], int) and not isinstance(around[path[-1]], bool):
            around[path[-1]] = max(0, around[path[-1]] + chance.choice((-2, -1, 1, 2, 8, 64)))
        elif isinstance(around[path[-1]], list) and chance.random() < 0.3:
            around[path[-1]] = around[path[-1]] * 2
        elif rest:
            around[path[-1]] = copy.deepcopy(part(chance.choice(rest), path))
    section = chance.choice([*chance.choice(others)])
    having = [other for other in others if section in other]
    if having and chance.random() < 0.5:
        data[section] = copy.deepcopy(chance.choice(having)[section])
    return data


# Trees: a change is (path, kind, bytes), where kind says what is there instead.

Change = tuple[str, str, bytes]
LOOPS = (b"loop", b".", b"..", b"/", b"../../../../../../../../etc", b"/proc/self/root", b"/dev/zero", b"x" * 300)


def tree_change(chance: random.Random, root: Path, path: str) -> Change:
    """Another content for a file, or another thing in its place."""
    kind = chance.choice(("bytes",) * 12 + ("missing", "folder", "link", "loop"))
    if kind == "bytes":
        file = root / path
        return path, kind, mutated(chance, file.read_bytes() if file.is_file() else b"")
    return path, kind, chance.choice(LOOPS) if kind == "link" else b""


def added_name(chance: random.Random, folder: str) -> Change:
    """A file of a hostile name beside others."""
    name = f"{word(chance)[:200]}{chance.choice(('', '.slice', '.service', '.json', '.conf'))}".replace(
        "/", "_"
    ).replace("\0", "_")
    name = "_" if name in ("", ".", "..") else name
    return (
        f"{folder}/{name.encode('utf-8', 'replace').decode()}",
        chance.choice(("bytes", "folder")),
        encoded(word(chance)),
    )


class Changed:
    """A tree while it is changed; the way back leaves it as it was."""

    def __init__(self, root: Path, changes: t.Iterable[Change]) -> None:
        self.root, self.changes = Path(os.path.realpath(root)), changes
        self.aside = Path(f"{root}.aside")
        self.done: list[tuple[Path, Path | None]] = []

    def __enter__(self) -> None:
        self.aside.mkdir(exist_ok=True)
        try:
            for path, kind, data in self.changes:
                self.change(self.root / path, kind, data)
        except BaseException:
            self.__exit__()
            raise

    def change(self, place: Path, kind: str, data: bytes) -> None:
        if os.path.realpath(place.parent) != str(place.parent) or not place.parent.is_dir() or place in dict(self.done):
            return  # an earlier change took the folder away, or is there
        kept = self.aside / str(len(self.done)) if os.path.lexists(place) else None
        if kept is not None:
            os.rename(place, kept)
        self.done.append((place, kept))
        if kind == "bytes":
            place.write_bytes(data)
        elif kind == "folder":
            place.mkdir()
        elif kind == "loop":
            place.symlink_to(place.name)
        elif kind == "link":
            place.symlink_to(data.decode())

    def __exit__(self, *dummy: object) -> None:
        for place, kept in reversed(self.done):
            if os.path.islink(place) or os.path.isfile(place):
                place.unlink()
            elif os.path.isdir(place):
                shutil.rmtree(place)
            if kept is not None:
                os.rename(kept, place)
        self.done.clear()
