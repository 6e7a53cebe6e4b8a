# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Corral's own files: checksums, the lock, snapshots, atomic writes."""

from __future__ import annotations

import errno
import json
import os
import subprocess
import sys
import typing as t
from pathlib import Path

import pytest
from _core.host import state
from _core.host.files import READ_LIMIT, Host
from _core.host.lock import Lock
from hypothesis import given, settings
from hypothesis import strategies as st

DATA = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=9,
)
FILE = "/var/lib/corral/x.json"


@settings(deadline=None)  # it waits for a disk
@given(data=DATA, cut=st.integers(0, 200))
def test_what_is_written_is_read_and_what_is_cut_is_not(
    data: object, cut: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    host = Host(str(tmp_path_factory.getbasetemp() / "checked"))
    state.write_checked(host, FILE, data)
    assert state.checked(host, FILE) == data
    text = Path(host.at(FILE)).read_text()
    Path(host.at(FILE)).write_text(text[: min(cut, len(text) - 2)])
    assert state.checked(host, FILE) is None


FOREIGN = ["", "null", "[]", "5", "\xff", "[" * 9999, '{"version": 1}', '{"version": 2, "checksum": "0", "data": 1}']


@pytest.mark.parametrize("text", [*FOREIGN, '{"version": 1, "checksum": "00000000", "data": 1}'])
def test_foreign_and_newer_files_are_nothing(text: str, tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(text.encode("latin-1"))
    assert state.checked(Host(str(tmp_path)), "/x") is None


def test_a_second_copy_is_kept_and_closed_to_others(tmp_path: Path) -> None:
    host = Host(str(tmp_path))
    for data in (1, 2):
        state.write_checked(host, FILE, data)
    assert (state.checked(host, FILE), state.checked(host, f"{FILE}.previous")) == (2, 2)
    assert [host.mode(path) for path in (FILE, f"{FILE}.previous", state.STATE)] == [0o600, 0o600, 0o700]
    Path(host.at(FILE)).write_text("{")
    assert state.checked(host, f"{FILE}.previous") == 2, "there when the first is broken"


def test_rows_that_are_none_are_left_out(tmp_path: Path) -> None:
    host = Host(str(tmp_path))
    good = {"manager": "cpu", "subject": "s", "before": {"kind": "value", "target": "/x", "later": 1}}
    state.write_checked(host, state.BEFORE, [good, {}, 5, {"manager": "cpu", "subject": "s", "before": {}}])
    assert [row.before.target for row in state.records(host)[0]] == ["/x"]


HOLD = """
import sys
sys.path.insert(0, sys.argv[1])
from _core.host.lock import Lock
from _core.host.files import Host
lock = Lock(Host(sys.argv[2]))
print(lock.take(), flush=True)
sys.stdin.read()
"""


def test_one_writer_and_a_killed_one_lets_go(tmp_path: Path) -> None:
    core = str(Path(state.__file__).parents[2])
    with subprocess.Popen(
        [sys.executable, "-c", HOLD, core, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "True\n"
        lock = Lock(Host(str(tmp_path)))
        assert lock.take() is False
        holder.kill()
        holder.wait()
        assert lock.take(wait=5) is True
        lock.release()


def test_a_write_replaces_a_planted_link_and_a_left_temporary_file(tmp_path: Path) -> None:
    host = Host(str(tmp_path))
    (tmp_path / "precious").write_text("precious")
    (tmp_path / "file").symlink_to("precious")
    (tmp_path / ".file.corral").symlink_to("precious")
    host.write_file("/file", "new", 0o640)
    assert ((tmp_path / "precious").read_text(), (tmp_path / "file").read_text()) == ("precious", "new")
    assert (host.mode("/file"), sorted(os.listdir(tmp_path))) == (0o640, ["file", "precious"])


@pytest.mark.parametrize(
    ("act", "changed"),
    [
        (lambda host: host.write_file("/new/deep/file", "text"), ["", "new", "new/deep"]),
        (lambda host: host.write_link("/new/link", "elsewhere"), ["", "new"]),
        (lambda host: host.make_dir("/new/deep"), ["", "new"]),
        (lambda host: host.remove("/there/file"), ["there"]),
        (lambda host: host.remove("/there/none"), []),
    ],
)
def test_what_was_done_lasts_over_a_power_cut(
    act: t.Callable[[Host], None], changed: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "there").mkdir()
    (tmp_path / "there/file").write_text("text")
    folders = [tmp_path / name for name in ("", "new", "new/deep", "there")]

    def listed() -> dict[str, list[str]]:
        return {str(folder): sorted(os.listdir(folder)) for folder in folders if folder.is_dir()}

    last_synced = listed()
    synced = []

    def fsync(file: int) -> None:
        name = os.readlink(f"/proc/self/fd/{file}")
        if os.path.isdir(name):
            synced.append(name)
            last_synced[name] = sorted(os.listdir(name))

    monkeypatch.setattr(os, "fsync", fsync)
    act(Host(str(tmp_path)))
    assert {name: names for name, names in listed().items() if names} == {
        name: names for name, names in last_synced.items() if names
    }
    assert sorted(synced) == [str(tmp_path / name) for name in changed]


def test_profiles_are_remembered_for_a_rollback(tmp_path: Path) -> None:
    host = Host(str(tmp_path))
    for number in range(14):
        state.record_profile(host, {"name": f"p{number}"})
    state.record_profile(host, {"name": "p13"})
    assert json.loads(Path(host.at(state.APPLIED)).read_text()) == {"name": "p13"}
    assert [one.profile["name"] for one in state.history(host)[1]] == [f"p{number}" for number in range(12, 2, -1)]


def test_what_could_not_be_read_back_is_not_written(tmp_path: Path) -> None:
    host = Host(str(tmp_path))
    state.write_checked(host, FILE, "before")
    for data in ("x" * READ_LIMIT, "\u20ac" * (READ_LIMIT // 5)):
        with pytest.raises(OSError, match="the most that is read") as raised:
            state.write_checked(host, FILE, data)
        assert (raised.value.errno, raised.value.filename) == (errno.EFBIG, FILE)
        assert state.checked(host, FILE) == state.checked(host, f"{FILE}.previous") == "before"
    most = "x" * (READ_LIMIT - len(state.checked_text("")))
    state.write_checked(host, FILE, most)
    assert state.checked(host, FILE) == most
