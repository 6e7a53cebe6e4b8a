# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# This module is private to the collection corral.node.
"""The status that the last tick published, as lines of text with the CPU map of the profile in force."""

from __future__ import annotations

import typing as t

from ..host.agent import pause_file, program_check
from ..host.files import Host, Unreadable
from ..model.plan.context import Context
from ..model.plan.plan import change_from_dict
from ..model.values.errors import CorralError
from ..pipeline import declared_profile, observed_assignment, planning, profile_in_force
from ..reports import change_text, cpu_map, gc_report, status_file, status_now, workload_table
from ..reports.value_text import counted

if t.TYPE_CHECKING:
    from ..model.status.json_shapes import RenderedUnconfirmed


def status_lines(host: Host, status: dict[str, t.Any], *, colour: bool = False) -> list[str]:
    """status.json as text, with the CPU map."""
    rows = [*summary_lines(host, status), *gc_report.lines(host), *item_lines(status)]
    try:
        context = context_in_force(host)
        if context is not None:
            if context.workloads is not None:
                rows += ["", *workload_table.lines(context)]
            idle = observed_assignment.unused(host, context)
            drawn = cpu_map.cpu_map(context.topology, context.pools, context.grants, colour=colour, unused=idle)
            rows += ["", *drawn]
            now = observed_assignment.map_in_force(host, context)
            rows += ["", "what is in force differs:", *now] if now else []
    except (CorralError, Unreadable) as error:
        rows.append(no_map(error))
    return rows


def no_map(error: t.Union[CorralError, Unreadable]) -> str:
    """Why there is no CPU map: every user may read the status, but only root may read the profile."""
    return f"no CPU map: {error.advised if isinstance(error, Unreadable) else error}"


def context_in_force(host: Host) -> t.Optional[Context]:
    """The context of the profile in force; None without a profile. Raises CorralError."""
    declared, dummy = profile_in_force.instead_of(host, declared_profile.in_force(host), None)
    return None if declared is None else planning.compile_profile(host, declared, "tick")


def summary_lines(host: Host, status: dict[str, t.Any]) -> list[str]:
    """The summary of a node: profile, verdict, pause, unconfirmed profile, errors, last change, exclusive CPUs, the program."""
    age, why = status_now.age(host, status), status.get("stale")
    when = f"at {change_text.moment(int(status['time']))}" if age is None else f"{age} s ago"
    changes = [change_from_dict(item) for item in status.get("items", [])]
    as_seen = changes or status.get("in_sync")
    verdict = status.get("error") or (
        change_text.recap(changes, done=False) if as_seen else "stale" if why else "a partition was lost since"
    )
    rows = [f"profile {status.get('name') or '-'}   mode {status.get('mode') or '-'}   checked {when}   {verdict}"]
    if why:
        rows.append(f"stale, so not known to be in sync: {why}")
    if status.get("paused"):
        rows.append(pause_file.sentence(status["paused"]))
    if isinstance(status.get("unconfirmed"), dict):
        rows.append((unconfirmed_now(host) or status["unconfirmed"])["text"])
    rows += [status[key] for key in ("pause_error", "metrics_error") if status.get(key)]
    last = status.get("last_changed")
    if isinstance(last, dict):
        count = counted(len(last["changes"]), "change")
        rows.append(f"last change {change_text.moment(last['time'])}: {count}")
    if status.get("exclusive"):
        rows.append(f"exclusive CPUs: {status['exclusive']}")
    program = program_check.installed(host)
    if program is not None and not program["as_installed"]:
        rows.append(program_check.sentence(program))
    return rows


def unconfirmed_now(host: Host) -> t.Optional[RenderedUnconfirmed]:
    """The present unconfirmed profile, since its time may have ended after the status was written; None if only root can read the file."""
    try:
        return status_file.unconfirmed(host)
    except Unreadable:
        return None


def item_lines(status: dict[str, t.Any]) -> list[str]:
    """A line for each difference, with the time when it was first seen."""
    rows = []
    for item in status.get("items", []):
        since = change_text.moment(item.get("since") or 0)
        mark = " (under maintenance)" if item.get("maintenance") else ""
        rows.append(f"{item['verdict']}{mark} since {since}: {change_text.described(change_from_dict(item))}")
    return rows
