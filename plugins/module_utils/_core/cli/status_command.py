# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# This module is private to the collection corral.node.
"""The command status: what the last tick published, as text."""

from __future__ import annotations

import argparse
import typing as t

from ..constants import DIFFERS, ERROR, IN_SYNC
from ..host import pause_file, state
from ..host.files import Host
from ..model.plan.plan import change_from_dict
from ..model.values.errors import CorralError, refusal
from ..pipeline import declared_profile, planning, profile_in_force
from ..reports import change_text, cpu_map, status_file
from ..reports.value_text import counted
from . import command_output


def gc_lines(host: Host) -> list[str]:
    """The last passes of garbage collection; empty where no pass was made. What they left undone is drift."""
    status = state.read_json(host, state.GC_STATUS)
    if status is None:
        return []
    from ..gc import gc_status

    try:
        return gc_status.lines(status, host.now())
    except (LookupError, TypeError, ValueError):
        return [f"gc: {state.GC_STATUS} is not as Corral wrote it: the next pass replaces it"]


def do_status(host: Host, args: argparse.Namespace) -> int:
    """corral status"""
    if args.tenants:
        return show_tenants(host, args)
    status = status_file.last_status(host)
    if not status:
        raise refusal(
            "no readable status: is corral-reconcile.timer active? corral drift checks now",
            path=state.STATUS,
        )
    command_output.show(args, status_data(host, status), status_lines(host, status, colour=command_output.coloured()))
    return ERROR if status.get("error") else IN_SYNC if status.get("in_sync") else DIFFERS


def status_data(host: Host, status: dict[str, t.Any]) -> dict[str, t.Any]:
    """status.json, and the last passes of garbage collection: what ``corral status --json`` prints."""
    return {**status, "gc": state.read_json(host, state.GC_STATUS)}


def show_tenants(host: Host, args: argparse.Namespace) -> int:
    """corral status --tenants"""
    context = planning.compile_profile(host, command_output.the_profile(host, None))
    if not context.profile.tenants:
        raise refusal("declares no tenants: corral status shows the node", path=state.DECLARED)
    from ..reports import tenant_table

    rows = tenant_table.rows(context)
    command_output.show(args, {"tenants": rows}, tenant_table.lines(rows))
    return IN_SYNC


def status_lines(host: Host, status: dict[str, t.Any], *, colour: bool = False) -> list[str]:
    """status.json as text, with the CPU map."""
    age = max(int(host.now()) - int(status.get("time") or 0), 0)
    items = [(item, change_from_dict(item)) for item in status.get("items", [])]
    verdict = status.get("error") or change_text.recap([change for dummy, change in items], done=False)
    rows = [f"profile {status.get('name') or '-'}   mode {status.get('mode') or '-'}   looked {age} s ago   {verdict}"]
    if status.get("paused"):
        rows.append(pause_file.sentence(status["paused"]))
    if isinstance(status.get("unconfirmed"), dict):
        rows.append(status["unconfirmed"]["text"])
    rows += [status[key] for key in ("pause_error", "metrics_error") if status.get(key)]
    last = status.get("last_changed")
    if isinstance(last, dict):
        count = counted(len(last["changes"]), "change")
        rows.append(f"last change {change_text.moment(last['time'])}: {count}")
    if status.get("exclusive"):
        rows.append(f"exclusive CPUs: {status['exclusive']}")
    rows += gc_lines(host)
    for item, change in items:
        since = change_text.moment(item.get("since") or 0)
        mark = " (under maintenance)" if item.get("maintenance") else ""
        rows.append(f"{item['verdict']}{mark} since {since}: {change_text.described(change)}")
    try:
        declared, dummy = profile_in_force.instead_of(host, declared_profile.read_declared(host), None)
        if declared is not None:
            context = planning.compile_profile(host, declared)
            if context.workloads is not None:
                from ..reports import workload_table

                rows += ["", *workload_table.lines(context)]
            rows += ["", *cpu_map.cpu_map(context.topology, context.pools, colour=colour)]
    except CorralError as error:
        rows.append(f"no CPU map: {error}")
    return rows
