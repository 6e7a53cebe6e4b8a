# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# This module is private to the collection corral.node.
"""The module status_info."""

from __future__ import annotations

import typing as t

from . import _module
from ._core.cli import status_command, status_text
from ._core.constants import SCHEMA
from ._core.host import state
from ._core.host.files import Host, Unreadable
from ._core.model.profile import profile
from ._core.model.values.errors import CorralError
from ._core.pipeline import declared_profile


def run() -> None:
    """Run the module status_info."""
    _module.run({}, status_task)


def unseen(host: Host) -> str:
    """The report line of a node without a status."""
    return f"{state.STATUS}: {status_command.why_no_status(host)}"


def status_task(module: _module.AnsibleModule, host: Host) -> dict[str, t.Any]:
    """The agent's last status, and the declared profile; a node without either is described as well."""
    del module  # it has no options
    status = status_command.published_now(host)
    lines = status_text.status_lines(host, status) if status else [unseen(host)]
    declared = None
    try:
        declared = declared_profile.in_force(host)
    except (CorralError, Unreadable) as error:
        lines.append(f"the declared profile cannot be read: {error}")
    return {
        "changed": False,
        "schema": SCHEMA,
        "profile": None if declared is None else profile.to_data(declared),
        "status": status_command.status_data(host, status) if status else None,
        "report": lines,
    }
