# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Writes as the kernel sees them: which calls, in which order, and what is left where one of them fails."""

from __future__ import annotations

import errno
import os
import stat
import time
import typing as t
from pathlib import Path

import pytest
from _core.host import state
from _core.host.files import Host, Unreadable

FLUSHED = ["write {0}", "mode {0}", "fsync {0}", "rename {0} {1}", "fsync {2}"]


class Calls:
    """The calls that change files, in their order, by the names that the files have at that moment."""

    def __init__(self, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.root = root
        self.seen: list[str] = []
        self.bytes_at_once = 1 << 30
        self.fail = ""
        for name in ("write", "fchmod", "fsync", "rename"):
            monkeypatch.setattr(os, name, self.wrapped(name, getattr(os, name)))

    def wrapped(self, name: str, real: t.Callable[..., t.Any]) -> t.Callable[..., t.Any]:
        def call(*words: t.Any) -> t.Any:
            if name == "rename":
                shown = f"rename {self.name(words[0])} {self.name(words[1])}"
            else:
                shown = f"{'mode' if name == 'fchmod' else name} {self.name(os.readlink(f'/proc/self/fd/{words[0]}'))}"
            if not (self.seen and self.seen[-1] == shown):
                self.seen.append(shown)
            if self.fail and shown.startswith(self.fail):
                raise OSError(errno.EIO, "Input/output error")
            if name == "write":
                return real(words[0], words[1][: self.bytes_at_once])
            return real(*words)

        return call

    def name(self, path: str) -> str:
        return path[len(str(self.root)) :] or "/"


@pytest.fixture
def calls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Calls:
    return Calls(tmp_path, monkeypatch)


def flushed(path: str) -> list[str]:
    """A file that is replaced so that a power cut leaves the old one or the new one, whole."""
    folder, dummy, name = path.rpartition("/")
    return [line.format(f"{folder}/.{name}.corral", path, folder or "/") for line in FLUSHED]


def test_a_file_is_written_flushed_renamed_and_its_folder_flushed(tmp_path: Path, calls: Calls) -> None:
    (tmp_path / "etc").mkdir()
    (tmp_path / "etc/file").write_text("old")
    Host(str(tmp_path)).write_file("/etc/file", "new", 0o600)
    assert calls.seen == flushed("/etc/file")
    assert (tmp_path / "etc/file").read_text() == "new"


def test_both_copies_of_a_state_file_are_flushed(tmp_path: Path, calls: Calls) -> None:
    host = Host(str(tmp_path))
    state.write_checked(host, "/var/lib/corral/x.json", 1)
    calls.seen.clear()
    state.write_checked(host, "/var/lib/corral/x.json", 2)
    copies = [flushed(f"/var/lib/corral/x.json{end}") for end in ("", ".previous")]
    assert calls.seen in ([*copies[0], *copies[1]], [*copies[1], *copies[0]])


def test_a_write_that_takes_several_calls_is_whole(tmp_path: Path, calls: Calls) -> None:
    calls.bytes_at_once = 3
    Host(str(tmp_path)).write_file("/file", "0123456789é")
    assert (tmp_path / "file").read_bytes() == "0123456789é".encode()
    assert calls.seen == flushed("/file")


@pytest.mark.parametrize("fail", ["write", "mode", "fsync /.file", "rename"])
def test_a_call_that_fails_leaves_the_old_file_and_nothing_beside_it(fail: str, tmp_path: Path, calls: Calls) -> None:
    (tmp_path / "file").write_text("old")
    calls.fail = fail
    with pytest.raises(OSError, match="Input/output error"):
        Host(str(tmp_path)).write_file("/file", "new")
    assert os.listdir(tmp_path) == ["file"]
    assert (tmp_path / "file").read_text() == "old"


def test_a_folder_that_cannot_be_flushed_is_an_error(tmp_path: Path, calls: Calls) -> None:
    (tmp_path / "file").write_text("old")
    calls.fail = "fsync /"
    with pytest.raises(OSError, match="Input/output error"):
        Host(str(tmp_path)).remove("/file")


def test_a_link_and_the_folders_that_are_made_for_it_are_flushed(tmp_path: Path, calls: Calls) -> None:
    Host(str(tmp_path)).write_link("/etc/unit.wants/timer", "../timer")
    link = "rename /etc/unit.wants/.timer.corral /etc/unit.wants/timer"
    assert calls.seen == ["fsync /", "fsync /etc", link, "fsync /etc/unit.wants"]
    assert os.readlink(tmp_path / "etc/unit.wants/timer") == "../timer"


def test_a_folder_that_is_made_is_flushed_with_those_above_it(tmp_path: Path, calls: Calls) -> None:
    host = Host(str(tmp_path))
    host.make_dir("/var/lib/corral", 0o700)
    assert calls.seen == ["fsync /", "fsync /var", "fsync /var/lib"]
    host.make_dir("/var/lib/corral", 0o700)
    assert host.writes == ["/var/lib/corral"], "one that is there stays"


def test_what_is_removed_is_flushed_and_nothing_is_where_nothing_was(tmp_path: Path, calls: Calls) -> None:
    (tmp_path / "etc").mkdir()
    (tmp_path / "etc/file").write_text("old")
    host = Host(str(tmp_path))
    host.remove("/etc/file")
    assert calls.seen == ["fsync /etc"]
    host.remove("/etc/file")
    assert calls.seen == ["fsync /etc"]


def test_a_value_is_one_write_and_follows_no_link(tmp_path: Path, calls: Calls) -> None:
    host = Host(str(tmp_path))
    (tmp_path / "value").write_text("")
    host.write_value("/value", "0-3")
    assert ((tmp_path / "value").read_text(), calls.seen, host.writes) == ("0-3", ["write /value"], ["/value"])
    (tmp_path / "link").symlink_to("value")
    with pytest.raises(OSError, match="symbolic links") as refused:
        host.write_value("/link", "4")
    assert refused.value.errno == errno.ELOOP
    assert (tmp_path / "value").read_text() == "0-3"


def test_a_value_that_is_not_there_is_an_error_and_makes_no_file(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        Host(str(tmp_path)).write_value("/none", "1")
    assert os.listdir(tmp_path) == []


def test_the_kernels_refusal_of_a_value_is_an_error() -> None:
    host = Host("/")
    with pytest.raises(OSError, match="No space left") as refused:
        host.write_value("/dev/full", "1")
    assert (refused.value.errno, host.writes) == (errno.ENOSPC, ["/dev/full"])


def test_space_is_that_of_the_file_system_which_holds_the_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = os.statvfs

    def made_up(path: str) -> os.statvfs_result:
        # f_bsize differs from f_frsize, the unit of the counts, and root may take more than others.
        return os.statvfs_result((1 << 20, 4096, 1000, 300, 200, *real(path)[5:]))

    monkeypatch.setattr(os, "statvfs", made_up)
    (tmp_path / "var").mkdir()
    assert Host(str(tmp_path)).space("/var") == (tmp_path.stat().st_dev, 1000 * 4096, 200 * 4096)


def test_there_is_no_space_where_nothing_is(tmp_path: Path) -> None:
    assert Host(str(tmp_path)).space("/none") is None


def test_a_device_that_no_other_has_can_be_claimed_and_what_cannot_be_looked_at_is_in_use(tmp_path: Path) -> None:
    assert not Host("/").is_claimed("/dev/null")
    assert not Host("/").is_claimed("/dev/no-such-device")
    assert Host("/").is_claimed("/dev/null/part")
    assert Host("/").is_claimed("/dev/a\0b")
    (tmp_path / "dev").mkdir()
    (tmp_path / "dev/loop").symlink_to("loop")
    assert Host(str(tmp_path)).is_claimed("/dev/loop")


def replaced(folder: Path) -> None:
    os.utime(folder / "other", (0, 0))
    (folder / "other").rename(folder / "file")


def written(folder: Path) -> None:
    (folder / "file").write_text("new")
    os.utime(folder / "file", (0, 0))


def led_elsewhere(folder: Path) -> None:
    os.utime(folder / "other", (0, 0))
    (folder / "new").symlink_to("other")
    (folder / "new").rename(folder / "link")


CHANGES: list[tuple[str, t.Callable[[Path], None]]] = [
    ("/file", replaced),
    ("/file", written),
    ("/link", led_elsewhere),
    ("/link", written),
    ("/", lambda folder: (folder / "file").unlink()),
]


@pytest.mark.parametrize(("path", "change"), CHANGES)
def test_no_older_time_hides_a_change(path: str, change: t.Callable[[Path], None], tmp_path: Path) -> None:
    for name in ("file", "other"):
        (tmp_path / name).write_text("old")
    (tmp_path / "link").symlink_to("file")
    host = Host(str(tmp_path))
    before = host.changed(path)
    time.sleep(0.05)  # longer than a step of the kernel's clock
    assert host.changed(path) == before
    change(tmp_path)
    now = host.changed(path)
    assert now
    assert before
    assert now > before
    assert host.changed("/absent") is None


@pytest.mark.parametrize(("text", "found"), [
    ("12\n3\n", ["12", "3"]), ("7\n7\n7\n", ["7"]), ("../../etc\nx\n-1\n٣\n5\n", ["5"]), ("", []), (f"{os.getpid()}\n1\n", ["1"]),
])  # fmt: skip
def test_processes_are_pids_each_once(text: str, found: list[str], tmp_path: Path) -> None:
    (tmp_path / "cgroup.procs").write_text(text, encoding="utf-8")
    assert Host(str(tmp_path)).processes("/cgroup.procs") == found


def test_a_socket_is_no_file_and_an_error_of_the_same_number_is_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """open(2) says ENXIO of a socket, and of a device without a driver; a disk that is gone may say it of a file."""
    os.mknod(tmp_path / "socket", stat.S_IFSOCK | 0o600)
    (tmp_path / "link").symlink_to("socket")
    (tmp_path / "file").write_text("text", encoding="utf-8")
    host = Host(str(tmp_path))
    assert [host.read("/socket"), host.read("/socket", follow=False), host.read("/link")] == [None] * 3

    def fail(path: str, *dummy: t.Any) -> int:
        raise OSError(errno.ENXIO, os.strerror(errno.ENXIO), path)

    monkeypatch.setattr(os, "open", fail)
    with pytest.raises(Unreadable, match="ENXIO"):
        host.read("/file")


def test_space_by_the_device_is_what_the_kernel_has_mounted(monkeypatch: pytest.MonkeyPatch) -> None:
    host = Host("/")
    lines = (host.read("/proc/self/mountinfo") or "").splitlines()
    device = next(line.split(" ")[2] for line in lines if line.split(" ")[4] == "/")
    found, whole = host.device_space(device), host.space("/")
    assert (found and found[1]) == (whole and whole[1])
    assert host.device_space("4095:1") is None
    table = f"1 0 {device} / / rw - fuse.x x rw\n2 0 0:99 / / rw - nfs4 x rw\n3 0 8:1 / /none rw - ext4 x rw\n"
    shown = {"/proc/self/mountinfo": table}  # Each folder that is opened is of the mount that was asked for.
    monkeypatch.setattr(Host, "read", lambda dummy, path: shown.get(path, "\nmnt_id:\t1\n\nmnt_id:\t2\n\nmnt_id:\t3\n"))
    assert [host.device_space(one) for one in (device, "0:99", "8:1")] == [None, None, None]
    shown["/proc/self/mountinfo"] = "1 0 8:1 / / rw - ext4 x rw\n9 0 8:2 / / rw - ext4 x rw\n"
    assert host.device_space("8:1")
    assert host.device_space("8:2") is None, "another mount hides it"
    named = "8 0 0:50 / /home/a/x\rb\u2028c rw - fuse.x x rw\n"
    shown["/proc/self/mountinfo"] = f"{named}1 0 8:1 / / rw - ext4 x rw\n"
    assert host.device_space("8:1"), "a user gives folders such names"


@pytest.mark.parametrize(("number", "call"), [(errno.EIO, "open"), (errno.EMFILE, "open"), (errno.EIO, "statvfs")])
def test_space_that_the_kernel_does_not_tell_is_not_none(
    number: int, call: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    host = Host("/")
    device = next(
        line.split(" ")[2] for line in (host.read("/proc/self/mountinfo") or "").splitlines() if " / / " in line
    )
    right = getattr(os, call)

    def fail(path: t.Any, *words: t.Any, **more: t.Any) -> t.Any:
        if path == "/" or call == "statvfs":
            raise OSError(number, os.strerror(number), path)
        return right(path, *words, **more)

    monkeypatch.setattr(os, call, fail)
    with pytest.raises(Unreadable) as caught:
        host.device_space(device)
    assert caught.value.errno == number


def test_what_cannot_be_looked_at_is_not_called_read_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    host = Host(str(tmp_path))
    assert (host.writable("/"), host.writable("/absent")) == (True, False)

    def fail(path: t.Any, **dummy: t.Any) -> t.Any:
        raise OSError(errno.EIO, "Input/output error", path)

    monkeypatch.setattr(os, "stat", fail)
    with pytest.raises(Unreadable):
        host.writable("/")
