# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# This module is private to the collection corral.node.
"""A snapshot read into memory: a tar archive, plain or compressed by gzip, bzip2 or xz.

Nothing is unpacked onto a disk. tarfile is not used because it bounds neither the length of a name nor the number of entries. For
comparison: the largest recorded machine, with 128 CPUs, has 11,565 entries, 11 MB of tar in 0.3 MB of gzip, names of 137 bytes in 8
folders, and no file above 54 kB. A machine with 1,024 CPUs has eight times as many entries.
"""

from __future__ import annotations

import errno
import os
import stat
import typing as t
import zlib

from ...model.values.errors import CorralError, refusal
from ..files import READ_LIMIT
from ..user_file import regular_file

MOST_PACKED = 32 << 20  # bytes of a compressed file
MOST_BYTES = 256 << 20  # bytes of the tar, in which the smallest file has 1 KiB
MOST_KEPT = 64 << 20  # bytes of the contents and names of all files
MOST_ENTRIES = 200_000  # A folder without an entry in the tar counts too.
MOST_OF_HEADER = 64 << 10  # bytes of an extended header: two names, each as long as PATH_MAX, and attributes
MOST_RECORDS = 64  # records in an extended header
LONGEST_PATH, LONGEST_NAME, DEPTH = 4095, 255, 64
LAST_SECOND = 253402300799  # the last second of the year 9999
PIECE = 256 << 10
DICTIONARY = 128 << 20  # the memory that xz may take: xz -9 takes 65 MiB

BLOCK = 512
EMPTY = bytes(BLOCK)
KINDS = {
    b"1": "a hard link",
    b"3": "a device",
    b"4": "a device",
    b"6": "a FIFO",
    b"S": "a sparse file",
}
MADE_BY = "make one with corral snapshot"


class Entry:
    """A file, folder or link, with the fields of os.stat_result that callers use."""

    __slots__ = ("content", "st_mode", "st_mtime")

    def __init__(self, mode: int, written: int, content: t.Any) -> None:
        self.st_mode = mode
        self.st_mtime = written
        self.content = content

    st_ino = st_rdev = st_uid = 0
    st_nlink = 1  # An archive does not count links.

    @property
    def st_ctime(self) -> int:
        """The time of the last write: an archive has no other time."""
        return self.st_mtime

    @property
    def st_mtime_ns(self) -> int:
        """The time of the last write, in nanoseconds."""
        return self.st_mtime * 10**9

    st_ctime_ns = st_mtime_ns

    @property
    def st_size(self) -> int:
        """The size in bytes."""
        return len(self.content)


class ArchiveTree:
    """A tree of entries by real paths: "" is the root, and no part of a path is a link, ".." or "."."""

    def __init__(self, source: str) -> None:
        self.source = source
        self.root = folder_entry()
        self.count = self.kept = 0
        try:
            with regular_file(source) as file:
                self.fill(Bytes(pieces(file)))
        except CorralError:
            raise
        except Exception as error:  # pylint: disable=broad-exception-caught  # zlib, bz2 and lzma have errors of their own
            why = getattr(error, "strerror", None) or str(error).partition("\n")[0].rstrip(":.")
            raise refusal(f"no readable snapshot ({why}): {MADE_BY}", path=source) from None
        names = list(self.root.content)
        if len(names) == 1 and names[0] not in ("sys", "proc"):  # All entries may be in one folder.
            only = self.root.content[names[0]]
            self.root = only if isinstance(only.content, dict) else self.root

    def close(self) -> None:
        """Nothing to close: the archive is in memory."""

    def look(self, path: str) -> Entry:
        """The entry at a path."""
        here = self.root
        for name in path.split("/")[1:]:
            inner = here.content.get(name) if isinstance(here.content, dict) else None
            if inner is None:
                raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
            here = inner
        return here

    def text(self, path: str) -> str:
        """The text of a link."""
        text: str = self.look(path).content
        return text

    def names(self, path: str) -> t.Iterable[str]:
        """The names in a folder."""
        names: dict[str, Entry] = self.look(path).content
        return names

    def data(self, path: str) -> bytes:
        """The bytes of a file of at most READ_LIMIT bytes."""
        data: bytes = self.look(path).content
        if len(data) > READ_LIMIT:
            raise OSError(errno.EFBIG, os.strerror(errno.EFBIG), path)
        return data

    # Reading the archive

    def refused(self, name: str, message: str) -> CorralError:
        """The refusal of an entry called ``name``."""
        return refusal(f"{message}: not made by corral snapshot, {MADE_BY}", path=self.source, value=name)

    def counted(self, more_bytes: int) -> None:
        """Count an entry, and the bytes of this entry that stay in memory."""
        self.count += 1
        self.kept += more_bytes
        if self.count > MOST_ENTRIES:
            raise refusal(f"has more than {MOST_ENTRIES} entries: record less, or {MADE_BY}", path=self.source)
        if self.kept > MOST_KEPT:
            raise refusal(f"has more than {MOST_KEPT >> 20} MiB of files: record less, or {MADE_BY}", path=self.source)

    def fill(self, source: Bytes) -> None:
        """Read every entry of the archive."""
        more: dict[str, bytes] = {}  # the fields of extended headers for the next entry
        try:
            header = source.take(BLOCK)
        except EOFError:
            raise ValueError("not a tar archive") from None
        while header != EMPTY:
            check(header)
            kind, size = header[156:157], number(header[124:136])
            if kind in (b"x", b"g", b"L", b"K"):
                self.counted(0)
                if size > MOST_OF_HEADER:
                    raise refusal(
                        f"has a header of {size} bytes, and {MOST_OF_HEADER} are the most: {MADE_BY}", path=self.source
                    )
                data = source.take(size)
                source.skip(-size % BLOCK)
                if kind == b"x":
                    more.update(records(data))
                elif kind != b"g":
                    more["path" if kind == b"L" else "linkpath"] = data.rstrip(b"\0")
            else:
                self.add(source, header, int(decoded(more["size"])) if "size" in more else size, more)
                more = {}
            header = source.take(BLOCK)

    def add(self, source: Bytes, header: bytes, size: int, more: t.Mapping[str, bytes]) -> None:
        """Read one entry's content, and put it into the tree."""
        kind = header[156:157]
        name = decoded(more["path"]) if "path" in more else name_of(header)
        parts = self.parts_of(name)
        if kind == b"\0":
            kind = b"5" if name.endswith("/") else b"0"
        if kind not in (b"0", b"2", b"5"):
            raise self.refused(name, f"is {KINDS.get(kind, 'of an unknown kind')}")
        if any(key.startswith("GNU.sparse") for key in more):
            raise self.refused(name, "is a sparse file")
        if size < 0 or (size and kind != b"0"):
            raise self.refused(name, "is no file and has content")
        mode, written = number(header[100:108]) & 0o7777, min(number(header[136:148]), LAST_SECOND)
        if kind == b"5":
            self.put(name, parts, Entry(stat.S_IFDIR | mode, written, {}))
        elif kind == b"2":
            text = decoded(more.get("linkpath", header[157:257].partition(b"\0")[0]))
            if not text or "\0" in text or len(text) > LONGEST_PATH:
                raise self.refused(name, "is a link to no possible path")
            self.counted(len(text))
            self.put(name, parts, Entry(stat.S_IFLNK | mode, written, text))
        else:
            if size > MOST_BYTES:
                raise too_long()
            data = source.take(min(size, READ_LIMIT + 1))  # A larger file is unreadable, as on a live machine.
            self.counted(len(data))
            source.skip(size - len(data) + -size % BLOCK)
            self.put(name, parts, Entry(stat.S_IFREG | mode, written, data))

    def parts_of(self, name: str) -> list[str]:
        """The path of an entry as a list: its folders, and last its own name."""
        if name.startswith("/"):
            raise self.refused(name, "is an absolute path")
        if "\0" in name:
            raise self.refused(name, "has a NUL in its name")
        parts = [part for part in name.split("/") if part not in ("", ".")]
        if ".." in parts:
            raise self.refused(name, 'has ".." in its path')
        if len(name) > LONGEST_PATH or len(parts) > DEPTH or any(len(part) > LONGEST_NAME for part in parts):
            raise self.refused(name, "has a name longer or deeper than a machine's files")
        return parts

    def put(self, name: str, parts: list[str], entry: Entry) -> None:
        """Set an entry in its folder; missing folders are made."""
        here = self.root
        if not parts:
            if not isinstance(entry.content, dict):
                raise self.refused(name, "has no name")
            return
        for part in parts[:-1]:
            inner = here.content.get(part)
            if inner is None:
                self.counted(len(part))
                inner = folder_entry()
                here.content[part] = inner
            elif not isinstance(inner.content, dict):
                raise self.refused(name, "lies below an entry that is no folder")
            here = inner
        last = parts[-1]
        before = here.content.get(last)
        if before is not None and type(before.content) is not type(entry.content):
            raise self.refused(name, "is in it twice, as different kinds")
        if before is not None and isinstance(before.content, dict):
            entry.content = before.content
        self.counted(len(last))
        here.content[last] = entry


class Bytes:
    """Reads the bytes of a tar in their order, at most MOST_BYTES."""

    def __init__(self, source: t.Iterator[bytes]) -> None:
        self.source = source
        self.piece, self.at, self.seen = b"", 0, 0

    def take(self, size: int) -> bytes:
        """The next ``size`` bytes. Raises EOFError if fewer bytes are left."""
        if size <= len(self.piece) - self.at:
            self.at += size
            return self.piece[self.at - size : self.at]
        parts = []
        while size:
            parts.append(self.piece[self.at : self.at + size])
            size -= self.passed(size)
        return b"".join(parts)

    def skip(self, size: int) -> None:
        """Skip the next ``size`` bytes."""
        while size:
            size -= self.passed(size)

    def passed(self, size: int) -> int:
        """Skip at most ``size`` bytes, but no more than the present piece has. Returns the number of skipped bytes."""
        done = min(size, len(self.piece) - self.at)
        self.at += done
        if done < size:
            self.piece, self.at = next(self.source, b""), 0
            self.seen += len(self.piece)
            if not self.piece:
                raise EOFError("it ends too early")
            if self.seen > MOST_BYTES:
                raise too_long()
        return done


def too_long() -> Exception:
    return ValueError(f"it has more than {MOST_BYTES >> 20} MiB")


def pieces(file: t.BinaryIO) -> t.Iterator[bytes]:
    """The decompressed bytes of an archive. Raises the errors of its decompressor."""
    start = file.read(BLOCK)
    file.seek(0)
    make = method_of(start)
    if make is None:
        yield from iter(lambda: file.read(PIECE), b"")
        return
    if os.fstat(file.fileno()).st_size > MOST_PACKED:
        raise ValueError(f"it has more than {MOST_PACKED >> 20} MiB, compressed")
    data = file.read(PIECE)
    while data:
        decompressor = make()
        while not decompressor.eof:
            piece = decompressor.decompress(data, PIECE)
            # zlib returns the bytes that it has not used; bz2 and lzma keep such bytes themselves.
            data = getattr(decompressor, "unconsumed_tail", b"")
            if piece:
                yield piece
            elif not data and not decompressor.eof and getattr(decompressor, "needs_input", True):
                data = file.read(PIECE)
                if not data:
                    raise EOFError("it ends too early")
        data = decompressor.unused_data or file.read(PIECE)


def method_of(start: bytes) -> t.Optional[t.Callable[[], t.Any]]:
    """The constructor of the decompressor for a file that begins with the bytes ``start``; None for a plain tar."""
    if start.startswith(b"\x1f\x8b"):
        return lambda: zlib.decompressobj(16 + zlib.MAX_WBITS)
    if start.startswith(b"BZh"):
        import bz2

        return bz2.BZ2Decompressor
    if start.startswith(b"\xfd7zXZ\x00"):
        import lzma

        return lambda: lzma.LZMADecompressor(lzma.FORMAT_XZ, memlimit=DICTIONARY)
    return None


def check(header: bytes) -> None:
    """Raise ValueError if a tar header has a wrong checksum. The checksum counts its own field as blanks."""
    if number(header[148:156]) != sum(header) - sum(header[148:156]) + 256:
        raise ValueError("not a tar archive")


def number(field: bytes) -> int:
    """A number in octal digits, or in base 256 where the first bit is set."""
    if field[:1] == b"\x80":
        return int.from_bytes(field[1:], "big")
    digits = field.partition(b"\0")[0].strip() or b"0"
    if not digits.isdigit():
        raise ValueError("not a tar archive")
    return int(digits, 8)


def name_of(header: bytes) -> str:
    """The name in a header; POSIX headers may have the name's beginning in a second field."""
    name, prefix = header[:100].partition(b"\0")[0], b""
    if header[257:263] == b"ustar\0":
        prefix = header[345:500].partition(b"\0")[0]
    return decoded(prefix + b"/" + name if prefix else name)


def records(data: bytes) -> t.Iterator[tuple[str, bytes]]:
    """The keys and values of an extended header of POSIX. Each entry is ``LENGTH KEY=VALUE`` and a line feed."""
    at = 0
    for dummy in range(MOST_RECORDS):
        if at >= len(data) or data[at] == 0:
            return
        blank = data.find(b" ", at, at + 8)
        digits = data[at:blank]
        end = at + int(digits) if blank > 0 and digits.isdigit() else 0
        key, equals, value = data[blank + 1 : end - 1].partition(b"=")
        if not equals or end > len(data) or data[end - 1 : end] != b"\n":
            break
        yield decoded(key), value
        at = end
    else:
        if at >= len(data):
            return
    raise ValueError("damaged: an extended header cannot be read")


def decoded(data: bytes) -> str:
    return data.decode("utf-8", "surrogateescape")


def folder_entry() -> Entry:
    return Entry(stat.S_IFDIR | 0o755, 0, {})
