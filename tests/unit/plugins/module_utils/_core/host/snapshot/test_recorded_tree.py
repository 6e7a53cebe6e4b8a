# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A recorded machine, in a folder or an archive: links stay inside, nothing is opened but files and folders, nothing is written."""

from __future__ import annotations

import errno
import os
import socket
import stat
import tarfile
import typing as t
from pathlib import Path

import pytest
from _core.host import lock
from _core.host.files import READ_LIMIT, Host, Unreadable
from _core.host.snapshot import folder_tree, recorded_tree
from _core.model.values.errors import CorralError


@pytest.fixture(params=["folder", "archive"])
def recorded(request: pytest.FixtureRequest, tmp_path: Path) -> t.Iterator[t.Callable[[], Host]]:
    """What opens the tree in ``tmp_path / "tree"``, as a folder or as an archive of it."""
    (tmp_path / "tree").mkdir()
    (tmp_path / "secret").write_text("secret\n")
    opened: list[t.Any] = []

    def host() -> Host:
        root = tmp_path / "tree"
        if request.param == "archive":
            root = tmp_path / "tree.tar"
            with tarfile.open(root, "w") as archive:
                archive.add(tmp_path / "tree", "tree")
        opened.append(recorded_tree.opened(str(root)))
        return t.cast("Host", opened[-1].__enter__())

    yield host
    for one in opened:
        one.__exit__(None, None, None)


def made(tmp_path: Path, files: t.Mapping[str, str], links: t.Mapping[str, str]) -> None:
    for path, text in files.items():
        (tmp_path / "tree" / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "tree" / path).write_text(text)
    for path, text in links.items():
        (tmp_path / "tree" / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "tree" / path).symlink_to(text)


def test_a_file_is_read_whole_or_not_at_all(recorded: t.Callable[[], Host], tmp_path: Path) -> None:
    made(tmp_path, {"sys/fits": "x" * READ_LIMIT, "sys/large": "x" * (READ_LIMIT + 1), "sys/z": "1\n"}, {})
    host = recorded()
    assert len(host.read("/sys/fits") or "") == READ_LIMIT
    large = host.attempt(host.read, "/sys/large")
    assert isinstance(large, Unreadable)
    assert large.errno == errno.EFBIG
    assert host.read("/sys/z") == "1\n"


def test_links_are_resolved_inside(recorded: t.Callable[[], Host], tmp_path: Path) -> None:
    made(
        tmp_path,
        {"etc/passwd": "its own\n", "sys/real/a": "1\n", "sys/top": "2\n"},
        {
            "sys/absolute": "/etc/passwd", "sys/dots": "../" * 30 + "etc/passwd", "sys/folder": "real", "sys/back": "folder/../top",
            "sys/none": "/none", "sys/round": "round", "sys/d": ".", "sys/deep": "d/" * 39 + "top", "sys/deeper": "d/" * 40 + "top",
            "sys/out": f"{tmp_path}/secret", "up": "..", "sys/file": "top/../top", "sys/long": "./" * 990 + "top",
            "sys/longer": "./" * 2000 + "top",
        },
    )  # fmt: skip
    host = recorded()
    assert [host.read(f"/sys/{name}") for name in ("absolute", "dots", "folder/a", "back", "deep", "long")] == [
        "its own\n", "its own\n", "1\n", "2\n", "2\n", "2\n",
    ]  # fmt: skip
    assert host.read("/up/up/etc/passwd") == "its own\n"
    assert host.read("/../../etc/passwd") == "its own\n"
    for name in ("none", "round", "deeper", "out", "file", "longer", "top/x"):
        assert host.read(f"/sys/{name}") is None
        assert host.exists(f"/sys/{name}") is False
    assert host.read("/sys/absolute", follow=False) is None
    assert (host.link("/sys/absolute"), host.link("/sys/top"), host.link("/sys/nothing")) == ("/etc/passwd", None, None)


def test_it_answers_as_a_machine_does(recorded: t.Callable[[], Host], tmp_path: Path) -> None:
    made(tmp_path, {"sys/a": "1\n", "sys/d/b": "2\n"}, {"sys/l": "d", "sys/broken": "none"})
    (tmp_path / "tree/sys/a").chmod(0o640)
    os.utime(tmp_path / "tree/sys/a", (1_700_000_000, 1_700_000_000))
    host, plain = recorded(), Host(str(tmp_path / "tree"))
    for path in ("/", "/sys", "/sys/", "/sys/a", "/sys/l", "/sys/l/b", "/sys/broken", "/none"):
        for ask in (
            Host.read,
            Host.names,
            Host.folders,
            Host.exists,
            Host.is_dir,
            Host.link,
            Host.device,
            Host.is_claimed,
        ):
            assert getattr(host, ask.__name__)(path) == ask(plain, path), (ask.__name__, path)
    assert (host.mode("/sys/a"), host.modified("/sys/a"), host.mode("/none"), host.changed("/none")) == (0o640, 1_700_000_000, None, None)  # fmt: skip
    assert (host.read("/sys/a\0"), host.exists("/sys/a\0")) == (None, False)
    assert host.stamp("/sys/a") == host.stamp("/sys/../sys/a") != host.stamp("/sys/l/b")
    assert (host.links("/none"), host.links("/sys")) == (None, 1)
    assert (host.writable("/sys/a"), host.writable("/none"), host.read_only("/sys"), host.space("/sys")) == (
        True,
        False,
        False,
        None,
    )


def test_it_is_neither_written_nor_asked_for_commands(recorded: t.Callable[[], Host], tmp_path: Path) -> None:
    made(tmp_path, {"sys/a": "1\n"}, {"run": str(tmp_path)})
    host = recorded()
    before = sorted(map(str, tmp_path.rglob("*")))
    acts: list[t.Callable[[], t.Any]] = [
        lambda: host.write_value("/sys/a", "2"),
        lambda: host.write_value_within("/sys/a", "2", 1.0),
        lambda: host.write_file("/run/b", "2"),
        lambda: host.write_link("/run/b", "2"),
        lambda: host.remove("/sys/a"),
        lambda: host.make_dir("/run/d"),
        lambda: host.sync("/sys"),
        lambda: lock.Lock(host).take(),
    ]
    for act in acts:
        with pytest.raises(OSError, match="Read-only file system") as refused:
            act()
        assert refused.value.errno == errno.EROFS
    host.remove_dir("/sys")
    assert sorted(map(str, tmp_path.rglob("*"))) == before
    assert (host.live, host.answers, host.run("true").code) == (False, False, 127)


def test_nothing_of_a_folder_is_opened_but_files_and_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made(tmp_path, {"dev/file": "1\n", "sys/file": "1\n"}, {})
    os.mkfifo(tmp_path / "tree/dev/fifo")
    with socket.socket(socket.AF_UNIX) as one:
        one.bind(str(tmp_path / "tree/dev/socket"))
    names = ["fifo", "socket"]
    if os.geteuid() == 0:
        os.mknod(tmp_path / "tree/dev/null", stat.S_IFCHR | 0o666, os.makedev(1, 3))
        names.append("null")
    opened: list[int] = []
    real = os.open

    def noted(path: t.Any, flags: int, *words: t.Any, **more: t.Any) -> int:
        file = real(path, flags, *words, **more)
        if not flags & os.O_PATH:
            opened.append(os.fstat(file).st_mode)
        return file

    monkeypatch.setattr(os, "open", noted)
    with recorded_tree.opened(str(tmp_path / "tree")) as host:
        assert host.read("/dev/file") == "1\n"
        assert host.names("/dev") == sorted([*names, "file"])
        for name in names:
            assert host.read(f"/dev/{name}") is None
            assert host.exists(f"/dev/{name}")
            assert host.device(f"/dev/{name}") == ("char/1:3" if name == "null" else None)
            assert host.is_claimed(f"/dev/{name}") is (name == "null")
            with pytest.raises(PermissionError):  # where it took a file's place since that was looked at
                t.cast("recorded_tree.RecordedHost", host).tree.data(f"/dev/{name}")
    assert [mode for mode in opened if not stat.S_ISREG(mode) and not stat.S_ISDIR(mode)] == []


def test_a_folder_that_is_exchanged_for_a_link_meanwhile_is_not_followed(tmp_path: Path) -> None:
    made(tmp_path, {"sys/a": "1\n", "sys/b": "2\n"}, {})
    with recorded_tree.opened(str(tmp_path / "tree")) as host:
        assert host.read("/etc/secret") is None
        assert host.read("/sys/a") == "1\n"
        t.cast("recorded_tree.RecordedHost", host).tree.open.popitem()  # type: ignore[union-attr]
        (tmp_path / "tree/sys").rename(tmp_path / "away")
        (tmp_path / "tree/sys").symlink_to(tmp_path / "away")
        assert host.read("/sys/b") is None


def test_many_and_deep_folders(tmp_path: Path) -> None:
    wide = {f"sys/{number}/a": "1\n" for number in range(3 * folder_tree.MOST_OPEN)}
    made(tmp_path, {**wide, "d/" * 62 + "a": "2\n", "e/" * 80 + "a": "3\n"}, {})
    before = len(os.listdir("/proc/self/fd"))
    with recorded_tree.opened(str(tmp_path / "tree")) as host:
        assert {host.read(f"/{path}") for path in wide} == {"1\n"}
        assert host.read("/" + "d/" * 62 + "a") == "2\n"
        assert host.read("/" + "e/" * 80 + "a") is None
        assert len(os.listdir("/proc/self/fd")) < before + 2 * folder_tree.MOST_OPEN + folder_tree.DEPTH
    assert len(os.listdir("/proc/self/fd")) == before


def test_the_machine_itself_is_live(tmp_path: Path) -> None:
    for path in ("/", "//", "/etc/.."):
        with recorded_tree.opened(path) as host:
            assert host.live
    (tmp_path / "l").symlink_to("/")
    with recorded_tree.opened(str(tmp_path / "l")) as host:
        assert not host.live


def test_a_folder_of_no_machine_is_refused(tmp_path: Path) -> None:
    """A folder that a typing error named was a machine without CPUs."""
    (tmp_path / "etc").mkdir()
    with (
        pytest.raises(CorralError, match="holds neither sys nor proc: give the folder of a machine"),
        recorded_tree.opened(str(tmp_path)),
    ):
        pass
