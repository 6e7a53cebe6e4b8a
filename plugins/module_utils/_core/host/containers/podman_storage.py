# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# This module is private to the collection corral.node.
"""Whether a Podman storage has changed, by the stamps of its lists and its database; no Podman command is needed.

Every change of a container, pod, image, layer or name writes at least one of these files, and no read writes them (seen with Podman 4.3 and
5.4). Lock files are not used: reads write lock files too.
"""

from __future__ import annotations

import typing as t

# Podman's database: BoltDB until 4.x, SQLite later; an upgraded node may have both.
DATABASES = ("libpod/bolt_state.db", "db.sql", "libpod/db.sql")
LISTS = (
    "images/images",
    "containers/containers",
    "containers/volatile-containers",
    "layers/layers",
    "layers/volatile-layers",
)

# By path: inode, size in bytes, times of the last write and change in nanoseconds; None if there is no such file.
Stamps = dict[str, t.Optional[list[int]]]


def paths(root: str, driver: str) -> list[str]:
    """The files whose stamps show a change of the storage at ``root`` with this driver; the databases come first."""
    databases = [f"{root}/{name}" for name in DATABASES]
    return [*databases, *(f"{path}-wal" for path in databases), *(f"{root}/{driver}-{name}.json" for name in LISTS)]


def stamps(paths: t.Sequence[str], rows: t.Sequence[t.Sequence[t.Any]]) -> t.Optional[Stamps]:
    """The stamps of ``paths`` from ``rows``, a row for each path (empty: no such file). None for other rows, and if no database exists:
    Podman uses another path.

    If only the database of an earlier configuration exists, changes in the present database are not seen until a pass asks Podman.
    """
    known = all(
        not row or (len(row) == 4 and all(isinstance(value, int) and not isinstance(value, bool) for value in row))
        for row in rows
    )
    if len(rows) != len(paths) or not known or not any(rows[: len(DATABASES)]):
        return None
    return {path: list(row) if row else None for path, row in zip(paths, rows)}
