# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# This module is private to the collection corral.node.
"""The command kubelet: the configuration in force of a node's kubelet, and findings that the kubelet does not report."""

from __future__ import annotations

import argparse

from ..constants import DIFFERS, IN_SYNC
from ..host.files import Host
from ..model.kubelet.inspected import Mended
from ..model.values.errors import refusal
from ..pipeline import kubelet_inspection, kubelet_mending, kubelet_since, locked_run
from ..reports import kubelet_report
from . import command_output


def do_kubelet(host: Host, args: argparse.Namespace) -> int:
    """corral kubelet"""
    mended: list[Mended] = []
    if args.mend_shared:
        if not host.live:
            raise refusal(
                "changes containers of this machine: leave it out for a copy of another one", path="--mend-shared"
            )
        mended = locked_run.locked(host, lambda: kubelet_mending.mend(host), publish=locked_run.published_by_work)
    seen = kubelet_since.dated(host, kubelet_inspection.inspect(host), keep=host.live)
    said = kubelet_report.mended_lines(mended)
    command_output.show(args, kubelet_report.to_data(seen, said), [*said, *kubelet_report.lines(seen)], schema=False)
    differs = seen.findings or seen.refusals or seen.config.problems or seen.drift
    return DIFFERS if differs else IN_SYNC
