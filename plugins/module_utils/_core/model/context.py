# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# This module is private to the collection corral.node.
"""What every manager is given: the profile, the machine, and what one manager decides for another."""

from __future__ import annotations

import typing as t

from .pools import Pools
from .profile import Profile
from .topology import Topology


class Attempt(t.NamedTuple):
    """The last time the kernel was asked for a pool of hugepages: how many, how many it gave, when (epoch seconds)."""

    wanted: int
    got: int
    time: float


class Context(t.NamedTuple):
    """The compiled profile. ``fresh`` is a profile change or a boot, at which hugepages are asked for at once.

    ``before`` has the kernel values that Corral has changed, by file, as they were: what a profile no longer declares
    goes back to them, and the rest of the plan must count with that. ``origins`` says which layer each leaf of the
    profile comes from, where that is known (see compose.py). ``by_timer`` is a tick: it reads, and starts no process. ``at_boot``
    units are yet to be started.
    """

    profile: Profile
    topology: Topology
    pools: Pools
    now: float
    attempts: t.Mapping[str, Attempt] = {}
    fresh: bool = False
    before: t.Mapping[str, str] = {}
    origins: t.Mapping[str, str] = {}
    by_timer: bool = False
    at_boot: bool = False
