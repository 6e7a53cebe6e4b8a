# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# This module is private to the collection corral.node.
"""Whether a storage of Podman's changed: by the stamps of its lists and its database, without a command of Podman's.

Whatever makes, starts, ends, names or removes a container, pod, image or layer writes at least one of these files; what
only reads the storage writes none of them (seen with Podman 4.3 and 5.4). Their lock files are written by readers as well.
"""

from __future__ import annotations

import typing as t

# Podman's own database: BoltDB until 4.x, SQLite after it; an upgraded node may have both.
DATABASES = ("libpod/bolt_state.db", "db.sql", "libpod/db.sql")
LISTS = (
    "images/images",
    "containers/containers",
    "containers/volatile-containers",
    "layers/layers",
    "layers/volatile-layers",
)

# By path: inode, bytes, and when it was written and changed last in nanoseconds; None: there is no such file.
Stamps = dict[str, t.Optional[list[int]]]


def paths(root: str, driver: str) -> list[str]:
    """The files of a storage at ``root`` with the driver ``driver`` that tell, the databases first."""
    databases = [f"{root}/{name}" for name in DATABASES]
    return [*databases, *(f"{path}-wal" for path in databases), *(f"{root}/{driver}-{name}.json" for name in LISTS)]


def stamps(paths: t.Sequence[str], rows: t.Sequence[t.Sequence[t.Any]]) -> t.Optional[Stamps]:
    """The stamps of these files from a row for each, empty where there is none; None where there is no database: it lies elsewhere.

    One that an earlier configuration left does not tell: then what only the database says is seen with the next pass that asks.
    """
    known = all(
        not row or (len(row) == 4 and all(isinstance(value, int) and not isinstance(value, bool) for value in row))
        for row in rows
    )
    if len(rows) != len(paths) or not known or not any(rows[: len(DATABASES)]):
        return None
    return {path: list(row) if row else None for path, row in zip(paths, rows)}
