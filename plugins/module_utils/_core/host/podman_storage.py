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

from .files import Host

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


def stamps(host: Host, root: str, driver: str) -> t.Optional[Stamps]:
    """The stamps of a storage at ``root`` with the driver ``driver``; None where there is no database: it lies elsewhere.

    One that an earlier configuration left does not tell: then what only the database says is seen with the next pass that asks.
    """
    databases = {f"{root}/{name}": host.stamp(f"{root}/{name}") for name in DATABASES}
    if not any(databases.values()):
        return None
    others = [f"{root}/{name}-wal" for name in DATABASES] + [f"{root}/{driver}-{name}.json" for name in LISTS]
    return {**databases, **{path: host.stamp(path) for path in others}}
