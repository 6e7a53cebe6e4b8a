# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# This module is private to the collection corral.node.
"""The module confirm."""

from __future__ import annotations

import typing as t

from . import _module
from ._core.cli import confirm_command
from ._core.host.files import Host
from ._core.host.plan import preflight
from ._core.pipeline import confirming


def run(spec: dict[str, t.Any]) -> None:
    """Run the module confirm."""
    _module.run(spec, confirm_task)


def confirm_task(module: _module.AnsibleModule, host: Host) -> dict[str, t.Any]:
    """Keep the unconfirmed profile."""
    digits = module.params["hash"]
    if module.check_mode:
        preflight.refuse_node(host)
        pending = confirming.to_confirm(host, digits)
    else:
        pending = _module.locked(module, host, lambda: confirming.keep(host, digits))
    return {"changed": pending is not None, **confirm_command.data(pending)}
