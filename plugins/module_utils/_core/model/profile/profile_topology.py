# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# This module is private to the collection corral.node.
"""The section ``topology`` of a profile: the policy of the topology manager."""

from __future__ import annotations

import typing as t

from ..numa.topology_manager import Policy
from . import schema_types

_CLOSEST, _NODES = "prefer-closest-numa-nodes", "max-allowable-numa-nodes"


def build(topology: dict[str, t.Any] | None) -> Policy | None:
    if topology is None:
        return None
    options = topology.get("options", {})
    return Policy(
        topology["policy"],
        topology["scope"],
        options.get(_CLOSEST, False),
        options.get(_NODES, schema_types.NODE_LIMIT),
        topology["preferred_by"],
    )


def to_data(policy: Policy) -> dict[str, t.Any]:
    options = {_CLOSEST: policy.prefer_closest, _NODES: policy.max_nodes}
    return {"policy": policy.name, "scope": policy.scope, "preferred_by": policy.preferred_by, "options": options}
