# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# This module is private to the collection corral.node.
"""The file of metrics: where node_exporter's textfile collector finds it."""

from __future__ import annotations

import os
import sys
import typing as t

from ..model import metrics
from .files import Host


def publish(host: Host, path: str, told: t.Mapping[str, t.Any], seconds: float) -> t.Optional[str]:
    """Write the metrics where their folder is there; what went wrong, None when nothing did."""
    if not host.is_dir(os.path.dirname(path)):
        return None
    try:
        host.write_file(path, metrics.text(told, seconds=seconds, python=sys.version.split()[0]))
    except OSError as error:
        return f"{path}: cannot be written ({error.strerror}): no metrics, the node is kept all the same"
    return None
