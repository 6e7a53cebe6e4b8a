# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# This module is private to the collection corral.node.
"""What pods may have of the node, now and once the profile is applied."""

from __future__ import annotations

import typing as t

from ..host.files import Host
from ..model.kubelet import kubelet_sizing
from ..model.kubelet.config_text import NotEditable
from ..model.kubelet.kubelet_config import effective
from ..model.kubelet.kubelet_sizing import Amount
from ..model.plan.context import Context
from ..model.topology.topology import Topology
from ..model.values.records import NamedTuple
from . import kubelet_observed
from .kubelet_target import wanted_of


class Outlook(NamedTuple):
    """What pods may have of the node now, and once the profile is applied (None: it declares nothing of the kubelet)."""

    now: tuple[Amount, ...]
    then: t.Optional[tuple[Amount, ...]]


def outlook(host: Host, context: t.Optional[Context], topology: Topology) -> t.Optional[Outlook]:
    """The sizing of the node before and after a profile; None where there is no kubelet to size. No process is started.

    Without a context the node has no profile, and this topology.
    """
    asked = context is not None and context.profile.kubelet is not None
    has_profile = context is not None
    context = (context or kubelet_observed.without_profile(host, topology))._replace(run="tick")
    seen = kubelet_observed.observe(host, context, pools_stay=not has_profile)
    if seen.missing:
        return None
    now = tuple(kubelet_sizing.sizing(effective(seen.layers, seen.flags), seen.machine))
    if not asked or context.profile.kubelet is None:
        return Outlook(now, None)
    try:
        dummy, then = wanted_of(seen, context.profile.kubelet)
    except NotEditable:
        return Outlook(now, None)
    return Outlook(now, tuple(kubelet_sizing.sizing(then.config, seen.machine)))
