# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# This module is private to the collection corral.node.
"""The command kubelet: the configuration that a node's kubelet uses, and findings that it does not report."""

from __future__ import annotations

import argparse

from ..constants import DIFFERS, IN_SYNC
from ..host.files import Host
from ..pipeline import kubelet_inspection
from ..reports import kubelet_report
from . import command_output


def do_kubelet(host: Host, args: argparse.Namespace) -> int:
    """corral kubelet"""
    found = kubelet_inspection.inspect(host)
    command_output.show(args, kubelet_report.to_data(found), kubelet_report.lines(found), schema=False)
    differs = found.findings or found.refusals or found.config.problems or found.drift
    return DIFFERS if differs else IN_SYNC
