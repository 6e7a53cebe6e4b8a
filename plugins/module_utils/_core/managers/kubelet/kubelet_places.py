# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# This module is private to the collection corral.node.
"""The places where the kubelet manager writes. Without a kubelet a tick loads only this module and kubelet.py."""

from __future__ import annotations

from ...host import state
from ...model.plan.places import Place

NAME = "kubelet"
DROPIN = "20-corral.conf"
KEPT = f"{state.STATE}/kubelet.json"  # the original lines of the keys that Corral changed in a file of others
DUE = state.KUBELET_DUE
DRAINED = state.DRAINED
# The usual names of --config. Corral edits no file of another name, which another program may use.
CONFIG = (
    r"/(?:[^\0/]+/)*(?:[^\0/]*kubelet[^\0/.]*\.(?:ya?ml|conf|json)|[^\0/]*kubelet[^\0/]*/config(?:\.ya?ml|\.json)?)"
)
WRITES = (
    Place("file", rf"/[^\0]+/{DROPIN.replace('.', '[.]')}"),
    # No original for a file of others: KEPT has the original lines of single keys, and later edits of other lines stay.
    Place("file", CONFIG, volatile=True),
    Place("file", r"/[^\0]+/(cpu|memory)_manager_state", None, volatile=True),
    Place("file", r"/[^\0]+/(cpu|memory)_manager_state\.corral-[a-z]+-[0-9]{8}T[0-9]{6}Z", volatile=True),
    Place("file", KEPT, volatile=True),
    Place("file", DUE, volatile=True),
    Place("unit", r"kubelet\.service", "start|stop", volatile=True),
    Place("health", r"kubelet\.service", volatile=True),
    Place("hook", r"/.+", "drain|resume", volatile=True),
)
