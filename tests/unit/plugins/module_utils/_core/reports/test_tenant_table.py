# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The table of tenants: what is used up is not exceeded, and a tenant without a quota has a line, too."""

from __future__ import annotations

import typing as t

from _core.reports import tenant_table


def row(name: str, *quota: tuple[str, int, int]) -> t.Any:
    listed = [{"quota": "q", "resource": resource, "used": used, "hard": hard} for resource, used, hard in quota]
    return {"name": name, "slice": "", "workloads": ["w"], "quota": listed, "text": ""}


def test_the_table() -> None:
    rows = [row("acme", ("requests.cpu", 1500, 1500), ("count/workloads", 3, 2)), row("globex")]
    assert tenant_table.lines(rows) == [
        "tenant  workloads  quota  resource         used   hard",
        "acme    1          q      requests.cpu     1500m  1500m",
        "                   q      count/workloads  3      2      exceeded",
        "globex  1          -      -                -      -",
    ]
