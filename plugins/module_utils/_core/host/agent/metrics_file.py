# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# This module is private to the collection corral.node.
"""The file of metrics, in the folder of node_exporter's textfile collector."""

from __future__ import annotations

import os
import sys
import typing as t

from ...model.agent import agent_units
from ...model.status import metrics
from .. import state
from ..files import Host


def publish(host: Host, status: t.Mapping[str, t.Any], began: float) -> t.Optional[str]:
    """Write the metrics of a tick that began at ``began`` (seconds since the boot), if the folder for metrics exists.

    Returns the error; None without an error.
    """
    path = agent_units.metrics_file(agent_units.metrics_dir(state.read_json(host, state.AGENT)))
    if not path or not host.is_dir(os.path.dirname(path)):
        return None
    text = metrics.text(status, seconds=host.uptime() - began, python=sys.version.split()[0])
    try:
        host.write_file(path, text)
    except OSError as error:
        return (
            f"{path}: cannot be written ({error.strerror}): no metrics are written, and the profile is still enforced"
        )
    return None


def refresh(host: Host, now: int, began: float) -> bool:
    """Write the metrics of a tick that changed nothing. Returns whether this write and the previous write succeeded."""
    status = state.read_json(host, state.STATUS)
    return status["metrics_error"] is None and publish(host, {**status, "time": now}, began) is None


def publish_gc(host: Host, status: t.Mapping[str, t.Any]) -> t.Optional[str]:
    """Write the metrics of garbage collection from ``status`` (gc.json). Returns the error; None without an error."""
    from ...model.status import gc_metrics

    path = agent_units.gc_metrics_file(agent_units.metrics_dir(state.read_json(host, state.AGENT)))
    if not path or not host.is_dir(os.path.dirname(path)):
        return None
    try:
        host.write_file(path, gc_metrics.text(status))
    except OSError as error:
        return f"{path}: cannot be written ({error.strerror}): no metrics"
    return None
