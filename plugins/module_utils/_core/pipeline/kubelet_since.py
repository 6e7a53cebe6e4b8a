# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# This module is private to the collection corral.node.
"""The time when each finding about the kubelet was first seen, kept in a file beside the agent's status.

The command corral kubelet writes that file, also while no profile is declared; no tick looks for findings.
"""

from __future__ import annotations

import contextlib
import json

from ..host import state
from ..host.files import Host
from ..model.kubelet.inspected import Inspection
from ..model.kubelet.pod_findings import Item
from ..reports import drift_since, status_file


def dated(host: Host, found: Inspection, *, keep: bool = False) -> Inspection:
    """The inspection with the times (epoch seconds) at which its findings and its drift were first seen.

    With ``keep``, if Corral is on the node, new findings are written to the file, and findings that are gone are removed.
    """
    known = drift_since.rows(state.read_json(host, state.KUBELET_FINDINGS))
    since: dict[Item, int] = {one.item(): known[one.item()] for one in found.findings if one.item() in known}
    if keep:
        since = {**dict.fromkeys((one.item() for one in found.findings), int(host.now())), **since}
    if keep and since != known and host.is_dir(state.RUN):
        # If the user may not write or the disk is full, the findings are shown all the same.
        with contextlib.suppress(OSError):
            kept = [[*item, moment] for item, moment in sorted(since.items())]
            host.write_file(state.KUBELET_FINDINGS, json.dumps(kept) + "\n")
    drift = drift_since.known(host, status_file.last_status(host)) if found.drift else {}
    return found._replace(since=since, drift_since=drift)
