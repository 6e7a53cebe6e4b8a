# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# This module is private to the collection corral.node.
"""The command status: the status that the last tick published, as text, JSON or an HTML page."""

from __future__ import annotations

import argparse
import json
import sys
import typing as t

from ..constants import DIFFERS, ERROR, IN_SYNC
from ..host import state
from ..host.agent import program_check
from ..host.files import Host
from ..model.values.errors import refusal
from ..pipeline import planning
from ..reports import status_file, status_now
from . import command_output, status_text


def do_status(host: Host, args: argparse.Namespace) -> int:
    """corral status"""
    if args.tenants:
        if args.html:
            raise refusal("the page shows no tenants: leave out --html or --tenants", path="--html")
        return show_tenants(host, args)
    status = published_now(host)
    if not status:
        raise refusal(f"{why_no_status(host)}; corral drift checks now", path=state.STATUS)
    if args.html:
        from . import status_html

        sys.stdout.write(status_html.page(host, status))
    else:
        lines = status_text.status_lines(host, status, colour=command_output.coloured())
        command_output.show(args, status_data(host, status), lines)
    return ERROR if status.get("error") else IN_SYNC if status.get("in_sync") else DIFFERS


def published_now(host: Host) -> dict[str, t.Any]:
    """The last published status, judged again now (status_now.judged); empty without a status."""
    status = status_file.last_status(host)
    return status_now.judged(host, status) if status else {}


def do_fact(host: Host) -> int:
    """The output of /etc/ansible/facts.d/corral.fact: the status for ansible_local.corral. setup(7) needs exit code 0."""
    status = published_now(host)
    if not status:
        raise refusal(why_no_status(host), path=state.STATUS)
    sys.stdout.write(json.dumps(status, sort_keys=True) + "\n")
    return IN_SYNC


def why_no_status(host: Host) -> str:
    """Why there is no readable status, and what to do."""
    if not state.there(host, state.AGENT):
        return "there is none, since the agent is not installed: install it with corral.node.agent, or with the role"
    if not state.there(host, state.DECLARED):
        return "there is none, since no profile is declared: apply one"
    return "no readable status: is corral-reconcile.timer active? The agent has not checked the node since it booted"


def status_data(host: Host, status: dict[str, t.Any]) -> dict[str, t.Any]:
    """The data of ``corral status --json``: the status (published_now), the last passes of garbage collection, and the program's state."""
    return {**status, "gc": state.read_published(host, state.GC_STATUS), "program": program_check.installed(host)}


def show_tenants(host: Host, args: argparse.Namespace) -> int:
    """corral status --tenants"""
    context = planning.compile_profile(host, command_output.the_profile(host, None))
    if not context.profile.tenants:
        raise refusal("declares no tenants: corral status shows the node", path=state.DECLARED)
    from ..reports import tenant_table

    rows = tenant_table.rows(context)
    command_output.show(args, {"tenants": rows}, tenant_table.lines(rows))
    exceeded = any(quota["used"] > quota["hard"] for row in rows for quota in row["quota"])
    return DIFFERS if exceeded else IN_SYNC
