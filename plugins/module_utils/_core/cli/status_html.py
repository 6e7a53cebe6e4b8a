# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# This module is private to the collection corral.node.
"""corral status --html: a page with the differences that the last tick found, and the CPUs as the kernel shows them now."""

from __future__ import annotations

import typing as t

from ..host.files import Host, Unreadable
from ..model.cpu import cpu_assignment
from ..model.plan.context import Context
from ..model.values.errors import CorralError
from ..pipeline import observed_assignment
from ..reports import change_text, gc_report, html_page, machine_svg, workload_table
from ..reports.html_page import Part
from . import status_text

COLUMNS = ("workload", "class", "hold", "CPUs", "memory on", "requests", "limits", "state", "since")


def page(host: Host, status: dict[str, t.Any]) -> str:
    """The page of a node with its last published status."""
    name = (host.read("/proc/sys/kernel/hostname") or "node").strip()
    parts = [Part("What differs", html_page.listed(status_text.item_lines(status), "differs"))]
    try:
        context = status_text.context_in_force(host)
        parts += machine_parts(host, context) if context is not None else []
    except (CorralError, Unreadable) as error:
        parts.append(Part("Machine", html_page.listed([status_text.no_map(error)])))
    parts.append(Part("Hugepages", hugepages(status)))
    parts.append(Part("Garbage collection", html_page.listed(gc_report.lines(host))))
    when = change_text.moment(int(status.get("time") or 0))
    summary = [f"as the tick of {when} saw it", *status_text.summary_lines(host, status)]
    return html_page.page(f"{name}: {status.get('name') or 'no profile'}", summary, parts)


def machine_parts(host: Host, context: Context) -> list[Part]:
    """The map of the CPUs in force (or of the declared CPUs, if the kernel does not show the CPUs in force), and the workloads."""
    declared = cpu_assignment.declared(context.pools, context.grants)
    now = observed_assignment.observe(host, context)
    said = "CPUs as they are" if now is not None else "CPUs as the profile declares them"
    if context.profile.cpu is None:
        said, declared = "CPUs, without pools", {}
    drawn = machine_svg.drawing(context.topology, declared if now is None else now, declared, title=said)
    workloads = workload_table.rows(context.workloads) if context.workloads is not None else []
    rows = [
        (
            *workload_table.cells(row),
            workload_table.state_text(row),
            change_text.moment(row["since"]) if row["since"] else "-",
        )
        for row in workloads
    ]
    budget = html_page.listed(workload_table.budget_lines(context)) if rows else ""
    return [
        Part(said, f"<figure>\n{drawn}</figure>"),
        Part(
            "Workloads",
            "\n".join(filter(None, [html_page.table(COLUMNS, rows, "Workloads and what they have"), budget])),
        ),
    ]


def hugepages(status: t.Mapping[str, t.Any]) -> str:
    """The declared pools of hugepages, and their present pages."""
    rows = [
        [
            pool["size"],
            "the machine" if pool["node"] is None else f"node {pool['node']}",
            str(pool["wanted"]),
            str(pool["actual"]),
        ]
        for pool in status.get("hugepages") or []
    ]
    return html_page.table(("size", "where", "declared", "there"), rows, "Pools of hugepages, in pages")
