# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# This module is private to the collection corral.node.
"""The kinds of patterns that match workloads. gc_match.py compares containers of Podman with patterns of each kind."""

from __future__ import annotations

from ..values.records import NamedTuple


class MatchKind(NamedTuple):
    """A kind of pattern. ``key``: the kind's key in a workload's match. ``members``: the kind's key in a tenant's members.

    ``is_unit``: patterns match services of systemd. ``in_monitor``: the command line of a container's monitor (conmon) has the matched
    name; names and labels of other kinds are known only to the engine. ``has_containers``: the workload may declare its containers.
    """

    key: str
    members: str
    is_unit: bool = False
    in_monitor: bool = False
    has_containers: bool = False


MATCH_KINDS = {
    kind.key: kind
    for kind in (
        MatchKind("unit", "units", is_unit=True),
        MatchKind("container", "containers", in_monitor=True),
        MatchKind("pod", "pods", has_containers=True),
        MatchKind("label", "labels"),
    )
}
BY_MEMBERS = {kind.members: kind for kind in MATCH_KINDS.values()}
