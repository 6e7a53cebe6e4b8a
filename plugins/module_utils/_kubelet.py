# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# This module is private to the collection corral.node.
"""The module kubelet_info."""

from __future__ import annotations

import typing as t

from . import _module
from ._core.host.files import Host
from ._core.pipeline import kubelet_inspection, kubelet_since
from ._core.reports import kubelet_report


def run() -> None:
    """Run the module kubelet_info."""
    _module.run({"root": {"type": "path"}}, kubelet_task)


def kubelet_task(module: _module.AnsibleModule, host: Host) -> dict[str, t.Any]:
    """The facts known of the node's kubelet."""
    inspection = _module.replayed(
        module, host, lambda machine: kubelet_since.dated(machine, kubelet_inspection.inspect(machine))
    )
    data = dict(kubelet_report.to_data(inspection))
    del data["mended"]  # A module that reads mends nothing.
    return {"changed": False, **data, "report": kubelet_report.lines(inspection)}
