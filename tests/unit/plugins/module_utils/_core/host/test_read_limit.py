# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What is larger than Corral reads is unreadable, never cut: a part would be taken for the whole."""

from __future__ import annotations

import errno
import typing as t
from pathlib import Path

import pytest
from _core.cli import command_output, profile_file
from _core.host import state, user_file
from _core.host.files import READ_LIMIT, Host, Unreadable
from _core.model.values.errors import CorralError
from _core.pipeline import declared_profile


@pytest.mark.parametrize("more, size", [(-1, READ_LIMIT - 1), (0, READ_LIMIT), (1, None), (1 << 20, None)])
def test_a_file_is_read_whole_or_not_at_all(tmp_path: Path, more: int, size: int | None) -> None:
    (tmp_path / "file").write_bytes(b"x" * (READ_LIMIT + more))
    host = Host(str(tmp_path))
    data = host.attempt(host.read_bytes, "/file")
    if isinstance(data, Unreadable):
        assert (size, data.errno) == (None, errno.EFBIG)
        assert "4194304 bytes" in str(data)
    else:
        assert len(data or b"") == size


def test_no_more_is_taken_of_what_a_user_names_than_tells_that_it_is_too_large(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"x" * 1000)
    with open(tmp_path / "file", "rb") as file:
        for path in (str(tmp_path / "file"), f"/dev/fd/{file.fileno()}"):
            assert len(user_file.read(path, 100)) == 101


def test_a_profile_that_is_too_large_is_refused_with_the_bound(tmp_path: Path) -> None:
    path = tmp_path / "profile.yml"
    path.write_text("name: edge\n" + "# comment\n" * (READ_LIMIT // 10))
    with pytest.raises(CorralError, match=r"profile.yml: cannot be read: it has more than 4194304 bytes \(4 MiB\)"):
        command_output.read_file(str(path))


def test_a_declared_profile_that_is_too_large_is_no_absent_one(tmp_path: Path) -> None:
    file = tmp_path / state.DECLARED[1:]
    file.parent.mkdir(parents=True)
    file.write_text(" " * READ_LIMIT + "{}")
    with pytest.raises(Unreadable, match="more than 4194304 bytes"):
        declared_profile.read_declared(Host(str(tmp_path)))


def test_another_user_is_told_that_only_root_may_read_the_declared_profile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    host = Host(str(tmp_path))
    assert declared_profile.read_declared(host) is None, "absent"

    def refuse(path: str, follow: bool) -> None:
        raise PermissionError(errno.EACCES, "Permission denied", path)

    file = tmp_path / state.DECLARED[1:]
    file.parent.mkdir(parents=True)
    file.touch()
    monkeypatch.setattr(host, "_read", refuse)
    with pytest.raises(Unreadable) as error:
        declared_profile.read_declared(host)
    assert f"{state.DECLARED}: cannot be read: Permission denied (EACCES): run as root" in error.value.advised


BOMBS = {
    "aliases": "a: &a [x, x, x, x, x, x, x, x, x, x]\n"
    + "".join(f"{new}: &{new} [{', '.join([f'*{old}'] * 10)}]\n" for old, new in zip("abcdefgh", "bcdefghi")),
    "merges": "a: &a {k0: 1, k1: 1}\n"
    + "".join(f"{new}: &{new} {{<<: [{', '.join([f'*{old}'] * 10)}]}}\n" for old, new in zip("abcdefgh", "bcdefghi")),
    "levels": "a: &a [x]\n" + "".join(f"a{n}: &a{n} [*a{n - 1 if n else ''}]\n" for n in range(200)),
    "itself": "a: &a [*a]\n",
}


@pytest.mark.parametrize("read", [profile_file.load, profile_file.check_text])
@pytest.mark.parametrize("name", BOMBS)
def test_a_document_that_stands_for_too_much_is_refused(name: str, read: t.Callable[[str, str], object]) -> None:
    said = "100000 values" if name in ("aliases", "merges") else "100 levels"
    with pytest.raises(CorralError, match=f"profile.yml: .*{said}"):
        read(BOMBS[name], "profile.yml")


def test_aliases_within_bounds_are_read() -> None:
    text = "a: &a {cpu: 1}\nb: [*a, *a]\nc: {<<: *a, d: 2}\n"
    assert profile_file.load(text, "x") == {"a": {"cpu": 1}, "b": [{"cpu": 1}] * 2, "c": {"cpu": 1, "d": 2}}
