# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# This module is private to the collection corral.node.
"""The time when each item of drift was first seen.

A reboot deletes the agent's status with these times, so a file that survives a reboot has the times too. This file is written when an item
comes or goes; a node in sync has no such file.
"""

from __future__ import annotations

import contextlib
import json
import typing as t

from ..host import state
from ..host.files import Host

Item = tuple[str, str, str]  # manager, subject, property: see Change.item
LARGEST = 2**40  # all times are smaller


def read(host: Host) -> dict[Item, int]:
    """When each item was first seen (epoch seconds), from the file. Entries of another form are left out."""
    return rows(state.read_json(host, state.SINCE))


def rows(data: t.Any) -> dict[Item, int]:
    """The times in a file's data, by item."""
    return {(row[0], row[1], row[2]): row[3] for row in data if is_row(row)} if isinstance(data, list) else {}


def is_row(row: t.Any) -> bool:
    """Whether JSON data has the form of an entry in the file: the three strings of an Item, and a time."""
    return (
        isinstance(row, list)
        and [type(value) for value in row] == [str, str, str, int]
        and 0 <= row[3] < LARGEST
    )  # fmt: skip


def keep(host: Host, since: t.Mapping[Item, int], unplanned: t.Container[str] = ()) -> None:
    """Make the file have exactly the times in ``since``. The file is written only if its times differ.

    A full disk does not stop a tick: the status has the times as well, until the next boot.
    """
    kept = read(host)
    # Items of the managers in ``unplanned``, which did not plan in this run, may still differ.
    since = {**{item: first for item, first in kept.items() if item[0] in unplanned}, **since}
    if since == kept:
        return
    with contextlib.suppress(OSError):
        if not since:
            host.remove(state.SINCE)
            return
        state.state_folder(host, state.STATE)
        rows = [[*item, moment] for item, moment in sorted(since.items())]
        host.write_file(state.SINCE, json.dumps(rows) + "\n", state.PRIVATE)


def known(host: Host, status: t.Mapping[str, t.Any]) -> dict[Item, int]:
    """When each item was first seen: from the last status (status_file.last_status), else from the file."""
    items = {(row["manager"], row["subject"], row["property"]): row["since"] for row in status.get("items", ())}
    return {**read(host), **items}
