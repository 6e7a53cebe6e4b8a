# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Snapshots that Corral writes: what was read, and nothing else."""

from __future__ import annotations

from pathlib import Path

from _core.host import recorded_tree, snapshot
from _core.host.files import Host


def test_a_snapshot_holds_what_was_read_and_nothing_else(tmp_path: Path) -> None:
    tree = tmp_path / "tree"
    for path, text in {"sys/a": "1\n", "sys/real/b": "2\n", "proc/secret": "x"}.items():
        (tree / path).parent.mkdir(parents=True, exist_ok=True)
        (tree / path).write_text(text)
    (tree / "sys/link").symlink_to("real")
    (tree / "sys/round").symlink_to("round")
    host = Host(str(tree), record=True)
    paths = ("/sys/a", "/sys/link/b", "/sys/round", "/none")
    read = [host.read(path) for path in paths]
    snapshot.write(host, str(tmp_path / "s.tar.gz"))
    with recorded_tree.opened(str(tmp_path / "s.tar.gz")) as replayed:
        assert [replayed.read(path) for path in paths] == read
        assert replayed.read("/proc/secret") is None
