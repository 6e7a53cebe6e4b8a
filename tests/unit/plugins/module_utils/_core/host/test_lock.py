# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The lock where other processes make and remove its folder at any moment."""

from __future__ import annotations

import errno
import os
import shutil
import stat
import typing as t
from pathlib import Path

import pytest
from _core.host import lock
from _core.host.files import Host
from _core.host.lock import LOCK, RUN, Lock
from _core.model.values.errors import CorralError

Act = t.Callable[[], object]


def before(monkeypatch: pytest.MonkeyPatch, name: str, path: Path, act: Act, times: int = 1) -> list[str]:
    """Another process acts right before this one calls ``os.NAME`` for ``path``: the first calls only. The list says so."""
    real, done = getattr(os, name), list[str]()

    def call(target: str, *others: t.Any, **more: t.Any) -> t.Any:
        if target == str(path) and len(done) < times:
            done.append(target)
            act()
        return real(target, *others, **more)

    monkeypatch.setattr(os, name, call)
    return done


def mode_of(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


@pytest.mark.parametrize("absent", ["run/corral", "run"])
def test_another_process_makes_the_folder_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, absent: str) -> None:
    (tmp_path / absent).parent.mkdir(exist_ok=True)
    done = before(monkeypatch, "mkdir", tmp_path / absent, (tmp_path / absent).mkdir)
    taken = Lock(Host(str(tmp_path)))
    assert taken.take()
    assert done and not Lock(Host(str(tmp_path))).take()


@pytest.mark.parametrize("call, path", [("open", LOCK), ("mkdir", RUN), ("lstat", RUN)])
def test_a_removal_takes_the_folder_away_before_a_call(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str, path: str
) -> None:
    folder = tmp_path / "run/corral"
    if call != "mkdir":
        folder.mkdir(parents=True)
    gone = folder.parent if call == "mkdir" else folder
    done = before(monkeypatch, call, tmp_path / path[1:], lambda: shutil.rmtree(gone), times=3)
    assert Lock(Host(str(tmp_path))).take()
    assert done and (folder / "lock").exists()


def test_a_folder_that_is_removed_without_end_is_an_error_and_no_endless_loop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "run/corral"
    before(monkeypatch, "open", folder / "lock", lambda: shutil.rmtree(folder), times=10**9)
    with pytest.raises(OSError, match="again and again") as error:
        Lock(Host(str(tmp_path))).take()
    assert error.value.errno == errno.EBUSY


@pytest.mark.parametrize("umask", [0o077, 0o022, 0o000])
def test_a_folder_has_its_mode_from_the_start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, umask: int) -> None:
    monkeypatch.delattr(os, "chmod")  # A process that is killed right after mkdir(2) has no time for it.
    earlier = os.umask(umask)
    try:
        Host(str(tmp_path)).make_dir("/var/lib/corral", 0o700)
        assert os.umask(umask) == umask
    finally:
        os.umask(earlier)
    assert [mode_of(tmp_path / name) for name in ("var", "var/lib", "var/lib/corral")] == [0o755, 0o755, 0o700]


def test_no_other_user_can_open_the_lock_or_lead_it_elsewhere(tmp_path: Path) -> None:
    """Who can open a file can hold its lock, and keep the agent from its work."""
    earlier = os.umask(0)
    try:
        assert Lock(Host(str(tmp_path))).take()
    finally:
        os.umask(earlier)
    file = tmp_path / LOCK[1:]
    assert mode_of(file) == 0o600
    file.rename(tmp_path / "elsewhere")
    file.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(OSError, match="symbolic links"):
        Lock(Host(str(tmp_path))).take()


@pytest.mark.parametrize(
    "plant, said",
    [
        (lambda path: path.symlink_to("/tmp"), "is a link"),
        (lambda path: path.symlink_to("nowhere"), "is a link"),
        (lambda path: path.write_text(""), "is a file"),
    ],
)
def test_what_another_process_plants_in_between_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, plant: t.Callable[[Path], object], said: str
) -> None:
    folder = tmp_path / "run/corral"
    folder.parent.mkdir()
    before(monkeypatch, "mkdir", folder, lambda: plant(folder))
    with pytest.raises(CorralError, match=said):
        Lock(Host(str(tmp_path))).take()


def test_permissions_that_are_too_many_are_taken_away(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "run/corral"
    folder.parent.mkdir()
    before(monkeypatch, "mkdir", folder, lambda: (folder.mkdir(), folder.chmod(0o777)))
    lock.own_folder(Host(str(tmp_path)), RUN, 0o755)
    assert mode_of(folder) == 0o755


def test_processes_that_begin_at_once_all_take_the_lock(tmp_path: Path) -> None:
    for number in range(20):
        root, (ready, begin) = tmp_path / str(number), os.pipe()
        (root / "run").mkdir(parents=True)
        children = []
        for dummy in range(10):
            child = os.fork()
            if child == 0:
                os.close(begin)
                os.read(ready, 1)  # Ends for all of them at the same moment.
                taken = False
                try:
                    taken = Lock(Host(str(root))).take(wait=60)
                finally:
                    os._exit(0 if taken else 1)
            children.append(child)
        os.close(ready)
        os.close(begin)
        assert {os.waitpid(child, 0)[1] for child in children} == {0}


def test_another_user_is_told_to_run_it_as_root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Such a user was told to remove /run/corral, or to give it to root, whose it was."""
    owner = os.stat(tmp_path)
    found = os.stat_result((owner.st_mode, *owner[1:4], 0, *owner[5:]))
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    monkeypatch.setattr(os, "lstat", lambda dummy: found)
    assert lock.folder_problem(Host(str(tmp_path)), "/run/corral") == "belongs to root: run this as root"
