# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Archives that somebody crafted: each is refused with a reason or harmless, and nothing is written anywhere."""

from __future__ import annotations

import bz2
import gzip
import io
import itertools
import lzma
import os
import subprocess
import sys
import tarfile
import tempfile
import typing as t
from pathlib import Path

import pytest
from _core import main
from _core.host.snapshot import archive_tree, recorded_tree
from _core.host.snapshot.archive_tree import BLOCK, EMPTY
from _core.model.values.errors import CorralError

CPUS = "sys/devices/system/cpu/online"
END = 2 * EMPTY
Make = t.Callable[[], t.Iterable[bytes]]


def header(name: bytes, kind: bytes = b"0", size: t.Union[int, bytes] = 0, link: bytes = b"") -> bytes:
    """A header as tar(1) writes it; a size in bytes is taken as it is."""
    octal = size if isinstance(size, bytes) else b"%011o\0" % size
    fields = b"0000644\0" + b"0000000\0" * 2 + octal + b"00000000000\0" + b" " * 8 + kind + link.ljust(100, b"\0")
    text = (name.ljust(100, b"\0") + fields + b"ustar\00000").ljust(BLOCK, b"\0")
    return text[:148] + b"%06o\0 " % sum(text) + text[156:]


def padded(data: bytes) -> bytes:
    return data + bytes(-len(data) % BLOCK)


def member(name: bytes, data: bytes = b"", kind: bytes = b"0", link: bytes = b"") -> bytes:
    return header(name, kind, len(data), link) + padded(data)


def record(key: bytes, value: bytes) -> bytes:
    """A record of an extended header, whose length counts its own digits."""
    rest = b" " + key + b"=" + value + b"\n"
    length = next(n for n in itertools.count(len(rest) + 1) if len(rest) + len(b"%d" % n) == n)
    return b"%d" % length + rest


def pax(*records: tuple[bytes, bytes], kind: bytes = b"x") -> bytes:
    return member(b"PaxHeader", b"".join(record(*one) for one in records), kind)


def link(name: bytes, text: bytes) -> bytes:
    return member(name, kind=b"2", link=text)


def written(file: Path, parts: t.Iterable[bytes]) -> Path:
    with file.open("wb") as out:
        for part in parts:
            out.write(part)
    return file


# Of each archive the message of its refusal, "" where it is harmless: what it does to others than its reader is checked for all.
SMALL: dict[str, tuple[bytes, str]] = {
    "a link to itself, and one out through it": (
        link(b"d", b".") + link(b"e", b"d/" * 30 + b"../" * 30 + b"target") + member(b"e", b"evil"),
        "e: is in it twice, as different kinds",
    ),
    "a file through a link": (link(b"d", b"..") + member(b"d/target", b"evil"), "lies below an entry that is no folder"),
    "a link to a link": (link(b"sys/a", b".") + link(b"sys/a/b", b"../.."), "lies below an entry that is no folder"),
    "links out": (link(b"sys", b"/etc") + link(b"proc", b"../../../.."), ""),
    "links in a circle": (link(b"sys", b"proc") + link(b"proc", b"sys"), ""),
    "a long chain of links": (b"".join(link(b"l%d" % n, b"l%d/." % (n + 1)) for n in range(3000)) + link(b"sys", b"l0"), ""),
    "a link of 4000 dots": (link(b"sys", b"./" * 49) + link(b"proc", b"sys/" * 20), ""),
    "dots": (member(b"sys/../../target", b"evil"), 'has \\"..\\" in its path'),
    "an absolute path": (member(b"/target", b"evil"), "/target: is an absolute path"),
    "a hard link": (member(b"sys/hard", kind=b"1", link=b"/etc/passwd"), "sys/hard: is a hard link"),
    "a character device": (member(b"dev/null", kind=b"3"), "is a device"),
    "a block device": (member(b"dev/sda", kind=b"4"), "is a device"),
    "a FIFO": (member(b"sys/pipe", kind=b"6"), "is a FIFO"),
    "an unknown kind": (member(b"sys/x", kind=b"V"), "is of an unknown kind"),
    "a sparse file of GNU": (member(b"sys/sparse", kind=b"S"), "is a sparse file"),
    "a sparse file of POSIX": (
        pax((b"GNU.sparse.major", b"1"), (b"GNU.sparse.realsize", b"99999999999")) + member(b"sys/sparse", b"1\n0\n"),
        "is a sparse file",
    ),
    "a NUL in a name": (pax((b"path", b"sys/a\0b")) + member(b"x", b"1"), "sys/a\\\\x00b: has a NUL in its name"),
    "an escape sequence in a name": (member(b"sys/\x1b[2J\n/../x"), "\\\\x1b[2J\\\\n"),
    "an absolute path of POSIX": (pax((b"path", b"/target")) + member(b"x", b"1"), "is an absolute path"),
    "dots of GNU": (member(b"L", b"sys/../../target\0", b"L") + member(b"x", b"1"), "in its path"),
    "a file below a file": (member(b"sys", b"1") + member(b"sys/a", b"1"), "sys/a: lies below an entry that is no folder"),
    "a folder replaced by a link": (member(b"sys", kind=b"5") + link(b"sys", b"/etc"), "is in it twice, as different kinds"),
    "a file replaced by a folder": (member(b"sys", b"1") + member(b"sys", kind=b"5"), "is in it twice, as different kinds"),
    "a link with a NUL": (pax((b"linkpath", b"a\0b")) + link(b"sys", b"x"), "is a link to no possible path"),
    "a link to nothing": (link(b"sys", b""), "is a link to no possible path"),
    "a folder with content": (member(b"sys", b"1", b"5"), "is no file and has content"),
    "a name of 100 folders": (member(b"L", b"a/" * 100, b"L") + member(b"x"), "longer or deeper"),
    "a name of 256 bytes": (member(b"L", b"a" * 256, b"L") + member(b"x"), "longer or deeper"),
    "a path of 4 KiB": (member(b"L", b"/".join([b"a" * 200] * 21), b"L") + member(b"x"), "longer or deeper"),
    "a link of 4 KiB": (pax((b"linkpath", b"a/" * 2048)) + link(b"sys", b"x"), "is a link to no possible path"),
    "a file without a name": (member(b"./", b"1"), "has no name"),
    "a header of 1 GiB": (header(b"L", b"L", 1 << 30), "has a header of 1073741824 bytes"),
    "a header of POSIX of 8 GiB": (header(b"x", b"x", b"\x80" + (8 << 30).to_bytes(11, "big")), "has a header of"),
    "a size without end": (header(b"sys", b"0", b"\x80" + b"\xff" * 11), "more than 256 MiB"),
    "a negative size": (header(b"sys", b"0", b"\xff" * 12), "not a tar archive"),
    "a size of POSIX": (pax((b"size", b"99999999999999")) + member(b"sys", b"1"), "more than 256 MiB"),
    "a negative size of POSIX": (pax((b"size", b"-5")) + member(b"sys", b"1"), "is no file and has content"),
    "records without end": (pax(*[(b"a", b"b")] * 100) + member(b"sys/x"), "an extended header cannot be read"),
    "records of false length": (member(b"x", b"9999 path=a\n", b"x") + member(b"sys/x"), "an extended header cannot be read"),
    "a record of no length": (member(b"x", b"0 path=a\n", b"x") + member(b"sys/x"), "an extended header cannot be read"),
    "a size that is no number": (header(b"sys", b"0", b"-0000000001\0"), "not a tar archive"),
    "one name three times": (member(CPUS.encode(), b"0\n") * 3, ""),
    "a file that ends early": (header(b"sys/x", b"0", 5000) + b"1", "it ends too early"),
    "no end": (b"", ""),
}  # fmt: skip


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> t.Iterator[Path]:
    """A folder for an archive, in one that has a file to attack; nothing in it may change, and nothing among temporary files."""
    folder, target = tmp_path / "in/it", tmp_path / "target"
    folder.mkdir(parents=True)
    target.write_text("precious")
    (tmp_path / "tmp").mkdir()
    monkeypatch.setenv("TMPDIR", str(tmp_path / "tmp"))
    monkeypatch.setattr(tempfile, "tempdir", None)
    yield folder
    assert target.read_text() == "precious"
    assert sorted(os.listdir(tmp_path)) == ["in", "target", "tmp"]
    assert os.listdir(tmp_path / "tmp") == []
    assert os.listdir(tmp_path / "in") == ["it"]
    assert os.listdir(folder) == ["x.tgz"]


PACK = {"plain": bytes, "gzip": gzip.compress, "bzip2": bz2.compress, "xz": lzma.compress}


@pytest.mark.parametrize("how", PACK)
@pytest.mark.parametrize("case", SMALL)
def test_a_crafted_archive(
    case: str, how: str, place: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(place)
    data, message = SMALL[case]
    file = written(place / "x.tgz", [PACK[how](data + member(b"etc/x") + END)])
    if "too early" in message:
        file.write_bytes(PACK[how](data))
    for words in (["topology", "--root", str(file)], ["diff", str(file), str(file)]):
        code = main.main(words)
        out, err = capsys.readouterr()
        assert "Traceback" not in err
        assert "\x1b" not in out + err
        if message:
            assert (code, out) == (1, "")
            assert message.replace("\\\\", "\\").replace('\\"', '"') in err
            assert f"corral: {file}: " in err
            assert "corral snapshot" in err
        else:
            assert code in ((0,) if words[0] == "topology" else (0, 1))  # Two folders without a CPU are no machines.


@pytest.mark.parametrize(
    "data", [b"", b"garbage", b"x" * 2000, b"\x1f\x8b\x08garbage", b"BZh9garbage", b"\xfd7zXZ\0garbage"]
)
def test_what_is_no_archive_is_told(data: bytes, place: Path) -> None:
    with pytest.raises(CorralError, match="no readable snapshot") as refused:
        archive_tree.ArchiveTree(str(written(place / "x.tgz", [data])))
    assert "make one with corral snapshot" in str(refused.value)


@pytest.mark.parametrize("how", PACK)
def test_an_archive_that_ends_anywhere_is_told(how: str, place: Path) -> None:
    whole = PACK[how](member(CPUS.encode(), os.urandom(3000)) + END)
    for end in range(0, len(whole) - 2 * BLOCK - 30, 97):
        with pytest.raises(CorralError, match="no readable snapshot"):
            archive_tree.ArchiveTree(str(written(place / "x.tgz", [whole[:end]])))


def test_a_fifo_or_a_device_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for path in (str(tmp_path / "pipe"), "/dev/null"):
        with pytest.raises(CorralError, match="not a regular file"):
            archive_tree.ArchiveTree(path)


FORMATS = {"ustar": tarfile.USTAR_FORMAT, "gnu": tarfile.GNU_FORMAT, "pax": tarfile.PAX_FORMAT}


@pytest.mark.parametrize("mode", ["w", "w:gz", "w:bz2", "w:xz"])
@pytest.mark.parametrize("form", FORMATS)
def test_what_tar_writes_is_read(form: str, mode: str, tmp_path: Path) -> None:
    """Names longer than a header has room for, links, an umlaut, a folder around all."""
    long = "/".join(["machine", *["d" * 40] * 5, "ä"])
    with tarfile.open(str(tmp_path / "x"), mode, format=FORMATS[form], encoding="utf-8") as archive:  # type: ignore[call-overload]
        info = tarfile.TarInfo(long)
        info.size, info.mtime, info.mode = 4, 1_700_000_000, 0o600
        archive.addfile(info, io.BytesIO(b"text"))
        info = tarfile.TarInfo("machine/l")
        info.type, info.linkname = tarfile.SYMTYPE, "/" + "d" * 40
        archive.addfile(info)
    host = recorded_tree.RecordedHost("x", archive_tree.ArchiveTree(str(tmp_path / "x")))
    path = long[len("machine") :]
    assert (host.read(path), host.mode(path), host.modified(path)) == ("text", 0o600, 1_700_000_000)
    assert host.names("/") == ["d" * 40, "l"]
    assert (host.link("/l"), host.names("/l")) == ("/" + "d" * 40, ["d" * 40])


# Archives that cost: each is read in a process of its own, whose time and memory are counted


def endless(part: bytes, count: int) -> Make:
    return lambda: itertools.repeat(part, count)


def bomb(pack: t.Callable[[bytes], bytes]) -> Make:
    """A file of 2 GiB of nothing: 2 MB by gzip."""
    return lambda: [pack(header(b"sys/x", b"0", 2 << 30)), *[pack(bytes(32 << 20))] * 64]


LARGE: dict[str, tuple[Make, str]] = {
    "a bomb of gzip": (bomb(gzip.compress), "more than 256 MiB"),
    "a bomb of xz": (bomb(lzma.compress), "more than 256 MiB"),
    "a bomb of bzip2": (bomb(bz2.compress), "more than 256 MiB"),
    "a dictionary of xz": (
        lambda: [lzma.compress(END, filters=[{"id": lzma.FILTER_LZMA2, "preset": 0, "dict_size": 512 << 20}])],
        "Memory usage limit exceeded",
    ),
    "a million entries": (endless(gzip.compress(header(b"sys/x") * 1000), 1000), "has more than 200000 entries"),
    "a million folders without an entry": (
        lambda: (header(b"%d/" % number + b"a/" * 30 + b"b") for number in range(7_000)), "has more than 200000 entries",
    ),
    "a million headers": (endless(member(b"g", b"", b"g"), 250_000), "has more than 200000 entries"),
    "long headers": (endless(pax(*[(b"comment", b"x" * 900)] * 60), 5_000), "more than 256 MiB"),
    "long names": (
        lambda: itertools.chain.from_iterable(
            (member(b"L", b"%09d/" % number + b"/".join([b"n" * 250] * 15), b"L"), header(b"x")) for number in range(60_000)
        ),
        "has more than",
    ),
    "files of 4 MiB": (lambda: (header(b"%d" % number, b"0", 4 << 20) + bytes(4 << 20) for number in range(20)), "64 MiB of files"),
    "32 MiB and more, packed": (lambda: [gzip.compress(END), bytes(32 << 20)], "more than 32 MiB, compressed"),
    "nothing, very often": (endless(gzip.compress(b""), 300_000), "not a tar archive"),
}  # fmt: skip
CHILD = """
import os, re, sys
sys.path.insert(0, sys.argv[1])
from _core import main
code = main.main(["topology", "--root", sys.argv[2]])
peak = int(re.search("VmHWM: *([0-9]+)", open("/proc/self/status").read().replace("\t", " ")).group(1))
print(code, peak >> 10, round(sum(os.times()[:2])))
"""


@pytest.mark.parametrize("case", LARGE)
def test_an_archive_that_costs_is_refused_early(case: str, place: Path) -> None:
    make, message = LARGE[case]
    file = written(place / "x.tgz", make())
    core = str(Path(main.__file__).parents[1])
    words = [sys.executable, "-B", "-c", CHILD, core, str(file)]
    done = subprocess.run(words, capture_output=True, check=False, text=True)
    code, mebibytes, seconds = map(int, done.stdout.split())
    assert code == 1
    assert message in done.stderr
    assert mebibytes < 220
    assert seconds < 20
