# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The stamps of a storage: which files they see, and which changes of one."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from _core.host.containers import podman_storage
from _core.host.files import Host

ROOT = "/var/lib/containers/storage"
DATABASES = ("libpod/bolt_state.db", "db.sql", "libpod/db.sql")
LISTS = (
    "overlay-images/images.json",
    "overlay-containers/containers.json",
    "overlay-containers/volatile-containers.json",
    "overlay-layers/layers.json",
    "overlay-layers/volatile-layers.json",
)


@pytest.fixture(name="node")
def made_node(tmp_path: Path) -> Path:
    for name in (*DATABASES, *LISTS):
        file = tmp_path / ROOT.lstrip("/") / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("old")
    return tmp_path


def stamps(node: Path) -> podman_storage.Stamps | None:
    host, paths = Host(str(node)), podman_storage.paths(ROOT, "overlay")
    return podman_storage.stamps(paths, [host.stamp(path) or [] for path in paths])


@pytest.mark.parametrize("name", [*DATABASES, *LISTS, "db.sql-wal", "libpod/db.sql-wal"])
def test_each_file_counts(name: str, node: Path) -> None:
    before = stamps(node)
    file = node / ROOT.lstrip("/") / name
    file.write_text("newer")
    assert stamps(node) != before
    file.unlink()
    assert stamps(node) != before or name.endswith("-wal")


def test_each_change_of_a_file_counts(node: Path) -> None:
    """Its length, its time, and another file of the same length and time in its place."""
    file = node / ROOT.lstrip("/") / "db.sql"
    for change in ("length", "time", "file"):
        before, held = stamps(node), file.stat()
        if change == "length":
            file.write_text("longer")
            os.utime(file, ns=(held.st_atime_ns, held.st_mtime_ns))
        elif change == "time":
            os.utime(file, ns=(held.st_atime_ns, held.st_mtime_ns + 1))
        else:
            other = file.with_suffix(".new")
            other.write_text("longer")
            os.utime(other, ns=(held.st_atime_ns, held.st_mtime_ns))
            other.replace(file)
        assert stamps(node) != before, change
    assert stamps(node) == stamps(node)


def test_a_storage_without_a_database_has_none(node: Path) -> None:
    for name in DATABASES:
        assert stamps(node) is not None
        (node / ROOT.lstrip("/") / name).unlink()
    assert stamps(node) is None


@pytest.mark.parametrize("row", [[1], [1, 2, 3, "4"], [True, 2, 3, 4], [1, 2, 3, 4.5], "text"])
def test_what_are_no_stamps_are_none(row: list[object]) -> None:
    paths = podman_storage.paths(ROOT, "overlay")
    good: list[list[object]] = [[1, 2, 3, 4]] * len(paths)
    assert podman_storage.stamps(paths, good) is not None
    assert podman_storage.stamps(paths, [*good[1:], row]) is None
    assert podman_storage.stamps(paths, good[1:]) is None
